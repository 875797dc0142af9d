//! Reads one container's log to its end: opens streams, judges what ends them, opens the next.

mod stream;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{
    ContainerState, Limits, LogConnections, Options, Record, Since, Status,
    connections::Share,
    outlet::Tap,
    request::Refusal,
    transcript::{Fresh, Transcript},
};
use crate::{
    client::{ApiError, RetryClass},
    list_watch::{Timing, backoff::StreamBackoff},
};
use stream::End;

/// Which log.
pub(super) struct Source {
    pub connections: LogConnections,
    pub share: Share,
    pub namespace: String,
    pub pod: String,
    pub container: String,
}

pub(super) struct Reader {
    source: Source,
    options: Arc<Options>,
    /// Closed when the pod is gone.
    state: watch::Receiver<ContainerState>,
    tap: Tap,
    seq: Arc<AtomicU64>,
    transcript: Transcript,
    backoff: StreamBackoff,
    began: Instant,
    start: Start,
    /// The link is down, and that was said.
    outage: bool,
    /// What it was last said to wait for.
    waits: Option<String>,
    /// The log of a run that ended was read to its end.
    caught_up: bool,
    failures: u32,
}

/// What is asked for until a line with a time has come.
struct Start {
    tail: Option<u64>,
    since: Option<Since>,
    /// Only from now on, but with a line before it to hold on to.
    from_now: bool,
}

impl Reader {
    pub(super) fn new(
        source: Source,
        options: Arc<Options>,
        state: watch::Receiver<ContainerState>,
        tap: Tap,
        seq: Arc<AtomicU64>,
    ) -> Self {
        let limits = &options.limits;
        let timing = Timing {
            backoff_min: limits.backoff_min,
            backoff_max: limits.backoff_max,
            healthy: limits.backoff_max,
            ..Timing::default()
        };
        let resumed = options.after.get(&(tap.origin.node, source.container.clone()));
        let after = resumed.filter(|after| after.pod == source.pod).map(|after| after.position);
        let (tail, since) = if resumed.is_none() { (options.tail, options.since) } else { (None, None) };
        let from_now = tail == Some(0);
        Self {
            transcript: Transcript::new(limits.line, after),
            backoff: StreamBackoff::new(&timing),
            start: Start { tail: if from_now { Some(1) } else { tail }, since, from_now },
            source,
            options,
            state,
            tap,
            seq,
            began: Instant::now(),
            outage: false,
            waits: None,
            caught_up: false,
            failures: 0,
        }
    }

    /// It had not begun when the session did, so all of it is new.
    pub(super) fn read_from_its_start(&mut self) {
        self.start = Start { tail: None, since: None, from_now: false };
    }

    pub(super) async fn run(mut self) {
        let last = if self.options.follow { self.follow().await } else { self.read_once().await };
        self.tap.last(last);
    }

    async fn read_once(&mut self) -> Status {
        if self.start.from_now {
            return Status::Ended;
        }
        loop {
            let refusal = match self.stream(false).await {
                Ok(End::Whole) => return self.end().await,
                Ok(End::Silent | End::Overdue) => Refusal::Failed(ApiError::timeout(self.limits().silent)),
                Err(refusal) => refusal,
            };
            match refusal {
                Refusal::Waiting(reason) => return Status::Waiting { reason },
                // Of a run before only the bridge asks, which knows what it means.
                Refusal::Gone | Refusal::NoPrevious => {
                    return Status::Unread { error: "the pod is gone".to_owned() };
                }
                Refusal::Failed(error) if !error.is_transient() => {
                    return Status::Unread { error: error.message };
                }
                Refusal::Failed(error) => {
                    if let Some(last) = self.failed(&error, true).await {
                        return last;
                    }
                }
            }
        }
    }

    async fn follow(&mut self) -> Status {
        loop {
            self.until_it_can_be_read().await;
            let over = self.is_over();
            let between = matches!(*self.state.borrow(), ContainerState::Between { .. });
            match self.stream(!over).await {
                Ok(End::Whole) if over => return self.end().await,
                Ok(End::Whole) => {
                    self.caught_up = between;
                    // A container that was restarted, or a server that went away politely.
                    let pause = self.backoff.after(&ApiError::new(RetryClass::Unreachable, "it ended"));
                    self.pause(pause).await;
                }
                Ok(End::Silent) if over => {
                    let error = ApiError::timeout(self.limits().silent);
                    if let Some(last) = self.failed(&error, true).await {
                        return last;
                    }
                }
                Ok(End::Silent | End::Overdue) => {}
                Err(Refusal::Gone) => return Status::Ended,
                // It never ran, and never will.
                Err(Refusal::Waiting(_) | Refusal::NoPrevious) if over => return Status::Ended,
                Err(refusal @ (Refusal::Waiting(_) | Refusal::NoPrevious)) => {
                    if let Refusal::Waiting(reason) = refusal {
                        self.waits_for(reason);
                    }
                    let pause = self.backoff.after(&ApiError::new(RetryClass::Unreachable, "it waits"));
                    self.pause(pause).await;
                }
                Err(Refusal::Failed(error)) => {
                    if let Some(last) = self.failed(&error, over).await {
                        return last;
                    }
                }
            }
        }
    }

    /// While it is known that the server would have nothing, it is not asked.
    async fn until_it_can_be_read(&mut self) {
        loop {
            let reason = match &*self.state.borrow_and_update() {
                ContainerState::Waiting { reason } => reason.clone(),
                ContainerState::Between { reason } if self.caught_up => reason.clone(),
                ContainerState::Between { .. } | ContainerState::Running | ContainerState::Ended => break,
            };
            self.waits_for(reason);
            if self.state.changed().await.is_err() {
                break;
            }
        }
        self.caught_up = false;
    }

    /// What a log that is over ends with.
    async fn end(&mut self) -> Status {
        if let Some(fresh) = self.transcript.end() {
            self.transcript.accept(&fresh.line);
            self.give(fresh).await;
        }
        Status::Ended
    }

    async fn give(&mut self, fresh: Fresh) {
        self.failures = 0;
        self.waits = None;
        let line = fresh.line;
        // Servers know whole seconds only.
        let early = matches!((self.start.since, line.ts), (Some(Since::Time(since)), Some(ts)) if ts < since);
        if early {
            return;
        }
        let record = Record {
            origin: Arc::clone(&self.tap.origin),
            seq: self.seq.fetch_add(1, Ordering::Relaxed) + 1,
            ts: line.ts,
            line: line.bytes,
            cut: line.cut,
            position: self.transcript.position(),
        };
        self.tap.line(record).await;
    }

    /// Says so once, then waits; `last` words where trying again has an end and this was it.
    async fn failed(&mut self, error: &ApiError, bounded: bool) -> Option<Status> {
        if bounded {
            self.failures += 1;
            if self.limits().attempts <= self.failures {
                return Some(Status::Unread { error: error.message.clone() });
            }
        }
        if !std::mem::replace(&mut self.outage, true) {
            self.tap.status(Status::Broken { error: error.message.clone() });
        }
        let pause = self.backoff.after(error);
        self.pause(pause).await;
        None
    }

    fn is_back(&mut self) {
        if std::mem::take(&mut self.outage) {
            self.tap.status(Status::Reconnected);
        }
    }

    fn waits_for(&mut self, reason: String) {
        if self.waits.as_ref() != Some(&reason) {
            self.tap.status(Status::Waiting { reason: reason.clone() });
            self.waits = Some(reason);
        }
    }

    /// Ends early when the container ends: then there is a last thing to read.
    async fn pause(&mut self, pause: Duration) {
        if self.is_over() {
            return tokio::time::sleep(pause).await;
        }
        let over = self.state.wait_for(|state| *state == ContainerState::Ended);
        let _ = timeout(pause, over).await;
    }

    fn is_over(&self) -> bool {
        is_over(&self.state)
    }

    fn limits(&self) -> &Limits {
        &self.options.limits
    }
}

/// The container will not write any more, or its pod is gone.
fn is_over(state: &watch::Receiver<ContainerState>) -> bool {
    state.has_changed().is_err() || *state.borrow() == ContainerState::Ended
}
