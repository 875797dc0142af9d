//! A hub, workers and a fedqd that keeps their quota.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fedq_sim::cluster::{Cluster, Options, until};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::checked::Talk;

/// What broke is tried again after up to half a minute.
pub const WITHIN: Duration = Duration::from_secs(45);
pub const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

pub struct Bed {
    pub hub: Cluster,
    pub workers: Vec<Cluster>,
    pub dir: TempDir,
    daemon: Option<Child>,
    /// Where in its log the start that runs begins.
    started: usize,
    /// What is said to the API.
    pub talk: Talk,
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.dir.path().join("fedqd.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!("the end of fedqd's log:\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        }
    }
}

impl Bed {
    /// A hub with one queue `team` of flavor `gpus`, and workers with two nodes of 8 GPUs each.
    pub async fn start(workers: &[&str]) -> Self {
        let mut bed = Self::without_daemon(workers).await;
        bed.configure("");
        bed.start_daemon();
        bed
    }

    pub async fn without_daemon(workers: &[&str]) -> Self {
        Self::with_hub(Options::named("hub"), workers).await
    }

    pub async fn with_hub(hub: Options, workers: &[&str]) -> Self {
        let hub = Cluster::start(hub).await.unwrap();
        for object in hub_objects() {
            hub.put(object).await.unwrap();
        }
        let mut bed = Self {
            hub,
            workers: Vec::new(),
            dir: TempDir::new().unwrap(),
            daemon: None,
            started: 0,
            talk: Talk::default(),
        };
        for name in workers {
            let worker = Cluster::start(Options::named(name)).await.unwrap();
            for node in ["a", "b"] {
                worker.put(gpu_node(node, 8)).await.unwrap();
            }
            bed.workers.push(worker);
        }
        bed
    }

    pub fn configure(&self, more: &str) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        std::fs::write(path("hub.kubeconfig"), self.hub.kubeconfig("fedqd", &["system:masters"])).unwrap();
        let config = format!(
            "hub: {{kubeconfig: {}}}\nstore: {{path: {}}}\napi: {{address: 127.0.0.1:0}}\nwebhook: {{address: disabled}}\n\
             metrics: {{address: 127.0.0.1:0}}\n{more}",
            path("hub.kubeconfig"),
            path("fedq.db"),
        );
        let clusters = if more.contains("clusters:") { "" } else { "clusters: {allowLoopback: true}\n" };
        std::fs::write(path("fedqd.yaml"), format!("{config}{clusters}")).unwrap();
    }

    pub fn start_daemon(&mut self) {
        self.start_daemon_with(&[]);
    }

    /// With these environment variables.
    pub fn start_daemon_with(&mut self, environment: &[(&str, String)]) {
        assert!(self.daemon.is_none(), "fedqd runs already");
        let log = self.path("fedqd.log");
        self.started = std::fs::read(&log).map_or(0, |log| log.len());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_fedqd"))
            .arg("--config")
            .arg(self.path("fedqd.yaml"))
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn();
        self.daemon = Some(child.unwrap());
    }

    pub fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }

    /// Whether fedqd ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.daemon.as_mut().is_none_or(|daemon| daemon.try_wait().unwrap().is_some())
    }

    /// As Kubernetes does.
    pub async fn stop(&mut self) {
        let mut daemon = self.daemon.take().expect("fedqd runs");
        let pid = rustix::process::Pid::from_child(&daemon);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let ended = tokio::task::spawn_blocking(move || daemon.wait()).await.unwrap().unwrap();
        assert!(ended.success(), "fedqd ended with {ended}");
    }

    /// The process of fedqd; `None` when it has ended.
    pub fn pid(&mut self) -> Option<u32> {
        let daemon = self.daemon.as_mut()?;
        daemon.try_wait().unwrap().is_none().then(|| daemon.id())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the API of this start of fedqd is reached, once it listens.
    pub async fn api(&self) -> String {
        let began = Instant::now();
        loop {
            let log = self.log();
            let told = log[self.started..].split_once("The API listens on ");
            if let Some((address, _)) = told.and_then(|(_, rest)| rest.split_once('"')) {
                return self.talk.with(&format!("http://{address}"));
            }
            assert!(began.elapsed() < WITHIN, "fedqd does not listen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("fedqd.log")).unwrap()
    }

    /// Until fedqd has logged this so many times, over all its starts.
    pub async fn logs(&self, text: &str, times: usize) {
        let began = Instant::now();
        while self.log().matches(text).count() < times {
            assert!(began.elapsed() < WITHIN, "fedqd did not log `{text}` {times} times");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Joins a worker as an administrator does with kubectl alone.
    pub async fn join(&self, worker: &Cluster) {
        self.join_unseen(worker).await;
        self.has_claim(worker).await;
    }

    pub async fn has_claim(&self, worker: &Cluster) {
        let claim = format!("{}-resource-claim", worker.state.name);
        wait("the claim made at the join", &self.hub, || {
            self.hub.get("ClusterResourceClaim", "", &claim).is_some()
        })
        .await;
    }

    /// Without waiting until fedqd has seen anything of it.
    pub async fn join_unseen(&self, worker: &Cluster) {
        self.join_with(worker, &worker.kubeconfig("fedq", &["system:masters"])).await;
    }

    pub async fn join_with(&self, worker: &Cluster, kubeconfig: &str) {
        let name = &worker.state.name;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("fedq-cluster-{name}"), "namespace": "fedq-system",
                "labels": {"fedq.dev/cluster": name},
            },
            "stringData": {"kubeconfig": kubeconfig},
        });
        self.hub.put(secret).await.unwrap();
    }

    pub async fn assign(&self, worker: &Cluster, gpus: &str) {
        let claim = format!("{}-resource-claim", worker.state.name);
        let assignment = json!({"clusterQueueName": "team", "flavor": "gpus", "resources": {"gpu": gpus}});
        let patch = json!({"spec": {"resourceAssignments": [assignment]}});
        self.hub.merge("ClusterResourceClaim", &claim, patch).await.unwrap();
    }

    pub async fn holds(&self, cluster: &Cluster, gpus: &str) {
        let what = format!("{gpus} GPUs in the queue on {}", cluster.state.name);
        wait(&what, cluster, || nominal(cluster).as_deref() == Some(gpus)).await;
    }
}

pub fn nominal(cluster: &Cluster) -> Option<String> {
    let queue = cluster.get("ClusterQueue", "", "team")?;
    let resources = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"].as_array()?.clone();
    let gpus = resources.iter().find(|resource| resource["name"] == "nvidia.com/gpu")?;
    gpus["nominalQuota"].as_str().map(str::to_owned)
}

pub async fn wait(what: &str, cluster: &Cluster, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    let reached = until(&cluster.state, WITHIN, |_| holds()).await;
    assert!(reached, "waited {:?} in vain for {what}", began.elapsed());
}

fn hub_objects() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fedq-system"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}),
        json!({
            "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "gpus"},
            "spec": {"nodeLabels": {"accelerator": "h100"}},
        }),
        json!({
            "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": "team"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": ["nvidia.com/gpu"],
                "flavors": [{"name": "gpus", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "0"}]}],
            }]},
        }),
        json!({
            "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": "queue", "namespace": "team"},
            "spec": {"clusterQueue": "team"},
        }),
    ]
}

pub fn gpu_node(name: &str, gpus: u32) -> Value {
    let amounts = json!({"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": gpus.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"accelerator": "h100"}},
        "spec": {},
        "status": {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        },
    })
}
