//! Joined clusters into the fleet that tasks are chosen by. A cluster is read anew when it changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use crate::memo::{Identity, Memo};

use fedq_domain::{
    cluster::Connection,
    overview::CapacityView,
    queue::ClaimedQueues,
    resources::{Cell, Resources},
    task::{
        choose::{
            Placement, Weights,
            gather::{ClusterFacts, LocalQueueFacts},
            obstacle::Obstacle,
            verdict::per_node,
            view::Access,
        },
        fleet::{Fleet, Member},
        runtime::Runtime,
        spec::TaskSpec,
        wrapped::WrappedPods,
    },
};
use fedq_k8s::{
    follow::TableSet,
    hub::Hub,
    read::tasks::{dispatched_queues, local_queues_by_namespace, worker_facts},
    worker::{Joined, JoinedClusters, Worker},
};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

/// What is known of a cluster.
#[derive(Default)]
struct Known {
    read: Memo<ReadFrom, Read>,
    /// As far as it is or was known.
    largest_nodes: Arc<LargestNodes>,
    facts: Memo<(Identity<ClusterFacts>, Identity<LargestNodes>), Arc<ClusterFacts>>,
}

struct ReadFrom {
    /// To tell it from a later one, and no more: what is known stands also when the connection is let go of.
    worker: Weak<Worker>,
    revisions: [u64; 5],
}

impl PartialEq for ReadFrom {
    fn eq(&self, other: &Self) -> bool {
        self.worker.ptr_eq(&other.worker) && self.revisions == other.revisions
    }
}

/// All but the size of nodes.
#[derive(Debug, PartialEq)]
struct Read {
    facts: Arc<ClusterFacts>,
    local_queues: Arc<BTreeMap<String, Vec<LocalQueueFacts>>>,
    priorities: Arc<BTreeMap<String, i64>>,
}

type LargestNodes = BTreeMap<FlavorName, Resources>;

/// LocalQueues that each cluster is to have, by namespace.
type Promised = BTreeMap<ClusterName, Arc<BTreeMap<String, BTreeSet<String>>>>;

#[derive(Default)]
pub(super) struct Gathered {
    known: BTreeMap<ClusterName, Known>,
    pub fleet: Arc<Fleet>,
    /// Counts changes of the fleet.
    pub revision: u64,
    weights: Weights,
    /// By the changes of the hub's LocalQueues, and the claims.
    promised: Memo<(u64, Identity<ClaimedQueues>), Promised>,
    routes: Memo<[u64; 5], Arc<Routes>>,
}

/// To which clusters MultiKueue dispatches the work of a LocalQueue, by its namespace and name.
pub(super) type Routes = BTreeMap<(String, String), BTreeSet<ClusterName>>;

/// What tasks take that Kueue does not count yet, by cluster.
pub(super) type InFlight = BTreeMap<ClusterName, BTreeMap<Cell, Amount>>;

impl Gathered {
    pub fn new(weights: Weights) -> Self {
        Self { weights, ..Self::default() }
    }

    pub fn routes(&mut self, hub: &Hub) -> Arc<Routes> {
        let revisions = || {
            [
                hub.queues.revision(),
                hub.local_queues.revision(),
                hub.checks.revision(),
                hub.multikueue_configs.revision(),
                hub.multikueue_clusters.revision(),
            ]
        };
        Arc::clone(self.routes.get(revisions, |_| Arc::new(dispatched_queues(hub))))
    }

    /// Takes in which queues clusters are to have.
    pub fn promise(&mut self, hub: &Hub, claimed: &Arc<ClaimedQueues>) {
        let sources = || (hub.local_queues.revision(), Identity::of(claimed));
        self.promised.refresh(sources, |_| promised(hub, claimed));
    }

    /// The fleet without what is on its way.
    pub fn read(
        &mut self,
        joined: &JoinedClusters,
        capacity: &CapacityView,
        runs: impl Fn(&ClusterName) -> (bool, Runtime),
    ) -> Fleet {
        self.known.retain(|name, _| joined.contains_key(name));
        let mut fleet = Fleet { weights: self.weights, ..Fleet::default() };
        for (name, entry) in joined {
            let worker = entry.worker.as_ref().filter(|worker| worker.synced() && worker.has_kueue());
            if let Some(worker) = worker {
                self.known.entry(name.clone()).or_default().read(worker);
            }
            let largest = capacity.get(name).map(|found| &found.capacity.largest_of);
            let known =
                self.known.get_mut(name).and_then(|known| Some((known.facts(largest)?, known.read.value()?)));
            let Some((facts, known)) = known else {
                leave_out(&mut fleet, name, entry);
                continue;
            };
            let promised = self.promised.value().and_then(|promised| promised.get(name));
            let (has_jobsets, app_wrappers) = runs(name);
            let member = Member {
                access: access(entry),
                facts,
                local_queues: Arc::clone(&known.local_queues),
                promised: promised.cloned().unwrap_or_default(),
                priorities: Arc::clone(&known.priorities),
                has_jobsets,
                app_wrappers,
            };
            fleet.clusters.insert(name.clone(), member);
        }
        fleet
    }

    /// One that the cluster has, and that tasks may be in.
    pub fn namespace_of(&self, cluster: &ClusterName) -> Option<String> {
        self.known.get(cluster)?.read.value()?.local_queues.keys().next().cloned()
    }

    /// What tasks are chosen by from now on.
    pub fn replace(&mut self, fleet: Fleet) {
        if *self.fleet != fleet {
            self.fleet = Arc::new(fleet);
            self.revision += 1;
        }
    }
}

impl Known {
    fn read(&mut self, worker: &Arc<Worker>) {
        let sources = || ReadFrom {
            worker: Arc::downgrade(worker),
            revisions: [
                worker.queues.revision(),
                worker.local_queues.revision(),
                worker.flavors.revision(),
                worker.cohorts.revision(),
                worker.priority_classes.revision(),
            ],
        };
        let priorities = || worker.priority_classes.all().into_iter();
        self.read.refresh(sources, |_| Read {
            facts: Arc::new(worker_facts(worker)),
            local_queues: Arc::new(local_queues_by_namespace(&worker.local_queues.all())),
            priorities: Arc::new(
                priorities().map(|class| (class.metadata.name.clone(), class.value)).collect(),
            ),
        });
    }

    /// With the size of its nodes.
    fn facts(&mut self, largest_nodes: Option<&LargestNodes>) -> Option<Arc<ClusterFacts>> {
        let read = &self.read.value()?.facts;
        if let Some(found) = largest_nodes.filter(|found| **found != *self.largest_nodes) {
            self.largest_nodes = Arc::new(found.clone());
        }
        let largest_nodes = &self.largest_nodes;
        let sources = || (Identity::of(read), Identity::of(largest_nodes));
        let with_nodes = |_: &_| {
            let facts = ClusterFacts::clone(read);
            Arc::new(ClusterFacts { largest_nodes: LargestNodes::clone(largest_nodes), ..facts })
        };
        Some(Arc::clone(self.facts.get(sources, with_nodes)))
    }
}

fn promised(hub: &Hub, claimed: &ClaimedQueues) -> Promised {
    let queues = local_queues_by_namespace(&hub.local_queues.all());
    let of_cluster = |claimed: &BTreeMap<QueueName, BTreeSet<FlavorName>>| {
        let mut promised: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (namespace, queues) in &queues {
            let named = queues.iter().filter(|local| claimed.contains_key(&local.queue));
            let names: BTreeSet<String> = named.map(|local| local.name.clone()).collect();
            if !names.is_empty() {
                promised.insert(namespace.clone(), names);
            }
        }
        Arc::new(promised)
    };
    claimed.iter().map(|(name, claimed)| (name.clone(), of_cluster(claimed))).collect()
}

/// Puts what is on its way to a cluster into the fleet.
pub(super) fn count(fleet: &mut Fleet, cluster: &ClusterName, in_flight: &InFlight) {
    let Some(member) = fleet.clusters.get_mut(cluster) else { return };
    if let Some(cells) = in_flight.get(cluster) {
        Arc::make_mut(&mut member.facts).in_flight.clone_from(cells);
    }
}

/// A cluster of which nothing can be read: it is unknown, unless nothing will ever be.
fn leave_out(fleet: &mut Fleet, name: &ClusterName, entry: &Joined) {
    if entry.connection == Connection::Unreached {
        fleet.unusable.insert(name.clone(), Obstacle::OutOfReach);
        return;
    }
    if entry.worker.as_ref().is_some_and(|worker| worker.synced()) {
        fleet.unusable.insert(name.clone(), Obstacle::NoKueue);
        return;
    }
    fleet.unknown.insert(name.clone());
    if matches!(entry.connection, Connection::Connecting | Connection::Ready) {
        fleet.coming.insert(name.clone());
    }
}

fn access(entry: &Joined) -> Access {
    let Some(worker) = &entry.worker else { return Access::Silent };
    if entry.leaving || entry.cordoned {
        Access::Cordoned
    } else if entry.connection.is_writable() && worker.is_current() && worker.follows_tasks() {
        Access::Ready
    } else {
        Access::Silent
    }
}

/// What a task takes where it was placed.
pub(super) fn takes(
    fleet: &Fleet,
    namespace: &str,
    spec: &TaskSpec,
    placement: &Placement,
) -> Vec<(Cell, Amount)> {
    let Some(queue) = cluster_queue(fleet, namespace, placement) else { return Vec::new() };
    if let Some(wrapped) = &spec.wrapped {
        let of_set = |(pods, flavors): (&WrappedPods, &BTreeMap<ResourceName, FlavorName>)| {
            let cell = |(resource, one): (ResourceName, Amount)| {
                let flavor = flavors.get(&resource)?.clone();
                let all = one.units().saturating_mul(i64::from(pods.count));
                Some((Cell { queue: queue.clone(), flavor, resource }, Amount::new(all)))
            };
            pods.per_pod().into_iter().filter_map(cell).collect::<Vec<_>>()
        };
        return wrapped.pod_sets.iter().zip(&placement.pod_sets).flat_map(of_set).collect();
    }
    let Some(candidate) = spec.candidates.get(placement.candidate) else { return Vec::new() };
    let cell = |(resource, one): (ResourceName, Amount)| {
        let flavor = placement.flavors.get(&resource)?.clone();
        let all = one.units().saturating_mul(i64::from(spec.num_nodes));
        Some((Cell { queue: queue.clone(), flavor, resource }, Amount::new(all)))
    };
    per_node(spec, candidate).into_iter().filter_map(cell).collect()
}

fn cluster_queue(fleet: &Fleet, namespace: &str, placement: &Placement) -> Option<QueueName> {
    let local = fleet.clusters.get(&placement.cluster)?.local_queues.get(namespace)?;
    Some(local.iter().find(|queue| queue.name == placement.queue)?.queue.clone())
}

/// Adds up what is on its way.
pub(super) fn add(in_flight: &mut InFlight, cluster: &ClusterName, cells: Vec<(Cell, Amount)>) {
    let of_cluster = in_flight.entry(cluster.clone()).or_default();
    for (cell, amount) in cells {
        let sum = of_cluster.entry(cell).or_default();
        *sum = sum.saturating_add(amount);
    }
}
