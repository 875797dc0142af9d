//! What handlers take from a request. Every refusal is a problem document.

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, header, request::Parts},
};
use serde::Deserialize;
use utoipa::IntoParams;

pub use super::body::Json;
use super::{Failure, State};
use fedq_k8s::{client::Caller, session::Permission};

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Failure))]
pub struct Path<T>(pub T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Failure))]
pub struct Query<T>(pub T);

/// Somebody who may read what fedq knows.
pub struct Reader(pub Caller);

/// Somebody who is known; what they may do is for the hub to say.
pub struct Person(pub Caller);

impl FromRequestParts<State> for Person {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        person(state, &parts.headers).await.map(Self)
    }
}

impl FromRequestParts<State> for Reader {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        reader(state, &parts.headers).await.map(Self)
    }
}

/// Who asks with these headers, if they may read what fedq knows.
pub async fn reader(state: &State, headers: &HeaderMap) -> Result<Caller, Failure> {
    let caller = person(state, headers).await?;
    state.authenticator.allow(&state.hub, &caller, &Permission::READ).await?;
    Ok(caller)
}

/// Who asks with these headers.
pub async fn person(state: &State, headers: &HeaderMap) -> Result<Caller, Failure> {
    state.authenticator.caller(&state.hub, token(headers)?).await
}

pub fn token(headers: &HeaderMap) -> Result<&str, Failure> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Err(Failure::unauthorized("the request has no token"));
    };
    let bearer = value.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    match bearer {
        Some(token) if !token.is_empty() => Ok(token),
        _ => Err(Failure::unauthorized("the Authorization header is not `Bearer TOKEN`")),
    }
}

/// `?dryRun=All`: everything but the change itself.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DryRun {
    /// `All`: check and answer, change nothing.
    #[serde(rename = "dryRun", default)]
    #[param(inline)]
    dry_run: Option<DryRunStage>,
}

#[derive(Clone, Copy, Debug, Deserialize, utoipa::ToSchema)]
enum DryRunStage {
    All,
}

impl DryRun {
    pub fn is_set(&self) -> bool {
        matches!(self.dry_run, Some(DryRunStage::All))
    }
}
