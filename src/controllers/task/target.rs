//! One worker's objects of tasks, written by a task of its own.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use crate::{
    controllers::writer::{Outcome, Writer, WriterConfig},
    k8s::{
        client::{ApiError, RetryClass},
        worker::Worker,
        write::{self, Action, Change},
    },
    telemetry::Metrics,
};

/// An object that exists, but that the watch has not brought after so many tries, is none of ours.
const TRIES: u32 = 5;

pub(super) struct Target {
    pub writer: Writer,
    pub worker: Arc<Worker>,
    told: Arc<Mutex<Told>>,
    _stop: DropGuard,
}

/// What the cluster said to writes.
#[derive(Default)]
struct Told {
    refused: HashMap<write::Target, Refusal>,
    /// Objects that fedq does not follow, by what owns them.
    made: HashSet<(write::Target, String)>,
}

struct Refusal {
    message: String,
    tries: u32,
    is_final: bool,
}

impl Target {
    pub fn start(
        worker: &Arc<Worker>,
        config: WriterConfig,
        (metrics, signal): (Metrics, Arc<Notify>),
        tasks: (&mut JoinSet<()>, &CancellationToken),
    ) -> Self {
        let (writer, told) = (Writer::waking(signal), Arc::<Mutex<Told>>::default());
        let (to, hears) = (Arc::clone(worker), Arc::clone(&told));
        let report = move |change: &Change, outcome: &Outcome| {
            hear(&hears, change, outcome);
            tell(&to, change, outcome, &metrics);
        };
        let stop = writer.start((worker.client.kube(), config), report, tasks);
        Self { writer, worker: Arc::clone(worker), told, _stop: stop }
    }

    /// Why the cluster does not take an object, if trying on is of no use.
    pub fn refusal(&self, target: &write::Target) -> Option<String> {
        let told = lock(&self.told);
        let refusal = told.refused.get(target)?;
        refusal.is_final.then(|| refusal.message.clone())
    }

    /// The last failure of a write, whether or not it is tried again.
    pub fn failure(&self, target: &write::Target) -> Option<String> {
        lock(&self.told).refused.get(target).map(|refusal| refusal.message.clone())
    }

    /// Whether an object that fedq does not follow was made for this owner.
    pub fn has_made(&self, target: &write::Target, owner: &str) -> bool {
        lock(&self.told).made.contains(&(target.clone(), owner.to_owned()))
    }

    /// Lets go of what was said to writes that no dispatch needs any more.
    pub fn retain(&self, needed: &HashSet<write::Target>) {
        let mut told = lock(&self.told);
        told.refused.retain(|target, _| needed.contains(target));
        told.made.retain(|(target, _)| needed.contains(target));
    }
}

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().expect("no code panics while holding this lock")
}

fn hear(told: &Mutex<Told>, change: &Change, outcome: &Outcome) {
    let Action::Create(body) = &change.action else { return };
    let mut told = lock(told);
    let owner = body["metadata"]["ownerReferences"][0]["uid"].as_str();
    match (outcome, owner) {
        // It goes with its owner, so that it is there means that it was made for this one.
        (Err(error), Some(owner)) if error.class == RetryClass::AlreadyExists => {
            told.made.insert((change.target.clone(), owner.to_owned()));
        }
        (Err(error), _) => {
            let tries = told.refused.get(&change.target).map_or(0, |refusal| refusal.tries) + 1;
            let (is_final, message) = judge(error, tries);
            told.refused.insert(change.target.clone(), Refusal { message, tries, is_final });
        }
        (Ok(_), owner) => {
            told.refused.remove(&change.target);
            told.made.extend(owner.map(|owner| (change.target.clone(), owner.to_owned())));
        }
    }
}

/// Whether the same request would be refused again, and what a person is told.
fn judge(error: &ApiError, tries: u32) -> (bool, String) {
    match error.class {
        RetryClass::AlreadyExists => {
            (TRIES <= tries, "an object of that name is there, and it is not this task's".to_owned())
        }
        // What cannot be read is no answer: the object may have been made.
        RetryClass::Invalid => (error.status.is_some(), error.to_string()),
        RetryClass::Forbidden | RetryClass::DeniedByWebhook(_) | RetryClass::NotFound => {
            (true, error.to_string())
        }
        RetryClass::Conflict
        | RetryClass::Gone
        | RetryClass::WebhookDown
        | RetryClass::Unauthorized
        | RetryClass::Throttled { .. }
        | RetryClass::Unreachable
        | RetryClass::Timeout => (false, error.to_string()),
    }
}

fn tell(worker: &Worker, change: &Change, outcome: &Outcome, metrics: &Metrics) {
    let (name, target, verb) = (&worker.name, &change.target, change.verb());
    match outcome {
        Ok(object) => {
            metrics.wrote(name, target.kind.plural());
            info!(cluster.name = %name, verb, "Wrote {target} on `{name}`");
            worker.absorb_answer(change, object);
        }
        // It is gone, or there, already.
        Err(error) if matches!(error.class, RetryClass::NotFound | RetryClass::AlreadyExists) => {}
        Err(error) => warn!(cluster.name = %name, verb, "Could not write {target} on `{name}`: {error}"),
    }
}
