//! Errors as RFC 9457 problem details.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Media type of every error.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request failed, and what to do about it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The HTTP status in words.
    pub title: String,
    /// For programs: stays the same when the words change.
    pub code: Code,
    /// What went wrong, for people.
    #[schema(required)]
    #[serde(default)]
    pub detail: String,
    /// What to do next, where something helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Single causes, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Cause {
    /// Path of the field, such as `spec.resourceAssignments[0].resources.gpu`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub field: String,
    pub message: String,
    /// Where in the body it is, from 1, where it is about the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// In that line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
}

impl Cause {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into(), line: None, column: None }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    /// Someone else changed it since it was read.
    Conflict,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The body is not what its `Content-Type` has to say.
    UnsupportedMediaType,
    /// What was sent breaks a rule: of this document, of the hub's schema, or of a webhook.
    Invalid,
    KubeconfigRefused,
    TooLarge,
    /// `If-Match` is missing.
    PreconditionRequired,
    TooManyRequests,
    HubUnreachable,
    HubTimeout,
    Internal,
    /// From a newer server.
    #[serde(other)]
    Other,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.detail.is_empty() { &self.title } else { &self.detail })?;
        for cause in &self.causes {
            write!(
                f,
                "\n  {}{}{}",
                cause.field,
                if cause.field.is_empty() { "" } else { ": " },
                cause.message
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
