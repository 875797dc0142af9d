//! FastAPI's answers to requests that have not the right form.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::USER_HEADER;
use fedq_domain::task::sky::Note;

/// 422: the request has not the right form.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ValidationErrors {
    pub detail: Vec<ValidationError>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ValidationError {
    #[serde(rename = "type")]
    pub kind: String,
    /// `["body", "resources", "cpus"]`; positions in lists are numbers.
    pub loc: Vec<Value>,
    pub msg: String,
    pub input: Value,
}

/// Of one field of a request's body, in pydantic's words.
impl ValidationError {
    pub fn no_object(body: Value) -> Self {
        let words = "Input should be a valid dictionary or object to extract fields from";
        Self::of("model_attributes_type", &[], words, body)
    }

    pub fn missing(field: &str, body: Value) -> Self {
        Self::of("missing", &[json!(field)], "Field required", body)
    }

    pub fn no_text(field: &[Value], found: &Value) -> Self {
        Self::of("string_type", field, "Input should be a valid string", found.clone())
    }

    pub fn no_list(field: &str, found: &Value) -> Self {
        Self::of("list_type", &[json!(field)], "Input should be a valid list", found.clone())
    }

    /// What it holds is not repeated: nobody knows whether that is a secret.
    pub fn unknown(field: &str, known: &[&str]) -> Self {
        let words = format!("Value error, there is no such field; there are {}", known.join(", "));
        Self::of("value_error", &[json!(field)], &words, Value::Null)
    }

    fn of(kind: &str, field: &[Value], words: &str, input: Value) -> Self {
        let loc = std::iter::once(json!("body")).chain(field.iter().cloned()).collect();
        Self { kind: kind.to_owned(), loc, msg: words.to_owned(), input }
    }
}

impl ValidationErrors {
    pub fn no_user() -> Self {
        Self::missing(&["header", USER_HEADER], Value::Null)
    }

    /// An empty name, which is nobody's.
    pub fn bad_user() -> Self {
        Self::one(
            "value_error",
            &["header", USER_HEADER],
            "Value error, this is no name of a user",
            Value::Null,
        )
    }

    pub fn not_json(why: &str) -> Self {
        Self::one("json_invalid", &["body"], &format!("JSON decode error: {why}"), json!({}))
    }

    pub fn not_a_bool(parameter: &str, text: &str) -> Self {
        const WHY: &str = "Input should be a valid boolean, unable to interpret input";
        Self::one("bool_parsing", &["query", parameter], WHY, json!(text))
    }

    fn missing(loc: &[&str], input: Value) -> Self {
        Self::one("missing", loc, "Field required", input)
    }

    fn one(kind: &str, loc: &[&str], msg: &str, input: Value) -> Self {
        let loc = loc.iter().map(|part| json!(part)).collect();
        Self { detail: vec![ValidationError { kind: kind.to_owned(), loc, msg: msg.to_owned(), input }] }
    }

    /// What is wrong with a task. The task itself is not repeated: there may be secrets in it.
    pub fn of_task(problems: &[Note]) -> Self {
        let detail = problems.iter().map(|note| {
            let missing = note.path.is_empty() && note.message.starts_with("there is no `run`");
            if missing {
                return Self::missing(&["body", "run"], Value::Null).detail.remove(0);
            }
            ValidationError {
                kind: "value_error".to_owned(),
                loc: std::iter::once(json!("body")).chain(parts(&note.path)).collect(),
                msg: format!("Value error, {}", note.message),
                input: Value::Null,
            }
        });
        Self { detail: detail.collect() }
    }

    pub fn of_field(field: &str, message: &str) -> Self {
        Self::one("value_error", &["body", field], &format!("Value error, {message}"), Value::Null)
    }
}

/// `resources.any_of[1].cpus` → `resources`, `any_of`, 1, `cpus`. A quoted key is one part.
fn parts(path: &str) -> Vec<Value> {
    let (mut parts, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let end;
        if let Some(quoted) = rest.strip_prefix("[\"") {
            end = quoted.find("\"]").map_or(rest.len(), |at| at + 4);
            parts.push(json!(rest[..end].trim_start_matches("[\"").trim_end_matches("\"]")));
        } else if let Some(index) = rest.strip_prefix('[') {
            end = index.find(']').map_or(rest.len(), |at| at + 2);
            let number = rest[..end].trim_matches(['[', ']']);
            parts.push(number.parse::<u64>().map_or_else(|_| json!(number), |number| json!(number)));
        } else {
            end = rest.find(['.', '[']).unwrap_or(rest.len());
            parts.push(json!(&rest[..end]));
        }
        rest = &rest[end..];
    }
    parts
}
