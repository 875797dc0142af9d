//! One worker, written to by a task of its own.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    driver::Tasks,
    writer::{Place, Writer, WriterConfig},
};
use fedq_base::telemetry::Metrics;
use fedq_k8s::worker::Worker;

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
        tasks: (&mut Tasks, &CancellationToken),
    ) -> Self {
        let (writer, place) = (Writer::waking(signal), Place::Worker(Arc::clone(worker)));
        let stop = writer.start((place, metrics), config, |_, _| {}, tasks);
        Self { writer, worker: Arc::clone(worker), _stop: stop }
    }
}
