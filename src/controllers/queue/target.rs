//! One worker, written to by a task of its own.

use std::sync::Arc;

use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{info, warn};

use crate::writer::{Outcome, Writer, WriterConfig, not_taken};
use fedq_base::telemetry::Metrics;
use fedq_k8s::{client::RetryClass, worker::Worker, write::Change};

pub(super) struct Target {
    pub writer: Writer,
    pub worker: Arc<Worker>,
    _stop: DropGuard,
}

impl Target {
    pub fn start(
        worker: &Arc<Worker>,
        config: WriterConfig,
        (metrics, signal): (Metrics, Arc<Notify>),
        tasks: (&mut JoinSet<()>, &CancellationToken),
    ) -> Self {
        let (writer, to) = (Writer::default(), Arc::clone(worker));
        let report = move |change: &Change, outcome: &Outcome| {
            tell(&to, change, outcome, &metrics);
            signal.notify_one();
        };
        let stop = writer.start((worker.client.kube(), config), report, tasks);
        Self { writer, worker: Arc::clone(worker), _stop: stop }
    }
}

fn tell(worker: &Worker, change: &Change, outcome: &Outcome, metrics: &Metrics) {
    let (name, target, verb) = (&worker.name, &change.target, change.verb());
    match outcome {
        Ok(object) => {
            let lacking = change.not_taken(object);
            if lacking.is_empty() {
                info!(cluster.name = %name, verb, "Wrote {target} on `{name}`");
            } else {
                warn!(cluster.name = %name, verb, "{target} on `{name}`: {}", not_taken(&lacking));
            }
            worker.absorb_answer(change, object);
        }
        // Somebody wrote in between; the next decision starts from there.
        Err(error) if error.class == RetryClass::Conflict => {}
        Err(error) => {
            error.refusal().into_iter().for_each(|reason| metrics.refused(name, reason));
            warn!(cluster.name = %name, verb, "Could not write {target} on `{name}`: {error}");
        }
    }
}
