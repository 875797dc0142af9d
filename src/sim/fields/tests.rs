//! Cases of `structured-merge-diff` (v6.4.2) and `k8s.io/apimachinery` (v0.36.3) in our words, named
//! at each test, and properties.

mod appliers;
mod errors;
mod patches;
mod properties;
mod recorded;
mod updates;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{ApplyError, ListKind, Schema, Writer, apply, track};

/// A list of each kind, as upstream's nested types have them.
const SCHEMA: Schema = Schema {
    lists: &[
        ("list", ListKind::Map(&["name"])),
        ("set", ListKind::Set),
        ("ports", ListKind::Map(&["port", "protocol=TCP"])),
    ],
    atomic_maps: &["whole"],
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("a time")
}

fn writer(manager: &str, second: i64) -> Writer<'_> {
    Writer { manager, api_version: "v1", subresource: None, now: at(second) }
}

/// Applies one after another, with the managers' names, at rising times.
fn applied(steps: &[(&str, Value)]) -> Value {
    let mut live = None;
    for (second, (manager, config)) in (0..).zip(steps) {
        let writer = writer(manager, second);
        live = Some(apply(live.as_ref(), config, &writer, false, &SCHEMA).expect("no conflict"));
    }
    live.expect("a step")
}

fn applied_to(live: &Value, manager: &str, config: &Value) -> Result<Value, ApplyError> {
    apply(Some(live), config, &writer(manager, 100), false, &SCHEMA)
}

fn forced(live: &Value, manager: &str, config: &Value) -> Value {
    apply(Some(live), config, &writer(manager, 100), true, &SCHEMA).expect("force has no conflicts")
}

fn updated(before: &Value, after: Value, manager: &str) -> Value {
    track(Some(before), after, &writer(manager, 100), &SCHEMA)
}

fn created(object: Value, manager: &str) -> Value {
    track(None, object, &writer(manager, 0), &SCHEMA)
}

/// What an object says without its managedFields.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    super::managed::take(&mut object);
    if object["metadata"] == json!({}) {
        object.as_object_mut().expect("an object").shift_remove("metadata");
    }
    object
}

/// `[(manager, operation, fields)]` in the object's order.
fn owners(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    entries.iter().map(|entry| json!([entry["manager"], entry["operation"], entry["fieldsV1"]])).collect()
}

fn time_of(object: &Value, manager: &str) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().expect("managedFields");
    entries.iter().find(|entry| entry["manager"] == manager).expect("the manager")["time"].clone()
}
