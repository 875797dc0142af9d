//! An example of each body, by the name of its schema. A test holds them against the schemas.

use serde_json::{Value, json};

use super::JSON;

/// Puts examples to what `operation` takes and answers.
pub fn add(id: &str, operation: &mut Value) {
    if id == "simulate_placement" {
        operation["requestBody"]["content"][JSON]["example"] = manifest();
    }
    let mut contents = Vec::new();
    for (key, part) in operation.as_object_mut().into_iter().flatten() {
        match key.as_str() {
            "requestBody" => contents.push(part),
            "responses" => contents.extend(part.as_object_mut().into_iter().flat_map(|all| all.values_mut())),
            _ => {}
        }
    }
    for part in contents {
        let Some(content) = part.pointer_mut("/content/application~1json") else { continue };
        let name = content["schema"]["$ref"].as_str().and_then(|path| path.rsplit('/').next());
        let example = if name == Some("Done") { done(id) } else { name.and_then(of) };
        if let Some(example) = example {
            content["example"] = example;
        }
    }
}

fn of(schema: &str) -> Option<Value> {
    if let Some(item) = schema.strip_suffix("List") {
        return of(item).map(|item| json!({"items": [item]}));
    }
    asked(schema).or_else(|| answered(schema))
}

fn asked(schema: &str) -> Option<Value> {
    let example = match schema {
        "AdoptVolume" => {
            json!({"name": "imagenet", "cluster": "oregon", "claim": "datasets-imagenet", "readOnly": true})
        }
        "Assign" => {
            json!({"queue": "team-a", "flavor": "on-demand", "resources": {"cpu": "500", "gpu": "8"}})
        }
        "ClaimSpec" => claim_spec(),
        "ConfirmIdentity" => json!({"uid": "3e1f6d0a-52f5-4b1c-9d0e-0a8f7f1c2b3d"}),
        "CreateVolume" => json!({"name": "data", "size": "100Gi", "accessModes": ["ReadWriteMany"]}),
        "JoinCluster" => json!({"name": "oregon", "kubeconfig": KUBECONFIG}),
        "SetBase" => json!({"flavor": "on-demand", "resource": "gpu", "base": "4"}),
        "SubmitAppWrapper" => json!({"file": APP_WRAPPER, "queue": "main"}),
        "SubmitTask" => json!({"file": TASK, "queue": "main", "envs": {"EPOCHS": "100"}}),
        _ => return None,
    };
    Some(example)
}

fn answered(schema: &str) -> Option<Value> {
    let example = match schema {
        "AuditEntry" => json!({
            "at": SUBMITTED, "who": "ann@example.com", "verb": "cordon", "object": "clusters/oregon", "outcome": "ok",
        }),
        "Capacity" => json!({
            "cluster": "oregon", "state": "Ready", "flavor": "on-demand", "resource": "gpu",
            "capacity": "16", "assigned": "8", "unassigned": "8",
        }),
        "CapacityChange" => json!({
            "at": SUBMITTED, "cluster": "oregon", "flavor": "on-demand", "resource": "gpu", "capacity": "16",
            "usable": "16",
        }),
        "Claim" => claim(),
        "ClaimChange" => json!({
            "resourceVersion": "4711", "dryRun": false, "warnings": [], "spec": claim_spec(),
            "changes": [{
                "queue": "team-a", "flavor": "on-demand", "resource": "gpu",
                "before": "4", "after": "8", "change": "+4",
            }],
        }),
        "ClaimDetail" => json!({
            "name": "oregon-resource-claim", "resourceVersion": "4711", "generation": 3, "spec": claim_spec(),
            "follows": ["cpu", "gpu"], "state": claim(), "flavors": [flavor()], "foreign": {}, "holders": [cell()],
        }),
        "ClaimHistory" => json!({
            "at": SUBMITTED, "claim": "oregon-resource-claim", "generation": 1, "who": "ann@example.com",
            "after": claim_spec(),
        }),
        "Cluster" => json!({
            "name": "oregon", "state": "Ready", "cordoned": false, "source": "kubeconfig", "joined": SUBMITTED,
            "server": "https://oregon.example.com:6443", "nodes": {"total": 3, "usable": 2},
            "capacity": {"cpu": "1000", "gpu": "16"}, "foreign": {}, "flavors": [flavor()],
            "claim": "oregon-resource-claim",
        }),
        "Finding" => {
            json!({"cluster": "oregon", "name": "reachable", "outcome": "ok", "message": "it answers"})
        }
        "Identity" => json!({"user": "ann@example.com", "groups": ["research", "system:authenticated"]}),
        "Placement" => json!({
            "namespace": "default", "name": "with-gpus", "decidedBy": "fedq", "clusters": ["oregon"],
            "conditions": [condition()],
            "groups": [{"index": 0, "name": "", "clusters": 1, "decisions": ["with-gpus-decision-1"]}],
        }),
        "PlacementExplanation" => json!({
            "namespace": "default", "name": "with-gpus", "decidedBy": "fedq", "chosen": ["oregon"],
            "decided": ["oregon"], "conditions": [condition()], "prioritizers": [{"name": "Steady", "weight": 1}],
            "clusters": [{
                "cluster": "oregon", "outcome": "Chosen", "message": "number 1, in group 0", "rank": 1, "group": 0,
                "scores": [100], "total": 100,
            }],
        }),
        "Plan" => plan(),
        "Queue" => queue(),
        "QueueExplanation" => json!({"queue": queue(), "plans": [plan()]}),
        "Upload" => json!({"digest": "5f".repeat(32), "stored": true, "bytes": 48213, "maxBytes": 4_194_304}),
        "Stopped" => json!({"ids": ["k3v9x2ab"]}),
        "Submitted" => json!({
            "id": "k3v9x2ab", "name": "train", "namespace": "default", "queue": "main", "dryRun": false,
        }),
        "Task" => task(),
        "TaskDetail" => with(
            task(),
            json!({
                "forms": [{"accelerators": "H100:8"}], "run": "python train.py\n", "envs": ["EPOCHS"], "events": [event()],
            }),
        ),
        "TaskEvent" => event(),
        "TaskExplanation" => with(
            task(),
            json!({
                "clusters": [{"cluster": "oregon", "verdict": "fits", "chosen": true, "queue": "main", "pending": 0}],
            }),
        ),
        "Version" => json!({"version": env!("CARGO_PKG_VERSION"), "api": "v1"}),
        "Volume" => volume(),
        _ => return None,
    };
    Some(example)
}

/// What each operation says that it did.
fn done(id: &str) -> Option<Value> {
    let message = match id {
        "join_cluster" => "cluster `oregon` joins",
        "leave_cluster" => {
            "cluster `oregon` leaves: its share is withdrawn, then its empty queues are removed"
        }
        "cordon_cluster" => "cluster `oregon` cordoned",
        "uncordon_cluster" => "cluster `oregon` uncordoned",
        "confirm_cluster" => {
            "cluster `oregon` confirmed as 3e1f6d0a-52f5-4b1c-9d0e-0a8f7f1c2b3d: it is listed anew"
        }
        "confirm_removal" => "the removal of oregon-resource-claim is confirmed",
        "set_base" => "base of team-a on-demand gpu: 3 → 4",
        _ => return None,
    };
    let mut done = json!({"message": message, "dryRun": false});
    if id == "join_cluster" {
        done["next"] = "fedq cluster show oregon says when it is Ready".into();
    }
    Some(done)
}

const SUBMITTED: &str = "2026-08-01T09:30:00.000Z";
const APP_WRAPPER: &str = r"apiVersion: workload.codeflare.dev/v1beta2
kind: AppWrapper
metadata: {name: train}
spec:
  components:
  - template:
      apiVersion: batch/v1
      kind: Job
      metadata: {name: train}
      spec:
        template:
          spec:
            restartPolicy: Never
            containers:
            - {name: train, image: pytorch/pytorch, resources: {requests: {nvidia.com/gpu: 8}}}
";
const TASK: &str = "name: train\nresources: {accelerators: H100:8}\nrun: python train.py\n";
const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
current-context: oregon
contexts: [{name: oregon, context: {cluster: oregon, user: fedq}}]
clusters: [{name: oregon, cluster: {server: https://oregon.example.com:6443, certificate-authority-data: LS0t…}}]
users: [{name: fedq, user: {token: …}}]
";

fn manifest() -> Value {
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"name": "with-gpus", "namespace": "default"},
        "spec": {"numberOfClusters": 1},
    })
}

fn claim_spec() -> Value {
    json!({
        "clusterName": "oregon", "nominalResources": {"cpu": "1000", "gpu": "16"},
        "resourceAssignments": [
            {"clusterQueueName": "team-a", "flavor": "on-demand", "resources": {"cpu": "500", "gpu": "8"}},
        ],
    })
}

fn claim() -> Value {
    json!({
        "name": "oregon-resource-claim", "cluster": "oregon", "generation": 3,
        "ready": {"status": "True", "reason": "Ready", "message": "every queue gets what it is assigned"},
        "nominal": [{"resource": "gpu", "amount": "16", "cap": false}],
        "assignments": [{
            "queue": "team-a", "flavor": "on-demand", "requested": {"gpu": "8"}, "effective": {"gpu": "8"},
            "reason": "Assigned",
        }],
        "short": {},
    })
}

fn flavor() -> Value {
    json!({
        "name": "on-demand", "capacity": {"cpu": "1000", "gpu": "16"}, "assigned": {"cpu": "500", "gpu": "8"},
        "unassigned": {"cpu": "500", "gpu": "8"},
    })
}

fn cell() -> Value {
    json!({
        "queue": "team-a", "flavor": "on-demand", "resource": "gpu", "nominal": "12", "base": "4", "target": "12",
        "terms": [{
            "cluster": "oregon", "requested": "8", "effective": "8", "worker": "8", "reserved": "2", "term": "8",
            "reason": "Assigned",
        }],
    })
}

fn queue() -> Value {
    json!({"name": "team-a", "cohort": "research", "cells": [cell()]})
}

fn plan() -> Value {
    json!({
        "at": SUBMITTED, "cluster": "oregon", "cause": "claim oregon-resource-claim generation 3", "who": "ann@example.com",
        "report": {"cells": [{
            "queue": "team-a", "flavor": "on-demand", "resource": "gpu", "requested": "8", "effective": "8",
            "draining": "0", "term": "8", "reason": "Assigned",
        }]},
    })
}

fn condition() -> Value {
    json!({
        "type": "PlacementSatisfied", "status": true, "reason": "AllDecisionsScheduled",
        "message": "All cluster decisions scheduled",
    })
}

fn task() -> Value {
    json!({
        "id": "k3v9x2ab", "kind": "task", "name": "train", "user": "ann@example.com", "phase": "running", "cluster": "oregon",
        "namespace": "default", "queue": "main", "numNodes": 1,
        "nodes": {"succeeded": 0, "failed": 0, "running": 1, "pending": 0}, "accelerators": "H100:8",
        "restarts": 0, "epoch": 1, "submitted": SUBMITTED, "changed": "2026-08-01T09:30:04.250Z",
    })
}

fn volume() -> Value {
    json!({
        "id": "p7d2m4qz", "name": "data", "user": "ann@example.com", "namespace": "default", "size": "100Gi",
        "accessModes": ["ReadWriteMany"], "state": "Bound", "claim": "data-p7d2m4qz", "cluster": "oregon",
        "created": SUBMITTED,
    })
}

fn event() -> Value {
    json!({
        "at": SUBMITTED, "phase": "pending", "reason": "Submitted", "message": "accepted", "epoch": 0,
    })
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}
