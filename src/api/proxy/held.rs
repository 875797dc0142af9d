//! A watch that is handed on goes on only as long as whoever reads it may, and ends at once when the cluster is let go of.

use std::sync::Arc;

use axum::{body::Body, http::StatusCode};
use futures::FutureExt;

use crate::{Failure, State, held::Held};
use fedq_k8s::{
    proxy::{Proxy, ProxyError, Wanted},
    worker::Worker,
};
use fedq_wire::problem::Code;

/// Who reads a watch.
#[derive(Clone)]
pub struct Reader {
    pub state: State,
    pub token: String,
    /// What of which cluster; the hub's own RBAC says what of the hub.
    pub of: Option<(Arc<Worker>, Wanted)>,
}

pub fn while_allowed(body: Body, reader: Reader) -> Body {
    let let_go = reader.clone().until_let_go();
    let review = move || reader.clone().may().boxed();
    // Its place is one of those for what is forwarded.
    Held::new(Box::new(review)).until(let_go).body(body)
}

impl Reader {
    /// Until the cluster has left, or is asked with another credential.
    async fn until_let_go(self) {
        let Some((worker, _)) = self.of else { return std::future::pending().await };
        let mut joined = self.state.joined.clone();
        let other = joined.wait_for(|joined| {
            let now = joined.get(&worker.name).and_then(|joined| joined.worker.as_ref());
            !now.is_some_and(|now| Arc::ptr_eq(now, &worker))
        });
        // Where nobody publishes any more, fedqd ends.
        let _ = other.await;
    }

    async fn may(self) -> Result<(), Failure> {
        let caller = self.state.authenticator.caller(&self.state.hub, &self.token).await?;
        let Some((worker, wanted)) = &self.of else { return Ok(()) };
        match Proxy::new(&worker.client).may(&caller, wanted).await {
            Err(ProxyError::Denied { reason, .. }) => {
                Err(Failure::new(StatusCode::FORBIDDEN, Code::Forbidden, reason))
            }
            // Neither yes nor no.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
