//! What an API server sets, keeps and refuses in what every object has: identity, times, generation,
//! finalizers, owners, and the defaults that this world depends on.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::super::cluster::State;
use super::super::kind::Kind;
use super::super::status::Cause;
use super::super::store::Name;

/// What a client cannot change.
const OF_THE_SERVER: [&str; 8] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "name",
    "namespace",
    "resourceVersion",
];
/// Finalizers that need no domain.
const PLAIN_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// A new object gets what tells it from all others.
pub(super) fn new(state: &Arc<State>, kind: &Kind, name: &Name, object: &mut Value) {
    name_kind(kind, object);
    // Whoever registers a node reports its status with it.
    if kind.status && kind.kind != "Node" {
        remove(object, "status");
    }
    let metadata = &mut object["metadata"];
    for field in
        ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink", "resourceVersion"]
    {
        remove(metadata, field);
    }
    metadata["uid"] = json!(state.new_uid());
    metadata["creationTimestamp"] = json!(seconds(state.now()));
    metadata["name"] = json!(name.1);
    if kind.namespaced {
        metadata["namespace"] = json!(name.0);
    }
}

/// A changed one keeps who it is, since when, and the half that this path does not write.
pub(super) fn changed(kind: &Kind, part: Option<&str>, before: &Value, object: &mut Value) {
    name_kind(kind, object);
    match part {
        Some("status") => {
            let mut whole = before.clone();
            copy("status", object, &mut whole);
            copy("managedFields", &object["metadata"], &mut whole["metadata"]);
            *object = whole;
        }
        _ if kind.status => copy("status", before, object),
        _ => {}
    }
    for field in OF_THE_SERVER {
        copy(field, &before["metadata"], &mut object["metadata"]);
    }
}

fn name_kind(kind: &Kind, object: &mut Value) {
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
}

fn remove(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.shift_remove(field);
    }
}

fn copy(field: &str, from: &Value, to: &mut Value) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove(to, field),
    }
}

/// It moves with all but metadata and status.
pub(super) fn generation(before: Option<&Value>, object: &mut Value) {
    let generation = before.and_then(|before| before["metadata"]["generation"].as_u64());
    let same = before.is_some_and(|before| same_but(&["metadata", "status"], before, object));
    object["metadata"]["generation"] = json!(match generation {
        None => 1,
        Some(generation) if same => generation,
        Some(generation) => generation + 1,
    });
}

fn same_but(fields: &[&str], one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let counted =
        |map: &Map<String, Value>| map.keys().filter(|name| !fields.contains(&name.as_str())).count();
    counted(one) == counted(other)
        && one.iter().all(|(name, value)| fields.contains(&name.as_str()) || other.get(name) == Some(value))
}

/// A no-op write keeps the object and its version, whatever the clock says.
pub(super) fn same_but_times(before: &Value, after: &Value) -> bool {
    let [one, other] = [before, after].map(|object| object["metadata"]["managedFields"].as_array());
    let entries = match (one, other) {
        (Some(one), Some(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| same_but(&["time"], one, other))
        }
        (one, other) => one == other,
    };
    entries
        && same_but(&["metadata"], before, after)
        && same_but(&["managedFields"], &before["metadata"], &after["metadata"])
}

/// What built-in kinds get that this world depends on.
pub(super) fn defaults(kind: &Kind, object: &mut Value, new: bool) {
    match kind.kind {
        "Namespace" if new => {
            object["status"]["phase"] = json!("Active");
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
        }
        "Secret" => {
            let texts = object.as_object_mut().and_then(|fields| fields.shift_remove("stringData"));
            for (name, text) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
                let text = text.as_str().unwrap_or_default();
                object["data"][name] = json!(super::super::base64(text.as_bytes()));
            }
            if object["type"].as_str().is_none_or(str::is_empty) {
                object["type"] = json!("Opaque");
            }
        }
        // What has no field for absence is there.
        "Node" if object["spec"].is_null() => object["spec"] = json!({}),
        "Pod" if new && object["status"]["phase"].is_null() => object["status"]["phase"] = json!("Pending"),
        "Job" if new => {
            let spec = &mut object["spec"];
            let counted = spec["completions"].is_null() && spec["parallelism"].is_null();
            for (field, value) in [
                ("parallelism", json!(1)),
                ("completions", if counted { json!(1) } else { Value::Null }),
                ("backoffLimit", json!(6)),
                ("completionMode", json!("NonIndexed")),
                ("suspend", json!(false)),
            ] {
                if spec[field].is_null() && !value.is_null() {
                    spec[field] = value;
                }
            }
            if spec["completions"].is_null() {
                remove(spec, "completions");
            }
        }
        _ => {}
    }
}

/// What is wrong with an object's finalizers and owners.
pub(super) fn metadata_faults(kind: &Kind, before: Option<&Value>, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let metadata = &object["metadata"];
    let named = finalizers(object);
    for name in named.iter().filter(|name| !kind.is_custom() && !is_qualified(name)) {
        let message = format!(
            "Invalid value: {name:?}: name is neither a standard finalizer name nor is it fully qualified"
        );
        causes.push(Cause::new("FieldValueInvalid", "metadata.finalizers", message));
    }
    let old: BTreeSet<&str> = before.map(finalizers).unwrap_or_default().into_iter().collect();
    let added: Vec<&&str> = named.iter().filter(|name| !old.contains(**name)).collect();
    if before.is_some() && !metadata["deletionTimestamp"].is_null() && !added.is_empty() {
        let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
        let message = format!(
            "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            added.join(", ")
        );
        causes.push(Cause::new("FieldValueForbidden", "metadata.finalizers", message));
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let field = format!("metadata.ownerReferences.{field}");
                causes.push(Cause::new("FieldValueInvalid", &field, format!("Invalid value: \"\": {why}")));
            }
        }
    }
    causes
}

fn is_qualified(finalizer: &str) -> bool {
    let qualified =
        finalizer.split_once('/').is_some_and(|(domain, name)| !domain.is_empty() && !name.is_empty());
    qualified || PLAIN_FINALIZERS.contains(&finalizer)
}

fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(super) fn has_finalizers(object: &Value) -> bool {
    !finalizers(object).is_empty()
}

pub(super) fn namespaces() -> &'static Kind {
    Kind::named("Namespace").expect("namespaces are served")
}

pub(super) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_differ() {
        let object = |time: &str, cpu: &str| {
            json!({
                "metadata": {"name": "a", "managedFields": [{"manager": "m", "time": time}]},
                "spec": {"cpu": cpu},
            })
        };
        assert!(same_but_times(&object("1", "1"), &object("2", "1")));
        assert!(!same_but_times(&object("1", "1"), &object("1", "2")));
        let mut unmanaged = object("1", "1");
        remove(&mut unmanaged["metadata"], "managedFields");
        assert!(!same_but_times(&unmanaged, &object("1", "1")));
        assert!(same_but_times(&unmanaged, &unmanaged));
    }

    #[test]
    fn the_generation_moves_with_the_rest() {
        let before = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"b": 1}});
        let moved = |mut after: Value| {
            generation(Some(&before), &mut after);
            after["metadata"]["generation"].as_u64()
        };
        assert_eq!(moved(json!({"metadata": {"x": 1}, "spec": {"a": 1}})), Some(3));
        assert_eq!(moved(json!({"metadata": {}, "spec": {"a": 2}})), Some(4));
        assert_eq!(moved(json!({"metadata": {}, "spec": {"a": 1}, "more": 1})), Some(4));
    }

    #[test]
    fn finalizers_and_owners_are_checked() {
        let secret = Kind::named("Secret").unwrap();
        let faults = |before: Option<Value>, metadata: Value| {
            let causes = metadata_faults(secret, before.as_ref(), &json!({"metadata": metadata}));
            causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect::<Vec<_>>()
        };
        assert!(faults(None, json!({"finalizers": ["fedq.dev/a", "kubernetes"]})).is_empty());
        assert_eq!(faults(None, json!({"finalizers": ["plain", "/x"]})).len(), 2);
        let ending = json!({"deletionTimestamp": "now", "finalizers": ["fedq.dev/a"]});
        let said = faults(Some(json!({"metadata": {}})), ending);
        assert!(said[0].ends_with("found new finalizers []string{\"fedq.dev/a\"}"), "{said:?}");
        let owner =
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "z", "uid": ""}]});
        assert_eq!(
            faults(None, owner),
            ["metadata.ownerReferences.uid: Invalid value: \"\": must not be empty"]
        );
    }
}
