//! Diagnosis: the one place where a request waits for a joined cluster.

use std::time::Duration;

use axum::extract::State as Extract;
use futures::StreamExt;

use super::{
    Failure, State,
    extract::{Json, Path, Query, Reader},
    stream,
};
use fedq_domain::check;
use fedq_values::ids::ClusterName;
use fedq_wire::{
    check::{Finding, Outcome},
    list::{List, PageQuery},
};

/// Clusters looked at together.
const AT_ONCE: usize = 16;
/// A cluster that takes longer has its answer: it does not answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// Looks at the hub and at every joined cluster.
///
/// Each page looks only at the clusters that it tells of.
#[utoipa::path(
    get, path = "/check", tag = "check", params(PageQuery), responses((status = OK, body = List<Finding>))
)]
pub async fn check_all(
    Reader(caller): Reader,
    Extract(state): Extract<State>,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<Finding>>, Failure> {
    let _place = state.callers.look(&caller.user).await?;
    let clusters: Vec<Option<ClusterName>> =
        std::iter::once(None).chain(state.overview().clusters.keys().cloned().map(Some)).collect();
    page(&state, clusters, &query).await.map(Json)
}

/// Looks at one cluster.
#[utoipa::path(
    get, path = "/clusters/{cluster}/check", tag = "check", params(("cluster" = String, Path), PageQuery),
    responses((status = OK, body = List<Finding>))
)]
pub async fn check_cluster(
    Reader(caller): Reader,
    Extract(state): Extract<State>,
    Path(cluster): Path<ClusterName>,
    Query(query): Query<PageQuery>,
) -> Result<Json<List<Finding>>, Failure> {
    state.must_be_joined(&cluster).await?;
    let _place = state.callers.look(&caller.user).await?;
    page(&state, vec![Some(cluster)], &query).await.map(Json)
}

/// Of `clusters` in their order, as many as fill the page. A page ends in a cluster and a number: that many of its
/// findings were told.
async fn page(
    state: &State,
    clusters: Vec<Option<ClusterName>>,
    query: &PageQuery,
) -> Result<List<Finding>, Failure> {
    let wrong = || Failure::bad_request("`continue` is not one this server gave");
    let (after, told) =
        match query.next.as_deref().filter(|next| !next.is_empty()).map(|next| next.rsplit_once('/')) {
            None => ("", 0),
            Some(Some((cluster, told))) => (cluster, told.parse::<usize>().map_err(|_| wrong())?),
            Some(None) => return Err(wrong()),
        };
    let limit = stream::limit(query.limit);
    let name = |cluster: &Option<ClusterName>| cluster.as_ref().map_or(String::new(), ToString::to_string);
    let rest: Vec<_> = clusters.into_iter().filter(|cluster| after <= name(cluster).as_str()).collect();
    let looks = rest.into_iter().map(|cluster| async { (name(&cluster), look(state, cluster).await) });
    let mut looks = std::pin::pin!(futures::stream::iter(looks).buffered(AT_ONCE));
    let mut items = Vec::new();
    while let Some((cluster, found)) = looks.next().await {
        let told = if cluster == after { told } else { 0 };
        for (number, finding) in found.into_iter().enumerate().skip(told) {
            if items.len() == limit {
                return Ok(List { items, next: Some(format!("{cluster}/{number}")) });
            }
            items.push(finding);
        }
    }
    Ok(List { items, next: None })
}

async fn look(state: &State, cluster: Option<ClusterName>) -> Vec<Finding> {
    let looking = state.diagnose.diagnose(cluster.as_ref());
    let found = tokio::time::timeout(DEADLINE, looking).await.unwrap_or_else(|_| {
        vec![check::Finding {
            name: "reachable".to_owned(),
            outcome: check::Outcome::Failed,
            message: format!("no answer within {} s", DEADLINE.as_secs()),
            next: Some("look at its API server and at the network in between".to_owned()),
        }]
    });
    let cluster = cluster.map(|name| name.to_string());
    let show = |found: check::Finding| Finding {
        cluster: cluster.clone(),
        name: found.name,
        outcome: match found.outcome {
            check::Outcome::Ok => Outcome::Ok,
            check::Outcome::Warning => Outcome::Warning,
            check::Outcome::Failed => Outcome::Failed,
        },
        message: found.message,
        next: found.next,
    };
    found.into_iter().map(show).collect()
}
