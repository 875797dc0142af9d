//! Kueue's `v1beta2` kinds, with the fields fedq reads; fields it only copies stay raw JSON.

use std::collections::BTreeMap;

use k8s_openapi::schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::meta::{Meta, QuantityText};

pub const GROUP: &str = "kueue.x-k8s.io";
pub const VERSION: &str = "v1beta2";

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ClusterQueue {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: ClusterQueueSpec,
    #[serde(default)]
    pub status: ClusterQueueStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueSpec {
    #[serde(default)]
    pub resource_groups: Vec<ResourceGroup>,
    #[serde(default)]
    pub cohort_name: Option<String>,
    #[serde(default)]
    pub stop_policy: Option<String>,
    #[serde(default)]
    pub namespace_selector: Option<LabelSelector>,
    #[serde(default)]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// Queueing strategy, preemption, fungibility, fair sharing and whatever a newer Kueue adds.
    #[serde(flatten)]
    pub policy: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceGroup {
    #[serde(default)]
    pub covered_resources: Vec<String>,
    #[serde(default)]
    pub flavors: Vec<FlavorQuotas>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FlavorQuotas {
    pub name: String,
    #[serde(default)]
    pub resources: Vec<ResourceQuota>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    pub name: String,
    #[serde(default)]
    pub nominal_quota: QuantityText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<QuantityText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<QuantityText>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    #[serde(default)]
    pub admission_checks: Vec<AdmissionCheckRule>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckRule {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_flavors: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LabelRequirement {
    pub key: String,
    pub operator: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub flavors_reservation: Vec<FlavorUsage>,
    #[serde(default)]
    pub pending_workloads: i64,
    #[serde(default)]
    pub reserving_workloads: i64,
    #[serde(default)]
    pub admitted_workloads: i64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub observed_generation: i64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct FlavorUsage {
    pub name: String,
    #[serde(default)]
    pub resources: Vec<ResourceUsage>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ResourceUsage {
    pub name: String,
    #[serde(default)]
    pub total: QuantityText,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LocalQueue {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: LocalQueueSpec,
    #[serde(default)]
    pub status: LocalQueueStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub pending_workloads: i64,
    /// Admitted ones among them.
    #[serde(default)]
    pub reserving_workloads: i64,
    #[serde(default)]
    pub admitted_workloads: i64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueSpec {
    #[serde(default)]
    pub cluster_queue: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ResourceFlavor {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: ResourceFlavorSpec,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFlavorSpec {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_taints: Vec<Taint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Taint {
    #[serde(default)]
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[serde(default)]
    pub effect: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub effect: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct WorkloadPriorityClass {
    pub metadata: Meta,
    pub value: i64,
    #[serde(default)]
    pub description: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cohort {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: CohortSpec,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    #[serde(default)]
    pub parent_name: Option<String>,
    #[serde(default)]
    pub resource_groups: Vec<ResourceGroup>,
    #[serde(default)]
    pub fair_sharing: Option<Value>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AdmissionCheck {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: AdmissionCheckSpec,
    #[serde(default)]
    pub status: AdmissionCheckStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AdmissionCheckStatus {
    /// As they came: one of them is replaced, and the list goes back as a whole.
    #[serde(default)]
    pub conditions: Vec<Value>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    #[serde(default)]
    pub controller_name: String,
    #[serde(default)]
    pub parameters: Option<Parameters>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameters {
    #[serde(default)]
    pub api_group: String,
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub name: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MultiKueueConfig {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: MultiKueueConfigSpec,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfigSpec {
    #[serde(default)]
    pub clusters: Vec<String>,
    #[serde(default)]
    pub quota_management: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct MultiKueueCluster {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: MultiKueueClusterSpec,
    #[serde(default)]
    pub status: MultiKueueClusterStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    #[serde(default)]
    pub cluster_source: ClusterSource,
}

/// One of the two.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileRef>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    pub location: String,
    #[serde(default)]
    pub location_type: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClusterProfileRef {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct MultiKueueClusterStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Workload {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: WorkloadSpec,
    #[serde(default)]
    pub status: WorkloadStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadSpec {
    #[serde(default)]
    pub queue_name: String,
    #[serde(default)]
    pub priority: i64,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    #[serde(default)]
    pub conditions: Vec<Condition>,
    #[serde(default)]
    pub admission: Option<Admission>,
    /// As they came: one of them is changed, and the list goes back as a whole.
    #[serde(default)]
    pub admission_checks: Vec<Value>,
    /// The MultiKueueCluster that runs it.
    #[serde(default)]
    pub cluster_name: Option<String>,
    #[serde(default)]
    pub nominated_cluster_names: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    #[serde(default)]
    pub cluster_queue: String,
    #[serde(default)]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    #[serde(default)]
    pub flavors: BTreeMap<String, String>,
    #[serde(default)]
    pub resource_usage: BTreeMap<String, QuantityText>,
}
