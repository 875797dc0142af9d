//! Whether JobSets are run on a cluster, asked again now and then.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::SignedDuration;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::driver::{self, Tasks};
use fedq_domain::task::choose::Placement;
use fedq_k8s::{
    job_sets,
    list_watch::State,
    worker::{JoinedClusters, Worker},
};
use fedq_store::TaskRow;
use fedq_values::ids::ClusterName;

use super::{Cluster, TaskController, asked::Asked};

/// A controller that was installed is used after this long, and one that broke down no longer.
const PERIOD: SignedDuration = SignedDuration::from_mins(5);

/// Asks one, off the controller's own task.
fn ask(
    job_sets: &Asked<bool>,
    (worker, namespace): (&Arc<Worker>, &str),
    (signal, deadline): (&Arc<Notify>, Duration),
    tasks: &mut Tasks,
) {
    let (known, signal) = (job_sets.clone(), Arc::clone(signal));
    let (worker, namespace) = (Arc::clone(worker), namespace.to_owned());
    driver::spawn(tasks, async move {
        let name = &worker.name;
        let client = worker.client.kube();
        let asked = job_sets::are_run(&client, &namespace, deadline);
        let Some(answer) = worker.cancel.run_until_cancelled(asked).await else { return };
        let are_run = answer.unwrap_or_else(|error| {
            warn!(cluster.name = %name, "JobSets are not used on `{name}`, which refuses one: {error}");
            false
        });
        if known.put(are_run) {
            info!(cluster.name = %name, are_run, "Whether JobSets are run on `{name}`: {are_run}");
            signal.notify_one();
        }
    });
}

/// Whether the form of a task that goes there waits for an answer.
pub(super) fn is_asked(
    clusters: &BTreeMap<ClusterName, Cluster>,
    row: &TaskRow,
    placement: &Placement,
) -> bool {
    let cluster = clusters.get(&placement.cluster);
    1 < row.spec.num_nodes
        && !row.spec.is_app_wrapper()
        && cluster.is_some_and(|cluster| cluster.job_sets.is_asked())
}

impl TaskController {
    /// Asks each cluster that has the kind, where the form of tasks is left to fedq.
    pub(super) fn ask_for_job_sets(&mut self, joined: &JoinedClusters) {
        if self.settings.gang.is_some() {
            return;
        }
        let now = self.context.clock.now();
        for (name, cluster) in &self.clusters {
            let worker = &cluster.target.worker;
            let has_kind = matches!(worker.tasks.job_sets.state(), State::Synced { broken: None });
            let writable = joined.get(name).is_some_and(|entry| entry.connection.is_writable());
            let Some(namespace) = self.gathered.namespace_of(name).filter(|_| has_kind && writable) else {
                continue;
            };
            if cluster.job_sets.is_due(now, PERIOD) {
                let asking = (&self.signal, self.context.writer.deadline);
                ask(&cluster.job_sets, (worker, &namespace), asking, &mut self.tasks);
            }
        }
    }
}
