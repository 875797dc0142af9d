//! Joined and reported clusters as OCM has clusters: a ManagedCluster for each where OCM does not register them, and scores
//! where no addon writes any. Placements choose from these.
//!
//! What OCM or people made under these names is theirs. A cluster is looked at again when something of it
//! changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use self::render::Rendering;
use super::writer::{Writer, WriterConfig, ocm};
use fedq_base::{clock::Clock, telemetry::Metrics};
use fedq_domain::{
    cluster::Connection,
    inventory::{self, QUOTA_SCORES},
    overview::{CapacityView, ClusterCapacity},
    placement::usage::{Measure, RESOURCE},
    resources::Aliases,
};
use fedq_k8s::{
    hub::Hub,
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
    pub writer: WriterConfig,
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
    hub: Hub,
    hub_id: String,
    clock: Clock,
    settings: Settings,
    signal: Arc<Notify>,
    writer: Writer,
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
    pub fn new((hub, hub_id): (Hub, String), clock: Clock, settings: Settings, signal: Arc<Notify>) -> Self {
        let writer = Writer::waking(Arc::clone(&signal));
        Self { hub, hub_id, clock, settings, signal, writer, clusters: BTreeMap::new() }
    }

    /// Runs until cancelled; a write under way is then finished, so that its outcome is known.
    pub async fn run(
        mut self,
        mut inputs: Inputs,
        metrics: Metrics,
        cancel: CancellationToken,
    ) -> anyhow::Result<()> {
        let (writer, hub, config) = (self.writer.clone(), self.hub.clone(), self.settings.writer.clone());
        let writing = ocm::write(&writer, &hub, config, cancel.clone());
        let deciding = async {
            loop {
                let joined = Arc::clone(&inputs.joined.borrow_and_update());
                let capacity = Arc::clone(&inputs.capacity.borrow_and_update());
                let begun = tokio::time::Instant::now();
                self.reconcile(&joined, &capacity);
                metrics.reconciled("inventory", begun.elapsed(), false);
                tokio::select! {
                    () = cancel.cancelled() => return Ok(()),
                    () = tokio::time::sleep(SETTLE) => {}
                }
                tokio::select! {
                    () = cancel.cancelled() => return Ok(()),
                    () = self.signal.notified() => {}
                    changed = inputs.joined.changed() => changed?,
                    changed = inputs.capacity.changed() => changed?,
                    () = tokio::time::sleep(PERIOD) => {}
                }
            }
        };
        let (decided, ()) = tokio::join!(deciding, writing);
        decided
    }

    fn reconcile(&mut self, joined: &JoinedClusters, capacity: &CapacityView) {
        let now = self.clock.now();
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
        let registers = self.hub.ocm.registers()?;
        if !followed(self.hub.ocm.clusters.state()) || !followed(self.hub.namespaces.state()) {
            return None;
        }
        let sets = followed(self.hub.ocm.sets.state());
        let scores = followed(self.hub.ocm.scores.state());
        Some(Keeps {
            clusters: self.settings.clusters && sets && !registers,
            scores: self.settings.scores.is_some() && scores,
        })
    }

    fn see(&self, name: &ClusterName, entry: &Joined, capacity: &CapacityView, keeps: Keeps) -> Seen {
        let ocm = &self.hub.ocm;
        let worker = entry.worker.as_ref().filter(|worker| worker.queues.synced());
        Seen {
            connection: entry.connection.clone(),
            server: entry.server.clone(),
            version: entry.kubernetes_version.clone(),
            worker: worker.map(|worker| (Arc::clone(worker), worker.queues.revision())),
            capacity: capacity.get(name).cloned(),
            cluster: ocm.clusters.get(None, name.as_str()),
            scores: [RESOURCE, QUOTA_SCORES].map(|resource| ocm.scores.get(Some(name.as_str()), resource)),
            has_namespace: self.hub.namespaces.get(None, name.as_str()).is_some(),
            // Scores rest on what queues there hold.
            keeps: Keeps { scores: keeps.scores && entry.source != CLUSTER_METRICS, ..keeps },
        }
    }

    fn decide(&self, name: &ClusterName, seen: &Seen, now: Timestamp) -> (Vec<Change>, Option<Timestamp>) {
        let rendering = Rendering { hub_id: &self.hub_id, name, now };
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
        let missing = SETS.iter().filter(|name| self.hub.ocm.sets.get(None, name).is_none());
        missing.map(|name| render::set(&self.hub_id, name)).collect()
    }

    /// ManagedClusters that fedq made of clusters that have left.
    fn gone(&self, joined: &JoinedClusters) -> Vec<Change> {
        if !self.hub.is_current() || !self.hub.lists(joined) {
            return Vec::new();
        }
        let left = |name: &str| ClusterName::new(name).is_ok_and(|name| !joined.contains_key(&name));
        let ours = self.hub.ocm.clusters.all();
        let ours = ours.iter().filter(|cluster| cluster.metadata.is_labelled(&self.hub_id));
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
