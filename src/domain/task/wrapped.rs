//! An AppWrapper as a task: several objects that are queued, run and taken away as one, instead of a script.
//!
//! It is kept as it was handed in, with what its pods ask for beside it: that is found once, when it is read (`read`), and
//! decides where it fits. Plain manifests are made one by `wrap`.

mod read;
mod requests;
mod wrap;

use std::collections::BTreeMap;

use fedq_wrapped::{component::Component, path};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::{
    read::{WrappedFile, read_manifest},
    wrap::wrap,
};
use super::render::NODE_LABEL;
use crate::resources::Resources;
use fedq_values::{ids::ResourceName, quantity::Amount};

pub const API_VERSION: &str = "workload.codeflare.dev/v1beta2";
/// On all pods of an AppWrapper: the number that the first of those that are alike has among all, and how many they are.
pub const FIRST_NODE_LABEL: &str = "fedq.dev/first-node";
pub const NODES_LABEL: &str = "fedq.dev/nodes";
/// Of a pod set with several Jobs: how many pods each of these has.
pub const NODES_OF_JOB_LABEL: &str = "fedq.dev/nodes-of-job";

/// What is wrapped.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wrapped {
    /// Of the AppWrapper itself, as handed in.
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub components: Vec<Component>,
    /// In the order in which Kueue counts them.
    pub pod_sets: Vec<WrappedPods>,
    /// The UID that the hub knows its owner by, if it knows one.
    pub user_id: Option<String>,
    /// Its one Job is made by itself where nothing runs AppWrappers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unwrap: bool,
}

/// Pods that are alike.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WrappedPods {
    /// Position of their component.
    pub component: usize,
    pub path: String,
    pub count: u32,
    /// Into how many Jobs they are parted.
    pub jobs: u32,
    /// What one of them asks for, in the units that quota is counted in.
    pub requests: BTreeMap<ResourceName, i64>,
    pub node_selector: BTreeMap<String, String>,
    /// In Kubernetes' JSON, checked.
    pub tolerations: Vec<Value>,
}

impl WrappedPods {
    pub fn per_pod(&self) -> Resources {
        self.requests.iter().map(|(resource, units)| (resource.clone(), Amount::new(*units))).collect()
    }

    /// By which its pods' numbers among all pods of the AppWrapper are known. `first`: the number of the first of them.
    fn number_labels(&self, first: u32) -> Vec<(&'static str, u32)> {
        let of_job = self.count.checked_div(self.jobs).unwrap_or(1);
        let mut labels = vec![(FIRST_NODE_LABEL, first), (NODES_LABEL, self.count)];
        labels.extend((self.count == 1).then_some((NODE_LABEL, first)));
        labels.extend((1 < self.jobs && 1 < of_job).then_some((NODES_OF_JOB_LABEL, of_job)));
        labels
    }
}

impl Wrapped {
    /// The Job that is all it wraps.
    pub fn only_job(&self) -> Option<&Component> {
        let [only] = &self.components[..] else { return None };
        let is = |field: &str, value: &str| only.template[field] == value;
        (is("apiVersion", "batch/v1") && is("kind", "Job")).then_some(only)
    }

    /// All pods that run at once.
    pub fn pods(&self) -> u32 {
        self.pod_sets.iter().fold(0, |sum, pods| sum.saturating_add(pods.count))
    }

    /// The components, with these labels on all their pods.
    pub fn labelled(&self, labels: &BTreeMap<String, String>) -> Vec<Component> {
        let mut components = self.components.clone();
        let mut first = 0;
        for pods in &self.pod_sets {
            let numbers = pods.number_labels(first);
            first = first.saturating_add(pods.count);
            // What was read leads somewhere: `read` has checked it.
            let Some(component) = components.get_mut(pods.component) else { continue };
            let Ok(template) = path::get_mut(&mut component.template, &pods.path) else { continue };
            let of_pods = child(child(template, "metadata"), "labels");
            let Some(of_pods) = of_pods.as_object_mut() else { continue };
            of_pods.extend(labels.iter().map(|(key, value)| (key.clone(), Value::from(value.clone()))));
            of_pods.extend(
                numbers.iter().map(|(key, value)| ((*key).to_owned(), Value::from(value.to_string()))),
            );
        }
        components
    }

    /// Every object that would be made: the components, and what is written out in full within them.
    pub fn objects(&self) -> Vec<WrappedObject> {
        let mut found = Vec::new();
        for (index, component) in self.components.iter().enumerate() {
            let field = format!("spec.components[{index}].template");
            collect(&component.template, (&field, true), &mut found);
        }
        found
    }

    /// Where labels stand by which fedq tells tasks' objects apart. An object with those of another task would pass for
    /// one of that task.
    pub fn marks(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (index, component) in self.components.iter().enumerate() {
            marks(&component.template, &format!("spec.components[{index}].template"), &mut found);
        }
        found
    }
}

/// An object that somebody must be allowed to create.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WrappedObject {
    /// Where it stands.
    pub field: String,
    pub api_version: String,
    pub kind: String,
    /// Where it says that it belongs.
    pub namespace: Option<String>,
}

fn marks(value: &Value, field: &str, found: &mut Vec<String>) {
    let labels = value.pointer("/metadata/labels").and_then(Value::as_object);
    let keys = labels.into_iter().flat_map(Map::keys).filter(|key| is_mark(key));
    found.extend(keys.map(|key| format!("{field}.metadata.labels[{key}]")));
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| marks(value, &format!("{field}.{key}"), found));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| marks(value, &format!("{field}[{index}]"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_mark(key: &str) -> bool {
    key.starts_with("fedq.dev/") || ["task-id", "skypilot-task", "node-idx", "username"].contains(&key)
}

/// A reference to an object has a kind too, but neither metadata nor what a Secret holds.
fn collect(value: &Value, (field, is_component): (&str, bool), found: &mut Vec<WrappedObject>) {
    let has = |key: &str| value.get(key).is_some_and(Value::is_object);
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    if let (Some(api_version), Some(kind)) = (text("apiVersion"), text("kind"))
        && (is_component || has("metadata") || has("data") || has("stringData"))
    {
        let namespace = value.pointer("/metadata/namespace").and_then(Value::as_str).map(str::to_owned);
        found.push(WrappedObject { field: field.to_owned(), api_version, kind, namespace });
    }
    match value {
        Value::Object(fields) => {
            let mut each = |key: &str, value| collect(value, (&format!("{field}.{key}"), false), found);
            fields.iter().for_each(|(key, value)| each(key, value));
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.for_each(|(index, value)| collect(value, (&format!("{field}[{index}]"), false), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The map there, made where there is none.
fn child<'v>(value: &'v mut Value, key: &str) -> &'v mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let child = &mut value[key];
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    child
}

#[cfg(test)]
mod tests;
