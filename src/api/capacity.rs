//! What clusters have, and had.

use axum::{extract::State as Extract, http::HeaderMap, response::Response};

use super::{
    Failure, State, audit,
    extract::{Json, Path, Query, Reader},
    show, stream,
};
use fedq_values::ids::ClusterName;
use fedq_wire::{
    capacity::{Capacity, CapacityChange},
    list::{List, ListQuery, PageQuery},
};

/// What each cluster has by flavor and resource, what is assigned of it and what is left.
#[utoipa::path(
    get, path = "/capacity", tag = "capacity", params(ListQuery),
    responses((status = OK, body = List<Capacity>))
)]
pub async fn list_capacity(
    _: Reader,
    Extract(state): Extract<State>,
    Query(query): Query<ListQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    stream::list(&state, &query, &headers, show::capacity).await
}

/// How a cluster's capacity changed, newest first. What is remembered of one that has left stays.
#[utoipa::path(
    get, path = "/capacity/{cluster}/history", tag = "capacity",
    params(("cluster" = String, Path), PageQuery),
    responses((status = OK, body = List<CapacityChange>))
)]
pub async fn capacity_history(
    _: Reader,
    Extract(state): Extract<State>,
    Path(cluster): Path<ClusterName>,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<CapacityChange>>, Failure> {
    let page = audit::page(query.limit, query.next.as_deref())?;
    let found = state.store.capacity_history(Some(&cluster), &page).await?;
    if found.items.is_empty() && page.after.is_none() {
        must_be_known(&state, &cluster).await?;
    }
    let items = found.items.into_iter().map(|change| CapacityChange {
        at: change.at.into(),
        cluster: change.cluster.to_string(),
        flavor: change.flavor.to_string(),
        capacity: change.capacity.map(|amount| show::quantity(amount, &change.resource)),
        usable: change.usable.map(|amount| show::quantity(amount, &change.resource)),
        resource: state.aliases.short(&change.resource).to_owned(),
    });
    Ok(Json(List { items: items.collect(), next: found.next.map(|next| next.to_string()) }))
}

/// What nobody has heard of has no history, and not an empty one.
async fn must_be_known(state: &State, cluster: &ClusterName) -> Result<(), Failure> {
    if state.overview().managed.contains_key(cluster) {
        return Ok(());
    }
    state.must_be_joined(cluster).await
}
