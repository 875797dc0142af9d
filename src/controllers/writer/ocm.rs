//! Writes to OCM's kinds on the hub; what they answer goes into the tables.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{Outcome, Writer, WriterConfig};
use crate::{
    domain::ids::ClusterName,
    k8s::{
        client::RetryClass,
        hub::Hub,
        write::{Action, Change, Kind},
    },
    telemetry::Metrics,
};

/// As metrics name the hub.
const HUB: &str = "hub";

/// Runs until cancelled.
pub async fn write(
    writer: &Writer,
    hub: &Hub,
    config: WriterConfig,
    metrics: &Metrics,
    cancel: CancellationToken,
) {
    let report = |change: &Change, outcome: &Outcome| tell(hub, change, outcome, metrics);
    writer.run(hub.client.kube(), config, report, cancel).await;
}

fn tell(hub: &Hub, change: &Change, outcome: &Outcome, metrics: &Metrics) {
    let (target, verb) = (&change.target, change.verb());
    match outcome {
        Ok(object) => {
            if let Ok(name) = ClusterName::new(HUB) {
                metrics.wrote(&name, target.kind.plural());
            }
            info!(verb, "Wrote {target} on the hub");
            // A deleted object answers with a Status or its last state: the watch says it is gone.
            if !matches!(change.action, Action::Delete { .. }) {
                absorb(hub, target.kind, object.clone());
            }
        }
        // Somebody wrote in between; the next decision starts from there.
        Err(error) if error.class == RetryClass::Conflict => {}
        Err(error) => warn!(verb, "Could not write {target} on the hub: {error}"),
    }
}

fn absorb(hub: &Hub, kind: Kind, object: Value) {
    fn read<T: DeserializeOwned>(object: Value, take: impl FnOnce(T)) {
        match serde_json::from_value(object) {
            Ok(object) => take(object),
            // The watch brings the same object in a moment.
            Err(error) => warn!("An answer cannot be read: {error}"),
        }
    }
    let ocm = &hub.ocm;
    match kind {
        Kind::Placement => read(object, |one| ocm.placements.absorb(one)),
        Kind::PlacementDecision => read(object, |one| ocm.decisions.absorb(one)),
        Kind::ManagedCluster => read(object, |one| ocm.clusters.absorb(one)),
        Kind::ManagedClusterSet => read(object, |one| ocm.sets.absorb(one)),
        Kind::AddOnPlacementScore => read(object, |one| ocm.scores.absorb(one)),
        Kind::Namespace => read(object, |one| hub.namespaces.absorb(one)),
        _ => {}
    }
}
