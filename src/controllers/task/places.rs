//! Where tasks can be: each joined cluster and the hub, with a writer and an index of what is there.

use std::{collections::HashSet, sync::Arc};

use tokio::sync::Semaphore;

use crate::writer::keep_for_workers;
use fedq_k8s::{
    follow::Following,
    worker::{JoinedClusters, Worker},
};
use fedq_values::ids::ClusterName;

use super::{
    Cluster, HUB, TaskController, adopted::Adopted, asked::Asked, index::Index, keep, target::Target,
};

impl Cluster {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            index: Index::default(),
            sent: HashSet::new(),
            job_sets: Asked::default(),
            app_wrappers: Asked::default(),
            unmade: Asked::default(),
            adopted: Adopted::default(),
            reading: Arc::new(Semaphore::new(keep::AT_ONCE)),
        }
    }

    /// `current`: asked before, so that what is read is all that is there.
    pub(super) fn read(&mut self, current: bool) {
        self.sent = self.target.writer.sent();
        self.index.refresh(&self.target.worker, current);
    }
}

impl TaskController {
    /// The hub is followed as its workers are, for what MultiKueue dispatches from it.
    pub(super) fn follow_hub(&mut self) {
        let name = ClusterName::new(HUB).expect("a constant name is valid");
        let hub = &self.context.hub;
        let mut worker = Worker::new(name, hub.client.clone(), hub.uid.clone(), self.context.stop.clone());
        worker.tables.direct_workloads = hub.workloads.clone();
        let wake = vec![Arc::clone(&self.signal)];
        let following = Following::new(hub.client.clone(), self.settings.timing.clone(), wake);
        worker.follow_jobs(&following, &self.context.hub_id, &mut self.follows);
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
    }

    pub(super) fn start_target(&mut self, worker: &Arc<Worker>) -> Target {
        let told = (self.context.metrics.clone(), Arc::clone(&self.signal));
        Target::start(worker, self.context.writer.clone(), told, (&mut self.tasks, &self.context.stop))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use axum::{Json, Router, routing::post};
    use serde_json::{Value, json};
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{
        driver::Tasks,
        task::{
            decide::observe,
            testing::row,
            wishes::{self, Dispatching, Maker},
        },
        writer::WriterConfig,
    };
    use fedq_base::telemetry::Metrics;
    use fedq_domain::task::{
        phase::{Phase, Then},
        testing::cluster_name,
    };
    use fedq_k8s::testing::Server;

    #[tokio::test]
    async fn a_create_that_ends_after_the_cluster_was_looked_at_is_not_taken_for_none() {
        let answers = Arc::new(Notify::new());
        let answer = Arc::clone(&answers);
        let create = move |Json(mut job): Json<Value>| {
            let answer = Arc::clone(&answer);
            async move {
                answer.notified().await;
                job["metadata"]["uid"] = json!("u");
                job["metadata"]["resourceVersion"] = json!("7");
                Json(job)
            }
        };
        let server = Server::start(Router::new().route("/apis/batch/v1/namespaces/team/jobs", post(create)));
        let (mut tasks, cancel) = (Tasks::new(), CancellationToken::new());
        let worker = Worker::new(cluster_name("one"), server.client(), "uid".to_owned(), cancel.clone());
        let config = WriterConfig {
            merge_window: Duration::ZERO,
            deadline: Duration::from_secs(10),
            may_arrive: WriterConfig::MAY_ARRIVE,
        };
        let ended = Arc::new(Notify::new());
        let told = (Metrics::new(), Arc::clone(&ended));
        let mut cluster = Cluster::new(Target::start(&Arc::new(worker), config, told, (&mut tasks, &cancel)));
        let cluster_one = cluster_name("one");
        let row = row("run: x\n", Phase::Withdrawing { cluster: cluster_one, then: Then::Requeue });
        let of = Dispatching { task: &row, dispatch: row.dispatch.as_ref().expect("it was dispatched") };
        let maker = Maker { hub_id: "hub", tenants: &BTreeMap::new(), default_image: "image" };
        cluster.target.writer.want(wishes::create(of, None, &cluster.target, &maker, &mut || None));
        while cluster.target.writer.sent().is_empty() {
            tokio::task::yield_now().await;
        }

        cluster.read(true);
        answers.notify_one();
        ended.notified().await;
        assert!(cluster.target.writer.is_idle(), "the Job is there");
        assert_eq!(observe(&cluster, &row).left, 1, "it was on its way when the cluster was looked at");
        cluster.read(true);
        assert_eq!(observe(&cluster, &row).left, 1, "and is seen from now on");
    }
}
