//! `ClusterResourceClaim`: the one kind fedq defines. It says which ClusterQueue gets what of a cluster.
//!
//! The schema bounds every string, list and map: without bounds the API server refuses the rules on
//! quantities as too costly to evaluate. What needs more than one field at a time (sums, aliases,
//! names) is judged by `domain::claim` only.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has a type_ of its own")]

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{Condition, Time},
    },
    schemars::{JsonSchema, Schema, SchemaGenerator, json_schema},
};
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use serde::{Deserialize, Serialize};

use fedq_domain::claim::{AssignmentText, ClaimText, owners::owners};

/// Where the API server posts reviews of claims; the ValidatingWebhookConfiguration names it.
pub const REVIEW_PATH: &str = "/validate/clusterresourceclaims";

/// What a cluster offers, and what each ClusterQueue is given of it.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "galaxy.kubestellar.io",
    version = "v1alpha1",
    kind = "ClusterResourceClaim",
    plural = "clusterresourceclaims",
    singular = "clusterresourceclaim",
    shortname = "crc",
    category = "fedq",
    status = "ClusterResourceClaimStatus",
    derive = "PartialEq",
    doc = "Says which ClusterQueue gets what of one joined cluster. fedq writes the quotas that follow from it.",
    selectable = ".spec.clusterName",
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.clusterName"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Short",
        type_ = "string",
        json_path = ".status.short",
        description = "what the assignments ask for beyond what the cluster has"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        priority = 1,
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(
        name = "CPU",
        type_ = "string",
        priority = 1,
        json_path = ".status.capacity.cpu",
        description = "usable cpu found in the cluster"
    ),
    printcolumn(
        name = "Memory",
        type_ = "string",
        priority = 1,
        json_path = ".status.capacity.memory",
        description = "usable memory found in the cluster"
    ),
    printcolumn(
        name = "GPU",
        type_ = "string",
        priority = 1,
        json_path = ".status.capacity.gpu",
        description = "usable GPUs found in the cluster"
    ),
    printcolumn(name = "Observed", type_ = "date", priority = 1, json_path = ".status.lastObservedTime")
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourceClaimSpec {
    /// The joined cluster whose resources are claimed. It cannot be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterName is immutable: delete the claim and create one for the other cluster").reason(Reason::FieldValueForbidden))]
    pub cluster_name: String,
    /// What may be assigned, by resource. fedq keeps it equal to the capacity it finds; a value set
    /// by anyone else is a cap that fedq leaves alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    #[x_kube(merge_strategy = MapMerge::Granular, validation = Rule::new("self.all(k, sign(quantity(string(self[k]))) >= 0)").message("every quantity must be 0 or more"))]
    pub nominal_resources: BTreeMap<String, QuantityText>,
    /// What each ClusterQueue gets of this cluster, by ResourceFlavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["clusterQueueName".into(), "flavor".into()]))]
    pub resource_assignments: Vec<ResourceAssignment>,
}

#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAssignment {
    /// The ClusterQueue on the hub, and under the same name on the cluster.
    #[schemars(length(min = 1, max = 253))]
    pub cluster_queue_name: String,
    /// The ResourceFlavor whose nodes the resources are on.
    #[schemars(length(min = 1, max = 253))]
    pub flavor: String,
    #[schemars(extend("maxProperties" = 16))]
    #[x_kube(validation = Rule::new("self.all(k, sign(quantity(string(self[k]))) >= 0)").message("every quantity must be 0 or more"))]
    pub resources: BTreeMap<String, QuantityText>,
}

#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterResourceClaimStatus {
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Allocatable resources of the cluster's usable nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, QuantityText>,
    /// Quota in the cluster that fedq did not give and does not count on.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub foreign: BTreeMap<String, QuantityText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub flavors: Vec<FlavorStatus>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["clusterQueueName".into(), "flavor".into()]))]
    pub assignments: Vec<AssignmentStatus>,
    /// What the assignments ask for beyond what can be given, in words: `gpu 2, memory 10Gi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<String>,
    /// When the cluster last confirmed its capacity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}

/// What the nodes of one flavor have, and how much of it is assigned.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlavorStatus {
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, QuantityText>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub assigned: BTreeMap<String, QuantityText>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unassigned: BTreeMap<String, QuantityText>,
}

/// What became of one assignment.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignmentStatus {
    pub cluster_queue_name: String,
    pub flavor: String,
    /// What the claim asks for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: BTreeMap<String, QuantityText>,
    /// What the queue gets now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub effective: BTreeMap<String, QuantityText>,
    /// Why effective differs from requested, or `Assigned`: what weighs most of its resources.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The same of single resources, where it is another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
}

/// A Kubernetes quantity as it was written: the text decides whose edit it is, so it is never
/// rewritten on the way through.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct QuantityText(pub Quantity);

impl From<String> for QuantityText {
    fn from(text: String) -> Self {
        Self(Quantity(text))
    }
}

impl JsonSchema for QuantityText {
    fn schema_name() -> Cow<'static, str> {
        "QuantityText".into()
    }

    /// k8s-openapi's own schema is a plain string, which refuses the `gpu: 10` that people write.
    /// A sign is let through here so that the rule on quantities can say what is wrong with it.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 32,
            "pattern": r"^[+-]?[0-9]{1,19}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
        })
    }
}

impl From<&ClusterResourceClaim> for ClaimText {
    fn from(claim: &ClusterResourceClaim) -> Self {
        let texts = |map: &BTreeMap<String, QuantityText>| -> BTreeMap<String, String> {
            map.iter().map(|(key, quantity)| (key.clone(), quantity.0.0.clone())).collect()
        };
        let assignments = claim.spec.resource_assignments.iter().map(|assignment| AssignmentText {
            queue: assignment.cluster_queue_name.clone(),
            flavor: assignment.flavor.clone(),
            resources: texts(&assignment.resources),
        });
        let managers = claim.metadata.managed_fields.iter().flatten().filter_map(|entry| {
            Some((entry.manager.as_deref().unwrap_or_default(), &entry.fields_v1.as_ref()?.0))
        });
        Self {
            name: claim.metadata.name.clone().unwrap_or_default(),
            cluster: claim.spec.cluster_name.clone(),
            nominal: texts(&claim.spec.nominal_resources),
            assignments: assignments.collect(),
            owners: owners(managers),
        }
    }
}

/// The manifest under `deploy/crds`, as `fedqd --print-crds` prints it.
pub fn crds_yaml() -> String {
    let yaml = serde_saphyr::to_string(&ClusterResourceClaim::crd());
    yaml.expect("a CRD built from types is plain data, which always has a YAML form")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::{
        claim::{Owner, validate},
        resources::Aliases,
    };

    #[test]
    fn a_claim_is_read_with_numbers_and_texts_and_with_its_owners() {
        let claim: ClusterResourceClaim = serde_saphyr::from_str(
            "
            apiVersion: galaxy.kubestellar.io/v1alpha1
            kind: ClusterResourceClaim
            metadata:
              name: cluster2-resource-claim
              managedFields:
              - {manager: fedq-capacity, operation: Apply, fieldsType: FieldsV1, apiVersion: v1,
                 fieldsV1: {'f:spec': {'f:nominalResources': {'f:cpu': {}}}}}
            spec:
              clusterName: cluster2
              nominalResources: {cpu: '1000', gpu: 10}
              resourceAssignments:
              - {clusterQueueName: high, flavor: on-demand, resources: {gpu: 5}}
            ",
        )
        .expect("a claim");
        let claim = validate(&ClaimText::from(&claim), &Aliases::default()).expect("a valid claim");
        let owners: Vec<_> = claim.nominal().values().map(|n| (n.key.as_str(), n.owner)).collect();
        assert_eq!(owners, [("cpu", Owner::Followed), ("gpu", Owner::Cap)]);
        assert_eq!(claim.assignments().len(), 1);
    }
}
