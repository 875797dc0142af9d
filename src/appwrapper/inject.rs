//! A component as it is created: its template with the labels of its AppWrapper, and with what Kueue wants in its pods.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value, json};

use fedq_wrapped::component::{PodSet, PodSetInfo};

use crate::{
    autopilot,
    config::AppWrapperConfig,
    names::APPWRAPPER_LABEL,
    path::{self, PathError},
};

/// All of them are final: nothing but another spec would help.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    #[error("the template is no object with a metadata")]
    NoObject,
    #[error("component namespace \"{found}\" is different from appwrapper namespace \"{expected}\"")]
    Namespace { found: String, expected: String },
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("content at {0} does not contain a spec")]
    NoSpec(String),
    #[error("conflict updating {what}: conflict for key={key}, value1={existing}, value2={wanted}")]
    Conflict { what: &'static str, key: String, existing: String, wanted: String },
}

/// The AppWrapper of a component.
#[derive(Clone, Debug)]
pub struct Owner {
    pub namespace: String,
    pub name: String,
    pub reference: OwnerReference,
}

/// The object to create, named `name`.
pub fn object(
    template: &Value,
    (pod_sets, infos): (&[PodSet], &[PodSetInfo]),
    (owner, name): (&Owner, &str),
    config: &AppWrapperConfig,
) -> Result<Value, InjectError> {
    let mut object = template.clone();
    let ours = BTreeMap::from([(APPWRAPPER_LABEL.to_owned(), owner.name.clone())]);
    let metadata = child(&mut object, "metadata")?;
    let elsewhere = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !elsewhere.is_empty() && elsewhere != owner.namespace {
        let (found, expected) = (elsewhere.to_owned(), owner.namespace.clone());
        return Err(InjectError::Namespace { found, expected });
    }
    metadata.insert("namespace".to_owned(), json!(owner.namespace));
    metadata.insert("name".to_owned(), json!(name));
    metadata.remove("generateName");
    metadata.insert("ownerReferences".to_owned(), json!([owner.reference]));
    merge(metadata, "labels", &ours)?;
    let nothing = PodSetInfo::default();
    for (index, pod_set) in pod_sets.iter().enumerate() {
        let info = infos.get(index).unwrap_or(&nothing);
        template_of(&mut object, &pod_set.path, info, &ours, config)?;
    }
    Ok(object)
}

fn template_of(
    object: &mut Value,
    path: &str,
    info: &PodSetInfo,
    ours: &BTreeMap<String, String>,
    config: &AppWrapperConfig,
) -> Result<(), InjectError> {
    let template = path::get_mut(object, path)?;
    let metadata = child(template, "metadata")?;
    merge(metadata, "annotations", &info.annotations)?;
    merge(metadata, "labels", &info.labels)?;
    merge(metadata, "labels", ours)?;
    let spec = template.get_mut("spec").and_then(Value::as_object_mut);
    let spec = spec.ok_or_else(|| InjectError::NoSpec(path.to_owned()))?;
    merge(spec, "nodeSelector", &info.node_selector)?;
    append(spec, "tolerations", info.tolerations.iter().map(|toleration| json!(toleration)));
    let gates = spec.get("schedulingGates").and_then(Value::as_array).cloned().unwrap_or_default();
    let new = info.scheduling_gates.iter().map(|gate| json!({"name": gate.name}));
    append(spec, "schedulingGates", new.filter(|gate| !gates.contains(gate)));
    let named = spec.get("schedulerName").and_then(Value::as_str).unwrap_or_default();
    if named.is_empty() && !config.scheduler_name.is_empty() {
        spec.insert("schedulerName".to_owned(), json!(config.scheduler_name));
    }
    if let Some(autopilot) = config.autopilot.as_ref().filter(|autopilot| autopilot.inject_anti_affinities) {
        autopilot::inject(spec, autopilot);
    }
    Ok(())
}

/// An object under a key, made if there is none.
fn child<'v>(value: &'v mut Value, key: &str) -> Result<&'v mut Map<String, Value>, InjectError> {
    let fields = value.as_object_mut().ok_or(InjectError::NoObject)?;
    let child = fields.entry(key).or_insert(Value::Null);
    if child.is_null() {
        *child = json!({});
    }
    child.as_object_mut().ok_or(InjectError::NoObject)
}

/// What is there stays; another value under the same key is a conflict.
fn merge(
    map: &mut Map<String, Value>,
    what: &'static str,
    wanted: &BTreeMap<String, String>,
) -> Result<(), InjectError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let existing = map.entry(what).or_insert(Value::Null);
    if !existing.is_object() {
        *existing = json!({});
    }
    let existing = existing.as_object_mut().ok_or(InjectError::NoObject)?;
    for (key, wanted) in wanted {
        match existing.get(key) {
            Some(value) if value != wanted => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let (key, wanted) = (key.clone(), wanted.clone());
                return Err(InjectError::Conflict { what, key, existing: text, wanted });
            }
            Some(_) => {}
            None => _ = existing.insert(key.clone(), json!(wanted)),
        }
    }
    Ok(())
}

fn append(map: &mut Map<String, Value>, key: &str, new: impl Iterator<Item = Value>) {
    let mut new = new.peekable();
    if new.peek().is_some()
        && let Some(list) = map.entry(key).or_insert_with(|| json!([])).as_array_mut()
    {
        list.extend(new);
    }
}
