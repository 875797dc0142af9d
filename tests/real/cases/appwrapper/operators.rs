//! Who is around AppWrappers: what remembers their phases, and whose kinds they wrap.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use super::APPWRAPPER;
use crate::support::cluster::Cluster;

const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Every phase that every AppWrapper has been in: some pass faster than anybody looks.
pub struct History {
    phases: Arc<Mutex<HashMap<String, Vec<String>>>>,
    _following: Aborted,
}

/// Ends a task when it is dropped.
pub struct Aborted(AbortHandle);

impl Drop for Aborted {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl History {
    pub fn follow(cluster: &Cluster) -> Self {
        let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource());
        let phases = Arc::new(Mutex::new(HashMap::<String, Vec<String>>::new()));
        let kept = Arc::clone(&phases);
        let following = tokio::spawn(async move {
            let stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
            let mut stream = std::pin::pin!(stream);
            while let Some(seen) = stream.next().await {
                let Ok(object) = seen else { continue };
                let phase = object.data["status"]["phase"].as_str().unwrap_or_default().to_owned();
                let key = key(&object.namespace().unwrap_or_default(), &object.name_any());
                let mut all = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let list = all.entry(key).or_default();
                if list.last() != Some(&phase) {
                    list.push(phase);
                }
            }
        });
        Self { phases, _following: Aborted(following.abort_handle()) }
    }

    pub fn of(&self, namespace: &str, name: &str) -> Vec<String> {
        let all = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&key(namespace, name)).cloned().unwrap_or_default()
    }
}

pub fn resource() -> ApiResource {
    let (group, version) = APPWRAPPER.split_once('/').unwrap_or_default();
    ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, "AppWrapper"))
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// Makes of PyTorchJobs, RayClusters and RayJobs what Kubeflow's training operator and KubeRay make of them, and says what they
/// say.
pub fn play_foreign(cluster: &Cluster) -> Aborted {
    let client = cluster.client.clone();
    let playing = tokio::spawn(async move {
        loop {
            // What fails, as while the API server is away, is tried again.
            for act in [play_pytorch(&client).boxed(), play_ray(&client).boxed()] {
                let _ = act.await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    Aborted(playing.abort_handle())
}

async fn play_pytorch(client: &Client) -> kube::Result<()> {
    for job in all(client, PYTORCH_JOB).await? {
        let worker = &job.data["spec"]["pytorchReplicaSpecs"]["Worker"];
        for index in 0..worker["replicas"].as_u64().unwrap_or(1) {
            let name = format!("{}-worker-{index}", job.name_any());
            let mut pod = pod(&worker["template"]);
            pod["spec"]["restartPolicy"] = json!("OnFailure");
            make(client, &job, (PYTORCH_JOB, POD), (&name, pod)).await?;
        }
    }
    Ok(())
}

/// A RayJob has a RayCluster of its own, and that a head and groups of workers.
async fn play_ray(client: &Client) -> kube::Result<()> {
    let jobs = all(client, RAY_JOB).await?;
    for job in &jobs {
        let cluster = json!({"spec": job.data["spec"]["rayClusterSpec"]});
        make(client, job, (RAY_JOB, RAY_CLUSTER), (&job.name_any(), cluster)).await?;
        let says = json!({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": job.name_any()});
        say(client, job, RAY_JOB, says).await?;
    }
    for cluster in all(client, RAY_CLUSTER).await? {
        // That of a RayJob goes with it, a while later.
        let is_left = |owner: &OwnerReference| jobs.iter().all(|job| job.uid().as_ref() != Some(&owner.uid));
        if cluster.owner_references().iter().any(|owner| owner.kind == "RayJob" && is_left(owner)) {
            continue;
        }
        let name = cluster.name_any();
        let spec = &cluster.data["spec"];
        let head = pod(&spec["headGroupSpec"]["template"]);
        make(client, &cluster, (RAY_CLUSTER, POD), (&format!("{name}-head"), head)).await?;
        let mut workers = 0;
        for group in spec["workerGroupSpecs"].as_array().into_iter().flatten() {
            for _ in 0..group["replicas"].as_u64().unwrap_or_default() {
                let name = format!("{name}-worker-{workers}");
                make(client, &cluster, (RAY_CLUSTER, POD), (&name, pod(&group["template"]))).await?;
                workers += 1;
            }
        }
        let says = json!({
            "state": "ready", "desiredWorkerReplicas": workers, "availableWorkerReplicas": workers,
            "conditions": [{
                "type": "RayClusterProvisioned", "status": "True", "reason": "AllPodRunningAndReadyFirstTime", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
        say(client, &cluster, RAY_CLUSTER, says).await?;
    }
    Ok(())
}

type Kind = (&'static str, &'static str);

const POD: Kind = ("v1", "Pod");
const PYTORCH_JOB: Kind = ("kubeflow.org/v1", "PyTorchJob");
const RAY_CLUSTER: Kind = ("ray.io/v1", "RayCluster");
const RAY_JOB: Kind = ("ray.io/v1", "RayJob");

fn api_resource((api_version, kind): Kind) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
}

/// Those that are not being deleted.
async fn all(client: &Client, kind: Kind) -> kube::Result<Vec<DynamicObject>> {
    let api = Api::<DynamicObject>::all_with(client.clone(), &api_resource(kind));
    let mut all = api.list(&ListParams::default()).await?.items;
    all.retain(|one| one.metadata.deletion_timestamp.is_none());
    Ok(all)
}

fn pod(template: &Value) -> Value {
    let mut pod = template.clone();
    if pod["metadata"].is_null() {
        pod["metadata"] = json!({});
    }
    pod
}

/// Where it is not there already.
async fn make(
    client: &Client,
    owner: &DynamicObject,
    (owners, kind): (Kind, Kind),
    (name, mut object): (&str, Value),
) -> kube::Result<()> {
    object["apiVersion"] = json!(kind.0);
    object["kind"] = json!(kind.1);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owners.0, "kind": owners.1, "name": owner.name_any(), "uid": owner.uid(), "controller": true,
    }]);
    let namespace = owner.namespace().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &api_resource(kind));
    let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        made => made.map(drop),
    }
}

async fn say(client: &Client, of: &DynamicObject, kind: Kind, status: Value) -> kube::Result<()> {
    if of.data["status"] == status {
        return Ok(());
    }
    let namespace = of.namespace().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &api_resource(kind));
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&of.name_any(), &PatchParams::default(), &patch).await.map(drop)
}
