//! What people ask of a joined cluster through fedqd: requests that kueue's commands make (`wanted.rs`), forwarded with fedqd's own
//! credential once that cluster's own authorizer has said that the person may. They have a connection of their own, so that nobody's
//! watches take the streams of those that fedqd lives on.

mod abroad;
pub mod followed;
mod places;
mod wanted;

use std::{pin::pin, time::Duration};

use futures::{StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame};
use kube::{Client, client::Body};
use tokio::{
    sync::{OnceCell, mpsc},
    time::timeout,
};
use tower::BoxError;

pub use self::{
    abroad::PREFIX,
    places::{Place, Places},
    wanted::{Target, Unwanted, Wanted},
};
use super::{
    client::{ApiError, Caller, ClientLimits, ClusterClient, ConnectError, RetryClass, Streamed},
    memory::Memory,
    session::{Asker, reviews::review},
};

/// At a time, of one cluster: an API server takes 100 streams a connection.
const REQUESTS: usize = 80;
/// Of these, for one person: who follows everything keeps nobody else waiting.
const OF_ONE: usize = 40;
/// At a time, of all clusters and the hub: what waits for slow readers is this many times [`STREAM_WINDOW`], 128 MiB.
const EVERYWHERE: usize = 2048;
/// Of these, for one person: a thousand clusters can be followed.
const OF_ONE_EVERYWHERE: usize = 1200;
/// Until headers.
const DEADLINE: Duration = Duration::from_secs(10);
/// For a whole answer that is no watch.
const ANSWER: Duration = Duration::from_mins(1);
/// A watch ends itself after five minutes; this is for a server that forgets to.
const WATCH: Duration = Duration::from_secs(330);
/// A page of the largest objects that there are.
const MOST_BYTES: usize = 64 << 20;
/// An error is a sentence.
const ERROR_BYTES: usize = 1 << 20;
/// What a watch that nobody reads holds in memory.
const STREAM_WINDOW: u32 = 64 << 10;

/// Headers of an answer that say something of it.
const PASSED: [header::HeaderName; 2] = [header::WARNING, header::RETRY_AFTER];

/// What API servers answer in. Anything else, as a page that a browser would show, goes on as bytes.
const MEDIA: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// The way to one cluster, for what people ask it.
#[derive(Clone)]
pub struct Proxy(ClusterClient);

/// What all that is forwarded to one cluster has in common; it lives as long as the kubeconfig that leads there.
pub(super) struct Forwarded {
    /// Dialled when it is first needed.
    client: OnceCell<Client>,
    places: Places,
    rights: Memory<(Asker, &'static str, Target), Result<(), String>>,
    /// For rights that are asked for over the connection that fedqd lives on.
    reviews: Places,
    written: followed::Written,
}

impl Default for Forwarded {
    fn default() -> Self {
        Self {
            client: OnceCell::new(),
            places: of_one_cluster(),
            rights: Memory::default(),
            reviews: followed::reviews(),
            written: followed::Written::default(),
        }
    }
}

/// What bounds all that is forwarded, wherever to.
pub fn everywhere() -> Places {
    Places::new(EVERYWHERE, OF_ONE_EVERYWHERE)
}

/// What bounds that of one cluster.
pub fn of_one_cluster() -> Places {
    Places::new(REQUESTS, OF_ONE)
}

/// A connection for this, beside that which fedqd lives on.
pub(super) fn apart(limits: &mut ClientLimits) {
    limits.concurrent = REQUESTS;
    limits.stream_window = STREAM_WINDOW;
    limits.connection_window = 128 * STREAM_WINDOW;
}

/// A request that was read, and found to be one of those that pass.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub wanted: Wanted,
    pub content: Content,
}

/// What is forwarded beside the path.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub accept: Option<HeaderValue>,
    pub content_type: Option<HeaderValue>,
    pub body: Bytes,
}

pub type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Why there is no answer of the cluster's to a person.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The cluster says that whom the person is there may not, and why, which is often nothing.
    #[error("{reason}")]
    Denied { user: String, reason: String },
    /// fedqd may not ask the cluster who may do what.
    #[error("{0}")]
    ReviewsNotAllowed(String),
    /// The person may, but fedqd itself may not.
    #[error("{0}")]
    FedqdNotAllowed(String),
    #[error("too many requests to this cluster are under way")]
    Busy,
    #[error("no connection can be made")]
    Connect(#[from] ConnectError),
    #[error("{0}")]
    Api(#[from] ApiError),
}

impl Proxy {
    pub fn new(cluster: &ClusterClient) -> Self {
        Self(cluster.clone())
    }

    /// Asks the cluster whether `caller` may, and then for what they want. `held` is kept until the answer's end.
    pub async fn forward(&self, caller: &Caller, asked: Asked, held: Place) -> Result<Answer, ProxyError> {
        let place = self.0.forwarded().places.take(&caller.user).await?;
        self.may(caller, &asked.wanted).await?;
        let (client, watches) = (self.client().await?, asked.wanted.watches);
        let writes = asked.wanted.writes();
        let answer = send(&client, asked).await;
        if writes {
            // Whatever came of it: it may have been carried out.
            self.0.forwarded().written.now();
        }
        let answer = answer?;
        let answer =
            if answer.status() == StatusCode::FORBIDDEN { own_refusal(answer).await? } else { answer };
        if answer.status() == StatusCode::UNAUTHORIZED {
            let said = "the cluster does not take fedqd's own credential";
            return Err(ApiError::new(RetryClass::Unauthorized, said).into());
        }
        Ok(passed(answer, watches, lasts(watches), (place, held)))
    }

    /// Whether the cluster lets `caller` have that. For what changes something it is asked anew.
    pub async fn may(&self, caller: &Caller, wanted: &Wanted) -> Result<(), ProxyError> {
        self.known_or(caller, wanted, async || Ok((self.client().await?, None))).await
    }

    /// The same, where `way` leads to the cluster if it has to be asked; what it holds is given back after that.
    async fn known_or(
        &self,
        caller: &Caller,
        wanted: &Wanted,
        way: impl AsyncFnOnce() -> Result<(Client, Option<Place>), ProxyError>,
    ) -> Result<(), ProxyError> {
        let caller = abroad::abroad(caller, wanted)?;
        let key = (Asker::from(&caller), wanted.verb, wanted.target.clone());
        let known = self.0.forwarded().rights.get(&key).filter(|_| !wanted.writes());
        let answer = if let Some(answer) = known {
            answer
        } else {
            let (client, _held) = way().await?;
            let answer = review(client, &caller, wanted.question()).await.map_err(|error| {
                if error.class == RetryClass::Forbidden {
                    ProxyError::ReviewsNotAllowed(error.message)
                } else {
                    error.into()
                }
            })?;
            self.0.forwarded().rights.put(key, answer.clone());
            answer
        };
        answer.map_err(|reason| ProxyError::Denied { user: caller.user, reason })
    }

    async fn client(&self) -> Result<Client, ConnectError> {
        self.0.forwarded().client.get_or_try_init(async || self.0.further(apart)).await.cloned()
    }
}

/// Sends to whom `client` speaks as, and hands on what is answered: for the hub, which is spoken to as the person.
pub async fn forward_as(
    client: &Client,
    asked: Asked,
    held: impl Send + 'static,
) -> Result<Answer, ProxyError> {
    let watches = asked.wanted.watches;
    let answer = send(client, asked).await?;
    Ok(passed(answer, watches, lasts(watches), held))
}

async fn send(client: &Client, asked: Asked) -> Result<Response<Body>, ApiError> {
    let Asked { method, wanted, content } = asked;
    let mut request = Request::builder().method(method).uri(&wanted.path).extension(Streamed);
    for (name, value) in [(header::ACCEPT, content.accept), (header::CONTENT_TYPE, content.content_type)] {
        if let Some(value) = value {
            request = request.header(name, value);
        }
    }
    let request = request.body(Body::from(content.body.to_vec()));
    let request = request.map_err(|error| ApiError::new(RetryClass::Invalid, error.to_string()))?;
    match timeout(DEADLINE, client.send(request)).await {
        Ok(answer) => answer.map_err(ApiError::from),
        Err(_) => Err(ApiError::timeout(DEADLINE)),
    }
}

/// A 403 may be RBAC's, which is then about fedqd, or a webhook's, which is about what was sent.
async fn own_refusal(answer: Response<Body>) -> Result<Response<Body>, ProxyError> {
    let (parts, body) = answer.into_parts();
    let read = timeout(DEADLINE, Limited::new(body, ERROR_BYTES).collect()).await;
    let bytes = match read {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return Err(ApiError::new(RetryClass::Unreachable, error.to_string()).into()),
        Err(_) => return Err(ApiError::timeout(DEADLINE).into()),
    };
    let error = ApiError::from_answer(parts.status.as_u16(), &bytes);
    if error.class == RetryClass::Forbidden {
        return Err(ProxyError::FedqdNotAllowed(error.message));
    }
    Ok(Response::from_parts(parts, Body::from(bytes.to_vec())))
}

/// How long an answer may take.
fn lasts(watches: bool) -> Duration {
    if watches { WATCH } else { ANSWER }
}

/// What of an answer goes back: nothing that is about the way it came. `held` is kept until its end.
fn passed<B>(answer: Response<B>, watches: bool, within: Duration, held: impl Send + 'static) -> Answer
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (parts, body) = answer.into_parts();
    let (sender, receiver) = mpsc::channel(1);
    // Beside who reads: where nobody does, time is up all the same, and the place is free again.
    tokio::spawn(async move {
        tokio::select! {
            // Whoever read it has gone.
            () = sender.closed() => {}
            _ = timeout(within, hand_on(body, watches, &sender)) => {}
        }
        drop(held);
    });
    // Who packs it asks once more behind the end.
    let pieces = stream::unfold(Some(receiver), move |receiver| async move {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Ok(Piece::Data(data))) => Some((Ok(Frame::data(data)), Some(receiver))),
            Some(Ok(Piece::End)) => None,
            Some(Err(error)) => Some((Err(error), None)),
            // A watch may end at any moment; half an answer is none.
            None if watches => None,
            None => Some((Err("the answer took too long".into()), None)),
        }
    });
    let mut passed = Response::new(StreamBody::new(pieces.fuse()).boxed_unsync());
    *passed.status_mut() = parts.status;
    *passed.headers_mut() = headers(&parts.headers);
    passed
}

/// Of an answer.
enum Piece {
    Data(Bytes),
    End,
}

async fn hand_on<B>(body: B, watches: bool, to: &mpsc::Sender<Result<Piece, BoxError>>)
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let limit = if watches { usize::MAX } else { MOST_BYTES };
    let mut body = pin!(BodyStream::new(Limited::new(body, limit)));
    loop {
        let piece = match body.next().await {
            Some(Ok(frame)) => Ok(Piece::Data(frame.into_data().unwrap_or_default())),
            Some(Err(error)) => Err(error),
            None => Ok(Piece::End),
        };
        let goes_on = matches!(piece, Ok(Piece::Data(_)));
        if to.send(piece).await.is_err() || !goes_on {
            return;
        }
    }
}

fn headers(all: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in PASSED {
        for value in all.get_all(&name) {
            kept.append(name.clone(), value.clone());
        }
    }
    let media = all.get(header::CONTENT_TYPE);
    let known = media.filter(|media| {
        let text = media.to_str().unwrap_or_default();
        MEDIA.contains(&text.split(';').next().unwrap_or_default().trim())
    });
    let bytes = HeaderValue::from_static("application/octet-stream");
    kept.insert(header::CONTENT_TYPE, known.cloned().unwrap_or(bytes));
    kept.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    kept
}

#[cfg(test)]
mod tests;
