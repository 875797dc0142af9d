//! Placements: which clusters they chose, and why.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::time::Time;

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    pub namespace: String,
    pub name: String,
    /// `fedq`, `ocm` (OCM's own controller) or `others`.
    pub decided_by: String,
    /// The clusters of its decisions, in their order.
    pub clusters: Vec<String>,
    /// Its status, as it stands on the hub.
    pub conditions: Vec<PlacementCondition>,
    pub groups: Vec<PlacementGroup>,
    /// What could not be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementCondition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: bool,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementGroup {
    pub index: usize,
    pub name: String,
    pub clusters: usize,
    /// Names of its PlacementDecisions.
    pub decisions: Vec<String>,
}

/// What a Placement would choose now, and what became of each cluster.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementExplanation {
    pub namespace: String,
    pub name: String,
    /// As of the Placement; `nobody` of one that is simulated.
    pub decided_by: String,
    /// The chosen, best first.
    pub chosen: Vec<String>,
    /// What its decisions hold now.
    pub decided: Vec<String>,
    pub conditions: Vec<PlacementCondition>,
    /// Not an error, but worth knowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    pub prioritizers: Vec<PlacementPrioritizer>,
    /// Every cluster of the hub, the chosen first.
    pub clusters: Vec<PlacementCluster>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementPrioritizer {
    pub name: String,
    pub weight: i32,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementCluster {
    pub cluster: String,
    /// `Chosen`, `NotAmongTheBest`, `Filtered`, `NotInSets`, `BeingDeleted` or `NotReached`.
    pub outcome: String,
    /// The outcome in words.
    pub message: String,
    /// Of the chosen: the place, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Of the chosen: the index of the decision group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// By prioritizer, in their order; null where there is nothing to score. Empty: not scored.
    pub scores: Vec<Option<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<i64>,
}
