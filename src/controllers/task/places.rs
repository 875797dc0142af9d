//! Where tasks can be: each joined cluster and the hub, with a writer and an index of what is there.

use std::sync::Arc;

use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    controllers::writer::keep_for_workers,
    domain::ids::ClusterName,
    k8s::{
        follow::Following,
        worker::{JoinedClusters, Worker},
    },
};

use super::{Cluster, HUB, TaskController, index::Index, job_sets::JobSets, target::Target};

impl Cluster {
    fn new(target: Target) -> Self {
        Self { target, index: Index::default(), job_sets: JobSets::default() }
    }
}

impl TaskController {
    /// The hub is followed as its workers are, for what MultiKueue dispatches from it.
    pub(super) fn follow_hub(&mut self) {
        let name = ClusterName::new(HUB).expect("a constant name is valid");
        let hub = &self.hub;
        let mut worker = Worker::new(name, hub.client.clone(), hub.uid.clone(), self.cancel.clone());
        worker.direct_workloads = hub.workloads.clone();
        let wake = vec![Arc::clone(&self.signal)];
        let following = Following::new(hub.client.clone(), self.settings.timing.clone(), wake);
        worker.follow_jobs(&following, &self.hub_id, &mut self.tasks);
        wake_on(hub.workloads.changed(), &self.signal, (&mut self.tasks, &self.cancel));
        let target = self.start_target(&Arc::new(worker));
        self.place = Some(Cluster::new(target));
    }

    /// One writer for each worker, anew when its connection is.
    pub(super) fn keep_targets(&mut self, joined: &JoinedClusters) {
        let mut clusters = std::mem::take(&mut self.clusters);
        keep_for_workers(
            &mut clusters,
            joined,
            |cluster| Some(&cluster.target.worker),
            |worker| Cluster::new(self.start_target(worker)),
        );
        self.clusters = clusters;
        while self.tasks.try_join_next().is_some() {}
    }

    fn start_target(&mut self, worker: &Arc<Worker>) -> Target {
        let told = (self.metrics.clone(), Arc::clone(&self.signal));
        Target::start(worker, self.settings.writer.clone(), told, (&mut self.tasks, &self.cancel))
    }
}

/// Has whoever waits for `signal` look whenever something was published.
pub(super) fn wake_on<T: Send + Sync + 'static>(
    mut changed: watch::Receiver<T>,
    signal: &Arc<Notify>,
    (tasks, cancel): (&mut JoinSet<()>, &CancellationToken),
) {
    let (signal, cancel) = (Arc::clone(signal), cancel.clone());
    tasks.spawn(async move {
        while let Some(Ok(())) = cancel.run_until_cancelled(changed.changed()).await {
            signal.notify_one();
        }
    });
}
