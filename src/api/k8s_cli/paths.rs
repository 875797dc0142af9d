//! What is told of paths that k8s-cli's server has only without a slash at their end, or has not at all.

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode, header, uri::Authority},
    response::{IntoResponse, Response},
};

use super::refusal::Refusal;
use crate::connections::Encrypted;

/// By which whoever ends TLS before fedqd says how they were asked.
const FORWARDED: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// `None`: the path is none of its.
pub fn nowhere(request: &Request) -> Option<Response> {
    let path = request.uri().path();
    if !matches!(path.split('/').nth(1), Some("tasks" | "volumes" | "docs" | "openapi.json" | "redoc")) {
        return None;
    }
    let shorter = path.trim_end_matches('/');
    let moved = (shorter != path && is_route(shorter)).then(|| moved(request, shorter)).flatten();
    Some(moved.unwrap_or_else(|| Refusal::nothing().into_response()))
}

/// Whatever methods it takes.
fn is_route(path: &str) -> bool {
    match path.split('/').skip(1).collect::<Vec<_>>().as_slice() {
        ["tasks" | "volumes" | "docs" | "openapi.json" | "redoc"] => true,
        ["tasks" | "volumes", id] | ["tasks", id, "stop" | "logs"] => !id.is_empty(),
        _ => false,
    }
}

/// To the same place as a whole URL, as Starlette writes it.
fn moved(request: &Request, path: &str) -> Option<Response> {
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let place = format!("{}{path}{query}", origin(request).unwrap_or_default());
    let place = HeaderValue::try_from(place).ok()?;
    Some((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place)]).into_response())
}

fn origin(request: &Request) -> Option<String> {
    let text = |name: HeaderName| request.headers().get(name)?.to_str().ok();
    // HTTP/2 has it with the path.
    let host = request.uri().authority().map(Authority::as_str).or_else(|| text(header::HOST))?;
    let own = if request.extensions().get::<Encrypted>().is_some() { "https" } else { "http" };
    let scheme = text(FORWARDED).filter(|scheme| matches!(*scheme, "http" | "https")).unwrap_or(own);
    Some(format!("{scheme}://{host}"))
}
