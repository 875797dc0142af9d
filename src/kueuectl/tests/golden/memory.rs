//! An API server's objects in memory, behind a client of Kubernetes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body};
use serde_json::{Value, json};

#[derive(Clone)]
pub struct Memory(Arc<Mutex<State>>);

struct State {
    objects: Vec<Value>,
    sent: Vec<Value>,
    conflicts: usize,
    /// To everything, where it is set.
    answer: Option<Value>,
}

/// Group, version, plural, singular and kind of all that there is.
const RESOURCES: [(&str, &str, &str, &str, &str); 17] = [
    ("", "v1", "pods", "pod", "Pod"),
    ("", "v1", "namespaces", "namespace", "Namespace"),
    ("", "v1", "configmaps", "configmap", "ConfigMap"),
    ("apps", "v1", "deployments", "deployment", "Deployment"),
    ("batch", "v1", "jobs", "job", "Job"),
    ("jobset.x-k8s.io", "v1alpha2", "jobsets", "jobset", "JobSet"),
    ("kubeflow.org", "v1", "pytorchjobs", "pytorchjob", "PyTorchJob"),
    ("kubeflow.org", "v1", "paddlejobs", "paddlejob", "PaddleJob"),
    ("kubeflow.org", "v1", "tfjobs", "tfjob", "TFJob"),
    ("kubeflow.org", "v1", "xgboostjobs", "xgboostjob", "XGBoostJob"),
    ("kubeflow.org", "v2beta1", "mpijobs", "mpijob", "MPIJob"),
    ("kueue.x-k8s.io", "v1beta2", "clusterqueues", "clusterqueue", "ClusterQueue"),
    ("kueue.x-k8s.io", "v1beta2", "localqueues", "localqueue", "LocalQueue"),
    ("kueue.x-k8s.io", "v1beta2", "resourceflavors", "resourceflavor", "ResourceFlavor"),
    ("kueue.x-k8s.io", "v1beta2", "workloads", "workload", "Workload"),
    ("ray.io", "v1", "rayclusters", "raycluster", "RayCluster"),
    ("ray.io", "v1", "rayjobs", "rayjob", "RayJob"),
];

impl Memory {
    pub fn new(objects: Vec<Value>) -> Self {
        Self(Arc::new(Mutex::new(State { objects, sent: Vec::new(), conflicts: 0, answer: None })))
    }

    pub fn answering(self, answer: Option<Value>) -> Self {
        self.lock().answer = answer;
        self
    }

    pub fn with_conflicts(self, conflicts: usize) -> Self {
        self.lock().conflicts = conflicts;
        self
    }

    pub fn client(&self) -> Client {
        let memory = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let memory = memory.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap_or_default();
                let query = parts.uri.query().unwrap_or_default().to_owned();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (code, answer) = memory.answer(&parts.method, parts.uri.path(), &query, body);
                let accept = parts.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
                let as_table =
                    answer["kind"] == "PodList" && accept.is_some_and(|accept| accept.contains("as=Table"));
                let answer = if as_table { table(&answer) } else { answer };
                let response =
                    Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(response.expect("its parts are valid"))
            }
        });
        Client::new(service, "default")
    }

    pub fn names(&self) -> Vec<String> {
        let name = |object: &Value| {
            let part = |pointer: &str| {
                object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
            };
            format!("{}/{}/{}", part("/kind"), part("/metadata/namespace"), part("/metadata/name"))
        };
        self.lock().objects.iter().map(name).collect()
    }

    pub fn all_sent(&self) -> Vec<Value> {
        self.lock().sent.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, method: &Method, path: &str, query: &str, body: Value) -> (StatusCode, Value) {
        if let Some(answer) = &self.lock().answer {
            return (StatusCode::OK, answer.clone());
        }
        let query: BTreeMap<String, String> = query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| {
                (key.to_owned(), value.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/"))
            })
            .collect();
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts[..] {
            ["api"] => return (StatusCode::OK, discovery(str::is_empty)),
            ["apis"] => return (StatusCode::OK, discovery(|group| !group.is_empty())),
            ["api", version, ref rest @ ..] => ("", version, rest),
            ["apis", group, version, ref rest @ ..] => (group, version, rest),
            _ => return (StatusCode::NOT_FOUND, Value::Null),
        };
        let (namespace, plural, name) = match *rest {
            [] => return resource_list(group, version),
            ["clusterqueues", name, "pendingworkloads"] => return self.pending(name),
            ["namespaces", namespace, plural] => (namespace, plural, ""),
            ["namespaces", namespace, plural, name] => (namespace, plural, name),
            [plural] => ("", plural, ""),
            [plural, name] => ("", plural, name),
            _ => return (StatusCode::NOT_FOUND, Value::Null),
        };
        let kind = RESOURCES.iter().find(|found| (found.0, found.1, found.2) == (group, version, plural));
        let Some((.., kind)) = kind else { return (StatusCode::NOT_FOUND, Value::Null) };
        let target = Target { group, plural, kind, namespace, name };
        let mut state = self.lock();
        if *method != Method::GET {
            state.sent.push(body.clone());
        }
        state.serve(method, &target, &query, body)
    }

    /// Every workload that has a `position`.
    fn pending(&self, _queue: &str) -> (StatusCode, Value) {
        let state = self.lock();
        let waiting = state.objects.iter().filter(|object| !object["position"].is_null());
        let items: Vec<Value> = waiting
            .map(|object| json!({"metadata": object["metadata"], "positionInLocalQueue": object["position"]}))
            .collect();
        if items.is_empty() {
            (StatusCode::NOT_FOUND, Value::Null)
        } else {
            (StatusCode::OK, json!({"items": items}))
        }
    }
}

/// Pods as the server shows them; all of them run.
fn table(list: &Value) -> Value {
    let columns =
        ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"];
    let definition = |(at, name): (usize, &&str)| json!({"name": name, "priority": i32::from(4 < at)});
    let none = "<none>";
    let row = |pod: &Value| {
        let cells =
            json!([pod["metadata"]["name"], "1/1", "Running", 0, "<unknown>", none, none, none, none]);
        json!({"cells": cells, "object": pod})
    };
    json!({
        "kind": "Table",
        "metadata": list["metadata"],
        "columnDefinitions": columns.iter().enumerate().map(definition).collect::<Vec<_>>(),
        "rows": list["items"].as_array().into_iter().flatten().map(row).collect::<Vec<_>>(),
    })
}

/// A JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Some(entries) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    for (key, value) in entries {
        if !target.is_object() {
            *target = json!({});
        }
        if value.is_null() {
            target.as_object_mut().and_then(|target| target.remove(key));
        } else {
            merge(&mut target[key], value);
        }
    }
}

struct Target<'a> {
    group: &'a str,
    plural: &'a str,
    kind: &'a str,
    namespace: &'a str,
    name: &'a str,
}

impl Target<'_> {
    fn is(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        object["kind"] == self.kind
            && (self.namespace.is_empty() || metadata["namespace"] == self.namespace)
            && (self.name.is_empty() || metadata["name"] == self.name)
    }

    fn refused(&self, code: StatusCode, how: &str) -> (StatusCode, Value) {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let message = format!("{}{group} \"{}\" {how}", self.plural, self.name);
        (code, json!({"kind": "Status", "apiVersion": "v1", "message": message, "code": code.as_u16()}))
    }
}

impl State {
    fn serve(
        &mut self,
        method: &Method,
        target: &Target<'_>,
        query: &BTreeMap<String, String>,
        body: Value,
    ) -> (StatusCode, Value) {
        let dry = query.contains_key("dryRun");
        let at = self.objects.iter().position(|object| target.is(object));
        match (method.as_str(), at) {
            ("GET", _) if target.name.is_empty() => (StatusCode::OK, self.list(target, query)),
            ("GET", Some(at)) => (StatusCode::OK, self.objects[at].clone()),
            ("POST", _) => {
                if !dry {
                    self.objects.push(body.clone());
                }
                (StatusCode::CREATED, body)
            }
            ("PATCH", Some(_)) if 0 < self.conflicts => {
                self.conflicts -= 1;
                target.refused(StatusCode::CONFLICT, "has been modified")
            }
            ("PATCH", Some(at)) => {
                let mut changed = self.objects[at].clone();
                merge(&mut changed, &body);
                if !dry {
                    self.objects[at] = changed.clone();
                }
                (StatusCode::OK, changed)
            }
            ("DELETE", Some(at)) => {
                let wanted = &body["preconditions"]["uid"];
                if !wanted.is_null() && *wanted != self.objects[at]["metadata"]["uid"] {
                    return target.refused(StatusCode::CONFLICT, "is another one: the UIDs differ");
                }
                if !dry {
                    self.objects.remove(at);
                }
                (StatusCode::OK, json!({"kind": "Status", "status": "Success"}))
            }
            _ => target.refused(StatusCode::NOT_FOUND, "not found"),
        }
    }

    fn list(&self, target: &Target<'_>, query: &BTreeMap<String, String>) -> Value {
        let labels = query.get("labelSelector").map_or("", String::as_str);
        let fields = query.get("fieldSelector").map_or("", String::as_str);
        let pairs = |text: &'_ str| -> Vec<(String, String)> {
            text.split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .collect()
        };
        let (labels, fields) = (pairs(labels), pairs(fields));
        let all: Vec<&Value> = self
            .objects
            .iter()
            .filter(|object| target.is(object))
            .filter(|object| labels.iter().all(|(key, value)| object["metadata"]["labels"][key] == **value))
            .filter(|object| fields.iter().all(|(_, value)| object["metadata"]["name"] == **value))
            .collect();
        let number = |key: &str| query.get(key).and_then(|text| text.parse::<usize>().ok());
        let start = number("continue").unwrap_or(0);
        let end = all.len().min(start + number("limit").filter(|limit| 0 < *limit).unwrap_or(usize::MAX / 2));
        let next = if end < all.len() { end.to_string() } else { String::new() };
        json!({
            "kind": format!("{}List", target.kind),
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "metadata": {"resourceVersion": "7", "continue": next},
            "items": all[start..end],
        })
    }
}

fn resource_list(group: &str, version: &str) -> (StatusCode, Value) {
    let resources: Vec<Value> = RESOURCES
        .iter()
        .filter(|found| (found.0, found.1) == (group, version))
        .map(|(.., plural, singular, kind)| json!({"name": plural, "singularName": singular, "kind": kind, "namespaced": true}))
        .collect();
    let code = if resources.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    (code, json!({"kind": "APIResourceList", "resources": resources}))
}

fn discovery(wanted: impl Fn(&str) -> bool) -> Value {
    let mut groups: BTreeMap<(&str, &str), Vec<Value>> = BTreeMap::new();
    for (group, version, plural, singular, kind) in RESOURCES.iter().filter(|found| wanted(found.0)) {
        let entry = json!({
            "resource": plural,
            "singularResource": singular,
            "responseKind": {"kind": kind},
            "scope": "Namespaced",
        });
        groups.entry((group, version)).or_default().push(entry);
    }
    let items: Vec<Value> = groups
        .into_iter()
        .map(|((group, version), resources)| {
            json!({"metadata": {"name": group}, "versions": [{"version": version, "resources": resources}]})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "items": items})
}
