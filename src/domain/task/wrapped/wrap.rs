//! Plain manifests to one AppWrapper.

use fedq_wrapped::{component::Component, names::KIND, pod_sets};
use serde_json::{Map, Value, json};

use super::API_VERSION;
use crate::task::{
    sky::{Note, TaskFileError},
    yaml,
};

/// `files`: texts with what they are called in what is said of them. Each document is one component, a `List` as many as it
/// has items; where their pods are is written out.
pub fn wrap<'a>(
    name: Option<&str>,
    files: impl IntoIterator<Item = (&'a str, &'a [u8])>,
) -> Result<Value, TaskFileError> {
    let (mut objects, mut problems) = (Vec::new(), Vec::new());
    for (file, bytes) in files {
        for (number, document) in (1..).zip(yaml::read_yaml(bytes).map_err(TaskFileError::Yaml)?) {
            if document.is_null() {
                continue;
            }
            let place = format!("{file}, document {number}");
            spread(document.to_json(), place, &mut objects);
        }
    }
    if objects.is_empty() {
        return Err(TaskFileError::Empty);
    }
    let mut components = Vec::new();
    for (place, mut object) in objects {
        let mut problem = |message: String| problems.push(Note { place: None, path: place.clone(), message });
        let text = |key: &str| object[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let (Some(_), Some(kind)) = (text("apiVersion"), text("kind")) else {
            problem("is no manifest of an object: it has no apiVersion or no kind".to_owned());
            continue;
        };
        if kind == KIND {
            problem("is an AppWrapper already, which cannot be wrapped".to_owned());
            continue;
        }
        strip(&mut object);
        match pod_sets::infer(&object) {
            Ok(pod_sets) => components.push(Component { pod_sets, template: object, ..Component::default() }),
            Err(error) => problem(error.to_string()),
        }
    }
    let named = |component: &Component| component.template["metadata"]["name"].as_str().map(str::to_owned);
    if problems.is_empty() && components.iter().all(|component| component.pod_sets.is_empty()) {
        let message = "none of these is of a kind whose pods fedq can find: write the AppWrapper yourself, with podSets \
                       that say how many pods there are and where";
        problems.push(Note { place: None, path: String::new(), message: message.to_owned() });
    }
    if !problems.is_empty() {
        return Err(TaskFileError::Problems(problems));
    }
    let with_pods = components.iter().find(|component| !component.pod_sets.is_empty());
    let name = name.map(str::to_owned).or_else(|| with_pods.and_then(named));
    let metadata = name.map_or_else(|| json!({"generateName": "wrapped-"}), |name| json!({"name": name}));
    Ok(json!({
        "apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": {"components": components},
    }))
}

/// A `List` is what it lists.
fn spread(object: Value, place: String, objects: &mut Vec<(String, Value)>) {
    match object {
        Value::Object(mut list) if list.get("kind").is_some_and(|kind| kind == "List") => {
            let Some(Value::Array(items)) = list.remove("items") else { return };
            for (index, item) in items.into_iter().enumerate() {
                spread(item, format!("{place}, items[{index}]"), objects);
            }
        }
        object => objects.push((place, object)),
    }
}

/// Labels that the controller of Jobs gives a Job's pods, so that they are that Job's alone.
const JOBS_OWN: [&str; 4] =
    ["controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];

/// What a server has written into an object is not what to make it from.
fn strip(object: &mut Value) {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "Job" && object["spec"]["manualSelector"] != true {
        remove(object, "/spec", &["selector"]);
        remove(object, "/metadata/labels", &JOBS_OWN);
        remove(object, "/spec/template/metadata/labels", &JOBS_OWN);
    }
    if kind == "Service" && object["spec"]["clusterIP"] != "None" {
        remove(object, "/spec", &["clusterIP", "clusterIPs"]);
    }
    remove(object, "/metadata/annotations", &["kubectl.kubernetes.io/last-applied-configuration"]);
    let Some(fields) = object.as_object_mut() else { return };
    fields.remove("status");
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        for field in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "generation",
            "managedFields",
            "selfLink",
            "ownerReferences",
        ] {
            metadata.remove(field);
        }
    }
}

fn remove(object: &mut Value, at: &str, fields: &[&str]) {
    if let Some(Value::Object(there)) = object.pointer_mut(at) {
        for field in fields {
            there.remove(*field);
        }
    }
}
