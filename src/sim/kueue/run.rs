//! Stands for the job controller, the scheduler of pods and kubelets: pods of a started Job run on a node
//! for as long as an annotation says, and the Job's status follows.
//!
//! Nodes are chosen by label, readiness and how many pods they run; requests are not counted, since
//! quota has counted them already.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Effect, Key, Objects, changes, pods,
    read::{
        Condition, child, condition, is_deleted, is_true, items, labels, set_condition, stamp, text, time,
    },
};

/// How long a pod runs, in seconds; on the Job or its pod template.
pub const SECONDS: &str = "sim.fedq.dev/seconds";
/// The code a pod's container ends with.
pub const EXIT: &str = "sim.fedq.dev/exit";

/// Of a pod of an Indexed Job, as label and as annotation.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Set on a pod, it has that pod evicted.
const DISRUPTED: &str = "DisruptionTarget";

const DEFAULT_SECONDS: i64 = 5;
const DEFAULT_BACKOFF_LIMIT: i64 = 6;
/// Beyond this many pods a job is run in parts, lest one manifest fill the memory.
const MOST_PODS: i64 = 1000;

#[derive(Clone, Debug, Default)]
pub struct JobsView {
    pub jobs: Objects,
    pub pods: Objects,
    pub nodes: Objects,
}

/// One pass over all Jobs; at a fixed point it returns nothing until time has passed.
pub fn run_jobs(view: &JobsView, now: Timestamp) -> Vec<Effect> {
    let mut after = view.clone();
    after.pods.retain(|_, pod| !(is_over(pod) && owning_job(pod).is_some() && is_lost(&view.nodes, pod)));
    // Looked up: each job going through all pods would cost the square of them.
    let mut owned: HashMap<(&str, &str), Vec<Key>> = HashMap::new();
    for (key, pod) in &view.pods {
        if let Some(job) = owning_job(pod) {
            owned.entry((&key.0, job)).or_default().push(key.clone());
        }
    }
    for (key, job) in &view.jobs {
        let ours = matches!(job["spec"]["managedBy"].as_str(), None | Some("kubernetes.io/job-controller"));
        if !ours || is_deleted(job) {
            continue;
        }
        let mut updated = (**job).clone();
        let own = owned.remove(&(key.0.as_str(), text(job, &["metadata", "uid"]))).unwrap_or_default();
        run(&mut after, key, own, &mut updated, now);
        if **job != updated {
            after.jobs.insert(key.clone(), Arc::new(updated));
        }
    }
    let mut effects = Vec::new();
    changes::effects("Pod", &view.pods, &after.pods, &mut effects);
    changes::effects("Job", &view.jobs, &after.jobs, &mut effects);
    effects
}

/// When the next pod of `view` ends: until then, passes are idle unless something else changes.
pub fn next_end(view: &JobsView) -> Option<Timestamp> {
    let running = view.pods.values().filter(|pod| pod["status"]["phase"] == "Running");
    running.filter_map(|pod| ends_at(pod)).min()
}

fn owning_job(pod: &Value) -> Option<&str> {
    items(pod, &["metadata", "ownerReferences"])
        .iter()
        .find(|owner| owner["kind"] == "Job" && owner["controller"] == true)
        .and_then(|owner| owner["uid"].as_str())
}

/// Whether its node is gone.
fn is_lost(nodes: &Objects, pod: &Value) -> bool {
    let node = text(pod, &["spec", "nodeName"]);
    !node.is_empty() && !nodes.contains_key(&(String::new(), node.to_owned()))
}

/// Ends pods of lost nodes, and those of which somebody says that they are to be evicted. As on a real cluster, where
/// the one who says so deletes the pod too, they are gone once their Job has counted them.
fn evict(view: &mut JobsView, pods: &[Key], now: Timestamp) -> Vec<Key> {
    let mut evicted = Vec::new();
    for key in pods {
        let pod = &view.pods[key];
        if is_over(pod) || !(is_true(pod, DISRUPTED) || is_lost(&view.nodes, pod)) {
            continue;
        }
        let pod = Arc::make_mut(view.pods.get_mut(key).expect("looked at above"));
        let disrupted = Condition { kind: DISRUPTED, holds: true, reason: "DeletionByPodGC", message: "" };
        set_condition(pod, &disrupted, now);
        child(pod, &["status"]).insert("phase".to_owned(), json!("Failed"));
        evicted.push(key.clone());
    }
    evicted
}

/// What the first rule that ends the Job for a condition of a failed pod says.
fn failed_by_policy(job: &Value, pod: &Value) -> Option<String> {
    let rules = items(job, &["spec", "podFailurePolicy", "rules"]);
    let holds = |pattern: &&Value| {
        let found = condition(pod, text(pattern, &["type"]));
        pod["status"]["phase"] == "Failed" && found.is_some_and(|found| found["status"] == pattern["status"])
    };
    let told = |(index, rule): (usize, &Value)| {
        let met = items(rule, &["onPodConditions"]).iter().find(holds)?;
        let name = |field| text(pod, &["metadata", field]);
        Some(format!(
            "Pod {}/{} has condition {} matching FailJob rule at index {index}",
            name("namespace"),
            name("name"),
            text(met, &["type"]),
        ))
    };
    rules.iter().enumerate().filter(|(_, rule)| rule["action"] == "FailJob").find_map(told)
}

/// `own`: the pods of this job.
fn run(view: &mut JobsView, key: &Key, own: Vec<Key>, job: &mut Value, now: Timestamp) {
    if is_true(job, "Complete") || is_true(job, "Failed") {
        return;
    }
    let suspended = job["spec"]["suspend"] == true;
    let mut kept = own;
    kept.retain(|key| {
        let stays = view.pods.get(key).is_some_and(|pod| !suspended || is_over(pod));
        if !stays {
            view.pods.remove(key);
        }
        stays
    });
    let has_phase = |view: &JobsView, phase: &str| {
        let phases = kept.iter().filter(|key| view.pods[*key]["status"]["phase"] == phase);
        i64::try_from(phases.count()).unwrap_or(i64::MAX)
    };
    // Counted once, and gone since.
    let failed_before = job["status"]["failed"].as_i64().unwrap_or(0) - has_phase(view, "Failed");
    let evicted = evict(view, &kept, now);
    for key in &kept {
        let node = place(view, &view.pods[key]);
        let pod = view.pods.get_mut(key).expect("kept above");
        advance(pod, node, now);
    }
    let (succeeded, failed) =
        (has_phase(view, "Succeeded"), failed_before.max(0) + has_phase(view, "Failed"));
    let by_policy = kept.iter().find_map(|key| failed_by_policy(job, &view.pods[key]));
    let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
    let completions = job["spec"]["completions"].as_i64().unwrap_or(parallelism);
    let limit = job["spec"]["backoffLimit"].as_i64().unwrap_or(DEFAULT_BACKOFF_LIMIT);
    let mut active = has_phase(view, "Running") + has_phase(view, "Pending");
    if suspended {
        suspend(job, now);
    } else {
        resume(job, now);
        if completions <= succeeded {
            end(job, &COMPLETE, now);
        } else if limit < failed || by_policy.is_some() {
            for key in &kept {
                if !is_over(&view.pods[key]) {
                    view.pods.remove(key);
                }
            }
            active = 0;
            let failure = match &by_policy {
                Some(message) => End { reason: "PodFailurePolicy", message, ..FAILED },
                None => FAILED,
            };
            end(job, &failure, now);
        } else {
            let wanted = parallelism.min(completions - succeeded).min(MOST_PODS);
            while active < wanted {
                let pod = new_pod(view, key, job, now);
                let name = text(&pod, &["metadata", "name"]).to_owned();
                view.pods.insert((key.0.clone(), name), Arc::new(pod));
                active += 1;
            }
        }
    }
    for key in &evicted {
        view.pods.remove(key);
    }
    let ready =
        kept.iter().filter(|key| view.pods.get(*key).is_some_and(|p| p["status"]["phase"] == "Running"));
    let ready = i64::try_from(ready.count()).unwrap_or(i64::MAX).min(active);
    let status = [("active", active), ("ready", ready), ("succeeded", succeeded), ("failed", failed)];
    for (field, count) in status {
        // As the real one: no count is no field, but `ready` is always there.
        if count == 0 && field != "ready" {
            if job["status"].get(field).is_some() {
                child(job, &["status"]).remove(field);
            }
        } else {
            child(job, &["status"]).insert(field.to_owned(), json!(count));
        }
    }
}

fn is_over(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn suspend(job: &mut Value, now: Timestamp) {
    if is_true(job, "Suspended") {
        return;
    }
    let suspended =
        Condition { kind: "Suspended", holds: true, reason: "JobSuspended", message: "Job suspended" };
    set_job_condition(job, &suspended, now);
    child(job, &["status"]).remove("startTime");
}

fn resume(job: &mut Value, now: Timestamp) {
    if is_true(job, "Suspended") {
        let resumed =
            Condition { kind: "Suspended", holds: false, reason: "JobResumed", message: "Job resumed" };
        set_job_condition(job, &resumed, now);
    }
    if !job["status"]["startTime"].is_string() {
        child(job, &["status"]).insert("startTime".to_owned(), json!(stamp(now)));
    }
}

/// How a job ends: the condition that says so, after one that says that it is about to.
struct End<'a> {
    before: &'static str,
    kind: &'static str,
    reason: &'static str,
    message: &'a str,
}

const COMPLETE: End<'_> = End {
    before: "SuccessCriteriaMet",
    kind: "Complete",
    reason: "CompletionsReached",
    message: "Reached expected number of succeeded pods",
};
const FAILED: End<'_> = End {
    before: "FailureTarget",
    kind: "Failed",
    reason: "BackoffLimitExceeded",
    message: "Job has reached the specified backoff limit",
};

fn end(job: &mut Value, end: &End<'_>, now: Timestamp) {
    for kind in [end.before, end.kind] {
        set_job_condition(
            job,
            &Condition { kind, holds: true, reason: end.reason, message: end.message },
            now,
        );
    }
    if end.kind == "Complete" {
        child(job, &["status"]).insert("completionTime".to_owned(), json!(stamp(now)));
    }
}

/// Conditions of Jobs know when they were probed, and no generation.
fn set_job_condition(job: &mut Value, new: &Condition<'_>, now: Timestamp) {
    set_condition(job, new, now);
    let Some(Value::Array(list)) = child(job, &["status"]).get_mut("conditions") else { return };
    for condition in list.iter_mut().filter(|condition| condition["type"] == new.kind) {
        child(condition, &[]).shift_remove("observedGeneration");
        condition["lastProbeTime"] = json!(stamp(now));
    }
}

fn setting<'a>(pod: &'a Value, name: &str) -> &'a str {
    text(pod, &["metadata", "annotations", name])
}

fn ends_at(pod: &Value) -> Option<Timestamp> {
    let seconds = setting(pod, SECONDS).parse::<i64>().unwrap_or(DEFAULT_SECONDS).max(0);
    time(&pod["status"]["startTime"])?.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Starts a pod that has a node now, and ends one whose time is up.
fn advance(pod: &mut Arc<Value>, node: Option<String>, now: Timestamp) {
    match pod["status"]["phase"].as_str() {
        Some("Running") if ends_at(pod).is_some_and(|end| end <= now) => {
            let code = setting(pod, EXIT).parse::<i64>().unwrap_or(0);
            let pod = Arc::make_mut(pod);
            let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
            let started = pod["status"]["startTime"].clone();
            let terminated =
                json!({"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": stamp(now)});
            let containers = container_statuses(pod, &json!({"terminated": terminated}), false);
            let status = child(pod, &["status"]);
            status.extend([("phase".to_owned(), json!(phase)), ("containerStatuses".to_owned(), containers)]);
            ready(pod, false, "PodCompleted", now);
        }
        None | Some("Pending") => {
            let Some(node) = node else { return };
            let pod = Arc::make_mut(pod);
            child(pod, &["spec"]).insert("nodeName".to_owned(), json!(node));
            begin(pod, now);
        }
        _ => {}
    }
}

fn begin(pod: &mut Value, now: Timestamp) {
    let states = container_statuses(pod, &json!({"running": {"startedAt": stamp(now)}}), true);
    child(pod, &["status"]).extend([
        ("phase".to_owned(), json!("Running")),
        ("startTime".to_owned(), json!(stamp(now))),
        ("containerStatuses".to_owned(), states),
    ]);
    ready(pod, true, "", now);
}

fn ready(pod: &mut Value, holds: bool, reason: &str, now: Timestamp) {
    for kind in ["ContainersReady", "Ready"] {
        set_condition(pod, &Condition { kind, holds, reason, message: "" }, now);
    }
}

fn container_statuses(pod: &Value, state: &Value, running: bool) -> Value {
    let containers = items(pod, &["spec", "containers"]).iter();
    containers
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                "ready": running, "started": running, "state": state,
            })
        })
        .collect()
}

fn new_pod(view: &JobsView, key: &Key, job: &Value, now: Timestamp) -> Value {
    let (uid, name) = (text(job, &["metadata", "uid"]), &key.1);
    let free = |name: &String| !view.pods.contains_key(&(key.0.clone(), name.clone()));
    let names = (0_u32..).map(|index| {
        let digest = Sha256::digest(format!("{uid}\n{index}"));
        format!("{name}-{:02x}{:02x}{:x}", digest[0], digest[1], digest[2] >> 4)
    });
    let pod_name = names.into_iter().find(free).expect("one of endless names is free");
    let template = &job["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"].as_object().cloned().unwrap_or_default(),
        "spec": template["spec"],
        "status": {"phase": "Pending"},
    });
    child(&mut pod, &["metadata"]).extend([
        ("name".to_owned(), json!(pod_name)),
        ("namespace".to_owned(), json!(key.0)),
        (
            "ownerReferences".to_owned(),
            json!([{
                "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }]),
        ),
    ]);
    child(&mut pod, &["metadata", "labels"]).extend([
        ("batch.kubernetes.io/job-name".to_owned(), json!(name)),
        ("job-name".to_owned(), json!(name)),
    ]);
    if job["spec"]["completionMode"] == "Indexed" {
        number(view, &mut pod, key, uid);
    }
    for setting in [SECONDS, EXIT] {
        let value = text(job, &["metadata", "annotations", setting]);
        if !value.is_empty() && self::setting(&pod, setting).is_empty() {
            child(&mut pod, &["metadata", "annotations"]).insert(setting.to_owned(), json!(value));
        }
    }
    if let Some(node) = place(view, &pod) {
        child(&mut pod, &["spec"]).insert("nodeName".to_owned(), json!(node));
        begin(&mut pod, now);
    }
    pod
}

/// The lowest index that no other pod of the Job stands for, on the pod in all the places where it is found.
fn number(view: &JobsView, pod: &mut Value, key: &Key, uid: &str) {
    let of_job = |(found, pod): &(&Key, &Arc<Value>)| found.0 == key.0 && owning_job(pod) == Some(uid);
    let stands = view.pods.iter().filter(of_job).filter(|(_, pod)| pod["status"]["phase"] != "Failed");
    let taken: Vec<&str> = stands.map(|(_, pod)| text(pod, &["metadata", "labels", INDEX])).collect();
    let mut indexes = (0..=taken.len()).map(|index| index.to_string());
    let index = indexes.find(|index| !taken.contains(&index.as_str())).expect("one more than are taken");
    for place in ["labels", "annotations"] {
        child(pod, &["metadata", place]).insert(INDEX.to_owned(), json!(index));
    }
    child(pod, &["spec"]).insert("hostname".to_owned(), json!(format!("{}-{index}", key.1)));
}

/// The node for a pod: labelled as it asks, ready, open to it, and with the fewest pods.
fn place(view: &JobsView, pod: &Value) -> Option<String> {
    if is_over(pod) || pod["spec"]["nodeName"].is_string() {
        return None;
    }
    let mut load: BTreeMap<&str, usize> = BTreeMap::new();
    for other in view.pods.values().filter(|other| !is_over(other)) {
        *load.entry(text(other, &["spec", "nodeName"])).or_default() += 1;
    }
    let selector = labels(&pod["spec"]["nodeSelector"]);
    let suits = |node: &Value| {
        let own = labels(&node["metadata"]["labels"]);
        let ready = condition(node, "Ready").is_some_and(|ready| ready["status"] == "True");
        // A node's taints read like a flavor's.
        let as_flavor = json!({"spec": {"nodeTaints": node["spec"]["taints"]}});
        ready
            && node["spec"]["unschedulable"] != true
            && selector.iter().all(|(key, value)| own.get(key) == Some(value))
            && pods::mismatch(pod, &as_flavor).is_none()
    };
    let nodes = view.nodes.iter().filter(|(_, node)| suits(node));
    let lightest = nodes.min_by_key(|((_, name), _)| load.get(name.as_str()).copied().unwrap_or(0));
    lightest.map(|((_, name), _)| name.clone())
}
