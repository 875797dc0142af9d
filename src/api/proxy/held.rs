//! A watch that is handed on goes on only as long as whoever reads it may: it ends soon after their token or their right is
//! withdrawn, and at once when the cluster is let go of.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, BodyDataStream, Bytes},
    http::StatusCode,
};
use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use crate::{Failure, State};
use fedq_k8s::{
    proxy::{Proxy, ProxyError, Wanted},
    worker::Worker,
};

/// How often it is asked. Answers are remembered for as long, so a hub is asked no more than that for all of somebody's watches.
const EVERY: Duration = Duration::from_secs(10);

/// Who reads a watch.
pub struct Reader {
    pub state: State,
    pub token: String,
    /// What of which cluster; the hub's own RBAC says what of the hub.
    pub of: Option<(Arc<Worker>, Wanted)>,
}

pub fn while_allowed(body: Body, reader: Reader) -> Body {
    let watch = Watch { body: body.into_data_stream(), reader, look: Instant::now() + EVERY };
    Body::from_stream(stream::unfold(watch, |mut watch| async {
        let piece = watch.next().await?;
        Some((piece, watch))
    }))
}

struct Watch {
    body: BodyDataStream,
    reader: Reader,
    look: Instant,
}

impl Watch {
    async fn next(&mut self) -> Option<Result<Bytes, axum::Error>> {
        loop {
            tokio::select! {
                biased;
                () = self.reader.is_let_go() => return None,
                () = sleep_until(self.look) => {
                    if !self.reader.may().await {
                        return None;
                    }
                    self.look = Instant::now() + EVERY;
                }
                piece = self.body.next() => return piece,
            }
        }
    }
}

impl Reader {
    /// Until the cluster has left, or is asked with another credential.
    async fn is_let_go(&self) {
        let Some((worker, _)) = &self.of else { return std::future::pending().await };
        let mut joined = self.state.joined.clone();
        let other = joined.wait_for(|joined| {
            let now = joined.get(&worker.name).and_then(|joined| joined.worker.as_ref());
            !now.is_some_and(|now| Arc::ptr_eq(now, worker))
        });
        // Where nobody publishes any more, fedqd ends.
        let _ = other.await;
    }

    /// Where neither yes nor no is answered, what was allowed goes on: it ends by itself within minutes.
    async fn may(&self) -> bool {
        let caller = match self.state.authenticator.caller(&self.state.hub, &self.token).await {
            Ok(caller) => caller,
            Err(Failure(problem)) => return problem.status != StatusCode::UNAUTHORIZED.as_u16(),
        };
        let Some((worker, wanted)) = &self.of else { return true };
        !matches!(Proxy::new(&worker.client).may(&caller, wanted).await, Err(ProxyError::Denied { .. }))
    }
}
