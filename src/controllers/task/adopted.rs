//! Claims that were there before fedq: whether they still are, asked by name now and then, since no label marks them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::SignedDuration;
use tokio::sync::Notify;
use tracing::warn;

use super::{TaskController, asked::Asked};
use crate::driver::{self, Tasks};
use fedq_domain::task::{names::TaskId, volume::ExistingClaim};
use fedq_k8s::{
    volume_claims,
    worker::{JoinedClusters, Worker},
};
use fedq_store::VolumeRow;
use fedq_values::ids::ClusterName;

/// Who takes a claim away that tasks use has to tell people first; this only says so afterwards.
const PERIOD: SignedDuration = SignedDuration::from_mins(1);

/// Namespaces and names, by the volumes that stand for them: one that was adopted anew was not asked for yet.
type Wanted = BTreeMap<TaskId, (String, String)>;
type Claims = BTreeMap<TaskId, Option<ExistingClaim>>;

/// What is known of a claim.
pub(super) enum Found {
    /// Nobody has answered yet.
    Unasked,
    Missing,
    There(ExistingClaim),
}

/// What a cluster said the last time of the claims that it was asked for.
#[derive(Default)]
pub(super) struct Adopted {
    wanted: Wanted,
    found: Asked<Arc<Claims>>,
}

impl Adopted {
    pub fn claim(&self, volume: &TaskId) -> Found {
        match self.found.answer().as_ref().and_then(|claims| claims.get(volume)) {
            None => Found::Unasked,
            Some(None) => Found::Missing,
            Some(Some(claim)) => Found::There(claim.clone()),
        }
    }
}

impl TaskController {
    pub(super) fn ask_for_adopted(&mut self, volumes: &[VolumeRow], joined: &JoinedClusters) {
        let mut wanted: BTreeMap<&ClusterName, Wanted> = BTreeMap::new();
        for volume in volumes.iter().filter(|volume| volume.spec.is_adopted() && !volume.deleting) {
            let Some(cluster) = &volume.cluster else { continue };
            let claim = (volume.namespace.clone(), volume.spec.claim_name(&volume.id));
            wanted.entry(cluster).or_default().insert(volume.id.clone(), claim);
        }
        let now = self.context.clock.now();
        for (name, cluster) in &mut self.clusters {
            let wanted = wanted.remove(name).unwrap_or_default();
            let adopted = &mut cluster.adopted;
            if adopted.wanted != wanted {
                adopted.wanted.clone_from(&wanted);
                adopted.found.ask_anew();
            }
            let reached = joined.get(name).is_some_and(|entry| entry.connection.is_writable());
            if wanted.is_empty() || !reached || !adopted.found.is_due(now, PERIOD) {
                continue;
            }
            let asking = (&self.signal, self.context.writer.deadline);
            ask(&adopted.found, (&cluster.target.worker, wanted), asking, &mut self.tasks);
        }
    }
}

fn ask(
    found: &Asked<Arc<Claims>>,
    (worker, wanted): (&Arc<Worker>, Wanted),
    (signal, deadline): (&Arc<Notify>, Duration),
    tasks: &mut Tasks,
) {
    let (known, worker, signal) = (found.clone(), Arc::clone(worker), Arc::clone(signal));
    driver::spawn(tasks, async move {
        let name = &worker.name;
        let client = worker.client.kube();
        let mut claims = Claims::new();
        for (volume, (namespace, claim)) in wanted {
            let asked = volume_claims::find(&client, (&namespace, &claim), deadline);
            match worker.cancel.run_until_cancelled(asked).await {
                None => return,
                Some(Ok(found)) => drop(claims.insert(volume, found)),
                Some(Err(error)) => {
                    warn!(cluster.name = %name, "Cannot ask `{name}` for PersistentVolumeClaim {claim}: {error}");
                    // What was known of it stands.
                    let before = known.answer().as_ref().and_then(|known| known.get(&volume).cloned());
                    claims.extend(before.map(|before| (volume, before)));
                }
            }
        }
        if known.put(Arc::new(claims)) {
            signal.notify_one();
        }
    });
}
