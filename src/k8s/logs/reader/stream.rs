//! One stream of a reader: asked for, watched over, and joined to the one before.

use std::time::Duration;

use http::{Response, header::DATE};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::{Client, client::Body};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};

use super::{
    super::{
        ContainerState, Since, Status,
        request::{Query, Refusal, open},
        transcript::Fresh,
    },
    Reader,
};
use crate::{
    client::{ApiError, RetryClass},
    list_watch::backoff::jittered,
};

/// What made a stream end without an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum End {
    Whole,
    /// No byte came for too long.
    Silent,
    /// The container ended some time ago, and the stream did not.
    Overdue,
}

/// A request that neither fails nor brings a byte for so long has reached its server: dialling takes less.
const DIALLED: Duration = Duration::from_secs(6);

impl Reader {
    /// One stream, to its end.
    pub(super) async fn stream(&mut self, follow: bool) -> Result<End, Refusal> {
        if self.source.connections.is_full(&self.source.share) {
            self.waits_for("as many logs of this cluster are read as fedq allows at a time".to_owned());
        }
        let place = self.source.connections.place(&self.source.share).await;
        let place =
            place.map_err(|error| Refusal::Failed(ApiError::new(RetryClass::Invalid, error.to_string())))?;
        let query = self.query(follow);
        self.transcript.begin();
        let asked = Instant::now();
        let answer = match self.ask(&place.client, &query, follow).await? {
            Ok(answer) => answer,
            Err(end) => {
                if end == End::Silent {
                    // A log that has a line is answered at once, so this one has none, and any is new.
                    self.start.tail = None;
                    self.start.from_now = false;
                }
                return Ok(end);
            }
        };
        self.is_back();
        let sent = sent_at(&answer, asked);
        let mut body = answer.into_body();
        loop {
            let silent = jittered(self.limits().silent);
            let linger = self.limits().linger;
            let frame = match patient(&mut self.state, silent, follow.then_some(linger), body.frame()).await {
                Ok(Some(frame)) => frame.map_err(|error| Refusal::Failed(ApiError::from_body(&error)))?,
                Ok(None) => return Ok(End::Whole),
                Err(end) => return Ok(end),
            };
            let Ok(data) = frame.into_data() else { continue };
            self.backoff.good();
            self.transcript.push(&data);
            while let Some(fresh) = self.transcript.pull() {
                if fresh.unconnected {
                    self.bridge(&place.client, &query).await?;
                    self.transcript.accept(&fresh.line);
                }
                if std::mem::take(&mut self.start.from_now) && was_before(&fresh, sent) {
                    continue;
                }
                self.give(fresh).await;
            }
        }
    }

    /// Until the headers; a server that takes the request and has nothing to say yet is a link that stands.
    async fn ask(
        &mut self,
        client: &Client,
        query: &Query,
        follow: bool,
    ) -> Result<Result<Response<Body>, End>, Refusal> {
        let source = &self.source;
        let url = query.url(&source.namespace, &source.pod, &source.container);
        let answer = open(client, &url);
        tokio::pin!(answer);
        if self.outage {
            if let Ok(answer) = timeout(DIALLED, &mut answer).await {
                return answer.map(Ok);
            }
            self.is_back();
        }
        let silent = jittered(self.limits().silent);
        let linger = follow.then_some(self.limits().linger);
        match patient(&mut self.state, silent, linger, answer).await {
            Ok(answer) => answer.map(Ok),
            Err(end) => Ok(Err(end)),
        }
    }

    /// A stream went on with a line, and nothing before it was known: if the container was restarted, the
    /// rest of the run before comes first.
    async fn bridge(&mut self, client: &Client, query: &Query) -> Result<(), Refusal> {
        let query = Query { follow: false, previous: true, ..query.clone() };
        let interrupted = self.transcript.interrupt();
        let read = self.read_previous(client, &query).await;
        let connected = self.transcript.is_connected();
        self.transcript.resume(interrupted);
        match read {
            Ok(gap) => {
                if !connected && !gap {
                    self.tap.status(Status::Gap);
                } else {
                    self.tap.status(Status::Restarted);
                }
                Ok(())
            }
            Err(Refusal::NoPrevious) => {
                self.tap.status(Status::Gap);
                Ok(())
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Says whether it had to report a gap.
    async fn read_previous(&mut self, client: &Client, query: &Query) -> Result<bool, Refusal> {
        let Ok(answer) = self.ask(client, query, false).await? else {
            return Err(Refusal::Failed(ApiError::timeout(self.limits().silent)));
        };
        let (mut body, mut gap, mut over) = (answer.into_body(), false, false);
        while !over {
            match timeout(self.limits().silent, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        self.transcript.push(&data);
                    }
                }
                Ok(Some(Err(error))) => return Err(Refusal::Failed(ApiError::from_body(&error))),
                Ok(None) => over = true,
                Err(_) => return Err(Refusal::Failed(ApiError::timeout(self.limits().silent))),
            }
            loop {
                let fresh = self.transcript.pull();
                let Some(fresh) = fresh.or_else(|| over.then(|| self.transcript.end()).flatten()) else {
                    break;
                };
                if fresh.unconnected {
                    gap = true;
                    self.tap.status(Status::Gap);
                    self.transcript.accept(&fresh.line);
                }
                self.give(fresh).await;
            }
        }
        Ok(gap)
    }

    fn query(&self, follow: bool) -> Query {
        let mut query = Query { follow, ..Query::default() };
        query.since = self.transcript.since();
        if query.since.is_none() {
            query.tail = self.start.tail;
            match self.start.since {
                Some(Since::Ago(ago)) => {
                    query.since_seconds = Some(ago.saturating_add(self.began.elapsed()).as_secs());
                }
                Some(Since::Time(since)) => query.since = Some(since),
                None => {}
            }
        }
        query
    }
}

/// Waits for `coming` no longer than `silent`, nor, where it is given, than `linger` after the container's end.
async fn patient<T>(
    state: &mut watch::Receiver<ContainerState>,
    silent: Duration,
    linger: Option<Duration>,
    coming: impl Future<Output = T>,
) -> Result<T, End> {
    let deadline = Instant::now() + silent;
    let overdue = async {
        let Some(linger) = linger else { return std::future::pending().await };
        // An error is a pod that is gone.
        let _ = state.wait_for(|state| *state == ContainerState::Ended).await;
        tokio::time::sleep(linger).await;
    };
    tokio::select! {
        biased;
        came = coming => Ok(came),
        () = sleep_until(deadline) => Err(End::Silent),
        () = overdue => Err(End::Overdue),
    }
}

/// When the request reached the server, by its clock, which counts whole seconds.
fn sent_at(answer: &Response<Body>, asked: Instant) -> Option<Timestamp> {
    let date = answer.headers().get(DATE)?.to_str().ok()?;
    let date = jiff::fmt::rfc2822::parse(date).ok()?.timestamp();
    date.checked_sub(asked.elapsed()).ok()
}

fn was_before(fresh: &Fresh, sent: Option<Timestamp>) -> bool {
    matches!((fresh.line.ts, sent), (Some(ts), Some(sent)) if ts < sent)
}
