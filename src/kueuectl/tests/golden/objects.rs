//! Short forms of objects in fixtures: `{kind: Workload, name: wl1, age: 1h, queue: lq1, cq: cq1, owner: Job/j1/uid}`.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub fn expand(short: &Value, now: &str) -> Value {
    let text = |key: &str| short[key].as_str().unwrap_or_default();
    let kind = text("kind");
    let mut object = short.get("object").cloned().unwrap_or_else(|| json!({}));
    object["kind"] = json!(kind);
    object["apiVersion"] = json!(api_version(kind));
    object["metadata"]["name"] = short["name"].clone();
    if !["ClusterQueue", "ResourceFlavor", "Namespace"].contains(&kind) {
        object["metadata"]["namespace"] = json!(if text("ns").is_empty() { "default" } else { text("ns") });
    }
    for key in ["labels", "uid"] {
        if !short[key].is_null() {
            object["metadata"][key] = short[key].clone();
        }
    }
    if !text("age").is_empty() {
        object["metadata"]["creationTimestamp"] = json!(before(now, text("age")));
    }
    if let [owner, name, uid] = text("owner").split('/').collect::<Vec<_>>()[..] {
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": api_version(owner), "kind": owner, "name": name, "uid": uid}]);
    }
    for (key, pointer) in [("queue", "queueName"), ("cohort", "cohortName"), ("clusterQueue", "clusterQueue")]
    {
        if !text(key).is_empty() {
            object["spec"][pointer] = short[key].clone();
        }
    }
    if !text("cq").is_empty() {
        object["status"]["admission"]["clusterQueue"] = short["cq"].clone();
    }
    for (key, field) in [("pending", "pendingWorkloads"), ("admitted", "admittedWorkloads")] {
        if !short[key].is_null() {
            object["status"][field] = short[key].clone();
        }
    }
    if !short["position"].is_null() {
        object["position"] = short["position"].clone();
    }
    let conditions: Vec<Value> = short["conditions"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(kind, said)| condition(kind, said.as_str().unwrap_or_default(), now))
        .collect();
    if !conditions.is_empty() {
        object["status"]["conditions"] = json!(conditions);
    }
    object
}

/// `True` or `False`, and since when: `True 1h`.
fn condition(kind: &str, said: &str, now: &str) -> Value {
    let (status, since) = said.split_once(' ').unwrap_or((said, "0s"));
    json!({"type": kind, "status": status, "reason": "", "message": "", "lastTransitionTime": before(now, since)})
}

fn before(now: &str, age: &str) -> String {
    let now: Timestamp = now.parse().expect("it is a time");
    let age: SignedDuration = age.parse().expect("it is a duration");
    (now - age).to_string()
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "Pod" | "Namespace" | "ConfigMap" => "v1",
        "Deployment" => "apps/v1",
        "Job" => "batch/v1",
        "JobSet" => "jobset.x-k8s.io/v1alpha2",
        "RayCluster" | "RayJob" => "ray.io/v1",
        "MPIJob" => "kubeflow.org/v2beta1",
        "PaddleJob" | "PyTorchJob" | "TFJob" | "XGBoostJob" => "kubeflow.org/v1",
        _ => "kueue.x-k8s.io/v1beta2",
    }
}
