//! What becomes of a workload outside of the scheduler: its checks, evictions, stops and restarts
//! (`pkg/controller/core/workload_controller.go`).

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    View, active,
    read::{
        Condition, child, condition, is_deleted, is_false_for, is_true, items, remove_finalizer,
        set_condition, stamp, text, time,
    },
    snapshot::local_queue,
};

pub(super) fn reconcile(view: &mut View, now: Timestamp) {
    let keys: Vec<_> = view.workloads.keys().cloned().collect();
    for key in keys {
        let before = view.workloads[&key].clone();
        if !exists(&before) {
            continue;
        }
        let mut workload = (*before).clone();
        one(view, &mut workload, now);
        if *before != workload {
            view.workloads.insert(key, Arc::new(workload));
        }
    }
}

/// What this very pass creates has no status yet, and waits for the next.
pub(super) fn exists(workload: &Value) -> bool {
    workload["metadata"]["uid"].is_string()
}

fn one(view: &View, workload: &mut Value, now: Timestamp) {
    let orphaned = items(workload, &["metadata", "ownerReferences"]).is_empty()
        && (is_deleted(workload) || workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"].is_string());
    if orphaned {
        if !is_deleted(workload) {
            finish(workload, "OwnerNotFound", "The workload's owner no longer exists", now);
        }
        remove_finalizer(workload);
        return;
    }
    if is_true(workload, "Finished") {
        return;
    }
    note_retry_time(workload, now);
    if workload["spec"]["active"] == false {
        deactivate(workload, now);
        return;
    }
    if is_true(workload, "DeactivationTarget") {
        child(workload, &["spec"]).insert("active".to_owned(), json!(false));
        return;
    }
    requeue(view, workload, now);
    let local = local_queue(&view.local_queues, workload).cloned();
    let name = cluster_queue_name(workload, local.as_ref());
    let queue = view.cluster_queues.get(&(String::new(), name.clone()));
    if let Some(queue) = queue {
        sync_checks(workload, queue, now);
    }
    if !is_true(workload, "Admitted") {
        if !is_true(workload, "QuotaReserved")
            && let Some(message) = blocker(view, workload, local.as_ref())
        {
            let blocked =
                Condition { kind: "QuotaReserved", holds: false, reason: "Inadmissible", message: &message };
            set_condition(workload, &blocked, now);
        }
        sync_admitted(workload, now);
    }
    if is_true(workload, "QuotaReserved") {
        evict_for_checks(workload, now);
        stop(
            workload,
            Stopper {
                kind: "LocalQueue",
                name: text(workload, &["spec", "queueName"]).to_owned(),
                object: local.as_ref(),
            },
            now,
        );
        stop(workload, Stopper { kind: "ClusterQueue", name, object: queue.map(|queue| &**queue) }, now);
        evict_overdue(workload, now);
    }
}

/// Where a workload has quota, or else where it waits.
fn cluster_queue_name(workload: &Value, local: Option<&Value>) -> String {
    let admitted = text(workload, &["status", "admission", "clusterQueue"]);
    let waiting = local.map_or("", |local| text(local, &["spec", "clusterQueue"]));
    if admitted.is_empty() { waiting.to_owned() } else { admitted.to_owned() }
}

/// Whether a workload may wait in a queue.
pub(super) fn is_admissible(workload: &Value) -> bool {
    let gate = text(workload, &["metadata", "annotations", "kueue.x-k8s.io/admission-gated-by"]);
    gate.is_empty()
        && !is_true(workload, "Finished")
        && workload["spec"]["active"] != false
        && !is_true(workload, "QuotaReserved")
        && !is_false_for(workload, "QuotaReserved", "OnHold")
}

pub(super) fn finish(workload: &mut Value, reason: &str, message: &str, now: Timestamp) {
    if !is_true(workload, "Finished") {
        set_condition(workload, &Condition { kind: "Finished", holds: true, reason, message }, now);
    }
}

/// `workload/evict`: the condition, checks back to Pending, and no cluster nominated any more.
pub(super) fn evict(workload: &mut Value, reason: &str, message: &str, now: Timestamp) {
    set_condition(workload, &Condition { kind: "Evicted", holds: true, reason, message }, now);
    let status = child(workload, &["status"]);
    for field in ["clusterName", "nominatedClusterNames", "unhealthyNodes"] {
        status.remove(field);
    }
    let Some(Value::Array(checks)) = status.get_mut("admissionChecks") else { return };
    for check in checks.iter_mut().filter(|check| check["state"] != "Pending") {
        let state = text(check, &["state"]);
        let message = format!("Reset to Pending after eviction. Previously: {state}");
        let mut reset = json!({
            "name": check["name"], "state": "Pending", "lastTransitionTime": stamp(now), "message": message,
        });
        if check["requeueAfterSeconds"].is_i64() {
            reset["requeueAfterSeconds"] = check["requeueAfterSeconds"].clone();
        }
        if state == "Retry" {
            reset["retryCount"] = json!(check["retryCount"].as_i64().unwrap_or(0) + 1);
        }
        *check = reset;
    }
}

pub(super) fn unset_reservation(workload: &mut Value, reason: &str, message: &str, now: Timestamp) {
    set_condition(workload, &Condition { kind: "QuotaReserved", holds: false, reason, message }, now);
    child(workload, &["status"]).remove("admission");
    sync_admitted(workload, now);
}

/// Admitted follows from quota and checks; the time that a workload was admitted adds up.
pub(super) fn sync_admitted(workload: &mut Value, now: Timestamp) {
    let reserved = is_true(workload, "QuotaReserved");
    let ready = items(workload, &["status", "admissionChecks"]).iter().all(|check| check["state"] == "Ready");
    let admitted = is_true(workload, "Admitted");
    if admitted == (reserved && ready) {
        return;
    }
    let (reason, message) = match (reserved, ready) {
        (true, true) => ("Admitted", "The workload is admitted"),
        (false, false) => {
            ("NoReservationUnsatisfiedChecks", "The workload has no reservation and not all checks ready")
        }
        (false, true) => ("NoReservation", "The workload has no reservation"),
        (true, false) => ("UnsatisfiedChecks", "The workload has not all checks ready"),
    };
    if admitted {
        let since = condition(workload, "Admitted").and_then(|c| time(&c["lastTransitionTime"]));
        let lasted = since.map_or(0, |since| now.as_second() - since.as_second());
        let status = child(workload, &["status"]);
        let before = status.get("accumulatedPastExecutionTimeSeconds").and_then(Value::as_i64).unwrap_or(0);
        status.insert("accumulatedPastExecutionTimeSeconds".to_owned(), json!(before + lasted));
    }
    let holds = reserved && ready;
    set_condition(workload, &Condition { kind: "Admitted", holds, reason, message }, now);
}

/// The checks that a workload with quota has to pass.
pub(super) fn required_checks<'a>(workload: &Value, queue: &'a Value) -> BTreeSet<&'a str> {
    let assigned: BTreeSet<&str> = items(workload, &["status", "admission", "podSetAssignments"])
        .iter()
        .filter_map(|set| set["flavors"].as_object())
        .flat_map(|flavors| flavors.values().filter_map(Value::as_str))
        .collect();
    let checks = active::checks(queue).into_iter();
    checks.filter(|(_, flavors)| !flavors.is_disjoint(&assigned)).map(|(name, _)| name).collect()
}

fn sync_checks(workload: &mut Value, queue: &Value, now: Timestamp) {
    let wanted: BTreeSet<&str> = if workload["status"]["admission"].is_object() {
        required_checks(workload, queue)
    } else {
        let all = active::all_flavors(queue);
        let checks = active::checks(queue).into_iter();
        checks.filter(|(_, flavors)| flavors.is_superset(&all)).map(|(name, _)| name).collect()
    };
    let old = items(workload, &["status", "admissionChecks"]);
    let mut checks: Vec<Value> =
        old.iter().filter(|check| wanted.contains(text(check, &["name"]))).cloned().collect();
    for name in &wanted {
        if !checks.iter().any(|check| check["name"] == *name) {
            checks.push(
                json!({"name": name, "state": "Pending", "lastTransitionTime": stamp(now), "message": ""}),
            );
        }
    }
    checks.sort_by(|a, b| text(a, &["name"]).cmp(text(b, &["name"])));
    if !checks.is_empty() {
        child(workload, &["status"]).insert("admissionChecks".to_owned(), Value::Array(checks));
    } else if !old.is_empty() {
        child(workload, &["status"]).remove("admissionChecks");
    }
}

/// What keeps a workload out of every queue.
fn blocker(view: &View, workload: &Value, local: Option<&Value>) -> Option<String> {
    let name = text(workload, &["spec", "queueName"]);
    let Some(local) = local else { return Some(format!("LocalQueue {name} doesn't exist")) };
    if active::is_stopped(local) {
        return Some(format!("LocalQueue {name} is inactive"));
    }
    let name = text(local, &["spec", "clusterQueue"]);
    let Some(queue) = view.cluster_queues.get(&(String::new(), name.to_owned())) else {
        return Some(format!("ClusterQueue {name} doesn't exist"));
    };
    (!active::activity(view, queue).is_active()).then(|| format!("ClusterQueue {name} is inactive"))
}

/// Checks that ask for a later try say when.
fn note_retry_time(workload: &mut Value, now: Timestamp) {
    let checks = items(workload, &["status", "admissionChecks"]).iter();
    let times = checks.filter(|check| check["state"] == "Retry").filter_map(|check| {
        let after = check["requeueAfterSeconds"].as_i64()?;
        time(&check["lastTransitionTime"])?.checked_add(jiff::SignedDuration::from_secs(after)).ok()
    });
    let Some(latest) = times.max().filter(|latest| now < *latest) else { return };
    let current = time(&workload["status"]["requeueState"]["requeueAt"]);
    if current.is_none_or(|current| current < latest) {
        child(workload, &["status", "requeueState"]).insert("requeueAt".to_owned(), json!(stamp(latest)));
    }
}

fn deactivate(workload: &mut Value, now: Timestamp) {
    let target = condition(workload, "DeactivationTarget");
    let because =
        target.map(|target| (text(target, &["reason"]).to_owned(), text(target, &["message"]).to_owned()));
    if workload["status"]["requeueState"].is_object() {
        child(workload, &["status"]).remove("requeueState");
    }
    if is_true(workload, "Evicted") {
        return;
    }
    let message = "The workload is deactivated";
    match because {
        Some((cause, why)) => {
            if let Some(Value::Array(conditions)) = child(workload, &["status"]).get_mut("conditions") {
                conditions.retain(|condition| condition["type"] != "DeactivationTarget");
            }
            evict(workload, &format!("DeactivatedDueTo{cause}"), &format!("{message} due to {why}"), now);
        }
        None => evict(workload, "Deactivated", message, now),
    }
}

/// Lets a workload be tried again once what held it back is over.
fn requeue(view: &View, workload: &mut Value, now: Timestamp) {
    let Some(held) = condition(workload, "Requeued").filter(|held| held["status"] == "False") else { return };
    let local = local_queue(&view.local_queues, workload);
    let running = |object: Option<&Value>| object.is_some_and(|object| !active::is_stopped(object));
    let until = time(&workload["status"]["requeueState"]["requeueAt"]);
    let reason = text(held, &["reason"]);
    let (reason, message) = match reason {
        "Deactivated" => ("Reactivated", "The workload was reactivated"),
        _ if reason.starts_with("DeactivatedDueTo") => ("Reactivated", "The workload was reactivated"),
        "AdmissionCheck" | "PodsReadyTimeout" if until.is_none_or(|until| until <= now) => {
            ("BackoffFinished", "The workload backoff was finished")
        }
        "LocalQueueStopped" if running(local) => {
            ("LocalQueueRestarted", "The LocalQueue was restarted after being stopped")
        }
        "ClusterQueueStopped" => {
            let name = local.map_or("", |local| text(local, &["spec", "clusterQueue"])).to_owned();
            if !running(view.cluster_queues.get(&(String::new(), name)).map(|queue| &**queue)) {
                return;
            }
            ("ClusterQueueRestarted", "The ClusterQueue was restarted after being stopped")
        }
        _ => return,
    };
    if let Some(Value::Object(state)) = child(workload, &["status"]).get_mut("requeueState") {
        state.remove("requeueAt");
    }
    set_condition(workload, &Condition { kind: "Requeued", holds: true, reason, message }, now);
}

fn evict_for_checks(workload: &mut Value, now: Timestamp) {
    if is_true(workload, "Evicted") {
        return;
    }
    let list = |state: &str| {
        let checks = items(workload, &["status", "admissionChecks"]).iter();
        let parts: Vec<String> = checks
            .filter(|check| check["state"] == state)
            .map(|check| match (text(check, &["name"]), text(check, &["message"])) {
                (name, "") => format!("{name:?}"),
                (name, message) => format!("{name:?} ({message})"),
            })
            .collect();
        let noun = if parts.len() == 1 { "AdmissionCheck" } else { "AdmissionChecks" };
        (!parts.is_empty()).then(|| format!("{noun} in {state} state: {}", parts.join("; ")))
    };
    if let Some(message) = list("Rejected") {
        let target = Condition {
            kind: "DeactivationTarget",
            holds: true,
            reason: "AdmissionCheck",
            message: &message,
        };
        set_condition(workload, &target, now);
    } else if let Some(message) = list("Retry") {
        evict(workload, "AdmissionCheck", &format!("Evicted due to {message}"), now);
    }
}

struct Stopper<'a> {
    kind: &'static str,
    name: String,
    object: Option<&'a Value>,
}

/// A stopped queue takes back what was not admitted yet; HoldAndDrain takes back all.
fn stop(workload: &mut Value, by: Stopper<'_>, now: Timestamp) {
    let Stopper { kind, name, object } = by;
    let policy = object.map_or("None", |object| object["spec"]["stopPolicy"].as_str().unwrap_or("None"));
    if is_true(workload, "Admitted") {
        if policy == "HoldAndDrain" && !is_true(workload, "Evicted") {
            evict(workload, &format!("{kind}Stopped"), &format!("The {kind} is stopped"), now);
        }
    } else if !is_true(workload, "QuotaReserved") {
    } else if object.is_none_or(is_deleted) {
        let message = format!("{kind} {name} is terminating or missing");
        unset_reservation(workload, "Inadmissible", &message, now);
    } else if policy != "None" {
        unset_reservation(workload, "Inadmissible", &format!("{kind} {name} is stopped"), now);
    }
}

fn evict_overdue(workload: &mut Value, now: Timestamp) {
    let Some(most) = workload["spec"]["maximumExecutionTimeSeconds"].as_i64() else { return };
    let admitted = condition(workload, "Admitted").filter(|admitted| admitted["status"] == "True");
    let Some(since) = admitted.and_then(|admitted| time(&admitted["lastTransitionTime"])) else { return };
    let past = workload["status"]["accumulatedPastExecutionTimeSeconds"].as_i64().unwrap_or(0);
    if most <= past + now.as_second() - since.as_second() {
        let (reason, message) = ("MaximumExecutionTimeExceeded", "exceeding the maximum execution time");
        let target = Condition { kind: "DeactivationTarget", holds: true, reason, message };
        set_condition(workload, &target, now);
        child(workload, &["status"]).remove("accumulatedPastExecutionTimeSeconds");
    }
}
