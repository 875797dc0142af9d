//! Who is around AppWrappers: what remembers their phases, and who makes pods of PyTorchJobs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
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

/// Makes the workers of each PyTorchJob, as Kubeflow's operator does.
pub fn play_pytorch(cluster: &Cluster) -> Aborted {
    let client = cluster.client.clone();
    let resource =
        ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("kubeflow.org", "v1", "PyTorchJob"));
    let playing = tokio::spawn(async move {
        let jobs = Api::<DynamicObject>::all_with(client.clone(), &resource);
        loop {
            for job in jobs.list(&kube::api::ListParams::default()).await.into_iter().flatten() {
                if job.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                let pods = Api::<DynamicObject>::namespaced_with(
                    client.clone(),
                    &job.namespace().unwrap_or_default(),
                    &ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
                );
                for pod in workers(&job) {
                    // It is there already.
                    let _ = pods.create(&kube::api::PostParams::default(), &pod).await;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    Aborted(playing.abort_handle())
}

fn workers(job: &DynamicObject) -> Vec<DynamicObject> {
    let worker = &job.data["spec"]["pytorchReplicaSpecs"]["Worker"];
    let pod = |index: u64| {
        let mut metadata = worker["template"]["metadata"].clone();
        if metadata.is_null() {
            metadata = json!({});
        }
        metadata["name"] = json!(format!("{}-worker-{index}", job.name_any()));
        metadata["ownerReferences"] = json!([{
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": job.name_any(), "uid": job.uid(),
            "controller": true,
        }]);
        let mut spec = worker["template"]["spec"].clone();
        spec["restartPolicy"] = json!("OnFailure");
        let pod: Value = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        serde_json::from_value(pod).ok()
    };
    (0..worker["replicas"].as_u64().unwrap_or(1)).filter_map(pod).collect()
}
