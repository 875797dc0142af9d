//! What is known of a cluster's objects, from one start to the next.

use tracing::warn;

use fedq_k8s::{follow::KnownObjects, worker::Worker};

use super::Member;

impl Member {
    /// What the last start of this very program knew. What cannot be had is listed, as at a first start.
    pub(super) async fn restore_known(&self, worker: &Worker) {
        let Some(build) = &self.context.settings.build else { return };
        let refused = |why: &dyn std::fmt::Display| {
            warn!(cluster.name = %self.name, "All of `{}` is listed: {why}", self.name);
        };
        match self.context.all.store.known_objects(&self.name, build).await {
            Ok(None) => {}
            Ok(Some(objects)) => {
                let objects = serde_json::from_slice::<KnownObjects>(&objects);
                if let Err(error) = objects.and_then(|objects| worker.restore(&objects)) {
                    refused(&error);
                }
            }
            Err(error) => refused(&error),
        }
    }

    /// For the next start, which then need not list what has not changed.
    pub(super) async fn keep_known(&self) {
        /// A cluster with more is listed; it has work of its own without end.
        const LARGEST: usize = 4 << 20;
        let worker = self.context.joined.borrow().get(&self.name).and_then(|joined| joined.worker.clone());
        let (Some(worker), Some(build)) = (worker, &self.context.settings.build) else { return };
        let objects = serde_json::to_vec(&worker.known());
        let objects = objects.expect("objects that were read from JSON have a JSON form");
        if LARGEST < objects.len() {
            return;
        }
        if let Err(error) = self.context.all.store.keep_known_objects(&self.name, build, objects).await
            && !error.is_unknown_cluster()
        {
            warn!(cluster.name = %self.name, "The next start lists all of `{}`: {error}", self.name);
        }
    }
}
