//! Joined clusters. What is changed here are their Secrets on the hub; the controllers do the rest.

use std::collections::BTreeMap;

use axum::{
    extract::State as Extract,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use super::{
    Failure, State,
    audit::{self, Deed},
    auth::require,
    extract::{DryRun, Json, Path, Person, Query, Reader},
    object::Object,
    show, stream,
};
use fedq_domain::cluster::{Connection, QuarantineReason};
use fedq_k8s::{
    client::Caller,
    kubeconfig,
    session::{CONFIRM_IDENTITY, CORDON, ClusterSecretError},
};
use fedq_values::ids::ClusterName;
use fedq_wire::{
    cluster::{Cluster, ConfirmIdentity, Done, JoinCluster},
    list::{List, ListQuery},
};

/// Joined clusters, and those that OCM knows besides, by name.
#[utoipa::path(
    get, path = "/clusters", tag = "clusters", params(ListQuery),
    responses((status = OK, body = List<Cluster>))
)]
pub async fn list_clusters(
    _: Reader,
    Extract(state): Extract<State>,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::list(&state, &query, &headers, |overview, aliases| {
        let joined = overview.clusters.iter();
        let joined = joined.map(|(name, cluster)| (name, show::cluster(name, cluster, aliases)));
        let managed = overview.managed.iter();
        let managed = managed.map(|(name, cluster)| (name, show::managed(name, cluster, aliases)));
        let all: BTreeMap<_, _> = joined.chain(managed).collect();
        all.into_iter().map(|(name, cluster)| (name.to_string(), cluster)).collect()
    })
    .await
}

/// One cluster.
#[utoipa::path(
    get, path = "/clusters/{cluster}", tag = "clusters", params(("cluster" = String, Path)),
    responses((status = OK, body = Cluster))
)]
pub async fn get_cluster(
    _: Reader,
    Extract(state): Extract<State>,
    Path(name): Path<ClusterName>,
) -> Result<Object<Cluster>, Failure> {
    let overview = state.overview();
    if let Some(managed) = overview.managed.get(&name) {
        return Ok(Object::new(show::managed(&name, managed, &state.aliases)));
    }
    let cluster = overview.clusters.get(&name).ok_or_else(|| unknown(&name))?;
    let views = state.task_views.borrow().clone();
    let member = views.fleet.clusters.get(&name);
    let app_wrappers = member.and_then(|member| member.app_wrappers.word()).map(str::to_owned);
    let shown = Cluster { app_wrappers, ..show::cluster(&name, cluster, &state.aliases) };
    let lasting = Cluster { last_seen: None, ..shown.clone() };
    Ok(Object::as_lasts(shown, lasting))
}

/// Joins a cluster: checks the kubeconfig and keeps what is needed of it in a Secret on the hub.
///
/// Takes the right to `create` `clusters.fedq.dev` in fedq's namespace on the hub.
#[utoipa::path(
    post, path = "/clusters", tag = "clusters", params(DryRun), request_body = JoinCluster,
    responses((status = ACCEPTED, body = Done))
)]
pub async fn join_cluster(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Query(dry_run): Query<DryRun>,
    Json(join): Json<JoinCluster>,
) -> Result<Response, Failure> {
    let name = ClusterName::new(&join.name).map_err(|error| Failure::field("name", &error))?;
    let dry_run = dry_run.is_set();
    require(&state.hub, &caller, &state.hub.on_cluster("create", &name)).await?;
    let checked =
        kubeconfig::check(join.kubeconfig.as_bytes(), join.context.as_deref(), &state.kubeconfig_rules)?;
    if let Some(known) = state.overview().clusters.get(&name).filter(|known| known.source == "kubeconfig") {
        let server = known.server.as_deref().unwrap_or("a server that was not reached yet");
        return Err(
            Failure::from(ClusterSecretError::AlreadyJoined(name)).detail(&format!("its server is {server}"))
        );
    }
    let detail = json!({"server": checked.server().to_string()});
    let work = state.hub.join(&name, checked.render(), dry_run);
    let deed = Deed { verb: "join", object: format!("clusters/{name}"), detail: Some(detail), dry_run };
    do_it(&state, &caller, deed, work).await?;
    let next = Some(format!("fedq cluster show {name} says when it is Ready"));
    let done = Json(Done { message: format!("cluster `{name}` joins"), dry_run, next });
    let location = [(header::LOCATION, format!("/api/v1/clusters/{name}"))];
    Ok(if dry_run {
        (StatusCode::ACCEPTED, done).into_response()
    } else {
        (StatusCode::ACCEPTED, location, done).into_response()
    })
}

/// Takes a cluster out: its share is withdrawn first, then its empty queues, then its Secret.
///
/// Takes the right to `delete` `clusters.fedq.dev` in fedq's namespace on the hub.
#[utoipa::path(
    delete, path = "/clusters/{cluster}", tag = "clusters",
    params(("cluster" = String, Path), DryRun), responses((status = ACCEPTED, body = Done))
)]
pub async fn leave_cluster(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClusterName>,
    Query(dry_run): Query<DryRun>,
) -> Result<(StatusCode, Json<Done>), Failure> {
    let dry_run = dry_run.is_set();
    require(&state.hub, &caller, &state.hub.on_cluster("delete", &name)).await?;
    let work = state.hub.leave(&name, dry_run);
    let deed = Deed { verb: "leave", object: format!("clusters/{name}"), detail: None, dry_run };
    do_it(&state, &caller, deed, work).await?;
    let message =
        format!("cluster `{name}` leaves: its share is withdrawn, then its empty queues are removed");
    let next = "fedq's account stays there; once the cluster is gone from fedq cluster list, kubectl delete serviceaccount fedq \
                --namespace fedq-system there makes its tokens worthless";
    Ok((StatusCode::ACCEPTED, Json(Done { message, dry_run, next: Some(next.to_owned()) })))
}

/// Sends nothing new to the cluster: its queues are held, what runs goes on.
///
/// Takes the right to `patch` `clusters.fedq.dev` in fedq's namespace on the hub.
#[utoipa::path(
    post, path = "/clusters/{cluster}/cordon", tag = "clusters",
    params(("cluster" = String, Path), DryRun), responses((status = OK, body = Done))
)]
pub async fn cordon_cluster(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClusterName>,
    Query(dry_run): Query<DryRun>,
) -> Result<Json<Done>, Failure> {
    require(&state.hub, &caller, &state.hub.on_cluster("patch", &name)).await?;
    let note = Note { verb: "cordon", key: CORDON, value: Some("true"), dry_run: dry_run.is_set() };
    annotate(&state, &caller, &name, note).await?;
    Ok(done(format!("cluster `{name}` cordoned"), dry_run.is_set()))
}

/// Lets the cluster have work again.
///
/// Takes the right to `patch` `clusters.fedq.dev` in fedq's namespace on the hub.
#[utoipa::path(
    post, path = "/clusters/{cluster}/uncordon", tag = "clusters",
    params(("cluster" = String, Path), DryRun), responses((status = OK, body = Done))
)]
pub async fn uncordon_cluster(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClusterName>,
    Query(dry_run): Query<DryRun>,
) -> Result<Json<Done>, Failure> {
    require(&state.hub, &caller, &state.hub.on_cluster("patch", &name)).await?;
    let note = Note { verb: "uncordon", key: CORDON, value: None, dry_run: dry_run.is_set() };
    annotate(&state, &caller, &name, note).await?;
    Ok(done(format!("cluster `{name}` uncordoned"), dry_run.is_set()))
}

/// Accepts the cluster that now answers as the one that was joined.
///
/// Takes the right to `patch` `clusters.fedq.dev` in fedq's namespace on the hub.
#[utoipa::path(
    post, path = "/clusters/{cluster}/confirm", tag = "clusters", request_body = ConfirmIdentity,
    params(("cluster" = String, Path), DryRun), responses((status = OK, body = Done))
)]
pub async fn confirm_cluster(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(name): Path<ClusterName>,
    Query(dry_run): Query<DryRun>,
    Json(body): Json<ConfirmIdentity>,
) -> Result<Json<Done>, Failure> {
    require(&state.hub, &caller, &state.hub.on_cluster("patch", &name)).await?;
    let uid = match body.uid {
        Some(uid) => uid,
        None => found_identity(&state, &name).await?,
    };
    let note = Note {
        verb: "confirm-identity",
        key: CONFIRM_IDENTITY,
        value: Some(&uid),
        dry_run: dry_run.is_set(),
    };
    annotate(&state, &caller, &name, note).await?;
    Ok(done(format!("cluster `{name}` confirmed as {uid}: it is listed anew"), dry_run.is_set()))
}

/// The identity a quarantined cluster answers with.
async fn found_identity(state: &State, name: &ClusterName) -> Result<String, Failure> {
    let overview = state.overview();
    let cluster = overview.clusters.get(name).ok_or_else(|| unknown(name))?;
    let not_quarantined = || {
        Failure::conflict(format!("cluster `{name}` is not quarantined: there is nothing to confirm"))
            .next("to confirm an identity beforehand, give its UID")
    };
    match &cluster.connection {
        Connection::Quarantined { reason: QuarantineReason::IdentityChanged { found, .. }, .. } => {
            Ok(found.clone())
        }
        // The same cluster as before, with an older state.
        Connection::Quarantined { reason: QuarantineReason::VersionsWentBack { .. }, .. } => {
            let stored = state.store.cluster(name).await?;
            stored.and_then(|row| row.identity).ok_or_else(not_quarantined)
        }
        Connection::Connecting
        | Connection::Ready
        | Connection::Stale { .. }
        | Connection::Lost { .. }
        | Connection::Refused { .. }
        | Connection::Unreached => Err(not_quarantined()),
    }
}

struct Note<'a> {
    verb: &'static str,
    key: &'static str,
    value: Option<&'a str>,
    dry_run: bool,
}

async fn annotate(state: &State, caller: &Caller, name: &ClusterName, note: Note<'_>) -> Result<(), Failure> {
    let Note { verb, key, value, dry_run } = note;
    let detail = value.map(|value| json!({ key: value }));
    let deed = Deed { verb, object: format!("clusters/{name}"), detail, dry_run };
    do_it(state, caller, deed, state.hub.annotate(name, key, value, dry_run)).await
}

async fn do_it(
    state: &State,
    caller: &Caller,
    deed: Deed,
    work: impl Future<Output = Result<(), ClusterSecretError>>,
) -> Result<(), Failure> {
    let outcome = work.await.map_err(Failure::from);
    audit::record(state, caller, deed, outcome.as_ref().copied()).await;
    outcome
}

fn done(message: String, dry_run: bool) -> Json<Done> {
    Json(Done { message, dry_run, next: None })
}

pub fn unknown(name: &ClusterName) -> Failure {
    Failure::not_found(format!("cluster `{name}` is not joined")).next("fedq cluster list shows what is")
}
