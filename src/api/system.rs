//! The daemon itself, and who asks it.

use axum::{extract::State as Extract, http::StatusCode};

use super::{State, extract::Person, object::Object};
use fedq_wire::{Identity, Version};

/// The version of fedqd.
#[utoipa::path(get, path = "/version", tag = "system", security(()), responses((status = OK, body = Version)))]
pub async fn version() -> Object<Version> {
    Object::new(Version { version: env!("CARGO_PKG_VERSION").to_owned(), api: "v1".to_owned() })
}

/// Who the caller is. It takes a token, and no right.
#[utoipa::path(get, path = "/whoami", tag = "system", responses((status = OK, body = Identity)))]
pub async fn whoami(Person(caller): Person) -> Object<Identity> {
    Object::new(Identity { user: caller.user, groups: caller.groups })
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
