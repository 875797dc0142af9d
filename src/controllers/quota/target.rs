//! Where quota is written: the hub, and each worker with a writer of its own.

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use crate::writer::{Outcome, Writer, WriterConfig, not_taken};
use fedq_base::{clock::Clock, telemetry::Metrics};
use fedq_domain::resource_groups::ResourceGroups;
use fedq_k8s::{
    client::RetryClass,
    hub::Hub,
    read,
    types::kueue::ClusterQueue,
    worker::Worker,
    write::{self, Change, Kind},
};
use fedq_values::ids::ClusterName;

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
    pub fn hub(hub: &Hub, writing: &Writing, tasks: &mut JoinSet<()>, cancel: &CancellationToken) -> Self {
        let tables = hub.clone();
        let absorb = move |change: &Change, answer: &Value| tables.absorb_answer(change, answer);
        Self::start(None, "hub", (hub.client.kube(), writing.clone()), absorb, (tasks, cancel))
    }

    pub fn worker(
        worker: &Arc<Worker>,
        writing: &Writing,
        tasks: &mut JoinSet<()>,
        cancel: &CancellationToken,
    ) -> Self {
        let tables = Arc::clone(worker);
        let absorb = move |change: &Change, answer: &Value| tables.absorb_answer(change, answer);
        let (client, name) = (worker.client.kube(), worker.name.as_str());
        Self::start(Some(Arc::clone(worker)), name, (client, writing.clone()), absorb, (tasks, cancel))
    }

    fn start(
        worker: Option<Arc<Worker>>,
        name: &str,
        (client, writing): (kube::Client, Writing),
        absorb: impl Fn(&Change, &Value) + Send + 'static,
        tasks: (&mut JoinSet<()>, &CancellationToken),
    ) -> Self {
        let writer = Writer::waking(Arc::clone(&writing.signal));
        let latency = Arc::new(Mutex::new(Latency::default()));
        let (config, place, measured) = (writing.config.clone(), name.to_owned(), Arc::clone(&latency));
        let report = move |change: &Change, outcome: &Outcome| {
            writing.report(&place, change, outcome);
            if outcome.is_ok() && change.target.kind == Kind::ClusterQueue {
                writing.measure(&measured);
            }
            if let Ok(answer) = outcome {
                absorb(change, answer);
            }
        };
        let stop = writer.start((client, config), report, tasks);
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
        let made = self.writer.in_flight().into_iter().filter_map(|change| match change.action {
            write::Action::Create(body) if change.target.kind == Kind::ClusterQueue => Some(body),
            _ => None,
        });
        made.filter_map(|body| serde_json::from_value(body).ok()).collect()
    }

    pub fn is_being_written(&self, queue: &str) -> bool {
        self.writer.is_in_flight(&write::Target::cluster_scoped(Kind::ClusterQueue, queue))
    }
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

    fn report(&self, place: &str, change: &Change, outcome: &Outcome) {
        let target = &change.target;
        match outcome {
            Ok(object) => {
                let lacking = change.not_taken(object);
                if !lacking.is_empty() {
                    warn!(cluster.name = place, "{target} on `{place}`: {}", not_taken(&lacking));
                }
                if target.kind == Kind::ClusterQueue && !target.status {
                    if lacking.is_empty() {
                        info!(cluster.name = place, "Wrote {target} on `{place}`");
                    }
                    let mut drift = self.drift.lock().expect("no code panics while holding this lock");
                    if writes_quota(change)
                        && let Some(groups) = groups_of(object)
                    {
                        drift.wrote(&key(place, &target.name), Wish::Groups(groups), Instant::now());
                    }
                    for (field, value) in policy_fields(change) {
                        let key = field_key(place, &target.name, field);
                        drift.wrote(&key, Wish::Field(value.clone()), Instant::now());
                    }
                }
            }
            // Somebody wrote in between; the next decision starts from there.
            Err(error) if error.class == RetryClass::Conflict => {}
            Err(error) => {
                if let (Some(reason), Ok(cluster)) = (error.refusal(), ClusterName::new(place)) {
                    self.metrics.refused(&cluster, reason);
                }
                warn!(cluster.name = place, "Could not write {target} on `{place}`: {error}");
            }
        }
    }
}

pub(super) fn key(place: &str, queue: &str) -> String {
    format!("{place}/{queue}")
}

pub(super) fn field_key(place: &str, queue: &str, field: &str) -> String {
    format!("{place}/{queue} {field}")
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
