//! Where quota is written: the hub, and each worker with a writer of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    driver::Tasks,
    writer::{Outcome, Place, Writer, WriterConfig},
};
use fedq_base::{clock::Clock, telemetry::Metrics};
use fedq_domain::{quota::AskedCell, resource_groups::ResourceGroups, resources::FlavorResource};
use fedq_k8s::{
    read,
    types::kueue::ClusterQueue,
    worker::Worker,
    write::{self, Change, Kind},
};

use super::drift::{Drift, Wish};

/// Shared by the tasks that write.
#[derive(Clone)]
pub(super) struct Writing {
    pub config: WriterConfig,
    pub drift: Arc<Mutex<Drift>>,
    pub metrics: Metrics,
    pub clock: Clock,
    pub signal: Arc<Notify>,
}

pub(super) struct Target {
    pub writer: Writer,
    /// The worker this writes to; `None` for the hub.
    pub worker: Option<Arc<Worker>>,
    latency: Arc<Mutex<Latency>>,
    _stop: DropGuard,
}

/// How long a change of capacity takes to the first queue written for it.
#[derive(Default)]
struct Latency {
    /// The last change that a plan was made for.
    planned: Option<Timestamp>,
    /// The same, while the queues it changes wait to be written.
    pending: Option<Timestamp>,
}

impl Target {
    pub fn start(place: Place, writing: &Writing, tasks: (&mut Tasks, &CancellationToken)) -> Self {
        let writer = Writer::waking(Arc::clone(&writing.signal));
        let latency = Arc::new(Mutex::new(Latency::default()));
        let worker = match &place {
            Place::Hub(_) => None,
            Place::Worker(worker) => Some(Arc::clone(worker)),
        };
        let (config, metrics) = (writing.config.clone(), writing.metrics.clone());
        let (writing, name, measured) = (writing.clone(), place.name().to_owned(), Arc::clone(&latency));
        let heard = move |change: &Change, outcome: &Outcome| {
            if let Ok(answer) = outcome
                && matches!(change.target.kind, Kind::ClusterQueue | Kind::Cohort)
            {
                writing.remember(&name, change, answer);
                writing.measure(&measured);
            }
        };
        let stop = writer.start((place, metrics), config, heard, tasks);
        Self { writer, worker, latency, _stop: stop }
    }

    /// A plan was made for capacity of that time, and needs writes or not.
    pub fn follows(&self, observed: Option<Timestamp>, writes: bool) {
        let mut latency = lock(&self.latency);
        if latency.planned != observed {
            *latency = Latency { planned: observed, pending: observed.filter(|_| writes) };
        }
    }

    /// Queues whose creation is under way, as they will be.
    pub fn queues_being_made(&self) -> Vec<ClusterQueue> {
        created(self.writer.in_flight())
    }

    /// Queues that may be made still, or are without being seen: nobody answered.
    pub fn queues_perhaps_made(&self) -> Vec<ClusterQueue> {
        created(self.writer.all_unanswered())
    }

    /// What unanswered writes to a queue ask for, of those that its version, as it was seen, does not rule out; and
    /// whether one changes more than amounts, as the cohort.
    pub fn asked(
        &self,
        queue: &str,
        version: Option<&str>,
    ) -> (Vec<BTreeMap<FlavorResource, AskedCell>>, bool) {
        let target = write::Target::cluster_scoped(Kind::ClusterQueue, queue);
        let (mut asked, mut more) = (Vec::new(), false);
        for change in self.writer.unanswered(&target) {
            let of_it = match (&change.action, version) {
                (write::Action::Merge(body), Some(version)) => {
                    body.pointer("/metadata/resourceVersion") == Some(&json!(version))
                }
                (write::Action::Create(_), None) => true,
                _ => false,
            };
            if let write::Action::Merge(body) | write::Action::Create(body) = &change.action
                && of_it
            {
                asked.extend(read::asked_cells(body));
                more |= policy_fields(&change).next().is_some();
            }
        }
        (asked, more)
    }

    pub fn is_being_written(&self, queue: &str) -> bool {
        self.writer.is_in_flight(&write::Target::cluster_scoped(Kind::ClusterQueue, queue))
    }
}

fn created(changes: Vec<Change>) -> Vec<ClusterQueue> {
    let bodies = changes.into_iter().filter_map(|change| match change.action {
        write::Action::Create(body) if change.target.kind == Kind::ClusterQueue => Some(body),
        _ => None,
    });
    bodies.filter_map(|body| serde_json::from_value(body).ok()).collect()
}

fn lock(latency: &Mutex<Latency>) -> MutexGuard<'_, Latency> {
    latency.lock().expect("no code panics while holding this lock")
}

impl Writing {
    fn measure(&self, latency: &Mutex<Latency>) {
        if let Some(since) = lock(latency).pending.take() {
            // A clock that was set back shows as no time at all.
            let took = Duration::try_from(self.clock.now().duration_since(since)).unwrap_or_default();
            self.metrics.capacity_written(took);
        }
    }

    /// What fedq wrote to a queue, so that who changes it back is noticed.
    fn remember(&self, place: &str, change: &Change, answer: &Value) {
        let target = &change.target;
        if target.status {
            return;
        }
        let mut drift = self.drift.lock().expect("no code panics while holding this lock");
        if writes_quota(change)
            && let Some(groups) = groups_of(answer)
        {
            drift.wrote(&key(place, target), Wish::Groups(groups), Instant::now());
        }
        for (field, value) in policy_fields(change) {
            let key = field_key(place, target, field);
            drift.wrote(&key, Wish::Field(value.clone()), Instant::now());
        }
    }
}

pub(super) fn key(place: &str, target: &write::Target) -> String {
    format!("{place}/{target}")
}

pub(super) fn field_key(place: &str, target: &write::Target, field: &str) -> String {
    format!("{place}/{target} {field}")
}

/// What a patch of a queue writes beside its quota.
fn policy_fields(change: &Change) -> impl Iterator<Item = (&String, &Value)> {
    let spec = match &change.action {
        write::Action::Merge(patch) => patch["spec"].as_object(),
        _ => None,
    };
    spec.into_iter().flatten().filter(|(field, _)| *field != "resourceGroups")
}

/// Whatever else is written of a queue, its quota is as somebody left it.
fn writes_quota(change: &Change) -> bool {
    match &change.action {
        write::Action::Merge(patch) => patch.pointer("/spec/resourceGroups").is_some(),
        _ => change.creates(),
    }
}

fn groups_of(object: &Value) -> Option<ResourceGroups> {
    let queue: ClusterQueue = serde_json::from_value(object.clone()).ok()?;
    read::groups(&queue.spec.resource_groups).ok()
}
