//! The first filter: labels, claims and expressions.

use super::{
    PREDICATE, Problem,
    hub::{Hub, ManagedCluster},
    spec::{Placement, Predicate},
};
use crate::queue::selector::Selector;
use fedq_cel::{Fault, Program, value::Value};

/// What all expressions of one cluster may cost together, as cel-go counts; Kubernetes' constant.
pub const CLUSTER_COST: u64 = 10_000_000;
/// What all expressions of a Placement may take over all clusters. OCM has no such limit: there, ten
/// thousand expressions on a thousand clusters keep its one worker for minutes. Ours is less than a second,
/// a hundred times what honest expressions take on a thousand clusters.
pub const PLACEMENT_WORK: u64 = 20_000_000;

/// Candidates that any predicate accepts; all, without predicates.
pub fn filter(placement: &Placement, hub: &Hub, candidates: &[usize]) -> Result<Vec<usize>, Problem> {
    if placement.predicates.is_empty() || candidates.is_empty() {
        return Ok(candidates.to_vec());
    }
    let compiled: Vec<Compiled> =
        placement.predicates.iter().map(Compiled::new).collect::<Result<_, _>>().map_err(misconfigured)?;
    let mut left = PLACEMENT_WORK;
    let mut passed = Vec::with_capacity(candidates.len());
    for at in candidates {
        let cluster = &hub.clusters()[*at];
        for predicate in &compiled {
            if predicate.holds(cluster, hub, &mut left)? {
                passed.push(*at);
                break;
            }
        }
    }
    Ok(passed)
}

fn misconfigured(message: String) -> Problem {
    Problem::misconfigured(PREDICATE, message)
}

/// Label, claims and expressions of one predicate, ready to be asked.
pub struct Compiled {
    labels: Selector,
    claims: Selector,
    programs: Vec<Program>,
}

impl Compiled {
    pub fn new(predicate: &Predicate) -> Result<Self, String> {
        let programs = predicate.cel.iter().map(|text| Program::compile(text)).collect::<Result<_, _>>();
        Ok(Self {
            labels: predicate.labels.read()?,
            claims: predicate.claims.read()?,
            programs: programs.map_err(|error| error.to_string())?,
        })
    }

    /// Whether labels and claims are as asked for.
    pub fn selects(&self, cluster: &ManagedCluster) -> bool {
        self.labels.matches(&cluster.labels) && self.claims.matches(&cluster.claims)
    }

    fn holds(&self, cluster: &ManagedCluster, hub: &Hub, left: &mut u64) -> Result<bool, Problem> {
        if !self.selects(cluster) {
            return Ok(false);
        }
        let outcome = evaluate_all(&self.programs, cluster, hub, Budget { cost: CLUSTER_COST, work: *left });
        *left -= outcome.work;
        if *left == 0 {
            return Err(misconfigured(format!(
                "the CEL expressions take more than {PLACEMENT_WORK} steps over all clusters"
            )));
        }
        Ok(outcome.holds)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// As cel-go counts.
    pub cost: u64,
    pub work: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AllEvaluated {
    pub holds: bool,
    /// What cel-go says was spent; one more than there was, where there was too little.
    pub cost: u64,
    pub work: u64,
}

/// Whether all expressions are true of the cluster. An error, another kind of answer and a budget that
/// is spent are all no.
pub fn evaluate_all(
    programs: &[Program],
    cluster: &ManagedCluster,
    hub: &Hub,
    budget: Budget,
) -> AllEvaluated {
    let mut evaluated = AllEvaluated { holds: true, cost: 0, work: 0 };
    for program in programs {
        let outcome = program.evaluate(&cluster.object, hub, budget.work - evaluated.work);
        evaluated.work = (evaluated.work + outcome.work).min(budget.work);
        let too_much = outcome.value == Err(Fault::OverBudget);
        if too_much || budget.cost - evaluated.cost < outcome.cost {
            return AllEvaluated { holds: false, cost: budget.cost + 1, ..evaluated };
        }
        evaluated.cost += outcome.cost;
        if outcome.value != Ok(Value::Bool(true)) {
            return AllEvaluated { holds: false, ..evaluated };
        }
    }
    evaluated
}
