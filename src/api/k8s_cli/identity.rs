//! Who calls, in k8s-cli's way: `X-User` says so, and a token proves it, as Bearer or as the password of the
//! URL. With `api.insecureXUser` the header alone is believed, for what is that person's own.

use std::net::IpAddr;

use axum::{
    extract::{FromRequestParts, Request, State as Extract},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header, request::Parts, uri::Authority},
    middleware::Next,
    response::Response,
};
use k8s_openapi::ByteString;
use serde_json::json;

use super::refusal::Refusal;
use crate::{
    Failure, State, extract,
    owner::{Owner, Proof, UnprovenNames},
};
use fedq_k8s::{client::Caller, session::Permission};
use fedq_wire::{k8s_cli::USER_HEADER, problem::Code};

const MAX_USER: usize = 253;
const AUTHENTICATED: &str = "system:authenticated";
/// On every answer while names are believed.
const INSECURE: &str = "x-fedq-insecure";

pub struct User(pub Owner);

impl FromRequestParts<State> for User {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Refusal> {
        let named = parts.headers.get(USER_HEADER).ok_or_else(Refusal::no_user)?;
        let named = named.to_str().ok().filter(|name| is_name(name)).map(str::to_owned);
        let named = named.ok_or_else(Refusal::bad_user)?;
        if is_unproven(state, &parts.headers) && !is_from_here(&parts.uri, &parts.headers) {
            let detail = "without a token, X-User is believed only of requests to this machine, and the Host or Origin of \
                          this one names another";
            let refused = Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, detail);
            return Err(refused
                .next("ask localhost, 127.0.0.1 or [::1], or give a token as the password of the URL")
                .into());
        }
        Ok(Self(known(state, &parts.headers, named).await?))
    }
}

/// Who asks with these headers in the name of `named`.
pub async fn known(state: &State, headers: &HeaderMap, named: String) -> Result<Owner, Failure> {
    let Known { caller, proof, through } = caller(state, headers, named).await?;
    Ok(Owner { proof, through, ..Owner::of(state, caller)? })
}

/// Whether the token is anybody's, where a name alone is not believed.
pub async fn authenticate(state: &State, headers: &HeaderMap) -> Result<(), Failure> {
    if !is_unproven(state, headers) {
        state.authenticator.caller(&state.hub, &token(headers)?).await?;
    }
    Ok(())
}

fn token(headers: &HeaderMap) -> Result<String, Failure> {
    match password(headers) {
        Some(password) => Ok(password),
        None => Ok(extract::token(headers)?.to_owned()),
    }
}

struct Known {
    caller: Caller,
    proof: Proof,
    /// Whose token it is, where that person acts as the caller.
    through: Option<String>,
}

/// An empty one would be everybody's tasks with k8s-cli's own server.
fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= MAX_USER && !name.chars().any(char::is_control)
}

async fn caller(state: &State, headers: &HeaderMap, named: String) -> Result<Known, Failure> {
    if is_unproven(state, headers) {
        // Names that Kubernetes itself gives out are nobody's to take.
        if named.starts_with("system:") {
            let detail = format!("`{named}` is a name of Kubernetes' own: it takes a token");
            return Err(Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, detail));
        }
        return Ok(Known { caller: plain(named), proof: Proof::Name, through: None });
    }
    let caller = state.authenticator.caller(&state.hub, &token(headers)?).await?;
    if caller.user == named {
        return Ok(Known { caller, proof: Proof::Token, through: None });
    }
    state.authenticator.allow(&state.hub, &caller, &Permission::impersonate(&named)).await?;
    Ok(Known { caller: plain(named), proof: Proof::Token, through: Some(caller.user) })
}

/// Whether a name alone is believed of these headers.
fn is_unproven(state: &State, headers: &HeaderMap) -> bool {
    is_insecure(state) && !headers.contains_key(header::AUTHORIZATION)
}

fn is_insecure(state: &State) -> bool {
    state.unproven_names != UnprovenNames::Refused
}

/// Whether the request is for this machine by name. A browser here also carries what pages of others say: one whose name is
/// made to lead to 127.0.0.1 (DNS rebinding) still sends its own name, as Host and as Origin.
fn is_from_here(uri: &Uri, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let mut hosts = headers.get_all(header::HOST).iter();
    // HTTP/2 has it with the path.
    let host = match (uri.authority(), hosts.next(), hosts.next()) {
        (Some(authority), _, None) => Some(authority.as_str()),
        (None, Some(host), None) => host.to_str().ok(),
        _ => None,
    };
    let Some(host) = host.filter(|host| is_loopback(host)) else { return false };
    match headers.get_all(header::ORIGIN).iter().count() {
        0 => true,
        1 => text(header::ORIGIN)
            .and_then(|origin| origin.split_once("://"))
            .is_some_and(|(_, origin)| origin.eq_ignore_ascii_case(host)),
        _ => false,
    }
}

/// A name or address that leads nowhere else, with or without a port.
fn is_loopback(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    if host.contains('@') {
        return false;
    }
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

fn plain(user: String) -> Caller {
    Caller { user, groups: vec![AUTHENTICATED.to_owned()], ..Caller::default() }
}

/// Of `http://anyone:TOKEN@host`, from which clients make `Authorization: Basic`.
fn password(headers: &HeaderMap) -> Option<String> {
    let (scheme, encoded) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    // Kubernetes writes bytes as base64 too.
    let ByteString(decoded) = serde_json::from_value(json!(encoded.trim())).ok()?;
    let (_, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some(password.to_owned())
}

pub async fn mark(Extract(state): Extract<State>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if is_insecure(&state) {
        response.headers_mut().insert(INSECURE, HeaderValue::from_static("true"));
    }
    response
}
