//! The scheduler: heads of the queues against the quota, cycle after cycle, until nothing moves
//! (`pkg/scheduler/scheduler.go`).
//!
//! It keeps no memory between passes, so a workload's search for a flavor always starts at the first.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Key, View, active,
    assign::{Assigner, Assignment, Mode},
    pods,
    preempt::{self, Need, Target},
    quota::{Usage, minus},
    read::{Condition, child, is_true, items, labels, quantity, set_condition, text, time},
    snapshot::{Info, Snapshot, local_queue},
    workload,
};

struct Entry {
    info: Info,
    assignment: Assignment,
    targets: Vec<Target>,
}

/// What became of a head in one cycle.
enum Outcome {
    Admitted,
    /// Stays head until the evicted are gone; true when some were evicted just now.
    Preempting(bool),
    /// Lost to another head of this cycle: stays head.
    Skipped(String),
    Inadmissible(String),
}

pub(super) fn schedule(view: &mut View, now: Timestamp) {
    let mut snapshot = Snapshot::of(view, now);
    let mut waiting = waiting(view, &snapshot, now);
    let mut told = BTreeMap::new();
    // Each cycle that moves something admits, evicts or puts aside at least one workload, and none of
    // them comes back within a pass, so this ends.
    while cycle(view, &mut snapshot, &mut waiting, &mut told, now) {}
    for (key, (message, info)) in told {
        if let Some(workload) = view.workloads.get_mut(&key) {
            tell(workload, &message, &info, now);
        }
    }
}

/// What waits in each active ClusterQueue, in the order it is tried.
fn waiting(view: &View, snapshot: &Snapshot, now: Timestamp) -> BTreeMap<String, Vec<Info>> {
    let mut waiting: BTreeMap<String, Vec<Info>> = BTreeMap::new();
    for (key, workload) in &view.workloads {
        let Some(queue) = queue_of(view, workload) else { continue };
        if snapshot.queues.get(queue).is_some_and(|queue| queue.active) && may_be_tried(workload, now) {
            waiting.entry(queue.to_owned()).or_default().push(Info::of(key, workload, queue, now));
        }
    }
    for list in waiting.values_mut() {
        // The last is tried first.
        list.sort_by(|a, b| {
            (a.priority, &b.queued, &b.uid, &b.key).cmp(&(b.priority, &a.queued, &a.uid, &a.key))
        });
    }
    waiting
}

/// The ClusterQueue a workload waits in, if its LocalQueue lets it.
pub(super) fn queue_of<'a>(view: &'a View, workload: &Value) -> Option<&'a str> {
    let local = local_queue(&view.local_queues, workload)?;
    let open = !active::is_stopped(local) && workload::is_admissible(workload) && workload::exists(workload);
    open.then(|| text(local, &["spec", "clusterQueue"]))
}

fn may_be_tried(workload: &Value, now: Timestamp) -> bool {
    let held_back = super::read::condition(workload, "Requeued").is_some_and(|c| c["status"] == "False");
    let until = time(&workload["status"]["requeueState"]["requeueAt"]);
    !held_back && until.is_none_or(|until| until <= now)
}

/// Tries each queue's head once; says whether that changed anything.
fn cycle(
    view: &mut View,
    snapshot: &mut Snapshot,
    waiting: &mut BTreeMap<String, Vec<Info>>,
    told: &mut BTreeMap<Key, (String, Info)>,
    now: Timestamp,
) -> bool {
    let heads: Vec<Info> = waiting.values().filter_map(|list| list.last().cloned()).collect();
    let mut moved = false;
    let mut entries = Vec::new();
    for info in heads {
        match nominate(view, snapshot, &info) {
            Ok((assignment, targets)) => entries.push(Entry { info, assignment, targets }),
            Err(message) => {
                moved |= put_aside(snapshot, waiting, &info, true);
                told.insert(info.key.clone(), (message, info));
            }
        }
    }
    entries.sort_by(|a, b| {
        let sort_key =
            |e: &Entry| (e.assignment.borrowing, std::cmp::Reverse(e.info.priority), e.info.queued);
        sort_key(a).cmp(&sort_key(b))
    });
    // What this cycle takes beyond admissions holds for this cycle alone.
    let mut reserved: Vec<(usize, Usage)> = Vec::new();
    let mut preempted = Vec::new();
    for entry in entries {
        let outcome = process(view, snapshot, &entry, (&mut preempted, &mut reserved), now);
        let message = match outcome {
            Outcome::Admitted => {
                waiting.entry(entry.info.queue.clone()).or_default().pop();
                told.remove(&entry.info.key);
                moved = true;
                continue;
            }
            Outcome::Preempting(new) => {
                moved |= new;
                let count = entry.targets.len();
                format!("{}. Pending the preemption of {count} workload(s)", entry.assignment.message())
            }
            Outcome::Skipped(message) => message,
            Outcome::Inadmissible(message) => {
                moved |= put_aside(snapshot, waiting, &entry.info, false);
                message
            }
        };
        told.insert(entry.info.key.clone(), (message, entry.info));
    }
    for (node, usage) in &reserved {
        snapshot.tree.remove_all(*node, usage);
    }
    moved
}

/// Lets the next of the queue be tried, unless the queue is strict and the head merely does not fit.
fn put_aside(
    snapshot: &Snapshot,
    waiting: &mut BTreeMap<String, Vec<Info>>,
    info: &Info,
    always: bool,
) -> bool {
    let strict = snapshot.queues[&info.queue].spec["queueingStrategy"] == "StrictFIFO";
    (always || !strict) && waiting.get_mut(&info.queue).and_then(Vec::pop).is_some()
}

fn nominate(view: &View, snapshot: &mut Snapshot, info: &Info) -> Result<(Assignment, Vec<Target>), String> {
    let workload = &view.workloads[&info.key];
    let mut states = items(workload, &["status", "admissionChecks"]).iter().map(|check| &check["state"]);
    if states.any(|state| state == "Retry" || state == "Rejected") {
        return Err("The workload has failed admission checks".to_owned());
    }
    let namespace = &info.key.0;
    let Some(object) = view.namespaces.get(&(String::new(), namespace.clone())) else {
        return Err(format!(
            "workload namespace {namespace:?} does not exist: Namespace {namespace:?} not found"
        ));
    };
    let selector = &snapshot.queues[&info.queue].spec["namespaceSelector"];
    if !pods::selects(selector, &labels(&object["metadata"]["labels"])) {
        return Err("workload namespace doesn't match ClusterQueue selector".to_owned());
    }
    let assigner = Assigner { snapshot, flavors: &view.flavors, info, workload };
    let assignment = assigner.assign();
    let targets = if assignment.mode().needs_preemption() {
        let (cells, usage) = (assignment.cells_to_preempt(), assignment.usage.clone());
        preempt::targets(snapshot, &Need { info, cells, usage })
    } else {
        Vec::new()
    };
    Ok((assignment, targets))
}

fn process(
    view: &mut View,
    snapshot: &mut Snapshot,
    entry: &Entry,
    (preempted, reserved): (&mut Vec<Target>, &mut Vec<(usize, Usage)>),
    now: Timestamp,
) -> Outcome {
    let mode = entry.assignment.mode();
    let node = snapshot.queues[&entry.info.queue].node;
    if mode == Mode::NoFit {
        return Outcome::Inadmissible(entry.assignment.message());
    }
    if mode != Mode::Fit && entry.targets.is_empty() {
        // What cannot be reclaimed at will is kept for it, lest a lower one takes it meanwhile.
        if preempt::policy(&snapshot.queues[&entry.info.queue], "reclaimWithinCohort") != "Any" {
            let usage = to_reserve(snapshot, entry);
            snapshot.tree.add_all(node, &usage);
            reserved.push((node, usage));
        }
        return Outcome::Inadmissible(entry.assignment.message());
    }
    let same = |target: &Target| preempted.iter().any(|other| other.info.key == target.info.key);
    if entry.targets.iter().any(same) {
        let message = "Workload has overlapping preemption targets with another workload";
        return Outcome::Skipped(message.to_owned());
    }
    if !fits_without(snapshot, entry, preempted) {
        return Outcome::Skipped("Workload no longer fits after processing another workload".to_owned());
    }
    if mode == Mode::Fit {
        admit(view, snapshot, entry, now);
        return Outcome::Admitted;
    }
    snapshot.tree.add_all(node, &entry.assignment.usage);
    reserved.push((node, entry.assignment.usage.clone()));
    preempted.extend(entry.targets.iter().cloned());
    let mut new = false;
    for target in &entry.targets {
        new |= evict(view, snapshot, entry, target, now);
    }
    Outcome::Preempting(new)
}

/// Whether the entry fits once all that this cycle evicts is gone.
fn fits_without(snapshot: &mut Snapshot, entry: &Entry, preempted: &[Target]) -> bool {
    let gone: Vec<Info> = preempted
        .iter()
        .chain(&entry.targets)
        .filter_map(|target| snapshot.take(&target.info.queue, &target.info.key))
        .collect();
    let node = snapshot.queues[&entry.info.queue].node;
    let fits = snapshot.tree.fits(node, &entry.assignment.usage);
    for info in gone {
        snapshot.insert(info);
    }
    fits
}

fn to_reserve(snapshot: &Snapshot, entry: &Entry) -> Usage {
    let node = snapshot.queues[&entry.info.queue].node;
    let bounded = entry.assignment.usage.iter().map(|(cell, amount)| {
        let quota = snapshot.tree.quota(node, cell);
        let used = snapshot.tree.used(node, cell);
        let most = if 0 < entry.assignment.borrowing {
            quota.borrowing.map_or(i64::MAX, |limit| minus(quota.nominal.saturating_add(limit), used))
        } else {
            minus(quota.nominal, used).max(0)
        };
        (cell.clone(), (*amount).min(most))
    });
    bounded.collect()
}

fn admit(view: &mut View, snapshot: &mut Snapshot, entry: &Entry, now: Timestamp) {
    let queue = &entry.info.queue;
    let sets: Vec<Value> = entry
        .assignment
        .sets
        .iter()
        .map(|set| {
            let flavors: BTreeMap<&String, &String> =
                set.flavors.iter().map(|(resource, assigned)| (resource, &assigned.flavor)).collect();
            let usage: BTreeMap<&String, String> = set
                .flavors
                .keys()
                .map(|resource| (resource, quantity(resource, set.requests[resource])))
                .collect();
            json!({"name": set.name, "flavors": flavors, "resourceUsage": usage, "count": set.count})
        })
        .collect();
    let Some(workload) = view.workloads.get_mut(&entry.info.key).map(Arc::make_mut) else { return };
    let status = child(workload, &["status"]);
    status.insert("admission".to_owned(), json!({"clusterQueue": queue, "podSetAssignments": sets}));
    status.remove("resourceRequests");
    let message = format!("Quota reserved in ClusterQueue {queue}");
    let reserved =
        Condition { kind: "QuotaReserved", holds: true, reason: "QuotaReserved", message: &message };
    set_condition(workload, &reserved, now);
    for kind in ["Evicted", "Preempted"] {
        reset(workload, kind, now);
    }
    let cluster_queue = &view.cluster_queues[&(String::new(), queue.clone())];
    let listed: BTreeSet<&str> =
        items(workload, &["status", "admissionChecks"]).iter().map(|check| text(check, &["name"])).collect();
    let required = workload::required_checks(workload, cluster_queue);
    if required.iter().all(|check| listed.contains(check)) {
        workload::sync_admitted(workload, now);
    }
    let info = Info::of(&entry.info.key, workload, queue, now);
    snapshot.insert(info);
}

/// A condition that held is history once quota is reserved anew.
fn reset(workload: &mut Value, kind: &str, now: Timestamp) {
    if is_true(workload, kind) {
        let before = super::read::condition(workload, kind).map_or("", |old| text(old, &["message"]));
        let message = format!("Previously: {before}");
        let reset = Condition { kind, holds: false, reason: "QuotaReserved", message: &message };
        set_condition(workload, &reset, now);
    }
}

/// Marks a workload as evicted for `entry`; false when it was before.
fn evict(view: &mut View, snapshot: &mut Snapshot, entry: &Entry, target: &Target, now: Timestamp) -> bool {
    let preemptor = &view.workloads[&entry.info.key]["metadata"];
    let or_unknown = |text: &str| if text.is_empty() { "UNKNOWN".to_owned() } else { text.to_owned() };
    let uid = or_unknown(text(preemptor, &["uid"]));
    let job_uid = or_unknown(text(preemptor, &["labels", "kueue.x-k8s.io/job-uid"]));
    let (path, victim_path) = (snapshot.path(&entry.info.queue), snapshot.path(&target.info.queue));
    let message = format!(
        "Preempted to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to {}; preemptor path: {path}; preemptee path: {victim_path}",
        target.reason_in_words(),
    );
    let Some(victim) = view.workloads.get_mut(&target.info.key) else { return false };
    if is_true(victim, "Evicted") {
        return false;
    }
    let victim = Arc::make_mut(victim);
    let preempted = Condition { kind: "Preempted", holds: true, reason: target.reason, message: &message };
    set_condition(victim, &preempted, now);
    workload::evict(victim, "Preempted", &message, now);
    if let Some(mut info) = snapshot.take(&target.info.queue, &target.info.key) {
        info.evicted = true;
        snapshot.insert(info);
    }
    true
}

/// Why a workload waits.
fn tell(workload: &mut Arc<Value>, message: &str, info: &Info, now: Timestamp) {
    let requests = info.resource_requests();
    let old = super::read::condition(workload, "QuotaReserved");
    let known = old.is_some_and(|old| {
        old["status"] == "False" && old["reason"] == "Pending" && old["message"] == message
    });
    if known && workload["status"]["resourceRequests"] == requests {
        return;
    }
    let workload = Arc::make_mut(workload);
    workload::unset_reservation(workload, "Pending", message, now);
    child(workload, &["status"]).insert("resourceRequests".to_owned(), requests);
}
