//! Objects as Go's structs have them: fields in the order of Kueue's v1beta2 types, without what those do not know, with what they
//! always write. `types.json` holds the fields, as `name type how-it-is-left-out`.

use std::{collections::BTreeMap, sync::OnceLock};

use serde_json::{Map, Value, json};

use fedq_values::quantity::Quantity;

type Types = BTreeMap<String, Vec<String>>;

fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| serde_json::from_str(include_str!("types.json")).expect("a test reads the file"))
}

/// `object` as Go would write it after having read it into `kind`, one of those in `types.json`.
pub fn normal(kind: &str, object: &Value) -> Value {
    match kind.split_at_checked(1) {
        Some(("?", inner)) => {
            if object.is_null() {
                Value::Null
            } else {
                normal(inner, object)
            }
        }
        _ if kind.starts_with("[]") => list(&kind[2..], object),
        _ if kind.starts_with("{}") => map(&kind[2..], object),
        _ => match types().get(kind) {
            Some(fields) => structure(fields, object),
            None => scalar(kind, object),
        },
    }
}

fn list(inner: &str, object: &Value) -> Value {
    match object.as_array() {
        Some(items) if inner != "byte" => {
            Value::Array(items.iter().map(|item| normal(inner, item)).collect())
        }
        _ => object.clone(),
    }
}

fn map(inner: &str, object: &Value) -> Value {
    let Some(entries) = object.as_object() else { return object.clone() };
    let sorted: BTreeMap<&String, &Value> = entries.iter().collect();
    Value::Object(sorted.into_iter().map(|(key, value)| (key.clone(), normal(inner, value))).collect())
}

fn structure(fields: &[String], object: &Value) -> Value {
    let mut structure = Map::new();
    for field in fields {
        let mut words = field.split(' ');
        let name = words.next().unwrap_or_default();
        let kind = words.next().unwrap_or_default();
        let how = words.next().unwrap_or_default();
        let value = normal(kind, object.get(name).unwrap_or(&Value::Null));
        let empty = is_empty(kind, &value, how);
        if !empty {
            structure.insert(name.to_owned(), value);
        }
    }
    Value::Object(structure)
}

/// By `omitempty` (`e`) and `omitzero` (`z`): the first never leaves out a struct, a time or a quantity.
fn is_empty(kind: &str, value: &Value, how: &str) -> bool {
    let structured =
        types().contains_key(kind) || ["time", "microtime", "quantity", "intOrString"].contains(&kind);
    let zero = || match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        _ if structured => how.contains('z') && zero(),
        Value::Null => how.contains('e'),
        _ if kind.starts_with('?') => false,
        Value::Bool(value) => how.contains('e') && !value,
        Value::Number(value) => how.contains('e') && value.as_f64() == Some(0.0),
        Value::String(value) => how.contains('e') && value.is_empty(),
        Value::Array(value) => how.contains('e') && value.is_empty(),
        Value::Object(value) => how.contains('e') && value.is_empty(),
    }
}

fn scalar(kind: &str, object: &Value) -> Value {
    match (kind, object) {
        ("string", Value::Null) => json!(""),
        ("bool", Value::Null) => json!(false),
        ("int", Value::Null) => json!(0),
        ("quantity", Value::Null) => json!("0"),
        ("quantity", Value::String(text)) => {
            json!(Quantity::canonical(text).unwrap_or_else(|_| text.clone()))
        }
        ("quantity", Value::Number(number)) => {
            let text = number.to_string();
            json!(Quantity::canonical(&text).unwrap_or(text))
        }
        ("any", Value::Object(_)) => sorted(object),
        _ => object.clone(),
    }
}

/// As Go writes a map: by key, all the way down.
pub fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let ordered: BTreeMap<&String, &Value> = entries.iter().collect();
            Value::Object(ordered.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        _ => value.clone(),
    }
}
