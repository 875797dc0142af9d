//! How large what a request holds may be, where its type cannot say: numbers of the domain stand in one place.

use serde_json::Value;

use fedq_domain::{
    claim::{MAX_ASSIGNMENTS, MAX_NOMINAL, MAX_RESOURCES},
    task::{
        sky::MAX_NAME,
        spec::{MAX_ARGUMENT, MAX_NODES},
        yaml::MAX_BYTES,
    },
};
use fedq_k8s::kubeconfig;

/// Of text in a query, unless its field says otherwise.
pub const MAX_TEXT: usize = 4096;
/// More variables than anybody gives beside a file.
const MAX_VARIABLES: usize = 1024;
/// Of all tasks of a file; a bound of each task is the domain's.
const MAX_UPLOADS: usize = 1024;
/// Keys of a Secret have no more.
const MAX_VARIABLE_NAME: usize = 253;

/// A pointer below the schemas, the keyword and the bound.
const BOUNDS: [(&str, &str, usize); 18] = [
    ("/ClaimSpec/properties/nominalResources", "maxProperties", MAX_NOMINAL),
    ("/ClaimSpec/properties/resourceAssignments", "maxItems", MAX_ASSIGNMENTS),
    ("/Assignment/properties/resources", "maxProperties", MAX_RESOURCES),
    ("/JoinCluster/properties/kubeconfig", "maxLength", kubeconfig::MAX_BYTES),
    // Bytes are counted besides, of which a character may have several.
    ("/SubmitAppWrapper/properties/file", "maxLength", MAX_BYTES),
    ("/SubmitTask/properties/file", "maxLength", MAX_BYTES),
    ("/SubmitTask/properties/name", "maxLength", MAX_NAME),
    ("/SubmitTask/properties/numNodes", "maximum", MAX_NODES as usize),
    ("/SubmitTask/properties/envs", "maxProperties", MAX_VARIABLES),
    ("/SubmitTask/properties/envs/propertyNames", "maxLength", MAX_VARIABLE_NAME),
    ("/SubmitTask/properties/envs/additionalProperties", "maxLength", MAX_ARGUMENT),
    ("/SubmitTask/properties/uploads", "maxProperties", MAX_UPLOADS),
    ("/SubmitTask/properties/uploads/propertyNames", "maxLength", MAX_TEXT),
    ("/SubmitTask/properties/uploads/additionalProperties", "maxLength", 64),
    ("/SubmitTask/properties/secrets", "maxProperties", MAX_VARIABLES),
    ("/SubmitTask/properties/secrets/propertyNames", "maxLength", MAX_VARIABLE_NAME),
    ("/SubmitTask/properties/secrets/additionalProperties", "maxLength", MAX_ARGUMENT),
    // A resource's name with its prefix.
    ("/Quantities/propertyNames", "maxLength", 317),
];

/// Which it has of them, all others are those of answers.
pub fn add(schemas: &mut Value) {
    for (pointer, keyword, bound) in BOUNDS {
        if let Some(schema) = schemas.pointer_mut(pointer) {
            schema[keyword] = bound.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::{openapi, shape::resolved};

    #[test]
    fn every_bound_is_one_of_a_field_that_is_there() {
        let document = openapi();
        for (pointer, keyword, bound) in BOUNDS {
            let schema = document["components"]["schemas"].pointer(pointer);
            assert_eq!(schema.map(|schema| &schema[keyword]), Some(&json!(bound)), "{pointer}");
            let known =
                ["$ref", "type"].iter().any(|key| schema.is_some_and(|schema| schema.get(key).is_some()));
            assert!(known, "{pointer} is no field");
        }
    }

    /// What of requests has no bound: where it is, and what keeps it small all the same.
    const UNBOUNDED: [(&str, &str); 3] = [
        // What is no ETag of the object is another one's.
        ("header If-None-Match", "compared with what is there, and never kept"),
        ("header If-Match", "compared with what is there, and never kept"),
        // OCM's CRD says what its fields may be; the body has at most 2 MiB.
        ("body simulate_placement.spec", "another project's format within JSON"),
    ];

    /// Whoever sends more is refused before anything is done with it.
    #[test]
    fn all_that_requests_hold_has_bounds() {
        let document = openapi();
        let mut found =
            Walk { document: &document, unbounded: BTreeSet::new(), free: BTreeSet::new(), seen: 0 };
        for item in document["paths"].as_object().into_iter().flat_map(|paths| paths.values()) {
            for operation in item.as_object().into_iter().flat_map(|item| item.values()) {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let text = |key: &str| parameter[key].as_str().expect("text");
                    found.look(&format!("{} {}", text("in"), text("name")), &parameter["schema"]);
                }
                let body = &operation["requestBody"]["content"]["application/json"]["schema"];
                if !body.is_null() {
                    found.look(&format!("body {}", operation["operationId"].as_str().expect("an id")), body);
                }
            }
        }
        assert!(100 < found.seen, "{}", found.seen);
        let meant: BTreeSet<String> = UNBOUNDED.iter().map(|(place, _)| (*place).to_owned()).collect();
        assert_eq!(found.unbounded, meant);
        let meant: BTreeSet<String> = FREE.iter().map(|(place, _)| (*place).to_owned()).collect();
        assert_eq!(found.free, meant, "text of requests has a pattern, an enumeration, a format or a reason");
    }

    /// Text of requests that has a bound and no form, and why it can have none.
    const FREE: [(&str, &str); 17] = [
        ("body confirm_cluster.uid", "compared with the one that is there, and never kept"),
        ("body join_cluster.context", "a name in the kubeconfig, which may be any text"),
        ("body join_cluster.kubeconfig", FORMAT),
        ("body submit_app_wrapper.file", FORMAT),
        ("body submit_app_wrapper.maxDuration", FORMAT),
        ("body submit_task.accelerators", FORMAT),
        ("body submit_task.cpus", FORMAT),
        ("body submit_task.diskSize", FORMAT),
        ("body submit_task.file", FORMAT),
        ("body submit_task.image", "what a cluster's container runtime takes"),
        ("body submit_task.infra", FORMAT),
        ("body submit_task.maxDuration", FORMAT),
        ("body submit_task.memory", FORMAT),
        ("body submit_task.priority", FORMAT),
        ("body submit_task.uploads keys", "places on the submitter's machine, which may be any text"),
        ("body submit_task.workdir", "a place on the submitter's machine, which may be any text"),
        ("header If-None-Match", "compared with what is there, and never kept"),
    ];
    const FORMAT: &str = "another project's format within JSON, with rules of its own";

    struct Walk<'a> {
        document: &'a Value,
        unbounded: BTreeSet<String>,
        free: BTreeSet<String>,
        seen: u32,
    }

    impl Walk<'_> {
        fn look(&mut self, place: &str, schema: &Value) {
            self.seen += 1;
            let schema = resolved(schema, self.document);
            let has = |key: &str| schema.get(key).cloned();
            let kinds = has("type").unwrap_or_default();
            let is =
                |kind: &str| kinds == kind || kinds.as_array().is_some_and(|all| all.contains(&kind.into()));
            let bound = |key: &str| has(key).is_some();
            let is_time = has("format").is_some_and(|format| format == "date-time");
            let holds = if is("string") {
                bound("enum") || bound("maxLength") || is_time
            } else if is("integer") {
                bound("minimum") && bound("maximum")
            } else if is("array") {
                bound("maxItems")
            } else if is("object") {
                let only_fields = has("additionalProperties") == Some(false.into());
                only_fields || bound("properties") || bound("maxProperties") && bound("propertyNames")
            } else {
                is("boolean")
            };
            if !holds {
                self.unbounded.insert(place.to_owned());
            }
            if is("string") && !is_time && !bound("enum") && !bound("pattern") {
                self.free.insert(place.to_owned());
            }
            if let Some(items) = has("items") {
                self.look(&format!("{place}[]"), &items);
            }
            for (name, field) in has("properties").iter().filter_map(Value::as_object).flatten() {
                self.look(&format!("{place}.{name}"), field);
            }
            if let Some(others) = has("additionalProperties").filter(Value::is_object) {
                self.look(&format!("{place}.*"), &others);
            }
            if let Some(names) = has("propertyNames") {
                self.look(&format!("{place} keys"), &names);
            }
        }
    }
}
