//! What a Placement's status says, in OCM's words: other controllers and people's scripts read them.

use super::{Problem, candidates::Candidates, spec::Placement};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Condition {
    pub kind: &'static str,
    pub holds: bool,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Conditions {
    pub misconfigured: Condition,
    pub satisfied: Condition,
    /// Only while there is something wrong; OCM has no such condition.
    pub unreadable: Option<Condition>,
}

pub const SATISFIED: &str = "PlacementSatisfied";
pub const MISCONFIGURED: &str = "PlacementMisconfigured";
pub const READABLE: &str = "fedq.dev/ClustersReadable";

/// What the conditions are made of.
pub struct Verdict<'a> {
    pub placement: &'a Placement,
    pub candidates: &'a Candidates,
    pub chosen: usize,
    pub unscheduled: i64,
    pub problem: Option<&'a Problem>,
    /// What cannot be read of clusters, and so does not count.
    pub unreadable: Vec<String>,
}

pub fn conditions(verdict: &Verdict) -> Conditions {
    let unreadable = (!verdict.unreadable.is_empty()).then(|| Condition {
        kind: READABLE,
        holds: false,
        reason: "QuantityUnreadable",
        message: within(format!("amounts that do not count: {}", verdict.unreadable.join("; "))),
    });
    Conditions { misconfigured: misconfigured(verdict.problem), satisfied: satisfied(verdict), unreadable }
}

impl Conditions {
    pub fn all(&self) -> impl Iterator<Item = &Condition> {
        [&self.misconfigured, &self.satisfied].into_iter().chain(&self.unreadable)
    }
}

fn misconfigured(problem: Option<&Problem>) -> Condition {
    let (holds, reason, message) = match problem {
        Some(Problem::Misconfigured { plugin, message }) => {
            (true, "Misconfigured", format!("{plugin}:{message}"))
        }
        Some(Problem::Error { .. }) | None => {
            (false, "Succeedconfigured", "Placement configurations check pass".to_owned())
        }
    };
    Condition { kind: MISCONFIGURED, holds, reason, message: within(message) }
}

fn satisfied(verdict: &Verdict) -> Condition {
    let Verdict { placement, candidates, chosen, unscheduled, problem, .. } = verdict;
    let error = match problem {
        Some(Problem::Error { message }) => Some(message),
        Some(Problem::Misconfigured { .. }) | None => None,
    };
    let (holds, reason, message) = if candidates.bound.is_empty() {
        let message = "No valid ManagedClusterSetBindings found in placement namespace".to_owned();
        (false, "NoManagedClusterSetBindings", message)
    } else if candidates.sets.is_empty() {
        let asked = placement.cluster_sets.join(",");
        let message = format!("None of ManagedClusterSets [{asked}] is bound to placement namespace");
        (false, "NoIntersection", message)
    } else if candidates.clusters.is_empty() && candidates.problem.is_none() {
        let sets = candidates.sets.join(",");
        let message = format!("All ManagedClusterSets [{sets}] have no member ManagedCluster");
        (false, "AllManagedClusterSetsEmpty", message)
    } else if let Some(error) = error {
        (false, "NotAllDecisionsScheduled", error.clone())
    } else if *chosen == 0 {
        let message = "No ManagedCluster matches any of the cluster predicate".to_owned();
        (false, "NoManagedClusterMatched", message)
    } else if *unscheduled == 0 {
        (true, "AllDecisionsScheduled", "All cluster decisions scheduled".to_owned())
    } else {
        (false, "NotAllDecisionsScheduled", format!("{unscheduled} cluster decisions unscheduled"))
    };
    Condition { kind: SATISFIED, holds, reason, message: within(message) }
}

/// The API takes no longer messages, and an expression may be quoted in one.
const MAX_MESSAGE: usize = 32_768;

fn within(message: String) -> String {
    if message.len() <= MAX_MESSAGE { message } else { message.chars().take(MAX_MESSAGE).collect() }
}
