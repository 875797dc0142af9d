//! Keeps tables current: one task a kind, one bump for whoever decides.

use std::sync::Arc;

use tokio::{sync::Notify, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    client::ClusterClient,
    list_watch::{Codec, Follow, Record, Selector, Table, Timing},
};

/// Where to follow, how patiently, and whom to wake on a change.
#[derive(Clone)]
pub struct Following {
    pub client: ClusterClient,
    pub timing: Timing,
    pub changed: Vec<Arc<Notify>>,
    /// As [`Follow::answers`].
    pub answers: Arc<Notify>,
}

impl Following {
    pub fn new(client: ClusterClient, timing: Timing, changed: Vec<Arc<Notify>>) -> Self {
        Self { client, timing, changed, answers: Arc::default() }
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
    follow.budget = following.client.reading().clone();
    follow.answers = Arc::clone(&following.answers);
    follow.observer = following.client.observer().clone();
    table.wakes(following.changed.clone());
    let table = table.clone();
    tasks.spawn(async move { follow.run_into(&table, cancel).await });
}
