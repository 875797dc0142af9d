//! Writing to the hub.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    controllers::writer::{Outcome, Writer, WriterConfig},
    k8s::{
        client::RetryClass,
        hub::Hub,
        list_watch::{Record, Table},
        write::{Action, Change, Kind},
    },
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
            // A deleted object answers with a Status or its last state: the watch says it is gone.
            if !matches!(change.action, Action::Delete { .. }) {
                absorb(hub, target.kind, object);
            }
        }
        // Somebody wrote in between, or it is gone already; the next decision starts from there.
        Err(error) if matches!(error.class, RetryClass::Conflict | RetryClass::NotFound) => {}
        Err(error) => warn!(verb, "Could not write {target} on the hub: {error}"),
    }
}

fn absorb(hub: &Hub, kind: Kind, object: &Value) {
    fn into<T: Record + DeserializeOwned>(table: &Table<T>, object: &Value) {
        if let Ok(object) = T::deserialize(object) {
            table.absorb(object);
        } else {
            // The watch brings the same object in a moment. The reader's words may quote a Secret.
            warn!("An answer of the hub cannot be read");
        }
    }
    match kind {
        Kind::MultiKueueConfig => into(&hub.multikueue_configs, object),
        Kind::MultiKueueCluster => into(&hub.multikueue_clusters, object),
        Kind::AdmissionCheck => into(&hub.checks, object),
        Kind::Workload => into(&hub.workloads, object),
        Kind::Secret => into(&hub.kueue_secrets, object),
        _ => {}
    }
}
