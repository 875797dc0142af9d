//! What a worker needs besides quota so that the hub's queues work there.
//!
//! [`policy`] is a ClusterQueue's spec apart from its quota; [`objects`] decides on everything around
//! it: namespaces, LocalQueues, flavors, priority classes. Only what is labelled as this hub's is ever
//! changed or deleted, a namespace is never deleted, and a queue goes only when it is empty.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName},
    quantity::Quantity,
};

pub mod input;
pub mod objects;
pub mod pod_security;
pub mod policy;
pub mod report;
pub mod selector;

/// The queues that each cluster's claim names, with the flavors it names for them. A cluster that is
/// not in the map is not decided yet (or waits for a confirmation): nothing is taken from it. One with
/// an empty entry has nothing claimed: its queues are held and removed.
pub type ClaimedQueues = BTreeMap<ClusterName, BTreeMap<QueueName, BTreeSet<FlavorName>>>;

/// One text for each weight, since people write `1`, `"1"` and `1000m`; absent, it is 1.
fn fill_weight(sharing: &mut Map<String, Value>) {
    let weight = sharing.get("weight").map_or_else(|| json!("1"), canonical);
    sharing.insert("weight".to_owned(), weight);
}

/// What is no quantity stays as it is: the worker's server will say what is wrong with it.
fn canonical(quantity: &Value) -> Value {
    let text = match quantity {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return quantity.clone(),
    };
    Quantity::parse(&text).map_or_else(|_| quantity.clone(), |quantity| json!(quantity.to_string()))
}

/// RFC 7386, the other way round: what turns `from` into `to`.
fn merge_patch(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        match (from.get(name), value) {
            (Some(before), _) if before == value => {}
            (Some(Value::Object(before)), Value::Object(after)) => {
                patch.insert(name.clone(), Value::Object(merge_patch(before, after)));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    patch
}
