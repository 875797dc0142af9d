//! OCM's kinds that decide placement (`cluster.open-cluster-management.io`), with the fields that count.
//! What may be missing has a default, since what is wrong with a Placement is told by its conditions.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    kueue::LabelSelector,
    meta::{Meta, QuantityText},
};

pub const GROUP: &str = "cluster.open-cluster-management.io";

#[derive(Clone, Debug, Deserialize)]
pub struct Placement {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: PlacementSpec,
    #[serde(default)]
    pub status: PlacementStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    #[serde(default)]
    pub cluster_sets: Vec<String>,
    #[serde(default)]
    pub number_of_clusters: Option<i32>,
    #[serde(default)]
    pub predicates: Vec<ClusterPredicate>,
    #[serde(default)]
    pub prioritizer_policy: PrioritizerPolicy,
    #[serde(default)]
    pub spread_policy: SpreadPolicy,
    #[serde(default)]
    pub tolerations: Vec<Toleration>,
    #[serde(default)]
    pub decision_strategy: DecisionStrategy,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPredicate {
    #[serde(default)]
    pub required_cluster_selector: ClusterSelector,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelector {
    #[serde(default)]
    pub label_selector: LabelSelector,
    #[serde(default)]
    pub claim_selector: LabelSelector,
    #[serde(default)]
    pub cel_selector: CelSelector,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CelSelector {
    #[serde(default)]
    pub cel_expressions: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct PrioritizerPolicy {
    #[serde(default)]
    pub mode: String,
    #[serde(default)]
    pub configurations: Vec<PrioritizerConfig>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PrioritizerConfig {
    #[serde(default)]
    pub score_coordinate: Option<ScoreCoordinate>,
    #[serde(default)]
    pub weight: i32,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScoreCoordinate {
    #[serde(default, rename = "type")]
    pub type_: String,
    #[serde(default)]
    pub built_in: String,
    #[serde(default)]
    pub add_on: Option<AddOnScore>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnScore {
    pub resource_name: String,
    pub score_name: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SpreadPolicy {
    #[serde(default)]
    pub spread_constraints: Vec<SpreadConstraint>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint {
    pub topology_key: String,
    #[serde(default)]
    pub topology_key_type: String,
    #[serde(default)]
    pub max_skew: i32,
    #[serde(default)]
    pub when_unsatisfiable: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    #[serde(default)]
    pub key: String,
    #[serde(default)]
    pub operator: String,
    #[serde(default)]
    pub value: String,
    #[serde(default)]
    pub effect: String,
    #[serde(default)]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStrategy {
    #[serde(default)]
    pub group_strategy: GroupStrategy,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupStrategy {
    #[serde(default)]
    pub decision_groups: Vec<DecisionGroup>,
    #[serde(default)]
    pub clusters_per_decision_group: IntOrText,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionGroup {
    #[serde(default)]
    pub group_name: String,
    #[serde(default)]
    pub group_cluster_selector: GroupSelector,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupSelector {
    #[serde(default)]
    pub label_selector: LabelSelector,
    #[serde(default)]
    pub claim_selector: LabelSelector,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum IntOrText {
    Int(i64),
    Text(String),
}

impl Default for IntOrText {
    fn default() -> Self {
        Self::Int(0)
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    #[serde(default)]
    pub number_of_selected_clusters: usize,
    #[serde(default)]
    pub decision_groups: Vec<DecisionGroupStatus>,
    #[serde(default)]
    pub conditions: Vec<StatusCondition>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionGroupStatus {
    pub decision_group_index: usize,
    #[serde(default)]
    pub decision_group_name: String,
    #[serde(default)]
    pub decisions: Vec<String>,
    #[serde(default)]
    pub cluster_count: usize,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct PlacementDecision {
    pub metadata: Meta,
    #[serde(default)]
    pub status: PlacementDecisionStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct PlacementDecisionStatus {
    #[serde(default)]
    pub decisions: Vec<ClusterDecision>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDecision {
    pub cluster_name: String,
    #[serde(default)]
    pub reason: String,
}

/// `v1`. Expressions of Placements see the whole object, so it is kept as it came, too.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub struct ManagedCluster {
    pub metadata: Meta,
    pub spec: ManagedClusterSpec,
    pub status: ManagedClusterStatus,
    pub object: Value,
}

#[derive(Deserialize)]
struct ManagedClusterParts {
    metadata: Meta,
    #[serde(default)]
    spec: ManagedClusterSpec,
    #[serde(default)]
    status: ManagedClusterStatus,
}

impl TryFrom<Value> for ManagedCluster {
    type Error = serde_json::Error;

    fn try_from(object: Value) -> Result<Self, serde_json::Error> {
        let ManagedClusterParts { metadata, spec, status } = ManagedClusterParts::deserialize(&object)?;
        Ok(Self { metadata, spec, status, object })
    }
}

impl ManagedCluster {
    /// Since when, and why, OCM calls the cluster unavailable.
    pub fn unavailable(&self) -> Option<(Option<Timestamp>, &str)> {
        let available = |condition: &&StatusCondition| condition.type_ == "ManagedClusterConditionAvailable";
        let condition = self.status.conditions.iter().find(available)?;
        (condition.status != "True").then_some((condition.last_transition_time, condition.message.as_str()))
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSpec {
    #[serde(default)]
    pub taints: Vec<ClusterTaint>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTaint {
    pub key: String,
    #[serde(default)]
    pub value: String,
    #[serde(default)]
    pub effect: String,
    #[serde(default)]
    pub time_added: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterStatus {
    #[serde(default)]
    pub capacity: BTreeMap<String, QuantityText>,
    #[serde(default)]
    pub allocatable: BTreeMap<String, QuantityText>,
    #[serde(default)]
    pub cluster_claims: Vec<ClusterClaim>,
    #[serde(default)]
    pub conditions: Vec<StatusCondition>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct ClusterClaim {
    pub name: String,
    #[serde(default)]
    pub value: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct ManagedClusterSet {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: ManagedClusterSetSpec,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSetSpec {
    #[serde(default)]
    pub cluster_selector: SetSelector,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SetSelector {
    #[serde(default)]
    pub selector_type: String,
    #[serde(default)]
    pub label_selector: Option<LabelSelector>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct AddOnPlacementScore {
    pub metadata: Meta,
    #[serde(default)]
    pub status: AddOnPlacementScoreStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnPlacementScoreStatus {
    #[serde(default)]
    pub scores: Vec<ScoreItem>,
    #[serde(default)]
    pub valid_until: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ScoreItem {
    pub name: String,
    pub value: i64,
}
