//! The sockets of a simulated cluster: TLS, HTTP/1.1 and HTTP/2 as real API servers offer them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::api;
use super::callers::Shown;
use super::cluster::State;
use super::faults::{Connection, Freezable, Lifetime};

/// As kube-apiserver has it.
const STREAMS: u32 = 100;
const BACKLOG: u32 = 1024;

/// Serves until cancelled, and then drops whatever is open, as a machine that is switched off.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    state: Arc<State>,
    cancel: CancellationToken,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => {
                // An error here is of one connection, or passes.
                if let Ok((stream, _)) = accepted {
                    open.spawn(connection(stream, acceptor.clone(), Arc::clone(&state)));
                }
            }
            Some(_) = open.join_next() => {}
        }
    }
    open.shutdown().await;
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let _ = stream.set_nodelay(true);
    let (becomes, era) = state.faults.on_connection();
    let acceptor = match becomes {
        Connection::Serve => acceptor,
        Connection::WrongCertificate => match state.wrong_certificate() {
            Some(config) => TlsAcceptor::from(config),
            None => return,
        },
        Connection::Refuse => {
            // Without it the client's greeting would be acknowledged first.
            let _ = stream.set_zero_linger();
            return;
        }
    };
    let _counted = state.counts.connection();
    let stream = Freezable { socket: stream, era: Arc::clone(&era) };
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let lifetime = Lifetime::new(Arc::clone(&era));
    let shown = Shown::on(stream.get_ref().1);
    let of_request = (Arc::clone(&state), lifetime.clone(), shown);
    let router = Router::new().fallback(move |mut request: Request<Body>| {
        let (state, lifetime, shown) = of_request.clone();
        request.extensions_mut().insert(lifetime);
        request.extensions_mut().insert(shown);
        async move { api::answer(state, request).await }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(STREAMS);
    builder.http1().timer(TokioTimer::new());
    // Clients break off as they like; what goes wrong is theirs.
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = era.broken() => return,
        () = lifetime.is_going() => serving.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = serving => {}
        () = era.broken() => {}
    }
}

pub(super) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Takes the address without listening there: whoever connects is refused.
pub(super) fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections that were just closed there still count as somebody's.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

pub(super) fn listen_on(reserved: TcpSocket) -> io::Result<TcpListener> {
    reserved.listen(BACKLOG)
}

/// For calls to webhooks, whose authority comes with their configuration.
pub(super) fn connector(authority: Option<&[u8]>) -> io::Result<HttpsConnector<HttpConnector>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.unwrap_or_default()) {
        let certificate = certificate.map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_all_versions()
        .build())
}
