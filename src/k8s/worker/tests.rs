use serde_json::{Value, json};

use super::*;
use crate::{
    list_watch::{Link, Record, Sink},
    testing::Server,
};

fn worker() -> Worker {
    let server = Server::start(axum::Router::new());
    let name = ClusterName::new("one").expect("a name");
    Worker::new(name, server.client(), "uid".to_owned(), CancellationToken::new())
}

fn fill<T: Record>(table: &Table<T>, spec: &Value) {
    let mut sink = table.sink();
    let mut object = json!({"metadata": {
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"l": "1"}, "annotations": {"a": "2"},
        "managedFields": [{"manager": "m", "operation": "Update", "time": "2026-01-01T00:00:00Z"}],
    }});
    for (key, value) in spec.as_object().expect("an object") {
        object[key] = value.clone();
    }
    sink.begin();
    sink.set(&serde_json::to_vec(&object).expect("JSON")).expect("an object of this kind");
    sink.end();
    sink.at(9);
    sink.link(Link::Synced);
}

/// As the tables hold it.
fn objects(worker: &Worker) -> [String; 13] {
    [
        format!("{:?}", worker.queues.all()),
        format!("{:?}", worker.local_queues.all()),
        format!("{:?}", worker.flavors.all()),
        format!("{:?}", worker.cohorts.all()),
        format!("{:?}", worker.topologies.all()),
        format!("{:?}", worker.checks.all()),
        format!("{:?}", worker.namespaces.all()),
        format!("{:?}", worker.priority_classes.all()),
        format!("{:?}", worker.direct_workloads.all()),
        format!("{:?}", worker.tasks.jobs.all()),
        format!("{:?}", worker.tasks.job_sets.all()),
        format!("{:?}", worker.tasks.pods.all()),
        format!("{:?}", worker.tasks.volume_claims.all()),
    ]
}

/// Each of a task's objects with all that is read of it.
fn fill_tasks(worker: &Worker) {
    let metadata = json!({
        "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "labels": {
            "task-id": "1a2b3c4d", "fedq.dev/epoch": "2", "volume-id": "v", "jobset.sigs.k8s.io/jobset-name": "s",
            "kueue.x-k8s.io/multikueue-origin": "o",
        },
    });
    let ended = |kind: &str| {
        json!({"conditions": [{
            "type": kind, "status": "True", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]})
    };
    fill(
        &worker.tasks.jobs,
        &json!({"metadata": metadata, "spec": {"suspend": true}, "status": ended("Failed")}),
    );
    fill(&worker.tasks.job_sets, &json!({"metadata": metadata, "status": ended("Completed")}));
    let states = [
        json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
        json!({"waiting": {"reason": "ImagePullBackOff", "message": "m"}}),
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
    ];
    let of = |state: &Value| json!({"name": "main", "restartCount": 2, "state": state});
    let condition =
        json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"});
    fill(
        &worker.tasks.pods,
        &json!({
            "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
            "status": {
                "phase": "Failed", "reason": "Evicted", "conditions": [condition],
                "containerStatuses": states.iter().map(of).collect::<Vec<_>>(),
            },
        }),
    );
    fill(&worker.tasks.volume_claims, &json!({"metadata": metadata, "status": {"phase": "Bound"}}));
}

#[tokio::test]
async fn what_was_known_is_known_again_word_for_word() {
    let before = worker();
    let quota = json!({"name": "cpu", "nominalQuota": 4, "borrowingLimit": "1", "lendingLimit": "500m"});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]}]);
    let condition = json!({
        "type": "Active", "status": "True", "reason": "Ready", "message": "m", "observedGeneration": 3,
    });
    let usage = json!([{"name": "f", "resources": [{"name": "cpu", "total": "3"}]}]);
    let queue = json!({
        "spec": {
            "resourceGroups": groups, "cohortName": "c", "stopPolicy": "Hold", "queueingStrategy": "StrictFIFO",
            "namespaceSelector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
            },
            "admissionChecksStrategy": {"admissionChecks": [{"name": "x", "onFlavors": ["f"]}]},
            "flavorFungibility": {"whenCanBorrow": "Borrow"},
        },
        "status": {
            "conditions": [condition], "flavorsReservation": usage, "pendingWorkloads": 1,
            "reservingWorkloads": 2, "admittedWorkloads": 3,
        },
    });
    fill(&before.queues, &queue);
    fill(
        &before.local_queues,
        &json!({
            "spec": {"clusterQueue": "q", "stopPolicy": "Hold", "fairSharing": {"weight": "2"}},
            "status": {"conditions": [condition], "pendingWorkloads": 1},
        }),
    );
    fill(
        &before.flavors,
        &json!({"spec": {
            "nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
            "topologyName": "t",
        }}),
    );
    fill(&before.cohorts, &json!({"spec": {"parentName": "p", "resourceGroups": groups}}));
    fill(&before.topologies, &json!({}));
    fill(
        &before.checks,
        &json!({"spec": {
            "controllerName": "kueue.x-k8s.io/multikueue",
            "parameters": {"apiGroup": "g", "kind": "k", "name": "n"},
        }}),
    );
    fill(&before.namespaces, &json!({}));
    fill(&before.priority_classes, &json!({"value": 5, "description": "d"}));
    fill(
        &before.direct_workloads,
        &json!({"status": {
            "conditions": [condition],
            "admission": {"clusterQueue": "q", "podSetAssignments": [
                {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}},
            ]},
        }}),
    );

    fill_tasks(&before);

    let text = serde_json::to_vec(&before.known()).expect("JSON");
    let after = worker();
    let known = serde_json::from_slice(&text).expect("as it was written");
    after.restore(&known).expect("as it was written");
    assert_eq!(objects(&after), objects(&before));
    assert_eq!(after.queues.version(), Some(9));
    assert!(!after.synced(), "the cluster has not said that it is still so");
}

#[tokio::test]
async fn a_kind_that_is_not_served_or_was_not_whole_is_not_known() {
    let before = worker();
    before.cohorts.sink().link(Link::Absent);
    before.queues.sink().begin();
    let known = before.known();
    assert!(known.is_empty(), "{known:?}");
}
