//! Claims.

use std::{collections::BTreeSet, time::Duration};

use axum::{extract::State as Extract, http::HeaderMap, response::Response};
use jiff::SignedDuration;

use super::{
    Failure, State,
    audit::{self, Deed},
    auth::require,
    body,
    claim_edit::{self, EditOptions},
    extract::{DryRun, Json, Path, Person, Query, Reader},
    object::Object,
    show, stream,
};
use fedq_k8s::{client::RetryClass, session::HubError, types::claim::ClusterResourceClaim};
use fedq_values::ids::{ClaimName, ClusterName};
use fedq_wire::{
    claim::{Assign, Claim, ClaimChange, ClaimDetail, ClaimHistory, ClaimSpec},
    cluster::Done,
    list::{List, ListQuery, PageQuery},
    problem::Code,
    quota::Cell,
};

/// A confirmation must not be valid for the next mishap too.
const CONFIRMED_FOR: Duration = Duration::from_mins(10);
/// Assigning is repeated on the newest version that often.
const ATTEMPTS: u32 = 4;

/// Claims, by name.
#[utoipa::path(
    get, path = "/claims", tag = "claims", params(ListQuery), responses((status = OK, body = List<Claim>))
)]
pub async fn list_claims(
    _: Reader,
    Extract(state): Extract<State>,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::list(&state, &query, &headers, |overview, aliases| {
        let claims = overview.claims.iter();
        claims.map(|(name, claim)| (name.to_string(), show::claim(name, claim, aliases))).collect()
    })
    .await
}

/// One claim as the hub has it now, with what an editor needs to see. The ETag goes into If-Match.
#[utoipa::path(
    get, path = "/claims/{claim}", tag = "claims", params(("claim" = String, Path)),
    responses((status = OK, body = ClaimDetail))
)]
pub async fn get_claim(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClaimName>,
) -> Result<Object<ClaimDetail>, Failure> {
    let claim = state.hub.session(&caller)?.claim(&name).await?;
    let detail = detail(&state, &name, &claim);
    let version = detail.resource_version.clone();
    Ok(Object::of_version(detail, version))
}

fn detail(state: &State, name: &ClaimName, claim: &ClusterResourceClaim) -> ClaimDetail {
    let overview = state.overview();
    let aliases = &state.aliases;
    let cluster = ClusterName::new(&claim.spec.cluster_name).ok();
    let cluster = cluster.and_then(|cluster| overview.clusters.get(&cluster));
    let queues: BTreeSet<&str> = claim
        .spec
        .resource_assignments
        .iter()
        .map(|assignment| assignment.cluster_queue_name.as_str())
        .collect();
    let holders: Vec<Cell> = overview
        .queues
        .iter()
        .filter(|(queue, _)| queues.contains(queue.as_str()))
        .flat_map(|(name, queue)| queue.cells.iter().map(|(key, cell)| show::cell(name, key, cell, aliases)))
        .collect();
    ClaimDetail {
        name: name.to_string(),
        resource_version: claim.metadata.resource_version.clone().unwrap_or_default(),
        generation: claim.metadata.generation.unwrap_or_default(),
        spec: claim_edit::spec(claim),
        follows: claim_edit::follows(claim),
        state: overview.claims.get(name).map(|state| show::claim(name, state, aliases)),
        flavors: cluster.map(|cluster| show::flavors(cluster, aliases)).unwrap_or_default(),
        foreign: cluster.map(|cluster| show::quantities(&cluster.foreign, aliases)).unwrap_or_default(),
        holders,
    }
}

/// Edits a claim, if nobody changed it since the version in If-Match.
#[utoipa::path(
    put, path = "/claims/{claim}", tag = "claims", request_body = ClaimSpec,
    params(("claim" = String, Path), DryRun, ("If-Match" = String, Header, description = "`ETag` of the claim that was read, or `*` for whichever is there")),
    responses((status = OK, body = ClaimChange))
)]
pub async fn edit_claim(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClaimName>,
    options: EditOptions,
    Json(wanted): Json<ClaimSpec>,
) -> Result<Json<ClaimChange>, Failure> {
    let current = state.hub.session(&caller)?.claim(&name).await?;
    options.expected.check(&current)?;
    let change = claim_edit::apply(&state, &caller, &current, &wanted, options.dry_run).await?;
    Ok(Json(change))
}

/// Sets one assignment of a claim and leaves the others as they are.
#[utoipa::path(
    post, path = "/claims/{claim}/assign", tag = "claims", request_body = Assign,
    params(("claim" = String, Path), DryRun), responses((status = OK, body = ClaimChange))
)]
pub async fn assign(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClaimName>,
    Query(dry_run): Query<DryRun>,
    Json(assign): Json<Assign>,
) -> Result<Json<ClaimChange>, Failure> {
    claim_edit::must_be_legible(&assign, &state.aliases)?;
    let session = state.hub.session(&caller)?;
    let mut attempts = 0;
    loop {
        let current = session.claim(&name).await?;
        let wanted = claim_edit::assigned(&current, &assign);
        attempts += 1;
        match claim_edit::apply(&state, &caller, &current, &wanted, dry_run.is_set()).await {
            Err(failure) if failure.0.code == Code::Conflict && attempts < ATTEMPTS => {}
            done => return done.map(Json),
        }
    }
}

/// What an edit would give to and take from each queue. Nothing is changed. A claim that is not there yet is compared with
/// one that assigns nothing.
#[utoipa::path(
    post, path = "/claims/{claim}/diff", tag = "claims", request_body = ClaimSpec,
    params(("claim" = String, Path)), responses((status = OK, body = ClaimChange))
)]
pub async fn diff_claim(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClaimName>,
    Json(wanted): Json<ClaimSpec>,
) -> Result<Json<ClaimChange>, Failure> {
    let current = match state.hub.session(&caller)?.claim(&name).await {
        Ok(current) => Some(current),
        Err(HubError::Api(error)) if error.class == RetryClass::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let edit = match &current {
        Some(current) => claim_edit::judge(&state, current, &wanted)?,
        None => claim_edit::judge_new(&state, &name, &wanted)?,
    };
    let version = current.and_then(|current| current.metadata.resource_version);
    Ok(Json(ClaimChange {
        resource_version: version.unwrap_or_else(|| "0".to_owned()),
        dry_run: true,
        changes: edit.changes,
        warnings: edit.warnings,
        spec: wanted,
    }))
}

/// Who changed a claim, and how, newest first. What is remembered of one that is gone stays.
#[utoipa::path(
    get, path = "/claims/{claim}/history", tag = "claims",
    params(("claim" = String, Path), PageQuery), responses((status = OK, body = List<ClaimHistory>))
)]
pub async fn claim_history(
    _: Reader,
    Extract(state): Extract<State>,
    Path(name): Path<ClaimName>,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<ClaimHistory>>, Failure> {
    let page = audit::page(query.limit, query.next.as_deref())?;
    let found = state.store.claim_history(Some(&name), &page).await?;
    if found.items.is_empty()
        && page.after.is_none()
        && !state.known_overview().await?.claims.contains_key(&name)
    {
        let failure = Failure::not_found(format!("there is no claim `{name}`, and none is remembered"));
        return Err(failure.next("fedq claim list shows the claims there are"));
    }
    let items = found.items.into_iter().map(|change| {
        Ok(ClaimHistory {
            at: change.at.into(),
            claim: change.name.to_string(),
            generation: change.generation,
            who: change.who,
            before: change.old_spec.map(body::stored).transpose()?,
            after: change.new_spec.map(body::stored).transpose()?,
        })
    });
    let items = items.collect::<Result<_, Failure>>()?;
    Ok(Json(List { items, next: found.next.map(|next| next.to_string()) }))
}

/// Says that the removal of many claims at once is meant; without it nothing is written after one.
///
/// Takes the right to `create` `removals.fedq.dev` in fedq's namespace on the hub.
#[utoipa::path(
    post, path = "/claims/confirm-removal", tag = "claims", params(DryRun),
    responses((status = OK, body = Done))
)]
pub async fn confirm_removal(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Query(dry_run): Query<DryRun>,
) -> Result<Json<Done>, Failure> {
    let dry_run = dry_run.is_set();
    require(&state.hub, &caller, &state.hub.on_removals()).await?;
    let held = held(&state)?;
    let time = SignedDuration::try_from(CONFIRMED_FOR).unwrap_or(SignedDuration::ZERO);
    let until = state.clock.now().saturating_add(time).unwrap_or(jiff::Timestamp::MAX).to_string();
    let outcome = state.hub.confirm_removal(&until, dry_run).await.map_err(Failure::from);
    let object = format!("namespaces/{}", state.hub.namespace());
    let deed = Deed { verb: "confirm-removal", object, detail: None, dry_run };
    audit::record(&state, &caller, deed, outcome.as_ref().copied()).await;
    outcome?;
    let message = format!("the removal of {held} is confirmed");
    Ok(Json(Done { message, dry_run, next: None }))
}

/// What waits for the confirmation; one given ahead would let the next mishap through.
fn held(state: &State) -> Result<String, Failure> {
    let overview = state.overview();
    if overview.held_claims.is_empty() {
        let failure = Failure::conflict("no removal of claims waits to be confirmed");
        return Err(failure.next("fedq claim list shows the claims there are"));
    }
    Ok(overview.held_claims.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}
