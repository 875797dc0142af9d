//! batch/v1 Jobs that name a LocalQueue: a Workload for each, started when it is admitted and stopped
//! when it is evicted (`pkg/controller/jobframework/reconciler.go`, `pkg/controller/jobs/job`).

use std::{collections::HashMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Key, View, default,
    pods::{self, Injection},
    read::{
        Condition, FINALIZER, at, child, condition, is_deleted, is_true, items, labels, remove_finalizer,
        set_condition, text,
    },
    workload,
};

pub(super) const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";
const PREBUILT_LABEL: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";
const MAX_TIME_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";

pub(super) fn reconcile(view: &mut View, now: Timestamp) {
    orphans(view, now);
    let managed =
        |job: &Value| !text(job, &["metadata", "labels", QUEUE_LABEL]).is_empty() && !is_deleted(job);
    let keys: Vec<Key> =
        view.jobs.iter().filter(|(_, job)| managed(job)).map(|(key, _)| key.clone()).collect();
    // Looked up: each job going through all workloads would cost the square of them.
    let mut owned: HashMap<Owner, Vec<Key>> = HashMap::new();
    for (key, workload) in &view.workloads {
        if let Some(owner) = owner(workload).filter(|owner| owner["kind"] == "Job") {
            let owner = (key.0.clone(), text(owner, &["name"]).to_owned(), text(owner, &["uid"]).to_owned());
            owned.entry(owner).or_default().push(key.clone());
        }
    }
    for key in keys {
        let before = view.jobs[&key].clone();
        let mut job = (*before).clone();
        let owner = (key.0.clone(), key.1.clone(), text(&job, &["metadata", "uid"]).to_owned());
        one(view, &key, owned.remove(&owner).unwrap_or_default(), &mut job, now);
        if *before != job {
            view.jobs.insert(key, Arc::new(job));
        }
    }
}

/// Namespace, name and UID of a Job.
type Owner = (String, String, String);

pub(super) fn owner(workload: &Value) -> Option<&Value> {
    items(workload, &["metadata", "ownerReferences"]).iter().find(|owner| owner["controller"] == true)
}

/// Workloads whose Job or AppWrapper is gone end, and let go of their quota.
fn orphans(view: &mut View, now: Timestamp) {
    for (key, workload) in &mut view.workloads {
        let Some(owner) = owner(workload) else { continue };
        let objects = match owner["kind"].as_str() {
            Some("Job") => &view.jobs,
            Some("AppWrapper") => &view.app_wrappers,
            _ => continue,
        };
        let job = objects.get(&(key.0.clone(), text(owner, &["name"]).to_owned()));
        let alive = job.is_some_and(|job| job["metadata"]["uid"] == owner["uid"] && !is_deleted(job));
        if alive {
            continue;
        }
        let mut ended = (**workload).clone();
        if !is_deleted(&ended) {
            workload::finish(&mut ended, "OwnerNotFound", "The workload's owner no longer exists", now);
        }
        remove_finalizer(&mut ended);
        if **workload != ended {
            *workload = Arc::new(ended);
        }
    }
}

/// `owned`: the workloads of this job.
fn one(view: &mut View, key: &Key, owned: Vec<Key>, job: &mut Value, now: Timestamp) {
    let prebuilt = text(job, &["metadata", "labels", PREBUILT_LABEL]);
    if !prebuilt.is_empty() {
        let workload = (key.0.clone(), prebuilt.to_owned());
        return with_prebuilt(view, &workload, job, now);
    }
    let owned = owned.into_iter().filter(|key| view.workloads.contains_key(key));
    let (matching, mut others): (Vec<_>, Vec<_>) =
        owned.partition(|key| is_equivalent(job, &view.workloads[key]));
    let mut matching = matching.into_iter();
    let found = matching.next();
    others.extend(matching);
    let found = match found {
        Some(found) => Some(found),
        None => no_match(view, job, &mut others),
    };
    for key in others {
        view.workloads.remove(&key);
    }
    let Some(key) = found else {
        if !is_finished(job) && !is_running(job) {
            create(view, job);
        }
        return;
    };
    let mut workload = (*view.workloads[&key]).clone();
    follow(view, job, &mut workload, now);
    if *view.workloads[&key] != workload {
        view.workloads.insert(key, Arc::new(workload));
    }
}

/// A Job for which somebody else, mostly MultiKueue, has made the Workload.
fn with_prebuilt(view: &mut View, key: &Key, job: &mut Value, now: Timestamp) {
    let Some(found) = view.workloads.get(key) else { return stop(job, None) };
    let mut workload = (**found).clone();
    match owner(&workload) {
        Some(other) if other["uid"] != job["metadata"]["uid"] => return stop(job, None),
        Some(_) => {}
        None => {
            let (name, uid) = (text(job, &["metadata", "name"]), text(job, &["metadata", "uid"]));
            child(&mut workload, &["metadata"]).insert("ownerReferences".to_owned(), owned_by(name, uid));
            child(&mut workload, &["metadata", "labels"]).insert(JOB_UID_LABEL.to_owned(), json!(uid));
        }
    }
    if is_finished(job) || is_equivalent(job, &workload) {
        follow(view, job, &mut workload, now);
    } else {
        let message = "The prebuilt workload is out of sync with its user job";
        workload::finish(&mut workload, "OutOfSync", message, now);
        stop(job, None);
    }
    if *view.workloads[key] != workload {
        view.workloads.insert(key.clone(), Arc::new(workload));
    }
}

/// A Job that no Workload describes is stopped; while it still waits, its Workload is rewritten.
fn no_match(view: &mut View, job: &mut Value, others: &mut Vec<Key>) -> Option<Key> {
    let first = others.first()?.clone();
    let old = view.workloads[&first].clone();
    if is_finished(job) {
        others.retain(|key| *key != first);
        return Some(first);
    }
    if is_suspended(job) && !is_true(&old, "QuotaReserved") && !is_true(&old, "Finished") {
        let new = construct(view, job)?;
        let mut updated = (*old).clone();
        child(&mut updated, &[]).insert("spec".to_owned(), new["spec"].clone());
        view.workloads.insert(first.clone(), Arc::new(updated));
        others.remove(0);
        return Some(first);
    }
    stop(job, Some(&old));
    None
}

/// Whether the Workload describes this Job as it is, or as it runs.
fn is_equivalent(job: &Value, workload: &Value) -> bool {
    let [set] = items(workload, &["spec", "podSets"]) else { return false };
    let most = max_seconds(job);
    set["count"].as_i64().unwrap_or(1) == pod_count(job)
        && workload["spec"]["maximumExecutionTimeSeconds"].as_i64() == most
        && pods::same_template(
            &job["spec"]["template"],
            &set["template"],
            !is_true(workload, "QuotaReserved"),
        )
}

fn max_seconds(job: &Value) -> Option<i64> {
    text(job, &["metadata", "labels", MAX_TIME_LABEL]).parse().ok().filter(|seconds| 0 < *seconds)
}

fn pod_count(job: &Value) -> i64 {
    let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    job["spec"]["completions"].as_i64().map_or(parallelism, |completions| completions.min(parallelism))
}

fn is_suspended(job: &Value) -> bool {
    job["spec"]["suspend"] == true
}

fn is_running(job: &Value) -> bool {
    job["status"]["active"].as_i64().is_some_and(|active| active != 0)
}

fn outcome(job: &Value) -> Option<(&'static str, &str)> {
    [("Complete", "Succeeded"), ("Failed", "Failed")].into_iter().find_map(|(kind, reason)| {
        condition(job, kind).filter(|c| c["status"] == "True").map(|c| (reason, text(c, &["message"])))
    })
}

fn is_finished(job: &Value) -> bool {
    outcome(job).is_some()
}

fn follow(view: &View, job: &mut Value, workload: &mut Value, now: Timestamp) {
    if is_true(workload, "Finished") {
        remove_finalizer(workload);
        return;
    }
    if is_deleted(workload) {
        stop(job, Some(workload));
        remove_finalizer(workload);
        return;
    }
    if let Some((reason, message)) = outcome(job) {
        workload::finish(workload, reason, message, now);
        return;
    }
    follow_priority(view, job, workload);
    reclaim(job, workload);
    if is_true(workload, "Evicted") {
        stop(job, Some(workload));
        if is_true(workload, "QuotaReserved") && !is_running(job) {
            give_back(workload, now);
        }
    } else if is_suspended(job) {
        if is_true(workload, "Admitted") {
            start(view, job, workload, now);
        } else {
            let queue = &job["metadata"]["labels"][QUEUE_LABEL];
            if workload["spec"]["queueName"] != *queue {
                child(workload, &["spec"]).insert("queueName".to_owned(), queue.clone());
            }
        }
    } else if !is_true(workload, "Admitted") {
        stop(job, Some(workload));
    }
}

/// The evicted job has ended: its quota is free, and it waits again if it was merely preempted.
pub(super) fn give_back(workload: &mut Value, now: Timestamp) {
    let Some(evicted) = condition(workload, "Evicted") else { return };
    let (reason, message) = (text(evicted, &["reason"]).to_owned(), text(evicted, &["message"]).to_owned());
    let holds = matches!(reason.as_str(), "Preempted" | "NodeFailures");
    let requeued = Condition { kind: "Requeued", holds, reason: &reason, message: &message };
    set_condition(workload, &requeued, now);
    workload::unset_reservation(workload, "Pending", &message, now);
}

/// Pods that a job will not start again are given back early.
fn reclaim(job: &Value, workload: &mut Value) {
    let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    let completions = job["spec"]["completions"].as_i64().unwrap_or(parallelism);
    let succeeded = job["status"]["succeeded"].as_i64().unwrap_or(0);
    let rest = (completions - succeeded).max(0);
    if parallelism <= 1 || succeeded == 0 || parallelism <= rest {
        return;
    }
    let count = (parallelism - rest).min(pod_count(job));
    let reclaimed = json!([{"name": "main", "count": count}]);
    if workload["status"]["reclaimablePods"] != reclaimed {
        child(workload, &["status"]).insert("reclaimablePods".to_owned(), reclaimed);
    }
}

fn start(view: &View, job: &mut Value, workload: &mut Value, now: Timestamp) {
    let injection = injection(view, workload);
    let mut template = job["spec"]["template"].clone();
    match injection.apply(&mut template) {
        Ok(()) => {
            child(job, &["spec"])
                .extend([("suspend".to_owned(), json!(false)), ("template".to_owned(), template)]);
        }
        Err(conflict) => workload::finish(workload, "FailedToStart", &conflict, now),
    }
}

fn injection(view: &View, workload: &Value) -> Injection {
    let mut injection = Injection::default();
    let assignments = items(workload, &["status", "admission", "podSetAssignments"]);
    let Some(assignment) = assignments.first() else { return injection };
    let mut names: Vec<&str> = labels(&assignment["flavors"]).into_values().collect();
    names.sort_unstable();
    names.dedup();
    let owned = |map: &Value| {
        labels(map).into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<Vec<_>>()
    };
    for flavor in names.into_iter().filter_map(|name| view.flavors.get(&(String::new(), name.to_owned()))) {
        injection.node_selector.extend(owned(&flavor["spec"]["nodeLabels"]));
        injection.tolerations.extend(items(flavor, &["spec", "tolerations"]).iter().cloned());
    }
    let own = text(workload, &["metadata", "name"]);
    injection.annotations.insert("kueue.x-k8s.io/workload".to_owned(), own.to_owned());
    for (label, value) in [
        ("kueue.x-k8s.io/podset", text(assignment, &["name"])),
        ("kueue.x-k8s.io/local-queue-name", text(workload, &["spec", "queueName"])),
        ("kueue.x-k8s.io/cluster-queue-name", text(workload, &["status", "admission", "clusterQueue"])),
    ] {
        injection.labels.insert(label.to_owned(), value.to_owned());
    }
    for update in items(workload, &["status", "admissionChecks"]).iter().filter_map(|check| {
        items(check, &["podSetUpdates"]).iter().find(|set| set["name"] == assignment["name"])
    }) {
        injection.labels.extend(owned(&update["labels"]));
        injection.annotations.extend(owned(&update["annotations"]));
        injection.node_selector.extend(owned(&update["nodeSelector"]));
        injection.tolerations.extend(items(update, &["tolerations"]).iter().cloned());
    }
    injection
}

fn stop(job: &mut Value, workload: Option<&Value>) {
    if is_suspended(job) {
        return;
    }
    child(job, &["spec"]).insert("suspend".to_owned(), json!(true));
    if job["status"]["startTime"].is_string() {
        child(job, &["status"]).remove("startTime");
    }
    let original = workload.map(|workload| items(workload, &["spec", "podSets"]));
    if let Some([set]) = original {
        let mut template = job["spec"]["template"].clone();
        pods::restore(&mut template, &set["template"]);
        child(job, &["spec"]).insert("template".to_owned(), template);
    }
}

/// A Workload with this name there already describes another Job, whose turn to go it is.
fn create(view: &mut View, job: &Value) {
    let Some(workload) = construct(view, job) else { return };
    let metadata = &workload["metadata"];
    let key = (text(metadata, &["namespace"]).to_owned(), text(metadata, &["name"]).to_owned());
    view.workloads.entry(key).or_insert_with(|| Arc::new(workload));
}

/// None while the priority class it names is not there.
fn construct(view: &View, job: &Value) -> Option<Value> {
    let metadata = &job["metadata"];
    let (name, uid) = (text(metadata, &["name"]), text(metadata, &["uid"]));
    let mut spec = json!({
        "podSets": [{
            "name": "main", "count": pod_count(job), "template": pods::for_workload(&job["spec"]["template"]),
        }],
        "queueName": metadata["labels"][QUEUE_LABEL],
    });
    let (reference, priority) = priority(view, job)?;
    if let Some(reference) = reference {
        spec["priorityClassRef"] = reference;
    }
    spec["priority"] = json!(priority);
    if let Some(seconds) = max_seconds(job) {
        spec["maximumExecutionTimeSeconds"] = json!(seconds);
    }
    let mut workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": workload_name(name, uid),
            "namespace": metadata["namespace"],
            "labels": {JOB_UID_LABEL: uid},
            "finalizers": [FINALIZER],
            "ownerReferences": owned_by(name, uid),
        },
        "spec": spec,
    });
    default("Workload", None, &mut workload);
    Some(workload)
}

fn owned_by(job: &str, uid: &str) -> Value {
    json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// `job-NAME-` and five digits of a hash. Kueue hashes with SHA-1; since UIDs are random, nobody can
/// tell.
fn workload_name(name: &str, uid: &str) -> String {
    const LONGEST: usize = 253 - 6;
    let digest = Sha256::digest(format!("Job\nbatch\n{name}\n{uid}"));
    let mut prefix = format!("job-{name}");
    prefix.truncate(LONGEST);
    format!("{prefix}-{:02x}{:02x}{:x}", digest[0], digest[1], digest[2] >> 4)
}

/// The class a job names, by label, by its pods or by default, and its value.
pub(super) fn priority(view: &View, job: &Value) -> Option<(Option<Value>, i64)> {
    let found =
        |classes: &super::Objects, name: &str| classes.get(&(String::new(), name.to_owned())).cloned();
    let reference = |group: &str, kind: &str, name: &str| json!({"group": group, "kind": kind, "name": name});
    let label = text(job, &["metadata", "labels", PRIORITY_LABEL]);
    if !label.is_empty() {
        let class = found(&view.priority_classes, label)?;
        let reference = reference("kueue.x-k8s.io", "WorkloadPriorityClass", label);
        return Some((Some(reference), class["value"].as_i64().unwrap_or(0)));
    }
    let name = text(at(job, &["spec", "template", "spec"]), &["priorityClassName"]);
    let class = if name.is_empty() {
        let defaults = view.pod_priority_classes.values().filter(|class| class["globalDefault"] == true);
        let lowest = defaults.min_by_key(|class| class["value"].as_i64().unwrap_or(0));
        match lowest {
            Some(class) => class.clone(),
            None => return Some((None, 0)),
        }
    } else {
        found(&view.pod_priority_classes, name)?
    };
    let reference = reference("scheduling.k8s.io", "PriorityClass", text(&class, &["metadata", "name"]));
    Some((Some(reference), class["value"].as_i64().unwrap_or(0)))
}

/// The label may change while the Workload follows it.
fn follow_priority(view: &View, job: &Value, workload: &mut Value) {
    let label = text(job, &["metadata", "labels", PRIORITY_LABEL]);
    let old = &workload["spec"]["priorityClassRef"];
    let fixed = old.is_object() && old["kind"] != "WorkloadPriorityClass"
        || old.is_null() && is_true(workload, "QuotaReserved");
    if fixed || label.is_empty() || text(old, &["name"]) == label {
        return;
    }
    if let Some((Some(reference), value)) = priority(view, job) {
        let spec = child(workload, &["spec"]);
        spec.insert("priorityClassRef".to_owned(), reference);
        spec.insert("priority".to_owned(), json!(value));
    }
}
