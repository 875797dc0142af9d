//! Wishes into writes, with the versions that they were decided from.

use serde_json::{Map, Value, json};

use fedq_domain::queue::objects::{ObjectRef, Step, Wanted};
use fedq_k8s::{
    read::queues::WorkerSnapshot,
    types::meta::Meta,
    write::{Action, Change, Kind, Target},
};

use super::MANAGER;

/// `None` if the object to change is not there: the next decision knows.
pub(super) fn change(wanted: Wanted, snapshot: &WorkerSnapshot) -> Option<Change> {
    let action = match wanted.step {
        Step::Create(fields) => Action::Create(body(&wanted.object, fields)),
        Step::Patch(mut patch) => {
            let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
            metadata["resourceVersion"] = json!(meta(&wanted.object, snapshot)?.resource_version);
            Action::Merge(patch.into())
        }
        Step::Delete => {
            let meta = meta(&wanted.object, snapshot)?;
            Action::Delete { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() }
        }
    };
    Some(Change { target: target(&wanted.object), action, manager: MANAGER })
}

fn meta<'a>(object: &ObjectRef, snapshot: &'a WorkerSnapshot) -> Option<&'a Meta> {
    match object {
        ObjectRef::Namespace(name) => snapshot.namespaces.get(name).map(|one| &one.metadata),
        ObjectRef::Flavor(name) => snapshot.flavors.get(name.as_str()).map(|one| &one.metadata),
        ObjectRef::PriorityClass(name) => snapshot.priority_classes.get(name).map(|one| &one.metadata),
        ObjectRef::LocalQueue(key) => snapshot.local_queues.get(key).map(|one| &one.metadata),
    }
}

fn target(object: &ObjectRef) -> Target {
    match object {
        ObjectRef::Namespace(name) => Target::cluster_scoped(Kind::Namespace, name),
        ObjectRef::Flavor(name) => Target::cluster_scoped(Kind::ResourceFlavor, name.as_str()),
        ObjectRef::PriorityClass(name) => Target::cluster_scoped(Kind::WorkloadPriorityClass, name),
        ObjectRef::LocalQueue((namespace, name)) => Target::namespaced(Kind::LocalQueue, namespace, name),
    }
}

fn body(object: &ObjectRef, mut fields: Map<String, Value>) -> Value {
    let kueue = "kueue.x-k8s.io/v1beta2";
    let (version, kind, namespace, name) = match object {
        ObjectRef::Namespace(name) => ("v1", "Namespace", None, name.as_str()),
        ObjectRef::Flavor(name) => (kueue, "ResourceFlavor", None, name.as_str()),
        ObjectRef::PriorityClass(name) => (kueue, "WorkloadPriorityClass", None, name.as_str()),
        ObjectRef::LocalQueue((namespace, name)) => (kueue, "LocalQueue", Some(namespace), name.as_str()),
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    metadata["name"] = json!(name);
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    let mut body =
        Map::from_iter([("apiVersion".to_owned(), json!(version)), ("kind".to_owned(), json!(kind))]);
    body.extend(fields);
    body.into()
}
