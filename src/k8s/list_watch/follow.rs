//! The loop: list, watch, back off, list again.

use std::{sync::Arc, time::Duration};

use http::{
    Request, Response, StatusCode,
    header::{ACCEPT, ACCEPT_ENCODING},
};
use http_body_util::{BodyExt, Limited};
use kube::{Client, client::Body};
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{
    Allowance, Caps, Codec, Link, Record, Selector, Sink, Skipped, Table, Timing,
    backoff::jittered,
    body::{self, Plain},
    events::Event,
    json,
    progress::{Ended, Progress, deliver},
    protobuf,
};
use crate::client::{
    Answers, ApiError, Budget, Observer, RetryClass, Share, Streamed, Told, call, escape, restart_reason,
    slow,
};

/// One kind of one cluster to follow.
pub struct Follow {
    pub client: Client,
    /// Such as `/apis/kueue.x-k8s.io/v1beta2/clusterqueues` or `/api/v1/nodes`.
    pub path: String,
    pub selector: Selector,
    pub codec: Codec,
    /// The version of the stored rows.
    pub start: Option<u64>,
    pub timing: Timing,
    pub caps: Caps,
    /// What is kept of all kinds of the cluster.
    pub allowance: Allowance,
    /// What it shares with all others that read at the same time.
    pub budget: Budget,
    /// That the server answers others: what broke need not wait any longer.
    pub answers: Arc<Answers>,
    /// Told of watches that broke.
    pub observer: Observer,
}

/// Why following ended. Everything else is tried again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stopped {
    Cancelled,
    /// The server is older than what was stored: etcd was restored, or it is another cluster.
    VersionsWentBack {
        stored: u64,
        found: u64,
    },
}

/// Objects in one page of JSON. Protobuf is not paged: it is read as it streams.
const PAGE: usize = 500;
/// Lists begun anew because a page's version expired meanwhile.
const RESTARTS: usize = 3;

/// What happened since the stored version comes at once and in one go; when it pauses, it is through.
const SETTLED: Duration = Duration::from_millis(250);

enum Failure {
    WentBack { found: u64 },
    Api(ApiError),
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl Follow {
    pub fn new(client: Client, path: impl Into<String>, codec: Codec) -> Self {
        Self {
            client,
            path: path.into(),
            selector: Selector::default(),
            codec,
            start: None,
            timing: Timing::default(),
            caps: Caps::default(),
            allowance: Allowance::default(),
            budget: Budget::default(),
            answers: Arc::default(),
            observer: Observer::default(),
        }
    }

    /// Follows until `stop`, or until the server proves to be older than what was stored.
    pub async fn run(&self, sink: &mut impl Sink, stop: CancellationToken) -> Stopped {
        // The sink is only called between awaits, so that stopping never leaves it half told.
        stop.run_until_cancelled(self.drive(sink)).await.unwrap_or(Stopped::Cancelled)
    }

    /// Keeps `table` current until `stop`, beginning where it stands, also when the server goes back to a
    /// backup: the next list is simply right.
    pub async fn run_into<T: Record>(self, table: &Table<T>, stop: CancellationToken) {
        let mut follow = self;
        follow.start = table.version();
        while follow.run(&mut table.sink(), stop.clone()).await != Stopped::Cancelled {
            follow.start = None;
        }
    }

    async fn drive(&self, sink: &mut impl Sink) -> Stopped {
        let mut progress = Progress::new(self.start, &self.timing);
        loop {
            // A server that is busy, or does not know the kind, says so while it answers everything else.
            let (pause, eager) = match self.round(&mut progress, sink).await {
                Ok(()) => continue,
                Err(Failure::WentBack { found }) => {
                    return Stopped::VersionsWentBack { stored: progress.highest, found };
                }
                Err(Failure::Api(error)) if error.class == RetryClass::NotFound => {
                    progress.at = None;
                    progress.synced = false;
                    sink.link(Link::Absent);
                    (jittered(self.timing.absent), false)
                }
                Err(Failure::Api(error)) => {
                    let retry_in = progress.backoff.after(&error);
                    progress.fresh = false;
                    progress.synced = false;
                    progress.broken = true;
                    self.restarts(restart_reason(&error));
                    sink.link(Link::Broken { error: &error, last_alive: progress.last_alive, retry_in });
                    (retry_in, !matches!(error.class, RetryClass::Throttled { .. }))
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.answers.heard(), if eager => {}
            }
        }
    }

    /// One list or one watch.
    async fn round(&self, progress: &mut Progress, sink: &mut impl Sink) -> Result<(), Failure> {
        self.allowance.check()?;
        if 0 < progress.highest && !std::mem::take(&mut progress.fresh) {
            // A watch from a version that the server has not reached yet is silent for ever, and a
            // list from an older server must not touch the rows.
            let found = Box::pin(self.server_version()).await?;
            if found < progress.highest {
                return Err(Failure::WentBack { found });
            }
            self.alive(progress, sink);
        }
        let Some(at) = progress.at.filter(|_| Instant::now() < progress.list_due) else {
            // Boxed: lists are rare, and their state would be kept by every watch.
            let listed = timeout(self.timing.list, Box::pin(self.list(progress, sink))).await;
            return listed.unwrap_or_else(|_| Err(ApiError::timeout(self.timing.list).into()));
        };
        match self.watch(at, progress, sink).await? {
            Ended::Closed => {}
            Ended::Silent => self.restarts("Silent"),
            Ended::Expired => {
                self.restarts("Expired");
                progress.at = None;
            }
        }
        Ok(())
    }

    fn alive(&self, progress: &mut Progress, sink: &mut impl Sink) {
        progress.alive(sink);
        if std::mem::take(&mut progress.broken) {
            self.answers.tell();
        }
    }

    fn restarts(&self, reason: &'static str) {
        let kind = self.path.rsplit('/').next().unwrap_or_default();
        self.observer.tell(Told::WatchRestart { kind, reason });
    }

    /// The version that a list would have now, without its objects.
    async fn server_version(&self) -> Result<u64, ApiError> {
        #[derive(Deserialize)]
        struct List {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            resource_version: String,
        }
        // Of an object that cannot be: the metadata of one that is may take kilobytes.
        let nothing = "fieldSelector=metadata.name%3D-&limit=1";
        let request = Request::get(format!("{}?{nothing}", self.path))
            .header(ACCEPT, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
        let answer = self.answer(request).await?;
        let list = self.short(answer).await?;
        let list: List =
            serde_json::from_slice(&list).map_err(|_| body::invalid("the version cannot be read"))?;
        list.metadata.resource_version.parse().map_err(|_| body::invalid("the list has no version"))
    }

    async fn list(&self, progress: &mut Progress, sink: &mut impl Sink) -> Result<(), Failure> {
        let version = match self.codec {
            Codec::Protobuf => {
                sink.begin();
                self.list_protobuf(sink).await?
            }
            Codec::Json => self.list_json(sink).await?,
        };
        if version < progress.highest {
            return Err(Failure::WentBack { found: version });
        }
        sink.end();
        sink.at(version);
        progress.listed(version, self.timing.consistency);
        self.alive(progress, sink);
        progress.synced(sink);
        Ok(())
    }

    async fn list_protobuf(&self, sink: &mut impl Sink) -> Result<u64, ApiError> {
        let answer = self.send("", "application/vnd.kubernetes.protobuf").await?;
        let mut reader = protobuf::ListReader::new(self.caps.object);
        let mut taking = Taking::new(self);
        let mut on = |data: &[u8]| {
            reader.feed(data, &mut |object| taking.deliver(sink, object))?;
            self.allowance.check()?;
            Ok(reader.held())
        };
        self.read(answer, self.caps.list, &mut on).await?;
        reader.finish()
    }

    async fn list_json(&self, sink: &mut impl Sink) -> Result<u64, ApiError> {
        let mut restarts = 0;
        loop {
            sink.begin();
            match self.pages(sink).await {
                // The pages' version expired on the way: only a list from the start is whole.
                Err(error) if error.class == RetryClass::Gone && restarts < RESTARTS => restarts += 1,
                version => return version,
            }
        }
    }

    async fn pages(&self, sink: &mut impl Sink) -> Result<u64, ApiError> {
        let mut query = format!("limit={PAGE}");
        let mut left = self.caps.list;
        let mut taking = Taking::new(self);
        loop {
            let answer = self.send(&query, "application/json").await?;
            let mut reader = json::ListReader::new(self.caps.object);
            let mut bytes = 0;
            let mut on = |data: &[u8]| {
                bytes += data.len();
                reader.feed(data, &mut |object| taking.deliver(sink, object))?;
                self.allowance.check()?;
                Ok(reader.held())
            };
            self.read(answer, left, &mut on).await?;
            left -= bytes;
            let end = reader.finish()?;
            match end.next {
                Some(next) => query = format!("limit={PAGE}&continue={}", escape(&next)),
                None => return Ok(end.version),
            }
        }
    }

    async fn watch(&self, at: u64, progress: &mut Progress, sink: &mut impl Sink) -> Result<Ended, Failure> {
        let length = jittered(self.timing.watch);
        let query = format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={at}",
            length.as_secs().max(1)
        );
        let accept = match self.codec {
            Codec::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Codec::Json => "application/json",
        };
        let answer = match Box::pin(self.send(&query, accept)).await {
            Err(error) if error.class == RetryClass::Gone => return Ok(Ended::Expired),
            answer => answer?,
        };
        progress.alive(sink);
        let mut reader = WatchReader::new(self.codec, self.caps.object);
        let mut share = Share::of(&self.budget);
        let mut body = answer.into_body();
        // The server ends it at `length`; one that trickles on is cut.
        let end = (Instant::now() + length + self.timing.request).min(progress.list_due);
        // Bytes alone are no sign of life: an event that never becomes whole would hide all that follow it.
        let (mut whole, mut begun) = (Instant::now(), None);
        loop {
            let quiet = whole + if progress.synced { self.timing.silent } else { SETTLED };
            let due = begun.map_or(quiet, |begun| begun + self.timing.object);
            let until = end.min(due);
            // Looked at before, too: where there is always a next byte, no timeout passes.
            let late = until <= Instant::now();
            let frame = if late { None } else { timeout_at(until, body.frame()).await.ok() };
            let Some(frame) = frame else {
                if begun.is_some() && due <= Instant::now() {
                    return Err(slow("an event", self.timing.object).into());
                }
                if end <= Instant::now() {
                    return Ok(Ended::Closed);
                }
                if progress.synced {
                    return Ok(Ended::Silent);
                }
                progress.synced(sink);
                continue;
            };
            let Some(frame) = frame else { return Ok(Ended::Closed) };
            let frame = frame.map_err(|error| ApiError::from_body(&error))?;
            let Ok(data) = frame.into_data() else { continue };
            let mut ended = Ok(None);
            let mut events = 0_usize;
            reader.feed(&data, &mut |event| {
                events += 1;
                if matches!(ended, Ok(None)) {
                    ended = progress.take(event, self.codec, sink);
                    if let Err(error) = self.allowance.check() {
                        ended = Err(error);
                    }
                }
            });
            if let Some(ended) = ended? {
                return Ok(ended);
            }
            share.hold(reader.held())?;
            let now = Instant::now();
            if 0 < events {
                (whole, begun) = (now, None);
                progress.alive(sink);
            }
            begun = begun.or(Some(now)).filter(|_| reader.awaits_more());
        }
    }

    fn url(&self, query: &str) -> String {
        let mut url = format!("{}?{query}", self.path);
        for (name, selector) in
            [("labelSelector", &self.selector.labels), ("fieldSelector", &self.selector.fields)]
        {
            if let Some(selector) = selector {
                url = format!("{url}&{name}={}", escape(selector));
            }
        }
        url
    }

    /// Until the headers of an answer 200; anything else is an error.
    async fn send(&self, query: &str, accept: &str) -> Result<Response<Body>, ApiError> {
        let request = Request::get(self.url(query)).header(ACCEPT, accept);
        let watches = query.starts_with("watch");
        self.answer(if watches { request } else { request.header(ACCEPT_ENCODING, "gzip") }).await
    }

    async fn answer(&self, request: http::request::Builder) -> Result<Response<Body>, ApiError> {
        let request = request
            .extension(Streamed)
            .body(Body::empty())
            .map_err(|_| body::invalid("the path is not valid"))?;
        let answer = call(self.timing.request, self.client.send(request)).await?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let gzipped = answer.headers().contains_key(http::header::CONTENT_ENCODING);
        let body = self.short(answer).await.ok().filter(|_| !gzipped).unwrap_or_default();
        let said = protobuf::refusal(&body).map_or(body.as_slice(), str::as_bytes);
        Err(ApiError::from_answer(status.as_u16(), said))
    }

    /// The body of an answer that nobody reads if it is longer: a version, or an error.
    async fn short(&self, answer: Response<Body>) -> Result<Vec<u8>, ApiError> {
        const BYTES: usize = 64 << 10;
        let body = timeout(self.timing.request, Limited::new(answer.into_body(), BYTES).collect()).await;
        match body {
            Ok(Ok(body)) => Ok(body.to_bytes().into()),
            Ok(Err(error)) => Err(ApiError::from_body(error.as_ref())),
            Err(_) => Err(ApiError::timeout(self.timing.request)),
        }
    }

    /// `on` says how much is kept of what it was given.
    async fn read(
        &self,
        answer: Response<Body>,
        cap: usize,
        on: &mut impl FnMut(&[u8]) -> Result<usize, ApiError>,
    ) -> Result<(), ApiError> {
        let mut share = Share::of(&self.budget);
        let mut plain = Plain::new(&answer, cap);
        let mut body = answer.into_body();
        while let Some(frame) = share.in_time(self.timing.object, body.frame()).await? {
            let frame = frame.map_err(|error| ApiError::from_body(&error))?;
            if let Ok(data) = frame.into_data() {
                plain.feed(&data, &mut |data| share.hold(on(data)?))?;
            }
        }
        plain.finish(&mut |data| share.hold(on(data)?))
    }
}

/// The objects of one list.
struct Taking<'a> {
    follow: &'a Follow,
    objects: usize,
}

impl<'a> Taking<'a> {
    fn new(follow: &'a Follow) -> Self {
        Self { follow, objects: 0 }
    }

    /// What comes after too much is let go by: a few bytes may unpack to very many objects.
    fn deliver(&mut self, sink: &mut impl Sink, object: Result<&[u8], Skipped>) {
        let Follow { allowance, codec, .. } = self.follow;
        self.objects += 1;
        allowance.listed(self.objects);
        if allowance.check().is_ok() {
            deliver(sink, object, *codec);
        }
    }
}

enum WatchReader {
    Protobuf(protobuf::WatchReader),
    Json(json::WatchReader),
}

impl WatchReader {
    fn new(codec: Codec, cap: usize) -> Self {
        match codec {
            Codec::Protobuf => Self::Protobuf(protobuf::WatchReader::new(cap)),
            Codec::Json => Self::Json(json::WatchReader::new(cap)),
        }
    }

    fn feed(&mut self, data: &[u8], on: &mut impl FnMut(Event<'_>)) {
        match self {
            Self::Protobuf(reader) => reader.feed(data, on),
            Self::Json(reader) => reader.feed(data, on),
        }
    }

    fn held(&self) -> usize {
        match self {
            Self::Protobuf(reader) => reader.held(),
            Self::Json(reader) => reader.held(),
        }
    }

    fn awaits_more(&self) -> bool {
        match self {
            Self::Protobuf(reader) => reader.awaits_more(),
            Self::Json(reader) => reader.awaits_more(),
        }
    }
}

#[cfg(test)]
mod tests;
