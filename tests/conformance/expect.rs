//! Compares an answer with what was expected of it. Objects may hold more than expected, arrays may not; a few words
//! in the expectation stand for what differs from run to run.

use serde_json::{Value, json};

const WORD: &str = "$expect";

/// Something is there: not null, not empty.
pub fn any() -> Value {
    json!({WORD: "any"})
}

/// No such field.
pub fn absent() -> Value {
    json!({WORD: "absent"})
}

/// RFC 3339 in whole seconds, as metadata has it.
pub fn time() -> Value {
    json!({WORD: "time"})
}

/// A text that has this in it.
pub fn has(text: &str) -> Value {
    json!({WORD: "has", "value": text})
}

/// No field beyond these; fields within fields may again hold more.
pub fn only(fields: Value) -> Value {
    json!({WORD: "only", "value": fields})
}

/// An array that has, among others and in any order, one element for each of these.
pub fn with(elements: Value) -> Value {
    json!({WORD: "with", "value": elements})
}

/// What differs, one line each, with the path to it.
pub fn differences(expected: &Value, found: Option<&Value>) -> Vec<String> {
    let mut differences = Vec::new();
    compare("", expected, found, &mut differences);
    differences
}

fn compare(path: &str, expected: &Value, found: Option<&Value>, out: &mut Vec<String>) {
    if let Some(word) = expected.get(WORD).and_then(Value::as_str) {
        return compare_word(path, word, &expected["value"], found, out);
    }
    let Some(found) = found else {
        out.push(format!("{path}: missing, expected {expected}"));
        return;
    };
    match (expected, found) {
        (Value::Object(fields), Value::Object(_)) => {
            for (name, value) in fields {
                compare(&format!("{path}/{name}"), value, found.get(name), out);
            }
        }
        (Value::Array(wanted), Value::Array(there)) if wanted.len() == there.len() => {
            for (at, (one, other)) in wanted.iter().zip(there).enumerate() {
                compare(&format!("{path}/{at}"), one, Some(other), out);
            }
        }
        _ if expected == found => {}
        _ => out.push(format!("{path}: {}, expected {expected}", short(found))),
    }
}

fn compare_word(path: &str, word: &str, value: &Value, found: Option<&Value>, out: &mut Vec<String>) {
    let text = found.and_then(Value::as_str).unwrap_or_default();
    let fits = match word {
        "any" => found.is_some_and(|found| !found.is_null() && found != ""),
        "absent" => found.is_none(),
        "time" => text.len() == 20 && text.parse::<jiff::Timestamp>().is_ok(),
        "has" => value.as_str().is_some_and(|part| text.contains(part)),
        "only" => {
            compare(path, value, found, out);
            let names = |object: &Value| object.as_object().map(|fields| fields.keys().cloned().collect());
            let known: Vec<String> = names(value).unwrap_or_default();
            let there: Vec<String> = found.and_then(names).unwrap_or_default();
            there.iter().all(|name| known.contains(name))
        }
        "with" => {
            let there = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let wanted = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let missing = wanted
                .iter()
                .filter(|one| !there.iter().any(|other| differences(one, Some(other)).is_empty()));
            let before = out.len();
            out.extend(missing.map(|one| format!("{path}: no element like {one}")));
            before == out.len() || return
        }
        _ => false,
    };
    if !fits {
        let found = found.map_or_else(|| "missing".to_owned(), short);
        out.push(format!("{path}: {found}, expected {word} {value}"));
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= 600 { text } else { format!("{}…", text.chars().take(600).collect::<String>()) }
}
