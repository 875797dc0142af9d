//! Who owns which entry of `nominalResources`, from the object's `managedFields`.
//!
//! The API server keeps these per field, so nothing has to be added to the claim to know whether a
//! value is fedq's (it follows capacity) or a person's (it is a cap).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{CAPACITY_MANAGER, Owner};

/// Field managers by key of `nominalResources`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Owners(BTreeMap<String, BTreeSet<String>>);

impl Owners {
    pub fn new(by_key: BTreeMap<String, BTreeSet<String>>) -> Self {
        Self(by_key)
    }

    /// A key nobody is known to own is a person's: fedq must not take what it did not write.
    pub fn owner(&self, key: &str) -> Owner {
        let mut managers = self.managers(key).peekable();
        if managers.peek().is_some() && managers.all(|manager| manager == CAPACITY_MANAGER) {
            Owner::Followed
        } else {
            Owner::Cap
        }
    }

    /// The managers of a key: who `claim show` names.
    pub fn managers(&self, key: &str) -> impl Iterator<Item = &str> {
        self.0.get(key).into_iter().flatten().map(String::as_str)
    }
}

/// Reads `metadata.managedFields`: each manager with its `fieldsV1`. What is not of the documented form is passed
/// over, since a wrong guess can only make a cap of a value, never take one from a person.
pub fn owners<'a>(managed_fields: impl IntoIterator<Item = (&'a str, &'a Value)>) -> Owners {
    let mut owners = Owners::default();
    for (manager, fields) in managed_fields {
        for key in fields.as_object().into_iter().flat_map(keys) {
            owners.0.entry(key.to_owned()).or_default().insert(manager.to_owned());
        }
    }
    owners
}

/// The keys that one manager owns. An empty `f:nominalResources` is the map without any key: whoever
/// wrote `nominalResources: {}` has that, and no say in the keys that others add.
fn keys(fields: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let map = fields.get("f:spec").and_then(|spec| spec.get("f:nominalResources"));
    let keys = map.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    keys.filter_map(|key| key.strip_prefix("f:"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owners(managed_fields: &Value) -> Owners {
        let entries = managed_fields.as_array().into_iter().flatten();
        super::owners(entries.map(|entry| {
            (entry["manager"].as_str().unwrap_or_default(), entry.get("fieldsV1").unwrap_or(&Value::Null))
        }))
    }

    fn entry(manager: &str, keys: &[&str]) -> Value {
        let mut nominal = Map::from_iter([(".".to_owned(), json!({}))]);
        nominal.extend(keys.iter().map(|key| (format!("f:{key}"), json!({}))));
        json!({ "manager": manager, "operation": "Apply", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { "f:clusterName": {}, "f:nominalResources": nominal } } })
    }

    #[test]
    fn a_key_follows_capacity_while_fedq_alone_owns_it() {
        let fields = json!([
            entry("fedq-capacity", &["cpu", "memory", "nvidia.com/gpu"]),
            entry("kubectl-edit", &["memory"]),
            entry("fedq-edit", &["pods"]),
        ]);
        let owners = owners(&fields);
        assert_eq!(owners.owner("cpu"), Owner::Followed);
        assert_eq!(owners.owner("nvidia.com/gpu"), Owner::Followed);
        assert_eq!(owners.owner("memory"), Owner::Cap);
        assert_eq!(owners.owner("pods"), Owner::Cap);
        assert_eq!(owners.managers("memory").collect::<Vec<_>>(), ["fedq-capacity", "kubectl-edit"]);
    }

    #[test]
    fn a_key_without_a_known_owner_is_a_cap() {
        assert_eq!(owners(&Value::Null).owner("cpu"), Owner::Cap);
    }

    #[test]
    fn whoever_wrote_an_empty_map_owns_no_key() {
        let empty = |manager: &str| json!({ "manager": manager, "fieldsV1": { "f:spec": { "f:nominalResources": {} } } });
        let found = owners(&json!([entry("fedq-capacity", &["cpu"]), empty("kubectl-create")]));
        assert_eq!(found.owner("cpu"), Owner::Followed);
        let found = owners(&json!([entry("kubectl-edit", &["cpu"]), empty("fedq-capacity")]));
        assert_eq!(found.managers("cpu").collect::<Vec<_>>(), ["kubectl-edit"]);
    }

    #[test]
    fn nonsense_is_passed_over() {
        let fields = json!([null, 7, "x", [], {}, { "manager": 3 }, { "fieldsV1": [] },
            { "manager": "m", "fieldsV1": { "f:spec": "x" } },
            { "manager": "m", "fieldsV1": { "f:spec": { "f:nominalResources": 3 } } },
            entry("fedq-capacity", &["cpu"])]);
        assert_eq!(owners(&fields).owner("cpu"), Owner::Followed);
    }
}
