//! Every write of quota on every cluster, read from the histories of the simulated servers, and what must
//! hold of each one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use fedq_sim::cluster::Cluster;
use fedq_sim::kind::Kind;
use fedq_sim::store::{Change, Object, name_of};
use serde_json::Value;

use super::stage::{FLAVOR, GPU, HUB_LABEL, QUEUES};

/// Up to where a cluster's history has been looked at.
#[derive(Clone, Copy, Debug)]
pub struct Mark(pub u64);

/// Quota in force by queue.
type Nominals = BTreeMap<String, i64>;

/// A queue's part in what may come to be held.
#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    nominal: i64,
    /// What its status says that workloads hold.
    reserved: i64,
    in_cohort: bool,
}

/// What happened on one cluster since a mark.
pub struct Segment {
    name: String,
    queues: Nominals,
    holders: BTreeMap<String, Holder>,
    /// What the nodes had at its start, and from each change of one on.
    capacity: Vec<(Option<Instant>, i64)>,
    changes: Vec<Change>,
}

impl Segment {
    /// Ends at the mark that is returned with it.
    pub fn since(cluster: &Cluster, mark: Mark) -> (Self, Mark) {
        let store = &cluster.state.store;
        let [queues, nodes] = ["ClusterQueue", "Node"].map(|kind| Kind::named(kind).unwrap());
        let then = |kind| store.list_at(kind, None, mark.0).expect("a history that is kept");
        let (mut changes, until) = store.since(queues, mark.0).expect("a history that is kept");
        changes.retain(|change| change.version <= until);
        let mut there: BTreeMap<String, i64> =
            then(nodes).into_iter().map(|((_, name), node)| (name, gpus_of(&node))).collect();
        let mut capacity = vec![(None, there.values().sum())];
        for change in store.since(nodes, mark.0).expect("a history that is kept").0 {
            let name = name_of(change.after.as_ref().or(change.before.as_ref()).unwrap()).1;
            there.insert(name, change.after.as_ref().map_or(0, |node| gpus_of(node)));
            capacity.push((Some(change.at), there.values().sum()));
        }
        let then = then(queues);
        let holders = then.iter().map(|((_, name), queue)| (name.clone(), Holder::of(queue))).collect();
        let queues = then.into_iter().filter_map(|((_, name), queue)| Some((name, nominal(&queue)?)));
        let name = cluster.state.name.clone();
        let segment = Self { name, queues: queues.collect(), holders, capacity, changes };
        (segment, Mark(until))
    }

    /// The most that a queue had at any time until then.
    fn most(&self, queue: &str, until: Instant) -> i64 {
        let then = self.changes.iter().take_while(|change| change.at <= until).map(step);
        let then = then.filter(|(name, ..)| name == queue).map(|(.., after)| after);
        then.chain(self.queues.get(queue).copied()).max().unwrap_or_default()
    }

    /// The most that the nodes had at any time until then.
    fn capacity(&self, until: Instant) -> i64 {
        let then = self.capacity.iter().take_while(|(since, _)| since.is_none_or(|since| since <= until));
        then.map(|(_, gpus)| *gpus).max().unwrap_or_default()
    }

    /// I1 on a worker: no growth that fedq writes lets the sum of all quota exceed what the nodes had had by then.
    pub fn never_promises_more_than_there_is(&self) {
        let mut queues = self.queues.clone();
        for change in &self.changes {
            let (name, before, after) = step(change);
            queues.insert(name.clone(), after);
            let sum: i64 = queues.values().sum();
            let ours = change.after.as_ref().is_some_and(is_ours);
            let (worker, capacity) = (&self.name, self.capacity(change.at));
            assert!(
                !ours || after <= before || sum <= capacity,
                "on `{worker}` `{name}` grew from {before} to {after}, to {sum} of {capacity} in all: {queues:?}"
            );
        }
    }

    /// Nor what queues may come to hold, by workloads that hold more than a quota that shrank. Who is in a cohort is
    /// known late, so the way it was at any time since the mark that allows the most.
    pub fn never_lets_more_be_held_than_there_is(&self) {
        let mut holders = self.holders.clone();
        let cohorts = |holders: &BTreeMap<String, Holder>| -> BTreeSet<String> {
            holders.iter().filter(|(_, holder)| holder.in_cohort).map(|(name, _)| name.clone()).collect()
        };
        let mut seen = vec![cohorts(&holders)];
        for change in &self.changes {
            let (name, before, after) = step(change);
            match &change.after {
                Some(queue) => drop(holders.insert(name.clone(), Holder::of(queue))),
                None => drop(holders.remove(&name)),
            }
            let now = cohorts(&holders);
            if !seen.contains(&now) {
                seen.push(now);
            }
            if !change.after.as_ref().is_some_and(is_ours) || after <= before {
                continue;
            }
            let held = seen.iter().map(|cohort| held(&holders, cohort)).min().unwrap_or_default();
            let capacity = self.capacity(change.at);
            assert!(
                held <= capacity,
                "on `{}` `{name}` grew from {before} to {after}, and {held} of {capacity} may come to be held: {holders:?}",
                self.name
            );
        }
    }

    /// I1 on the hub: it promises no more than the workers had confirmed by then, and what others report.
    pub fn promises_what_workers_confirmed(&self, workers: &[&Self], beside: [i64; 2]) {
        for change in &self.changes {
            let (name, _, after) = step(change);
            let most: i64 = workers.iter().map(|worker| worker.most(&name, change.at)).sum();
            let managed = QUEUES.iter().position(|queue| *queue == name);
            assert!(
                managed.is_none_or(|queue| after <= most + beside[queue]),
                "the hub's `{name}` got {after}, and workers had {most} at most"
            );
        }
    }

    /// Unknown is not zero: with inputs that only grow, no quota ever falls.
    pub fn never_falls(&self) {
        for change in &self.changes {
            let (name, before, after) = step(change);
            let ours = QUEUES.contains(&name.as_str());
            assert!(
                !ours || before <= after,
                "`{name}` on `{}` fell from {before} to {after}: {:?}",
                self.name,
                self.quota_writes()
            );
        }
    }

    /// Each write of quota of a managed queue: from what to what.
    pub fn quota_writes(&self) -> Vec<(String, i64, i64)> {
        let moved =
            |(name, before, after): &(String, i64, i64)| before != after && QUEUES.contains(&name.as_str());
        self.changes.iter().map(step).filter(moved).collect()
    }
}

impl Holder {
    fn of(queue: &Value) -> Self {
        let usage = queue["status"]["flavorsReservation"].as_array().into_iter().flatten();
        let of_flavor = usage.filter(|usage| usage["name"] == FLAVOR);
        let resources = of_flavor.filter_map(|usage| usage["resources"].as_array()).flatten();
        let gpus = resources.filter(|resource| resource["name"] == GPU);
        let reserved = gpus.filter_map(|gpus| gpus["total"].as_str()?.parse::<i64>().ok()).sum();
        Self {
            nominal: nominal(queue).unwrap_or_default(),
            reserved,
            in_cohort: queue["spec"]["cohortName"].as_str().is_some_and(|name| !name.is_empty()),
        }
    }
}

/// Of queues that lend each other all they have, and of others: the greater of quota and what is reserved.
fn held(holders: &BTreeMap<String, Holder>, cohort: &BTreeSet<String>) -> i64 {
    let (mut nominal, mut reserved, mut alone) = (0, 0, 0);
    for (name, holder) in holders {
        if cohort.contains(name) {
            nominal += holder.nominal;
            reserved += holder.reserved;
        } else {
            alone += holder.nominal.max(holder.reserved);
        }
    }
    alone + nominal.max(reserved)
}

/// Whose quota it was, before and after.
fn step(change: &Change) -> (String, i64, i64) {
    let of = |object: Option<&Object>| object.and_then(|queue| nominal(queue)).unwrap_or_default();
    let name = name_of(change.after.as_ref().or(change.before.as_ref()).unwrap()).1;
    (name, of(change.before.as_ref()), of(change.after.as_ref()))
}

fn is_ours(queue: &Object) -> bool {
    queue["metadata"]["labels"][HUB_LABEL].is_string()
}

/// GPUs of the flavor under test.
pub fn nominal(queue: &Value) -> Option<i64> {
    let groups = queue["spec"]["resourceGroups"].as_array()?;
    let flavors = groups.iter().filter_map(|group| group["flavors"].as_array()).flatten();
    let resources = flavors.filter(|flavor| flavor["name"] == FLAVOR);
    let mut resources = resources.filter_map(|flavor| flavor["resources"].as_array()).flatten();
    let gpus = resources.find(|resource| resource["name"] == GPU)?;
    gpus["nominalQuota"].as_str()?.parse().ok()
}

/// What a node counts, by a rule simpler than fedq's own.
fn gpus_of(node: &Value) -> i64 {
    let ready = node["status"]["conditions"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"));
    let usable = ready && node["spec"]["unschedulable"] != true;
    let gpus = node["status"]["allocatable"][GPU].as_str().and_then(|text| text.parse::<i64>().ok());
    // No node here has more than 8, whatever it says.
    gpus.filter(|gpus| usable && 0 < *gpus).map_or(0, |gpus| gpus.min(8))
}
