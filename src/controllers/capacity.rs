//! Capacity of every cluster, kept from its nodes: one table and one watch a cluster, a sum when a
//! node or a flavor changed what counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use fedq_domain::{
    capacity::{
        self, Flavor, Headroom, MAX_CAPACITY, MaxCapacity, NodeFacts, NodeRow, NodeTable, ResourceFilter,
        TaintFacts,
    },
    overview::{CapacityView, ClusterCapacity, Moved, NodeCounts},
    resources::Resources,
};
use fedq_k8s::{
    list_watch::Timing,
    read,
    types::cluster_metrics::ClusterMetrics,
    worker::{CLUSTER_METRICS, Joined, JoinedClusters, Worker},
};
use fedq_store::{CapacityRow, Deferred, Position, Store, StoreError, store_deferred};
use fedq_values::{
    ids::{ClusterName, FlavorName},
    quantity::Amount,
};

use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Share, Tasks},
    memo::{Identity, Memo},
};

use self::nodes::{Followed, Restored, Rows};
use self::publish::Publisher;

mod nodes;
mod publish;

#[derive(Clone)]
pub struct Settings {
    pub filter: ResourceFilter,
    pub headroom_of: Arc<dyn Fn(&ClusterName) -> Headroom + Send + Sync>,
    /// No cluster counts for more than this, whatever it reports.
    pub limits_of: Arc<dyn Fn(&ClusterName) -> Resources + Send + Sync>,
    pub timing: Timing,
    /// How often the position of a watch that changes nothing is stored.
    pub position_period: Duration,
    /// Nodes that are not followed for this long are as unknown as a cluster that does not answer.
    pub stale_after: Duration,
    /// Whether ClusterMetrics objects are written for followed clusters.
    pub publish: bool,
}

pub struct CapacityController {
    context: Context,
    settings: Arc<Settings>,
    joined: watch::Receiver<Arc<JoinedClusters>>,
    clusters: BTreeMap<ClusterName, Cluster>,
    /// The hub's, by the changes of its table.
    hub_flavors: Memo<u64, Arc<Flavors>>,
    view: watch::Sender<Arc<CapacityView>>,
    /// Bumped by node events and by changes of flavors.
    signal: Arc<Notify>,
    tasks: Tasks,
    started: Instant,
    publisher: Option<Publisher>,
    /// Sums to be stored. Nobody waits for that: a commit takes longer than all else on the way from a
    /// node to a queue.
    records: mpsc::UnboundedSender<Record>,
}

/// A sum that the store is to remember.
struct Record {
    cluster: ClusterName,
    capacity: Arc<ClusterCapacity>,
}

/// What is kept of one cluster between activations.
struct Cluster {
    nodes: Arc<Mutex<Nodes>>,
    /// The worker whose nodes are followed, and the task's end.
    followed: Option<(Arc<Worker>, CancellationToken)>,
    wanted: Memo<WantedFrom, Wanted>,
    /// Keys of the labels the table keeps.
    label_keys: BTreeSet<String>,
    /// The version of the ClusterMetrics object that the table was filled from.
    metrics_version: u64,
}

type Flavors = BTreeMap<FlavorName, Flavor>;

/// What [`Wanted`] is read from.
#[derive(PartialEq)]
struct WantedFrom {
    hub: Identity<Flavors>,
    /// With the changes of its flavors.
    worker: Option<(Identity<Worker>, u64)>,
    source: &'static str,
}

/// The flavors that a cluster's nodes are added up for.
#[derive(Clone, Debug, PartialEq)]
struct Wanted {
    flavors: Arc<[Flavor]>,
    /// Keys of the labels they go by.
    label_keys: Arc<BTreeSet<String>>,
    /// The cluster has not said yet which of its own it has.
    presumed: bool,
}

/// The nodes of one cluster, shared with the task that follows them.
struct Nodes {
    table: NodeTable,
    /// Filled while a list with more labels runs, then it takes the table's place.
    next: Option<NodeTable>,
    /// Whether the table was complete once: from the store or from a list.
    known: bool,
    /// Whether they were read, and are being followed at this moment.
    current: bool,
    /// Whether they were read since this daemon was started.
    read: bool,
    /// Since when, and why, the nodes are not being followed.
    broken: Option<(Instant, String)>,
    /// Since when what counts differs from the last sum.
    dirty: Option<Timestamp>,
    moved: Moved,
    /// Until somebody follows them.
    restored: Option<Restored>,
    unsaved: nodes::Unsaved,
}

impl Nodes {
    /// `complete`: since when the table has all nodes, if it has.
    fn new(table: NodeTable, complete: Option<Timestamp>) -> Self {
        Self {
            table,
            next: None,
            known: complete.is_some(),
            current: false,
            read: false,
            broken: None,
            dirty: complete,
            moved: Moved::default(),
            restored: None,
            unsaved: nodes::Unsaved::default(),
        }
    }
}

impl CapacityController {
    pub fn new(
        context: Context,
        settings: Settings,
        joined: watch::Receiver<Arc<JoinedClusters>>,
        view: watch::Sender<Arc<CapacityView>>,
        signal: Arc<Notify>,
    ) -> Self {
        Self {
            context,
            settings: Arc::new(settings),
            joined,
            clusters: BTreeMap::new(),
            hub_flavors: Memo::default(),
            view,
            signal,
            tasks: Tasks::new(),
            started: Instant::now(),
            publisher: None,
            // Replaced when it runs, by a channel with somebody at its other end.
            records: mpsc::unbounded_channel().0,
        }
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { store, metrics, stop, .. } = self.context.clone();
        let (records, recorded) = mpsc::unbounded_channel();
        self.records = records;
        if self.settings.publish {
            self.publisher = Some(Publisher::start(self.context.clone(), &mut self.tasks));
        }
        self.tasks.spawn(async { Ok(store_deferred(store, recorded).await?) });
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    async fn count(&mut self, joined: &JoinedClusters) -> anyhow::Result<()> {
        self.clusters.retain(|name, cluster| {
            let stays = joined.contains_key(name);
            if !stays {
                cluster.stop();
            }
            stays
        });
        let table = &self.context.hub.flavors;
        let hub = self.hub_flavors.get(|| table.revision(), |_| Arc::new(read::flavors(table)));
        let hub = Arc::clone(hub);
        // Copied once something of it changes.
        let mut view = Arc::clone(&self.view.borrow());
        let mut changed = false;
        if !view.keys().all(|name| joined.contains_key(name)) {
            Arc::make_mut(&mut view).retain(|name, _| joined.contains_key(name));
            changed = true;
        }
        for (name, entry) in joined {
            let wanted = self.wanted(name, entry, &hub);
            self.keep(name, entry, &wanted.label_keys).await;
            // A cluster that only reports has the hub's flavors. While the hub does not serve them they are unknown, and
            // to count its nodes by none of them would say that it has nothing.
            if entry.source == CLUSTER_METRICS && self.context.hub.flavors.is_absent() {
                continue;
            }
            if let Some(capacity) = self.sum(name, &wanted, view.get(name))? {
                let capacity = Arc::new(capacity);
                Arc::make_mut(&mut view).insert(name.clone(), Arc::clone(&capacity));
                if let (Some(publisher), Some(cluster)) = (&mut self.publisher, self.clusters.get(name))
                    && entry.source != CLUSTER_METRICS
                {
                    publisher.observe(name, &cluster.nodes);
                }
                // What stands in for a cluster's own word is no history. Fails only when storing failed, which ends
                // the controller.
                if !capacity.presumed {
                    self.records.send(Record { cluster: name.clone(), capacity }).ok();
                }
                changed = true;
            }
        }
        if changed {
            self.view.send_replace(view);
        }
        if let Some(publisher) = self.publisher.as_mut().filter(|_| self.context.hub.cluster_metrics.synced())
        {
            let followed =
                |name: &ClusterName| joined.get(name).is_some_and(|entry| entry.source != CLUSTER_METRICS);
            publisher.publish(followed);
        }
        Ok(())
    }

    fn wanted(&mut self, name: &ClusterName, entry: &Joined, hub: &Arc<Flavors>) -> Wanted {
        let known = self.clusters.get_mut(name).map(|cluster| std::mem::take(&mut cluster.wanted));
        let mut memo = known.unwrap_or_default();
        let worker = entry.worker.as_ref();
        let sources = || WantedFrom {
            hub: Identity::of(hub),
            worker: worker.map(|worker| (Identity::of(worker), worker.flavors.revision())),
            source: entry.source,
        };
        let wanted = memo.get(sources, |_| Wanted::of(hub, entry)).clone();
        let filter = &self.settings.filter;
        let fresh = || Cluster::new(BTreeSet::clone(&wanted.label_keys), filter);
        self.clusters.entry(name.clone()).or_insert_with(fresh).wanted = memo;
        wanted
    }

    /// Makes sure that the cluster's nodes are known and followed with the labels its flavors need.
    async fn keep(&mut self, name: &ClusterName, entry: &Joined, label_keys: &BTreeSet<String>) {
        let settings = Arc::clone(&self.settings);
        let Some(cluster) = self.clusters.get_mut(name) else { return };
        if entry.source == CLUSTER_METRICS {
            if let Some(metrics) = self.context.hub.cluster_metrics.get(None, name.as_str()) {
                cluster.fill_from_metrics(&metrics, label_keys, &settings.filter, self.context.clock.now());
            }
            return;
        }
        let more_labels = !label_keys.is_subset(&cluster.label_keys);
        let Some(worker) = entry.worker.as_ref().filter(|worker| worker.flavors.synced()) else {
            // What is followed no more keeps no connection.
            if entry.worker.is_none() {
                cluster.stop();
            }
            let now = self.context.clock.now();
            if let Err(error) = cluster.restore(name, &self.context.store, &settings.filter, now).await {
                warn!(cluster.name = %name, "The stored nodes of `{name}` are read later: {error}");
            }
            return;
        };
        let same = cluster.followed.as_ref().is_some_and(|(followed, _)| Arc::ptr_eq(followed, worker));
        if same && !more_labels {
            return;
        }
        cluster.stop();
        cluster.label_keys.extend(label_keys.iter().cloned());
        let followed = Followed {
            worker: Arc::clone(worker),
            nodes: Arc::clone(&cluster.nodes),
            rows: Rows::new(name.clone(), self.context.store.clone(), &cluster.label_keys, &settings),
            label_keys: cluster.label_keys.clone(),
            settings,
            metrics: self.context.metrics.clone(),
            signal: Arc::clone(&self.signal),
            clock: self.context.clock.clone(),
            stopping: self.context.stop.clone(),
        };
        let stop = self.context.stop.child_token();
        cluster.followed = Some((Arc::clone(worker), stop.clone()));
        debug!(cluster.name = %name, more_labels, "Following the nodes of `{name}`");
        driver::spawn(&mut self.tasks, followed.run(stop));
    }

    /// The cluster's capacity, if it is known and differs from what was published.
    fn sum(
        &self,
        name: &ClusterName,
        Wanted { flavors, presumed, .. }: &Wanted,
        before: Option<&Arc<ClusterCapacity>>,
    ) -> anyhow::Result<Option<ClusterCapacity>> {
        let Some(cluster) = self.clusters.get(name) else { return Ok(None) };
        let mut nodes = lock(&cluster.nodes);
        let same_flavors =
            |known: &Arc<ClusterCapacity>| Arc::ptr_eq(&known.flavors, flavors) || known.flavors == *flavors;
        let flavors_changed = !before.is_some_and(same_flavors);
        let stale = |(since, _): &&(Instant, String)| self.settings.stale_after <= since.elapsed();
        let silent = nodes.broken.as_ref().filter(stale).map(|(_, why)| why.clone());
        let (is_old, was_read) = (!nodes.current, nodes.read);
        let same_link = before.is_some_and(|before| {
            before.silent == silent && before.is_old == is_old && before.was_read == was_read
        });
        // Nodes that are not told apart by what these flavors go by would count for none of them, and flavors that are
        // only presumed tell less than those that the cluster once said it has.
        let was_said = before.is_some_and(|before| !before.presumed);
        if nodes.known && (!nodes.table.covers(flavors) || *presumed && was_said) {
            let kept = before.filter(|_| !same_link);
            return Ok(kept.map(|before| ClusterCapacity {
                silent,
                is_old,
                was_read,
                ..ClusterCapacity::clone(before)
            }));
        }
        let same_word = before.is_some_and(|before| before.presumed == *presumed);
        if !nodes.known || nodes.dirty.is_none() && !flavors_changed && same_link && same_word {
            return Ok(None);
        }
        let observed = nodes.dirty.take().unwrap_or_else(|| self.context.clock.now());
        let headroom = (self.settings.headroom_of)(name);
        let mut capacity = nodes.table.capacity(flavors, &headroom);
        // A worker is not trusted to be larger than its operator says.
        capacity.limit(&(self.settings.limits_of)(name));
        let bad: Vec<String> = nodes
            .table
            .bad_quantities()
            .map(|bad| format!("{} of node {}: `{}`", bad.resource, bad.node, bad.text))
            .collect();
        let wrong = flavors
            .iter()
            .flat_map(|flavor| flavor.max_capacity.wrong.iter().map(|wrong| (&flavor.name, wrong)));
        let bad = bad
            .into_iter()
            .chain(wrong.map(|(name, wrong)| format!("{MAX_CAPACITY} of ResourceFlavor {name}: {wrong}")));
        let bad: Vec<String> = bad.collect();
        let counts =
            NodeCounts { total: u32::try_from(nodes.table.len())?, usable: u32::try_from(capacity.nodes)? };
        let moved = nodes.moved.clone();
        drop(nodes);
        let sum = ClusterCapacity {
            capacity,
            nodes: counts,
            flavors: Arc::clone(flavors),
            headroom: headroom.absolute,
            observed,
            bad,
            silent,
            is_old,
            was_read,
            presumed: *presumed,
            moved,
        };
        Ok((before.is_none_or(|before| !before.says_the_same(&sum))).then_some(sum))
    }
}

impl Controller for CapacityController {
    const NAME: &'static str = "capacity";

    fn pace(&self) -> Pace {
        Pace { period: self.settings.stale_after / 4, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        let joined = Arc::clone(&self.joined.borrow_and_update());
        if self.context.hub.flavors.synced() && self.context.hub.secrets.synced() {
            self.count(&joined).await.map_err(Failure::Lasting)?;
        }
        Ok(Next::AtPeriod)
    }

    fn share(&self) -> Share {
        Share::HALF.after_start(self.started, &self.joined.borrow())
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.joined.changed() => changed?,
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}

impl Deferred for Record {
    type Key = ClusterName;

    fn key(&self) -> Self::Key {
        self.cluster.clone()
    }

    async fn store(&self, store: &Store) -> Result<(), StoreError> {
        let Self { cluster: name, capacity } = self;
        let of_flavor = |(flavor, resources): (&FlavorName, &Resources)| -> Vec<CapacityRow> {
            let row = |(resource, amount): (&_, &Amount)| CapacityRow {
                flavor: flavor.clone(),
                resource: Clone::clone(resource),
                capacity: *amount,
                foreign: Amount::ZERO,
                usable: *amount,
            };
            resources.iter().map(row).collect()
        };
        let rows: Vec<CapacityRow> = capacity.capacity.by_flavor.iter().flat_map(of_flavor).collect();
        let changed = store.record_capacity(name, &rows, capacity.observed).await?;
        if 0 < changed {
            debug!(cluster.name = %name, changed, "Capacity of `{name}` changed");
        }
        if !capacity.bad.is_empty() {
            warn!(cluster.name = %name, "Quantities of `{name}` that cannot be read count as 0: {}", capacity.bad.join(", "));
        }
        Ok(())
    }
}

impl Cluster {
    fn new(label_keys: BTreeSet<String>, filter: &ResourceFilter) -> Self {
        let table = NodeTable::new(label_keys.clone(), filter.clone());
        let nodes = Nodes::new(table, None);
        Self {
            nodes: Arc::new(Mutex::new(nodes)),
            followed: None,
            wanted: Memo::default(),
            label_keys,
            metrics_version: 0,
        }
    }

    fn stop(&mut self) {
        if let Some((_, stop)) = self.followed.take() {
            stop.cancel();
            lock(&self.nodes).current = false;
        }
    }

    /// A cluster that does not answer has the nodes that the store remembers.
    async fn restore(
        &mut self,
        name: &ClusterName,
        store: &Store,
        filter: &ResourceFilter,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if lock(&self.nodes).known || self.followed.is_some() {
            return Ok(());
        }
        // Rows that were trimmed to other labels do not tell these flavors apart.
        let is_of_these = |position: &Position| nodes::is_of(position, &self.label_keys, filter);
        if !store.load_position(name, nodes::KIND).await?.as_ref().is_some_and(is_of_these) {
            return Ok(());
        }
        let (rows, positions) = store.load_nodes(name).await?;
        let Some(position) = positions.into_iter().find(|position| position.kind == nodes::KIND) else {
            return Ok(());
        };
        if !is_of_these(&position) {
            return Ok(());
        }
        let mut table = NodeTable::new(self.label_keys.clone(), filter.clone());
        rows.iter().filter_map(|(_, row)| decode(row)).for_each(|row| table.restore(&row));
        let restored = Some(Restored(position));
        *lock(&self.nodes) = Nodes { restored, ..Nodes::new(table, Some(now)) };
        Ok(())
    }

    fn fill_from_metrics(
        &mut self,
        metrics: &ClusterMetrics,
        label_keys: &BTreeSet<String>,
        filter: &ResourceFilter,
        now: Timestamp,
    ) {
        let version = metrics.metadata.version();
        if version == self.metrics_version && label_keys.is_subset(&self.label_keys) {
            return;
        }
        (self.metrics_version, self.label_keys) = (version, label_keys.clone());
        let mut table = NodeTable::new(self.label_keys.clone(), filter.clone());
        for node in &metrics.status.nodes {
            let labels: Vec<(&str, &str)> =
                node.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let allocatable: Vec<(&str, &str)> = node
                .allocatable_resources
                .iter()
                .map(|(resource, quantity)| (resource.as_str(), quantity.0.as_str()))
                .collect();
            let taints: Vec<TaintFacts<'_>> = node
                .taints
                .iter()
                .map(|taint| TaintFacts { key: &taint.key, value: &taint.value, effect: &taint.effect })
                .collect();
            // ClusterMetrics has no conditions: a node that is not tainted counts as Ready.
            let not_ready = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
            table.set(&NodeFacts {
                name: &node.name,
                labels: &labels,
                taints: &taints,
                allocatable: &allocatable,
                unschedulable: node.unschedulable,
                ready: !taints.iter().any(|taint| not_ready.contains(&taint.key)),
                deleting: false,
            });
        }
        *lock(&self.nodes) = Nodes { current: true, read: true, ..Nodes::new(table, Some(now)) };
    }
}

impl Wanted {
    /// The worker's own flavors decide; the hub's stand in for those it does not have yet.
    fn of(hub: &Flavors, entry: &Joined) -> Self {
        let said = entry.worker.as_ref().is_some_and(|worker| worker.flavors.synced());
        let presumed = !said && entry.source != CLUSTER_METRICS;
        let mut flavors = hub.clone();
        for (name, mut flavor) in entry.worker.iter().flat_map(|worker| read::flavors(&worker.flavors)) {
            if let Some(hub) = hub.get(&name).filter(|_| flavor.max_capacity == MaxCapacity::default()) {
                // Workers have the flavors that fedq makes of the hub's, without annotations.
                flavor.max_capacity.clone_from(&hub.max_capacity);
            }
            flavors.insert(name, flavor);
        }
        let label_keys = flavors.values().flat_map(|flavor| flavor.node_labels.keys().cloned()).collect();
        let mut flavors: Vec<Flavor> = flavors.into_values().collect();
        capacity::bound(&mut flavors);
        Self { flavors: flavors.into(), label_keys: Arc::new(label_keys), presumed }
    }
}

fn decode(row: &[u8]) -> Option<NodeRow> {
    // A row that cannot be read is one that the next list brings anew.
    serde_json::from_slice(row).inspect_err(|error| warn!("A stored node cannot be read: {error}")).ok()
}

fn lock(nodes: &Mutex<Nodes>) -> MutexGuard<'_, Nodes> {
    nodes.lock().expect("no code panics while holding this lock")
}

#[cfg(test)]
mod tests;
