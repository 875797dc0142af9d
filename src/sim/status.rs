//! Answers that are errors, in the words of a real API server.

use axum::body::Body;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use super::kind::Kind;
use super::kueue;
use super::protobuf;

/// A `Status` that says no.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: StatusCode,
    pub reason: &'static str,
    pub message: String,
    pub details: Value,
}

/// Kept among the details: with what token a list that cannot go on as it began can go on.
const CONTINUE: &str = "continue";

impl Refusal {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    /// An error that a real server did not foresee: without a reason.
    pub fn unforeseen(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    pub fn with_code(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(code, reason, message)
    }

    fn of(mut self, kind: &Kind, name: &str) -> Self {
        self.details = json!({"name": name, "group": kind.group, "kind": kind.plural});
        if kind.group.is_empty() {
            self.details = json!({"name": name, "kind": kind.plural});
        }
        self
    }

    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub fn forbidden(message: String, kind: &str, group: &str, name: &str) -> Self {
        let mut refusal = Self::new(StatusCode::FORBIDDEN, "Forbidden", message);
        refusal.details = json!({"kind": kind});
        if !name.is_empty() {
            refusal.details["name"] = json!(name);
        }
        if !group.is_empty() {
            refusal.details["group"] = json!(group);
        }
        refusal
    }

    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).of(kind, name)
    }

    /// A path of a group that is served, which names nothing.
    pub fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        let mut refusal = Self::new(StatusCode::NOT_FOUND, "NotFound", message);
        refusal.details = json!({});
        refusal
    }

    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).of(kind, name)
    }

    pub fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(StatusCode::CONFLICT, "Conflict", message).of(kind, name)
    }

    pub fn apply_conflict(message: String, causes: &Value) -> Self {
        let mut refusal = Self::new(StatusCode::CONFLICT, "Conflict", message);
        refusal.details = json!({"causes": causes});
        refusal
    }

    /// A deletion that holds for another object than the one that is there.
    pub fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let mut refusal = Self::conflict(kind, name, why);
        refusal.message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        refusal.details["kind"] = json!(kind.kind);
        refusal
    }

    pub fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let mut refusal = Self::invalid_named(&kind.qualified(), name, causes);
        if !kind.group.is_empty() {
            refusal.details["group"] = json!(kind.group);
        }
        refusal.details["kind"] = json!(kind.kind);
        refusal
    }

    /// Of what stands in the query or in the options of a deletion.
    pub fn invalid_options(kind: &str, causes: &[Cause]) -> Self {
        let mut refusal = Self::invalid_named(&format!("{kind}.meta.k8s.io"), "", causes);
        refusal.details["group"] = json!("meta.k8s.io");
        refusal.details["kind"] = json!(kind);
        refusal
    }

    /// A patch that makes something of the object that cannot be read.
    pub fn invalid_patch(patched: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {:?}: {why}", patched.to_string());
        let cause = Cause::new("FieldValueInvalid", "patch", message);
        Self::invalid_named("", "", &[cause])
    }

    pub fn invalid_named(what: &str, name: &str, causes: &[Cause]) -> Self {
        let texts: Vec<String> =
            causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let why = match texts.as_slice() {
            [one] => one.clone(),
            _ => format!("[{}]", texts.join(", ")),
        };
        let message = format!("{what} \"{name}\" is invalid: {why}");
        let mut refusal = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        refusal.details = json!({});
        if !name.is_empty() {
            refusal.details["name"] = json!(name);
        }
        refusal.details["causes"] = causes.iter().map(Cause::json).collect();
        refusal
    }

    /// Nothing new comes into a namespace that is to go.
    pub fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.resource());
        let mut refusal = Self::new(StatusCode::FORBIDDEN, "Forbidden", message).of(kind, name);
        refusal.details["causes"] = json!([{
            "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        refusal
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub fn method(what: &str) -> Self {
        let message = format!("the server does not allow this method on the requested resource{what}");
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message);
        refusal.details = json!({});
        refusal
    }

    pub fn media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub fn not_acceptable(given: &[&str]) -> Self {
        let message = format!("only the following media types are accepted: {}", given.join(", "));
        Self::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The continue token outlived what it continues.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    /// The same, with another token that still goes on.
    pub fn expired_at(message: impl Into<String>, next: &str) -> Self {
        let mut refusal = Self::expired(message);
        refusal.details = json!({ CONTINUE: next });
        refusal
    }

    pub fn too_old(version: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {version} ({oldest})"))
    }

    pub fn too_large(version: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {version}, current: {current}");
        let mut refusal = Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message);
        refusal.details = json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        });
        refusal
    }

    pub fn busy(retry_after: u64) -> Self {
        let message = "the server has received too many requests and has asked us to try again later";
        let mut refusal = Self::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message);
        refusal.details = json!({"retryAfterSeconds": retry_after});
        refusal
    }

    pub fn internal(message: impl Into<String>) -> Self {
        let message = format!("Internal error occurred: {}", message.into());
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// A webhook said no.
    pub fn denied(webhook: &str, code: u16, forbidden: bool, why: &str) -> Self {
        let message = format!("admission webhook \"{webhook}\" denied the request{why}");
        Self::with_code(code, if forbidden { "Forbidden" } else { "" }, message)
    }

    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
        });
        let next = self.details.get(CONTINUE);
        if let Some(next) = next {
            status["metadata"][CONTINUE] = next.clone();
        }
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() && next.is_none() {
            status["details"] = self.details.clone();
        }
        status["code"] = json!(self.code.as_u16());
        status
    }

    /// In the form that was asked for first.
    pub fn response(&self, accept: &str) -> Response<Body> {
        const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
        let (body, kind) = if accept.starts_with(PROTOBUF) {
            (protobuf::encode_status(&self.status()), PROTOBUF)
        } else {
            (self.status().to_string().into_bytes(), "application/json")
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.code;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        if let Some(seconds) = self.details.get("retryAfterSeconds").and_then(Value::as_u64) {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
        }
        response
    }
}

/// What is wrong with one field.
///
/// Of the form of `metav1.StatusCause`.
#[derive(Clone, Debug)]
pub struct Cause {
    pub reason: &'static str,
    pub field: String,
    /// With its kind: `Invalid value: "x": must be …`.
    pub message: String,
}

impl Cause {
    pub fn new(reason: &'static str, field: &str, message: impl Into<String>) -> Self {
        Self { reason, field: field.to_owned(), message: message.into() }
    }

    fn json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

/// The words of a webhook that is part of this process.
impl From<kueue::Denial> for Refusal {
    fn from(denial: kueue::Denial) -> Self {
        let code = StatusCode::from_u16(denial.code).expect("the code of a refusal");
        Self::new(code, denial.reason, denial.message)
    }
}
