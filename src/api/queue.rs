//! The quota of the hub's queues, and why it is what it is.

use std::collections::{BTreeMap, BTreeSet};

use axum::{extract::State as Extract, http::HeaderMap, response::Response};
use serde_json::json;

use super::{
    Failure, State,
    audit::{self, Deed},
    extract::{DryRun, Json, Path, Person, Query, Reader},
    object::Object,
    show, stream,
};
use fedq_domain::{overview::QueueOverview, resources::FlavorResource};
use fedq_store::{PageRequest, PlanCause, PlanRow};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};
use fedq_wire::{
    cluster::Done,
    list::{List, ListQuery},
    quota::{Plan, PlanReport, PlansQuery, Queue, QueueExplanation, SetBase},
};

/// Plans that `explain` shows of each cluster.
const PLANS: u32 = 5;

/// Queues with their quota, by name.
#[utoipa::path(
    get, path = "/queues", tag = "quota", params(ListQuery), responses((status = OK, body = List<Queue>))
)]
pub async fn list_queues(
    _: Reader,
    Extract(state): Extract<State>,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::list(&state, &query, &headers, |overview, aliases| {
        let queues = overview.queues.iter();
        queues.map(|(name, queue)| (name.to_string(), show::queue(name, queue, aliases))).collect()
    })
    .await
}

/// Why a queue's quota is what it is: base, each cluster's part, and the plans that made it.
#[utoipa::path(
    get, path = "/queues/{queue}", tag = "quota", params(("queue" = String, Path)),
    responses((status = OK, body = QueueExplanation))
)]
pub async fn explain_queue(
    _: Reader,
    Extract(state): Extract<State>,
    Path(name): Path<QueueName>,
) -> Result<Object<QueueExplanation>, Failure> {
    let overview = state.overview();
    let queue = overview.queues.get(&name).ok_or_else(|| unknown(&name))?;
    let plans = plans(&state, queue).await?;
    Ok(Object::new(QueueExplanation { queue: show::queue(&name, queue, &state.aliases), plans }))
}

/// The last plans of the clusters that contribute to the queue, newest first.
async fn plans(state: &State, queue: &QueueOverview) -> Result<Vec<Plan>, Failure> {
    let clusters: BTreeSet<_> = queue.cells.values().flat_map(|cell| cell.terms.keys()).collect();
    let mut rows: Vec<PlanRow> = Vec::new();
    for cluster in clusters {
        rows.extend(state.store.plans(Some(cluster), &PageRequest::first(PLANS)).await?.items);
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.id));
    Ok(rows.into_iter().filter_map(|row| plan(state, row)).collect())
}

/// `None` of one as another version of fedqd stored it.
fn plan(state: &State, row: PlanRow) -> Option<Plan> {
    let mut report: PlanReport = serde_json::from_value(row.report)
        .inspect_err(|error| tracing::debug!("A stored plan is left out: {error}"))
        .ok()?;
    for cell in &mut report.cells {
        // It is stored under its name in Kubernetes, as short names may change.
        if let Ok(resource) = ResourceName::new(&cell.resource) {
            state.aliases.short(&resource).clone_into(&mut cell.resource);
        }
    }
    let (at, cluster) = (row.at.into(), row.cluster.to_string());
    Some(Plan { at, cluster, cause: words(&row.cause), who: row.cause.who, report })
}

/// What was planned, newest first: each plan that changed what a queue gets of a cluster, with its cause.
///
/// With `queue` a plan has the cells of that queue only. One without any is told where the cluster's plan before it had
/// some, as it took them away, and is left out otherwise: a page may be short, or empty, and have a next one all the same.
#[utoipa::path(
    get, path = "/plans", tag = "quota", params(PlansQuery), responses((status = OK, body = List<Plan>))
)]
pub async fn list_plans(
    _: Reader,
    Extract(state): Extract<State>,
    Query(query): Query<PlansQuery>,
) -> Result<Json<List<Plan>>, Failure> {
    let cluster = query.cluster.as_deref().map(ClusterName::new).transpose();
    let cluster = cluster.map_err(|error| Failure::bad_request(format!("`cluster`: {error}")))?;
    let page = audit::page(query.limit, query.next.as_deref())?;
    let found = state.store.plans(cluster.as_ref(), &page).await?;
    let items = match &query.queue {
        Some(queue) => plans_of(&state, queue, found.items).await?,
        None => found.items.into_iter().filter_map(|row| plan(&state, row)).collect(),
    };
    Ok(Json(List { items, next: found.next.map(|next| next.to_string()) }))
}

/// What plans gave one queue, and which of them took away what the one before had given it. Newest first, as `rows` are.
async fn plans_of(state: &State, queue: &str, rows: Vec<PlanRow>) -> Result<Vec<Plan>, Failure> {
    let mut items = Vec::new();
    // Whether the cluster's plan before had the queue, as the oldest comes first here.
    let mut had: BTreeMap<ClusterName, bool> = BTreeMap::new();
    for row in rows.into_iter().rev() {
        let (id, cluster) = (row.id, row.cluster.clone());
        let Some(mut plan) = plan(state, row) else { continue };
        plan.report.cells.retain(|cell| cell.queue == queue);
        let has = !plan.report.cells.is_empty();
        let is_told = has
            || match had.get(&cluster) {
                Some(had) => *had,
                None => had_before(state, queue, &cluster, id).await?,
            };
        had.insert(cluster, has);
        if is_told {
            items.push(plan);
        }
    }
    items.reverse();
    Ok(items)
}

/// Whether the cluster's last plan before that one gave the queue something.
async fn had_before(state: &State, queue: &str, cluster: &ClusterName, id: i64) -> Result<bool, Failure> {
    let before = PageRequest::after(id.to_string().parse()?, 1);
    let found = state.store.plans(Some(cluster), &before).await?;
    let plans = found.items.into_iter().filter_map(|row| plan(state, row));
    Ok(plans.flat_map(|plan| plan.report.cells).any(|cell| cell.queue == queue))
}

fn words(cause: &PlanCause) -> String {
    let claim = cause.claim.as_ref().map(|claim| match cause.generation {
        Some(generation) => format!("claim {claim} generation {generation}"),
        None => format!("claim {claim}"),
    });
    let parts = [claim, cause.capacity_change.clone(), cause.other.clone()];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Changes what a cell holds besides what clusters contribute.
///
/// Takes the rights to `get` and `patch` the ClusterQueue on the hub; those on its Cohort as well, where its quota stands
/// in one.
#[utoipa::path(
    put, path = "/queues/{queue}/base", tag = "quota", request_body = SetBase,
    params(("queue" = String, Path), DryRun), responses((status = OK, body = Done))
)]
pub async fn set_base(
    Person(caller): Person,
    Extract(state): Extract<State>,
    Path(queue): Path<QueueName>,
    Query(dry_run): Query<DryRun>,
    Json(body): Json<SetBase>,
) -> Result<Json<Done>, Failure> {
    let flavor = FlavorName::new(&body.flavor).map_err(|error| Failure::field("flavor", &error))?;
    let resource =
        state.aliases.resolve(&body.resource).map_err(|error| Failure::field("resource", &error))?;
    let base = Amount::exact(&body.base.0, &resource).map_err(|error| Failure::field("base", &error))?;
    let (cell, dry_run) = (FlavorResource { flavor, resource }, dry_run.is_set());
    let session = state.hub.session(&caller)?;
    let outcome = session.set_base(&queue, &cell, base, dry_run).await.map_err(Failure::from);
    let detail = Some(json!({"flavor": body.flavor, "resource": body.resource, "base": body.base}));
    let deed = Deed { verb: "set-base", object: format!("clusterqueues/{queue}"), detail, dry_run };
    audit::record(&state, &caller, deed, outcome.as_ref().map(|_| ())).await;
    let before = outcome?.text(&cell.resource);
    let message = format!("base of {queue} {} {}: {before} → {}", body.flavor, body.resource, body.base);
    Ok(Json(Done { message, dry_run, next: None }))
}

fn unknown(name: &QueueName) -> Failure {
    Failure::not_found(format!("the hub has no ClusterQueue `{name}` that fedq knows"))
        .next("fedq quota list shows those it knows")
}
