//! The admission webhook for claims: tells a person at once what is wrong with an edit.
//!
//! It answers from the review and a snapshot, without any IO. It does not know who calls, so whatever user a review
//! names, it tells nothing of clusters and of others' claims but that there is one already. It is never needed: the API server passes over it
//! when it is down (`failurePolicy: Ignore`), since nothing may keep people or fedqd from repairing a
//! claim, and the controllers judge every stored claim by the same function.

pub mod review;

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use axum_server::tls_rustls::RustlsConfig;
use http_body_util::BodyExt;
use tokio::{
    sync::{Semaphore, SemaphorePermit, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use self::review::Judge;
use crate::connections::{self, Bounds};
use fedq_domain::overview::Overview;
use fedq_k8s::types::claim::REVIEW_PATH;

/// The API server's own limit on a request.
const MAX_BODY: usize = 3 << 20;
/// The API server gives up after five seconds; whoever sends slower than this is not one.
const READ_TIMEOUT: Duration = Duration::from_secs(4);
/// Reviews that are judged at a time: each takes a moment, and memory.
const JUDGED: usize = 2;
/// Of one review, without asking: nearly all take less.
const FREE: usize = 32 << 10;
/// What larger reviews on their way may take together.
const LARGE: usize = 4 * MAX_BODY;
/// API servers keep a connection or two each, with few reviews on their way at a time.
const BOUNDS: Bounds = Bounds { all: 64, of_address: 16, patience: READ_TIMEOUT, streams: 4 };

#[derive(Clone)]
pub struct Webhook {
    pub judge: Arc<Judge>,
    overview: watch::Receiver<Arc<Overview>>,
    room: Arc<Room>,
}

/// What all callers share: anybody may knock, and nobody may take fedqd's memory.
struct Room {
    judging: Semaphore,
    large: Semaphore,
}

impl Webhook {
    pub fn new(judge: Arc<Judge>, overview: watch::Receiver<Arc<Overview>>) -> Self {
        let room = Room { judging: Semaphore::new(JUDGED), large: Semaphore::new(LARGE) };
        Self { judge, overview, room: Arc::new(room) }
    }

    pub fn router(self) -> Router {
        Router::new().route(REVIEW_PATH, post(validate)).with_state(self)
    }

    /// Serves until `stop`, then lets running requests end. `tls` may be reloaded meanwhile.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: RustlsConfig,
        stop: CancellationToken,
    ) -> io::Result<()> {
        connections::serve(listener, Some(tls), self.router(), BOUNDS, stop).await
    }
}

async fn validate(State(webhook): State<Webhook>, body: Body) -> Response {
    let room = &*webhook.room;
    let review = match timeout(READ_TIMEOUT, collected(body, room)).await {
        Ok(Ok(review)) => review,
        Ok(Err(refusal)) => return refusal.into_response(),
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the review did not arrive in time").into_response(),
    };
    // It is never closed.
    let Ok(_turn) = room.judging.acquire().await else { return BUSY.into_response() };
    let overview = Arc::clone(&webhook.overview.borrow());
    match webhook.judge.answer(&review.bytes, &overview) {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

struct Collected<'a> {
    bytes: Vec<u8>,
    _room: Option<SemaphorePermit<'a>>,
}

async fn collected(mut body: Body, room: &Room) -> Result<Collected<'_>, Refusal> {
    let (mut bytes, mut held) = (Vec::new(), None::<SemaphorePermit<'_>>);
    while let Some(frame) = body.frame().await {
        // The caller went away.
        let frame = frame.map_err(|_| (StatusCode::BAD_REQUEST, "the review broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if MAX_BODY < bytes.len() + data.len() {
            return Err((StatusCode::PAYLOAD_TOO_LARGE, "the review is larger than 3 MiB"));
        }
        let more = (bytes.len() + data.len()).saturating_sub(FREE.max(bytes.len()));
        if 0 < more {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            let more = room.large.try_acquire_many(more).map_err(|_| BUSY)?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Collected { bytes, _room: held })
}

type Refusal = (StatusCode, &'static str);

const BUSY: Refusal = (StatusCode::SERVICE_UNAVAILABLE, "too many reviews are on their way at once");

#[cfg(test)]
pub(crate) mod tests;
