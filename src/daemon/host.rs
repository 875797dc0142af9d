//! What a daemon needs of the process it runs in, which may be another program's.

use std::net::{SocketAddr, TcpListener};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// What a daemon shares with whoever runs it in their own process.
#[derive(Debug, Default)]
pub struct Host {
    /// Ends it.
    pub cancel: CancellationToken,
    /// Where the API listens, once it does.
    pub api: watch::Sender<Option<SocketAddr>>,
    /// As `/readyz`.
    pub ready: watch::Sender<bool>,
    /// Taken for the webhook in place of a new one, so that its port is known beforehand.
    pub webhook: Option<TcpListener>,
}

/// Watches for signals until what it returns is dropped.
pub(super) fn stop_on_signals(cancel: &CancellationToken) -> anyhow::Result<JoinSet<()>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cancel = cancel.clone();
    let mut watching = JoinSet::new();
    watching.spawn(async move {
        let mut next = async || {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        tokio::select! {
            () = next() => {}
            () = cancel.cancelled() => {}
        }
        info!("Stopping; a second signal ends at once");
        cancel.cancel();
        next().await;
        std::process::exit(130);
    });
    Ok(watching)
}

/// Once a process, before anything makes a TLS connection. One that is installed already stays.
pub fn use_ring() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Raises how many files and connections the process may have open to what the system allows it: many systems begin with
/// 1,024 for the sake of old programs, and a thousand clusters are more.
pub(super) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        warn!("The limit of open files stays at {}: {error}", descriptors());
    }
}

/// How many files and connections the process may have open.
pub(super) fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

/// A build is its file: versions do not tell two builds of one apart.
pub(super) fn build() -> Option<String> {
    let file = std::env::current_exe().and_then(std::fs::metadata).ok()?;
    let made = file.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(format!("{} {} {}", env!("CARGO_PKG_VERSION"), file.len(), made.as_nanos()))
}
