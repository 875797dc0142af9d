//! The quota of the hub's queues, and why it is what it is.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{quantity::Quantity, time::Time};

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    pub name: String,
    /// The cohort that it shares with other queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cohort: Option<String>,
    /// The Cohort that its quota stands in, where its annotation `fedq.dev/quota-into: cohort` asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_cohort: Option<String>,
    /// Why fedq leaves the queue alone, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untouched: Option<String>,
    /// Where somebody keeps changing what fedq writes into it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<QueueConflict>,
    /// What keeps it from working on clusters, besides quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<QueueProblem>,
    pub cells: Vec<Cell>,
}

/// Somebody writes the same fields of a queue as fedq.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct QueueConflict {
    /// Absent where it is the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Who, by the names of their field managers.
    pub message: String,
    /// What ends it. For Argo CD and Flux documents of YAML, each for the configuration that its comment names.
    pub next: String,
}

/// What keeps a queue from working on one cluster.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct QueueProblem {
    pub cluster: String,
    pub reason: String,
    pub message: String,
}

/// One (queue, flavor, resource).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    pub queue: String,
    pub flavor: String,
    pub resource: String,
    /// What the hub's queue says now.
    pub nominal: Quantity,
    /// What it held before fedq: kept.
    pub base: Quantity,
    /// What fedq is bringing it to.
    pub target: Quantity,
    pub terms: Vec<Term>,
}

/// What one cluster contributes to a cell.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Term {
    pub cluster: String,
    pub requested: Quantity,
    pub effective: Quantity,
    /// What the worker's queue says now; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<Quantity>,
    pub reserved: Quantity,
    /// What the hub counts of it.
    pub term: Quantity,
    pub reason: String,
}

/// A queue's quota with the plans that made it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct QueueExplanation {
    pub queue: Queue,
    /// Newest first.
    pub plans: Vec<Plan>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    pub at: Time,
    pub cluster: String,
    /// In words: whose edit or which change of capacity.
    pub cause: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    pub report: PlanReport,
}

/// Which plans.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
pub struct PlansQuery {
    /// How many plans are looked at for a page at most; 0 leaves it to the server.
    #[serde(default)]
    pub limit: u32,
    /// `continue` of the page before.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Only of this cluster, also if it has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Only what concerns this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
}

/// What a plan gave each queue of its cluster.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct PlanReport {
    pub cells: Vec<PlannedCell>,
}

/// What a plan gave one (queue, flavor, resource) of its cluster.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedCell {
    pub queue: String,
    pub flavor: String,
    pub resource: String,
    /// What the claim asked for.
    pub requested: Quantity,
    /// What the queue was to get.
    pub effective: Quantity,
    /// What of it had to wait until workloads let it go.
    pub draining: Quantity,
    /// What the hub was to count of it.
    pub term: Quantity,
    /// `Assigned`, or what kept it from what was asked for.
    pub reason: String,
}

/// Changes what a cell holds besides what clusters contribute.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetBase {
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 253
    )]
    pub flavor: String,
    #[schema(
        pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$",
        max_length = 317
    )]
    pub resource: String,
    pub base: Quantity,
}
