//! k8s-cli's model of a task, as far as it decides what FastAPI says of a field that fedq refuses too.

use serde_json::{Number, Value, json};

use super::validation::ValidationError;

pub const NO_OBJECT: &str = "Input should be a valid dictionary or object to extract fields from";
pub const NO_BOOL: &str = "Input should be a valid boolean, unable to interpret input";

/// In its order, which is that of errors.
const FIELDS: [&str; 9] =
    ["name", "num_nodes", "workdir", "resources", "envs", "file_mounts", "volumes", "setup", "run"];

/// Where an error of that field stands among others: those of fields that it does not know come last.
pub fn position(field: Option<&Value>) -> usize {
    let known = field.and_then(|field| FIELDS.iter().position(|known| field == known));
    known.unwrap_or(FIELDS.len())
}

/// What it says of `found` at `path`; `None`: nothing is wrong with that, or the model does not know it.
pub fn error(path: &[Value], found: &Value) -> Option<ValidationError> {
    let names: Vec<&str> = path.iter().map(|part| part.as_str().unwrap_or_default()).collect();
    let is = |kind: &str, words: &str| Some(ValidationError::of_body(kind, path, words, found.clone()));
    match names.as_slice() {
        ["num_nodes"] => count(path, found),
        ["run"] | ["envs", _] if !found.is_string() => Some(ValidationError::no_text(path, found)),
        ["file_mounts" | "volumes", _] if !is_taken(found) => Some(ValidationError::no_text(path, found)),
        _ if found.is_null() => None,
        ["name" | "setup"] | ["resources", "cpus" | "memory" | "instance_type"] if !found.is_string() => {
            Some(ValidationError::no_text(path, found))
        }
        ["workdir"] | ["resources", "image_id"] if !is_taken(found) => {
            Some(ValidationError::no_text(path, found))
        }
        ["envs" | "file_mounts" | "volumes"] if !found.is_object() => {
            is("dict_type", "Input should be a valid dictionary")
        }
        ["resources"] if !found.is_object() => is("model_attributes_type", NO_OBJECT),
        ["resources", "use_spot"] => match found {
            Value::String(text) if truth(text).is_none() => is("bool_parsing", NO_BOOL),
            Value::Array(_) | Value::Object(_) => is("bool_type", "Input should be a valid boolean"),
            _ => None,
        },
        _ => None,
    }
}

/// SkyPilot has objects there too, which are fedq's to judge.
fn is_taken(found: &Value) -> bool {
    found.is_string() || found.is_object()
}

/// pydantic's words for truth.
pub fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "yes" | "t" | "y" => Some(true),
        "false" | "0" | "off" | "no" | "f" | "n" => Some(false),
        _ => None,
    }
}

/// A whole number from 1.
fn count(path: &[Value], found: &Value) -> Option<ValidationError> {
    let is = |kind: &str, words: &str| Some(ValidationError::of_body(kind, path, words, found.clone()));
    let is_whole = |number: &Number| number.as_f64().is_some_and(|number| number.fract() == 0.0);
    let is_too_small = match found {
        Value::Bool(one) => !one,
        Value::Number(number) if is_whole(number) => number.as_f64().is_some_and(|number| number < 1.0),
        Value::Number(_) => {
            let words = "Input should be a valid integer, got a number with a fractional part";
            return is("int_from_float", words);
        }
        Value::String(text) => {
            let Ok(number) = text.trim().parse::<i64>() else {
                let words = "Input should be a valid integer, unable to parse string as an integer";
                return is("int_parsing", words);
            };
            number < 1
        }
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return is("int_type", "Input should be a valid integer");
        }
    };
    let error = is("greater_than_equal", "Input should be greater than or equal to 1")?;
    is_too_small.then(|| ValidationError { ctx: Some(json!({"ge": 1})), ..error })
}
