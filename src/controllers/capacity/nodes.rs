//! Follows the nodes of one cluster into its table, and stores what changed with the version it was
//! read at.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    clock::Clock,
    domain::{capacity::NodeTable, cluster::QuarantineReason, ids::ClusterName},
    k8s::{
        list_watch::{Codec, Follow, Link, Malformed, Sink, Skipped, Stopped, protobuf},
        worker::Worker,
    },
    store::{NodeChange, Position, Store, StoreError},
    telemetry::{Metrics, RestartReason},
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
        let mut hasher = DefaultHasher::new();
        label_keys.hash(&mut hasher);
        format!("{:?}", settings.filter).hash(&mut hasher);
        Self { cluster, store, labels_of_interest: format!("{:016x}", hasher.finish()) }
    }

    fn position(&self, version: u64) -> Position {
        Position {
            kind: KIND.to_owned(),
            resource_version: version.to_string(),
            labels_of_interest: self.labels_of_interest.clone(),
        }
    }

    /// Stores batches as they come; those that wait meanwhile go as one.
    async fn keep(self, mut batches: mpsc::UnboundedReceiver<Batch>) -> Result<(), StoreError> {
        while let Some(mut batch) = batches.recv().await {
            while let Ok(later) = batches.try_recv() {
                batch.changes.extend(later.changes);
                batch.version = later.version;
            }
            let position = self.position(batch.version);
            self.store.commit_nodes(&self.cluster, &batch.changes, Some(&position)).await?;
        }
        Ok(())
    }
}

/// Changed rows and the version that they, and all before them, are complete to.
struct Batch {
    changes: Vec<NodeChange>,
    version: u64,
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
}

impl Followed {
    pub async fn run(self, stop: CancellationToken) {
        let name = self.worker.name.clone();
        let worker = Arc::clone(&self.worker);
        let cancelled = stop.clone();
        let ended = tokio::select! {
            () = cancelled.cancelled() => return,
            () = worker.cancel.cancelled() => return,
            ended = self.follow(stop) => ended,
        };
        match ended {
            Ok(Stopped::Cancelled) => {}
            Ok(Stopped::VersionsWentBack { stored, found }) => {
                let reason = QuarantineReason::VersionsWentBack { stored, found };
                worker.quarantine.send_replace(Some(reason));
            }
            Err(error) => {
                // Rows and positions stay consistent; the next start reads the nodes anew.
                warn!(cluster.name = %name, "Could not store the nodes of `{name}`: {error}");
            }
        }
    }

    async fn follow(self, stop: CancellationToken) -> Result<Stopped, StoreError> {
        let start = self.start().await?;
        let (batches, stored) = mpsc::unbounded_channel();
        let mut sink = NodeSink {
            nodes: self.nodes,
            signal: self.signal,
            metrics: self.metrics,
            clock: self.clock,
            cluster: self.worker.name.clone(),
            batches,
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
        let keep = self.rows.keep(stored);
        let follow = async {
            let stopped = follow.run(&mut sink, stop).await;
            drop(sink);
            stopped
        };
        let (stopped, kept) = tokio::join!(follow, keep);
        kept.map(|()| stopped)
    }

    /// Loads the stored rows, if they have the labels that are needed; where to resume from.
    async fn start(&self) -> Result<Option<u64>, StoreError> {
        let (rows, positions) = self.rows.store.load_nodes(&self.rows.cluster).await?;
        let position = positions.into_iter().find(|position| position.kind == KIND);
        let mut table = NodeTable::new(self.label_keys.clone(), self.settings.filter.clone());
        rows.iter().filter_map(|(_, row)| decode(row)).for_each(|row| table.restore(&row));
        let now = self.clock.now();
        let mut nodes = lock(&self.nodes);
        let Some(position) = position else {
            nodes.next = Some(table);
            return Ok(None);
        };
        if position.labels_of_interest != self.rows.labels_of_interest {
            // What is known goes on counting until the new list is complete.
            if !nodes.known {
                (nodes.table, nodes.known, nodes.dirty) = (table, true, Some(now));
                table = NodeTable::new(self.label_keys.clone(), self.settings.filter.clone());
            }
            nodes.next = Some(table);
            return Ok(None);
        }
        (nodes.table, nodes.known, nodes.dirty) = (table, true, Some(now));
        drop(nodes);
        self.signal.notify_one();
        Ok(position.resource_version.parse().ok())
    }
}

struct NodeSink {
    nodes: Arc<Mutex<Nodes>>,
    signal: Arc<Notify>,
    metrics: Metrics,
    clock: Clock,
    cluster: ClusterName,
    batches: mpsc::UnboundedSender<Batch>,
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
        if self.changed {
            self.changed = false;
            lock(&self.nodes).dirty.get_or_insert(self.clock.now());
            self.signal.notify_one();
        }
        let due = self.listed || !self.changes.is_empty() || self.period <= self.stored_at.elapsed();
        if due && !self.listing {
            (self.listed, self.stored_at) = (false, Instant::now());
            // Fails only while the task is ending.
            let batch = Batch { changes: std::mem::take(&mut self.changes), version };
            self.batches.send(batch).ok();
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
                self.metrics.watch_restarted(&self.cluster, KIND, RestartReason::Disconnected);
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
