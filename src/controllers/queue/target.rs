//! One worker, written to by a task of its own.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    controllers::writer::{Outcome, Writer, WriterConfig},
    k8s::{
        client::RetryClass,
        worker::Worker,
        write::{Action, Change, Kind},
    },
    telemetry::Metrics,
};

pub(super) struct Target {
    pub writer: Writer,
    worker: Arc<Worker>,
    stop: CancellationToken,
}

impl Target {
    pub fn start(
        worker: &Arc<Worker>,
        config: WriterConfig,
        (metrics, signal): (Metrics, Arc<Notify>),
        (tasks, cancel): (&mut JoinSet<()>, &CancellationToken),
    ) -> Self {
        let (stop, writer) = (cancel.child_token(), Writer::default());
        let (task_writer, task_stop, to) = (writer.clone(), stop.clone(), Arc::clone(worker));
        tasks.spawn(async move {
            let report = |change: &Change, outcome: &Outcome| {
                tell(&to, change, outcome, &metrics);
                signal.notify_one();
            };
            task_writer.run(to.client.kube(), config, report, task_stop).await;
        });
        Self { writer, worker: Arc::clone(worker), stop }
    }

    pub fn is_for(&self, worker: &Arc<Worker>) -> bool {
        Arc::ptr_eq(&self.worker, worker)
    }

    pub fn stop(&self) {
        self.stop.cancel();
    }
}

fn tell(worker: &Worker, change: &Change, outcome: &Outcome, metrics: &Metrics) {
    let (name, target, verb) = (&worker.name, &change.target, change.verb());
    match outcome {
        Ok(object) => {
            metrics.wrote(name, target.kind.plural());
            info!(cluster.name = %name, verb, "Wrote {target} on `{name}`");
            // A deleted object answers with a Status or its last state: the watch says it is gone.
            if !matches!(change.action, Action::Delete { .. }) {
                absorb(worker, target.kind, object.clone());
            }
        }
        // Somebody wrote in between; the next decision starts from there.
        Err(error) if error.class == RetryClass::Conflict => {}
        Err(error) => warn!(cluster.name = %name, verb, "Could not write {target} on `{name}`: {error}"),
    }
}

fn absorb(worker: &Worker, kind: Kind, object: Value) {
    fn read<T: DeserializeOwned>(object: Value, take: impl FnOnce(T)) {
        match serde_json::from_value(object) {
            Ok(object) => take(object),
            // The watch brings the same object in a moment.
            Err(error) => warn!("An answer cannot be read: {error}"),
        }
    }
    match kind {
        Kind::Namespace => read(object, |one| worker.namespaces.absorb(one)),
        Kind::ResourceFlavor => read(object, |one| worker.flavors.absorb(one)),
        Kind::WorkloadPriorityClass => read(object, |one| worker.priority_classes.absorb(one)),
        Kind::LocalQueue => read(object, |one| worker.local_queues.absorb(one)),
        _ => {}
    }
}
