//! Writing to the hub.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::writer::{Outcome, Writer, WriterConfig};
use fedq_k8s::{
    client::RetryClass,
    hub::Hub,
    write::{Change, Kind},
};

pub(super) fn start_writer(
    writer: &Writer,
    hub: &Hub,
    config: WriterConfig,
    (tasks, cancel): (&mut JoinSet<()>, &CancellationToken),
) {
    let (writer, hub, stop) = (writer.clone(), hub.clone(), cancel.clone());
    tasks.spawn(async move {
        let report = |change: &Change, outcome: &Outcome| tell(&hub, change, outcome);
        writer.run(hub.client.kube(), config, report, stop).await;
    });
}

fn tell(hub: &Hub, change: &Change, outcome: &Outcome) {
    let (target, verb) = (&change.target, change.verb());
    match outcome {
        Ok(object) => {
            if !target.status {
                info!(verb, "Wrote {target} on the hub");
            }
            // Other Secrets, which join clusters, are in a table of their own.
            if target.kind == Kind::Secret && !change.is_deletion() {
                hub.kueue_secrets.absorb_answer(object);
            }
            hub.absorb_answer(change, object);
        }
        // Somebody wrote in between, or it is gone already; the next decision starts from there.
        Err(error) if matches!(error.class, RetryClass::Conflict | RetryClass::NotFound) => {}
        Err(error) => warn!(verb, "Could not write {target} on the hub: {error}"),
    }
}
