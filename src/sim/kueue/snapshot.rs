//! What the scheduler decides on: the tree of quota, each ClusterQueue's settings, and the workloads
//! that hold quota.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Key, Objects, View, active,
    pods::{self, Requests},
    quota::{Cell, Node, Quota, Tree, Usage},
    read::{condition, is_true, items, quantity, text, texts, time, units},
};

pub(super) struct Group {
    pub resources: BTreeSet<String>,
    pub flavors: Vec<String>,
}

/// One pod set of a workload: what it needs in all, and from which flavors it has it.
#[derive(Clone, Debug)]
pub(super) struct PodSet {
    pub name: String,
    pub count: i64,
    pub requests: Requests,
    pub flavors: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub(super) struct Info {
    pub key: Key,
    pub uid: String,
    pub queue: String,
    pub priority: i64,
    /// Since when it waits, for the order of the queue.
    pub queued: Timestamp,
    pub reserved: Timestamp,
    pub evicted: bool,
    pub pod_sets: Vec<PodSet>,
}

pub(super) struct Queue {
    pub node: usize,
    pub active: bool,
    pub groups: Vec<Group>,
    pub spec: Value,
    pub workloads: BTreeMap<Key, Info>,
}

pub(super) struct Snapshot {
    pub tree: Tree,
    pub queues: BTreeMap<String, Queue>,
}

impl Info {
    /// The workload as it stands for `queue`; `now` where it has no times of its own yet.
    pub(super) fn of(key: &Key, workload: &Value, queue: &str, now: Timestamp) -> Self {
        let created = time(&workload["metadata"]["creationTimestamp"]).unwrap_or(now);
        let evicted = condition(workload, "Evicted").filter(|condition| condition["status"] == "True");
        let by_check = evicted.filter(|condition| condition["reason"] == "AdmissionCheck");
        let since = |condition: Option<&Value>| condition.and_then(|c| time(&c["lastTransitionTime"]));
        let reserved = condition(workload, "QuotaReserved").filter(|condition| condition["status"] == "True");
        Self {
            key: key.clone(),
            uid: text(workload, &["metadata", "uid"]).to_owned(),
            queue: queue.to_owned(),
            priority: workload["spec"]["priority"].as_i64().unwrap_or(0),
            queued: since(by_check).unwrap_or(created),
            reserved: since(reserved).unwrap_or(now),
            evicted: evicted.is_some(),
            pod_sets: pod_sets(workload),
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let mut usage = Usage::new();
        for set in &self.pod_sets {
            for (resource, amount) in &set.requests {
                if let Some(flavor) = set.flavors.get(resource) {
                    let cell = Cell { flavor: flavor.clone(), resource: resource.clone() };
                    let sum = usage.entry(cell).or_default();
                    *sum = sum.saturating_add(*amount);
                }
            }
        }
        usage
    }

    pub(super) fn uses(&self, cells: &[Cell]) -> bool {
        cells
            .iter()
            .any(|cell| self.pod_sets.iter().any(|set| set.flavors.get(&cell.resource) == Some(&cell.flavor)))
    }

    /// `status.resourceRequests` of a workload that waits.
    pub(super) fn resource_requests(&self) -> Value {
        let resources = |set: &PodSet| -> Value {
            set.requests.iter().map(|(name, amount)| (name.clone(), json!(quantity(name, *amount)))).collect()
        };
        let sets = self.pod_sets.iter();
        sets.map(|set| json!({"name": set.name, "resources": resources(set)})).collect()
    }
}

/// Pods that ended give their part of the quota back before the workload ends.
fn pod_sets(workload: &Value) -> Vec<PodSet> {
    let reclaimed = |name: &str| {
        let list = items(workload, &["status", "reclaimablePods"]);
        list.iter().find(|pods| pods["name"] == name).and_then(|pods| pods["count"].as_i64()).unwrap_or(0)
    };
    let assignments = items(workload, &["status", "admission", "podSetAssignments"]);
    let sets = items(workload, &["spec", "podSets"]).iter();
    sets.map(|set| {
        let name = set["name"].as_str().unwrap_or("main");
        let whole = set["count"].as_i64().unwrap_or(1).max(0);
        let count = (whole - reclaimed(name)).max(0);
        let Some(assigned) = assignments.iter().find(|assigned| assigned["name"] == name) else {
            let mut requests = pods::requests(&set["template"]);
            for amount in requests.values_mut() {
                *amount = amount.saturating_mul(count);
            }
            return PodSet { name: name.to_owned(), count, requests, flavors: BTreeMap::new() };
        };
        let admitted = assigned["count"].as_i64().unwrap_or(whole);
        let mut requests: Requests = assigned["resourceUsage"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(resource, used)| (resource.clone(), units(resource, used)))
            .collect();
        if count < admitted {
            for amount in requests.values_mut() {
                *amount = *amount / admitted * count;
            }
        }
        let flavors = super::read::labels(&assigned["flavors"]);
        let flavors = flavors.into_iter().map(|(resource, flavor)| (resource.to_owned(), flavor.to_owned()));
        PodSet { name: name.to_owned(), count: count.min(admitted), requests, flavors: flavors.collect() }
    })
    .collect()
}

/// Whether a workload counts against its ClusterQueue.
pub(super) fn holds_quota(workload: &Value) -> bool {
    is_true(workload, "QuotaReserved")
        && !is_true(workload, "Finished")
        && workload["spec"]["active"] != false
        && workload["status"]["admission"].is_object()
}

impl Snapshot {
    pub(super) fn of(view: &View, now: Timestamp) -> Self {
        let (tree, nodes) = tree(view);
        let mut queues = BTreeMap::new();
        for ((_, name), object) in &view.cluster_queues {
            let cyclic =
                !text(object, &["spec", "cohortName"]).is_empty() && tree.nodes[nodes[name]].parent.is_none();
            queues.insert(
                name.clone(),
                Queue {
                    node: nodes[name],
                    active: !cyclic && active::activity(view, object).is_active(),
                    groups: groups(object),
                    spec: object["spec"].clone(),
                    workloads: BTreeMap::new(),
                },
            );
        }
        let mut snapshot = Self { tree, queues };
        for (key, workload) in view.workloads.iter().filter(|(_, workload)| holds_quota(workload)) {
            let queue = text(workload, &["status", "admission", "clusterQueue"]);
            snapshot.insert(Info::of(key, workload, queue, now));
        }
        snapshot
    }

    /// Counts a workload in. One whose ClusterQueue is gone counts nowhere.
    pub(super) fn insert(&mut self, info: Info) {
        if let Some(queue) = self.queues.get_mut(&info.queue) {
            self.tree.add_all(queue.node, &info.usage());
            queue.workloads.insert(info.key.clone(), info);
        }
    }

    pub(super) fn take(&mut self, queue: &str, key: &Key) -> Option<Info> {
        let queue = self.queues.get_mut(queue)?;
        let info = queue.workloads.remove(key)?;
        self.tree.remove_all(queue.node, &info.usage());
        Some(info)
    }

    /// From the root cohort down to the queue, with slashes.
    pub(super) fn path(&self, queue: &str) -> String {
        let node = self.queues[queue].node;
        let above = self.tree.ancestors(node).map(|node| self.tree.nodes[node].name.as_str());
        let mut path: Vec<&str> = std::iter::once(queue).chain(above).collect();
        path.reverse();
        format!("/{}", path.join("/"))
    }
}

pub(super) fn groups(object: &Value) -> Vec<Group> {
    let groups = items(object, &["spec", "resourceGroups"]).iter();
    groups
        .map(|group| Group {
            resources: texts(items(group, &["coveredResources"])).map(str::to_owned).collect(),
            flavors: items(group, &["flavors"])
                .iter()
                .map(|flavor| text(flavor, &["name"]).to_owned())
                .collect(),
        })
        .collect()
}

fn quotas(object: &Value) -> BTreeMap<Cell, Quota> {
    let mut quotas = BTreeMap::new();
    for flavor in
        items(object, &["spec", "resourceGroups"]).iter().flat_map(|group| items(group, &["flavors"]))
    {
        for resource in items(flavor, &["resources"]) {
            let name = text(resource, &["name"]).to_owned();
            let limit = |field: &str| (!resource[field].is_null()).then(|| units(&name, &resource[field]));
            let quota = Quota {
                nominal: units(&name, &resource["nominalQuota"]),
                borrowing: limit("borrowingLimit"),
                lending: limit("lendingLimit"),
            };
            quotas.insert(Cell { flavor: text(flavor, &["name"]).to_owned(), resource: name }, quota);
        }
    }
    quotas
}

/// The tree, and each ClusterQueue's node. Cohorts come into being by being named; those in a ring, and
/// what hangs on them, stay unlinked and so lend nothing.
fn tree(view: &View) -> (Tree, BTreeMap<String, usize>) {
    let parent =
        |object: &Value| Some(text(object, &["spec", "parentName"]).to_owned()).filter(|p| !p.is_empty());
    let mut parents: BTreeMap<String, Option<String>> = BTreeMap::new();
    for ((_, name), cohort) in &view.cohorts {
        parents.insert(name.clone(), parent(cohort));
    }
    let named = view.cohorts.values().filter_map(|cohort| parent(cohort));
    let of_queues = view.cluster_queues.values().map(|queue| text(queue, &["spec", "cohortName"]).to_owned());
    for name in named.chain(of_queues.filter(|name| !name.is_empty())) {
        parents.entry(name).or_insert(None);
    }
    let index: BTreeMap<&String, usize> = parents.keys().zip(0..).collect();
    let mut tree = Tree::default();
    for (name, parent) in &parents {
        let quotas = view.cohorts.get(&(String::new(), name.clone())).map(|cohort| quotas(cohort));
        let parent = parent.as_ref().filter(|_| !in_ring(name, &parents)).map(|parent| index[parent]);
        tree.nodes.push(Node {
            name: name.clone(),
            parent,
            quotas: quotas.unwrap_or_default(),
            ..Node::default()
        });
    }
    for node in 0..tree.nodes.len() {
        if let Some(parent) = tree.nodes[node].parent {
            tree.nodes[parent].cohorts.push(node);
        }
    }
    let mut nodes = BTreeMap::new();
    for ((_, name), queue) in &view.cluster_queues {
        let cohort = text(queue, &["spec", "cohortName"]).to_owned();
        let node = tree.nodes.len();
        let parent = index.get(&cohort).copied().filter(|_| !in_ring(&cohort, &parents));
        if let Some(parent) = parent {
            tree.nodes[parent].queues.push(node);
        }
        tree.nodes.push(Node { name: name.clone(), parent, quotas: quotas(queue), ..Node::default() });
        nodes.insert(name.clone(), node);
    }
    tree.sum_up();
    (tree, nodes)
}

/// Whether going up from `cohort` never ends.
fn in_ring(cohort: &str, parents: &BTreeMap<String, Option<String>>) -> bool {
    let mut at = cohort;
    let mut steps = 0;
    while let Some(Some(parent)) = parents.get(at) {
        at = parent;
        steps += 1;
        if parents.len() < steps {
            return true;
        }
    }
    false
}

/// The LocalQueue of a workload.
pub(super) fn local_queue<'a>(local_queues: &'a Objects, workload: &Value) -> Option<&'a Value> {
    let metadata = &workload["metadata"];
    let key = (text(metadata, &["namespace"]).to_owned(), text(workload, &["spec", "queueName"]).to_owned());
    local_queues.get(&key).map(|queue| &**queue)
}
