//! How requests fail: once in the document, for all operations to refer to.

use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::reference;
use fedq_wire::problem::{Code, PROBLEM_JSON};

/// How requests fail: the status, the name under which the document has it, which codes it carries, and what it means.
pub type Way = (u16, &'static str, &'static [Code], &'static str);

pub const WAYS: [Way; 18] = [
    (
        400,
        "BadRequest",
        &[Code::BadRequest],
        "A parameter is unknown or wrong, the body is no JSON, or there is one where none is described; an empty one, `{}` and `null` are let through.",
    ),
    (401, "Unauthorized", &[Code::Unauthorized], "There is no token, or it is not valid here."),
    (
        403,
        "Forbidden",
        &[Code::Forbidden],
        "The hub's RBAC does not allow it, and the detail names the right; or, of tasks and volumes, the caller belongs to no tenant.",
    ),
    (404, "NotFound", &[Code::NotFound], "It is not there, or not for the caller to see."),
    (409, "Conflict", &[Code::Conflict], "What is there now does not allow it."),
    (
        409,
        TAKEN,
        &[Code::AlreadyExists, Code::Conflict],
        "It is there already, or what is there does not allow it.",
    ),
    (412, "PreconditionFailed", &[Code::Conflict], "It was changed since the version that `If-Match` names."),
    (
        413,
        "TooLarge",
        &[Code::TooLarge],
        "The body is larger than 2 MiB, the task file than what is read of one, or an upload than what a task may bring along.",
    ),
    (
        415,
        "UnsupportedMediaType",
        &[Code::UnsupportedMediaType],
        "The body's `Content-Type` is not what the document has: `application/json`, of an upload `application/octet-stream`.",
    ),
    (
        422,
        "Invalid",
        &[Code::Invalid],
        "The body can be read, and breaks a rule. The causes name the fields.",
    ),
    (
        422,
        REFUSED,
        &[Code::Invalid, Code::KubeconfigRefused],
        "The body is JSON, and breaks a rule, or the kubeconfig is none that fedqd may use.",
    ),
    (422, UNANSWERABLE, &[Code::Invalid], "The task has nothing of what is asked for."),
    (428, "PreconditionRequired", &[Code::PreconditionRequired], "`If-Match` is missing."),
    (429, "TooManyRequests", &[Code::TooManyRequests], "Too much at once, or more than one person may have."),
    (500, "Internal", &[Code::Internal], "fedqd could not do it. Its log says why."),
    (502, "HubRefuses", &[Code::HubUnreachable], "The hub does not take fedqd's own credential."),
    (
        503,
        "HubUnreachable",
        &[Code::HubUnreachable],
        "The hub does not answer, or fedqd has not read it yet.",
    ),
    (504, "HubTimeout", &[Code::HubTimeout], "The hub did not answer in time."),
];
/// Where something is made.
const TAKEN: &str = "Taken";
/// Of a join.
const REFUSED: &str = "KubeconfigRefused";
/// Ways into pods.
pub const ENTER: [&str; 2] = ["exec_task", "forward_port"];
/// Of logs, and of ways into pods.
const UNANSWERABLE: &str = "NoSuchNode";

/// Whether a way to fail is one of this operation, where its status is.
pub fn is_of(name: &str, status: u16, id: &str) -> bool {
    let special = match (status, id) {
        (409, "join_cluster" | "submit_app_wrapper" | "submit_task" | "create_volume" | "adopt_volume") => {
            TAKEN
        }
        (422, "join_cluster") => REFUSED,
        (422, "task_logs" | "exec_task" | "forward_port") => UNANSWERABLE,
        _ => return ![TAKEN, REFUSED, UNANSWERABLE].contains(&name),
    };
    name == special
}

pub fn responses() -> Value {
    let failure = |(status, name, codes, description): &Way| {
        let title = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
        let example = json!({"status": status, "title": title, "code": codes[0], "detail": description});
        // A reference and what is more precise here: whoever reads only the reference has one type for all.
        let mut problem = reference("schemas", "Problem");
        problem["properties"] = json!({"status": {"const": status}, "code": {"enum": codes}});
        let mut headers = Map::new();
        if matches!(status, 429 | 503) {
            headers.insert("Retry-After".to_owned(), reference("headers", "RetryAfter"));
        }
        if *status == 401 {
            headers.insert("WWW-Authenticate".to_owned(), reference("headers", "Authenticate"));
        }
        let mut response = json!({
            "description": description,
            "content": {PROBLEM_JSON: {"schema": problem, "example": example}},
        });
        if !headers.is_empty() {
            response["headers"] = headers.into();
        }
        ((*name).to_owned(), response)
    };
    Value::Object(WAYS.iter().map(failure).collect())
}
