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
}

pub const SATISFIED: &str = "PlacementSatisfied";
pub const MISCONFIGURED: &str = "PlacementMisconfigured";

/// What the conditions are made of.
pub struct Verdict<'a> {
    pub placement: &'a Placement,
    pub candidates: &'a Candidates,
    pub chosen: usize,
    pub unscheduled: i64,
    pub problem: Option<&'a Problem>,
}

pub fn conditions(verdict: &Verdict) -> Conditions {
    Conditions { misconfigured: misconfigured(verdict.problem), satisfied: satisfied(verdict) }
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
    Condition { kind: MISCONFIGURED, holds, reason, message }
}

fn satisfied(verdict: &Verdict) -> Condition {
    let Verdict { placement, candidates, chosen, unscheduled, problem } = verdict;
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
    Condition { kind: SATISFIED, holds, reason, message }
}
