//! Who did what through fedq: each change is written down with its outcome.

use axum::extract::State as Extract;
use serde_json::Value;
use tracing::error;

use super::{
    Failure, State,
    extract::{Json, Person, Query, Reader},
    owner::{Owner, TASKS},
};
use fedq_k8s::{client::Caller, session::Permission};
use fedq_store::{AuditEntry, AuditFilter, Cursor, PageRequest, StoreError};
use fedq_wire::{
    audit::{self, AuditQuery},
    list::List,
    problem::Code,
};

/// Whose doing it is.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    user: &'a str,
    /// Who acts as `user`, where that is somebody else.
    through: Option<&'a str>,
}

impl<'a> From<&'a Caller> for Who<'a> {
    fn from(caller: &'a Caller) -> Self {
        Self { user: &caller.user, through: None }
    }
}

impl<'a> From<&'a Owner> for Who<'a> {
    fn from(owner: &'a Owner) -> Self {
        Self { user: owner.user(), through: owner.through.as_deref() }
    }
}

/// What somebody does.
pub struct Deed {
    pub verb: &'static str,
    /// Such as `clusters/eu-west`.
    pub object: String,
    /// What changes. Never a Secret's content.
    pub detail: Option<Value>,
    /// Nothing changes, so nothing is written down.
    pub dry_run: bool,
}

/// Writes down what `outcome` says of the deed. A change that was made stays made even where the
/// store is full, so that is reported in the log and not to the caller.
///
/// Of refusals, only so many of one caller are written down: everybody can be refused without end.
pub async fn record<'a>(state: &State, who: impl Into<Who<'a>>, deed: Deed, outcome: Result<(), &Failure>) {
    if deed.dry_run {
        return;
    }
    let who = who.into();
    let mut entry = entry(state, who, deed);
    if let Err(failure) = outcome {
        entry.outcome = failure.0.detail.chars().take(1000).collect();
        // What failed otherwise may have been done all the same.
        entry.refused = failure.0.status < 500;
    }
    if entry.refused && !state.callers.notes_refusal(who.through.unwrap_or(&entry.who)) {
        return;
    }
    if let Err(error) = state.store.record_audit(&entry).await {
        error!(
            audit.who = entry.who,
            audit.verb = entry.verb,
            audit.object = entry.object,
            audit.outcome = entry.outcome,
            %error,
            "Cannot write down who did what; the entry is lost but for this line"
        );
    }
}

/// Of a deed that is done by the commit that keeps this.
pub fn entry<'a>(state: &State, who: impl Into<Who<'a>>, deed: Deed) -> AuditEntry {
    let Who { user, through } = who.into();
    AuditEntry {
        id: 0,
        at: state.clock.now(),
        who: user.to_owned(),
        verb: deed.verb.to_owned(),
        object: deed.object,
        detail: deed.detail,
        outcome: "ok".to_owned(),
        through: through.map(str::to_owned),
        refused: false,
    }
}

pub fn page(limit: u32, next: Option<&str>) -> Result<PageRequest, StoreError> {
    let after = next.filter(|next| !next.is_empty()).map(str::parse::<Cursor>).transpose()?;
    Ok(PageRequest { after, limit })
}

/// Who did what through fedq, newest first.
///
/// What others did with tasks and volumes is told of to those who may list everybody's.
#[utoipa::path(
    get, path = "/audit", tag = "audit", params(AuditQuery),
    responses((status = OK, body = List<audit::AuditEntry>))
)]
pub async fn list_audit(
    _: Reader,
    Person(caller): Person,
    Extract(state): Extract<State>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<List<audit::AuditEntry>>, Failure> {
    let everybodys = Permission::on_own("list", TASKS, None);
    let tasks_of = match state.authenticator.allow(&state.hub, &caller, &everybodys).await {
        Ok(()) => None,
        Err(failure) if failure.0.code == Code::Forbidden => Some(caller.user),
        Err(failure) => return Err(failure),
    };
    let filter = AuditFilter { who: query.who, object: query.object, since: query.since, tasks_of };
    let found = state.store.audit(&filter, &page(query.limit, query.next.as_deref())?).await?;
    let items = found.items.into_iter().map(|entry| audit::AuditEntry {
        at: entry.at.into(),
        who: entry.who,
        verb: entry.verb,
        object: entry.object,
        detail: entry.detail,
        outcome: entry.outcome,
        through: entry.through,
    });
    Ok(Json(List { items: items.collect(), next: found.next.map(|next| next.to_string()) }))
}
