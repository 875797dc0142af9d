//! Stands for MultiKueue, which the simulation leaves out: a Job that has quota on the hub runs on the first
//! cluster whose queue has room for it. After `pkg/controller/admissionchecks/multikueue` of Kueue, with one
//! cluster nominated at a time. What becomes of a Job whose cluster is lost is left out.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::{net::TcpStream, time::Instant};

use super::facts;
use fedq_sim::{
    api::{Internal, write_internally},
    cluster::{Cluster, State},
    kind::Kind,
    kueue::Key,
};

pub const CHECK: &str = "multikueue";
pub const CONTROLLER: &str = "kueue.x-k8s.io/multikueue";
const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

const PERIOD: Duration = Duration::from_millis(100);
/// Before the next cluster is asked.
const PAUSE: Duration = Duration::from_millis(200);
/// A cluster that has not said by then whether it has quota is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_millis(200);

pub struct Dispatcher {
    hub: Arc<State>,
    /// In the order that they are nominated in.
    workers: Vec<(Arc<State>, SocketAddr)>,
    /// The cluster that a workload waits for, by number, and since when.
    nominated: BTreeMap<Key, (usize, Instant)>,
}

impl Dispatcher {
    pub fn new(hub: &Cluster, workers: &[Cluster]) -> Self {
        let workers = workers.iter().map(|worker| (Arc::clone(&worker.state), worker.address)).collect();
        Self { hub: Arc::clone(&hub.state), workers, nominated: BTreeMap::new() }
    }

    pub async fn run(mut self) {
        loop {
            self.round().await;
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn round(&mut self) {
        let workloads = all(&self.hub, "Workload");
        let wanted: BTreeSet<&Key> =
            workloads.iter().filter(|(_, workload)| wants_a_place(workload)).map(|(key, _)| key).collect();
        self.nominated.retain(|key, _| wanted.contains(key));
        for (worker, _) in &self.workers {
            for (key, copy) in all(worker, "Workload") {
                if is_ours(&copy) && !wanted.contains(&key) {
                    remove(worker, &key, &copy).await;
                }
            }
        }
        for (key, workload) in &workloads {
            if wanted.contains(key) {
                self.place(key, workload).await;
            }
        }
    }

    async fn place(&mut self, key: &Key, workload: &Value) {
        let reserving = self.workers.iter().position(|(worker, _)| {
            get(worker, "Workload", key).is_some_and(|copy| facts::holds(&copy, "QuotaReserved"))
        });
        match reserving {
            Some(number) => self.run_at(number, key, workload).await,
            None => self.nominate(key, workload).await,
        }
    }

    /// A copy of the workload asks the next cluster for quota.
    async fn nominate(&mut self, key: &Key, workload: &Value) {
        let next = match self.nominated.get(key) {
            None => 0,
            Some((number, since)) => {
                let copy = get(&self.workers[*number].0, "Workload", key);
                let asked = copy.is_some_and(|copy| facts::condition(&copy, "QuotaReserved").is_none());
                if since.elapsed() < if asked { PATIENCE } else { PAUSE } {
                    return;
                }
                (number + 1) % self.workers.len()
            }
        };
        if let Some((number, _)) = self.nominated.insert(key.clone(), (next, Instant::now())) {
            let_go(&self.workers[number].0, key).await;
        }
        let (worker, address) = &self.workers[next];
        let status = json!({"nominatedClusterNames": [worker.name]});
        write(&self.hub, "Workload", key, Internal::Status(status)).await;
        let answers = tokio::time::timeout(CONNECT, TcpStream::connect(address)).await;
        if matches!(answers, Ok(Ok(_))) {
            let copy = json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
                "metadata": {"namespace": key.0, "name": key.1, "labels": {ORIGIN: CHECK}},
                "spec": workload["spec"],
            });
            write(worker, "Workload", key, Internal::Create(copy)).await;
        }
    }

    /// The Job runs there, and the hub is told.
    async fn run_at(&self, number: usize, key: &Key, workload: &Value) {
        let worker = &self.workers[number].0;
        let job_key = (key.0.clone(), facts::owner(workload).to_owned());
        let Some(job) = get(&self.hub, "Job", &job_key) else { return };
        match get(worker, "Job", &job_key) {
            None => write(worker, "Job", &job_key, Internal::Create(remote(&job, &key.1))).await,
            Some(remote) if job["spec"]["suspend"] == false => {
                let status = differences(&job["status"], &remote["status"]);
                if !status.is_empty() {
                    write(&self.hub, "Job", &job_key, Internal::Status(status.into())).await;
                }
            }
            Some(_) => {}
        }
        if let Some(checks) = ready(workload, &worker.name, self.hub.now()) {
            let status = json!({
                "admissionChecks": checks, "clusterName": worker.name, "nominatedClusterNames": null,
            });
            write(&self.hub, "Workload", key, Internal::Status(status)).await;
        }
    }
}

/// Whether it has quota on the hub, and waits for MultiKueue or is with it.
fn wants_a_place(workload: &Value) -> bool {
    facts::holds(workload, "QuotaReserved")
        && !facts::holds(workload, "Finished")
        && workload["metadata"]["deletionTimestamp"].is_null()
        && checks(workload).any(|check| check["name"] == CHECK)
}

fn checks(workload: &Value) -> impl Iterator<Item = &Value> {
    workload["status"]["admissionChecks"].as_array().into_iter().flatten()
}

/// The states of all checks once this one is Ready; `None` where it is.
fn ready(workload: &Value, worker: &str, now: Timestamp) -> Option<Vec<Value>> {
    let mut states: Vec<Value> = checks(workload).cloned().collect();
    let own = states.iter_mut().find(|check| check["name"] == CHECK && check["state"] != "Ready")?;
    own["state"] = json!("Ready");
    own["message"] = json!(format!("The workload got reservation on \"{worker}\""));
    own["lastTransitionTime"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    Some(states)
}

/// The Job as a worker gets it: without whom it is managed by, with the workload that it belongs to.
fn remote(job: &Value, workload: &str) -> Value {
    let metadata = &job["metadata"];
    let mut labels = metadata["labels"].clone();
    labels[PREBUILT] = json!(workload);
    labels[ORIGIN] = json!(CHECK);
    let mut spec = job["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.shift_remove("managedBy");
        spec.shift_remove("selector");
    }
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "namespace": metadata["namespace"], "name": metadata["name"],
            "labels": labels, "annotations": metadata["annotations"],
        },
        "spec": spec,
    })
}

/// A merge patch that makes `old` `new`, at the first level.
fn differences(old: &Value, new: &Value) -> Map<String, Value> {
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (old, new) = (fields(old), fields(new));
    let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
    gone.chain(changed.map(|(name, value)| (name.clone(), value.clone()))).collect()
}

fn is_ours(workload: &Value) -> bool {
    workload["metadata"]["labels"][ORIGIN] == CHECK
}

async fn remove(worker: &Arc<State>, key: &Key, copy: &Value) {
    let job = (key.0.clone(), facts::owner(copy).to_owned());
    write(worker, "Job", &job, Internal::Delete).await;
    let_go(worker, key).await;
}

/// Kueue keeps a workload that held quota until its owner lets go of it.
async fn let_go(worker: &Arc<State>, key: &Key) {
    write(worker, "Workload", key, Internal::Patch(json!({"metadata": {"finalizers": null}}))).await;
    write(worker, "Workload", key, Internal::Delete).await;
}

fn kind(name: &str) -> &'static Kind {
    Kind::named(name).expect("a kind that is served")
}

fn all(cluster: &State, name: &str) -> Vec<(Key, Arc<Value>)> {
    cluster.store.list(kind(name), None).0
}

fn get(cluster: &State, name: &str, key: &Key) -> Option<Arc<Value>> {
    cluster.store.get(kind(name), key)
}

/// What is refused is tried again in the next round, with what there is then.
async fn write(cluster: &Arc<State>, name: &str, key: &Key, what: Internal) {
    if let Err(refusal) = write_internally(cluster, "multikueue", kind(name), key.clone(), what).await {
        tracing::debug!("The dispatcher's write was refused: {}", refusal.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_followed_in_what_goes_as_well() {
        let (old, new) = (json!({"active": 2, "ready": 2}), json!({"ready": 0, "succeeded": 2}));
        assert_eq!(Value::from(differences(&old, &new)), json!({"active": null, "ready": 0, "succeeded": 2}));
        assert!(differences(&new, &new).is_empty());
    }

    #[test]
    fn a_worker_s_job_is_its_own_to_run() {
        let job = json!({
            "metadata": {"namespace": "n", "name": "j", "uid": "u", "labels": {"a": "b"}},
            "spec": {"managedBy": CONTROLLER, "parallelism": 1},
        });
        let remote = remote(&job, "job-j-1");
        assert_eq!(remote["spec"], json!({"parallelism": 1}));
        assert_eq!(remote["metadata"]["labels"], json!({"a": "b", PREBUILT: "job-j-1", ORIGIN: CHECK}));
        assert!(remote["metadata"]["uid"].is_null());
    }
}
