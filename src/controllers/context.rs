//! What every controller works with.

use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    driver::Tasks,
    writer::{Place, Writer, WriterConfig},
};
use fedq_base::{clock::Clock, telemetry::Metrics};
use fedq_k8s::hub::Hub;
use fedq_store::Store;

#[cfg(test)]
pub mod testing;

#[derive(Clone)]
pub struct Context {
    pub hub: Hub,
    /// On all that fedq makes, to tell it from what another hub's fedq made.
    pub hub_id: String,
    pub store: Store,
    pub clock: Clock,
    pub metrics: Metrics,
    pub writer: WriterConfig,
    /// When the daemon stops.
    pub stop: CancellationToken,
}

impl Context {
    /// Has what a writer is told to want written to the hub, until what is returned is dropped.
    pub fn write_to_hub(&self, writer: &Writer, tasks: &mut Tasks) -> DropGuard {
        let place = (Place::hub(self.hub.clone()), self.metrics.clone());
        writer.start(place, self.writer.clone(), |_, _| {}, (tasks, &self.stop))
    }
}
