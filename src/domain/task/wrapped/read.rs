//! The manifest of an AppWrapper to a [`NewTask`]. What would be refused on a cluster is refused here, with its field.

use std::collections::BTreeMap;

use fedq_wrapped::{
    component::{Component, PodSet},
    names::{CONTROLLER, GROUP, KIND, QUEUE_LABEL, USER_ID_LABEL, USER_LABEL, tas},
    path, pod_sets,
    validate::{self, FieldError},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{API_VERSION, Wrapped, WrappedObject, WrappedPods, requests};
use crate::task::{
    render::PRIORITY_LABEL,
    sky::{Note, TaskFileError, is_reserved},
    spec::{Candidate, MAX_NODES, NewTask, Priority, Secrets, TaskSpec},
    yaml::{self, Node},
};

/// Of an object that was read from a cluster.
const OF_SERVER: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink"];

/// A manifest that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct WrappedFile {
    pub task: NewTask,
    pub warnings: Vec<Note>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    components: Vec<Component>,
    #[serde(default, rename = "suspend")]
    _suspend: bool,
    #[serde(default)]
    managed_by: Option<String>,
}

/// Of the namespace in which it is to run.
pub fn read_manifest(bytes: &[u8], namespace: &str) -> Result<WrappedFile, TaskFileError> {
    let documents = yaml::read_yaml(bytes).map_err(TaskFileError::Yaml)?;
    let documents: Vec<&Node> = documents.iter().filter(|document| !document.is_null()).collect();
    let document = match documents.as_slice() {
        [] => return Err(TaskFileError::Empty),
        [one] => one,
        more => {
            let message = format!(
                "the file has {} documents: it takes one AppWrapper; fedq appwrapper wrap makes one of several manifests",
                more.len()
            );
            return Err(TaskFileError::Problems(vec![note("", message)]));
        }
    };
    let mut notes = Notes::default();
    let read = notes.manifest(document.to_json(), namespace);
    match read {
        Some(task) if notes.problems.is_empty() => Ok(WrappedFile { task, warnings: notes.warnings }),
        _ => Err(TaskFileError::Problems(notes.problems)),
    }
}

fn note(field: &str, message: impl Into<String>) -> Note {
    Note { place: None, path: field.to_owned(), message: message.into() }
}

#[derive(Default)]
struct Notes {
    problems: Vec<Note>,
    warnings: Vec<Note>,
}

impl Notes {
    fn problem(&mut self, field: &str, message: impl Into<String>) {
        self.problems.push(note(field, message));
    }

    fn warn(&mut self, field: &str, message: impl Into<String>) {
        self.warnings.push(note(field, message));
    }

    fn manifest(&mut self, manifest: Value, namespace: &str) -> Option<NewTask> {
        let Value::Object(mut manifest) = manifest else {
            self.problem("", "an AppWrapper is a map with apiVersion, kind, metadata and spec");
            return None;
        };
        for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            let found = manifest.remove(field).unwrap_or_default();
            if found != expected {
                let found = if found.is_null() { String::new() } else { format!(", not {found}") };
                let message = format!(
                    "must be {expected}{found}; fedq appwrapper wrap makes an AppWrapper of other manifests"
                );
                self.problem(field, message);
            }
        }
        if !self.problems.is_empty() {
            return None;
        }
        let metadata = manifest.remove("metadata").unwrap_or_default();
        let spec = manifest.remove("spec").unwrap_or_default();
        manifest.remove("status");
        for field in manifest.keys() {
            self.problem(field, "an AppWrapper has no such field");
        }
        let metadata = self.metadata(metadata, namespace);
        let spec = self.spec(&spec)?;
        let mut wrapped =
            Wrapped { labels: metadata.labels, annotations: metadata.annotations, ..Wrapped::default() };
        wrapped.components = spec.components;
        self.components(&mut wrapped, namespace);
        let num_nodes = wrapped.pods();
        if self.problems.is_empty() && num_nodes == 0 {
            self.problem("spec.components", "has no pods: each pod set has 0 replicas");
        }
        if MAX_NODES < num_nodes {
            let message = format!("has {num_nodes} pods; at most {MAX_NODES} can be followed");
            self.problem("spec.components", message);
        }
        let spec = TaskSpec {
            name: metadata.name,
            num_nodes,
            queue: metadata.queue,
            priority: metadata.priority,
            wrapped: Some(wrapped),
            ..TaskSpec::empty()
        };
        Some(NewTask { spec, secrets: Secrets::default() })
    }

    fn spec(&mut self, spec: &Value) -> Option<Spec> {
        if !spec.is_object() {
            self.problem("spec", "must be a map with components");
            return None;
        }
        let mut unknown = Vec::new();
        let read: Result<Spec, _> =
            serde_ignored::deserialize(spec, |path| unknown.push(format!("spec.{path}")));
        for field in unknown {
            self.problem(&field, "an AppWrapper has no such field");
        }
        match read {
            Ok(spec) => {
                if spec.managed_by.as_deref().is_some_and(|by| by != CONTROLLER) {
                    self.warn("spec.managedBy", "has no effect: the cluster's own controller runs it");
                }
                Some(spec)
            }
            Err(error) => {
                self.problem("spec", error.to_string());
                None
            }
        }
    }

    /// Checks them, and finds their pods.
    fn components(&mut self, wrapped: &mut Wrapped, namespace: &str) {
        for (index, component) in wrapped.components.iter_mut().enumerate() {
            if !component.pod_set_infos.is_empty() {
                component.pod_set_infos.clear();
                let field = format!("spec.components[{index}].podSetInfos");
                self.warn(&field, "has no effect: Kueue writes it when it admits");
            }
        }
        let refused = validate::create(&wrapped.components, namespace, "");
        for error in &refused {
            self.problems.push(told(error));
        }
        if !refused.is_empty() {
            return;
        }
        self.nested(wrapped, namespace);
        for (index, component) in wrapped.components.iter().enumerate() {
            let declared = &component.pod_sets;
            let found = if declared.is_empty() {
                // It was inferred just now, to be checked.
                pod_sets::infer(&component.template).unwrap_or_default()
            } else {
                declared.clone()
            };
            for (place, pod_set) in found.iter().enumerate() {
                match pods(component, (index, pod_set)) {
                    Ok(pods) => wrapped.pod_sets.push(pods),
                    Err(message) if declared.is_empty() => {
                        self.problem(&format!("spec.components[{index}].{}", pod_set.path), message);
                    }
                    Err(message) => {
                        self.problem(&format!("spec.components[{index}].podSets[{place}]"), message);
                    }
                }
            }
        }
    }

    /// What is written out within a component is made as it is.
    fn nested(&mut self, wrapped: &Wrapped, namespace: &str) {
        for field in wrapped.marks() {
            self.problem(
                &field,
                "Forbidden: fedq tells its tasks' objects apart by this label: leave it out",
            );
        }
        for WrappedObject { field, api_version, kind, namespace: elsewhere } in wrapped.objects() {
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            if group.is_empty() && kind == "Secret" {
                let message = "Forbidden: fedq keeps what it is handed in, and no secrets with it: make the Secret where \
                               it is needed, and refer to it";
                self.problem(&field, message);
            }
            if group == GROUP && kind == KIND {
                self.problem(&field, "Forbidden: Nested AppWrappers are forbidden");
            }
            if elsewhere.is_some_and(|elsewhere| !elsewhere.is_empty() && elsewhere != namespace) {
                let message = "Forbidden: AppWrappers cannot create objects in other namespaces";
                self.problem(&format!("{field}.metadata.namespace"), message);
            }
        }
    }

    fn metadata(&mut self, metadata: Value, namespace: &str) -> Metadata {
        let mut read = Metadata::default();
        let mut metadata = match metadata {
            Value::Object(metadata) => metadata,
            Value::Null => Map::new(),
            _ => {
                self.problem("metadata", "must be a map");
                return read;
            }
        };
        for field in OF_SERVER {
            metadata.remove(field);
        }
        for field in ["ownerReferences", "finalizers"] {
            if metadata.remove(field).is_some() {
                self.warn(
                    &format!("metadata.{field}"),
                    "has no effect: fedq takes the AppWrapper away itself",
                );
            }
        }
        for field in ["name", "generateName", "namespace"] {
            match metadata.remove(field) {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) if field == "namespace" => {
                    if text != namespace {
                        let message =
                            format!("you run things in namespace {namespace}, not in {text}: leave it out");
                        self.problem("metadata.namespace", message);
                    }
                }
                Some(Value::String(text)) => {
                    let name = text.trim_end_matches('-').to_owned();
                    if read.name.is_none() && !name.is_empty() {
                        read.name = Some(name);
                    }
                }
                Some(_) => self.problem(&format!("metadata.{field}"), "must be a text"),
            }
        }
        read.labels = self.texts(metadata.remove("labels"), "metadata.labels");
        read.annotations = self.texts(metadata.remove("annotations"), "metadata.annotations");
        for field in metadata.keys() {
            self.problem(&format!("metadata.{field}"), "an object has no such field");
        }
        read.queue = read.labels.remove(QUEUE_LABEL);
        read.priority = read.labels.remove(PRIORITY_LABEL).map(Priority::Class);
        // Whoever hands it in is who it is for.
        read.labels.retain(|key, _| ![USER_LABEL, USER_ID_LABEL].contains(&key.as_str()));
        let Metadata { labels, annotations, .. } = &mut read;
        for (map, field) in [(labels, "metadata.labels"), (annotations, "metadata.annotations")] {
            map.retain(|key, _| {
                let theirs = !is_reserved(key);
                if !theirs {
                    self.warn(&format!("{field}[{key}]"), "has no effect: fedq and Kueue set it themselves");
                }
                theirs
            });
        }
        read
    }

    fn texts(&mut self, map: Option<Value>, field: &str) -> BTreeMap<String, String> {
        match map {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(map) => serde_json::from_value(map).unwrap_or_else(|_| {
                self.problem(field, "must be a map of texts");
                BTreeMap::new()
            }),
        }
    }
}

#[derive(Default)]
struct Metadata {
    name: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    queue: Option<String>,
    priority: Option<Priority>,
}

/// Without the field, which the note names already.
fn told(error: &FieldError) -> Note {
    let text = error.to_string();
    let message = text.strip_prefix(&format!("{}: ", error.field)).unwrap_or(&text);
    note(&error.field, message)
}

fn pods(component: &Component, (index, pod_set): (usize, &PodSet)) -> Result<WrappedPods, String> {
    let count = u32::try_from(pod_set.replicas())
        .map_err(|_| format!("{} replicas; there are no fewer than 0", pod_set.replicas()))?;
    let template = path::get(&component.template, &pod_set.path).map_err(|error| error.to_string())?;
    let spec = &template["spec"];
    let texts = |value: &Value| {
        let entries = value.as_object().into_iter().flatten();
        entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    };
    let jobs = pod_set.annotations.get(tas::SUB_GROUP_COUNT).and_then(|count| count.parse().ok());
    Ok(WrappedPods {
        component: index,
        path: pod_set.path.clone(),
        count,
        jobs: jobs.unwrap_or(1),
        requests: requests::of_pod(spec)?,
        node_selector: texts(&spec["nodeSelector"]),
        tolerations: spec["tolerations"].as_array().cloned().unwrap_or_default(),
    })
}

impl TaskSpec {
    /// A task that runs no script.
    fn empty() -> Self {
        Self {
            name: None,
            num_nodes: 0,
            workdir: None,
            setup: None,
            run: String::new(),
            envs: Vec::new(),
            uploads: Vec::new(),
            secrets: std::collections::BTreeSet::new(),
            volumes: Vec::new(),
            one_machine: false,
            // Asks for nothing of its own: its pod sets say what they need.
            candidates: vec![Candidate::default()],
            ordered: false,
            queue: None,
            priority: None,
            spill_after: None,
            max_duration: None,
            recovery: crate::task::spec::Recovery::default(),
            limits: crate::task::spec::Limits::default(),
            pod: crate::task::spec::PodExtras::default(),
            as_app_wrapper: false,
            warnings: Vec::new(),
            wrapped: None,
        }
    }
}
