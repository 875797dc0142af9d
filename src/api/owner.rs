//! Whose tasks and volumes a request is about, and what that person may do with them. Rights are those of
//! `fedq.dev` on the hub: in the tenant's namespace for one's own, in all namespaces for everybody's.

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, StatusCode, request::Parts},
};

use super::{Failure, State, extract::person};
use fedq_domain::task::tenant::Rule;
use fedq_k8s::{client::Caller, session::Permission};
use fedq_wire::problem::Code;

pub const TASKS: &str = "tasks";
pub const LOGS: &str = "tasks/log";
pub const EXEC: &str = "tasks/exec";
pub const PORTS: &str = "tasks/portforward";
pub const VOLUMES: &str = "volumes";
/// To make a volume of a claim that was there before: asked for with the claim's name.
pub const ADOPT: &str = "volumes/adopt";

#[derive(Clone)]
pub struct Owner {
    pub caller: Caller,
    pub rule: Rule,
    pub proof: Proof,
    /// Who acts as the caller, where that is somebody else.
    pub through: Option<String>,
}

/// What vouches for the caller's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Proof {
    /// A token: the caller's own, or of somebody who may act as them.
    Token,
    /// Nothing: k8s-cli's `X-User` alone.
    Name,
}

/// What a caller's name is believed for where nothing vouches for it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UnprovenNames {
    #[default]
    Refused,
    /// For what is that person's own.
    Own,
    /// For all that person may do with everybody's, too.
    All,
}

impl FromRequestParts<State> for Owner {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        Self::known(state, &parts.headers).await
    }
}

impl Owner {
    /// Who asks with these headers.
    pub async fn known(state: &State, headers: &HeaderMap) -> Result<Self, Failure> {
        Self::of(state, person(state, headers).await?)
    }

    pub fn of(state: &State, caller: Caller) -> Result<Self, Failure> {
        let Some(rule) = state.tenants.of(&caller.user, &caller.groups) else {
            let detail = format!("user \"{}\" and their groups belong to no tenant", caller.user);
            return Err(Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, detail)
                .next("ask an administrator of fedqd to name you in tasks.tenants of its configuration"));
        };
        Ok(Self { rule: rule.clone(), caller, proof: Proof::Token, through: None })
    }

    pub fn user(&self) -> &str {
        &self.caller.user
    }

    pub fn namespace(&self) -> &str {
        &self.rule.tenant.namespace
    }

    /// To do so with what is one's own.
    pub async fn may(&self, state: &State, verb: &'static str, what: &'static str) -> Result<(), Failure> {
        let permission = Permission::on_own(verb, what, Some(self.namespace()));
        state.authenticator.allow(&state.hub, &self.caller, &permission).await
    }

    /// To do so with what is anybody's. A name alone must not make an administrator: the hub would be asked about
    /// whoever was named, and say yes.
    pub async fn may_all(
        &self,
        state: &State,
        verb: &'static str,
        what: &'static str,
    ) -> Result<(), Failure> {
        if self.proof == Proof::Name && state.unproven_names != UnprovenNames::All {
            let detail =
                format!("nothing proves that you are \"{}\": what is everybody's takes a token", self.user());
            return Err(Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, detail)
                .next("give the token as the password of the URL, or have api.insecureAdmin of fedqd set"));
        }
        let permission = Permission::on_own(verb, what, None);
        state.authenticator.allow(&state.hub, &self.caller, &permission).await
    }

    /// Whose to look at: `None` is everybody.
    pub async fn whose(
        &self,
        state: &State,
        all_users: bool,
        verb: &'static str,
        what: &'static str,
    ) -> Result<Option<String>, Failure> {
        if all_users {
            self.may_all(state, verb, what).await?;
            return Ok(None);
        }
        self.may(state, verb, what).await?;
        Ok(Some(self.user().to_owned()))
    }

    /// Whether this person may do so with something of `owner`; whoever may not must not learn that it exists.
    pub async fn reaches(
        &self,
        state: &State,
        owner: &str,
        verb: &'static str,
        what: &'static str,
    ) -> Result<bool, Failure> {
        if owner == self.user() {
            self.may(state, verb, what).await?;
            return Ok(true);
        }
        match self.may_all(state, verb, what).await {
            Ok(()) => Ok(true),
            Err(failure) if failure.0.code == Code::Forbidden => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}
