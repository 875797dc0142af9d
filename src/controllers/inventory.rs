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
    memo::{Identity, Memo},
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
    clusters: BTreeMap<ClusterName, Memo<Sources, Needs, Timestamp>>,
}

/// What a cluster needs.
#[derive(Debug, Default, PartialEq)]
struct Needs {
    changes: Vec<Change>,
    /// When it may need more though nothing changed.
    again_at: Option<Timestamp>,
}

/// What that is decided from.
#[derive(PartialEq)]
struct Sources {
    connection: Connection,
    server: Option<String>,
    version: Option<String>,
    /// With the changes of its queues.
    worker: Option<(Identity<Worker>, u64)>,
    capacity: Option<Identity<ClusterCapacity>>,
    cluster: Option<Identity<ManagedCluster>>,
    scores: [Option<Identity<AddOnPlacementScore>>; 2],
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
        let mut clusters = std::mem::take(&mut self.clusters);
        clusters.retain(|name, _| joined.contains_key(name));
        for (name, entry) in joined {
            let needs = clusters.entry(name.clone()).or_default();
            if needs.value().and_then(|needs| needs.again_at).is_some_and(|at| at <= now) {
                needs.expire();
            }
            let sources = || self.sources(name, entry, capacity, keeps);
            needs.refresh_at(now, sources, |sources, at| self.decide(name, sources, at));
        }
        self.clusters = clusters;
        let needs = self.clusters.values().filter_map(Memo::value);
        let mut wanted: Vec<Change> = needs.flat_map(|needs| needs.changes.iter().cloned()).collect();
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

    fn sources(&self, name: &ClusterName, entry: &Joined, capacity: &CapacityView, keeps: Keeps) -> Sources {
        let ocm = &self.context.hub.ocm;
        let worker = entry.worker.as_ref().filter(|worker| worker.queues.synced());
        Sources {
            connection: entry.connection.clone(),
            server: entry.server.clone(),
            version: entry.kubernetes_version.clone(),
            worker: worker.map(|worker| (Identity::of(worker), worker.queues.revision())),
            capacity: Identity::of_some(capacity.get(name)),
            cluster: ocm.clusters.get(None, name.as_str()).map(Identity),
            scores: [RESOURCE, QUOTA_SCORES]
                .map(|resource| ocm.scores.get(Some(name.as_str()), resource).map(Identity)),
            has_namespace: self.context.hub.namespaces.get(None, name.as_str()).is_some(),
            // Scores rest on what queues there hold.
            keeps: Keeps { scores: keeps.scores && entry.source != CLUSTER_METRICS, ..keeps },
        }
    }

    fn decide(&self, name: &ClusterName, seen: &Sources, now: Timestamp) -> Needs {
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
        Needs { changes, again_at }
    }

    fn scores(
        &self,
        settings: &ScoreSettings,
        rendering: &Rendering<'_>,
        seen: &Sources,
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
