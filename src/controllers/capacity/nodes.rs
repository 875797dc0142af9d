//! Follows the nodes of one cluster into its table, and stores what changed with the version it was
//! read at.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use fedq_base::{clock::Clock, telemetry::Metrics};
use fedq_domain::{
    capacity::{NodeTable, ResourceFilter},
    cluster::QuarantineReason,
};
use fedq_k8s::{
    list_watch::{Charge, Codec, Follow, Link, Malformed, Sink, Skipped, Stopped, protobuf},
    worker::Worker,
};
use fedq_store::{NodeChange, Patience, Position, Store, StoreError};
use fedq_values::ids::ClusterName;

use super::{Nodes, Settings, decode, lock};

pub(super) const KIND: &str = "nodes";

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

    /// Stores what is unsaved as it comes; what gathers meanwhile goes as one. A database that is full or busy
    /// is tried until it takes it: rows and version stay together in memory as they do on the disk.
    async fn keep(&self, nodes: &Arc<Mutex<Nodes>>, wake: &Notify) -> StoreError {
        let mut patience = Patience::default();
        loop {
            if lock(nodes).unsaved.version.is_none() {
                wake.notified().await;
                continue;
            }
            // Boxed, as a cluster's nodes are followed all the time and stored now and then.
            match Box::pin(self.send(nodes)).await {
                Ok(()) => patience.reset(),
                Err(error) if !error.is_transient() => return error,
                Err(_) => patience.pause().await,
            }
        }
    }

    /// Heartbeats since the stored version would come again at the next start: it is to begin where this one
    /// ends.
    async fn keep_last(&self, nodes: &Arc<Mutex<Nodes>>) {
        if !lock(nodes).unsaved.gather_last() {
            return;
        }
        if let Err(error) = self.send(nodes).await
            && !error.is_unknown_cluster()
        {
            warn!(cluster.name = %self.cluster, "The next start reads more of the nodes of `{}` again: {error}", self.cluster);
        }
    }

    async fn send(&self, nodes: &Arc<Mutex<Nodes>>) -> Result<(), StoreError> {
        let taken = Arc::clone(nodes);
        let outcome = self.store.commit_nodes(&self.cluster, move || lock(&taken).send()).await;
        let mut nodes = lock(nodes);
        match outcome {
            Ok(()) => nodes.unsaved.sending = None,
            Err(_) => nodes.unsaved.take_back(),
        }
        outcome
    }
}

fn labels_of_interest(label_keys: &BTreeSet<String>, filter: &ResourceFilter) -> String {
    let mut hasher = DefaultHasher::new();
    label_keys.hash(&mut hasher);
    format!("{filter:?}").hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Whether stored rows have the labels and resources that are kept now. Rows that do not, say nothing of what these
/// flavors have: they are no capacity of 0.
pub(super) fn is_of(position: &Position, label_keys: &BTreeSet<String>, filter: &ResourceFilter) -> bool {
    position.labels_of_interest == labels_of_interest(label_keys, filter)
}

/// That a table is the store's rows and nothing else: what they stood at.
pub(super) struct Restored(pub Position);

/// What the store does not have yet: whose rows changed, and the version that they and all before them are
/// complete to. Kept with the table, so that a new connection begins where the last one ended.
#[derive(Default)]
pub(super) struct Unsaved {
    /// As of its rows.
    labels_of_interest: String,
    changed: BTreeSet<Box<str>>,
    version: Option<u64>,
    /// How far nodes were followed, though nothing that counts may have changed since what is stored.
    reached: Option<u64>,
    /// On its way to the disk. It may be there already: to store it again changes nothing.
    sending: Option<(BTreeSet<Box<str>>, u64)>,
}

impl Unsaved {
    fn add(&mut self, changed: &mut Vec<Box<str>>, version: u64) {
        self.changed.extend(std::mem::take(changed));
        self.version = Some(version);
    }

    /// Nodes whose rows are not stored yet.
    fn waiting(&self) -> usize {
        self.changed.len() + self.sending.as_ref().map_or(0, |(names, _)| names.len())
    }

    /// Everything, for the last time. Whether there is anything.
    fn gather_last(&mut self) -> bool {
        self.take_back();
        self.version = self.reached.max(self.version);
        self.version.is_some()
    }

    /// What was on its way is stored again with what came since.
    fn take_back(&mut self) {
        let Some((sent, version)) = self.sending.take() else { return };
        self.version.get_or_insert(version);
        self.changed.extend(sent);
    }

    /// Brings rows of the store up to what was followed since, which `from` has; the version they then stand at.
    fn apply_to(&self, table: &mut NodeTable, from: &NodeTable) -> Option<u64> {
        for name in &self.changed {
            match from.row(name) {
                Some(row) => table.restore(&row),
                None => _ = table.remove(name),
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
                    let mut nodes = lock(&self.nodes);
                    nodes.current = false;
                    let before = nodes.broken.replace((Instant::now(), why));
                    drop(nodes);
                    if before.is_none() {
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
            charge: Charge::of(&self.worker.allowance),
        };
        let mut follow = Follow::new(self.worker.client.kube(), "/api/v1/nodes", Codec::Protobuf);
        follow.start = start;
        follow.timing = self.settings.timing.clone();
        follow.allowance = self.worker.allowance.clone();
        follow.budget = self.worker.client.reading().clone();
        follow.answers = Arc::clone(self.worker.client.answers());
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
        let mut table = NodeTable::new(self.label_keys.clone(), self.settings.filter.clone());
        rows.iter().filter_map(|(_, row)| decode(row)).for_each(|row| table.restore(&row));
        let labels = &self.rows.labels_of_interest;
        let now = self.clock.now();
        let mut nodes = lock(&self.nodes);
        nodes.unsaved.take_back();
        let position = position.filter(|position| position.labels_of_interest == *labels);
        if position.is_none() || nodes.unsaved.labels_of_interest != *labels {
            // Rows of other labels, or of a cluster whose rows were let go of.
            nodes.unsaved = Unsaved { labels_of_interest: labels.clone(), ..Unsaved::default() };
        }
        let Some(position) = position else {
            // What is known goes on counting until the new list is complete, and what is not known yet stays unknown:
            // these rows do not tell the flavors apart. The list is compared with them, so that those of nodes that are
            // gone meanwhile go as well.
            nodes.next = Some(table);
            return Ok(None);
        };
        let unsaved = nodes.unsaved.apply_to(&mut table, &nodes.table);
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
        let same = stored.as_ref() == Some(&restored.0) && restored.0.labels_of_interest == *labels;
        let Ok(version) = restored.0.resource_version.parse() else { return Ok(None) };
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
    /// Nodes whose rows changed since what was handed over to be stored.
    changes: Vec<Box<str>>,
    /// Since the last version.
    changed: bool,
    listing: bool,
    /// A list ended, so that the position must be stored whatever the rows were.
    listed: bool,
    period: Duration,
    stored_at: Instant,
    charge: Charge,
}

impl NodeSink {
    /// What waits to be stored counts as well: it may be stored more slowly than a cluster sends it.
    fn count(&mut self) {
        if !self.charge.counts() {
            return;
        }
        let nodes = lock(&self.nodes);
        let tables = [Some(&nodes.table), nodes.next.as_ref()];
        let (objects, bytes) = tables
            .into_iter()
            .flatten()
            .fold((0, 0), |(objects, bytes), table| (objects + table.len(), bytes + table.bytes()));
        let waiting = nodes.unsaved.waiting();
        drop(nodes);
        self.charge.keep(objects + waiting, bytes);
    }
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
        let changed = lock(&self.nodes).being_filled().set(&facts);
        if changed {
            self.changes.push(facts.name.into());
        }
        self.changed |= changed;
        self.metrics.node_event(&self.cluster, changed);
        self.count();
        Ok(())
    }

    fn gone(&mut self, object: &[u8]) -> Result<(), Malformed> {
        let name = protobuf::name(object)?;
        let changed = lock(&self.nodes).being_filled().remove(name);
        if changed {
            self.changes.push(name.into());
        }
        self.changed |= changed;
        self.metrics.node_event(&self.cluster, changed);
        self.count();
        Ok(())
    }

    fn end(&mut self) {
        let mut nodes = lock(&self.nodes);
        let gone = nodes.being_filled().end_list();
        self.changes.extend(gone.into_iter().map(String::into_boxed_str));
        if let Some(next) = nodes.next.take() {
            nodes.table = next;
        }
        (nodes.known, nodes.current, nodes.read) = (true, true, true);
        drop(nodes);
        (self.listing, self.listed, self.changed) = (false, true, true);
        self.count();
    }

    fn at(&mut self, version: u64) {
        let mut nodes = lock(&self.nodes);
        if self.changed {
            self.changed = false;
            // In the middle of a list it is not known yet which differ.
            if !self.listing {
                nodes.moved.note(&self.changes);
            }
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
                let mut nodes = lock(&self.nodes);
                nodes.current = false;
                nodes.broken.get_or_insert_with(|| (Instant::now(), error.to_string()));
                drop(nodes);
                self.signal.notify_one();
                warn!(cluster.name = %self.cluster, "The watch of nodes of `{}` broke, next try in {retry_in:.1?}: {error}", self.cluster);
            }
            Link::Synced => {
                let mut nodes = lock(&self.nodes);
                nodes.broken = None;
                nodes.read = true;
                if !std::mem::replace(&mut nodes.current, true) {
                    self.signal.notify_one();
                }
            }
            Link::Alive | Link::Absent => {}
        }
    }
}

impl Nodes {
    /// What is unsaved, with rows as they are now: later than its version, perhaps, which then brings them again.
    fn send(&mut self) -> (Vec<NodeChange>, Option<Position>) {
        // Of a sending whose outcome nobody waited for: its connection ended.
        self.unsaved.take_back();
        let Some(version) = self.unsaved.version.take() else { return (Vec::new(), None) };
        let changed = std::mem::take(&mut self.unsaved.changed);
        let change = |name: &str| match self.table.row(name) {
            Some(row) => {
                let row =
                    serde_json::to_vec(&row).expect("a row is plain data, which always has a JSON form");
                NodeChange::Put { name: name.to_owned(), row }
            }
            None => NodeChange::Remove { name: name.to_owned() },
        };
        let changes = changed.iter().map(|name| change(name)).collect();
        self.unsaved.sending = Some((changed, version));
        let position = Position {
            kind: KIND.to_owned(),
            resource_version: version.to_string(),
            labels_of_interest: self.unsaved.labels_of_interest.clone(),
        };
        (changes, Some(position))
    }

    fn being_filled(&mut self) -> &mut NodeTable {
        self.next.as_mut().unwrap_or(&mut self.table)
    }
}

#[cfg(test)]
mod tests;
