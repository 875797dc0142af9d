//! What the controllers know, published whole after each change: the API and the webhook read this
//! and nothing else, so that a question never waits for a cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    capacity::{Capacity, Flavor},
    cluster::{Connection, LastSeen},
    resources::Resources,
};
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// Counts up with every publication.
    pub revision: u64,
    pub clusters: BTreeMap<ClusterName, Arc<ClusterOverview>>,
    /// Clusters that OCM knows and that are not joined.
    pub managed: BTreeMap<ClusterName, ManagedOverview>,
    pub claims: BTreeMap<ClaimName, Arc<ClaimOverview>>,
    pub queues: BTreeMap<QueueName, Arc<QueueOverview>>,
    /// The claims that the plan rests on, with their clusters. One that vanished stays here until its
    /// removal is believed.
    pub in_force: BTreeMap<ClaimName, ClusterName>,
    /// Claims that vanished and whose removal waits for a person's word, and the clusters they claimed:
    /// nothing is written for these, and no claim is made anew.
    pub held_claims: BTreeSet<ClaimName>,
    pub held_clusters: BTreeSet<ClusterName>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterOverview {
    pub connection: Connection,
    pub cordoned: bool,
    /// `kubeconfig`, `clusterProfile` or `clusterMetrics`.
    pub source: &'static str,
    pub joined: Option<Timestamp>,
    pub server: Option<String>,
    pub kubernetes_version: Option<String>,
    pub kueue_version: Option<String>,
    pub credential_expires: Option<Timestamp>,
    pub last_seen: LastSeen,
    pub nodes: NodeCounts,
    /// Σ allocatable of usable nodes.
    pub capacity: Resources,
    /// What an autoscaler would bring beyond that.
    pub coming: Resources,
    /// Nominal quota of worker queues that are not fedq's.
    pub foreign: Resources,
    pub flavors: BTreeMap<FlavorName, FlavorOverview>,
    /// The claim that is in force for this cluster.
    pub claim: Option<ClaimName>,
}

/// What OCM says of a cluster that fedq does not reach.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedOverview {
    /// Since when, and why.
    pub unavailable: Option<(Option<Timestamp>, String)>,
    pub known_since: Option<Timestamp>,
    pub server: Option<String>,
    pub kubernetes_version: Option<String>,
    pub capacity: Resources,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NodeCounts {
    pub total: u32,
    pub usable: u32,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FlavorOverview {
    pub capacity: Resources,
    /// What an autoscaler would bring beyond that; what is 0 is left out.
    pub coming: Resources,
    pub assigned: Resources,
    pub unassigned: Resources,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimOverview {
    pub cluster: ClusterName,
    pub generation: i64,
    pub created: Option<Timestamp>,
    /// Ready condition: `True`, `False` or `Unknown`, with its reason and message.
    pub ready: (String, String, String),
    /// Conditions that stand only while they apply, such as `Incomplete` or `QueueProblems`: kind, reason, message.
    pub notes: Vec<(String, String, String)>,
    /// nominalResources by Kubernetes name: the amount, and whether a person owns it (a cap).
    pub nominal: BTreeMap<ResourceName, (Amount, bool)>,
    pub assignments: Vec<AssignmentOverview>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AssignmentOverview {
    pub queue: QueueName,
    pub flavor: FlavorName,
    pub requested: Resources,
    pub effective: Resources,
    /// A word such as `Assigned`, `Draining`, `QueueNotFound`.
    pub reason: String,
    /// Of the resources whose own is another.
    pub reasons: BTreeMap<ResourceName, &'static str>,
    pub message: String,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QueueOverview {
    /// That it shares with others.
    pub cohort: Option<String>,
    /// That its quota stands in, where it does not stand in the queue.
    pub quota_cohort: Option<String>,
    /// Why fedq leaves the queue alone, where it does.
    pub untouched: Option<String>,
    /// Where somebody keeps changing what fedq writes into it: the hub, or a cluster.
    pub conflicts: BTreeMap<Option<ClusterName>, Conflict>,
    /// What keeps it from working on clusters, besides quota: cluster, word, sentence.
    pub problems: Vec<(ClusterName, &'static str, String)>,
    pub cells: BTreeMap<(FlavorName, ResourceName), CellOverview>,
}

impl QueueOverview {
    /// Whether but for the cells they are the same.
    pub fn says_beside_cells(&self, other: &Self) -> bool {
        let Self { cohort, quota_cohort, untouched, conflicts, problems, cells: _ } = self;
        (cohort, quota_cohort, untouched, conflicts, problems)
            == (&other.cohort, &other.quota_cohort, &other.untouched, &other.conflicts, &other.problems)
    }
}

/// Two who write the same fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conflict {
    /// Who writes what, as a sentence without an end.
    pub message: String,
    /// What ends it; several lines, where they are to be pasted into something.
    pub remedy: String,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CellOverview {
    /// What the hub's queue says now.
    pub nominal: Amount,
    pub base: Amount,
    pub target: Amount,
    pub terms: BTreeMap<ClusterName, TermOverview>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TermOverview {
    pub requested: Amount,
    pub effective: Amount,
    /// What the worker's queue says now, where it has one.
    pub worker_nominal: Option<Amount>,
    pub reserved: Amount,
    /// What the hub counts of this cluster.
    pub term: Amount,
    pub reason: String,
}

/// Capacity of every cluster whose nodes are known.
pub type CapacityView = BTreeMap<ClusterName, Arc<ClusterCapacity>>;

/// Capacity of one cluster, as its nodes last added up to.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterCapacity {
    pub capacity: Capacity,
    pub nodes: NodeCounts,
    /// The flavors it was added up for.
    pub flavors: Arc<[Flavor]>,
    /// What the operator keeps free, besides the percentage that is off already.
    pub headroom: Resources,
    pub observed: Timestamp,
    /// Allocatable quantities that could not be read.
    pub bad: Vec<String>,
    /// Why the nodes are not being followed, if they are not: this is what was last known of them.
    pub silent: Option<String>,
    /// Whether the nodes are not being followed at this moment: as the store had them, or since their watch broke.
    pub is_old: bool,
    /// Whether they were read since this daemon was started.
    pub was_read: bool,
    /// The hub's flavors stand in for the cluster's own, which it has not told yet.
    pub presumed: bool,
    /// Which nodes it came of, as far as that is remembered.
    pub moved: Moved,
}

/// The nodes that changed what counts last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moved {
    /// How often one did.
    times: u64,
    /// Their names, the newest last.
    last: Vec<Box<str>>,
}

impl Moved {
    /// Names that are kept: with more at once it is not about single ones.
    const KEPT: usize = 4;

    pub fn note(&mut self, names: &[Box<str>]) {
        self.times += names.len() as u64;
        self.last.extend_from_slice(&names[names.len().saturating_sub(Self::KEPT)..]);
        self.last.drain(..self.last.len().saturating_sub(Self::KEPT));
    }

    pub fn times(&self) -> u64 {
        self.times
    }

    /// In words, those that changed since it was so many times; `None` where none did.
    pub fn since(&self, times: u64) -> Option<String> {
        let count = usize::try_from(self.times.saturating_sub(times)).unwrap_or(usize::MAX);
        let mut names: Vec<&str> = self.last.iter().rev().take(count).map(AsRef::as_ref).collect();
        names.sort_unstable();
        names.dedup();
        let word = if names.len() == 1 && count <= self.last.len() { "node" } else { "nodes" };
        let others = if self.last.len() < count { " and others" } else { "" };
        (!names.is_empty()).then(|| format!("{word} {}{others}", names.join(", ")))
    }
}

impl ClusterCapacity {
    /// Without anything beside it.
    #[cfg(any(test, feature = "testing"))]
    pub fn alone(capacity: Capacity) -> Self {
        Self {
            capacity,
            nodes: NodeCounts::default(),
            flavors: Vec::new().into(),
            headroom: Resources::new(),
            observed: Timestamp::UNIX_EPOCH,
            bad: Vec::new(),
            silent: None,
            is_old: false,
            was_read: true,
            presumed: false,
            moved: Moved::default(),
        }
    }

    /// Whether only the time differs, and what it came of.
    pub fn says_the_same(&self, other: &Self) -> bool {
        Self { observed: other.observed, moved: other.moved.clone(), ..self.clone() } == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_changed_are_named_while_they_are_few() {
        let names = |names: &[&str]| -> Vec<Box<str>> { names.iter().map(|&name| name.into()).collect() };
        let mut moved = Moved::default();
        assert_eq!(moved.since(0), None);
        moved.note(&names(&["b"]));
        moved.note(&names(&["a"]));
        assert_eq!(moved.since(0).as_deref(), Some("nodes a, b"));
        assert_eq!(moved.since(1).as_deref(), Some("node a"));
        assert_eq!(moved.since(2), None);
        moved.note(&names(&["a"]));
        assert_eq!(moved.since(1).as_deref(), Some("node a"), "twice");
        moved.note(&names(&["c", "d", "e", "f", "g"]));
        assert_eq!(moved.since(3).as_deref(), Some("nodes d, e, f, g and others"));
        assert_eq!((moved.times(), moved.last.len()), (8, Moved::KEPT));
    }
}
