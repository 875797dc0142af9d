//! What the plan is made from: facts about clusters and hub queues, already parsed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    capacity::Capacity,
    resource_groups::ResourceGroups,
    resources::{Cell, FlavorResource, Resources},
};
use fedq_values::{
    ids::{ClusterName, CohortName, FlavorName, QueueName},
    quantity::Amount,
};

/// Everything the plan may depend on. The order of both lists is of no consequence; a name that
/// comes twice counts once, its last entry.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PlanInput {
    /// The hub's ResourceFlavors: a queue with any other is inactive, so that none is ever added to
    /// one. `None`: not known, and not checked.
    pub flavors: Option<BTreeSet<FlavorName>>,
    pub clusters: Vec<ClusterInput>,
    pub queues: Vec<HubQueueInput>,
}

/// How far a cluster can be trusted and written to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    #[default]
    Live,
    /// Stale, quarantined or still connecting: what was last acknowledged stands, and nothing is
    /// written for it on either side.
    Frozen,
    /// Silent for longer than `lostTimeout`: its share is off the hub.
    Lost,
    /// Known by ClusterMetrics only: its share counts at once, since nothing can be written there.
    Unreached,
}

#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts about one cluster")]
pub struct ClusterInput {
    pub name: ClusterName,
    pub mode: Mode,
    pub cordoned: bool,
    /// `None`: not known yet. Such a cluster is held as if [`Mode::Frozen`].
    pub capacity: Option<Capacity>,
    /// The capacity is what was last known of nodes that are not being followed now, so nothing may grow on it.
    pub nodes_are_old: bool,
    /// Kept free on every set of nodes, after the percentage that [`Capacity`] already took off.
    pub headroom: Resources,
    /// Whether quota of worker queues that are not ours comes off what we may assign.
    pub count_foreign: bool,
    pub claim: Option<ClaimInput>,
    pub worker_queues: Vec<WorkerQueueInput>,
    /// The terms of the hub's cells that this cluster was last counted with. `None`: not known (the
    /// store was lost), so a frozen cluster's hub cells must not fall below what they are.
    pub last_terms: Option<BTreeMap<Cell, Amount>>,
    /// The last terms are from before a restart, and may lag behind what the hub was given just before it.
    /// Until the cluster has said what it has, its hub cells must not fall because of that, nor rise above what of it
    /// was there already ([`HubQueueInput::unread`]).
    pub terms_may_lag: bool,
}

impl ClusterInput {
    /// A live cluster with nothing on it.
    pub fn new(name: ClusterName) -> Self {
        Self {
            name,
            mode: Mode::Live,
            cordoned: false,
            capacity: None,
            nodes_are_old: false,
            headroom: Resources::new(),
            count_foreign: true,
            claim: None,
            worker_queues: Vec::new(),
            last_terms: Some(BTreeMap::new()),
            terms_may_lag: false,
        }
    }

    /// How it is treated: one whose capacity is not known is held like one that does not answer.
    pub fn treated_as(&self) -> Mode {
        match self.mode {
            Mode::Live | Mode::Unreached if self.capacity.is_none() => Mode::Frozen,
            mode => mode,
        }
    }
}

/// The accepted claim of a cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClaimInput {
    /// Keys of `nominalResources` that a person owns: the most that may be assigned of a resource.
    pub caps: Resources,
    pub assignments: Vec<Assignment>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Assignment {
    pub queue: QueueName,
    pub flavor: FlavorName,
    pub resources: Resources,
}

/// A ClusterQueue as it was last seen on a worker, whoever owns it. One that fedq has created is given
/// as it was written until it is seen, so that no second plan hands out the same capacity; one whose creation was not
/// answered has no cells, and what it would have as `asked`.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts about one object")]
pub struct WorkerQueueInput {
    pub name: QueueName,
    /// Labelled as this hub's, or adopted.
    pub ours: bool,
    /// Named by the claim but somebody else's: its quota is foreign, and it counts nothing on the hub.
    pub conflict: bool,
    pub cohort: Option<CohortName>,
    /// Condition `Active`. A queue that we hold for a cordon is not active; `cordoned` decides there.
    pub active: bool,
    /// Whether `reserved` can be relied on: the status is of the current generation, no write of ours
    /// to this queue is on its way, and the status is newer than the last shrink of any queue of its
    /// cohort (until then a peer may have borrowed what the shrink has since taken away).
    pub settled: bool,
    pub cells: BTreeMap<FlavorResource, WorkerCell>,
    /// What writes of ours to this queue ask for that were sent and not answered: they may be in force
    /// already, or come to be, without being seen.
    pub asked: Vec<BTreeMap<FlavorResource, AskedCell>>,
}

/// One quota as an unanswered write has it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AskedCell {
    pub nominal: Amount,
    pub lending: Option<Amount>,
}

/// One quota of a worker queue as last seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WorkerCell {
    pub nominal: Amount,
    /// `status.flavorsReservation`: what admitted workloads hold.
    pub reserved: Amount,
    pub lending: Option<Amount>,
    pub borrowing: Option<Amount>,
    /// The part of `reserved` that the hub did not dispatch.
    pub direct: Amount,
}

/// A ClusterQueue of the hub.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HubQueueInput {
    pub name: QueueName,
    pub groups: ResourceGroups,
    pub cohort: Option<CohortName>,
    /// What the annotation `fedq.dev/cells` lists.
    pub managed: BTreeMap<FlavorResource, ManagedCell>,
    pub dispatch: Dispatch,
    /// Under Kueue's `quotaManagement: Automated`: Kueue's to write, not ours.
    pub automated: bool,
    pub quota_place: QuotaPlace,
    /// What the workloads hold that the hub itself runs in a queue that admits no more (`stopPolicy`). No worker
    /// knows of them, so the queue's cells do not fall below that.
    pub still_held: BTreeMap<FlavorResource, Amount>,
    /// What the cells had, when fedqd started, of clusters that were not read since: as much of the terms that may
    /// lag ([`ClusterInput::terms_may_lag`]) is in the hub already.
    pub unread: BTreeMap<FlavorResource, Amount>,
}

/// The object of the hub that a queue's quota is written to. `groups`, `managed` and `cohort` are of that object.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum QuotaPlace {
    /// The ClusterQueue itself.
    #[default]
    Queue,
    /// A Cohort that the queue is alone in, as its annotation `fedq.dev/quota-into: cohort` asks. The ClusterQueue is
    /// somebody else's as a whole, so no flavor and no resource is added to it.
    Cohort { problem: Option<CohortProblem> },
}

/// Why nothing is written to a queue's Cohort.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CohortProblem {
    #[error("its quota is to stand in Cohort `{wanted}`, so its cohortName has to be `{wanted}`, and it is {}",
        found.as_ref().map_or_else(|| "not set".to_owned(), |found| format!("`{found}`")))]
    NotInIt { wanted: String, found: Option<String> },
    #[error(
        "Cohort `{cohort}` is there already and not fedq's: delete it, or annotate it `fedq.dev/adopt: \"true\"`"
    )]
    NotOurs { cohort: String },
    #[error("Cohort `{cohort}` is the one of another hub: the queue's quota cannot be put into it")]
    OfAnotherHub { cohort: String },
    #[error("a Cohort's name has at most 253 characters, and `fedq-` with that of the queue has more")]
    NameTooLong,
    #[error("annotation `{annotation}` is `{value}`; it can be {expected}")]
    Annotation { annotation: &'static str, value: String, expected: &'static str },
    #[error("its annotation names `{parent}` as the parent of Cohort `{cohort}`, which is below that itself")]
    Cycle { cohort: String, parent: String },
    #[error(
        "its own {limit} would hold for all that it uses: take it off the ClusterQueue, and set it on Cohort `{cohort}`"
    )]
    LimitOnQueue { limit: &'static str, cohort: String },
}

/// A hub cell that is fedq's: one entry of the annotation `fedq.dev/cells`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ManagedCell {
    /// What the cell held before fedq's first write.
    pub base: Amount,
    /// The lendingLimit a person wants, which may be more than the nominal allows now.
    pub kept_lending: Option<Amount>,
    /// The lendingLimit fedq wrote last: anything else in the queue is a person's change.
    pub written_lending: Option<Amount>,
}

/// Who runs the workloads of a hub queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Dispatch {
    /// No MultiKueue check: every cluster counts, and the claim is told that the hub runs them itself.
    RunsLocally,
    MultiKueue {
        clusters: BTreeSet<ClusterName>,
    },
}

impl Dispatch {
    pub fn reaches(&self, cluster: &ClusterName) -> bool {
        match self {
            Self::RunsLocally => true,
            Self::MultiKueue { clusters } => clusters.contains(cluster),
        }
    }
}
