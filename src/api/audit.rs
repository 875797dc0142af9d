//! Who did what through fedq: each change is written down with its outcome.

use axum::extract::State as Extract;
use serde_json::Value;
use tracing::error;

use super::{
    Failure, State,
    extract::{Json, Person, Query, Reader},
    owner::TASKS,
};
use fedq_k8s::{client::Caller, session::Permission};
use fedq_store::{AuditEntry, AuditFilter, Cursor, PageRequest, StoreError};
use fedq_wire::{
    audit::{self, AuditQuery},
    list::List,
    problem::Code,
};

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
pub async fn record(state: &State, caller: &Caller, deed: Deed, outcome: Result<(), &Failure>) {
    if deed.dry_run {
        return;
    }
    let mut entry = entry(state, caller, deed);
    if let Err(failure) = outcome {
        entry.outcome = failure.0.detail.chars().take(1000).collect();
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
pub fn entry(state: &State, caller: &Caller, deed: Deed) -> AuditEntry {
    AuditEntry {
        id: 0,
        at: state.clock.now(),
        who: caller.user.clone(),
        verb: deed.verb.to_owned(),
        object: deed.object,
        detail: deed.detail,
        outcome: "ok".to_owned(),
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
    });
    Ok(Json(List { items: items.collect(), next: found.next.map(|next| next.to_string()) }))
}
