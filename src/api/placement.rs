//! Placements: which clusters they chose, why, and what one would choose that is not there yet.

use std::sync::Arc;

use axum::{
    extract::State as Extract,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    Failure, State, body,
    extract::{Json, Path, Query, Reader},
    held::Held,
    object::Object,
    stream::{self, Source},
};
use fedq_domain::placement::{
    self, Evaluation,
    conditions::Condition,
    explain::{ClusterExplanation, Outcome, explain},
    hub::Hub,
    spec::{Placement as Spec, PlacementKey},
    view::{PlacementRow, PlacementView},
};
use fedq_k8s::{read, types::ocm};
use fedq_values::ids::QueueName;
use fedq_wire::{
    list::{List, ListQuery},
    placement::{
        Placement, PlacementCluster, PlacementCondition, PlacementExplanation, PlacementGroup,
        PlacementPrioritizer,
    },
    problem::{Cause, Code},
};

/// Placements of all namespaces, by namespace and name.
#[utoipa::path(
    get, path = "/placements", tag = "placements", params(ListQuery),
    responses((status = OK, body = List<Placement>))
)]
pub async fn list_placements(
    _: Reader,
    Extract(state): Extract<State>,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    if query.watch {
        let held = Held::reader(&state, &headers).await?;
        return Ok(stream::watch(OfPlacements(state.placements.clone()), &headers, held));
    }
    let rows = rows(&state.placements.borrow());
    Ok(Json(stream::page(rows, query.limit, query.next.as_deref())?).into_response())
}

struct OfPlacements(watch::Receiver<Arc<PlacementView>>);

impl Source for OfPlacements {
    type Row = Placement;

    async fn rows(&mut self) -> Result<Vec<(String, Placement)>, Failure> {
        Ok(rows(&self.0.borrow_and_update()))
    }

    async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

fn rows(view: &PlacementView) -> Vec<(String, Placement)> {
    view.placements.iter().map(|(key, row)| (key.to_string(), show(row))).collect()
}

/// One Placement with its status and decisions.
#[utoipa::path(
    get, path = "/placements/{namespace}/{name}", tag = "placements",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = OK, body = Placement))
)]
pub async fn get_placement(
    _: Reader,
    Extract(state): Extract<State>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Object<Placement>, Failure> {
    let view = state.placements.borrow().clone();
    Ok(Object::new(show(find(&view, &namespace, &name)?)))
}

/// What became of each cluster: the filter that dropped it, its scores, its place and group.
///
/// It is computed anew from what the hub says now, also where somebody else decides.
#[utoipa::path(
    get, path = "/placements/{namespace}/{name}/explanation", tag = "placements",
    params(("namespace" = String, Path), ("name" = String, Path)),
    responses((status = OK, body = PlacementExplanation))
)]
pub async fn explain_placement(
    _: Reader,
    Extract(state): Extract<State>,
    Path((namespace, name)): Path<(String, String)>,
) -> Result<Object<PlacementExplanation>, Failure> {
    let view = state.placements.borrow().clone();
    let row = Arc::clone(find(&view, &namespace, &name)?);
    let by = decided_by(row.writer);
    explanation((Arc::clone(&row.placement), by), row.decided.clone(), view, state.clock.now())
        .await
        .map(Object::new)
}

/// What this Placement would choose now. Nothing is written.
#[utoipa::path(
    post, path = "/placements/simulate", tag = "placements",
    request_body(content = Object, description = "A Placement, as it would be applied"),
    responses((status = OK, body = PlacementExplanation))
)]
pub async fn simulate_placement(
    Reader(caller): Reader,
    Extract(state): Extract<State>,
    Json(manifest): Json<Value>,
) -> Result<Json<PlacementExplanation>, Failure> {
    let _place = state.callers.look(&caller.user).await?;
    let placement = read_manifest(manifest)?;
    let view = state.placements.borrow().clone();
    let decided = view.placements.get(&placement.key).map(|row| row.decided.clone()).unwrap_or_default();
    explanation((Arc::new(placement), "nobody"), decided, view, state.clock.now()).await.map(Json)
}

const NO_NAME: &str = "must be a name as Kubernetes has them: lower-case letters, digits and `-`, with a letter or digit at both ends";

fn is_name(text: &str) -> bool {
    QueueName::new(text).is_ok()
}

fn is_namespace(text: &str) -> bool {
    is_name(text) && !text.contains('.') && text.len() <= 63
}

fn read_manifest(mut manifest: Value) -> Result<Spec, Failure> {
    let refused = |field: &str, message: &str| {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let mut failure = Failure::new(status, Code::Invalid, format!("{field}: {message}"));
        failure.0.causes = vec![Cause::new(field, message)];
        failure.next("kubectl explain placement.spec lists its fields")
    };
    if manifest["kind"] != "Placement" {
        return Err(refused("kind", "must be Placement"));
    }
    match manifest["metadata"]["name"].as_str() {
        None | Some("") => return Err(refused("metadata.name", "the Placement has no name")),
        Some(name) if !is_name(name) => return Err(refused("metadata.name", NO_NAME)),
        Some(_) => {}
    }
    if manifest["metadata"]["namespace"].is_null() {
        manifest["metadata"]["namespace"] = "default".into();
    }
    if !manifest["metadata"]["namespace"].as_str().is_some_and(is_namespace) {
        return Err(refused("metadata.namespace", NO_NAME));
    }
    // As the API server fills in what is left out.
    ocm::crds::fill_in_defaults(&mut manifest);
    let object = body::fit::<ocm::Placement>(&manifest)?;
    Ok(read::ocm::placement(&object))
}

/// Expressions may take a second, so not on a thread that serves others.
async fn explanation(
    (placement, decided_by): (Arc<Spec>, &'static str),
    decided: Vec<String>,
    view: Arc<PlacementView>,
    now: Timestamp,
) -> Result<PlacementExplanation, Failure> {
    if !view.known {
        return Err(unknown_kinds());
    }
    let explain = move || {
        let evaluation = placement::evaluate(&placement, &view.hub, now);
        show_explanation((&placement, decided_by), decided, &view.hub, &evaluation)
    };
    let explained = tokio::task::spawn_blocking(explain).await;
    explained.map_err(|error| Failure::internal("the Placement could not be evaluated", &error))
}

fn find<'a>(view: &'a PlacementView, namespace: &str, name: &str) -> Result<&'a Arc<PlacementRow>, Failure> {
    if !view.known {
        return Err(unknown_kinds());
    }
    let key = PlacementKey { namespace: namespace.into(), name: name.into() };
    let missing = || {
        Failure::not_found(format!("there is no Placement `{name}` in namespace `{namespace}`"))
            .next("fedq placement list shows those there are")
    };
    view.placements.get(&key).ok_or_else(missing)
}

fn unknown_kinds() -> Failure {
    Failure::not_found("the hub does not serve OCM's Placements, or they are not known yet")
        .next("fedqd --print-crds=ocm | kubectl apply --server-side -f - installs the kinds")
}

fn show(row: &Arc<PlacementRow>) -> Placement {
    let groups = row.report.groups.iter().map(|group| PlacementGroup {
        index: group.index,
        name: group.name.clone(),
        clusters: group.clusters,
        decisions: group.decisions.clone(),
    });
    Placement {
        namespace: row.placement.key.namespace.to_string(),
        name: row.placement.key.name.to_string(),
        decided_by: decided_by(row.writer).to_owned(),
        clusters: row.decided.clone(),
        conditions: row.report.conditions.iter().map(condition).collect(),
        groups: groups.collect(),
        failures: row.failures.clone(),
        created: row.created.map(Into::into),
    }
}

fn decided_by(writer: placement::Writer) -> &'static str {
    match writer {
        placement::Writer::Fedq => "fedq",
        placement::Writer::Ocm => "ocm",
        placement::Writer::Other => "others",
    }
}

fn condition(condition: &Condition) -> PlacementCondition {
    PlacementCondition {
        kind: condition.kind.to_owned(),
        status: condition.holds,
        reason: condition.reason.to_owned(),
        message: condition.message.clone(),
    }
}

fn show_explanation(
    (placement, decided_by): (&Spec, &str),
    decided: Vec<String>,
    hub: &Hub,
    evaluation: &Evaluation,
) -> PlacementExplanation {
    let explained = explain(hub, evaluation);
    let prioritizer =
        |one: placement::explain::Weighted| PlacementPrioritizer { name: one.name, weight: one.weight };
    PlacementExplanation {
        namespace: placement.key.namespace.to_string(),
        name: placement.key.name.to_string(),
        decided_by: decided_by.to_owned(),
        chosen: evaluation.decisions(hub).map(ToString::to_string).collect(),
        decided,
        conditions: evaluation.conditions.all().map(condition).collect(),
        warning: evaluation.warning.clone(),
        prioritizers: explained.prioritizers.into_iter().map(prioritizer).collect(),
        clusters: explained.clusters.into_iter().map(cluster).collect(),
    }
}

fn cluster(explained: ClusterExplanation) -> PlacementCluster {
    let ClusterExplanation { cluster, outcome, scores, total } = explained;
    let (word, message, place) = match outcome {
        Outcome::Chosen { rank, group, group_name } => {
            let named = if group_name.is_empty() { String::new() } else { format!(" `{group_name}`") };
            ("Chosen", format!("number {rank}, in group {group}{named}"), Some((rank, group)))
        }
        Outcome::NotAmongTheBest => {
            ("NotAmongTheBest", "it passed every filter, and others are better".to_owned(), None)
        }
        Outcome::Filtered { by } => ("Filtered", format!("dropped by {by}"), None),
        Outcome::NotInSets => {
            ("NotInSets", "in none of the cluster sets that are bound and asked for".to_owned(), None)
        }
        Outcome::BeingDeleted => ("BeingDeleted", "its ManagedCluster is being deleted".to_owned(), None),
        Outcome::NotReached => {
            ("NotReached", "the evaluation ended before: see the conditions".to_owned(), None)
        }
    };
    PlacementCluster {
        cluster: cluster.to_string(),
        outcome: word.to_owned(),
        message,
        rank: place.map(|(rank, _)| rank),
        group: place.map(|(_, group)| group),
        scores,
        total,
    }
}
