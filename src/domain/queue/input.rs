//! What hub and worker have, already parsed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    fill_weight,
    pod_security::Level,
    selector::{Labels, Selector},
};
use fedq_values::ids::{FlavorName, QueueName};

/// (namespace, name)
pub type LocalQueueKey = (String, String);

/// What the hub says. One for all workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HubObjects {
    pub id: String,
    pub queues: BTreeMap<QueueName, HubQueue>,
    pub local_queues: BTreeMap<LocalQueueKey, LocalQueueSpec>,
    pub namespaces: BTreeMap<String, Labels>,
    pub namespace_rules: NamespaceRules,
    /// `spec` of each, in Kueue's JSON.
    pub flavors: BTreeMap<FlavorName, Map<String, Value>>,
    pub priority_classes: BTreeMap<String, PriorityClass>,
    pub cohorts: BTreeMap<String, CohortFacts>,
    /// Some objects could not be read: what seems to be missing may be there, so nothing is removed.
    pub partial: bool,
}

/// What workers' namespaces get besides the labels that queues select them by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceRules {
    /// What a new one enforces where the hub's enforces nothing.
    pub pod_security: Option<Level>,
    /// Keys of labels that are kept as the hub has them.
    pub copied_labels: BTreeSet<String>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HubQueue {
    pub cohort: Option<String>,
    /// `None` selects no namespace.
    pub namespaces: Option<Selector>,
}

/// What a worker has.
#[derive(Clone, Debug, Default)]
pub struct WorkerObjects {
    pub local_queues: BTreeMap<LocalQueueKey, Object<WorkerLocalQueue>>,
    pub namespaces: BTreeMap<String, Object<Labels>>,
    pub flavors: BTreeMap<FlavorName, Object<Map<String, Value>>>,
    pub priority_classes: BTreeMap<String, Object<PriorityClass>>,
    pub topologies: BTreeSet<String>,
    pub cohorts: BTreeMap<String, CohortFacts>,
    /// Flavors that any of its ClusterQueues or Cohorts has quota for, whoever owns it.
    pub used_flavors: BTreeSet<String>,
    /// Whether any of its ClusterQueues is ours.
    pub has_our_queues: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Object<T> {
    pub owner: Owner,
    pub deleting: bool,
    pub content: T,
}

/// Whose an object on a worker is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Owner {
    /// Labelled as this hub's.
    Ours,
    /// A person gave it to us with an annotation that the next write takes off.
    HandedOver,
    /// A person's, or another hub's.
    Foreign,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkerLocalQueue {
    pub spec: LocalQueueSpec,
    /// Pending and reserving ones; `None` while the counts are not of the spec as it is.
    pub workloads: Option<i64>,
}

/// A LocalQueue's spec, with what the API server would fill in.
#[derive(Clone, Debug, PartialEq)]
pub struct LocalQueueSpec {
    pub queue: String,
    pub stop: String,
    pub fair_sharing: Option<Map<String, Value>>,
}

impl LocalQueueSpec {
    pub fn new(queue: &str, stop: Option<&str>, fair_sharing: Option<Map<String, Value>>) -> Self {
        let filled = |mut sharing: Map<String, Value>| {
            fill_weight(&mut sharing);
            sharing
        };
        Self {
            queue: queue.to_owned(),
            stop: stop.unwrap_or("None").to_owned(),
            fair_sharing: fair_sharing.map(filled),
        }
    }

    /// In Kueue's JSON.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("clusterQueue".to_owned(), self.queue.clone().into());
        fields.insert("stopPolicy".to_owned(), self.stop.clone().into());
        if let Some(sharing) = &self.fair_sharing {
            fields.insert("fairSharing".to_owned(), sharing.clone().into());
        }
        fields
    }
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PriorityClass {
    pub value: i64,
    pub description: String,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CohortFacts {
    pub parent: Option<String>,
    /// Whether it has quota of its own, which its queues borrow.
    pub has_quota: bool,
}
