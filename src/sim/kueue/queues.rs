//! Status of ClusterQueues and LocalQueues, and the finalizers of what is in use
//! (`pkg/controller/core/{clusterqueue,localqueue,resourceflavor,admissioncheck}_controller.go`).

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Objects, View, active,
    quota::{Cell, Usage},
    read::{
        Condition, add_finalizer, child, has_finalizer, is_deleted, is_true, quantity, remove_finalizer,
        set_condition, text, units,
    },
    schedule,
    snapshot::{Group, Info, groups, holds_quota},
};

/// What a queue's workloads hold, counted.
#[derive(Default)]
struct Held {
    reserved: Usage,
    admitted: Usage,
    reserving: i64,
    running: i64,
}

impl Held {
    fn count(&mut self, workload: &Value, info: &Info) {
        let admitted = is_true(workload, "Admitted");
        self.reserving += 1;
        self.running += i64::from(admitted);
        for (cell, amount) in info.usage() {
            let sums = [Some(&mut self.reserved), admitted.then_some(&mut self.admitted)];
            for sums in sums.into_iter().flatten() {
                let sum = sums.entry(cell.clone()).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
    }
}

#[derive(Default)]
struct Counts {
    by_queue: BTreeMap<String, Held>,
    /// By the LocalQueue's namespace and name, and its ClusterQueue.
    by_local: BTreeMap<(String, String, String), Held>,
    pending: BTreeMap<String, i64>,
    pending_local: BTreeMap<(String, String), i64>,
}

fn counts(view: &View, now: Timestamp) -> Counts {
    let mut counts = Counts::default();
    for (key, workload) in &view.workloads {
        let local = (key.0.clone(), text(workload, &["spec", "queueName"]).to_owned());
        if holds_quota(workload) {
            let queue = text(workload, &["status", "admission", "clusterQueue"]).to_owned();
            let info = Info::of(key, workload, &queue, now);
            counts.by_queue.entry(queue.clone()).or_default().count(workload, &info);
            counts.by_local.entry((local.0, local.1, queue)).or_default().count(workload, &info);
        } else if let Some(queue) = schedule::queue_of(view, workload) {
            *counts.pending.entry(queue.to_owned()).or_default() += 1;
            *counts.pending_local.entry(local).or_default() += 1;
        }
    }
    counts
}

pub(super) fn reconcile(view: &mut View, now: Timestamp) {
    let counts = counts(view, now);
    for key in view.cluster_queues.keys().cloned().collect::<Vec<_>>() {
        let before = view.cluster_queues[&key].clone();
        let mut queue = (*before).clone();
        cluster_queue(view, &mut queue, &counts, now);
        if *before != queue {
            view.cluster_queues.insert(key, Arc::new(queue));
        }
    }
    for key in view.local_queues.keys().cloned().collect::<Vec<_>>() {
        let before = view.local_queues[&key].clone();
        let mut queue = (*before).clone();
        local_queue(view, &mut queue, &counts, now);
        if *before != queue {
            view.local_queues.insert(key, Arc::new(queue));
        }
    }
    let View { flavors, checks, cluster_queues, .. } = view;
    hold(flavors, |name| cluster_queues.values().any(|queue| active::all_flavors(queue).contains(name)));
    hold(checks, |name| cluster_queues.values().any(|queue| active::checks(queue).contains_key(name)));
}

/// Objects keep a finalizer, and lose it when they are deleted and nothing uses them.
fn hold(objects: &mut Objects, used: impl Fn(&str) -> bool) {
    for ((_, name), object) in objects {
        if !is_deleted(object) && !has_finalizer(object) {
            add_finalizer(Arc::make_mut(object));
        } else if is_deleted(object) && has_finalizer(object) && !used(name) {
            remove_finalizer(Arc::make_mut(object));
        }
    }
}

fn cluster_queue(view: &View, queue: &mut Value, counts: &Counts, now: Timestamp) {
    let name = text(queue, &["metadata", "name"]).to_owned();
    let nothing = Held::default();
    let held = counts.by_queue.get(&name).unwrap_or(&nothing);
    if !is_deleted(queue) {
        if !has_finalizer(queue) {
            add_finalizer(queue);
        }
    } else if held.reserving == 0 {
        remove_finalizer(queue);
        return;
    }
    let in_cohort = !text(queue, &["spec", "cohortName"]).is_empty();
    let nominal = nominal(queue);
    let groups = groups(queue);
    let usage = |sums: &Usage| {
        list(&groups, |cell| {
            let total = sums.get(cell).copied().unwrap_or(0);
            let over = total.saturating_sub(nominal.get(cell).copied().unwrap_or(0));
            let borrowed = if in_cohort { over.max(0) } else { 0 };
            let (total, borrowed) = (quantity(&cell.resource, total), quantity(&cell.resource, borrowed));
            json!({"name": cell.resource, "total": total, "borrowed": borrowed})
        })
    };
    let (reserved, admitted) = (usage(&held.reserved), usage(&held.admitted));
    let pending = counts.pending.get(&name).copied().unwrap_or(0);
    write(queue, [reserved, admitted], [pending, held.reserving, held.running]);
    let activity = active::activity(view, queue);
    let (reason, message, holds) = (activity.reason, activity.message.as_str(), activity.is_active());
    set_condition(queue, &Condition { kind: "Active", holds, reason, message }, now);
}

fn nominal(queue: &Value) -> Usage {
    let mut nominal = Usage::new();
    for flavor in super::read::items(queue, &["spec", "resourceGroups"])
        .iter()
        .flat_map(|group| super::read::items(group, &["flavors"]))
    {
        for resource in super::read::items(flavor, &["resources"]) {
            let cell = Cell {
                flavor: text(flavor, &["name"]).to_owned(),
                resource: text(resource, &["name"]).to_owned(),
            };
            let amount = units(&cell.resource, &resource["nominalQuota"]);
            nominal.insert(cell, amount);
        }
    }
    nominal
}

/// One entry a flavor, in the order of the spec, with its resources by name.
fn list(groups: &[Group], entry: impl Fn(&Cell) -> Value) -> Value {
    let flavors = groups.iter().flat_map(|group| group.flavors.iter().map(move |flavor| (group, flavor)));
    flavors
        .map(|(group, flavor)| {
            let resources: Vec<Value> = group
                .resources
                .iter()
                .map(|resource| entry(&Cell { flavor: flavor.clone(), resource: resource.clone() }))
                .collect();
            json!({"name": flavor, "resources": resources})
        })
        .collect()
}

fn local_queue(view: &View, queue: &mut Value, counts: &Counts, now: Timestamp) {
    let (namespace, name) =
        (text(queue, &["metadata", "namespace"]).to_owned(), text(queue, &["metadata", "name"]).to_owned());
    let of = text(queue, &["spec", "clusterQueue"]).to_owned();
    let cluster_queue = view.cluster_queues.get(&(String::new(), of.clone()));
    let (holds, reason, message) = match cluster_queue {
        _ if active::is_stopped(queue) => (false, "Stopped", "LocalQueue is stopped"),
        None => (false, "ClusterQueueDoesNotExist", "Can't submit new workloads to clusterQueue"),
        Some(cluster_queue) if is_true(cluster_queue, "Active") => {
            (true, "Ready", "Can submit new workloads to localQueue")
        }
        Some(_) => (false, "ClusterQueueIsInactive", "Can't submit new workloads to clusterQueue"),
    };
    let groups = cluster_queue.map(|cluster_queue| groups(cluster_queue)).unwrap_or_default();
    let nothing = Held::default();
    let held = counts.by_local.get(&(namespace.clone(), name.clone(), of));
    let held = held.filter(|_| cluster_queue.is_some()).unwrap_or(&nothing);
    let usage = |sums: &Usage| {
        list(&groups, |cell| {
            let total = sums.get(cell).copied().unwrap_or(0);
            json!({"name": cell.resource, "total": quantity(&cell.resource, total)})
        })
    };
    let (reserved, admitted) = (usage(&held.reserved), usage(&held.admitted));
    let pending = counts.pending_local.get(&(namespace, name)).copied().unwrap_or(0);
    write(queue, [reserved, admitted], [pending, held.reserving, held.running]);
    set_condition(queue, &Condition { kind: "Active", holds, reason, message }, now);
}

fn write(queue: &mut Value, [reserved, admitted]: [Value; 2], [pending, reserving, running]: [i64; 3]) {
    let status = child(queue, &["status"]);
    for (field, list) in [("flavorsReservation", reserved), ("flavorsUsage", admitted)] {
        if list.as_array().is_none_or(Vec::is_empty) {
            status.remove(field);
        } else {
            status.insert(field.to_owned(), list);
        }
    }
    let counts =
        [("pendingWorkloads", pending), ("reservingWorkloads", reserving), ("admittedWorkloads", running)];
    status.extend(counts.map(|(field, count)| (field.to_owned(), json!(count))));
}
