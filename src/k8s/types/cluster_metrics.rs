//! KubeStellar's `ClusterMetrics`: the nodes of a cluster the hub cannot reach, reported by an agent
//! (`galaxy.kubestellar.io/v1alpha1`, `clustermetrics/api/v1alpha1/clustermetrics_types.go`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    kueue::Taint,
    meta::{Meta, QuantityText},
};

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
