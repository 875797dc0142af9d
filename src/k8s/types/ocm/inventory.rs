//! Clusters as OCM has them: what there is to choose from, in which sets, with which scores.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{StatusCondition, crds};
use crate::types::{
    kueue::LabelSelector,
    meta::{Meta, QuantityText},
};

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

pub const AVAILABLE: &str = "ManagedClusterConditionAvailable";

impl ManagedCluster {
    /// Since when, and why, OCM calls the cluster unavailable.
    pub fn unavailable(&self) -> Option<(Option<Timestamp>, &str)> {
        let condition = self.status.conditions.iter().find(|condition| condition.type_ == AVAILABLE)?;
        (condition.status != "True").then_some((condition.last_transition_time, condition.message.as_str()))
    }
}

/// A cluster that Placements may choose.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSpec {
    /// Whether the hub takes the cluster.
    #[serde(default)]
    pub hub_accepts_client: bool,
    /// After five times as long without a word of the cluster it counts as unreachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-default" = 60))]
    pub lease_duration_seconds: Option<i32>,
    /// How to reach the cluster's API server.
    #[serde(default)]
    pub managed_cluster_client_configs: Vec<ClientConfig>,
    /// What keeps Placements away that do not tolerate it.
    #[serde(default)]
    pub taints: Vec<ClusterTaint>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "byte"))]
    pub ca_bundle: Option<String>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["key", "effect"]))]
pub struct ClusterTaint {
    #[schemars(schema_with = "crds::label_key")]
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub value: String,
    #[serde(default)]
    #[schemars(schema_with = "crds::taint_effect")]
    pub effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crds::optional_time")]
    pub time_added: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterStatus {
    #[serde(default)]
    #[schemars(schema_with = "crds::conditions")]
    pub conditions: Vec<StatusCondition>,
    /// What all nodes have.
    #[serde(default)]
    pub capacity: BTreeMap<String, QuantityText>,
    /// What schedulable nodes offer.
    #[serde(default)]
    pub allocatable: BTreeMap<String, QuantityText>,
    #[serde(default)]
    pub version: ManagedClusterVersion,
    /// What the cluster says of itself.
    #[serde(default)]
    pub cluster_claims: Vec<ClusterClaim>,
    /// Kept by OCM's registration; fedq does not look at it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crds::managed_namespaces")]
    pub managed_namespaces: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ManagedClusterVersion {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kubernetes: String,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ClusterClaim {
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    #[serde(default)]
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
}

/// `v1beta2`.
#[derive(Clone, Debug, Deserialize)]
pub struct ManagedClusterSet {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: ManagedClusterSetSpec,
}

/// A set of clusters that can be bound to namespaces as a whole.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-default" = {"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel"}}))]
pub struct ManagedClusterSetSpec {
    #[serde(default)]
    pub cluster_selector: SetSelector,
    /// Kept for OCM; fedq does not look at it.
    #[serde(default)]
    #[schemars(schema_with = "crds::any_list")]
    pub managed_namespaces: Vec<Value>,
}

/// Which clusters are in the set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-default" = {"selectorType": "ExclusiveClusterSetLabel"}))]
pub struct SetSelector {
    /// By the label that puts a cluster into one set, or by any labels.
    #[serde(default)]
    #[schemars(schema_with = "crds::selector_type")]
    pub selector_type: String,
    #[serde(default)]
    pub label_selector: Option<LabelSelector>,
}

/// The status of kinds that have conditions only.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
pub struct ConditionsOnly {
    #[serde(default)]
    #[schemars(schema_with = "crds::conditions")]
    pub conditions: Vec<StatusCondition>,
}

/// Lets Placements of a namespace choose from a set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterSetBindingSpec {
    /// The set; the binding has the same name.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub cluster_set: String,
}

/// `v1alpha1`.
#[derive(Clone, Debug, Deserialize)]
pub struct AddOnPlacementScore {
    pub metadata: Meta,
    #[serde(default)]
    pub status: AddOnPlacementScoreStatus,
}

/// Scores of the cluster whose namespace this is in.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnPlacementScoreStatus {
    #[serde(default)]
    #[schemars(schema_with = "crds::conditions")]
    pub conditions: Vec<StatusCondition>,
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub scores: Vec<ScoreItem>,
    /// Later than this they do not count.
    #[serde(default)]
    #[schemars(schema_with = "crds::optional_time")]
    pub valid_until: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ScoreItem {
    pub name: String,
    #[schemars(range(min = -100, max = 100), extend("format" = "int32"))]
    pub value: i64,
}
