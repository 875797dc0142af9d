//! What a claim's status says: what the cluster has, what each assignment gets, and what keeps it from
//! the rest, in numbers and with the next step.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    cluster::Connection,
    ids::{ClaimName, FlavorName, QueueName},
    overview::ClusterCapacity,
    quantity::Amount,
    quota::{Assignment, ClusterPlan, ClusterReport},
    resources::{Aliases, Cell, Resources},
};

/// All that the status of one claim may depend on.
#[derive(Clone, Copy, Debug)]
pub struct StatusInput<'a> {
    pub generation: i64,
    /// `spec.clusterName` as written, which need not be a name.
    pub cluster: &'a str,
    pub verdict: &'a Verdict,
    /// As far as they can be read, also of a claim that is not accepted.
    pub assignments: &'a [Assignment],
    /// `None`: no cluster of that name is joined.
    pub connection: Option<&'a Connection>,
    pub capacity: Option<&'a ClusterCapacity>,
    pub plan: Option<&'a ClusterPlan>,
    pub report: Option<&'a ClusterReport>,
    /// The hub's side of this claim's cells. A cell that is missing here has no hub queue to be in.
    pub hub: &'a BTreeMap<Cell, HubCell>,
    pub writes: &'a WriteState,
    pub aliases: &'a Aliases,
    pub now: Timestamp,
    /// The conditions that the claim has now: a condition keeps its time while its status stays.
    pub previous: &'a [Condition],
}

/// What the validator said.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Verdict {
    #[default]
    Accepted,
    /// Each problem as a word and a sentence.
    Rejected(Vec<(&'static str, String)>),
    /// An older claim has the cluster.
    ClaimedBy(ClaimName),
}

/// One cell of a hub queue: what it should hold, and what it was last seen to hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HubCell {
    pub target: Amount,
    pub observed: Option<Amount>,
}

/// What of the plan is not in the clusters yet. Objects are named for people:
/// `ClusterQueue team-a on cluster2`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WriteState {
    /// Objects that wait to be written.
    pub pending: BTreeSet<String>,
    /// The last failure of objects that could not be written.
    pub failed: BTreeMap<String, String>,
    /// Cells that somebody keeps changing back, with their field manager.
    pub conflicts: BTreeMap<Cell, String>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClaimStatus {
    pub observed_generation: i64,
    /// Σ allocatable of usable nodes.
    pub capacity: Resources,
    /// Σ nominal of worker cells that are not ours.
    pub foreign: Resources,
    pub flavors: BTreeMap<FlavorName, FlavorStatus>,
    /// In the order of the claim.
    pub assignments: Vec<AssignmentStatus>,
    /// What the assignments ask for beyond what they get: `gpu 2, memory 10Gi`.
    pub short: Option<String>,
    pub last_observed: Option<Timestamp>,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FlavorStatus {
    pub capacity: Resources,
    pub assigned: Resources,
    pub unassigned: Resources,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AssignmentStatus {
    pub queue: QueueName,
    pub flavor: FlavorName,
    pub requested: Resources,
    pub effective: Resources,
    /// A word: `Assigned`, or what keeps it from what it asks for.
    pub reason: &'static str,
    /// Empty when there is nothing to say.
    pub message: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Condition {
    pub kind: ConditionKind,
    pub status: Truth,
    pub reason: String,
    pub message: String,
    pub observed_generation: i64,
    pub last_transition: Timestamp,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ConditionKind {
    Accepted,
    Resolved,
    CapacityKnown,
    QuotaSynced,
    Satisfied,
    /// The conditions above in one.
    Ready,
    // The rest stands on a claim only while it applies.
    Incomplete,
    Overcommitted,
    HubRunsLocally,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

pub fn claim_status(_input: &StatusInput<'_>) -> ClaimStatus {
    todo!()
}
