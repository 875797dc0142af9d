//! The stage of a case with a daemon: empty clusters, one `fedqd` on the hub, and words for what cases do and see.
//!
//! Claims and ClusterQueues have no namespace, so a hub has room for one daemon: these cases are serial.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fedq_values::quantity::Quantity;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};

use super::appwrapper_stage::APPWRAPPER;
use crate::said;
use crate::support::audit::{Mark, Request};
use crate::support::cluster::{Cluster, Id, Part, id};
use crate::support::daemon::{Daemon, Home};
use crate::support::fleet::Fleet;
use crate::support::kueue::{install_crds, remove_crds};
use crate::support::nodes::CASE_LABEL;
use crate::support::process::free_ports;
use crate::support::wait::{Seen, eventually};

pub const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
pub const CLAIMS: &str = "galaxy.kubestellar.io/v1alpha1";
pub const CLAIM: &str = "ClusterResourceClaim";
/// Reconciling takes a second; the rest is for a busy machine.
pub const SOON: Duration = Duration::from_mins(1);
/// As the audit logs know the daemon, on the hub and on the workers.
pub const FEDQD: &str = "fedqd";
pub const GPU: &str = "nvidia.com/gpu";

/// Patient enough for a busy machine, and with positions stored soon after they are reached.
pub const PATIENT: &str = "{allowLoopback: true, nodePositionInterval: 1s}";
/// A cluster that falls silent is noticed within the time of a case.
pub const HASTY: &str =
    "{allowLoopback: true, requestTimeout: 2s, staleAfter: 4s, lostTimeout: 14s, nodePositionInterval: 1s}";

pub const CRDS: &str = include_str!("../../../deploy/crds/clusterresourceclaims.yaml");
/// What `fedqd --print-crds=ocm` prints.
pub const OCM_CRDS: &str = include_str!("../../../deploy/ocm/crds.yaml");

pub struct Stage<'f> {
    pub fleet: &'f Fleet,
    /// Prefix of the case's names, and its namespace and flavor.
    pub case: &'static str,
    pub daemon: Daemon,
    /// Where the API is reached so that what is said is checked against its document.
    pub server: String,
    /// Where fedqd listens itself.
    pub unchecked: String,
}

/// What a claim gives to one queue from one flavor.
pub struct Assign<'a> {
    pub queue: &'a str,
    pub flavor: &'a str,
    pub resources: &'a [(&'a str, &'a str)],
}

/// How a case's daemon differs from the ordinary one.
#[derive(Default)]
pub struct Setup<'a> {
    /// The section `clusters`.
    pub clusters: Option<&'a str>,
    /// Further sections of the configuration.
    pub more: &'a str,
    /// Instead of an administrator's.
    pub hub_kubeconfig: Option<String>,
}

impl<'f> Stage<'f> {
    /// `name` is the case's function, under which a failure finds the log.
    pub async fn set(fleet: &'f Fleet, name: &str, case: &'static str) -> Result<Self> {
        clear(fleet).await.context("clear what earlier cases left")?;
        Self::start(fleet, name, case, Setup::default()).await
    }

    /// With the section `clusters` and further sections of the configuration.
    pub async fn set_with(
        fleet: &'f Fleet,
        name: &str,
        case: &'static str,
        clusters: &str,
        more: &str,
    ) -> Result<Self> {
        clear(fleet).await.context("clear what earlier cases left")?;
        let setup = Setup { clusters: Some(clusters), more, ..Setup::default() };
        Self::start(fleet, name, case, setup).await
    }

    /// The clusters are cleared already, and what the daemon's own rights need is there.
    pub async fn start(fleet: &'f Fleet, name: &str, case: &'static str, setup: Setup<'_>) -> Result<Self> {
        let namespace = namespace_of(case);
        fleet
            .hub
            .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"))
            .await?;
        let home = Home::new(fleet, name)?;
        let kubeconfig = match setup.hub_kubeconfig {
            Some(kubeconfig) => kubeconfig,
            None => fleet.hub.kubeconfig_for(FEDQD, &["system:masters"])?,
        };
        let kubeconfig = home.file("hub.kubeconfig", &kubeconfig)?;
        // The first port is free until the daemon takes it, so one of two further ones is another.
        let [one, other] = free_ports()?;
        let api_port = if one == home.port { other } else { one };
        let config = format!(
            "namespace: {namespace}\nhub: {{kubeconfig: {}}}\nstore: {{path: data/fedq.db}}\n\
             metrics: {{address: 127.0.0.1:{}}}\napi: {{address: 127.0.0.1:{api_port}}}\n\
             webhook: {{address: disabled}}\nclusters: {}\n{}\n{}",
            kubeconfig.display(),
            home.port,
            setup.clusters.unwrap_or(PATIENT),
            setup.more,
            // Ordinary pods run in these, as in most namespaces; one case looks at what is forbidden.
            if setup.more.contains("namespaces:") { "" } else { "namespaces: {podSecurity: baseline}\n" },
        );
        let daemon = home.start("http", &config).await?;
        let unchecked = format!("http://127.0.0.1:{api_port}");
        Ok(Self { fleet, case, daemon, server: said::before(name, &unchecked), unchecked })
    }

    pub fn hub(&self) -> &'f Cluster {
        &self.fleet.hub
    }

    pub fn namespace(&self) -> String {
        namespace_of(self.case)
    }

    /// Joins a cluster as an administrator of it, through a Secret as kubectl would make it.
    pub async fn join(&self, cluster: &str, worker: &Cluster) -> Result<()> {
        self.put_secret(cluster, &worker.kubeconfig_for(FEDQD, &["system:masters"])?).await
    }

    pub async fn put_secret(&self, cluster: &str, kubeconfig: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": cluster, "namespace": self.namespace(), "labels": {"fedq.dev/cluster": cluster}},
            "stringData": {"kubeconfig": kubeconfig},
        });
        self.hub().apply_object("fedq-test", secret).await?;
        Ok(())
    }

    pub async fn annotate_secret(&self, cluster: &str, key: &str, value: Option<&str>) -> Result<()> {
        let namespace = self.namespace();
        let secret = id("v1", "Secret", cluster).within(&namespace);
        self.hub().merge(secret, Part::Whole, json!({"metadata": {"annotations": {key: value}}})).await
    }

    /// Deletes the Secret, which is how kubectl lets a cluster leave; it goes when fedqd is through.
    pub async fn delete_secret(&self, cluster: &str) -> Result<()> {
        self.hub().delete(id("v1", "Secret", cluster).within(&self.namespace())).await
    }

    /// Writes the assignments of the claim of a cluster, all of them.
    pub async fn assign(&self, cluster: &str, assignments: &[Assign<'_>]) -> Result<()> {
        self.hub().apply_object("fedq-test", claim(cluster, assignments)).await?;
        Ok(())
    }

    /// Waits for a condition of the claim and returns it.
    pub async fn claim_says(&self, cluster: &str, kind: &str, status: &str, reason: &str) -> Result<Value> {
        let name = claim_name(cluster);
        let what = format!("{kind}={status}/{reason}");
        let claim = self
            .hub()
            .wait(id(CLAIMS, CLAIM, &name), &what, SOON, |claim| {
                let found = condition(claim, kind);
                found["status"] == status && (reason.is_empty() || found["reason"] == reason)
            })
            .await?;
        Ok(condition(&claim, kind).clone())
    }

    pub async fn claim(&self, cluster: &str) -> Result<Value> {
        let name = claim_name(cluster);
        self.hub().get(id(CLAIMS, CLAIM, &name)).await?.with_context(|| format!("no claim {name}"))
    }

    /// Marks the ends of the audit logs of the hub and both workers.
    pub fn marks(&self) -> Result<Vec<(&'f Cluster, Mark)>> {
        let clusters = [&self.fleet.hub, &self.fleet.workers[0], &self.fleet.workers[1]];
        clusters.into_iter().map(|cluster| Ok((&**cluster, cluster.mark()?))).collect()
    }

    /// What the daemon wrote anywhere since then.
    pub async fn writes_since(&self, marks: &[(&'f Cluster, Mark)]) -> Result<Vec<Request>> {
        let mut all = Vec::new();
        for (cluster, mark) in marks {
            all.extend(cluster.writes_since(*mark, FEDQD).await?);
        }
        Ok(all)
    }

    /// Waits until the daemon has written nothing for a while.
    pub async fn rest(&self) -> Result<()> {
        eventually("fedqd to have nothing left to write", SOON, async || {
            let marks = self.marks()?;
            tokio::time::sleep(Duration::from_millis(2500)).await;
            let writes = self.writes_since(&marks).await?;
            Ok(Seen::when(writes.is_empty(), || format!("{writes:?}")))
        })
        .await
    }
}

fn namespace_of(case: &str) -> String {
    format!("fedq-{case}")
}

pub fn claim_name(cluster: &str) -> String {
    format!("{cluster}-resource-claim")
}

pub fn claim(cluster: &str, assignments: &[Assign<'_>]) -> Value {
    let assignments: Vec<Value> = assignments
        .iter()
        .map(|one| {
            let resources: BTreeMap<&str, &str> = one.resources.iter().copied().collect();
            json!({"clusterQueueName": one.queue, "flavor": one.flavor, "resources": resources})
        })
        .collect();
    json!({
        "apiVersion": CLAIMS, "kind": CLAIM,
        "metadata": {"name": claim_name(cluster)},
        "spec": {"clusterName": cluster, "resourceAssignments": assignments},
    })
}

/// The condition as it stands, or null.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}

/// A namespace and a flavor over the case's nodes, both named after the case.
pub fn ground(case: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: {case}}}
---
apiVersion: {KUEUE}
kind: ResourceFlavor
metadata: {{name: {case}}}
spec:
  nodeLabels: {{{CASE_LABEL}: {case}}}
"
    )
}

/// A ClusterQueue with one flavor and nothing in it yet, and a LocalQueue of the same name in the case's namespace.
/// `more` are further fields of the queue's spec, indented by two.
pub fn queue(case: &str, name: &str, quotas: &[(&str, &str)], more: &str) -> String {
    let covered: Vec<&str> = quotas.iter().map(|(resource, _)| *resource).collect();
    let mut resources = String::new();
    for (resource, nominal) in quotas {
        let _ = write!(resources, "\n      - {{name: {resource}, nominalQuota: {nominal}}}");
    }
    format!(
        "
apiVersion: {KUEUE}
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  namespaceSelector: {{}}
{more}
  resourceGroups:
  - coveredResources: [{covered}]
    flavors:
    - name: {case}
      resources:{resources}
---
apiVersion: {KUEUE}
kind: LocalQueue
metadata: {{name: {name}, namespace: {case}}}
spec: {{clusterQueue: {name}}}
",
        covered = covered.join(", ")
    )
}

/// A Job of one pod that asks for GPUs only and runs until told to finish.
pub fn job(case: &str, name: &str, queue: &str, requests: &[(&str, &str)], runs: &str) -> Value {
    let requests: BTreeMap<&str, &str> = requests.iter().copied().collect();
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": case, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"suspend": true, "template": {
            "metadata": {"annotations": {
                "pod-complete.stage.kwok.x-k8s.io/delay": runs,
                "pod-complete.stage.kwok.x-k8s.io/jitter-delay": runs,
            }},
            "spec": {"restartPolicy": "Never", "containers": [{
                "name": "main", "image": "example.invalid/train",
                "resources": {"requests": requests, "limits": requests},
            }]},
        }},
    })
}

pub fn job_id<'a>(case: &'a str, name: &'a str) -> Id<'a> {
    id("batch/v1", "Job", name).within(case)
}

/// Lets the pods of a Job succeed, as their program would.
pub async fn finish(worker: &Cluster, case: &str, job: &str) -> Result<()> {
    for pod in worker.list("v1", "Pod", Some(case)).await? {
        if pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == job {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let pod = id("v1", "Pod", name).within(case);
            worker.merge(pod, Part::Status, json!({"status": {"phase": "Succeeded"}})).await?;
        }
    }
    Ok(())
}

/// What a ClusterQueue holds in a cell; `None` if there is no such cell.
pub fn nominal(queue: &Value, flavor: &str, resource: &str) -> Option<String> {
    quota(queue, flavor, resource).map(|quota| text(&quota["nominalQuota"]))
}

pub fn quota<'a>(queue: &'a Value, flavor: &str, resource: &str) -> Option<&'a Value> {
    let groups = queue["spec"]["resourceGroups"].as_array()?;
    let flavors = groups.iter().filter_map(|group| group["flavors"].as_array()).flatten();
    let mut cells = flavors.filter(|one| one["name"] == flavor);
    cells.find_map(|one| one["resources"].as_array()?.iter().find(|cell| cell["name"] == resource))
}

/// What admitted workloads hold of a cell.
pub fn reserved(queue: &Value, flavor: &str, resource: &str) -> String {
    let flavors = queue["status"]["flavorsReservation"].as_array().map_or(&[][..], Vec::as_slice);
    let cells = flavors.iter().filter(|one| one["name"] == flavor);
    let mut cells = cells.filter_map(|one| one["resources"].as_array()).flatten();
    cells.find(|cell| cell["name"] == resource).map_or_else(|| "0".to_owned(), |cell| text(&cell["total"]))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Whether two quantities have the same value, however written.
pub fn same(one: &str, other: &str) -> bool {
    matches!((Quantity::parse(one), Quantity::parse(other)), (Ok(one), Ok(other)) if one == other)
}

/// Waits until the queue holds exactly these quotas of a flavor.
pub async fn holds(cluster: &Cluster, queue: &str, flavor: &str, quotas: &[(&str, &str)]) -> Result<()> {
    let what = format!("{quotas:?} of {flavor}");
    cluster
        .wait(id(KUEUE, "ClusterQueue", queue), &what, SOON, |object| {
            quotas
                .iter()
                .all(|(resource, want)| nominal(object, flavor, resource).is_some_and(|has| same(&has, want)))
        })
        .await?;
    Ok(())
}

/// Every state of a kind on a cluster, in the order in which it happened there.
pub struct Recorder {
    states: Arc<Mutex<Vec<Value>>>,
    task: tokio::task::JoinHandle<Result<()>>,
}

impl Recorder {
    pub async fn start(cluster: &Cluster, api_version: &str, kind: &str) -> Result<Self> {
        let api = cluster.api(id(api_version, kind, "")).await?;
        let list = api.list(&kube::api::ListParams::default()).await?;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let states =
            Arc::new(Mutex::new(list.items.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?));
        let seen = Arc::clone(&states);
        let task = tokio::spawn(async move {
            loop {
                let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
                while let Some(event) = events.try_next().await? {
                    match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            version = object.metadata.resource_version.clone().unwrap_or_default();
                            let object = serde_json::to_value(&object)?;
                            seen.lock().unwrap_or_else(PoisonError::into_inner).push(object);
                        }
                        WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                        WatchEvent::Error(error) => anyhow::bail!("the watch broke off: {error}"),
                    }
                }
            }
        });
        Ok(Self { states, task })
    }

    /// Ends it; an error if it missed anything.
    pub fn stop(self) -> Result<Vec<Value>> {
        ensure!(!self.task.is_finished(), "the recorder ended early");
        self.task.abort();
        Ok(std::mem::take(&mut *self.states.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A heartbeat as a kubelet sends it: only its time is new.
pub async fn heartbeat(cluster: &Cluster, node: &str, second: usize) -> Result<()> {
    let time = format!("2027-01-01T00:{:02}:{:02}Z", second / 60, second % 60);
    let patch = json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "lastHeartbeatTime": time},
    ]}});
    let api = cluster.api(id("v1", "Node", node)).await?;
    api.patch_status(node, &PatchParams::default(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// Serial cases have the clusters to themselves: everything of earlier ones goes, so that capacity is what the case
/// makes it.
pub async fn clear(fleet: &Fleet) -> Result<()> {
    install_crds(&fleet.hub, CRDS).await?;
    // Where OCM's kinds are served fedqd keeps an inventory; cases that want one install them.
    remove_crds(&fleet.hub, OCM_CRDS).await?;
    // Established is said a moment before the server has storage for the kind.
    eventually("claims to be served", SOON, async || {
        fleet.hub.list(CLAIMS, CLAIM, None).await.map(|_| Seen::Done(()))
    })
    .await?;
    let hub = &fleet.hub;
    for secret in hub.list("v1", "Secret", None).await? {
        if secret["metadata"]["labels"]["fedq.dev/cluster"].is_string() {
            release(hub, "v1", "Secret", &secret).await?;
        }
    }
    for secret in hub.list("v1", "Secret", Some("kueue-system")).await? {
        if secret["metadata"]["labels"]["fedq.dev/for-cluster"].is_string() {
            release(hub, "v1", "Secret", &secret).await?;
        }
    }
    // A case that waits for one must not find that of another, about a claim of the same name.
    for event in hub.list("events.k8s.io/v1", "Event", None).await? {
        if event["reportingController"] == "fedq.dev/fedqd" {
            let (name, namespace) =
                (event["metadata"]["name"].as_str(), event["metadata"]["namespace"].as_str());
            let name = name.unwrap_or_default();
            hub.delete(Id { api_version: "events.k8s.io/v1", kind: "Event", namespace, name }).await?;
        }
    }
    let (one, two) = (fleet.worker1(), fleet.worker2());
    tokio::try_join!(
        clear_kind(hub, CLAIMS, CLAIM),
        clear_cluster(hub),
        clear_cluster(one),
        clear_cluster(two)
    )?;
    Ok(())
}

async fn release(cluster: &Cluster, api_version: &str, kind: &str, object: &Value) -> Result<()> {
    let (name, namespace) = (object["metadata"]["name"].as_str(), object["metadata"]["namespace"].as_str());
    let target = Id { api_version, kind, namespace, name: name.unwrap_or_default() };
    cluster.merge(target, Part::Whole, json!({"metadata": {"finalizers": null}})).await?;
    cluster.delete(target).await
}

async fn clear_cluster(cluster: &Cluster) -> Result<()> {
    clear_app_wrappers(cluster).await?;
    for (api_version, kind) in [
        ("batch/v1", "Job"),
        // Those that another cluster's Kueue left have no Job.
        (KUEUE, "Workload"),
        (KUEUE, "LocalQueue"),
        (KUEUE, "ClusterQueue"),
        (KUEUE, "Cohort"),
        (KUEUE, "ResourceFlavor"),
        (KUEUE, "AdmissionCheck"),
        (KUEUE, "MultiKueueConfig"),
        (KUEUE, "MultiKueueCluster"),
        ("v1", "Node"),
    ] {
        clear_kind(cluster, api_version, kind).await?;
    }
    for (api_version, kind) in [(KUEUE, "ClusterQueue"), (KUEUE, "ResourceFlavor")] {
        let what = format!("no {kind} to be left on {}", cluster.name);
        eventually(&what, SOON, async || {
            let left = cluster.list(api_version, kind, None).await?;
            Ok(Seen::when(left.is_empty(), || left.iter().map(|one| one["metadata"].to_string()).collect()))
        })
        .await?;
    }
    Ok(())
}

/// Of a case that came to no end: its operator is gone, and nobody else lets go of what it wrapped.
async fn clear_app_wrappers(cluster: &Cluster) -> Result<()> {
    let kind = "appwrappers.workload.codeflare.dev";
    if cluster.get(id("apiextensions.k8s.io/v1", "CustomResourceDefinition", kind)).await?.is_none() {
        return Ok(());
    }
    let registration = "admissionregistration.k8s.io/v1";
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        for webhook in cluster.list(registration, kind, None).await? {
            let name = webhook["metadata"]["name"].as_str().unwrap_or_default();
            if name.contains("appwrapper") {
                cluster.delete(id(registration, kind, name)).await?;
            }
        }
    }
    // The kind may have been installed a moment ago.
    let wrappers = eventually("AppWrappers to be listed", SOON, async || {
        cluster.list(APPWRAPPER, "AppWrapper", None).await.map(Seen::Done)
    })
    .await?;
    for wrapper in wrappers {
        release(cluster, APPWRAPPER, "AppWrapper", &wrapper).await?;
    }
    Ok(())
}

async fn clear_kind(cluster: &Cluster, api_version: &str, kind: &str) -> Result<()> {
    for object in cluster.list(api_version, kind, None).await? {
        let (name, namespace) =
            (object["metadata"]["name"].as_str(), object["metadata"]["namespace"].as_str());
        cluster.delete(Id { api_version, kind, namespace, name: name.unwrap_or_default() }).await?;
    }
    Ok(())
}
