//! What k8s-cli's client is told when something is not done.

use axum::{
    Json,
    extract::rejection::BytesRejection,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::Failure;
use fedq_domain::task::{sky::TaskFileError, yaml::YamlError};
use fedq_wire::{
    k8s_cli::{Detail, Operation, ValidationError, ValidationErrors, VolumeDefinition},
    problem::Code,
};

pub type Result<T> = std::result::Result<T, Refusal>;

pub enum Refusal {
    /// 422
    Form(ValidationErrors),
    Detail(StatusCode, Detail),
    /// Nobody knows who asks: with the headers that say how to be known.
    Failure(Failure),
}

impl Refusal {
    pub fn no_user() -> Self {
        Self::Form(ValidationErrors::no_user())
    }

    pub fn bad_user() -> Self {
        Self::Form(ValidationErrors::bad_user())
    }

    pub fn field(field: &str, message: &str) -> Self {
        Self::Form(ValidationErrors::of_field(field, message))
    }

    pub fn task(error: &TaskFileError) -> Self {
        match error {
            TaskFileError::Yaml(YamlError::TooLarge(_)) => Self::too_large(&error.notes()[0].message),
            TaskFileError::Yaml(YamlError::Json(place, message)) => {
                Self::Form(ValidationErrors::not_json(&format!("{message} at {place}")))
            }
            _ => Self::Form(ValidationErrors::of_task(&error.notes())),
        }
    }

    fn too_large(why: &str) -> Self {
        Self::Detail(StatusCode::PAYLOAD_TOO_LARGE, Detail { detail: why.to_owned() })
    }

    pub fn no_task(id: &str) -> Self {
        Self::Detail(StatusCode::NOT_FOUND, Detail::no_task(id))
    }

    pub fn no_volume(id: &str) -> Self {
        Self::Detail(StatusCode::NOT_FOUND, Detail::no_volume(id))
    }

    pub fn of_task(id: &str, what: Operation, failure: Failure) -> Self {
        if failure.0.code == Code::NotFound { Self::no_task(id) } else { Self::failed(what, failure) }
    }

    pub fn of_volume(id: &str, what: Operation, failure: Failure) -> Self {
        if failure.0.code == Code::NotFound { Self::no_volume(id) } else { Self::failed(what, failure) }
    }

    /// k8s-cli knows 500 for whatever is not about the form; who may not is told so by its own status.
    pub fn failed(what: Operation, failure: Failure) -> Self {
        if matches!(failure.0.code, Code::Unauthorized | Code::Forbidden | Code::TooManyRequests) {
            return Self::Failure(failure);
        }
        let mut why = failure.0.to_string();
        if let Some(next) = &failure.0.next {
            why = format!("{why}; {next}");
        }
        Self::Detail(StatusCode::INTERNAL_SERVER_ERROR, Detail::failed(what, &why))
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<BytesRejection> for Refusal {
    fn from(rejection: BytesRejection) -> Self {
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large("the request is larger than 2 MiB"),
            status => Self::Detail(status, Detail { detail: rejection.body_text() }),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Form(errors) => (StatusCode::UNPROCESSABLE_ENTITY, Json(errors)).into_response(),
            Self::Detail(status, detail) => (status, Json(detail)).into_response(),
            // Its `detail` is what the client prints.
            Self::Failure(failure) => failure.into_response(),
        }
    }
}

/// `?all_users=`, with FastAPI's words for truth.
pub fn all_users(query: Option<&str>) -> Result<bool> {
    let mut given = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("all_users="));
    let Some(text) = given.next_back() else { return Ok(false) };
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "on" | "yes" | "t" | "y" => Ok(true),
        "false" | "0" | "off" | "no" | "f" | "n" => Ok(false),
        _ => Err(Refusal::Form(ValidationErrors::not_a_bool("all_users", text))),
    }
}

/// Tells of every field that is wrong at once, as FastAPI does, and of those that nobody knows, which it drops.
pub fn volume_definition(body: &[u8]) -> Result<VolumeDefinition> {
    const KNOWN: [&str; 4] = ["name", "size", "storage_class", "access_modes"];
    let form = |detail: Vec<ValidationError>| Refusal::Form(ValidationErrors { detail });
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Refusal::Form(ValidationErrors::not_json(&error.to_string())))?;
    let Value::Object(fields) = value else { return Err(form(vec![ValidationError::no_object(value)])) };
    let mut wrong = Vec::new();
    let mut text = |field: &str, is_needed: bool| match fields.get(field) {
        None if is_needed => {
            wrong.push(ValidationError::missing(field, json!(fields)));
            None
        }
        None => None,
        Some(Value::Null) if !is_needed => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => {
            wrong.push(ValidationError::no_text(&[json!(field)], other));
            None
        }
    };
    let (name, size) = (text("name", true), text("size", true));
    let storage_class = text("storage_class", false);
    let access_modes = match fields.get("access_modes") {
        None | Some(Value::Null) => None,
        Some(Value::Array(modes)) => {
            let mut read = Vec::new();
            for (index, mode) in modes.iter().enumerate() {
                match mode {
                    Value::String(mode) => read.push(mode.clone()),
                    other => {
                        wrong.push(ValidationError::no_text(&[json!("access_modes"), json!(index)], other));
                    }
                }
            }
            Some(read)
        }
        Some(other) => {
            wrong.push(ValidationError::no_list("access_modes", other));
            None
        }
    };
    let unknown = fields.keys().filter(|field| !KNOWN.contains(&field.as_str()));
    wrong.extend(unknown.map(|field| ValidationError::unknown(field, &KNOWN)));
    match (name, size) {
        (Some(name), Some(size)) if wrong.is_empty() => {
            Ok(VolumeDefinition { name, size, storage_class, access_modes })
        }
        _ => Err(form(wrong)),
    }
}
