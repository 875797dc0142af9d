//! Kubernetes' API of joined clusters and of the hub, as far as kueue's commands ask for it: `kubectl` and `fedq kueue` speak to it as
//! to any API server, so refusals have Kubernetes' form (`Status`). What passes is for `fedq_k8s::proxy` to say.
//!
//! # How `fedq kueue list cq --all-clusters` is answered
//!
//! 1. `cli/kueue.rs` hands the line to `kueuectl`, with `cli/fleet.rs` as its `Fleet`: which clusters fedqd has, and for each a client that
//!    speaks Kubernetes' API to `/api/v1/clusters/NAME/proxy`. `kueuectl/fleet.rs` resolves the flags to places.
//! 2. For a table of queues or flavors, `Fleet::followed` asks `/api/v1/followed` once for all of them. `api/proxy/followed.rs` gives a line for
//!    each cluster that is `Ready`, whose table has no gap (`k8s/proxy/followed.rs`, `Proxy::is_fresh`), and whose authorizer lets the
//!    caller list that (`Proxy::may_list`). It says nothing of any other.
//! 3. Those are asked themselves, side by side and within one deadline, and so are all where what is followed would not do.
//!    `kueuectl/list.rs` turns pages into lines of one table as they come, and, with `-w`, `kueuectl/watch.rs` makes it of watches.
//! 4. `api/proxy.rs` finds out who calls, and has `k8s/proxy/wanted.rs` read the request: one of the kinds and verbs on its list, or it is
//!    refused. `deploy/worker/kueuectl.yaml` gives fedqd the same list; a test compares them.
//! 5. `k8s/proxy/abroad.rs` says who the caller is on that cluster, `Proxy::may` asks the cluster's authorizer, and `Proxy::forward` sends the
//!    request with fedqd's credential, over a connection apart from the one that fedqd follows the cluster by.
//! 6. `passed` hands the answer on as it comes, without what is about its way; `api/proxy/held.rs` ends a watch whose reader may not
//!    read any more. Changes are in the audit log.
//!
//! The hub is asked as the caller (`Sessions::forwarding`), and decides by itself.

use std::sync::Arc;

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{FromRequest, Request, State as Extract},
    http::{HeaderValue, Method, StatusCode, Uri, header, request::Parts},
    response::{IntoResponse, Response},
    routing::any,
};
use serde_json::json;

use super::{
    Failure, State,
    audit::{self, Deed},
    extract::token,
    routes::Uncompressed,
};
use fedq_domain::{cluster::Connection, nearest::nearest};
use fedq_k8s::{
    client::{Caller, RetryClass},
    proxy::{Answer, Asked, Content, Proxy, ProxyError, Unwanted, Wanted, forward_as},
    session::Permission,
    worker::Worker,
};
use fedq_values::ids::ClusterName;
use fedq_wire::problem::Code;

mod followed;
mod held;

use held::Reader;

const CLUSTERS: &str = "/api/v1/clusters/";
const HUB: &str = "/api/v1/hub/proxy";

/// Bodies that are read here: what `kubectl` sends for the kinds that pass. A server-side apply is not among them, since it would
/// write under a name of the caller's choice.
const BODIES: [&str; 4] = [
    "application/json",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// The file that gives fedqd its rights for this.
const RIGHTS: &str = "deploy/worker/kueuectl.yaml";

pub fn router() -> Router<State> {
    Router::new()
        .route("/api/v1/clusters/{cluster}/proxy/{*path}", any(of_cluster))
        .route("/api/v1/hub/proxy/{*path}", any(of_hub))
        .merge(followed::router())
}

/// A refusal as Kubernetes words it, with a reason that says which of ours it is.
struct Refusal {
    status: StatusCode,
    /// For programs, among the causes.
    code: &'static str,
    message: String,
    next: Option<String>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), next: None }
    }

    fn next(self, step: impl Into<String>) -> Self {
        Self { next: Some(step.into()), ..self }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let reason = match self.status {
            StatusCode::BAD_REQUEST => "BadRequest",
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
            StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            StatusCode::GATEWAY_TIMEOUT => "Timeout",
            _ => "InternalError",
        };
        let message = match &self.next {
            Some(next) => format!("{}\n{next}", self.message),
            None => self.message,
        };
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": reason, "code": self.status.as_u16(),
            "details": {"causes": [{"reason": self.code}]},
        });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Failure> for Refusal {
    fn from(Failure(problem): Failure) -> Self {
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, code: "Fedqd", message: problem.detail, next: problem.next }
    }
}

impl From<Unwanted> for Refusal {
    fn from(unwanted: Unwanted) -> Self {
        let status = match unwanted {
            Unwanted::Path(_) | Unwanted::Parameter(_) => StatusCode::BAD_REQUEST,
            Unwanted::Kind(_) => StatusCode::FORBIDDEN,
        };
        Self::new(status, "NotForwarded", format!("fedqd does not forward this: {unwanted}"))
            .next("ask the cluster itself, with its own kubeconfig (--context)")
    }
}

async fn of_cluster(Extract(state): Extract<State>, request: Request) -> Response {
    ask_cluster(&state, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn of_hub(Extract(state): Extract<State>, request: Request) -> Response {
    ask_hub(&state, request).await.unwrap_or_else(IntoResponse::into_response)
}

async fn ask_cluster(state: &State, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let token = token(&parts.headers)?.to_owned();
    let caller = state.authenticator.caller(&state.hub, &token).await?;
    let (name, path) = cluster_path(&parts.uri)?;
    let asked = read(state, (&parts, path), body).await?;
    let worker = worker(state, &caller, &name).await?;
    let (deed, wanted) = (deed(&asked, &format!("clusters/{name}")), asked.wanted.clone());
    let answer = async {
        let held = state.forwarded.take(&caller.user).await?;
        Proxy::new(&worker.client).forward(&caller, asked, held).await
    };
    let answer = answer.await.map_err(|error| refusal(error, &name, &wanted));
    record(state, &caller, deed, outcome(&answer)).await;
    let reader = Reader { state: state.clone(), token, of: Some((worker, wanted.clone())) };
    Ok(finished(answer?, &wanted, reader))
}

/// The hub's RBAC decides by itself: it is asked as the person.
async fn ask_hub(state: &State, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let token = token(&parts.headers)?.to_owned();
    let caller = state.authenticator.caller(&state.hub, &token).await?;
    let path = parts.uri.path().strip_prefix(HUB).unwrap_or_default();
    let asked = read(state, (&parts, path), body).await?;
    let (deed, wanted) = (deed(&asked, "hub"), asked.wanted.clone());
    let client = state.hub.forwarding(&caller).map_err(Failure::from)?;
    let answer = async {
        let held = (state.hub.places().take(&caller.user).await?, state.forwarded.take(&caller.user).await?);
        forward_as(&client, asked, held).await
    };
    let answer = answer.await.map_err(|error| match error {
        ProxyError::Api(error) => Refusal::from(Failure::from(error)),
        ProxyError::Busy => busy("the hub"),
        other => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "Fedqd", other.to_string()),
    });
    record(state, &caller, deed, outcome(&answer)).await;
    Ok(finished(answer?, &wanted, Reader { state: state.clone(), token, of: None }))
}

/// The cluster's name and what is asked of it, as they came: nothing of it is unescaped.
fn cluster_path(uri: &Uri) -> Result<(ClusterName, &str), Refusal> {
    let parts = uri.path().strip_prefix(CLUSTERS).and_then(|rest| rest.split_once('/'));
    let found =
        parts.and_then(|(name, rest)| Some((ClusterName::new(name).ok()?, rest.strip_prefix("proxy")?)));
    found.ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, "UnknownCluster", "that is no cluster's name"))
}

/// What somebody asks for, if it is one of what passes.
async fn read(state: &State, (parts, path): (&Parts, &str), body: Body) -> Result<Asked, Refusal> {
    if parts.headers.contains_key(header::UPGRADE) {
        return Err(Unwanted::Kind("an upgrade of the connection".to_owned()).into());
    }
    let wanted = Wanted::read(&parts.method, path, parts.uri.query())?;
    let body = Bytes::from_request(Request::from_parts(parts.clone(), body), state).await;
    let body = body.map_err(|rejection| Refusal::new(rejection.status(), "Body", rejection.body_text()))?;
    let content_type = parts.headers.get(header::CONTENT_TYPE).cloned();
    let media = content_type.as_ref().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !body.is_empty() && !BODIES.contains(&media) {
        let message = format!("a body has to be {}", BODIES.join(" or "));
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Body", message));
    }
    let accept = parts.headers.get(header::ACCEPT).cloned();
    Ok(Asked { method: parts.method.clone(), wanted, content: Content { accept, content_type, body } })
}

async fn worker(state: &State, caller: &Caller, name: &ClusterName) -> Result<Arc<Worker>, Refusal> {
    // Which clusters there are, and how they fare, is for those who may read it.
    let reads = async || state.authenticator.allow(&state.hub, caller, &Permission::READ).await.is_ok();
    let unknown = async || {
        let message = format!("cluster `{name}` is not joined");
        let refusal = Refusal::new(StatusCode::BAD_REQUEST, "UnknownCluster", message);
        if !reads().await {
            return refusal;
        }
        let joined = state.joined.borrow().clone();
        match nearest(name.as_str(), joined.keys().map(ClusterName::as_str)) {
            Some(meant) => {
                refusal.next(format!("did you mean `{meant}`? fedq cluster list shows what is joined"))
            }
            None => refusal.next("fedq cluster list shows what is joined"),
        }
    };
    if let Err(failure) = state.must_be_joined(name).await {
        return Err(if failure.0.status == 404 { unknown().await } else { failure.into() });
    }
    let Some(joined) = state.joined.borrow().get(name).cloned() else { return Err(unknown().await) };
    match (&joined.worker, joined.told()) {
        (Some(worker), Connection::Ready) => Ok(Arc::clone(worker)),
        (_, connection) => {
            let why = if reads().await { format!(": {}", link(&connection)) } else { String::new() };
            let message = format!("cluster `{name}` cannot be asked now{why}");
            Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "ClusterNotReady", message)
                .next(format!("fedq check {name} says why")))
        }
    }
}

fn link(connection: &Connection) -> String {
    match connection {
        Connection::Stale { reason, .. }
        | Connection::Lost { reason, .. }
        | Connection::Refused { reason } => {
            format!("it is {}: {reason}", connection.word())
        }
        Connection::Connecting
        | Connection::Ready
        | Connection::Unreached
        | Connection::Quarantined { .. } => {
            format!("it is {}", connection.word())
        }
    }
}

fn busy(what: &str) -> Refusal {
    let message = format!("too many requests to {what}, or of one person, are under way");
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "Busy", message)
}

fn refusal(error: ProxyError, cluster: &ClusterName, wanted: &Wanted) -> Refusal {
    let what = format!("{} {}", wanted.verb, wanted.target);
    let grant = || format!("apply {RIGHTS} there, or ask it with its own kubeconfig (--context)");
    match error {
        ProxyError::Denied { user, reason } => {
            let colon = if reason.is_empty() { "" } else { ": " };
            let message = format!("user \"{user}\" cannot {what} on cluster `{cluster}`{colon}{reason}");
            Refusal::new(StatusCode::FORBIDDEN, "NotAllowedThere", message).next(format!(
                "an administrator of cluster `{cluster}` can give that right to the user of that name there"
            ))
        }
        ProxyError::ReviewsNotAllowed(said) => {
            let message = format!("fedqd may not ask cluster `{cluster}` what its users may do: {said}");
            Refusal::new(StatusCode::FORBIDDEN, "ReviewsNotAllowed", message).next(grant())
        }
        ProxyError::FedqdNotAllowed(said) => {
            let message = format!("fedqd itself may not {what} on cluster `{cluster}`: {said}");
            Refusal::new(StatusCode::FORBIDDEN, "FedqdNotAllowed", message).next(grant())
        }
        ProxyError::Busy => busy(&format!("cluster `{cluster}`")),
        ProxyError::Connect(error) => {
            Refusal::from(Failure::internal("no connection to the cluster can be made", &error))
        }
        ProxyError::Api(error) => {
            let status = match error.class {
                RetryClass::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
                RetryClass::Timeout => StatusCode::GATEWAY_TIMEOUT,
                RetryClass::Unreachable | RetryClass::WebhookDown => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::BAD_GATEWAY,
            };
            let message = format!("cluster `{cluster}` gives no answer: {error}");
            Refusal::new(status, "NoAnswer", message).next(format!("fedq check {cluster} says why"))
        }
    }
}

/// What is written down of a write.
fn deed(asked: &Asked, place: &str) -> Option<Deed> {
    let Asked { method, wanted, content } = asked;
    // Where a deletion has a body, the server goes by that and not by the query.
    let by_query = *method != Method::DELETE || content.body.is_empty();
    wanted.writes().then(|| Deed {
        verb: wanted.verb,
        object: format!("{place}/{}", wanted.target),
        detail: None,
        dry_run: wanted.dry_run && by_query,
    })
}

/// How it went, for the audit log.
fn outcome(answer: &Result<Answer, Refusal>) -> Result<(), Failure> {
    let failed = |status, text: String| Err(Failure::new(status, Code::Forbidden, text));
    match answer {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => failed(answer.status(), format!("the server answered {}", answer.status())),
        Err(refusal) => failed(refusal.status, refusal.message.clone()),
    }
}

async fn record(state: &State, caller: &Caller, deed: Option<Deed>, outcome: Result<(), Failure>) {
    if let Some(deed) = deed {
        audit::record(state, caller, deed, outcome.as_ref().copied()).await;
    }
}

fn finished(answer: Answer, wanted: &Wanted, reader: Reader) -> Response {
    let mut response = answer.map(Body::new);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if wanted.watches {
        // Events of a watch must not wait for more to compress.
        response.extensions_mut().insert(Uncompressed);
        response = response.map(|body| held::while_allowed(body, reader));
    }
    response
}
