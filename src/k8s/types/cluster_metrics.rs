//! KubeStellar's `ClusterMetrics`: the nodes of a cluster the hub cannot reach, reported by an agent
//! (`galaxy.kubestellar.io/v1alpha1`, `clustermetrics/api/v1alpha1/clustermetrics_types.go`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    kueue::Taint,
    meta::{Meta, QuantityText},
};

/// What fedq needs of OCM's `ManagedCluster` (`cluster.open-cluster-management.io/v1`): whether the
/// cluster that a ClusterMetrics speaks for is there.
#[derive(Clone, Debug, Deserialize)]
pub struct ManagedCluster {
    pub metadata: Meta,
    #[serde(default)]
    pub status: ManagedClusterStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct ManagedClusterStatus {
    #[serde(default)]
    pub conditions: Vec<ManagedClusterCondition>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ManagedClusterCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub last_transition_time: Option<jiff::Timestamp>,
}

impl ManagedCluster {
    /// Since when, and why, OCM calls the cluster unavailable.
    pub fn unavailable(&self) -> Option<(Option<jiff::Timestamp>, &str)> {
        let available =
            |condition: &&ManagedClusterCondition| condition.type_ == "ManagedClusterConditionAvailable";
        let condition = self.status.conditions.iter().find(available)?;
        (condition.status != "True").then_some((condition.last_transition_time, condition.message.as_str()))
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct ClusterMetrics {
    pub metadata: Meta,
    #[serde(default)]
    pub status: ClusterMetricsStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct ClusterMetricsStatus {
    #[serde(default)]
    pub nodes: Vec<MetricsNode>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricsNode {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub allocatable_resources: BTreeMap<String, QuantityText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
}
