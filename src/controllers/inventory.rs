//! Joined and reported clusters as OCM has clusters: a ManagedCluster for each where OCM does not register them, and scores
//! where no addon writes any. Placements choose from these.
//!
//! What OCM or people made under these names is theirs. A cluster is looked at again when something of it
//! changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use self::render::Rendering;
use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Tasks},
    writer::Writer,
};
use fedq_domain::{
    cluster::Connection,
    inventory::{self, QUOTA_SCORES},
    overview::{CapacityView, ClusterCapacity},
    placement::usage::{Measure, RESOURCE},
    resources::Aliases,
};
use fedq_k8s::{
    follow::TableSet,
    list_watch::State,
    read,
    types::ocm::{AddOnPlacementScore, ManagedCluster},
    worker::{CLUSTER_METRICS, Joined, JoinedClusters, Worker},
    write::{Change, Kind, Target},
};
use fedq_values::ids::ClusterName;

mod render;

const MANAGER: &str = "fedq-inventory";
/// Looked at without a signal this often: validity of scores runs out by itself.
const PERIOD: Duration = Duration::from_secs(30);
/// Many events come together, and nobody waits for scores by the moment.
const SETTLE: Duration = Duration::from_millis(250);
/// The sets that OCM makes on every hub.
const SETS: [&str; 2] = ["default", "global"];

#[derive(Clone)]
pub struct Settings {
    /// Whether ManagedClusters are kept at all.
    pub clusters: bool,
    /// None: no scores are written.
    pub scores: Option<ScoreSettings>,
    pub aliases: Aliases,
}

#[derive(Clone)]
pub struct ScoreSettings {
    pub measures: Vec<Measure>,
    /// Zero: for ever.
    pub valid_for: Duration,
}

pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    pub capacity: watch::Receiver<Arc<CapacityView>>,
}

pub struct InventoryController {
    context: Context,
    settings: Settings,
    inputs: Inputs,
    signal: Arc<Notify>,
    writer: Writer,
    tasks: Tasks,
    clusters: BTreeMap<ClusterName, Decided>,
}

/// What a cluster needs, and what that was decided from.
struct Decided {
    seen: Seen,
    /// When it may need more though nothing changed.
    again_at: Option<Timestamp>,
    changes: Vec<Change>,
}

struct Seen {
    connection: Connection,
    server: Option<String>,
    version: Option<String>,
    worker: Option<(Arc<Worker>, u64)>,
    capacity: Option<Arc<ClusterCapacity>>,
    cluster: Option<Arc<ManagedCluster>>,
    scores: [Option<Arc<AddOnPlacementScore>>; 2],
    has_namespace: bool,
    keeps: Keeps,
}

/// What is to be kept now.
#[derive(Clone, Copy, PartialEq)]
struct Keeps {
    clusters: bool,
    scores: bool,
}

impl InventoryController {
    pub fn new(context: Context, settings: Settings, inputs: Inputs, signal: Arc<Notify>) -> Self {
        let writer = Writer::waking(Arc::clone(&signal));
        Self { context, settings, inputs, signal, writer, tasks: Tasks::new(), clusters: BTreeMap::new() }
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { metrics, stop, .. } = self.context.clone();
        let _stop = self.context.write_to_hub(&self.writer, &mut self.tasks);
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    fn keep(&mut self, joined: &JoinedClusters, capacity: &CapacityView) {
        let now = self.context.clock.now();
        let Some(keeps) = self.keeps() else {
            self.writer.want(Vec::new());
            return;
        };
        self.clusters.retain(|name, _| joined.contains_key(name));
        for (name, entry) in joined {
            let seen = self.see(name, entry, capacity, keeps);
            let known = self.clusters.get(name);
            let due = |decided: &Decided| decided.again_at.is_some_and(|at| at <= now);
            if known.is_some_and(|decided| decided.seen.is(&seen) && !due(decided)) {
                continue;
            }
            let (changes, again_at) = self.decide(name, &seen, now);
            self.clusters.insert(name.clone(), Decided { seen, again_at, changes });
        }
        let mut wanted: Vec<Change> =
            self.clusters.values().flat_map(|decided| decided.changes.iter().cloned()).collect();
        if keeps.clusters {
            wanted.extend(self.sets());
            wanted.extend(self.gone(joined));
        }
        self.writer.want(wanted);
    }

    /// `None` while it is not known whose clusters these are.
    fn keeps(&self) -> Option<Keeps> {
        let followed = |state: State| state == State::Synced { broken: None };
        let registers = self.context.hub.ocm.registers()?;
        if !followed(self.context.hub.ocm.clusters.state()) || !followed(self.context.hub.namespaces.state())
        {
            return None;
        }
        let sets = followed(self.context.hub.ocm.sets.state());
        let scores = followed(self.context.hub.ocm.scores.state());
        Some(Keeps {
            clusters: self.settings.clusters && sets && !registers,
            scores: self.settings.scores.is_some() && scores,
        })
    }

    fn see(&self, name: &ClusterName, entry: &Joined, capacity: &CapacityView, keeps: Keeps) -> Seen {
        let ocm = &self.context.hub.ocm;
        let worker = entry.worker.as_ref().filter(|worker| worker.queues.synced());
        Seen {
            connection: entry.connection.clone(),
            server: entry.server.clone(),
            version: entry.kubernetes_version.clone(),
            worker: worker.map(|worker| (Arc::clone(worker), worker.queues.revision())),
            capacity: capacity.get(name).cloned(),
            cluster: ocm.clusters.get(None, name.as_str()),
            scores: [RESOURCE, QUOTA_SCORES].map(|resource| ocm.scores.get(Some(name.as_str()), resource)),
            has_namespace: self.context.hub.namespaces.get(None, name.as_str()).is_some(),
            // Scores rest on what queues there hold.
            keeps: Keeps { scores: keeps.scores && entry.source != CLUSTER_METRICS, ..keeps },
        }
    }

    fn decide(&self, name: &ClusterName, seen: &Seen, now: Timestamp) -> (Vec<Change>, Option<Timestamp>) {
        let rendering = Rendering { hub_id: &self.context.hub_id, name, now };
        let mut changes = Vec::new();
        if seen.keeps.clusters {
            changes.extend(rendering.cluster(seen));
        }
        let mut again_at = None;
        if let Some(settings) =
            self.settings.scores.as_ref().filter(|_| seen.keeps.scores && seen.cluster.is_some())
        {
            if seen.has_namespace {
                let (wanted, at) = self.scores(settings, &rendering, seen);
                changes.extend(wanted);
                again_at = at;
            } else if seen.keeps.clusters {
                changes.push(rendering.namespace());
            }
        }
        (changes, again_at)
    }

    fn scores(
        &self,
        settings: &ScoreSettings,
        rendering: &Rendering<'_>,
        seen: &Seen,
    ) -> (Vec<Change>, Option<Timestamp>) {
        // Of a cluster that does not answer, what was said last stands until it runs out.
        let (Some((worker, _)), Some(capacity), Connection::Ready) =
            (&seen.worker, &seen.capacity, &seen.connection)
        else {
            return (Vec::new(), None);
        };
        let queues = read::queue_quotas(&worker.queues);
        let reserved = read::reserved(&worker.queues);
        let of_cluster = inventory::usage_scores(
            &settings.measures,
            &capacity.capacity.total,
            &capacity.capacity.largest,
            &reserved,
        );
        let of_queues = inventory::quota_scores(&queues, &self.settings.aliases);
        let mut changes = Vec::new();
        let mut again_at = None;
        for (resource, scores, found) in
            [(RESOURCE, of_cluster, &seen.scores[0]), (QUOTA_SCORES, of_queues, &seen.scores[1])]
        {
            let (change, at) = rendering.scores(resource, &scores, found.as_deref(), settings.valid_for);
            changes.extend(change);
            again_at = again_at.into_iter().chain(at).min();
        }
        (changes, again_at)
    }

    /// The sets that every hub has, once.
    fn sets(&self) -> Vec<Change> {
        let missing = SETS.iter().filter(|name| self.context.hub.ocm.sets.get(None, name).is_none());
        missing.map(|name| render::set(&self.context.hub_id, name)).collect()
    }

    /// ManagedClusters that fedq made of clusters that have left.
    fn gone(&self, joined: &JoinedClusters) -> Vec<Change> {
        if !self.context.hub.is_current() || !self.context.hub.lists(joined) {
            return Vec::new();
        }
        let left = |name: &str| ClusterName::new(name).is_ok_and(|name| !joined.contains_key(&name));
        let ours = self.context.hub.ocm.clusters.all();
        let ours = ours.iter().filter(|cluster| cluster.metadata.is_labelled(&self.context.hub_id));
        ours.filter(|cluster| left(&cluster.metadata.name) && cluster.metadata.deletion_timestamp.is_none())
            .map(|cluster| {
                let target = Target::cluster_scoped(Kind::ManagedCluster, &cluster.metadata.name);
                render::delete(target, &cluster.metadata)
            })
            .collect()
    }
}

impl Seen {
    /// Whether a decision from `other` would be the same.
    fn is(&self, other: &Self) -> bool {
        let worker =
            |seen: &Self| seen.worker.as_ref().map(|(worker, revision)| (Arc::as_ptr(worker), *revision));
        self.connection == other.connection
            && self.server == other.server
            && self.version == other.version
            && worker(self) == worker(other)
            && same(self.capacity.as_ref(), other.capacity.as_ref())
            && same(self.cluster.as_ref(), other.cluster.as_ref())
            && self.scores.iter().zip(&other.scores).all(|(one, two)| same(one.as_ref(), two.as_ref()))
            && self.has_namespace == other.has_namespace
            && self.keeps == other.keeps
    }
}

fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    one.map(Arc::as_ptr) == other.map(Arc::as_ptr)
}

impl Controller for InventoryController {
    const NAME: &'static str = "inventory";

    fn pace(&self) -> Pace {
        Pace { period: PERIOD, settle: SETTLE, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        let joined = Arc::clone(&self.inputs.joined.borrow_and_update());
        let capacity = Arc::clone(&self.inputs.capacity.borrow_and_update());
        self.keep(&joined, &capacity);
        Ok(Next::AtPeriod)
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.inputs.joined.changed() => changed?,
            changed = self.inputs.capacity.changed() => changed?,
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}
