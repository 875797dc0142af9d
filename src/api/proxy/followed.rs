//! One list of many clusters at once, from what fedqd follows of them. Its path is that of Kubernetes' API; its answer has a line for
//! each cluster that the person may read there and that is followed without a gap. Every other cluster is left out: whoever asks that
//! one itself, as `proxy.rs` lets them, gets its answer or is told why there is none.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::State as Extract,
    http::{HeaderMap, HeaderValue, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::{StreamExt, stream};
use serde::Deserialize;
use tokio::{
    sync::oneshot,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use crate::{
    Failure, State,
    extract::{Query, person},
};
use fedq_domain::cluster::Connection;
use fedq_k8s::{
    client::Caller,
    proxy::{
        Place, Places, Proxy,
        followed::{List, line},
    },
    worker::Joined,
};
use fedq_values::ids::ClusterName;

const PATH: &str = "/api/v1/followed/{*path}";
const PREFIX: &str = "/api/v1/followed";

/// Lists under way at a time, and those of one person: each may ask every cluster about rights.
const LISTS: usize = 32;
const OF_ONE: usize = 4;

/// Clusters that are asked at a time what the person may do there; each has its own connection.
const AT_ONCE: usize = 256;
/// How long a cluster is waited for: one that takes longer is left to whoever asks it alone.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long all of it may take. What is not told by then is left to be asked: somebody who reads slowly, or not at all, keeps no place.
const WHOLE: Duration = Duration::from_secs(30);

pub fn router() -> Router<State> {
    Router::new().route(PATH, get(lists)).layer(Extension(Places::new(LISTS, OF_ONE)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Names with commas between them; all clusters where it is missing.
    clusters: Option<String>,
}

impl Which {
    fn names(&self) -> Option<BTreeSet<&str>> {
        self.clusters.as_deref().map(|names| names.split(',').collect())
    }
}

async fn lists(
    Extract(state): Extract<State>,
    Extension(places): Extension<Places>,
    uri: Uri,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let caller = person(&state, &headers).await?;
    let path = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let list = List::read(path).map_err(|unwanted| {
        Failure::bad_request(format!("fedqd has no list of this: {unwanted}"))
            .next("ask the clusters: /api/v1/clusters/{cluster}/proxy/…")
    })?;
    let place = places.take(&caller.user).await;
    let place = place.map_err(|_| Failure::too_many_requests("too many lists are under way"))?;
    let (names, all) = (which.names(), state.joined.borrow().clone());
    let wanted =
        all.iter().filter(|(name, _)| names.as_ref().is_none_or(|names| names.contains(name.as_str())));
    let wanted: Vec<_> = wanted.map(|(name, joined)| (name.clone(), Arc::clone(joined))).collect();
    let asked = Arc::new((caller, list));
    let until = Instant::now() + WHOLE;
    let under_way = hold(place, until);
    let lines = stream::iter(wanted)
        .map(move |(name, joined)| of_cluster(Arc::clone(&asked), name, joined))
        .buffer_unordered(AT_ONCE)
        .filter_map(async |line| line.map(Ok::<_, Infallible>))
        .take_until(sleep_until(until))
        .inspect(move |_| {
            let _ = &under_way;
        });
    let media = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((media, Body::from_stream(lines)).into_response())
}

/// The place is given back when the last line has been taken, which drops what this returns, and at that time in any case:
/// lines that nobody takes are not made.
fn hold(place: Place, until: Instant) -> oneshot::Sender<Infallible> {
    let (under_way, over) = oneshot::channel();
    tokio::spawn(async move {
        let _ = timeout_at(until, over).await;
        drop(place);
    });
    under_way
}

async fn of_cluster(asked: Arc<(Caller, List)>, name: ClusterName, joined: Arc<Joined>) -> Option<Bytes> {
    let (caller, list) = &*asked;
    let worker = joined.worker.as_ref().filter(|_| joined.told() == Connection::Ready)?;
    let proxy = Proxy::new(&worker.client);
    if !proxy.is_fresh(&worker.tables, list) {
        return None;
    }
    // What it refuses, and why, it says to whoever asks it alone.
    let may = timeout(PATIENCE, proxy.may_list(caller, list)).await;
    if !matches!(may, Ok(Ok(()))) || worker.cancel.is_cancelled() || !proxy.is_fresh(&worker.tables, list) {
        return None;
    }
    Some(line(name.as_str(), &worker.tables, list).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_place_is_given_back_by_who_has_read_all_and_by_who_reads_nothing() {
        let places = Places::new(1, 1);
        let taken = async || places.take("ann").await.map_err(|_| "no place");
        let far = Instant::now() + Duration::from_mins(1);
        let under_way = hold(taken().await.expect("a place"), far);
        assert_eq!(taken().await.err(), Some("no place"), "it is held while lines are read");
        drop(under_way);
        let soon = Instant::now() + Duration::from_millis(50);
        let _stalled = hold(taken().await.expect("a place"), soon);
        taken().await.expect("a place, though nothing was read");
    }
}
