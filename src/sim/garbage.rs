//! What becomes of objects whose owners go: they go too, before or after, or are let go.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::api::{FOREGROUND, Internal, ORPHAN};
use super::cluster::State;
use super::kind::Kind;
use super::store::{Name, Object};

/// An object with owners.
struct Owned {
    kind: &'static Kind,
    name: Name,
    object: Object,
}

/// One look at everything that is owned, or that waits for what it owns.
pub(super) async fn collect(state: &Arc<State>) {
    let found = state.store.select(|object| {
        let metadata = &object["metadata"];
        !metadata["ownerReferences"].is_null() || awaits(object, ORPHAN) || awaits(object, FOREGROUND)
    });
    let mut owned: BTreeMap<String, Vec<Owned>> = BTreeMap::new();
    for (kind, name, object) in &found {
        let mut gone = Vec::new();
        let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        for owner in owners {
            let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
            if lives(state, owner, &name.0) {
                let dependent = Owned { kind, name: name.clone(), object: Arc::clone(object) };
                owned.entry(uid).or_default().push(dependent);
            } else {
                gone.push(uid);
            }
        }
        if !gone.is_empty() {
            let dependent = Owned { kind, name: name.clone(), object: Arc::clone(object) };
            lose(state, &dependent, &gone, gone.len() == owners.len()).await;
        }
    }
    for (kind, name, object) in found {
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let dependents = owned.get(uid).map(Vec::as_slice).unwrap_or_default();
        let parent = Owned { kind, name, object: Arc::clone(&object) };
        if awaits(&object, ORPHAN) {
            for dependent in dependents {
                lose(state, dependent, &[uid.to_owned()], false).await;
            }
            release(state, &parent, ORPHAN).await;
        } else if awaits(&object, FOREGROUND) {
            delete_first(state, &parent, dependents).await;
        }
    }
}

fn finalizers(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten()
}

/// Whether it is to go as soon as this has been done.
fn awaits(object: &Value, finalizer: &str) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null() && finalizers(object).any(|name| name == finalizer)
}

/// Owners of kinds that nobody knows are taken for living.
fn lives(state: &State, owner: &Value, namespace: &str) -> bool {
    let Some(kind) = owner["kind"].as_str().and_then(Kind::named) else { return true };
    let namespace = if kind.namespaced { namespace } else { "" };
    let name = owner["name"].as_str().unwrap_or_default();
    let found = state.store.get(kind, &(namespace.to_owned(), name.to_owned()));
    found.is_some_and(|found| found["metadata"]["uid"] == owner["uid"])
}

/// Without owners it goes; with others left it loses these.
async fn lose(state: &Arc<State>, dependent: &Owned, gone: &[String], last: bool) {
    let what = if last {
        if !dependent.object["metadata"]["deletionTimestamp"].is_null() {
            return;
        }
        Internal::Delete
    } else {
        let owners = dependent.object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let kept: Vec<&Value> =
            owners.filter(|owner| !gone.iter().any(|uid| owner["uid"] == uid.as_str())).collect();
        let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
        Internal::Patch(json!({"metadata": {"ownerReferences": kept}}))
    };
    super::controllers::write(state, dependent.kind, &dependent.name, what).await;
}

/// What it owns goes before it, where that is what blocks it.
async fn delete_first(state: &Arc<State>, owner: &Owned, dependents: &[Owned]) {
    let mut blocked = false;
    for dependent in dependents {
        let references = dependent.object["metadata"]["ownerReferences"].as_array();
        let blocks = references.into_iter().flatten().any(|reference| {
            reference["uid"] == owner.object["metadata"]["uid"] && reference["blockOwnerDeletion"] == true
        });
        blocked |= blocks;
        if dependent.object["metadata"]["deletionTimestamp"].is_null() {
            super::controllers::write(state, dependent.kind, &dependent.name, Internal::Delete).await;
        }
    }
    if !blocked {
        release(state, owner, FOREGROUND).await;
    }
}

async fn release(state: &Arc<State>, owner: &Owned, finalizer: &str) {
    let kept: Vec<&Value> = finalizers(&owner.object).filter(|name| *name != finalizer).collect();
    let patch = json!({"metadata": {"finalizers": if kept.is_empty() { Value::Null } else { json!(kept) }}});
    super::controllers::write(state, owner.kind, &owner.name, Internal::Patch(patch)).await;
}
