//! The servers: webhooks, metrics, health.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, FromRequest, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{NonResourceAttributes, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::PostParams,
    core::{DynamicObject, admission::AdmissionReview},
};
use tokio::sync::watch;

use fedq_values::nested;

use crate::{
    metrics::Metrics,
    review::{Judge, is_allowed},
};

/// Of an AdmissionReview: the API server takes objects of 3 MiB, and sends two with an update.
const MAX_BODY: usize = 8 << 20;
/// As upstream's, so that its webhook configurations fit.
pub const MUTATE: &str = "/mutate-workload-codeflare-dev-v1beta2-appwrapper";
pub const VALIDATE: &str = "/validate-workload-codeflare-dev-v1beta2-appwrapper";

/// Until API servers know that this replica goes: they are told by way of the Service's endpoints, and send to it meanwhile.
const LINGER: Duration = Duration::from_secs(3);
/// For what was asked before that. An API server waits for a webhook at most so long.
const DRAIN: Duration = Duration::from_secs(10);

type Review = AdmissionReview<DynamicObject>;

/// Whoever reaches the port may post: what would end the process is not read.
struct Posted(Review);

impl<S: Send + Sync> FromRequest<S> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let body = Bytes::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        if nested::is_nested(&body) {
            let why = "the body holds JSON as a text that would be read as JSON once more";
            return Err((StatusCode::BAD_REQUEST, why).into_response());
        }
        Json::from_bytes(&body).map(|Json(review)| Self(review)).map_err(IntoResponse::into_response)
    }
}

/// Until `stop` is told to end, and all that was asked before is answered.
pub async fn webhooks(
    address: &str,
    tls: RustlsConfig,
    judge: Arc<Judge>,
    stop: Handle<SocketAddr>,
) -> anyhow::Result<()> {
    let mutate =
        async |State(judge): State<Arc<Judge>>, Posted(review): Posted| Json(judge.default(review).await);
    let validate =
        async |State(judge): State<Arc<Judge>>, Posted(review): Posted| Json(judge.validate(review).await);
    let router = Router::new()
        .route(MUTATE, post(mutate))
        .route(VALIDATE, post(validate))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(judge);
    tls_server(address, tls, router, stop).await.context("serve the webhooks")
}

/// A create that meets a closed port is refused, since the webhooks must be asked: so the port closes last.
pub async fn wind_down(stop: &Handle<SocketAddr>) {
    tokio::time::sleep(LINGER).await;
    stop.graceful_shutdown(Some(DRAIN));
}

pub async fn metrics(address: &str, tls: RustlsConfig, shown: (Client, Metrics)) -> anyhow::Result<()> {
    let router = Router::new().route("/metrics", get(show)).with_state(Arc::new(shown));
    tls_server(address, tls, router, Handle::new()).await.context("serve the metrics")
}

/// Answers `/healthz` always, and `/readyz` once the webhooks are served.
pub async fn health(address: &str, ready: watch::Receiver<bool>) -> anyhow::Result<()> {
    let readyz = async |State(ready): State<watch::Receiver<bool>>| {
        if *ready.borrow() {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "the webhooks are not served yet")
        }
    };
    let router =
        Router::new().route("/healthz", get(async || "ok")).route("/readyz", get(readyz)).with_state(ready);
    let server = axum_server::from_tcp(listen(address)?)?.serve(router.into_make_service());
    server.await.with_context(|| format!("serve health at {address}"))
}

async fn tls_server(
    address: &str,
    tls: RustlsConfig,
    router: Router,
    stop: Handle<SocketAddr>,
) -> anyhow::Result<()> {
    let server = axum_server::from_tcp_rustls(listen(address)?, tls)?.handle(stop);
    let server = server.serve(router.into_make_service());
    server.await.with_context(|| format!("listen at {address}"))
}

/// At the first of the addresses that can be had.
fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let addresses = parse(address)?;
    let listener =
        TcpListener::bind(addresses.as_slice()).with_context(|| format!("cannot listen at {address}"))?;
    listener.set_nonblocking(true).context("cannot listen without blocking")?;
    Ok(listener)
}

/// `:8443` is port 8443 of all addresses: of IPv6 and with it IPv4, or of IPv4 where the node has no IPv6.
fn parse(address: &str) -> anyhow::Result<Vec<SocketAddr>> {
    let wrong = || format!("`{address}` is no address such as `:8443` or `127.0.0.1:8443`");
    if let Some(port) = address.strip_prefix(':') {
        let port = port.parse().with_context(wrong)?;
        return Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]);
    }
    Ok(vec![address.parse().with_context(wrong)?])
}

/// Whoever may `get` the path `/metrics`, by RBAC.
async fn show(State(shown): State<Arc<(Client, Metrics)>>, headers: HeaderMap) -> Response {
    let (client, metrics) = &*shown;
    let token =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = token else { return StatusCode::UNAUTHORIZED.into_response() };
    match may_read(client, token).await {
        Ok(true) => {}
        Ok(false) => return StatusCode::FORBIDDEN.into_response(),
        Err(error) => {
            tracing::warn!("Cannot ask who reads the metrics: {error}");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    }
    match metrics.text() {
        Ok(text) => {
            let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, format)], text).into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn may_read(client: &Client, token: &str) -> Result<bool, kube::Error> {
    let spec = TokenReviewSpec { token: Some(token.to_owned()), audiences: None };
    let review = TokenReview { spec, ..TokenReview::default() };
    let reviewed = Api::<TokenReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    let status = reviewed.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else { return Ok(false) };
    let path = NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
    let spec = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(path),
        resource_attributes: None,
    };
    is_allowed(client, spec).await
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;
    use crate::{cases::server, certificate::Certificate, config::AppWrapperConfig, kinds::Kinds};

    #[tokio::test]
    async fn webhooks_are_answered_for_a_while_after_the_word_to_stop() {
        let client = server::client(|_| None);
        let (kinds, config) = (Kinds::new(client.clone(), None), AppWrapperConfig::default());
        let judge = Arc::new(Judge { client, kinds, config });
        let certificate = Certificate::issue(&["localhost".to_owned()], jiff::Timestamp::UNIX_EPOCH);
        let tls = RustlsConfig::from_config(certificate.expect("one").server_config().expect("usable"));
        let stop = Handle::new();
        let stopped = stop.clone();
        let served = tokio::spawn(async move { webhooks("127.0.0.1:0", tls, judge, stopped).await });
        let address = stop.listening().await.expect("an address");
        let wound_down = tokio::spawn(async move { wind_down(&stop).await });
        tokio::time::sleep(LINGER / 3).await;
        drop(TcpStream::connect(address).await.expect("somebody listens"));
        wound_down.await.expect("wound down");
        let ended = tokio::time::timeout(DRAIN / 2, served).await.expect("nobody was left to be answered");
        ended.expect("it did not panic").expect("it ended well");
        TcpStream::connect(address).await.expect_err("nobody listens");
    }

    #[test]
    fn a_port_alone_is_of_all_addresses_with_and_without_ipv6() {
        let parsed =
            |address| parse(address).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(parsed(":8443").expect("addresses"), ["[::]:8443", "0.0.0.0:8443"]);
        assert_eq!(parsed("127.0.0.1:0").expect("an address"), ["127.0.0.1:0"]);
        for wrong in ["8443", ":", ":x", "localhost:8443"] {
            parsed(wrong).expect_err(wrong);
        }
    }
}
