//! One object of an AppWrapper, with where its pods are and what Kueue puts into them; field for field as upstream has it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::Toleration,
    schemars::{JsonSchema, Schema, SchemaGenerator, json_schema},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

// What is said in three slashes is in the definition that users read. `Template` is how the object is kept: as a tree of JSON where
// it is looked into, as text where it only lies.
/// One wrapped object.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component<Template = Value> {
    /// Notes of the user's; the controller does not read them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Where the object has pods, and how many. Found by itself for kinds that are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSet>,
    /// What Kueue wants in the pods of each pod set once it has admitted them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_set_infos: Vec<PodSetInfo>,
    /// The object.
    #[schemars(schema_with = "embedded_object")]
    pub template: Template,
}

impl<Template> Component<Template> {
    /// The same with its object in another form.
    pub fn with_template<Other>(self, template: Other) -> Component<Other> {
        let Self { annotations, pod_sets, pod_set_infos, template: _ } = self;
        Component { annotations, pod_sets, pod_set_infos, template }
    }
}

/// Pods that are alike.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// How many pods; 1 if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The way to their template, such as `template.spec.template`.
    pub path: String,
    /// How Kueue's topology aware scheduling orders them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl PodSet {
    pub fn replicas(&self) -> i32 {
        self.replicas.unwrap_or(1)
    }
}

/// What Kueue adds to the pods of one pod set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetInfo {
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Node labels to require.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations to add.
    #[schemars(schema_with = "tolerations")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Scheduling gates to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scheduling_gates: Vec<SchedulingGate>,
}

/// What holds a pod back from being scheduled.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SchedulingGate {
    /// Its name, once a pod.
    pub name: String,
}

fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn tolerations(_: &mut SchemaGenerator) -> Schema {
    let text = json!({"type": "string"});
    json_schema!({"type": "array", "items": {"type": "object", "properties": {
        "effect": text, "key": text, "operator": text, "value": text,
        "tolerationSeconds": {"type": "integer", "format": "int64"},
    }}})
}
