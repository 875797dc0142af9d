//! Who runs AppWrappers on each cluster, asked again now and then.

use std::{sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::driver::{self, Tasks};
use fedq_domain::task::runtime::{Absence, Runtime};
use fedq_k8s::{
    app_wrappers,
    list_watch::State,
    worker::{JoinedClusters, Worker},
};

use super::{Cluster, TaskController, asked::Asked};

/// A controller that broke down is not used any more after this long.
const PERIOD: SignedDuration = SignedDuration::from_mins(5);
/// And one that was installed is found.
const PERIOD_WITHOUT: SignedDuration = SignedDuration::from_mins(1);

impl Cluster {
    /// What is known of it now.
    pub(super) fn runtime(&self) -> Runtime {
        match self.target.worker.tasks.app_wrappers.state() {
            State::Waiting => Runtime::Unknown,
            State::Absent => Runtime::None(Absence::NoKind),
            // Whoever ran them when the link broke, runs them still.
            State::Synced { broken: Some(reason) } => {
                self.app_wrappers.answer().unwrap_or(Runtime::None(Absence::Refused(reason)))
            }
            State::Synced { broken: None } => self.app_wrappers.answer().unwrap_or_default(),
        }
    }
}

impl TaskController {
    /// Asks each cluster that knows the kind.
    pub(super) fn ask_for_runtimes(&mut self, joined: &JoinedClusters) {
        let now = self.context.clock.now();
        for (name, cluster) in &self.clusters {
            let worker = &cluster.target.worker;
            let has_kind = matches!(worker.tasks.app_wrappers.state(), State::Synced { broken: None });
            let writable = joined.get(name).is_some_and(|entry| entry.connection.is_writable());
            if !has_kind || !writable {
                continue;
            }
            let works = matches!(cluster.app_wrappers.answer(), Some(Runtime::Upstream | Runtime::Fedq));
            let period = if works { PERIOD } else { PERIOD_WITHOUT };
            if cluster.app_wrappers.is_due(now, period) {
                let asking = (&self.signal, self.context.writer.deadline);
                ask(&cluster.app_wrappers, (worker, now), asking, &mut self.tasks);
            }
        }
    }
}

fn ask(
    app_wrappers: &Asked<Runtime>,
    (worker, now): (&Arc<Worker>, Timestamp),
    (signal, deadline): (&Arc<Notify>, Duration),
    tasks: &mut Tasks,
) {
    let (known, worker, signal) = (app_wrappers.clone(), Arc::clone(worker), Arc::clone(signal));
    driver::spawn(tasks, async move {
        let name = &worker.name;
        let client = worker.client.kube();
        let asked = app_wrappers::runtime(&client, now, deadline);
        let Some(answer) = worker.cancel.run_until_cancelled(asked).await else { return };
        match answer {
            Ok(runtime) => {
                let word = runtime.word().unwrap_or_default();
                if known.put(runtime) {
                    info!(cluster.name = %name, runtime = word, "Who runs AppWrappers on `{name}`: {word}");
                    signal.notify_one();
                }
            }
            // What was known stands.
            Err(error) => {
                warn!(cluster.name = %name, "Cannot ask `{name}` who runs AppWrappers there: {error}");
            }
        }
    });
}
