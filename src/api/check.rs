//! Diagnosis: the one place where a request waits for a joined cluster.

use std::time::Duration;

use axum::extract::State as Extract;
use futures::{StreamExt, stream};

use super::{
    Failure, State,
    extract::{Json, Path, Reader},
};
use crate::{
    domain::{check, ids::ClusterName},
    wire::{
        check::{Finding, Outcome},
        list::List,
    },
};

/// Clusters looked at together.
const AT_ONCE: usize = 16;
/// A cluster that takes longer has its answer: it does not answer.
const DEADLINE: Duration = Duration::from_secs(30);

/// Looks at the hub and at every joined cluster.
#[utoipa::path(get, path = "/check", tag = "check", responses((status = OK, body = List<Finding>)))]
pub async fn check_all(_: Reader, Extract(state): Extract<State>) -> Result<Json<List<Finding>>, Failure> {
    let clusters: Vec<Option<ClusterName>> =
        std::iter::once(None).chain(state.overview().clusters.keys().cloned().map(Some)).collect();
    let looks = clusters.into_iter().map(|cluster| look(&state, cluster));
    let found: Vec<Vec<Finding>> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    Ok(Json(List { items: found.into_iter().flatten().collect(), next: None }))
}

/// Looks at one cluster.
#[utoipa::path(
    get, path = "/clusters/{cluster}/check", tag = "check", params(("cluster" = String, Path)),
    responses((status = OK, body = List<Finding>))
)]
pub async fn check_cluster(
    _: Reader,
    Extract(state): Extract<State>,
    Path(cluster): Path<ClusterName>,
) -> Result<Json<List<Finding>>, Failure> {
    state.must_be_joined(&cluster).await?;
    Ok(Json(List { items: look(&state, Some(cluster)).await, next: None }))
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
