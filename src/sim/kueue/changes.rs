//! What a pass changed, as requests: the difference of two views.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    Effect, Objects,
    read::{is_deleted, remove_finalizer},
};

/// What turns `before` into `after`. A status goes behind the rest of its object, since a workload that holds quota takes no
/// other queue; but before a finalizer is taken away, which may end the object. What is deleted is let go of first, as Kueue does.
pub(super) fn effects(kind: &'static str, before: &Objects, after: &Objects, out: &mut Vec<Effect>) {
    for (key, object) in after {
        let (namespace, name) = key.clone();
        match before.get(key) {
            None => out.push(Effect::Create { kind, object: (**object).clone() }),
            Some(old) if Arc::ptr_eq(old, object) => {}
            Some(old) => {
                let status = merge_patch(&old["status"], &object["status"]).map(|status| {
                    let (namespace, name) = key.clone();
                    Effect::Status { kind, namespace, name, status }
                });
                let lets_go = old["metadata"]["finalizers"] != object["metadata"]["finalizers"];
                let patch = merge_patch(&without_status(old), &without_status(object));
                let patch = patch.map(|patch| Effect::Patch { kind, namespace, name, patch });
                out.extend(if lets_go { [status, patch] } else { [patch, status] }.into_iter().flatten());
            }
        }
    }
    for (key, object) in before.iter().filter(|(key, _)| !after.contains_key(*key)) {
        let (namespace, name) = key.clone();
        let mut released = without_status(object);
        remove_finalizer(&mut released);
        if let Some(patch) = merge_patch(&without_status(object), &released) {
            let (namespace, name) = key.clone();
            out.push(Effect::Patch { kind, namespace, name, patch });
        }
        if !is_deleted(object) {
            out.push(Effect::Delete { kind, namespace, name });
        }
    }
}

fn without_status(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten().filter(|(field, _)| *field != "status");
    Value::Object(fields.map(|(field, value)| (field.clone(), value.clone())).collect())
}

/// RFC 7386: what to merge into `before` to have `after`; nothing where they are the same.
fn merge_patch(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return Some(after.clone());
    };
    let mut patch = Map::new();
    for (field, value) in new {
        match old.get(field) {
            None => drop(patch.insert(field.clone(), value.clone())),
            Some(before) => {
                if let Some(change) = merge_patch(before, value) {
                    patch.insert(field.clone(), change);
                }
            }
        }
    }
    for field in old.keys().filter(|field| !new.contains_key(*field)) {
        patch.insert(field.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_names_what_changed_and_nulls_what_went() {
        let before = json!({"a": {"b": 1, "c": 2}, "d": [1], "e": "x"});
        let after = json!({"a": {"b": 1, "f": 3}, "d": [2], "e": "x"});
        assert_eq!(merge_patch(&before, &after), Some(json!({"a": {"f": 3, "c": null}, "d": [2]})));
        assert_eq!(merge_patch(&before, &before), None);
    }
}
