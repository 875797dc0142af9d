//! What a claim's status says: what the cluster has, what each assignment gets, and what keeps it from
//! the rest, in numbers and with the next step.

mod conditions;
mod words;

pub use words::{heaviest, word as reason_word};

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    cluster::Connection,
    conflict::Writers,
    overview::ClusterCapacity,
    queue::report::QueueReport,
    quota::{Assignment, ClusterPlan, ClusterReport},
    resources::{Aliases, Cell, Resources},
};
use fedq_values::{
    ids::{ClaimName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
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
    /// Keys of `nominalResources` that a person owns.
    pub caps: &'a Resources,
    /// `None`: no cluster of that name is joined.
    pub connection: Option<&'a Connection>,
    pub hub_has_kueue: bool,
    pub capacity: Option<&'a ClusterCapacity>,
    pub plan: Option<&'a ClusterPlan>,
    pub report: Option<&'a ClusterReport>,
    /// The hub's side of this claim's cells. A cell that is missing here has no hub queue to be in.
    pub hub: &'a BTreeMap<Cell, HubCell>,
    pub writes: &'a WriteState,
    /// What keeps the claim's queues from working on the cluster, besides quota.
    pub queues: &'a [QueueReport],
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
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HubCell {
    pub target: Amount,
    pub observed: Option<Amount>,
    /// Why fedq writes nothing to its queue, where that does not pass by itself.
    pub left_alone: Option<String>,
}

impl HubCell {
    fn is_behind(&self) -> bool {
        self.observed.unwrap_or_default() != self.target
    }
}

/// What of the plan is not in the clusters yet. Objects are named for people:
/// `ClusterQueue team-a on cluster2`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WriteState {
    /// Objects that wait to be written.
    pub pending: BTreeSet<String>,
    /// The last failure of objects that could not be written.
    pub failed: BTreeMap<String, String>,
    /// Cells that somebody keeps changing back, and who.
    pub conflicts: BTreeMap<Cell, Writers>,
    /// Queues of the hub that were never readable, and why: the cluster is planned with once they are.
    pub unreadable: BTreeMap<QueueName, String>,
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
    /// Of the resources whose own is another.
    pub reasons: BTreeMap<ResourceName, &'static str>,
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
    QueueProblems,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

pub fn claim_status(input: &StatusInput<'_>) -> ClaimStatus {
    let mut seen = BTreeSet::new();
    // A claim that names a queue and flavor twice is not accepted, but its status must be writable:
    // they are the key of the list.
    let once = input.assignments.iter().filter(|entry| seen.insert((&entry.queue, &entry.flavor)));
    let assignments: Vec<Assigned> = once.map(|assignment| assigned(input, assignment)).collect();
    ClaimStatus {
        observed_generation: input.generation,
        capacity: input.capacity.map(|capacity| capacity.capacity.total.clone()).unwrap_or_default(),
        foreign: foreign(input),
        flavors: flavors(input),
        short: short(&assignments, input.aliases),
        last_observed: input.capacity.map(|capacity| capacity.observed),
        conditions: conditions::conditions(input, &assignments),
        assignments: assignments.into_iter().map(|assigned| assigned.status).collect(),
    }
}

/// An assignment's status, and how its reason ranks among others.
struct Assigned {
    status: AssignmentStatus,
    finding: Finding,
}

/// What keeps an assignment from what it asks for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Finding {
    weight: Weight,
    word: &'static str,
    message: String,
}

/// What a finding says about the claim. Of an assignment's cells the heaviest decides, of equal ones
/// the first.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
enum Weight {
    #[default]
    Fine,
    /// It has what it asks for as far as fedq can tell; another condition says what is amiss.
    Unconfirmed,
    /// Less than it asks for, for now.
    Passing,
    /// Less than it asks for, until somebody acts.
    Lacking,
    /// Nothing, until somebody acts.
    Blocked,
}

fn assigned(input: &StatusInput<'_>, assignment: &Assignment) -> Assigned {
    let mut effective = Resources::new();
    let mut reasons = BTreeMap::new();
    let mut findings: Vec<Finding> = Vec::new();
    if let Some(finding) = words::not_in_force(input) {
        findings.push(finding);
    } else {
        for (resource, requested) in &assignment.resources {
            let cell = Cell {
                queue: assignment.queue.clone(),
                flavor: assignment.flavor.clone(),
                resource: resource.clone(),
            };
            let planned = input.plan.and_then(|plan| plan.cells.get(&cell));
            effective.insert(resource.clone(), planned.map(|planned| planned.effective).unwrap_or_default());
            let finding = words::finding(input, &cell, *requested, planned);
            reasons.insert(resource.clone(), finding.word);
            findings.push(finding);
        }
        findings.extend(words::incomplete(input, assignment));
    }
    let weight = findings.iter().map(|finding| finding.weight).max().unwrap_or_default();
    let first = findings.iter().find(|finding| finding.weight == weight);
    let word = first.map_or(words::ASSIGNED, |finding| finding.word);
    reasons.retain(|_, own| *own != word);
    let mut messages: Vec<&str> = Vec::new();
    for finding in findings.iter().filter(|finding| !finding.message.is_empty()) {
        if !messages.contains(&finding.message.as_str()) {
            messages.push(&finding.message);
        }
    }
    let message = messages.join("; ");
    Assigned {
        status: AssignmentStatus {
            queue: assignment.queue.clone(),
            flavor: assignment.flavor.clone(),
            requested: assignment.resources.clone(),
            effective,
            reason: word,
            reasons,
            message: message.clone(),
        },
        finding: Finding { weight, word, message },
    }
}

fn foreign(input: &StatusInput<'_>) -> Resources {
    let mut foreign = Resources::new();
    let uses = input.report.iter().flat_map(|report| report.flavors.values()).flatten();
    for (resource, use_) in uses.filter(|(_, use_)| !use_.foreign.is_zero()) {
        let sum = foreign.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(use_.foreign);
    }
    foreign
}

fn flavors(input: &StatusInput<'_>) -> BTreeMap<FlavorName, FlavorStatus> {
    let mut flavors: BTreeMap<FlavorName, FlavorStatus> = BTreeMap::new();
    let known = input.capacity.iter().flat_map(|capacity| &capacity.capacity.by_flavor);
    for (flavor, capacity) in known {
        let status = FlavorStatus { capacity: capacity.clone(), ..FlavorStatus::default() };
        flavors.insert(flavor.clone(), status);
    }
    for (flavor, uses) in input.report.iter().flat_map(|report| &report.flavors) {
        let status = flavors.entry(flavor.clone()).or_default();
        for (resource, use_) in uses {
            status.capacity.insert(resource.clone(), use_.capacity);
            status.assigned.insert(resource.clone(), use_.assigned);
            status.unassigned.insert(resource.clone(), use_.unassigned);
        }
    }
    // A flavor of some other cluster, which has no node here and nothing assigned, says nothing.
    flavors.retain(|name, status| {
        status.capacity.values().chain(status.assigned.values()).any(|amount| !amount.is_zero())
            || input.assignments.iter().any(|assignment| assignment.flavor == *name)
    });
    flavors
}

fn short(assignments: &[Assigned], aliases: &Aliases) -> Option<String> {
    let mut missing = Resources::new();
    for Assigned { status, .. } in assignments {
        for (resource, requested) in &status.requested {
            let got = status.effective.get(resource).copied().unwrap_or_default();
            let sum = missing.entry(resource.clone()).or_default();
            *sum = sum.saturating_add(requested.saturating_sub(got));
        }
    }
    missing.retain(|_, amount| !amount.is_zero());
    let text = missing
        .iter()
        .map(|(resource, amount)| format!("{} {}", aliases.short(resource), amount.text(resource)));
    (!missing.is_empty()).then(|| text.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
