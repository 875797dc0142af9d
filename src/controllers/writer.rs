//! Sends the writes that a controller's latest decision still needs to one cluster.
//!
//! The controller hands over its whole wish each time ([`Writer::want`]); what an earlier wish held and the new
//! one does not is forgotten. So writes merge by themselves: the first one to an object goes at once,
//! and whatever is decided within the window after it goes as one. A cluster that hangs holds up its own
//! writer only.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use kube::Client;
use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::driver::{self, Tasks};
use fedq_base::{backoff::Backoff, telemetry::Metrics};
use fedq_k8s::{
    client::{ApiError, RetryClass},
    worker::{JoinedClusters, Worker},
    write::{self, Change, Kind, Target},
};
use fedq_values::ids::ClusterName;

pub use self::place::Place;

mod place;

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
    /// A write that was not answered may arrive for so long after the server answers at all. Then its object is looked at.
    pub may_arrive: Duration,
}

impl WriterConfig {
    /// kube-apiserver carries no request on for longer (`--request-timeout`, by default).
    pub const MAY_ARRIVE: Duration = Duration::from_mins(1);
}

/// What became of a write, told to whoever owns the writer.
pub type Outcome = Result<Value, ApiError>;

/// What is learnt of an object that is written.
enum Told<'a> {
    Outcome(&'a Outcome),
    /// As it is, after a write that was not answered.
    Seen(&'a Value),
}

/// Whether it matters that it may have been done unseen: what quota gives must not be given a second time.
fn is_quota(change: &Change) -> bool {
    change.target.kind == Kind::ClusterQueue && !change.target.status
}

#[derive(Clone, Default)]
pub struct Writer {
    state: Arc<Mutex<State>>,
    wake: Arc<Notify>,
    /// Woken after each write has ended.
    ended: Option<Arc<Notify>>,
}

#[derive(Default)]
struct State {
    wanted: BTreeMap<Target, Change>,
    objects: HashMap<Target, Pace>,
    /// Counts writes that began or ended.
    moves: u64,
    /// Counts wishes.
    wishes: u64,
    /// What began or ended, by their count, until a wish was made in view of it.
    moved: Vec<(u64, Change)>,
    /// When somebody last found that the server answers again.
    answered: Option<Instant>,
    /// Quota that was sent and not answered: it may be in force, or come to be, without being seen.
    unanswered: Vec<Unanswered>,
}

struct Unanswered {
    change: Change,
    /// Since when its time runs.
    since: Instant,
    /// Its object is being looked at.
    looked_at: bool,
}

impl Unanswered {
    fn new(change: Change) -> Self {
        Self { change, since: Instant::now(), looked_at: false }
    }
}

/// When an object may be written again.
#[derive(Default)]
struct Pace {
    /// What is being sent.
    in_flight: Option<Change>,
    /// The wish that it is of.
    wish: u64,
    /// Since when it is, or was last.
    sent: Option<Instant>,
    not_before: Option<Instant>,
    failures: u32,
    /// The last one that was taken only in part.
    vain: Option<Vain>,
    /// So that the same one is not hammered and the report can say so.
    failed: Option<Failed>,
}

/// A change that was answered with success, and that the object shows only in part: its definition there is older and
/// lacks fields, or somebody's webhook puts others in. As it will be wanted again, it waits as if it had failed; all
/// else that is wanted of the object does not.
struct Vain {
    change: Change,
    fields: Vec<String>,
    times: u32,
    until: Instant,
}

/// A change that failed.
struct Failed {
    change: Change,
    reason: String,
    /// Whether somebody wrote in between.
    conflict: bool,
    /// Whether the server did not answer, or with an error of its own.
    unanswered: bool,
}

/// Keeps one of what `start` makes for each worker that is connected, anew when its connection is.
pub fn keep_for_workers<T>(
    kept: &mut BTreeMap<ClusterName, T>,
    joined: &JoinedClusters,
    worker_of: impl Fn(&T) -> Option<&Arc<Worker>>,
    mut start: impl FnMut(&Arc<Worker>) -> T,
) {
    kept.retain(|name, one| {
        let worker = joined.get(name).and_then(|entry| entry.worker.as_ref());
        worker.zip(worker_of(one)).is_some_and(|(now, then)| Arc::ptr_eq(now, then))
    });
    for (name, entry) in joined {
        if let Some(worker) = entry.worker.as_ref().filter(|_| !kept.contains_key(name)) {
            kept.insert(name.clone(), start(worker));
        }
    }
}

impl Writer {
    /// A writer that wakes its controller whenever a write has ended.
    pub fn waking(controller: Arc<Notify>) -> Self {
        Self { ended: Some(controller), ..Self::default() }
    }

    /// Replaces everything wanted.
    pub fn want(&self, changes: Vec<Change>) {
        let mut state = self.lock();
        state.moved.clear();
        self.replace(state, changes);
    }

    /// Replaces everything wanted by what was decided in view of [`Writer::revision`]. Refused if since then a write
    /// began or ended that these do not ask for as well: whoever decided took what it gives for free, and may have given
    /// it to another object. Then nothing is wanted, and the controller is woken to decide anew.
    pub fn want_in_view_of(&self, revision: u64, changes: Vec<Change>) -> bool {
        let mut state = self.lock();
        state.moved.retain(|(at, _)| revision < *at);
        let known = |moved: &Change| changes.iter().any(|change| change.asks_the_same(moved));
        let in_view = state.moved.iter().all(|(_, moved)| known(moved));
        self.replace(state, if in_view { changes } else { Vec::new() });
        if let Some(controller) = self.ended.as_ref().filter(|_| !in_view) {
            controller.notify_one();
        }
        in_view
    }

    fn replace(&self, mut state: MutexGuard<'_, State>, changes: Vec<Change>) {
        // Each round hands a wish to every cluster's writer, and mostly there is none, as there was none before.
        if changes.is_empty() && state.wanted.is_empty() && state.objects.is_empty() {
            return;
        }
        state.wishes += 1;
        state.wanted = changes.into_iter().map(|change| (change.target.clone(), change)).collect();
        let State { wanted, objects, .. } = &mut *state;
        objects.retain(|target, pace| pace.is_needed(wanted.contains_key(target)));
        if !state.wanted.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Wants these besides what is wanted already: what others wait for goes before the rest is known.
    pub fn want_also(&self, changes: Vec<Change>) {
        let mut state = self.lock();
        state.wanted.extend(changes.into_iter().map(|change| (change.target.clone(), change)));
        if !state.wanted.is_empty() {
            self.wake.notify_one();
        }
    }

    /// Creates nothing of these any more, unless it is being sent already.
    pub fn retract<'a>(&self, targets: impl IntoIterator<Item = &'a Target>) {
        let mut state = self.lock();
        for target in targets {
            if state.wanted.get(target).is_some_and(Change::creates) {
                state.wanted.remove(target);
            }
        }
        // What fails now is not tried again either.
        state.wishes += 1;
    }

    /// The last failure of each object that still waits to be written. A conflict is none: it is decided anew.
    pub fn failures(&self) -> BTreeMap<Target, String> {
        let state = self.lock();
        let failed = state.objects.iter().filter_map(|(target, pace)| {
            let failed = pace.failed.as_ref().filter(|failed| !failed.conflict)?;
            state.wanted.contains_key(target).then(|| (target.clone(), failed.reason.clone()))
        });
        failed.collect()
    }

    /// These, and what was taken only in part: the object may work all the same.
    pub fn shortfalls(&self) -> BTreeMap<Target, String> {
        let mut short = self.failures();
        let state = self.lock();
        for (target, wanted) in &state.wanted {
            let vain = state.objects.get(target).and_then(|pace| pace.vain_again(wanted));
            if let Some(vain) = vain {
                short.entry(target.clone()).or_insert_with(|| not_taken(&vain.fields));
            }
        }
        short
    }

    /// Whether nothing is wanted and nothing under way.
    pub fn is_idle(&self) -> bool {
        let state = self.lock();
        state.wanted.is_empty() && state.objects.values().all(|pace| pace.in_flight.is_none())
    }

    /// Whether no object waits to be written.
    pub fn wants_nothing(&self) -> bool {
        self.lock().wanted.is_empty()
    }

    /// The objects that wait to be written.
    pub fn wanted(&self) -> Vec<Target> {
        self.lock().wanted.keys().cloned().collect()
    }

    /// While it is the same, so is what is in flight.
    pub fn revision(&self) -> u64 {
        self.lock().moves
    }

    /// Quota that was sent to an object and not answered, or not yet: it may come into force without being seen. The
    /// controller is woken when it is less.
    pub fn unanswered(&self, target: &Target) -> Vec<Change> {
        let state = self.lock();
        let unanswered = state.unanswered.iter().map(|one| &one.change);
        let sent = state.objects.get(target).and_then(|pace| pace.in_flight.as_ref());
        unanswered.filter(|change| change.target == *target).chain(sent).cloned().collect()
    }

    /// The same of all objects.
    pub fn all_unanswered(&self) -> Vec<Change> {
        let state = self.lock();
        let unanswered = state.unanswered.iter().map(|one| one.change.clone());
        let sent = state.objects.values().filter_map(|pace| pace.in_flight.clone());
        unanswered.chain(sent.filter(is_quota)).collect()
    }

    /// Of a writer to the same cluster that went before.
    pub fn inherit(&self, unanswered: Vec<Change>) {
        self.lock().unanswered.extend(unanswered.into_iter().map(Unanswered::new));
    }

    /// What is being sent at this moment.
    pub fn in_flight(&self) -> Vec<Change> {
        self.lock().objects.values().filter_map(|pace| pace.in_flight.clone()).collect()
    }

    /// The objects that wait to be written or are being sent: what is left of them is not known yet.
    pub fn open(&self) -> HashSet<Target> {
        let state = self.lock();
        let sent =
            state.objects.iter().filter(|(_, pace)| pace.in_flight.is_some()).map(|(target, _)| target);
        sent.chain(state.wanted.keys()).cloned().collect()
    }

    /// The objects that are being sent at this moment.
    pub fn sent(&self) -> HashSet<Target> {
        let state = self.lock();
        let sent = state.objects.iter().filter(|(_, pace)| pace.in_flight.is_some());
        sent.map(|(target, _)| target.clone()).collect()
    }

    pub fn is_in_flight(&self, target: &Target) -> bool {
        self.lock().objects.get(target).is_some_and(|pace| pace.in_flight.is_some())
    }

    /// Runs in a task of its own until `stop`, or until what is returned is dropped. What became of each write is told to
    /// `heard` too.
    pub fn start(
        &self,
        (place, metrics): (Place, Metrics),
        config: WriterConfig,
        mut heard: impl FnMut(&Change, &Outcome) + Send + 'static,
        (tasks, stop): (&mut Tasks, &CancellationToken),
    ) -> DropGuard {
        let (writer, stop) = (self.clone(), stop.child_token());
        let stopped = stop.clone();
        let (client, answers) = (place.client().kube(), place.client().answers().listen());
        let report = move |change: &Change, told: Told<'_>| match told {
            Told::Outcome(outcome) => {
                heard(change, outcome);
                place.report(change, outcome, &metrics);
            }
            Told::Seen(object) => place.absorb(change, object),
        };
        driver::spawn(tasks, async move { writer.run((client, answers), config, report, stopped).await });
        stop.drop_guard()
    }

    /// Runs until stopped; a write under way is then finished, so that its outcome is known.
    async fn run(
        &self,
        (client, mut answers): (Client, watch::Receiver<()>),
        config: WriterConfig,
        mut report: impl FnMut(&Change, Told<'_>),
        stop: CancellationToken,
    ) {
        let (mut under_way, mut looks) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            let (due, look_at) = self.due(config.may_arrive);
            for change in due {
                let (client, deadline) = (client.clone(), config.deadline);
                looks.push(async move {
                    let seen = write::look(&client, &change.target, deadline).await;
                    (change, seen)
                });
            }
            let (ready, next) = self.take(CONCURRENT - under_way.len(), !stop.is_cancelled());
            let next = next.into_iter().chain(look_at).min();
            for change in ready {
                let (client, deadline) = (client.clone(), config.deadline);
                under_way.push(async move {
                    let outcome = write::send(&client, &change, deadline).await;
                    (change, outcome)
                });
            }
            if stop.is_cancelled() && under_way.is_empty() {
                return;
            }
            let sleep = tokio::time::sleep_until(next.unwrap_or_else(|| Instant::now() + LAST_RETRY));
            tokio::select! {
                Some((change, outcome)) = under_way.next() => {
                    // The answer is absorbed before the write ends: in between, nobody would know of it.
                    report(&change, Told::Outcome(&outcome));
                    self.finish(&change, &outcome, &config);
                    if let Some(controller) = &self.ended {
                        controller.notify_one();
                    }
                }
                Some((change, seen)) = looks.next() => {
                    if let Ok(Some(object)) = &seen {
                        report(&change, Told::Seen(object));
                    }
                    self.looked(&change, seen.is_ok());
                    if let Some(controller) = &self.ended {
                        controller.notify_one();
                    }
                }
                () = self.wake.notified() => {}
                Ok(()) = answers.changed() => self.answered(),
                () = sleep => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    /// The changes that may go now, and when the next one may.
    fn take(&self, room: usize, open: bool) -> (Vec<Change>, Option<Instant>) {
        if !open {
            return (Vec::new(), None);
        }
        let now = Instant::now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let mut ready = Vec::new();
        let mut next: Option<Instant> = None;
        let targets: Vec<Target> = state.wanted.keys().cloned().collect();
        for target in targets {
            let pace = state.objects.entry(target.clone()).or_default();
            if pace.in_flight.is_some() {
                continue;
            }
            let vain = pace.vain_again(&state.wanted[&target]).map(|vain| vain.until);
            if let Some(at) = pace.not_before.max(vain).filter(|at| now < *at) {
                next = Some(next.map_or(at, |next| next.min(at)));
            } else if ready.len() < room {
                let change = state.wanted.remove(&target).expect("the target is one of those wanted");
                pace.in_flight = Some(change.clone());
                pace.wish = state.wishes;
                pace.sent = Some(now);
                state.moves += 1;
                state.moved.push((state.moves, change.clone()));
                ready.push(change);
            }
        }
        (ready, next)
    }

    /// What failed because the server did not answer is tried again.
    fn answered(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        let before = state.answered.replace(now);
        // A server that stood still goes on with what it had taken, from its first answer on.
        for one in state.unanswered.iter_mut().filter(|one| before.is_none_or(|before| before < one.since)) {
            one.since = now;
        }
        for pace in state.objects.values_mut() {
            if pace.failed.as_ref().is_some_and(|failed| failed.unanswered) {
                pace.not_before = None;
            }
        }
    }

    /// Unanswered writes that can no longer arrive, so that their objects tell what became of them; and when the next one
    /// cannot.
    fn due(&self, may_arrive: Duration) -> (Vec<Change>, Option<Instant>) {
        let now = Instant::now();
        let mut state = self.lock();
        let (mut due, mut next) = (Vec::new(), None);
        for one in state.unanswered.iter_mut().filter(|one| !one.looked_at) {
            let at = one.since + may_arrive;
            if at <= now {
                one.looked_at = true;
                due.push(one.change.clone());
            } else {
                next = next.into_iter().chain([at]).min();
            }
        }
        (due, next)
    }

    fn looked(&self, change: &Change, seen: bool) {
        let mut state = self.lock();
        if seen {
            state.unanswered.retain(|one| !(one.looked_at && one.change == *change));
            state.moves += 1;
            let moves = state.moves;
            state.moved.push((moves, change.clone()));
        } else {
            for one in state.unanswered.iter_mut().filter(|one| one.change == *change) {
                (one.looked_at, one.since) = (false, Instant::now());
            }
        }
    }

    fn finish(&self, change: &Change, outcome: &Outcome, config: &WriterConfig) {
        let now = Instant::now();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.moves += 1;
        state.moved.push((state.moves, change.clone()));
        let pace = state.objects.entry(change.target.clone()).or_default();
        pace.in_flight = None;
        let failed = |conflict, error: &ApiError| Failed {
            change: change.clone(),
            reason: error.to_string(),
            conflict,
            unanswered: matches!(error.class, RetryClass::Unreachable | RetryClass::Timeout),
        };
        match outcome {
            Ok(answer) => {
                let before = pace.vain.take();
                let is_latest = pace.wish == state.wishes;
                *pace = Pace { not_before: Some(now + config.merge_window), ..Pace::default() };
                // What was sent before was for a version that is past.
                state.unanswered.retain(|one| one.change.target != change.target);
                let fields = change.not_taken(answer);
                if fields.is_empty() {
                    // Decided on while this one was under way: by whoever did not see yet that it is there.
                    let again = |wanted: &Change| wanted == change || wanted.creates() && change.creates();
                    if state.wanted.get(&change.target).is_some_and(again) {
                        state.wanted.remove(&change.target);
                    }
                } else {
                    let before = before.filter(|before| before.fields == fields);
                    let times = before.map_or(0, |before| before.times.saturating_add(1));
                    let until = now + pause(times);
                    pace.vain = Some(Vain { change: change.clone(), fields, times, until });
                    // Wanted still: an answer that changed nothing wakes no controller to want it again.
                    if is_latest {
                        state.wanted.entry(change.target.clone()).or_insert_with(|| change.clone());
                    }
                }
            }
            // Somebody wrote in between: what to write is decided anew from what they left, at once.
            Err(error) if error.class == RetryClass::Conflict => {
                let again = pace.failed.as_ref().is_some_and(|failed| failed.change == *change);
                if again {
                    // The view is behind what the server has: the same decision would come at once.
                    let wait = pause(pace.failures);
                    pace.failures = pace.failures.saturating_add(1);
                    pace.not_before = Some(now + wait);
                }
                pace.failed = Some(failed(true, error));
            }
            Err(error) => {
                let mut wait = pause(pace.failures);
                // It was sent before the server was back: that it failed says nothing of now.
                if pace.sent < state.answered {
                    wait = wait.min(FIRST_RETRY * 4);
                }
                pace.failures = pace.failures.saturating_add(1);
                pace.not_before = Some(now + wait);
                let failed = failed(false, error);
                let unanswered = failed.unanswered;
                pace.failed = Some(failed);
                // Whatever came of an answer that cannot be read, it may have been done.
                if is_quota(change) && (unanswered || error.status.is_none()) {
                    state.unanswered.retain(|one| one.change != *change);
                    state.unanswered.push(Unanswered::new(change.clone()));
                }
                // Wanted still, unless a newer wish came meanwhile: one that leaves it out has seen that the
                // write arrived though its answer did not.
                if pace.wish == state.wishes {
                    state.wanted.insert(change.target.clone(), change.clone());
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while holding this lock")
    }
}

impl Pace {
    fn is_needed(&self, wanted: bool) -> bool {
        let pauses = self.not_before.max(self.vain.as_ref().map(|vain| vain.until));
        wanted || self.in_flight.is_some() || pauses.is_some_and(|at| Instant::now() < at)
    }

    fn vain_again(&self, wanted: &Change) -> Option<&Vain> {
        self.vain.as_ref().filter(|vain| vain.change.asks_the_same(wanted))
    }
}

fn pause(failures: u32) -> Duration {
    Backoff::after(failures, FIRST_RETRY, LAST_RETRY)
}

/// Tells people what of a change the object does not show.
pub fn not_taken(fields: &[String]) -> String {
    format!(
        "its API server took the write and keeps {} as it was: its definition of the kind may be older and lack that, \
         or a webhook there puts back what was",
        fields.join(", ")
    )
}

#[cfg(test)]
mod tests;
