//! What needs no login.

use axum::{extract::State as Extract, http::StatusCode};

use super::{State, object::Object};
use fedq_wire::Version;

/// The version of fedqd.
#[utoipa::path(get, path = "/version", tag = "system", security(()), responses((status = OK, body = Version)))]
pub async fn version() -> Object<Version> {
    Object::new(Version { version: env!("CARGO_PKG_VERSION").to_owned(), api: "v1".to_owned() })
}

/// The process answers.
pub async fn healthz() -> &'static str {
    "ok"
}

/// The controllers have published something to show.
pub async fn readyz(Extract(state): Extract<State>) -> (StatusCode, &'static str) {
    if state.overview().revision == 0 {
        (StatusCode::SERVICE_UNAVAILABLE, "starting: the hub is not read yet")
    } else {
        (StatusCode::OK, "ok")
    }
}
