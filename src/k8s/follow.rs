//! Keeps tables current: one task a kind, one bump for whoever decides.

use std::sync::Arc;

use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    client::ClusterClient,
    list_watch::{Allowance, Answers, Codec, Follow, Record, Selector, Table, Timing},
};

/// Where to follow, how patiently, and whom to wake.
#[derive(Clone)]
pub struct Following {
    pub client: ClusterClient,
    pub timing: Timing,
    /// Who reads the objects.
    pub changed: Vec<Arc<Notify>>,
    /// Whoever waits until all is known and followed.
    pub linked: Vec<Arc<Notify>>,
    /// As [`Follow::allowance`].
    pub allowance: Allowance,
    /// As [`Follow::answers`].
    pub answers: Arc<Answers>,
}

/// Who reads what is followed.
#[derive(Clone, Default)]
pub struct Wake {
    pub quota: Arc<Notify>,
    pub capacity: Arc<Notify>,
    pub queue: Arc<Notify>,
    pub check: Arc<Notify>,
    pub task: Arc<Notify>,
    /// Where fedq nominates.
    pub dispatch: Option<Arc<Notify>>,
    /// Of workers only.
    pub inventory: Option<Arc<Notify>>,
}

impl Wake {
    pub fn all(&self) -> Vec<Arc<Notify>> {
        let always = [&self.quota, &self.capacity, &self.queue, &self.check, &self.task];
        always.into_iter().chain(&self.dispatch).chain(&self.inventory).map(Arc::clone).collect()
    }

    /// Who reads LocalQueues.
    pub fn of_local_queues(&self) -> impl Iterator<Item = &Arc<Notify>> {
        [&self.queue, &self.task].into_iter().chain(&self.dispatch)
    }
}

impl Following {
    pub fn new(client: ClusterClient, timing: Timing, changed: Vec<Arc<Notify>>) -> Self {
        let (linked, allowance) = (changed.clone(), Allowance::default());
        Self { client, timing, linked, changed, allowance, answers: Arc::default() }
    }

    /// The same, for objects that only these read.
    pub fn read_by<'a>(&self, whom: impl IntoIterator<Item = &'a Arc<Notify>>) -> Self {
        Self { changed: whom.into_iter().map(Arc::clone).collect(), ..self.clone() }
    }
}

/// Follows `path` into `table` until cancelled.
pub fn follow_table<T: Record>(
    following: &Following,
    table: &Table<T>,
    (path, selector, cancel): (String, Selector, CancellationToken),
    tasks: &mut JoinSet<()>,
) {
    let mut follow = Follow::new(following.client.kube(), path, Codec::Json);
    follow.selector = selector;
    follow.timing = following.timing.clone();
    follow.allowance = following.allowance.clone();
    follow.budget = following.client.reading().clone();
    follow.answers = Arc::clone(&following.answers);
    follow.observer = following.client.observer().clone();
    table.wakes(following.changed.clone(), following.linked.clone());
    let table = table.clone();
    tasks.spawn(async move { follow.run_into(&table, cancel).await });
}
