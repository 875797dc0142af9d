//! Follows the nodes of one cluster into its table, and stores what changed with the version it was
//! read at.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    clock::Clock,
    domain::{
        capacity::{NodeTable, ResourceFilter},
        cluster::QuarantineReason,
        ids::ClusterName,
    },
    k8s::{
        list_watch::{Codec, Follow, Link, Malformed, Sink, Skipped, Stopped, protobuf},
        worker::Worker,
    },
    store::{NodeChange, Patience, Position, Store, StoreError},
    telemetry::Metrics,
};

use super::{Nodes, Settings, decode, lock};

const KIND: &str = "nodes";

/// The stored rows of one cluster's nodes.
pub(super) struct Rows {
    cluster: ClusterName,
    store: Store,
    /// Rows trimmed to other labels, or of other resources, cannot be resumed from.
    labels_of_interest: String,
}

impl Rows {
    pub fn new(
        cluster: ClusterName,
        store: Store,
        label_keys: &BTreeSet<String>,
        settings: &Settings,
    ) -> Self {
        Self { cluster, store, labels_of_interest: labels_of_interest(label_keys, &settings.filter) }
    }

    fn position(&self, version: u64) -> Position {
        Position {
            kind: KIND.to_owned(),
            resource_version: version.to_string(),
            labels_of_interest: self.labels_of_interest.clone(),
        }
    }

    /// Stores what is unsaved as it comes; what gathers meanwhile goes as one. A database that is full or busy
    /// is tried until it takes it: rows and version stay together in memory as they do on the disk.
    async fn keep(&self, nodes: &Mutex<Nodes>, wake: &Notify) -> StoreError {
        let mut patience = Patience::default();
        loop {
            let Some((changes, version)) = lock(nodes).unsaved.send() else {
                wake.notified().await;
                continue;
            };
            let position = self.position(version);
            // Boxed, as a cluster's nodes are followed all the time and stored now and then.
            let stored = self.store.commit_nodes(&self.cluster, &changes, Some(&position));
            let outcome = Box::pin(stored).await;
            match outcome {
                Ok(()) => {
                    lock(nodes).unsaved.sending = None;
                    patience.reset();
                }
                Err(error) => {
                    lock(nodes).unsaved.take_back();
                    if !error.is_transient() {
                        return error;
                    }
                    patience.pause().await;
                }
            }
        }
    }

    /// Heartbeats since the stored version would come again at the next start: it is to begin where this one
    /// ends.
    async fn keep_last(&self, nodes: &Mutex<Nodes>) {
        let Some((changes, version)) = lock(nodes).unsaved.send_last() else { return };
        let position = self.position(version);
        if let Err(error) = self.store.commit_nodes(&self.cluster, &changes, Some(&position)).await
            && !error.is_unknown_cluster()
        {
            warn!(cluster.name = %self.cluster, "The next start reads more of the nodes of `{}` again: {error}", self.cluster);
        }
    }
}

fn labels_of_interest(label_keys: &BTreeSet<String>, filter: &ResourceFilter) -> String {
    let mut hasher = DefaultHasher::new();
    label_keys.hash(&mut hasher);
    format!("{filter:?}").hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// That a table is the store's rows and nothing else: what they stood at, and the labels that the table keeps of them.
pub(super) struct Restored {
    position: Position,
    labels_of_interest: String,
}

impl Restored {
    pub fn of(
        positions: Vec<Position>,
        label_keys: &BTreeSet<String>,
        filter: &ResourceFilter,
    ) -> Option<Self> {
        let position = positions.into_iter().find(|position| position.kind == KIND)?;
        Some(Self { position, labels_of_interest: labels_of_interest(label_keys, filter) })
    }
}

/// What the store does not have yet: changed rows, and the version that they and all before them are
/// complete to. Kept with the table, so that a new connection begins where the last one ended.
#[derive(Default)]
pub(super) struct Unsaved {
    /// As of its rows.
    labels_of_interest: String,
    changes: Vec<NodeChange>,
    version: Option<u64>,
    /// How far nodes were followed, though nothing that counts may have changed since what is stored.
    reached: Option<u64>,
    /// On its way to the disk. It may be there already: to store it again changes nothing.
    sending: Option<(Arc<[NodeChange]>, u64)>,
}

impl Unsaved {
    fn add(&mut self, changes: &mut Vec<NodeChange>, version: u64) {
        self.changes.append(changes);
        self.version = Some(version);
    }

    /// Everything, for the last time.
    fn send_last(&mut self) -> Option<(Arc<[NodeChange]>, u64)> {
        self.take_back();
        self.version = self.reached.max(self.version);
        self.send()
    }

    fn send(&mut self) -> Option<(Arc<[NodeChange]>, u64)> {
        let version = self.version.take()?;
        let sending = (Arc::from(std::mem::take(&mut self.changes)), version);
        self.sending.insert(sending).clone().into()
    }

    /// What was on its way goes before what came since; of each node only the last row is kept, so that a
    /// long wait takes no more memory than the nodes do.
    fn take_back(&mut self) {
        let Some((sent, version)) = self.sending.take() else { return };
        self.version.get_or_insert(version);
        let later = std::mem::take(&mut self.changes);
        let mut last = BTreeMap::new();
        for change in sent.iter().cloned().chain(later) {
            last.insert(change.name().to_owned(), change);
        }
        self.changes = last.into_values().collect();
    }

    /// Brings rows of the store up to what was followed since; the version they then stand at.
    fn apply_to(&self, table: &mut NodeTable) -> Option<u64> {
        for change in &self.changes {
            match change {
                NodeChange::Put { row, .. } => {
                    if let Some(row) = decode(row) {
                        table.restore(&row);
                    }
                }
                NodeChange::Remove { name } => {
                    table.remove(name);
                }
            }
        }
        self.version
    }
}

pub(super) struct Followed {
    pub worker: Arc<Worker>,
    pub nodes: Arc<Mutex<Nodes>>,
    pub rows: Rows,
    pub label_keys: BTreeSet<String>,
    pub settings: Arc<Settings>,
    pub metrics: Metrics,
    pub signal: Arc<Notify>,
    pub clock: Clock,
    /// Of the daemon.
    pub stopping: CancellationToken,
}

impl Followed {
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.worker.cancel.cancelled() => {}
            () = self.follow_on() => {}
        }
        if self.stopping.is_cancelled() {
            self.rows.keep_last(&self.nodes).await;
        }
    }

    /// Until the daemon stops or the server proves to be another one. When the store fails, it begins anew from
    /// what the store then has.
    async fn follow_on(&self) {
        let name = &self.worker.name;
        let mut patience = Patience::default();
        loop {
            match self.follow().await {
                Ok(Stopped::Cancelled) | Err(StoreError::Closed { .. }) => return,
                Ok(Stopped::VersionsWentBack { stored, found }) => {
                    let reason = QuarantineReason::VersionsWentBack { stored, found };
                    self.worker.quarantine.send_replace(Some(reason));
                    return;
                }
                // Its row is gone, and so are its nodes' rows: it is leaving, or was not put there yet.
                Err(error) if error.is_unknown_cluster() => debug!(cluster.name = %name, "{error}"),
                Err(error) => {
                    let why = error.to_string();
                    if lock(&self.nodes).broken.replace((Instant::now(), why)).is_none() {
                        warn!(cluster.name = %name, "The nodes of `{name}` are not followed until the database answers: {error}");
                    }
                }
            }
            patience.pause().await;
        }
    }

    async fn follow(&self) -> Result<Stopped, StoreError> {
        let start = Box::pin(self.start()).await?;
        let wake = Arc::new(Notify::new());
        let mut sink = NodeSink {
            nodes: Arc::clone(&self.nodes),
            signal: Arc::clone(&self.signal),
            metrics: self.metrics.clone(),
            clock: self.clock.clone(),
            cluster: self.worker.name.clone(),
            unsaved: Arc::clone(&wake),
            changes: Vec::new(),
            changed: false,
            listing: false,
            listed: false,
            period: self.settings.position_period,
            stored_at: Instant::now(),
        };
        let mut follow = Follow::new(self.worker.client.kube(), "/api/v1/nodes", Codec::Protobuf);
        follow.start = start;
        follow.timing = self.settings.timing.clone();
        follow.budget = self.worker.client.reading().clone();
        follow.answers = Arc::clone(&self.worker.answers);
        follow.observer = self.worker.client.observer().clone();
        tokio::select! {
            // Whoever runs this ends it by dropping it.
            stopped = follow.run(&mut sink, CancellationToken::new()) => Ok(stopped),
            error = self.rows.keep(&self.nodes, &wake) => Err(error),
        }
    }

    /// Loads the stored rows, if they have the labels that are needed; where to resume from.
    async fn start(&self) -> Result<Option<u64>, StoreError> {
        if let Some(version) = self.go_on().await? {
            return Ok(Some(version));
        }
        let (rows, positions) = self.rows.store.load_nodes(&self.rows.cluster).await?;
        let position = positions.into_iter().find(|position| position.kind == KIND);
        let restored = || {
            let mut table = NodeTable::new(self.label_keys.clone(), self.settings.filter.clone());
            rows.iter().filter_map(|(_, row)| decode(row)).for_each(|row| table.restore(&row));
            table
        };
        let mut table = restored();
        let labels = &self.rows.labels_of_interest;
        let now = self.clock.now();
        let mut nodes = lock(&self.nodes);
        nodes.unsaved.take_back();
        let had_position = position.is_some();
        let resumable = position.as_ref().is_some_and(|position| position.labels_of_interest == *labels);
        if !resumable || nodes.unsaved.labels_of_interest != *labels {
            // Rows of other labels, or of a cluster whose rows were let go of.
            nodes.unsaved = Unsaved { labels_of_interest: labels.clone(), ..Unsaved::default() };
        }
        let Some(position) = position.filter(|_| resumable) else {
            // What is known goes on counting until the new list is complete. The list is compared with the rows
            // of the store, so that those of nodes that are gone meanwhile go as well.
            if had_position && !nodes.known {
                (nodes.table, nodes.known, nodes.dirty) = (restored(), true, Some(now));
            }
            nodes.next = Some(table);
            return Ok(None);
        };
        let unsaved = nodes.unsaved.apply_to(&mut table);
        (nodes.table, nodes.next, nodes.known, nodes.dirty) = (table, None, true, Some(now));
        drop(nodes);
        self.signal.notify_one();
        Ok(unsaved.or_else(|| position.resource_version.parse().ok()))
    }
}

impl Followed {
    /// Where to resume from, if the table is what the store has: what was read while nobody answered is not read again.
    async fn go_on(&self) -> Result<Option<u64>, StoreError> {
        let Some(restored) = lock(&self.nodes).restored.take() else { return Ok(None) };
        // A cluster that left and came back meanwhile has no rows any more.
        let stored = self.rows.store.load_position(&self.rows.cluster, KIND).await?;
        let labels = &self.rows.labels_of_interest;
        let same = stored.as_ref() == Some(&restored.position)
            && restored.labels_of_interest == *labels
            && restored.position.labels_of_interest == *labels;
        let Ok(version) = restored.position.resource_version.parse() else { return Ok(None) };
        if !same {
            return Ok(None);
        }
        lock(&self.nodes).unsaved = Unsaved { labels_of_interest: labels.clone(), ..Unsaved::default() };
        Ok(Some(version))
    }
}

struct NodeSink {
    nodes: Arc<Mutex<Nodes>>,
    signal: Arc<Notify>,
    metrics: Metrics,
    clock: Clock,
    cluster: ClusterName,
    /// Told that there is something to store.
    unsaved: Arc<Notify>,
    changes: Vec<NodeChange>,
    /// Since the last version.
    changed: bool,
    listing: bool,
    /// A list ended, so that the position must be stored whatever the rows were.
    listed: bool,
    period: Duration,
    stored_at: Instant,
}

impl Sink for NodeSink {
    fn begin(&mut self) {
        // What a list that broke off has changed is in the table already, so the next list will not name it
        // again: those changes stay, to be stored with the list that ends.
        self.listing = true;
        lock(&self.nodes).being_filled().begin_list();
    }

    fn set(&mut self, object: &[u8]) -> Result<(), Malformed> {
        let node = protobuf::Node::parse(object)?;
        let facts = node.facts();
        let mut nodes = lock(&self.nodes);
        let table = nodes.being_filled();
        let changed = table.set(&facts);
        if changed && let Some(row) = table.row(facts.name) {
            let name = row.name.clone();
            let row = serde_json::to_vec(&row).expect("a row is plain data, which always has a JSON form");
            self.changes.push(NodeChange::Put { name, row });
        }
        self.changed |= changed;
        drop(nodes);
        self.metrics.node_event(&self.cluster, changed);
        Ok(())
    }

    fn gone(&mut self, object: &[u8]) -> Result<(), Malformed> {
        let name = protobuf::name(object)?.to_owned();
        let changed = lock(&self.nodes).being_filled().remove(&name);
        if changed {
            self.changes.push(NodeChange::Remove { name });
        }
        self.changed |= changed;
        self.metrics.node_event(&self.cluster, changed);
        Ok(())
    }

    fn end(&mut self) {
        let mut nodes = lock(&self.nodes);
        let gone = nodes.being_filled().end_list();
        self.changes.extend(gone.into_iter().map(|name| NodeChange::Remove { name }));
        if let Some(next) = nodes.next.take() {
            nodes.table = next;
        }
        nodes.known = true;
        (self.listing, self.listed, self.changed) = (false, true, true);
    }

    fn at(&mut self, version: u64) {
        let mut nodes = lock(&self.nodes);
        if self.changed {
            self.changed = false;
            nodes.dirty.get_or_insert(self.clock.now());
            self.signal.notify_one();
        }
        nodes.unsaved.reached = Some(version);
        let due = self.listed || !self.changes.is_empty() || self.period <= self.stored_at.elapsed();
        if due && !self.listing {
            (self.listed, self.stored_at) = (false, Instant::now());
            nodes.unsaved.add(&mut self.changes, version);
            self.unsaved.notify_one();
        }
    }

    fn skipped(&mut self, skipped: Skipped) {
        let name = skipped.name.as_deref().unwrap_or("?");
        warn!(cluster.name = %self.cluster, node = name, "A node of `{}` cannot be read and is passed over: {}", self.cluster, skipped.reason);
    }

    fn link(&mut self, link: Link<'_>) {
        match link {
            Link::Broken { error, retry_in, .. } => {
                lock(&self.nodes).broken.get_or_insert_with(|| (Instant::now(), error.to_string()));
                warn!(cluster.name = %self.cluster, "The watch of nodes of `{}` broke, next try in {retry_in:.1?}: {error}", self.cluster);
            }
            Link::Synced => lock(&self.nodes).broken = None,
            Link::Alive | Link::Absent => {}
        }
    }
}

impl Nodes {
    fn being_filled(&mut self) -> &mut NodeTable {
        self.next.as_mut().unwrap_or(&mut self.table)
    }
}

#[cfg(test)]
mod tests;
