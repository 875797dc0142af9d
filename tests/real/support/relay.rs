//! A wire between a program and its API server, on which a case sees every request and answer, ends the program in between,
//! cuts it off from its server, or holds up what a watch says.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::cluster::client_of;

/// Between two tries to have the port again, which somebody may have taken meanwhile.
const BIND_EVERY: Duration = Duration::from_millis(50);
/// Larger than any object that an API server takes.
const MAX_BODY: usize = 8 << 20;

/// A request of the program.
#[derive(Clone, Debug)]
pub struct Asked {
    /// As the API server's audit log says it: `create`, `patch`, `watch`, …
    pub verb: &'static str,
    /// `jobs` or `appwrappers/status`.
    pub resource: String,
    pub uri: String,
    pub body: Value,
}

/// Who listens on the wire.
pub trait Tap: Send + Sync + 'static {
    /// Before the server has the request. It gets it if the answer is `true`.
    fn before<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, bool>;
    /// Before the program has the answer. It gets it if the answer is `true`.
    fn after<'a>(&'a self, asked: &'a Asked, code: u16) -> BoxFuture<'a, bool>;
    /// How late the program hears each piece of what a watch says.
    fn lag(&self, asked: &Asked) -> Duration;
}

/// Cut when it is dropped.
pub struct Relay {
    port: u16,
    gate: Gate,
    serving: AbortHandle,
}

/// Whether the program gets through.
#[derive(Clone)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    /// As when the server has stopped: connections break off, whatever is under way on them, and new ones are refused.
    pub fn close(&self) {
        self.0.send_replace(false);
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Wire {
    server: kube::Client,
    tap: Arc<dyn Tap>,
}

impl Relay {
    /// Asks the server of this kubeconfig, as its user.
    pub async fn start(kubeconfig: &str, tap: Arc<dyn Tap>) -> Result<Self> {
        let wire = Arc::new(Wire { server: client_of(kubeconfig).await?, tap });
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("a port for a relay")?;
        let port = listener.local_addr()?.port();
        let router = axum::Router::new().fallback(pass).with_state(wire);
        let (gate, open) = watch::channel(true);
        let serving = tokio::spawn(async move {
            let _ = serve(listener, router, open).await;
        });
        Ok(Self { port, gate: Gate(gate), serving: serving.abort_handle() })
    }

    pub fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// For the program: the relay speaks for its user.
    pub fn kubeconfig(&self) -> Result<String> {
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "clusters": [{"name": "main", "cluster": {"server": format!("http://127.0.0.1:{}", self.port)}}],
            "users": [{"name": "main", "user": {}}],
            "contexts": [{"name": "main", "context": {"cluster": "main", "user": "main"}}],
        });
        Ok(serde_saphyr::to_string(&text)?)
    }
}

async fn serve(
    mut listener: TcpListener,
    router: axum::Router,
    mut open: watch::Receiver<bool>,
) -> Result<()> {
    let address = listener.local_addr()?;
    loop {
        listener.set_nonblocking(true)?;
        let handle = axum_server::Handle::new();
        let server = axum_server::from_tcp(listener)?.handle(handle.clone());
        tokio::select! {
            served = server.serve(router.clone().into_make_service()) => return Ok(served?),
            closed = open.wait_for(|open| !*open) => {
                closed?;
                handle.shutdown();
            }
        }
        open.wait_for(|open| *open).await?;
        listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(BIND_EVERY).await,
            }
        };
    }
}

async fn pass(State(wire): State<Arc<Wire>>, request: Request) -> Response {
    match wire.pass(request).await {
        Ok(Some(answer)) => answer,
        // The program has ended, or is to believe that the server has.
        Ok(None) => std::future::pending().await,
        Err(error) => {
            let mut answer = Response::new(Body::from(format!("{error:#}")));
            *answer.status_mut() = StatusCode::BAD_GATEWAY;
            answer
        }
    }
}

impl Wire {
    async fn pass(&self, request: Request) -> Result<Option<Response>> {
        let (mut parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, MAX_BODY).await.context("read a request")?;
        let asked = asked(&parts.method, &parts.uri, &body);
        if !self.tap.before(&asked).await {
            return Ok(None);
        }
        // The client puts the server's address and who asks in their place.
        parts.headers.remove(http::header::HOST);
        parts.headers.remove(http::header::TRANSFER_ENCODING);
        parts.uri = asked.uri.parse()?;
        let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        let (mut parts, body) = self.server.send(request).await?.into_parts();
        // Each side of the relay says for itself how long a body is.
        parts.headers.remove(http::header::TRANSFER_ENCODING);
        if !self.tap.after(&asked, parts.status.as_u16()).await {
            return Ok(None);
        }
        let lag = self.tap.lag(&asked);
        if lag.is_zero() || asked.verb != "watch" {
            return Ok(Some(Response::from_parts(parts, Body::new(body))));
        }
        let pieces = Body::new(body).into_data_stream();
        let late = pieces.map(move |piece| (tokio::time::Instant::now() + lag, piece));
        // What comes close together is late by as much, not by the sum.
        let (tell, told) = futures::channel::mpsc::unbounded();
        tokio::spawn(late.map(Ok).forward(tell));
        let told = told.then(async |(due, piece)| {
            tokio::time::sleep_until(due).await;
            piece
        });
        Ok(Some(Response::from_parts(parts, Body::from_stream(told))))
    }
}

fn asked(method: &Method, uri: &http::Uri, body: &[u8]) -> Asked {
    let query = uri.query().unwrap_or_default();
    let path: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    // `api/v1` or `apis/GROUP/VERSION`, then perhaps a namespace, then resource, name and subresource.
    let rest = path.get(if path.first() == Some(&"api") { 2 } else { 3 }..).unwrap_or_default();
    let rest = if rest.first() == Some(&"namespaces") && 2 < rest.len() { &rest[2..] } else { rest };
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ if query.contains("watch=1") || query.contains("watch=true") => "watch",
        _ if rest.len() == 1 => "list",
        _ => "get",
    };
    let mut resource = rest.first().copied().unwrap_or_default().to_owned();
    if let Some(part) = rest.get(2) {
        resource = format!("{resource}/{part}");
    }
    let uri = uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).to_owned();
    Asked { verb, resource, uri, body: serde_json::from_slice(body).unwrap_or_default() }
}
