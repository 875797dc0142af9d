//! What CRD schemas and webhooks fill in.

use serde_json::{Map, Value, json};

use super::{
    jobs::QUEUE_LABEL,
    read::{add_finalizer, child, has_finalizer, is_deleted, text},
};

/// Fills in what `object`, of one of Kueue's kinds or a Job, leaves open; some of it only where there was
/// nothing `before`.
pub fn default(kind: &str, before: Option<&Value>, object: &mut Value) {
    let is_new = before.is_none();
    match kind {
        "ClusterQueue" => {
            cluster_queue(object);
            finalizer(object, is_new);
        }
        "ResourceFlavor" => finalizer(object, is_new),
        "LocalQueue" => {
            fill(object, &["spec"], &json!({"stopPolicy": "None"}));
            fair_sharing(object);
        }
        "Cohort" => fair_sharing(object),
        "Workload" => workload(object),
        "Job" if is_new && !text(object, &["metadata", "labels", QUEUE_LABEL]).is_empty() => {
            child(object, &["spec"]).insert("suspend".to_owned(), json!(true));
        }
        _ => {}
    }
}

fn finalizer(object: &mut Value, is_new: bool) {
    if is_new && !has_finalizer(object) && !is_deleted(object) {
        add_finalizer(object);
    }
}

/// Adds what is missing under `path`, if there is an object.
fn fill(object: &mut Value, path: &[&str], defaults: &Value) {
    if !super::read::at(object, path).is_object() {
        return;
    }
    let fields = child(object, path);
    for (field, value) in defaults.as_object().into_iter().flatten() {
        fields.entry(field.clone()).or_insert_with(|| value.clone());
    }
}

fn fair_sharing(object: &mut Value) {
    fill(object, &["spec", "fairSharing"], &json!({"weight": 1}));
}

fn cluster_queue(object: &mut Value) {
    let empty = || Value::Object(Map::new());
    fill(
        object,
        &["spec"],
        &json!({
            "flavorFungibility": empty(), "preemption": empty(),
            "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None",
        }),
    );
    fill(
        object,
        &["spec", "flavorFungibility"],
        &json!({
            "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor",
        }),
    );
    fill(
        object,
        &["spec", "preemption"],
        &json!({
            "borrowWithinCohort": empty(), "reclaimWithinCohort": "Never", "withinClusterQueue": "Never",
        }),
    );
    fill(object, &["spec", "preemption", "borrowWithinCohort"], &json!({"policy": "Never"}));
    fair_sharing(object);
}

fn workload(object: &mut Value) {
    fill(object, &["spec"], &json!({"active": true}));
    let lists: [(&[&str], &str, Value); 2] = [
        (&["spec"], "podSets", json!({"name": "main", "count": 1})),
        (&["status", "admission"], "podSetAssignments", json!({"name": "main"})),
    ];
    for (path, field, defaults) in lists {
        if !super::read::at(object, path)[field].is_array() {
            continue;
        }
        if let Some(Value::Array(list)) = child(object, path).get_mut(field) {
            for set in list {
                fill(set, &[], &defaults);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `test/integration/singlecluster/webhook/core/clusterqueue_test.go`, "Should have qualified
    /// flavor names / defaults".
    #[test]
    fn a_cluster_queue_gets_its_defaults_once() {
        let mut queue = json!({"metadata": {"name": "cq"}, "spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
        default("ClusterQueue", None, &mut queue);
        assert_eq!(
            queue["spec"],
            json!({
                "preemption": {
                    "withinClusterQueue": "LowerPriority",
                    "borrowWithinCohort": {"policy": "Never"},
                    "reclaimWithinCohort": "Never",
                },
                "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
                "queueingStrategy": "BestEffortFIFO",
                "stopPolicy": "None",
            })
        );
        assert_eq!(queue["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
        let once = queue.clone();
        default("ClusterQueue", None, &mut queue);
        assert_eq!(queue, once);
    }

    /// `pkg/controller/jobs/job/job_webhook_test.go`, "update the suspend field with
    /// 'manageJobsWithoutQueueName=false'".
    #[test]
    fn a_new_job_with_a_queue_is_suspended() {
        let mut job = json!({"metadata": {"labels": {QUEUE_LABEL: "lq"}}, "spec": {"suspend": false}});
        default("Job", None, &mut job);
        assert_eq!(job["spec"]["suspend"], true);
        let mut free = json!({"metadata": {}, "spec": {}});
        default("Job", None, &mut free);
        assert_eq!(free["spec"], json!({}));
        let mut started = json!({"metadata": {"labels": {QUEUE_LABEL: "lq"}}, "spec": {"suspend": false}});
        default("Job", Some(&job), &mut started);
        assert_eq!(started["spec"]["suspend"], false);
    }

    #[test]
    fn nonsense_is_left_alone() {
        for mut object in [json!(null), json!([]), json!({"spec": 3, "status": {"admission": 1}})] {
            let before = object.clone();
            default("Workload", None, &mut object);
            default("LocalQueue", None, &mut object);
            assert_eq!(object, before);
        }
    }
}
