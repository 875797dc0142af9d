//! `AppWrapper` of `workload.codeflare.dev/v1beta2`, field for field as upstream defines it and Kueue reads it.

#![expect(clippy::duplicated_attributes, reason = "each printcolumn has a type_ of its own")]

use fedq_wrapped::{
    component::{Component, PodSet},
    pod_sets::{InferError, infer},
    validate::{FieldError, template_field},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::Condition,
    schemars::{JsonSchema, Schema, SchemaGenerator, json_schema},
};
use kube::{CustomResource, CustomResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::template::Template;

/// What is wrapped, and whether it may run.
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "workload.codeflare.dev",
    version = "v1beta2",
    kind = "AppWrapper",
    plural = "appwrappers",
    singular = "appwrapper",
    shortname = "aw",
    namespaced,
    status = "AppWrapperStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Several objects that are queued, admitted and run as one.",
    printcolumn(name = "Status", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Quota Reserved",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="QuotaReserved")].status"#
    ),
    printcolumn(
        name = "Resources Deployed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="ResourcesDeployed")].status"#
    ),
    printcolumn(
        name = "Unhealthy",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Unhealthy")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperSpec {
    /// The wrapped objects, in the order in which they are created.
    pub components: Vec<Component<Template>>,
    /// Keeps the objects from being there. Kueue takes it away when it has quota.
    #[serde(default, skip_serializing_if = "is_false")]
    pub suspend: bool,
    /// The controller that acts on this AppWrapper; others leave it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
}

impl AppWrapperSpec {
    /// The components with their objects, to look into them.
    pub fn read(&self) -> Result<Vec<Component>, FieldError> {
        let read = |(index, component): (usize, &Component<Template>)| match component.template.read() {
            Ok(template) => Ok(component.clone().with_template(template)),
            Err(error) => Err(FieldError::invalid(template_field(index), &"...", error.to_string())),
        };
        self.components.iter().enumerate().map(read).collect()
    }
}

/// What became of the wrapped objects.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppWrapperStatus {
    /// Where the AppWrapper is in its life.
    #[schemars(with = "String")]
    #[serde(default, skip_serializing_if = "Phase::is_empty")]
    pub phase: Phase,
    /// How often everything was deleted and made again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resetting_count: i32,
    /// QuotaReserved, ResourcesDeployed, PodsReady, Unhealthy and DeletingResources.
    #[schemars(schema_with = "conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// One for each of `spec.components`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub component_status: Vec<ComponentStatus>,
}

/// What became of one wrapped object.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentStatus {
    /// The object's name.
    pub name: String,
    /// The object's kind.
    pub kind: String,
    /// The object's group and version.
    pub api_version: String,
    /// Its pod sets, declared or found. Kueue reads them here.
    pub pod_sets: Vec<PodSet>,
    /// ResourcesDeployed: whether the object was made.
    #[schemars(schema_with = "conditions")]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub enum Phase {
    #[default]
    #[serde(rename = "")]
    Empty,
    Suspended,
    Resuming,
    Running,
    Resetting,
    Suspending,
    Succeeded,
    Failed,
    Terminating,
    /// Of a version to come: left alone.
    #[serde(other)]
    Unknown,
}

impl Phase {
    pub fn is_empty(&self) -> bool {
        *self == Self::Empty
    }

    /// As in `status.phase`, and as the reason of conditions.
    pub fn word(self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Suspended => "Suspended",
            Self::Resuming => "Resuming",
            Self::Running => "Running",
            Self::Resetting => "Resetting",
            Self::Suspending => "Suspending",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
            Self::Unknown => "Unknown",
        }
    }
}

/// The status of every component before anything is made. Whoever changes the spec later does not change it.
pub fn component_status(components: &[Component]) -> Result<Vec<ComponentStatus>, InferError> {
    let status = |component: &Component| {
        let declared = &component.pod_sets;
        let pod_sets = if declared.is_empty() { infer(&component.template)? } else { declared.clone() };
        Ok(ComponentStatus { pod_sets, ..ComponentStatus::default() })
    };
    components.iter().map(status).collect()
}

/// The definition of the kind, as `deploy/appwrapper/crd.yaml` has it.
pub fn crd() -> Value {
    let mut crd = serde_json::to_value(AppWrapper::crd()).unwrap_or_default();
    let schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].as_object_mut();
    if let Some(schema) = schema {
        as_upstream(schema);
        // Upstream's is satisfied without a spec.
        schema.remove("required");
        schema.remove("title");
    }
    crd
}

/// What Rust says of fields that may be absent is more than upstream's schema says of them.
fn as_upstream(schema: &mut Map<String, Value>) {
    for key in ["nullable", "default"] {
        schema.remove(key);
    }
    for (key, value) in schema.iter_mut() {
        match value {
            Value::Object(fields) if key == "properties" => {
                fields.values_mut().filter_map(Value::as_object_mut).for_each(as_upstream);
            }
            Value::Object(inner) => as_upstream(inner),
            _ => {}
        }
    }
}

/// With the bounds that Kubernetes has for conditions.
fn conditions(_: &mut SchemaGenerator) -> Schema {
    let name = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
    let domain = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "type": {"type": "string", "maxLength": 316, "pattern": format!("^({domain}/)?({name})$")},
            },
        },
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(value: &i32) -> bool {
    *value == 0
}
