//! OCM's kinds that decide placement (`cluster.open-cluster-management.io`). What may be missing has a
//! default, since what is wrong with a Placement is told by its conditions.

use jiff::Timestamp;
use k8s_openapi::schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod crds;
mod inventory;
mod lease;

pub use inventory::{
    AVAILABLE, AddOnPlacementScore, AddOnPlacementScoreStatus, ClientConfig, ClusterClaim, ClusterTaint,
    ManagedCluster, ManagedClusterSet, ManagedClusterSetSpec, ManagedClusterSpec, ManagedClusterStatus,
    ManagedClusterVersion, ScoreItem, SetSelector,
};
pub use lease::Lease;

use super::{kueue::LabelSelector, meta::Meta};

pub const GROUP: &str = "cluster.open-cluster-management.io";

/// `v1beta1`.
#[derive(Clone, Debug, Deserialize)]
pub struct Placement {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: PlacementSpec,
    #[serde(default)]
    pub status: PlacementStatus,
}

/// Which clusters to choose of the sets that are bound to the namespace.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    /// Only of these sets; all that are bound, if none is named.
    #[serde(default)]
    pub cluster_sets: Vec<String>,
    /// How many clusters; all that fit, if left out.
    #[serde(default)]
    pub number_of_clusters: Option<i32>,
    /// A cluster has to fulfil one of them.
    #[serde(default)]
    pub predicates: Vec<ClusterPredicate>,
    /// Which clusters are better.
    #[serde(default)]
    pub prioritizer_policy: PrioritizerPolicy,
    /// Evenly over the values of a label or claim; obeyed with the annotation `fedq.dev/spread: "true"`.
    #[serde(default)]
    pub spread_policy: SpreadPolicy,
    /// Taints of clusters that do not matter.
    #[serde(default)]
    pub tolerations: Vec<Toleration>,
    /// How the chosen clusters are divided.
    #[serde(default)]
    pub decision_strategy: DecisionStrategy,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPredicate {
    #[serde(default)]
    pub required_cluster_selector: ClusterSelector,
}

/// All of it has to hold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelector {
    #[serde(default)]
    pub label_selector: LabelSelector,
    #[serde(default)]
    pub claim_selector: LabelSelector,
    #[serde(default)]
    pub cel_selector: CelSelector,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CelSelector {
    /// Expressions over `managedCluster`, all of which have to be true.
    #[serde(default)]
    pub cel_expressions: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
pub struct PrioritizerPolicy {
    /// `Additive`: Balance and Steady count, too. `Exact`: only what is listed.
    #[serde(default)]
    #[schemars(extend("x-default" = "Additive"))]
    pub mode: String,
    #[serde(default)]
    pub configurations: Vec<PrioritizerConfig>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["scoreCoordinate"]))]
pub struct PrioritizerConfig {
    #[serde(default)]
    pub score_coordinate: Option<ScoreCoordinate>,
    #[serde(default)]
    #[schemars(range(min = -10, max = 10), extend("x-default" = 1))]
    pub weight: i32,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScoreCoordinate {
    #[serde(default, rename = "type")]
    #[schemars(schema_with = "crds::coordinate_type")]
    pub type_: String,
    /// `Balance`, `Steady`, `ResourceAllocatableCPU` or `ResourceAllocatableMemory`.
    #[serde(default)]
    pub built_in: String,
    #[serde(default)]
    pub add_on: Option<AddOnScore>,
}

/// A score of the AddOnPlacementScore of that name in each cluster's namespace.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnScore {
    pub resource_name: String,
    pub score_name: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SpreadPolicy {
    #[serde(default)]
    #[schemars(length(max = 8))]
    pub spread_constraints: Vec<SpreadConstraint>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["topologyKey", "topologyKeyType"]))]
pub struct SpreadConstraint {
    #[schemars(schema_with = "crds::label_key")]
    pub topology_key: String,
    #[serde(default)]
    #[schemars(schema_with = "crds::topology_key_type")]
    pub topology_key_type: String,
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-default" = 1))]
    pub max_skew: i32,
    #[serde(default)]
    #[schemars(schema_with = "crds::when_unsatisfiable")]
    pub when_unsatisfiable: String,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    #[serde(default)]
    #[schemars(schema_with = "crds::label_key")]
    pub key: String,
    /// `Equal` or `Exists`.
    #[serde(default)]
    #[schemars(extend("x-default" = "Equal"))]
    pub operator: String,
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub value: String,
    #[serde(default)]
    #[schemars(schema_with = "crds::taint_effect")]
    pub effect: String,
    /// For how long, since the taint was added; for ever, if left out.
    #[serde(default)]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStrategy {
    #[serde(default)]
    pub group_strategy: GroupStrategy,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupStrategy {
    /// Each cluster is in the first group that takes it; the rest is divided by number.
    #[serde(default)]
    pub decision_groups: Vec<DecisionGroup>,
    /// A number, or a percentage of the chosen clusters.
    #[serde(default)]
    #[schemars(schema_with = "crds::group_size")]
    pub clusters_per_decision_group: IntOrText,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["groupName", "groupClusterSelector"]))]
pub struct DecisionGroup {
    #[serde(default)]
    #[schemars(regex(pattern = r"^[a-zA-Z0-9][-A-Za-z0-9_.]{0,61}[a-zA-Z0-9]$"))]
    pub group_name: String,
    #[serde(default)]
    pub group_cluster_selector: GroupSelector,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
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

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub number_of_selected_clusters: usize,
    #[serde(default)]
    pub decision_groups: Vec<DecisionGroupStatus>,
    #[serde(default)]
    #[schemars(schema_with = "crds::conditions")]
    pub conditions: Vec<StatusCondition>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionGroupStatus {
    #[schemars(extend("format" = "int32"))]
    pub decision_group_index: usize,
    #[serde(default)]
    pub decision_group_name: String,
    /// Names of the PlacementDecisions.
    #[serde(default)]
    pub decisions: Vec<String>,
    #[serde(default)]
    #[schemars(extend("format" = "int32"))]
    pub cluster_count: usize,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["type", "status", "reason", "message", "lastTransitionTime"]))]
pub struct StatusCondition {
    #[serde(rename = "type")]
    #[schemars(schema_with = "crds::label_key")]
    pub type_: String,
    #[schemars(schema_with = "crds::condition_status")]
    pub status: String,
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024))]
    pub reason: String,
    #[serde(default)]
    #[schemars(length(max = 32768))]
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crds::time")]
    pub last_transition_time: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
}

/// `v1beta1`. A part of what a Placement chose.
#[derive(Clone, Debug, Deserialize)]
pub struct PlacementDecision {
    pub metadata: Meta,
    #[serde(default)]
    pub status: PlacementDecisionStatus,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[schemars(extend("required" = ["decisions"]))]
pub struct PlacementDecisionStatus {
    #[serde(default)]
    pub decisions: Vec<ClusterDecision>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["clusterName", "reason"]))]
pub struct ClusterDecision {
    pub cluster_name: String,
    #[serde(default)]
    pub reason: String,
}
