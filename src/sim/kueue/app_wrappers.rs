//! AppWrappers that name a LocalQueue: a Workload for each, with its pod sets; started when it is admitted and stopped when it
//! is evicted (`pkg/controller/jobs/appwrapper`). Left out: the pod set infos that Kueue writes at the start.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Key, View, default,
    jobs::{self, QUEUE_LABEL},
    operator,
    read::{FINALIZER, child, is_deleted, is_true, items, remove_finalizer, text},
    workload,
};

pub(super) fn reconcile(view: &mut View, now: Timestamp) {
    let managed = |wrapper: &Value| {
        !text(wrapper, &["metadata", "labels", QUEUE_LABEL]).is_empty() && !is_deleted(wrapper)
    };
    let keys: Vec<Key> = view
        .app_wrappers
        .iter()
        .filter(|(_, wrapper)| managed(wrapper))
        .map(|(key, _)| key.clone())
        .collect();
    for key in keys {
        let before = view.app_wrappers[&key].clone();
        let mut wrapper = (*before).clone();
        one(view, &mut wrapper, now);
        if *before != wrapper {
            view.app_wrappers.insert(key, Arc::new(wrapper));
        }
    }
}

fn one(view: &mut View, wrapper: &mut Value, now: Timestamp) {
    let own = |workload: &Value| {
        jobs::owner(workload).is_some_and(|owner| owner["uid"] == wrapper["metadata"]["uid"])
    };
    let found = view.workloads.iter().find(|(_, workload)| own(workload)).map(|(key, _)| key.clone());
    let Some(key) = found else {
        if !is_over(wrapper) {
            create(view, wrapper);
        }
        return;
    };
    let mut workload = (*view.workloads[&key]).clone();
    follow(wrapper, &mut workload, now);
    if *view.workloads[&key] != workload {
        view.workloads.insert(key, Arc::new(workload));
    }
}

/// Failed ones count until what they made is gone.
fn is_over(wrapper: &Value) -> bool {
    match text(wrapper, &["status", "phase"]) {
        "Succeeded" => true,
        "Failed" => !is_true(wrapper, "ResourcesDeployed"),
        _ => false,
    }
}

fn follow(wrapper: &mut Value, workload: &mut Value, now: Timestamp) {
    if is_true(workload, "Finished") {
        remove_finalizer(workload);
        return;
    }
    if is_over(wrapper) {
        let phase = text(wrapper, &["status", "phase"]).to_owned();
        workload::finish(workload, &phase, "AppWrapper finished", now);
        return;
    }
    let suspended = wrapper["spec"]["suspend"] == true;
    let stop = |wrapper: &mut Value| child(wrapper, &["spec"]).insert("suspend".to_owned(), json!(true));
    if is_true(workload, "Evicted") {
        stop(wrapper);
        let active = is_true(wrapper, "QuotaReserved");
        if is_true(workload, "QuotaReserved") && !active {
            jobs::give_back(workload, now);
        }
    } else if suspended && is_true(workload, "Admitted") {
        child(wrapper, &["spec"]).insert("suspend".to_owned(), json!(false));
    } else if !suspended && !is_true(workload, "Admitted") {
        stop(wrapper);
    }
}

fn create(view: &mut View, wrapper: &Value) {
    let Some((reference, priority)) = jobs::priority(view, wrapper) else { return };
    let metadata = &wrapper["metadata"];
    let (name, uid) = (text(metadata, &["name"]), text(metadata, &["uid"]));
    let sets = operator::pod_sets(wrapper).into_iter().enumerate();
    let sets: Vec<Value> = sets
        .map(|(index, (count, template))| {
            json!({"name": format!("{name}-{index}"), "count": count, "template": template})
        })
        .collect();
    let mut spec = json!({
        "podSets": sets, "queueName": metadata["labels"][QUEUE_LABEL], "priority": priority,
    });
    if let Some(reference) = reference {
        spec["priorityClassRef"] = reference;
    }
    let owner = json!([{
        "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    let workload_name = format!("appwrapper-{name}");
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload_name, "namespace": metadata["namespace"],
            "labels": {"kueue.x-k8s.io/job-uid": uid}, "finalizers": [FINALIZER], "ownerReferences": owner,
        },
        "spec": spec,
    });
    default("Workload", None, &mut workload);
    let key = (text(metadata, &["namespace"]).to_owned(), workload_name);
    if !items(&workload, &["spec", "podSets"]).is_empty() {
        view.workloads.entry(key).or_insert_with(|| Arc::new(workload));
    }
}
