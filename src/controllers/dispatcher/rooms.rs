//! What the clusters of a config have free for a Workload's queue, read once a pass.

use std::collections::{BTreeMap, BTreeSet};

use fedq_domain::{
    multikueue::{
        Use,
        dispatch::{Candidate, Room},
    },
    task::choose::{
        gather::{ClusterFacts, LocalQueueFacts, queue_views},
        view::QueueView,
    },
};
use fedq_k8s::{
    follow::TableSet,
    hub::Hub,
    read::{
        multikueue::{joined_cluster, placements},
        tasks::{local_queues_by_namespace, worker_facts},
    },
    types::kueue::Workload,
    worker::{Joined, JoinedClusters, Worker},
};
use fedq_values::ids::ClusterName;

pub(super) struct Rooms<'a> {
    hub: &'a Hub,
    joined: &'a JoinedClusters,
    /// The clusters of each config that are for new work, in order.
    configs: BTreeMap<String, Vec<String>>,
    facts: BTreeMap<ClusterName, Facts>,
    views: BTreeMap<(ClusterName, String), Vec<QueueView>>,
}

/// Of one cluster: its ClusterQueues, and its LocalQueues by namespace.
type Facts = (ClusterFacts, BTreeMap<String, Vec<LocalQueueFacts>>);

impl<'a> Rooms<'a> {
    pub fn new(
        hub: &'a Hub,
        hub_id: &str,
        kueue_namespace: &str,
        joined: &'a JoinedClusters,
        draining: &BTreeSet<Use>,
    ) -> Self {
        let placements = placements(hub, kueue_namespace);
        let mut configs = BTreeMap::new();
        for config in hub.multikueue_configs.all() {
            let decided = config
                .metadata
                .is_labelled(hub_id)
                .then(|| placements.get(&config.metadata.name))
                .flatten()
                .filter(|decided| decided.misconfigured.is_none());
            // What is in our config and not decided on drains, as does what is not among the best any more.
            let drains = |name: &String| draining.contains(&(config.metadata.name.clone(), name.clone()));
            let stays = |name: &&String| {
                !drains(name)
                    && decided.is_none_or(|decided| {
                        joined_cluster(hub, name).is_some_and(|cluster| decided.clusters.contains(&cluster))
                    })
            };
            let clusters = config.spec.clusters.iter().filter(stays).cloned().collect();
            configs.insert(config.metadata.name.clone(), clusters);
        }
        Self { hub, joined, configs, facts: BTreeMap::new(), views: BTreeMap::new() }
    }

    pub fn candidates(&mut self, config: &str, workload: &Workload) -> Vec<Candidate> {
        let names = self.configs.get(config).cloned().unwrap_or_default();
        names.into_iter().map(|name| Candidate { room: self.room(&name, workload), name }).collect()
    }

    fn room(&mut self, name: &str, workload: &Workload) -> Room {
        let joined = self.joined;
        let Some(cluster) = joined_cluster(self.hub, name) else { return Room::Unknown };
        let Some(worker) = joined.get(&cluster).and_then(|entry| readable(entry)) else {
            return Room::Unknown;
        };
        let namespace = workload.metadata.namespace.clone().unwrap_or_default();
        let facts = self
            .facts
            .entry(cluster.clone())
            .or_insert_with(|| (worker_facts(worker), local_queues_by_namespace(&worker.local_queues.all())));
        let views = self.views.entry((cluster, namespace)).or_insert_with_key(|(_, namespace)| {
            let local = facts.1.get(namespace).map(Vec::as_slice).unwrap_or_default();
            queue_views(&facts.0, local)
        });
        let queue = views.iter().find(|queue| queue.local == workload.spec.queue_name);
        queue.map_or(Room::NoQueue, |queue| Room::Queue(queue.clone()))
    }
}

/// A cordoned or leaving cluster, too, may run what it is sent: Kueue there decides.
fn readable(entry: &Joined) -> Option<&Worker> {
    let worker = entry.worker.as_deref()?;
    (entry.connection.is_writable() && worker.is_current()).then_some(worker)
}
