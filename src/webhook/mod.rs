//! The admission webhook for claims: tells a person at once what is wrong with an edit.
//!
//! It answers from a snapshot, without any IO, and is never needed: the API server passes over it
//! when it is down (`failurePolicy: Ignore`), since nothing may keep people or fedqd from repairing a
//! claim, and the controllers judge every stored claim by the same function.

pub mod certificate;
pub mod review;

use std::{error::Error, io, net::TcpListener, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use hyper_util::rt::TokioTimer;
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use self::review::Judge;
use crate::domain::overview::Overview;

/// Where the API server posts reviews; the ValidatingWebhookConfiguration names it.
pub const PATH: &str = "/validate/clusterresourceclaims";

/// The API server's own limit on a request.
const MAX_BODY: usize = 3 << 20;
/// The API server gives up after five seconds; whoever sends slower than this is not one.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub struct Webhook {
    pub judge: Arc<Judge>,
    pub overview: watch::Receiver<Arc<Overview>>,
}

impl Webhook {
    pub fn router(self) -> Router {
        Router::new().route(PATH, post(validate)).with_state(self)
    }

    /// Serves until `stop`, then lets running requests end. `tls` may be reloaded meanwhile.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: RustlsConfig,
        stop: CancellationToken,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let handle = Handle::new();
        let mut server = axum_server::from_tcp_rustls(listener, tls)?.handle(handle.clone());
        let http = server.http_builder();
        http.http1().timer(TokioTimer::new()).header_read_timeout(READ_TIMEOUT);
        http.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(30));
        let mut serving = std::pin::pin!(server.serve(self.router().into_make_service()));
        tokio::select! {
            ended = &mut serving => return ended,
            () = stop.cancelled() => handle.graceful_shutdown(Some(DRAIN)),
        }
        serving.await
    }
}

async fn validate(State(webhook): State<Webhook>, body: Body) -> Response {
    let body = match timeout(READ_TIMEOUT, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            return (StatusCode::PAYLOAD_TOO_LARGE, "the review is larger than 3 MiB").into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the review did not arrive in time").into_response(),
    };
    let overview = Arc::clone(&webhook.overview.borrow());
    match webhook.judge.answer(&body, &overview) {
        Ok(review) => Json(review).into_response(),
        Err(error) => {
            let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
            (StatusCode::BAD_REQUEST, format!("{error}{cause}")).into_response()
        }
    }
}

#[cfg(test)]
mod tests;
