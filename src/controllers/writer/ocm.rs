//! Writes to OCM's kinds on the hub; what they answer goes into the tables.

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Outcome, Writer, WriterConfig};
use fedq_k8s::{client::RetryClass, hub::Hub, write::Change};

/// Runs until cancelled.
pub async fn write(writer: &Writer, hub: &Hub, config: WriterConfig, cancel: CancellationToken) {
    let report = |change: &Change, outcome: &Outcome| tell(hub, change, outcome);
    writer.run(hub.client.kube(), config, report, cancel).await;
}

fn tell(hub: &Hub, change: &Change, outcome: &Outcome) {
    let (target, verb) = (&change.target, change.verb());
    match outcome {
        Ok(object) => {
            info!(verb, "Wrote {target} on the hub");
            hub.absorb_answer(change, object);
        }
        // Somebody wrote in between; the next decision starts from there.
        Err(error) if error.class == RetryClass::Conflict => {}
        Err(error) => warn!(verb, "Could not write {target} on the hub: {error}"),
    }
}
