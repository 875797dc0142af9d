//! FastAPI's answers to requests that have not the right form, as 0.118 with pydantic 2.11 gives them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{USER_HEADER, json_error, model};
use fedq_domain::task::sky::Note;

/// 422: the request has not the right form.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ValidationErrors {
    pub detail: Vec<ValidationError>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct ValidationError {
    #[serde(rename = "type")]
    pub kind: String,
    /// `["body", "resources", "cpus"]`; positions in lists are numbers.
    pub loc: Vec<Value>,
    pub msg: String,
    pub input: Value,
    /// What the message is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctx: Option<Value>,
}

const NOT_JSON: &str = "json_invalid";

/// Of one field of a request's body, in pydantic's words.
impl ValidationError {
    pub fn missing(field: &str, body: Value) -> Self {
        Self::of_body("missing", &[json!(field)], "Field required", body)
    }

    pub fn no_text(field: &[Value], found: &Value) -> Self {
        Self::of_body("string_type", field, "Input should be a valid string", found.clone())
    }

    pub fn no_list(field: &str, found: &Value) -> Self {
        Self::of_body("list_type", &[json!(field)], "Input should be a valid list", found.clone())
    }

    /// What it holds is not repeated: nobody knows whether that is a secret.
    pub fn unknown(field: &str, known: &[&str]) -> Self {
        let words = format!("Value error, there is no such field; there are {}", known.join(", "));
        Self::of_body("value_error", &[json!(field)], &words, Value::Null)
    }

    pub(super) fn of_body(kind: &str, field: &[Value], words: &str, input: Value) -> Self {
        let loc = std::iter::once(json!("body")).chain(field.iter().cloned()).collect();
        Self { kind: kind.to_owned(), loc, msg: words.to_owned(), input, ctx: None }
    }
}

impl From<ValidationError> for ValidationErrors {
    fn from(error: ValidationError) -> Self {
        Self { detail: vec![error] }
    }
}

impl ValidationErrors {
    pub fn no_user() -> Self {
        Self::one("missing", &["header", USER_HEADER], "Field required", Value::Null)
    }

    /// An empty name, which is nobody's.
    pub fn bad_user() -> Self {
        let words = "Value error, this is no name of a user";
        Self::one("value_error", &["header", USER_HEADER], words, Value::Null)
    }

    pub fn no_body() -> Self {
        Self::one("missing", &["body"], "Field required", Value::Null)
    }

    pub fn no_object(body: Value) -> Self {
        ValidationError::of_body("model_attributes_type", &[], model::NO_OBJECT, body).into()
    }

    /// `why` it is not taken, where Python would: a key that is there twice, or too deep a nest.
    pub fn not_json(text: &str, why: &str) -> Self {
        let Some((at, told)) = json_error::of(text) else {
            let words = format!("Value error, {why}");
            return ValidationError::of_body("value_error", &[], &words, Value::Null).into();
        };
        let mut error = ValidationError::of_body(NOT_JSON, &[json!(at)], "JSON decode error", json!({}));
        error.ctx = Some(json!({"error": told}));
        error.into()
    }

    pub fn not_a_bool(parameter: &str, text: &str) -> Self {
        Self::one("bool_parsing", &["query", parameter], model::NO_BOOL, json!(text))
    }

    fn one(kind: &str, loc: &[&str], msg: &str, input: Value) -> Self {
        let loc = loc.iter().map(|part| json!(part)).collect();
        Self::from(ValidationError { kind: kind.to_owned(), loc, msg: msg.to_owned(), input, ctx: None })
    }

    /// What is wrong with a task, which is told in pydantic's words where k8s-cli's model refuses the same.
    pub fn of_task(problems: &[Note], task: &Value) -> Self {
        if task.is_null() {
            return Self::no_body();
        }
        if !task.is_object() {
            // A list of something, or a text with fields, may be a task with secrets.
            let may_be = task.as_array().is_some_and(|list| !list.is_empty())
                || task.as_str().is_some_and(|text| text.contains(':'));
            return Self::no_object(if may_be { Value::Null } else { task.clone() });
        }
        let mut detail: Vec<_> = problems.iter().map(|note| of_note(note, task)).collect();
        detail.sort_by_key(|error| model::position(error.loc.get(1)));
        Self { detail }
    }

    pub fn of_field(field: &str, message: &str) -> Self {
        let words = format!("Value error, {message}");
        ValidationError::of_body("value_error", &[json!(field)], &words, Value::Null).into()
    }

    /// Both at once, but that a body is no JSON is told alone: nothing else was looked at.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        if other.detail.iter().any(|error| error.kind == NOT_JSON) {
            return other;
        }
        self.detail.extend(other.detail);
        self
    }
}

fn of_note(note: &Note, task: &Value) -> ValidationError {
    if note.path.is_empty() && note.message.starts_with("there is no `run`") {
        return ValidationError::missing("run", without_secrets(task));
    }
    let path = parts(&note.path);
    let found = path.iter().try_fold(task, |found, part| match part {
        Value::String(field) => found.get(field),
        part => found.get(usize::try_from(part.as_u64()?).ok()?),
    });
    let judged = found.and_then(|found| model::error(&path, found));
    judged.unwrap_or_else(|| {
        let words = format!("Value error, {}", note.message);
        // Nobody knows whether what is there is a secret.
        ValidationError::of_body("value_error", &path, &words, Value::Null)
    })
}

/// They are in no answer, not even in one to whoever sent them.
fn without_secrets(task: &Value) -> Value {
    let mut task = task.clone();
    if let Some(fields) = task.as_object_mut() {
        fields.shift_remove("secrets");
    }
    task
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
