//! What `fedqd` listens on: metrics and probes, the REST API, the admission webhook.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use axum::{Router, extract::State as Extract, http::StatusCode, routing::get};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::sync::CancellationToken;

use super::Daemon;
use crate::telemetry::Metrics;

/// For requests under way when the daemon stops.
const DRAIN: Duration = Duration::from_secs(5);

impl Daemon {
    pub(super) async fn serve_metrics(&mut self, ready: watch::Receiver<bool>) -> anyhow::Result<()> {
        let router = Router::new()
            .route("/healthz", get(async || "ok"))
            .route("/readyz", get(readyz))
            .with_state(ready)
            .merge(Router::new().route("/metrics", get(exposition)).with_state(self.metrics.clone()));
        let listener = listen(self.config.metrics.address, "metrics.address").await?;
        self.tasks.spawn(serve_plain(listener, router, self.cancel.clone()));
        Ok(())
    }
}

async fn listen(address: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("{key}: cannot listen on {address}"))
}

async fn serve_plain(listener: TcpListener, router: Router, cancel: CancellationToken) -> anyhow::Result<()> {
    let served = axum::serve(listener, router).with_graceful_shutdown(cancel.clone().cancelled_owned());
    // A stream that somebody watches has no end of its own.
    let give_up = async {
        cancel.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = served => ended.context("a listener failed"),
        () = give_up => Ok(()),
    }
}

async fn readyz(Extract(ready): Extract<watch::Receiver<bool>>) -> (StatusCode, &'static str) {
    if *ready.borrow() {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the hub's objects are not known yet")
    }
}

async fn exposition(Extract(metrics): Extract<Metrics>) -> Result<String, StatusCode> {
    metrics.encode().map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
