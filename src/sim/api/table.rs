//! The table that `kubectl get` asks for.

use serde_json::{Value, json};

use super::super::kind::Kind;

pub(super) fn of(kind: &Kind, objects: &[&Value], version: &Value) -> Value {
    let text = |name: &str, priority: u8| json!({"name": name, "type": "string", "format": "", "description": "", "priority": priority});
    let mut columns =
        vec![json!({"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0})];
    columns.extend(kind.columns.iter().map(|(title, _)| text(title, 0)));
    columns.push(json!({"name": "Age", "type": "date", "format": "", "description": "", "priority": 0}));
    let rows: Vec<Value> = objects.iter().map(|object| row(kind, object)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
        "columnDefinitions": columns, "rows": rows,
    })
}

fn row(kind: &Kind, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut cells = vec![metadata["name"].clone()];
    cells.extend(kind.columns.iter().map(|(_, path)| cell(object, path)));
    cells.push(metadata["creationTimestamp"].clone());
    json!({"cells": cells, "object": partial(object)})
}

/// An object without all but its metadata.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
    })
}

fn cell(object: &Value, path: &str) -> Value {
    let condition = path.strip_prefix("condition:");
    if let Some(kind) = condition {
        let conditions = object["status"]["conditions"].as_array();
        let found = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == kind));
        return found.map_or(Value::Null, |condition| condition["status"].clone());
    }
    path.split('.').fold(object, |value, key| value.get(key).unwrap_or(&Value::Null)).clone()
}
