//! Who owns which entry of `nominalResources`, from the object's `managedFields`.
//!
//! The API server keeps these per field, so nothing has to be added to the claim to know whether a
//! value is fedq's (it follows capacity) or a person's (it is a cap).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{CAPACITY_MANAGER, Owner};

/// Field managers by key of `nominalResources`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Owners {
    by_key: BTreeMap<String, BTreeSet<String>>,
    /// Managers that own the map as one value, and so each of its keys.
    of_all: BTreeSet<String>,
}

impl Owners {
    pub fn new(by_key: BTreeMap<String, BTreeSet<String>>) -> Self {
        Self { by_key, of_all: BTreeSet::new() }
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
        self.by_key.get(key).into_iter().flatten().chain(&self.of_all).map(String::as_str)
    }
}

/// Reads `metadata.managedFields`. What is not of the documented form is passed over, since a wrong
/// guess can only make a cap of a value, never take one from a person.
pub fn owners(managed_fields: &Value) -> Owners {
    let mut owners = Owners::default();
    for entry in managed_fields.as_array().into_iter().flatten() {
        let manager = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
        let Some(fields) = entry.get("fieldsV1").and_then(Value::as_object) else { continue };
        match owned(fields) {
            Owned::Nothing => {}
            Owned::Everything => {
                owners.of_all.insert(manager.to_owned());
            }
            Owned::Keys(keys) => {
                for key in keys {
                    owners.by_key.entry(key.to_owned()).or_default().insert(manager.to_owned());
                }
            }
        }
    }
    owners
}

enum Owned<'a> {
    Nothing,
    Everything,
    Keys(Vec<&'a str>),
}

fn owned(fields: &Map<String, Value>) -> Owned<'_> {
    let mut fields = fields;
    for step in ["f:spec", "f:nominalResources"] {
        match fields.get(step).and_then(Value::as_object) {
            None => return Owned::Nothing,
            Some(inner) if inner.is_empty() => return Owned::Everything,
            Some(inner) => fields = inner,
        }
    }
    Owned::Keys(fields.keys().filter_map(|key| key.strip_prefix("f:")).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
    fn whoever_owns_the_map_as_one_value_owns_every_key() {
        let whole = json!([entry("fedq-capacity", &["cpu"]),
            { "manager": "old", "fieldsV1": { "f:spec": { "f:nominalResources": {} } } }]);
        assert_eq!(owners(&whole).owner("cpu"), Owner::Cap);
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
