//! Sends the writes that a controller's latest decision still needs to one cluster.
//!
//! The controller hands over its whole wish each time ([`Writer::want`]); what an earlier wish held and the new
//! one does not is forgotten. So writes merge by themselves: the first one to an object goes at once,
//! and whatever is decided within the window after it goes as one. A cluster that hangs holds up its own
//! writer only.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use kube::Client;
use serde_json::Value;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::k8s::{
    client::{ApiError, RetryClass},
    write::{self, Change, Target},
};

/// Writes under way to one cluster at a time: enough to hide latency, few enough to stay far below
/// the 100 streams a connection may have.
const CONCURRENT: usize = 8;
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub struct WriterConfig {
    /// After a write, further ones to the same object wait this long and go as one.
    pub merge_window: Duration,
    /// For one request.
    pub deadline: Duration,
}

/// What became of a write, told to whoever owns the writer.
pub type Outcome = Result<Value, ApiError>;

#[derive(Clone, Default)]
pub struct Writer {
    state: Arc<Mutex<State>>,
    wake: Arc<Notify>,
}

#[derive(Default)]
struct State {
    wanted: BTreeMap<Target, Change>,
    objects: HashMap<Target, Pace>,
}

/// When an object may be written again.
#[derive(Default)]
struct Pace {
    in_flight: bool,
    not_before: Option<Instant>,
    failures: u32,
    /// The change that failed and why, so that the same one is not hammered and the report can say so.
    failed: Option<(Change, String)>,
}

impl Writer {
    /// Replaces everything wanted.
    pub fn want(&self, changes: Vec<Change>) {
        let mut state = self.lock();
        state.wanted = changes.into_iter().map(|change| (change.target.clone(), change)).collect();
        let State { wanted, objects } = &mut *state;
        objects.retain(|target, pace| pace.is_needed(wanted.contains_key(target)));
        drop(state);
        self.wake.notify_one();
    }

    /// The last failure of each object that still waits to be written.
    pub fn failures(&self) -> BTreeMap<Target, String> {
        let state = self.lock();
        let failed = state.objects.iter().filter_map(|(target, pace)| {
            let (_, reason) = pace.failed.as_ref()?;
            state.wanted.contains_key(target).then(|| (target.clone(), reason.clone()))
        });
        failed.collect()
    }

    /// Whether nothing is wanted and nothing under way.
    pub fn is_idle(&self) -> bool {
        let state = self.lock();
        state.wanted.is_empty() && state.objects.values().all(|pace| !pace.in_flight)
    }

    /// The objects that wait to be written.
    pub fn wanted(&self) -> Vec<Target> {
        self.lock().wanted.keys().cloned().collect()
    }

    pub fn is_in_flight(&self, target: &Target) -> bool {
        self.lock().objects.get(target).is_some_and(|pace| pace.in_flight)
    }

    /// Runs until cancelled; a write under way is then finished, so that its outcome is known.
    pub async fn run(
        &self,
        client: Client,
        config: WriterConfig,
        mut report: impl FnMut(&Change, &Outcome),
        cancel: CancellationToken,
    ) {
        let mut under_way = FuturesUnordered::new();
        loop {
            let (ready, next) = self.take(CONCURRENT - under_way.len(), !cancel.is_cancelled());
            for change in ready {
                let (client, deadline) = (client.clone(), config.deadline);
                under_way.push(async move {
                    let outcome = write::send(&client, &change, deadline).await;
                    (change, outcome)
                });
            }
            if cancel.is_cancelled() && under_way.is_empty() {
                return;
            }
            let sleep = tokio::time::sleep_until(next.unwrap_or_else(|| Instant::now() + LAST_RETRY));
            tokio::select! {
                Some((change, outcome)) = under_way.next() => {
                    self.finish(&change, &outcome, &config);
                    report(&change, &outcome);
                }
                () = self.wake.notified() => {}
                () = sleep => {}
                () = cancel.cancelled(), if !cancel.is_cancelled() => {}
            }
        }
    }

    /// The changes that may go now, and when the next one may.
    fn take(&self, room: usize, open: bool) -> (Vec<Change>, Option<Instant>) {
        if !open {
            return (Vec::new(), None);
        }
        let now = Instant::now();
        let mut state = self.lock();
        let mut ready = Vec::new();
        let mut next: Option<Instant> = None;
        let targets: Vec<Target> = state.wanted.keys().cloned().collect();
        for target in targets {
            let pace = state.objects.entry(target.clone()).or_default();
            if pace.in_flight {
                continue;
            }
            if let Some(at) = pace.not_before.filter(|at| now < *at) {
                next = Some(next.map_or(at, |next| next.min(at)));
            } else if ready.len() < room {
                pace.in_flight = true;
                ready.extend(state.wanted.remove(&target));
            }
        }
        (ready, next)
    }

    fn finish(&self, change: &Change, outcome: &Outcome, config: &WriterConfig) {
        let now = Instant::now();
        let mut state = self.lock();
        let pace = state.objects.entry(change.target.clone()).or_default();
        pace.in_flight = false;
        match outcome {
            Ok(_) => {
                *pace = Pace { not_before: Some(now + config.merge_window), ..Pace::default() };
            }
            // Somebody wrote in between: what to write is decided anew from what they left, at once.
            Err(error) if error.class == RetryClass::Conflict => {
                pace.failed = Some((change.clone(), error.to_string()));
            }
            Err(error) => {
                let wait = FIRST_RETRY.saturating_mul(1 << pace.failures.min(10)).min(LAST_RETRY);
                pace.failures = pace.failures.saturating_add(1);
                pace.not_before = Some(now + wait);
                pace.failed = Some((change.clone(), error.to_string()));
                // Wanted still, unless a newer wish came meanwhile.
                state.wanted.entry(change.target.clone()).or_insert_with(|| change.clone());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding this lock")
    }
}

impl Pace {
    fn is_needed(&self, wanted: bool) -> bool {
        wanted || self.in_flight || self.not_before.is_some_and(|at| Instant::now() < at)
    }
}
