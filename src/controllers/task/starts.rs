//! Tasks that have their quota and do not start: why their pods are not even made, in the cluster's own words.
//!
//! A Job that may make no pods says so by Events alone: for want of a ServiceAccount, by a ResourceQuota, by Pod Security, by a
//! webhook. They are asked for only while pods are missing.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tracing::{debug, warn};

use super::{Cluster, TaskController, asked::Asked, on_hub::is_dispatched};
use crate::driver::{self, Tasks};
use fedq_domain::task::{phase::Phase, progress::Observed, view::NodePhase};
use fedq_k8s::{
    client::RetryClass,
    unmade::{self, Refused},
    worker::{JoinedClusters, Worker},
};
use fedq_store::TaskRow;

/// Mostly the pods are there sooner, and nobody is asked.
const GRACE: SignedDuration = SignedDuration::from_secs(5);
const PERIOD: SignedDuration = SignedDuration::from_secs(15);
/// Of one cluster at a time.
const NAMESPACES: usize = 8;
/// What the clocks of a cluster and of fedqd may differ by.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// What a cluster said the last time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Unmade(Arc<Vec<Refused>>);

impl Cluster {
    /// Why a Job of the task makes no pods, where some are missing.
    pub(super) fn unmade(&self, row: &TaskRow, seen: &Observed) -> Option<String> {
        if !lacks_pods(seen) {
            return None;
        }
        let Unmade(all) = self.unmade.answer()?;
        let since = row.changed.checked_sub(SKEW).unwrap_or(Timestamp::MIN);
        let of = |one: &&Refused| {
            one.namespace == row.namespace && one.job.contains(row.id.as_str()) && since <= one.at
        };
        all.iter().filter(of).max_by_key(|one| one.at).map(|one| one.message.clone())
    }
}

fn lacks_pods(seen: &Observed) -> bool {
    seen.nodes.iter().any(|node| node.phase == NodePhase::Waiting)
}

impl TaskController {
    /// When a task that starts is to be looked at again.
    pub(super) fn start_due(&self, row: &TaskRow, decided: Timestamp) -> Option<Timestamp> {
        let Phase::Starting { .. } = row.state.phase else { return None };
        let asks = row.changed.checked_add(GRACE).ok().filter(|at| decided < *at);
        let asks = asks.or_else(|| self.lacks_pods(row).then(|| decided.checked_add(PERIOD).ok())?);
        let timeout = SignedDuration::try_from(self.settings.start_timeout).ok();
        let ends = timeout.filter(|timeout| !timeout.is_zero());
        let ends = ends.and_then(|timeout| row.changed.checked_add(timeout).ok()).filter(|at| decided < *at);
        asks.into_iter().chain(ends).min()
    }

    fn lacks_pods(&self, row: &TaskRow) -> bool {
        let view = self.live.get(&row.id).and_then(|live| live.view.as_ref());
        view.is_none_or(|view| view.nodes.iter().any(|node| node.phase == NodePhase::Waiting))
    }

    pub(super) fn ask_for_unmade(&mut self, joined: &JoinedClusters) {
        let now = self.context.clock.now();
        for (name, cluster) in &self.clusters {
            let waits = |row: &&Arc<TaskRow>| {
                matches!(&row.state.phase, Phase::Starting { cluster } if cluster == name)
                    && !is_dispatched(row)
                    && row.changed.checked_add(GRACE).is_ok_and(|at| at <= now)
                    && self.lacks_pods(row)
            };
            let rows = self.live.values().map(|live| &live.row).filter(waits);
            let namespaces: BTreeSet<String> = rows.map(|row| row.namespace.clone()).collect();
            let reached = joined.get(name).is_some_and(|entry| entry.connection.is_writable());
            if namespaces.is_empty() || !reached || !cluster.unmade.is_due(now, PERIOD) {
                continue;
            }
            let asking = (&self.signal, self.context.writer.deadline);
            ask(&cluster.unmade, (&cluster.target.worker, namespaces), asking, &mut self.tasks);
        }
    }
}

fn ask(
    unmade: &Asked<Unmade>,
    (worker, namespaces): (&Arc<Worker>, BTreeSet<String>),
    (signal, deadline): (&Arc<Notify>, Duration),
    tasks: &mut Tasks,
) {
    let (known, worker, signal) = (unmade.clone(), Arc::clone(worker), Arc::clone(signal));
    driver::spawn(tasks, async move {
        let name = &worker.name;
        let client = worker.client.kube();
        let mut all = Vec::new();
        for namespace in namespaces.into_iter().take(NAMESPACES) {
            let asked = unmade::of_jobs(&client, &namespace, deadline);
            match worker.cancel.run_until_cancelled(asked).await {
                None => return,
                Some(Ok(refused)) => all.extend(refused),
                // `fedq check` names the right that is missing; everything else goes on without.
                Some(Err(error)) if error.class == RetryClass::Forbidden => {
                    return debug!(cluster.name = %name, "Cannot ask `{name}` why pods are missing: {error}");
                }
                Some(Err(error)) => {
                    return warn!(cluster.name = %name, "Cannot ask `{name}` why pods are missing: {error}");
                }
            }
        }
        if known.put(Unmade(Arc::new(all))) {
            signal.notify_one();
        }
    });
}
