//! What the plan says: the quota every cell must have now, and why it is not more.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    quota::input::{CohortProblem, ManagedCell},
    resource_groups::{ResourceGroups, Rule},
    resources::{Cell, FlavorResource},
};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

/// All desired cells, of workers and of the hub.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    pub clusters: BTreeMap<ClusterName, ClusterPlan>,
    pub queues: BTreeMap<QueueName, HubQueuePlan>,
}

/// Why the plan is as it is, cluster by cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    pub clusters: BTreeMap<ClusterName, ClusterReport>,
}

/// The desired cells of one worker.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterPlan {
    /// Every cell its claim names, and every other cell of a worker queue of ours (which goes to 0).
    pub cells: BTreeMap<Cell, CellPlan>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CellPlan {
    /// What the claim asks for.
    pub requested: Amount,
    /// What it gets of the cluster's usable capacity.
    pub effective: Amount,
    /// What the worker cell must be written to now. `None`: nothing is written, nor made.
    pub granted: Option<Amount>,
    /// What of `effective` waits until somebody else's workloads end or a shrink is confirmed.
    pub draining: Amount,
    /// What the hub cell counts of this cluster.
    pub term: Amount,
    /// Limits to write with `granted`; `None` writes none.
    pub lending: Option<Amount>,
    pub borrowing: Option<Amount>,
    /// The first thing that keeps the cell from what it asks for, on the worker or on the hub.
    pub reason: Reason,
}

/// What keeps a cell from what it asks for. Ordered from what a person must cure to what passes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The hub has no such ClusterQueue.
    MissingQueue,
    /// The hub, or the worker, has no such flavor.
    MissingFlavor,
    /// The hub queue cannot be extended with this flavor and resource.
    CannotExtend(Rule),
    /// The hub queue's quota is written by Kueue itself.
    Automated,
    /// The worker has a queue of this name that is not ours.
    Conflict,
    /// The cluster's capacity is not known yet.
    CapacityUnknown,
    Lost,
    /// The cluster does not answer: its last term stands.
    Frozen,
    Cordoned,
    /// The claim's own cap of this resource.
    Cap,
    /// The nodes of these flavors are full.
    Capacity(BTreeSet<FlavorName>),
    /// Growth waits for workloads to end or a shrink to be confirmed.
    Draining,
    /// The hub's MultiKueueConfig does not list the cluster.
    NotDispatched,
    /// The worker queue is not active.
    QueueInactive,
    /// The worker has not confirmed the cell yet.
    Unconfirmed,
    /// Workloads that the hub did not send there hold part of it.
    Direct,
    /// No claim names the cell any more.
    Unassigned,
    /// It has what it asks for.
    Satisfied,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterReport {
    pub flavors: BTreeMap<FlavorName, BTreeMap<ResourceName, FlavorUse>>,
    pub overcommitted: Vec<Overcommit>,
    /// Names that assignments wait for, each once.
    pub unresolved: BTreeSet<Unresolved>,
    /// Cells that the worker's queue covers at 0, since the claim gives that flavor nothing of it.
    pub incomplete: BTreeSet<Cell>,
    /// Resources the cluster has and an assigned queue does not cover: pods asking for them are never
    /// admitted there.
    pub uncovered: BTreeMap<QueueName, BTreeSet<ResourceName>>,
    /// Assigned queues whose workloads the hub runs itself.
    pub runs_locally: BTreeSet<QueueName>,
    /// Flavors that share nodes with more than [`super::MAX_COMPONENT`] others, for which only single
    /// flavors, pairs and the whole are kept within capacity.
    pub unchecked: BTreeSet<FlavorName>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FlavorUse {
    /// Σ allocatable of its usable nodes, shared with every other flavor that matches them.
    pub capacity: Amount,
    /// What an autoscaler would bring beyond that.
    pub coming: Amount,
    /// Σ effective of our cells.
    pub assigned: Amount,
    /// What could still be assigned to this flavor.
    pub unassigned: Amount,
    /// Σ nominal of worker cells that are not ours.
    pub foreign: Amount,
}

/// Queues may hold more of these flavors' nodes than there is.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Overcommit {
    pub flavors: BTreeSet<FlavorName>,
    pub resource: ResourceName,
    pub usable: Amount,
    pub held: Amount,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Unresolved {
    Queue(QueueName),
    /// Neither the hub nor the worker has it.
    Flavor(FlavorName),
    /// The worker has it, the hub does not.
    HubFlavor(FlavorName),
    Rule {
        queue: QueueName,
        flavor: FlavorName,
        rule: Rule,
    },
}

/// The desired quota of one hub queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HubQueuePlan {
    /// Why nothing is written to it. `groups` and `managed` then are as observed, and `cells` what
    /// clusters add all the same.
    pub untouched: Option<Untouched>,
    pub groups: ResourceGroups,
    pub cells: BTreeMap<FlavorResource, HubCellPlan>,
    /// What the annotation `fedq.dev/cells` must say, written together with `groups`.
    pub managed: BTreeMap<FlavorResource, ManagedCell>,
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Untouched {
    #[error("its MultiKueueConfig has quotaManagement: Automated, so Kueue writes its quota")]
    Automated,
    /// The queue breaks one of Kueue's rules already.
    #[error("Kueue would refuse any write to it: {0}")]
    Invalid(Rule),
    #[error(transparent)]
    Cohort(CohortProblem),
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubCellPlan {
    pub base: Amount,
    /// What each cluster adds; clusters that add nothing are left out.
    pub terms: BTreeMap<ClusterName, Amount>,
    pub target: Amount,
    /// What the queue has now; `None` where the cell does not exist yet.
    pub observed: Option<Amount>,
    pub lending: Option<Amount>,
    /// Kept from falling: the terms of a cluster that does not answer are not known, or the hub itself runs as much
    /// in a queue that is stopped.
    pub held: bool,
}
