//! What a failed request means for the next step.

use std::{error::Error as StdError, time::Duration};

use kube::{Error, core::Status};

/// What to do about a failed request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RetryClass {
    /// Read again, decide again.
    Conflict,
    AlreadyExists,
    NotFound,
    /// The version asked for is no longer kept: list again.
    Gone,
    /// RBAC: someone has to grant it.
    Forbidden,
    /// An admission webhook or policy said no; its own message.
    DeniedByWebhook(String),
    /// A webhook that must be asked does not answer.
    WebhookDown,
    Unauthorized,
    Throttled {
        retry_after: Option<Duration>,
    },
    /// The server answers with 5xx or not at all.
    Unreachable,
    Timeout,
    /// The request or the answer makes no sense: sending it again changes nothing.
    Invalid,
}

/// A failed request, in the server's own words where it answered.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub class: RetryClass,
    pub message: String,
    /// What the server answered, for its causes.
    pub status: Option<Box<Status>>,
}

/// What the transport refuses to hand up as an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("the server redirects to another address, which fedq does not follow: use that address")]
    Redirect,
    #[error("the server is busy")]
    Busy { retry_after: Option<Duration> },
    #[error("the server's answer holds JSON as a text that would be read as JSON once more")]
    Nested,
}

impl ApiError {
    pub fn new(class: RetryClass, message: impl AsRef<str>) -> Self {
        Self { class, message: clean(message.as_ref()), status: None }
    }

    pub fn timeout(deadline: Duration) -> Self {
        Self::new(RetryClass::Timeout, format!("no answer within {} s", deadline.as_secs_f32()))
    }

    /// An answer other than 200, read by hand.
    pub(crate) fn from_answer(code: u16, body: &[u8]) -> Self {
        let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
            // Not from the API server itself: a proxy, or a path it does not know.
            Status::failure(String::from_utf8_lossy(body).trim(), "")
        });
        Self::from_status(status.with_code(code).boxed())
    }

    /// Whether the same request may succeed later without anyone doing anything.
    pub fn is_transient(&self) -> bool {
        match self.class {
            RetryClass::Throttled { .. }
            | RetryClass::Unreachable
            | RetryClass::Timeout
            | RetryClass::WebhookDown => true,
            RetryClass::Conflict
            | RetryClass::AlreadyExists
            | RetryClass::NotFound
            | RetryClass::Gone
            | RetryClass::Forbidden
            | RetryClass::DeniedByWebhook(_)
            | RetryClass::Unauthorized
            | RetryClass::Invalid => false,
        }
    }

    pub fn is_forbidden(&self) -> bool {
        self.class == RetryClass::Forbidden
    }

    /// Why a write that was understood was not taken, in a word; nothing where it was not answered, or what is
    /// written is to be decided anew.
    pub fn refusal(&self) -> Option<&'static str> {
        match self.class {
            RetryClass::Forbidden => Some("Forbidden"),
            RetryClass::Unauthorized => Some("Unauthorized"),
            RetryClass::DeniedByWebhook(_) => Some("DeniedByWebhook"),
            RetryClass::WebhookDown => Some("WebhookDown"),
            RetryClass::Throttled { .. } => Some("Throttled"),
            RetryClass::Invalid => Some("Invalid"),
            RetryClass::Conflict
            | RetryClass::AlreadyExists
            | RetryClass::NotFound
            | RetryClass::Gone
            | RetryClass::Unreachable
            | RetryClass::Timeout => None,
        }
    }

    /// Fields that another manager owns, such as `.spec.nominalResources.cpu`, with the server's words.
    pub fn conflicting_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let causes =
            self.status.iter().flat_map(|status| &status.details).flat_map(|details| &details.causes);
        causes
            .filter(|cause| cause.reason == "FieldManagerConflict")
            .map(|cause| (cause.field.as_str(), cause.message.as_str()))
    }

    fn from_status(status: Box<Status>) -> Self {
        let class = classify(&status);
        let message = if status.message.is_empty() {
            format!("the server answered {} {}", status.code, status.reason)
        } else {
            status.message.clone()
        };
        Self { class, message: clean(&message), status: Some(status) }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Api(status) => Self::from_status(status),
            Error::Service(source) => Self::from_service(source.as_ref()),
            Error::HyperError(source) => Self::new(RetryClass::Unreachable, chain(&source)),
            Error::ReadEvents(source) => Self::new(RetryClass::Unreachable, chain(&source)),
            Error::Auth(source) => Self::new(RetryClass::Unauthorized, chain(&source)),
            // The reader's message may quote the object, which may be a Secret.
            Error::SerdeError(source) => Self::new(
                RetryClass::Invalid,
                format!("the server's answer cannot be read (at byte {})", source.column()),
            ),
            other => Self::new(RetryClass::Invalid, chain(&other)),
        }
    }
}

impl ApiError {
    fn from_service(source: &(dyn StdError + Send + Sync + 'static)) -> Self {
        if let Some(refused) = source.downcast_ref::<Refused>() {
            let class = match refused {
                Refused::Redirect | Refused::Nested => RetryClass::Invalid,
                Refused::Busy { retry_after } => RetryClass::Throttled { retry_after: *retry_after },
            };
            return Self::new(class, refused.to_string());
        }
        if let Some(error) = source.downcast_ref::<Self>() {
            return error.clone();
        }
        // An impersonating client wraps the errors of the one below it.
        if let Some(Error::Api(status)) = source.downcast_ref::<Error>() {
            return Self::from_status(status.clone());
        }
        if source.is::<tower::timeout::error::Elapsed>() {
            return Self::new(RetryClass::Timeout, "the server did not answer in time");
        }
        Self::new(RetryClass::Unreachable, chain(source))
    }

    /// A body that broke off or grew too large.
    pub(crate) fn from_body(error: &(dyn StdError + 'static)) -> Self {
        Self::new(RetryClass::Unreachable, format!("the answer broke off: {}", chain(error)))
    }
}

fn classify(status: &Status) -> RetryClass {
    let seconds = |status: &Status| {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (seconds != 0).then(|| Duration::from_secs(seconds.into()))
    };
    match status.code {
        401 => RetryClass::Unauthorized,
        403 if status.message.starts_with("admission webhook ") => {
            RetryClass::DeniedByWebhook(clean(webhook_message(&status.message)))
        }
        403 if let Some(message) = policy_message(&status.message) => {
            RetryClass::DeniedByWebhook(clean(message))
        }
        403 => RetryClass::Forbidden,
        404 => RetryClass::NotFound,
        409 if status.reason == "AlreadyExists" => RetryClass::AlreadyExists,
        409 => RetryClass::Conflict,
        410 => RetryClass::Gone,
        429 => RetryClass::Throttled { retry_after: seconds(status) },
        408 | 504 => RetryClass::Timeout,
        500 if status.message.contains("failed calling webhook") => RetryClass::WebhookDown,
        // A webhook may deny with any code.
        _ if status.message.starts_with("admission webhook ") => {
            RetryClass::DeniedByWebhook(clean(webhook_message(&status.message)))
        }
        500 if status.message.starts_with("failed to create typed patch object") => RetryClass::Invalid,
        500..=599 => RetryClass::Unreachable,
        _ => RetryClass::Invalid,
    }
}

fn webhook_message(message: &str) -> &str {
    message.split_once("denied the request: ").map_or(message, |(_, reason)| reason)
}

/// Of a ValidatingAdmissionPolicy (kubernetes, `plugin/policy/validating/dispatcher.go`).
fn policy_message(message: &str) -> Option<&str> {
    let (before, reason) = message.split_once(" denied request: ")?;
    before.contains("ValidatingAdmissionPolicy '").then_some(reason)
}

/// An error with its causes, each said once: libraries tend to repeat the cause in their own message.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// A server's text as it may be shown: no control characters that a terminal would obey, and not
/// longer than a person reads.
pub(crate) fn clean(text: &str) -> String {
    const LONGEST: usize = 2048;
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut clean: String = shown.take(LONGEST).collect();
    if clean.len() < text.len() && text.chars().nth(LONGEST).is_some() {
        clean.push('…');
    }
    clean
}
