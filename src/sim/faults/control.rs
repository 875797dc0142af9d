//! The plan in force at one cluster. It may change at any time, and meets connections and watches that are
//! open already. While there is none, each request, event and read of a socket costs one look at a number.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::{Connection, Decision, Plan, Stream};

#[derive(Debug, Default)]
pub struct Faults {
    /// Counts plans that were set; 0 while there is nothing wrong.
    serial: AtomicU64,
    requests: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    plan: Arc<Plan>,
    set: u64,
    era: Arc<Era>,
}

/// What connections that were opened since the last break have in common.
#[derive(Debug, Default)]
pub(in super::super) struct Era {
    frozen: AtomicBool,
    broken: CancellationToken,
    /// What is asked for is still answered, watches end, and then the connection does.
    leaving: CancellationToken,
}

/// How long one connection takes requests, and what is open on it lasts.
#[derive(Clone, Debug)]
pub(in super::super) struct Lifetime {
    era: Arc<Era>,
    /// This connection takes no more requests.
    going: CancellationToken,
}

impl Faults {
    /// From now on this is wrong, and nothing else.
    pub fn set(&self, plan: Plan) {
        let mut inner = self.lock();
        if plan.freezes_open_connections() {
            let era = std::mem::take(&mut inner.era);
            era.frozen.store(true, Ordering::Relaxed);
        }
        if plan.breaks_open_connections() {
            std::mem::take(&mut inner.era).broken.cancel();
        }
        inner.set += 1;
        let serial = if plan.is_empty() { 0 } else { inner.set };
        inner.plan = Arc::new(plan);
        self.serial.store(serial, Ordering::Relaxed);
    }

    /// Open connections end, as when the server starts anew.
    pub fn break_connections(&self) {
        std::mem::take(&mut self.lock().era).broken.cancel();
    }

    /// As when the server is updated: clients are told to go away, what they have asked for is answered, watches
    /// end, and who comes back is served.
    pub fn close_connections(&self) {
        std::mem::take(&mut self.lock().era).leaving.cancel();
    }

    pub fn any(&self) -> bool {
        self.serial.load(Ordering::Relaxed) != 0
    }

    pub(in super::super) fn on_connection(&self) -> (Connection, Arc<Era>) {
        let inner = self.lock();
        (inner.plan.on_connection(), Arc::clone(&inner.era))
    }

    pub(in super::super) fn on_request(&self, verb: &str, kind: &str) -> Decision {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let plan = Arc::clone(&self.lock().plan);
        plan.on_request(verb, kind, number)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an open watch does wrong under the plan in force, which may change while it is open.
#[derive(Debug, Default)]
pub(in super::super) struct Spoiler {
    /// Of the plan that `stream` is of.
    serial: u64,
    number: u64,
    stream: Option<Stream>,
    /// Under this plan.
    events: u64,
}

impl Spoiler {
    /// What is wrong with this watch of `kind` now, if anything.
    pub fn stream(&mut self, faults: &Faults, kind: &str) -> Option<&Stream> {
        let serial = faults.serial.load(Ordering::Relaxed);
        if serial != self.serial {
            (self.serial, self.events) = (serial, 0);
            self.number = faults.requests.fetch_add(1, Ordering::Relaxed);
            let plan = Arc::clone(&faults.lock().plan);
            self.stream = (serial != 0).then(|| plan.on_request("watch", kind, self.number).stream);
        }
        self.stream.as_ref()
    }

    /// The number of the next event, counted from where the plan began.
    pub fn count(&mut self) -> u64 {
        self.events += 1;
        self.events - 1
    }
}

impl Era {
    pub async fn broken(&self) {
        self.broken.cancelled().await;
    }
}

impl Lifetime {
    pub fn new(era: Arc<Era>) -> Self {
        Self { era, going: CancellationToken::new() }
    }

    pub fn takes_no_more(&self) {
        self.going.cancel();
    }

    /// Until the client is to be told to go away.
    pub async fn is_going(&self) {
        tokio::select! {
            () = self.going.cancelled() => {}
            () = self.era.leaving.cancelled() => {}
        }
    }

    /// Until what else would last is to end.
    pub async fn ends(&self) {
        self.era.leaving.cancelled().await;
    }
}

/// A socket that can fall silent without being closed.
pub(in super::super) struct Freezable<S> {
    pub socket: S,
    pub era: Arc<Era>,
}

impl<S> Freezable<S> {
    /// Nobody is woken again: what is frozen stays so until it is dropped.
    fn is_frozen(&self) -> bool {
        self.era.frozen.load(Ordering::Relaxed)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Freezable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_frozen() {
            return Poll::Pending;
        }
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Freezable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_frozen() {
            return Poll::Pending;
        }
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
