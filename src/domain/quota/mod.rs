//! The plan: from claims and capacity to the quota of every cell, with a report why.
//!
//! Pure and deterministic. [`plan`] computes everything at once; [`Planner`] keeps the last answer
//! and recomputes what an input touches, with the same result.

mod constraints;
mod fill;
mod hold;
mod hub;
mod input;
mod model;
mod output;
mod planner;
#[cfg(test)]
mod properties;
mod report;
#[cfg(test)]
mod simulation;
mod solve;
mod state;

pub use input::{
    AskedCell, Assignment, ClaimInput, ClusterInput, CohortProblem, Dispatch, HubQueueInput, ManagedCell,
    Mode, PlanInput, QuotaPlace, WorkerCell, WorkerQueueInput,
};
pub use output::{
    CellPlan, ClusterPlan, ClusterReport, FlavorUse, HubCellPlan, HubQueuePlan, Overcommit, Plan, Reason,
    Report, Unresolved, Untouched,
};
pub use planner::{Planner, Touched};

/// Flavors sharing nodes are kept within capacity in every combination up to this many: 2¹⁰
/// combinations of a resource are the most worth checking.
pub const MAX_COMPONENT: usize = 10;

/// The whole plan at once.
pub fn plan(input: &PlanInput) -> (Plan, Report) {
    let mut planner = Planner::default();
    planner.set_flavors(input.flavors.clone());
    for queue in &input.queues {
        planner.set_queue(queue.clone());
    }
    for cluster in &input.clusters {
        planner.set_cluster(cluster.clone());
    }
    planner.replan();
    planner.whole()
}
