//! What holds for every connection to fedqd, whichever listener takes it: how many there are, how long one may be of no
//! use, how slowly a request may come and an answer be taken. An answer that goes on, as a stream does, may go on.

mod places;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    io,
    net::TcpListener,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    BoxError, Extension, Router,
    body::{Body, Bytes, HttpBody},
    http::Request,
    response::Response,
};
use axum_server::{
    Handle, Server,
    accept::Accept,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use futures::{FutureExt, future::BoxFuture};
use http_body::{Frame, SizeHint};
use hyper_util::rt::TokioTimer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::CancellationToken;

use self::places::{Place, Places};

/// For requests under way when the daemon stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Whoever answers no ping for as long again is gone.
const PING: Duration = Duration::from_secs(30);

/// What the callers of one listener may take.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Connections of all callers, and of one address.
    pub all: usize,
    pub of_address: usize,
    /// How long a connection without a request stays open, a request may take to arrive, and an answer lie untaken.
    pub patience: Duration,
    /// Requests under way on one HTTP/2 connection.
    pub streams: u32,
}

/// On each request that came by TLS.
#[derive(Clone, Copy)]
pub struct Encrypted;

/// Serves until `stop`, then lets running requests end. `tls` may be reloaded meanwhile.
pub async fn serve(
    listener: TcpListener,
    tls: Option<RustlsConfig>,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let door = Door { places: Places::new(bounds.all, bounds.of_address), patience: bounds.patience };
    let server = axum_server::from_tcp(listener)?;
    match tls {
        Some(tls) => {
            let router = router.layer(Extension(Encrypted));
            run(server.acceptor(RustlsAcceptor::new(tls).acceptor(door)), router, bounds, stop).await
        }
        None => run(server.acceptor(door), router, bounds, stop).await,
    }
}

async fn run<A>(
    server: Server<std::net::SocketAddr, A>,
    router: Router,
    bounds: Bounds,
    stop: CancellationToken,
) -> io::Result<()>
where
    A: Accept<TcpStream, Router, Service = Counted> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send,
    A::Future: Send,
{
    let handle = Handle::new();
    let mut server = server.handle(handle.clone());
    let http = server.http_builder();
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(bounds.streams);
    let mut serving = std::pin::pin!(server.serve(router.into_make_service()));
    tokio::select! {
        ended = &mut serving => return ended,
        // A stream that somebody watches has no end of its own.
        () = stop.cancelled() => handle.graceful_shutdown(Some(DRAIN)),
    }
    serving.await
}

/// Lets connections in before a word is said on them, so before TLS costs anything.
#[derive(Clone)]
struct Door {
    places: Places,
    patience: Duration,
}

impl Accept<TcpStream, Router> for Door {
    type Stream = Guarded;
    type Service = Counted;
    type Future = Ready<io::Result<(Guarded, Counted)>>;

    fn accept(&self, stream: TcpStream, router: Router) -> Self::Future {
        ready(self.admit(stream, router))
    }
}

impl Door {
    fn admit(&self, stream: TcpStream, router: Router) -> io::Result<(Guarded, Counted)> {
        // Otherwise the second small part of an answer waits until the first is acknowledged, for which a caller takes up to 40 ms.
        stream.set_nodelay(true)?;
        let address = stream.peer_addr()?.ip().to_canonical();
        let place =
            self.places.take(address).ok_or_else(|| io::Error::other("too many connections are open"))?;
        let (usage, patience) = (Arc::new(Usage::default()), self.patience);
        let timer = Box::pin(sleep(patience));
        let guarded =
            Guarded { stream, usage: Arc::clone(&usage), patience, timer, untaken: None, _place: place };
        Ok((guarded, Counted { router, usage, patience }))
    }
}

/// The requests of one connection.
struct Usage {
    under_way: AtomicUsize,
    /// The connection has become a way into a pod.
    is_way: AtomicBool,
    /// When the last one ended.
    since: Mutex<Instant>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            under_way: AtomicUsize::new(0),
            is_way: AtomicBool::new(false),
            since: Mutex::new(Instant::now()),
        }
    }
}

impl Usage {
    /// Since when there is no request; `None`: there is one.
    fn unused_since(&self) -> Option<Instant> {
        let since = *self.since.lock().unwrap_or_else(PoisonError::into_inner);
        (self.under_way.load(Ordering::Acquire) == 0).then_some(since)
    }
}

/// A request, until its answer has been sent, or what became of its connection has ended: it is among the extensions of the
/// request for whoever makes a connection something else.
pub(crate) struct UnderWay(Arc<Usage>);

impl UnderWay {
    fn begin(usage: &Arc<Usage>) -> Self {
        usage.under_way.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(usage))
    }

    /// From here on both ends set the pace, so what lies untaken is no sign that one of them is gone.
    pub(crate) fn becomes_way(&self) {
        self.0.is_way.store(true, Ordering::Release);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        *self.0.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection that ends when it is of no use, however far its caller got with TLS or with the head of a request.
struct Guarded {
    stream: TcpStream,
    usage: Arc<Usage>,
    patience: Duration,
    /// Always set, so that whoever waits for bytes is woken for a look.
    timer: Pin<Box<Sleep>>,
    /// Set while what is sent is not taken.
    untaken: Option<Pin<Box<Sleep>>>,
    _place: Place,
}

impl Guarded {
    fn look(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            let until = self.usage.unused_since().unwrap_or(now) + self.patience;
            if until <= now {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.timer.as_mut().reset(until);
        }
        Ok(())
    }

    fn taken<T>(&mut self, context: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.untaken = None;
            return sent;
        }
        if self.usage.is_way.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        let patience = self.patience;
        let timer = self.untaken.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.look(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.taken(context, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.taken(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The handlers, as one connection reaches them.
#[derive(Clone)]
struct Counted {
    router: Router,
    usage: Arc<Usage>,
    patience: Duration,
}

impl<B> tower::Service<Request<B>> for Counted
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (under_way, patience) = (Arc::new(UnderWay::begin(&self.usage)), self.patience);
        let mut request = request.map(|body| {
            let body = Body::new(body);
            if body.is_end_stream() {
                return body;
            }
            Body::new(Arriving { body, until: Box::pin(sleep(patience)) })
        });
        request.extensions_mut().insert(Arc::clone(&under_way));
        let answer = tower::Service::call(&mut self.router, request);
        async move { Ok(answer.await?.map(|body| Body::new(Answer { body, _under_way: under_way }))) }.boxed()
    }
}

/// The body of a request, which has to be there in time.
struct Arriving {
    body: Body,
    until: Pin<Box<Sleep>>,
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() && self.until.as_mut().poll(context).is_ready() {
            let late = io::Error::from(io::ErrorKind::TimedOut);
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. Until it is sent, its request is under way.
struct Answer {
    body: Body,
    _under_way: Arc<UnderWay>,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
