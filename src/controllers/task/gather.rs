//! Joined clusters into the fleet that tasks are chosen by. A cluster is read anew when it changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ptr,
    sync::{Arc, Weak},
};

use fedq_domain::{
    cluster::Connection,
    overview::CapacityView,
    queue::ClaimedQueues,
    resources::Cell,
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

/// What was read of a cluster, and the changes that are in it.
struct Known {
    /// To tell it from a later one, and no more: what is known stands also when the connection is let go of.
    worker: Weak<Worker>,
    stamp: [u64; 5],
    facts: Arc<ClusterFacts>,
    local_queues: Arc<BTreeMap<String, Vec<LocalQueueFacts>>>,
    priorities: Arc<BTreeMap<String, i64>>,
}

#[derive(Default)]
pub(super) struct Gathered {
    known: BTreeMap<ClusterName, Known>,
    pub fleet: Arc<Fleet>,
    /// Counts changes of the fleet.
    pub revision: u64,
    weights: Weights,
    /// LocalQueues that each cluster is to have, and the changes and claims that are in it.
    promised: BTreeMap<ClusterName, Arc<BTreeMap<String, BTreeSet<String>>>>,
    promised_by: Option<(u64, Arc<ClaimedQueues>)>,
    /// Queues of the hub that MultiKueue dispatches, and the changes that are in it.
    routes: (Option<[u64; 5]>, Routes),
}

/// To which clusters MultiKueue dispatches the work of a LocalQueue, by its namespace and name.
pub(super) type Routes = BTreeMap<(String, String), BTreeSet<ClusterName>>;

/// What tasks take that Kueue does not count yet, by cluster.
pub(super) type InFlight = BTreeMap<ClusterName, BTreeMap<Cell, Amount>>;

impl Gathered {
    pub fn new(weights: Weights) -> Self {
        Self { weights, ..Self::default() }
    }

    pub fn routes(&mut self, hub: &Hub) -> &Routes {
        let stamp = [
            hub.queues.revision(),
            hub.local_queues.revision(),
            hub.checks.revision(),
            hub.multikueue_configs.revision(),
            hub.multikueue_clusters.revision(),
        ];
        if self.routes.0 != Some(stamp) {
            self.routes = (Some(stamp), dispatched_queues(hub));
        }
        &self.routes.1
    }

    /// Takes in which queues clusters are to have.
    pub fn promise(&mut self, hub: &Hub, claimed: Arc<ClaimedQueues>) {
        let revision = hub.local_queues.revision();
        let is_read = |(seen, by): &(u64, Arc<ClaimedQueues>)| *seen == revision && Arc::ptr_eq(by, &claimed);
        if self.promised_by.as_ref().is_some_and(is_read) {
            return;
        }
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
        self.promised = claimed.iter().map(|(name, claimed)| (name.clone(), of_cluster(claimed))).collect();
        self.promised_by = Some((revision, claimed));
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
                self.read_cluster(name, worker);
            }
            self.measure(name, capacity);
            let Some(known) = self.known.get(name) else {
                leave_out(&mut fleet, name, entry);
                continue;
            };
            let (has_jobsets, app_wrappers) = runs(name);
            let member = Member {
                access: access(entry),
                facts: Arc::clone(&known.facts),
                local_queues: Arc::clone(&known.local_queues),
                promised: self.promised.get(name).cloned().unwrap_or_default(),
                priorities: Arc::clone(&known.priorities),
                has_jobsets,
                app_wrappers,
            };
            fleet.clusters.insert(name.clone(), member);
        }
        fleet
    }

    /// Takes in how large the cluster's nodes are.
    fn measure(&mut self, name: &ClusterName, capacity: &CapacityView) {
        let (Some(known), Some(found)) = (self.known.get_mut(name), capacity.get(name)) else { return };
        let largest = &found.capacity.largest_of;
        if known.facts.largest_nodes != *largest {
            Arc::make_mut(&mut known.facts).largest_nodes.clone_from(largest);
        }
    }

    /// One that the cluster has, and that tasks may be in.
    pub fn namespace_of(&self, cluster: &ClusterName) -> Option<String> {
        self.known.get(cluster)?.local_queues.keys().next().cloned()
    }

    fn read_cluster(&mut self, name: &ClusterName, worker: &Arc<Worker>) {
        let stamp = [
            worker.queues.revision(),
            worker.local_queues.revision(),
            worker.flavors.revision(),
            worker.cohorts.revision(),
            worker.priority_classes.revision(),
        ];
        let is_read =
            |known: &Known| known.stamp == stamp && ptr::eq(known.worker.as_ptr(), Arc::as_ptr(worker));
        if self.known.get(name).is_some_and(is_read) {
            return;
        }
        let classes = worker.priority_classes.all();
        let known = Known {
            worker: Arc::downgrade(worker),
            stamp,
            facts: Arc::new(worker_facts(worker)),
            local_queues: Arc::new(local_queues_by_namespace(&worker.local_queues.all())),
            priorities: Arc::new(
                classes.iter().map(|class| (class.metadata.name.clone(), class.value)).collect(),
            ),
        };
        self.known.insert(name.clone(), known);
    }

    /// What tasks are chosen by from now on.
    pub fn replace(&mut self, fleet: Fleet) {
        if *self.fleet != fleet {
            self.fleet = Arc::new(fleet);
            self.revision += 1;
        }
    }
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
    per_node(candidate).into_iter().filter_map(cell).collect()
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
