//! The HTTP/2 transport: one TCP connection a cluster, every address checked when it is dialled.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use futures::StreamExt;
use http::{Method, Request, Response, StatusCode, Uri, header::RETRY_AFTER};
use http_body_util::{BodyExt, BodyStream, Either, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{
        Client as Hyper,
        connect::{HttpConnector, dns::Name},
    },
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt},
};
use rustls::client::Resumption;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower::{
    BoxError, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, timeout::TimeoutLayer,
    util::BoxCloneSyncService,
};

use super::{
    Budget, ClientLimits, Observer, Streamed, again::Again, budget::Share, error::Refused, observer::resource,
};
use crate::kubeconfig::check_address;
use fedq_base::failpoint::{self, Side};
use fedq_values::nested::Scan;

/// How the server is reached.
#[derive(Clone)]
pub(super) struct Route {
    pub proxy: Option<Uri>,
    pub allow_loopback: bool,
}

pub(super) fn client(config: &Config, route: Route, limits: &ClientLimits) -> Result<Client, kube::Error> {
    let mut session = config.rustls_client_config()?;
    // For the one server there is; by default room for 32 is kept, which makes 14 kB a cluster.
    session.resumption = Resumption::in_memory_sessions(1);
    let mut tls = hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(session).https_only();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        tls = tls.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    let https = if limits.upgrades {
        tls.enable_http1().wrap_connector(connector(route))
    } else {
        tls.enable_http2().wrap_connector(connector(route))
    };
    let dial =
        ServiceBuilder::new().map_future(Box::pin).layer(TimeoutLayer::new(limits.dial)).service(https);
    let http: Hyper<_, Body> = Hyper::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        // Without it, a cold burst of requests dials once for each.
        .http2_only(!limits.upgrades)
        .http2_keep_alive_interval(limits.ping_every)
        .http2_keep_alive_timeout(limits.ping_timeout)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(limits.stream_window)
        .http2_initial_connection_window_size(limits.connection_window)
        .build(dial);
    let (answer_bytes, reading, observer) =
        (limits.answer_bytes, limits.reading.clone(), limits.observer.clone());
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .layer_fn(move |inner| Guard {
            inner,
            answer_bytes,
            reading: reading.clone(),
            observer: observer.clone(),
        })
        .map_err(BoxError::from)
        .layer(TimeoutLayer::new(limits.headers))
        // Freed with the headers, so a watch holds no slot.
        .layer(ConcurrencyLimitLayer::new(limits.concurrent))
        .service(Again(http));
    Ok(Client::new(service, config.default_namespace.clone()))
}

type Dial = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;

fn connector(Route { proxy, allow_loopback }: Route) -> Dial {
    let resolver = tower::service_fn(move |name: Name| resolve(name, allow_loopback));
    let mut tcp = HttpConnector::new_with_resolver(resolver);
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let Some(proxy) = proxy else {
        return BoxCloneSyncService::new(tcp.map_err(BoxError::from));
    };
    BoxCloneSyncService::new(tower::service_fn(move |server: Uri| {
        let dialled = tcp.clone().oneshot(proxy.clone());
        async move { tunnel(dialled.await?, &server).await.map_err(BoxError::from) }
    }))
}

/// Resolves like the system, and refuses the name when any of its addresses is refused: what DNS said
/// when the cluster was joined proves nothing about now.
async fn resolve(
    name: Name,
    allow_loopback: bool,
) -> io::Result<impl Iterator<Item = std::net::SocketAddr> + Send> {
    let addresses: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
    for address in &addresses {
        check_address(address.ip(), allow_loopback).map_err(|reason| {
            io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{name} resolves to {}, which is refused: {reason}", address.ip()),
            )
        })?;
    }
    Ok(addresses.into_iter())
}

/// Asks an HTTP proxy for a connection to the server. The proxy sees the server's name only: TLS is
/// spoken through it.
async fn tunnel(mut proxy: TokioIo<TcpStream>, server: &Uri) -> io::Result<TokioIo<TcpStream>> {
    const LONGEST_ANSWER: usize = 8 << 10;
    let host = server.host().unwrap_or_default();
    let port = server.port_u16().unwrap_or(443);
    let request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    let stream = proxy.inner_mut();
    stream.write_all(request.as_bytes()).await?;
    // Byte by byte: whatever follows the empty line belongs to TLS.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if LONGEST_ANSWER < answer.len() {
            return Err(io::Error::other("the proxy's answer is too long"));
        }
        answer.push(stream.read_u8().await?);
    }
    let accepted = [&b"HTTP/1.1 200"[..], b"HTTP/1.0 200"].iter().any(|ok| answer.starts_with(ok));
    if accepted { Ok(proxy) } else { Err(io::Error::other("the proxy refused the connection")) }
}

/// Answers that must not reach the code above: redirects (kube would read them as empty), busy servers
/// (kube would drop Retry-After) and endless bodies.
#[derive(Clone)]
struct Guard<S> {
    inner: S,
    answer_bytes: usize,
    reading: Budget,
    observer: Observer,
}

/// An error is a sentence, not a download.
const ERROR_BYTES: usize = 1 << 20;

/// A stream as it comes, or a whole answer under its limits.
type Limits<B> = Either<B, UnsyncBoxBody<Bytes, BoxError>>;
type Answer<B> = Pin<Box<dyn Future<Output = Result<Response<Limits<B>>, BoxError>> + Send>>;

impl<S, B> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Limits<B>>;
    type Error = BoxError;
    type Future = Answer<B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer_bytes = if is_streamed(&request) { None } else { Some(self.answer_bytes) };
        let reading = self.reading.clone();
        let name = failpoint::is_set().then(|| name(&request));
        failpoint::reached(Side::Before, name.as_deref());
        let under_way = self.observer.request(&request);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await.map_err(Into::into);
            under_way.ended(&answer);
            let answer = answer?;
            failpoint::reached(Side::After, name.as_deref());
            let status = answer.status();
            if status.is_redirection() {
                return Err(Refused::Redirect.into());
            }
            let retry_after = retry_after(&answer);
            let busy = status == StatusCode::TOO_MANY_REQUESTS
                || status == StatusCode::SERVICE_UNAVAILABLE && retry_after.is_some();
            if busy {
                return Err(Refused::Busy { retry_after }.into());
            }
            let limit = if status.is_success() { answer_bytes } else { Some(ERROR_BYTES) };
            Ok(answer.map(|body| match limit {
                Some(limit) => Either::Right(whole(body, limit, &reading)),
                None => Either::Left(body),
            }))
        })
    }
}

/// Whoever reads it keeps all that has come of it, until it is whole.
fn whole<B>(body: B, limit: usize, reading: &Budget) -> UnsyncBoxBody<Bytes, BoxError>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut share = Share::of(reading);
    let (mut read, mut scan) = (0, Scan::default());
    let pieces = BodyStream::new(Limited::new(body, limit)).map(move |frame| {
        let frame = frame?;
        let data = frame.data_ref().map_or(&[][..], Bytes::as_ref);
        if scan.finds(data) {
            return Err(Refused::Nested.into());
        }
        read += data.len();
        share.hold(read)?;
        Ok(frame)
    });
    StreamBody::new(pieces).boxed_unsync()
}

/// A request by verb and kind, such as `create jobs`; a watch is a list that goes on.
fn name(request: &Request<Body>) -> String {
    let resource = resource(request.uri().path());
    let kind = resource.first().copied().unwrap_or_default();
    let verb = match *request.method() {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ if resource.len() == 1 => "list",
        _ => "get",
    };
    format!("{verb} {kind}")
}

/// Streams are read piece by piece, under limits of their readers.
fn is_streamed(request: &Request<Body>) -> bool {
    let streams = ["watch=1", "watch=true", "follow=1", "follow=true"];
    request.extensions().get::<Streamed>().is_some()
        || request.uri().query().is_some_and(|query| query.split('&').any(|pair| streams.contains(&pair)))
}

/// In seconds; the form with a date is not used by API servers.
fn retry_after<B>(answer: &Response<B>) -> Option<Duration> {
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_names() {
        for (method, path, expected) in [
            (Method::POST, "/apis/batch/v1/namespaces/team/jobs?fieldManager=fedq-task", "create jobs"),
            (Method::GET, "/proxy/c-1/api/v1/namespaces/team/secrets/s", "get secrets"),
            (Method::PATCH, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/q", "patch clusterqueues"),
            (Method::DELETE, "/api/v1/namespaces/team", "delete namespaces"),
            (Method::GET, "/api/v1/nodes?watch=1", "list nodes"),
            (Method::GET, "/version", "get "),
        ] {
            let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
            assert_eq!(name(&request), expected);
        }
    }
}
