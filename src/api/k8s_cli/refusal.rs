//! What k8s-cli's client is told when something is not done.

use crate::Failure;
use axum::{
    Json,
    extract::rejection::BytesRejection,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use fedq_domain::task::{sky::TaskFileError, yaml::YamlError};
use fedq_wire::{
    k8s_cli::{Detail, Operation, ValidationErrors},
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

    /// `text`: of the task.
    pub fn task(error: &TaskFileError, text: &str) -> Self {
        match error {
            TaskFileError::Yaml(YamlError::TooLarge(_)) => Self::too_large(&error.notes()[0].message),
            TaskFileError::Yaml(YamlError::Json(_, message)) => Self::not_json(text, message),
            _ => {
                let task = serde_json::from_str(text).unwrap_or_default();
                Self::Form(ValidationErrors::of_task(&error.notes(), &task))
            }
        }
    }

    pub fn not_json(text: &str, why: &str) -> Self {
        Self::Form(ValidationErrors::not_json(text, why))
    }

    /// No such path.
    pub fn nothing() -> Self {
        Self::Detail(StatusCode::NOT_FOUND, Detail { detail: "Not Found".to_owned() })
    }

    /// No such method.
    pub fn method() -> Self {
        Self::Detail(StatusCode::METHOD_NOT_ALLOWED, Detail { detail: "Method Not Allowed".to_owned() })
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
