//! Quota: from claims and capacity to what the ClusterQueues of hub and workers say, and to the status
//! of the claims. It alone writes ClusterQueues.
//!
//! Each activation reads everything anew, plans, and hands each cluster's writer what still differs. The
//! order of writes needs no steps here: the plan lets a worker grow only into what is confirmed free, and
//! the hub promise only what a worker has confirmed, so each confirmation simply leads to the next plan.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    clock::Clock,
    domain::{
        claim::{self, ClaimText, ValidClaim},
        cluster::Connection,
        ids::{ClaimName, ClusterName, QueueName},
        overview::{CapacityView, Overview},
        quantity::Amount,
        queue::{ClaimedQueues, report::QueueReports},
        quota::{ClusterInput, ClusterPlan, ClusterReport, HubQueueInput, HubQueuePlan, Mode, Planner},
        resources::{Aliases, Cell},
    },
    k8s::{
        claims::{ReadClaim, read_claims},
        events::ClaimEvents,
        hub::Hub,
        types::claim::ClusterResourceClaim,
        worker::{Joined, JoinedClusters},
        write::{Action, Change, Kind, Target as WriteTarget},
    },
    store::{ClaimRow, PageRequest, QuotaCell, Store, StoreError},
    telemetry::Metrics,
};

use self::{
    bases::Bases,
    drift::Drift,
    gather::ClusterFacts,
    removal::Accepted,
    settling::Settling,
    target::{Target, Writing},
};
use super::writer::WriterConfig;

mod bases;
mod changes;
mod drift;
mod gather;
mod publish;
mod record;
mod removal;
mod settling;
mod status;
mod target;

const MANAGER: &str = "fedq-quota";
/// On fedq's namespace: claims that vanished were meant to.
pub const CONFIRM_REMOVAL: &str = "fedq.dev/confirm-removal";
/// Looked at without a signal this often, so that nothing that was missed stays missed.
const PERIOD: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct Settings {
    pub aliases: Aliases,
    pub count_foreign: bool,
    pub lost_timeout: Duration,
    pub writer: WriterConfig,
    pub drift_reverts_per_minute: u32,
    /// Claims that vanish within this time are judged as one removal.
    pub removal_window: Duration,
    pub copy_admission_checks: Vec<String>,
}

pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    pub capacity: watch::Receiver<Arc<CapacityView>>,
    /// What the queue controller found, for the claims' status.
    pub reports: watch::Receiver<Arc<QueueReports>>,
}

pub struct Outputs {
    pub events: ClaimEvents,
    pub overview: watch::Sender<Arc<Overview>>,
    pub claimed: watch::Sender<Arc<ClaimedQueues>>,
}

pub struct QuotaController {
    hub: Hub,
    hub_id: String,
    store: Store,
    clock: Clock,
    metrics: Metrics,
    settings: Settings,
    outputs: Outputs,
    signal: Arc<Notify>,
    planner: Planner,
    accepted: Accepted,
    /// Statuses that would say only that a write is under way.
    underway: status::Underway,
    settling: Settling,
    writing: Writing,
    targets: BTreeMap<ClusterName, Target>,
    /// What the planner was last told, so that it is told only what is new.
    told: Told,
    /// The terms each cluster was last counted with: kept while it does not answer.
    terms: BTreeMap<ClusterName, BTreeMap<Cell, Amount>>,
    recorded: record::Recorded,
    records: mpsc::UnboundedSender<record::Record>,
    bases: Bases,
    /// Nothing was stored when this process started: the store is new, or was lost.
    store_was_empty: bool,
    /// As of the last round.
    plans: Plans,
    /// When every cluster is read anew, whatever its stamp says.
    look_at_all: Instant,
    tasks: JoinSet<()>,
}

#[derive(Default)]
struct Told {
    clusters: BTreeMap<ClusterName, ClusterInput>,
    /// What each was made from, and when time alone makes it anew.
    stamps: BTreeMap<ClusterName, (gather::Stamp, Option<Instant>)>,
    queues: BTreeMap<QueueName, HubQueueInput>,
    /// The objects that these were read from.
    hub_objects: gather::Seen<QueueName>,
    worker_objects: BTreeMap<ClusterName, gather::Seen<String>>,
}

type Plans = (BTreeMap<ClusterName, (ClusterPlan, ClusterReport)>, BTreeMap<QueueName, HubQueuePlan>);

/// One activation's view of everything.
struct Round<'a> {
    joined: &'a JoinedClusters,
    capacity: &'a CapacityView,
    reports: QueueReports,
    claims: BTreeMap<ClaimName, ReadClaim>,
    in_force: BTreeMap<ClusterName, ValidClaim>,
    modes: BTreeMap<ClusterName, Mode>,
    plans: BTreeMap<ClusterName, (ClusterPlan, ClusterReport)>,
    queues: BTreeMap<QueueName, HubQueuePlan>,
    unreadable: BTreeMap<QueueName, String>,
    /// Queues whose cells somebody keeps changing back: by place and queue, who.
    conflicts: BTreeMap<(String, String), String>,
    /// When something changes by time alone.
    next: Option<Instant>,
}

impl Round<'_> {
    fn look_again(&mut self, at: Option<Instant>) {
        self.next = [self.next, at].into_iter().flatten().min();
    }
}

impl QuotaController {
    pub async fn new(
        (hub, hub_id): (Hub, String),
        (store, clock, metrics): (Store, Clock, Metrics),
        settings: Settings,
        outputs: Outputs,
        signal: Arc<Notify>,
    ) -> Result<Self, StoreError> {
        let known = known_claims(&store, &settings.aliases).await?;
        let cells = store.load_quota_cells().await?;
        let store_was_empty = store.clusters(&PageRequest::first(1)).await?.items.is_empty();
        let terms = cells.into_iter().map(|(cluster, cells)| (cluster, terms_of(&cells))).collect();
        let underway = status::Underway::new(settings.writer.merge_window);
        let drift = Arc::new(Mutex::new(Drift::new(settings.drift_reverts_per_minute)));
        let writing = Writing {
            config: settings.writer.clone(),
            drift,
            metrics: metrics.clone(),
            clock: clock.clone(),
            signal: Arc::clone(&signal),
        };
        Ok(Self {
            accepted: Accepted::new((settings.writer.merge_window, settings.removal_window), known),
            hub,
            hub_id,
            store,
            clock,
            metrics,
            settings,
            outputs,
            signal,
            planner: Planner::default(),
            underway,
            settling: Settling::default(),
            writing,
            targets: BTreeMap::new(),
            told: Told::default(),
            terms,
            recorded: record::Recorded::default(),
            // Replaced when it runs, by a channel with somebody at its other end.
            records: mpsc::unbounded_channel().0,
            bases: Bases::default(),
            store_was_empty,
            plans: Plans::default(),
            look_at_all: Instant::now(),
            tasks: JoinSet::new(),
        })
    }

    pub async fn run(mut self, mut inputs: Inputs, cancel: CancellationToken) -> anyhow::Result<()> {
        let hub = Target::hub(&self.hub, &self.writing, &mut self.tasks, &cancel);
        let (records, recorded) = mpsc::unbounded_channel();
        self.records = records;
        let storing = record::store_records(self.store.clone(), recorded);
        tokio::pin!(storing);
        loop {
            let joined = Arc::clone(&inputs.joined.borrow_and_update());
            let capacity = Arc::clone(&inputs.capacity.borrow_and_update());
            let reports = Arc::clone(&inputs.reports.borrow_and_update());
            let next = self.reconcile(&hub, (&joined, &capacity, &reports), &cancel).await;
            let look_again = next.unwrap_or_else(|| Instant::now() + PERIOD).min(Instant::now() + PERIOD);
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.signal.notified() => {}
                changed = inputs.joined.changed() => changed?,
                changed = inputs.capacity.changed() => changed?,
                changed = inputs.reports.changed() => changed?,
                () = tokio::time::sleep_until(look_again) => {}
                failed = &mut storing => return failed.map_err(Into::into),
            }
        }
        // Writes under way are finished, so that their outcome is known.
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        drop(self);
        storing.await.map_err(Into::into)
    }

    async fn reconcile(
        &mut self,
        hub: &Target,
        (joined, capacity, reports): (&JoinedClusters, &CapacityView, &QueueReports),
        cancel: &CancellationToken,
    ) -> Option<Instant> {
        // Without a current view of the hub nothing can be decided, and the hub could not be written.
        if !self.hub.is_current() || !self.hub.lists(joined) {
            return None;
        }
        let started = Instant::now();
        self.keep_targets(joined, cancel);
        let mut round = self.gather((joined, capacity, reports), started);
        self.confirm_removal().await;
        self.plan(&mut round);
        self.metrics.planned(started.elapsed());
        let hub_changes = self.hub_changes(&mut round);
        self.write_workers(&mut round);
        let mut changes = hub_changes;
        changes.extend(self.status_changes(&mut round, hub));
        hub.writer.want(changes);
        self.record(&round);
        self.publish(&round, hub);
        self.plans = (round.plans, round.queues);
        round.next
    }

    /// One writer for each worker, anew when its connection is.
    fn keep_targets(&mut self, joined: &JoinedClusters, cancel: &CancellationToken) {
        self.targets.retain(|name, target| {
            let worker = joined.get(name).and_then(|entry| entry.worker.as_ref());
            let stays = worker.is_some_and(|worker| target.is_for(worker));
            if !stays {
                target.stop();
            }
            stays
        });
        for (name, entry) in joined {
            if let Some(worker) = &entry.worker
                && !self.targets.contains_key(name)
            {
                let target = Target::worker(worker, &self.writing, &mut self.tasks, cancel);
                self.targets.insert(name.clone(), target);
            }
        }
        while self.tasks.try_join_next().is_some() {}
    }

    fn gather<'a>(
        &mut self,
        (joined, capacity, reports): (&'a JoinedClusters, &'a CapacityView, &QueueReports),
        now: Instant,
    ) -> Round<'a> {
        let claims = read_claims(&self.hub.claims, &self.settings.aliases);
        let next = gather::accept(&claims, &self.hub.claims.skipped(), &mut self.accepted, now);
        let clock = self.clock.now();
        let modes = joined
            .iter()
            .map(|(name, entry)| {
                let mode = gather::mode(entry, clock, self.settings.lost_timeout);
                // Nodes that are not followed are as unknown as a cluster that does not answer.
                let silent = capacity.get(name).is_some_and(|known| known.silent.is_some());
                (name.clone(), if silent && mode == Mode::Live { Mode::Frozen } else { mode })
            })
            .collect();
        Round {
            joined,
            capacity,
            reports: reports.clone(),
            claims,
            in_force: gather::by_cluster(&self.accepted),
            modes,
            plans: BTreeMap::new(),
            queues: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            next,
        }
    }

    fn plan(&mut self, round: &mut Round<'_>) {
        let gather::HubQueues { inputs: mut queues, seen, unreadable } = gather::hub_queues(&self.hub);
        (round.unreadable, self.told.hub_objects) = (unreadable, seen);
        self.keep_unreadable(&mut queues, round);
        self.restore_bases(&mut queues);
        self.planner.set_flavors(Some(gather::flavors(&self.hub)));
        for name in self.told.queues.keys().filter(|name| !queues.contains_key(*name)) {
            self.planner.remove_queue(name);
        }
        for (name, queue) in &queues {
            if self.told.queues.get(name) != Some(queue) {
                self.planner.set_queue(queue.clone());
            }
        }
        self.told.queues = queues;
        self.tell_clusters(round);
        let touched = self.planner.replan();
        // What the replan did not touch is as it was: the plans go from round to round.
        (round.plans, round.queues) = std::mem::take(&mut self.plans);
        for name in touched.clusters {
            match self.planner.cluster(&name) {
                Some(plan) => drop(round.plans.insert(name, plan)),
                None => drop(round.plans.remove(&name)),
            }
        }
        for name in touched.queues {
            match self.planner.queue(&name) {
                Some(plan) => drop(round.queues.insert(name, plan)),
                None => drop(round.queues.remove(&name)),
            }
        }
    }

    /// A queue that cannot be read is not one that is gone: it is planned with as it last was, and what was
    /// never read holds the clusters that give it quota as they are.
    fn keep_unreadable(&self, queues: &mut BTreeMap<QueueName, HubQueueInput>, round: &mut Round<'_>) {
        for skipped in self.hub.queues.skipped() {
            let name = skipped.name.as_deref().and_then(|name| QueueName::new(name).ok());
            if let Some(name) = name.filter(|name| !queues.contains_key(name)) {
                round.unreadable.insert(name, skipped.reason);
            }
        }
        for name in round.unreadable.keys() {
            if let Some(known) = self.told.queues.get(name) {
                queues.insert(name.clone(), known.clone());
            }
        }
        let waits = |claim: &ValidClaim| {
            let mut named = claim.assignments().iter().map(|assignment| &assignment.queue);
            named.any(|name| round.unreadable.contains_key(name) && !queues.contains_key(name))
        };
        for (cluster, claim) in &round.in_force {
            if let Some(mode) =
                round.modes.get_mut(cluster).filter(|mode| **mode == Mode::Live && waits(claim))
            {
                *mode = Mode::Frozen;
            }
        }
    }

    /// What a cluster was last counted with. `None`, not known, holds the hub's cells where they are: only
    /// after the store was lost, and only for a cluster that can have had a share.
    fn last_terms(&self, name: &ClusterName, round: &Round<'_>) -> Option<BTreeMap<Cell, Amount>> {
        if let Some(terms) = self.terms.get(name) {
            return Some(terms.clone());
        }
        let worker = round.joined.get(name).and_then(|joined| joined.worker.as_ref());
        let without_kueue = worker.is_some_and(|worker| worker.synced() && !worker.has_kueue());
        (!self.store_was_empty || without_kueue || !is_assigned(name, round)).then(BTreeMap::new)
    }

    /// Terms are stored beside the writes that follow from them, not before: a daemon that was killed may have
    /// stored less than the hub holds. A cluster that is about to answer is waited for.
    fn terms_may_lag(&self, name: &ClusterName, joined: &Joined, round: &Round<'_>) -> bool {
        let answers_soon = match &joined.connection {
            Connection::Connecting => true,
            Connection::Ready => joined.worker.as_ref().is_none_or(|worker| !worker.synced()),
            Connection::Stale { .. }
            | Connection::Lost { .. }
            | Connection::Quarantined { .. }
            | Connection::Refused { .. }
            | Connection::Unreached => false,
        };
        let stored = self.terms.get(name).is_some_and(|terms| !terms.is_empty());
        answers_soon && (stored || is_assigned(name, round)) && !self.recorded.knows(name)
    }

    fn restore_bases(&mut self, queues: &mut BTreeMap<QueueName, HubQueueInput>) {
        let mut terms: BTreeMap<Cell, Amount> = BTreeMap::new();
        for (cell, term) in self.terms.values().flatten() {
            let sum = terms.entry(cell.clone()).or_default();
            *sum = sum.saturating_add(*term);
        }
        for (name, queue) in queues.iter_mut() {
            if let Some(object) = self.hub.queues.get(None, name.as_str()) {
                self.bases.restore(&object.metadata.uid, queue, &terms);
            }
        }
        self.bases.forget_others(queues);
    }

    fn tell_clusters(&mut self, round: &mut Round<'_>) {
        let gone: Vec<ClusterName> =
            self.told.clusters.keys().filter(|name| !round.joined.contains_key(*name)).cloned().collect();
        for name in &gone {
            self.planner.remove_cluster(name);
            self.settling.forget(name);
            self.metrics.forget(name);
            self.told.clusters.remove(name);
            self.told.worker_objects.remove(name);
            self.told.stamps.remove(name);
        }
        let now = Instant::now();
        if self.look_at_all <= now {
            self.look_at_all = now + PERIOD;
            self.told.stamps.clear();
        }
        let joined = round.joined;
        for (name, entry) in joined {
            self.tell_cluster(name, entry, round, now);
            if let Some(told) = self.told.clusters.get(name) {
                round.modes.insert(name.clone(), told.mode);
            }
        }
    }

    /// Reads what the plan needs of one cluster, unless all of it is as it was.
    fn tell_cluster(&mut self, name: &ClusterName, joined: &Joined, round: &mut Round<'_>, now: Instant) {
        let facts = ClusterFacts {
            name,
            joined,
            mode: round.modes[name],
            claim: round.in_force.get(name),
            capacity: round.capacity,
            target: self.targets.get(name),
        };
        let stamp = facts.stamp();
        let terms_may_lag = self.terms_may_lag(name, joined, round);
        if let Some((known, until)) = self.told.stamps.get(name)
            && *known == stamp
            && self.told.clusters.get(name).is_some_and(|told| told.terms_may_lag == terms_may_lag)
            && until.is_none_or(|until| now < until)
        {
            round.look_again(*until);
            return;
        }
        let seen = gather::seen(joined.worker.as_deref());
        let settings = (self.hub_id.as_str(), &self.settings);
        let (mut input, next) = facts.input(&seen, settings, &mut self.settling, now);
        self.told.worker_objects.insert(name.clone(), seen);
        input.last_terms = self.last_terms(name, round);
        input.terms_may_lag = terms_may_lag;
        round.look_again(next);
        self.told.stamps.insert(name.clone(), (stamp, next));
        if self.told.clusters.get(name) != Some(&input) {
            self.planner.set_cluster(input.clone());
            self.told.clusters.insert(name.clone(), input);
        }
    }

    /// Lets go of claims that are held, if a person said so on fedq's namespace.
    async fn confirm_removal(&mut self) {
        if self.accepted.held().is_empty() {
            return;
        }
        let namespace = self.hub.namespaces.get(None, &self.hub.namespace);
        if !namespace.is_some_and(|object| object.metadata.annotations.contains_key(CONFIRM_REMOVAL)) {
            return;
        }
        let change = Change {
            target: WriteTarget::cluster_scoped(Kind::Namespace, &self.hub.namespace),
            action: Action::Merge(serde_json::json!({"metadata": {"annotations": {CONFIRM_REMOVAL: null}}})),
            manager: MANAGER,
        };
        let client = self.hub.client.kube();
        // Taken back first: a confirmation that stays would let the next mistake through as well.
        match crate::k8s::write::send(&client, &change, self.settings.writer.deadline).await {
            Ok(_) => {
                let claims = self.accepted.confirm();
                info!(?claims, "The removal of claims is confirmed");
                self.signal.notify_one();
            }
            Err(error) => error!("Could not take back the confirmation of removed claims: {error}"),
        }
    }
}

fn is_assigned(name: &ClusterName, round: &Round<'_>) -> bool {
    round.in_force.get(name).is_some_and(|claim| !claim.assignments().is_empty())
}

/// The claims as they were last in force, which is what a claim that vanished meanwhile is judged by.
async fn known_claims(store: &Store, aliases: &Aliases) -> Result<Vec<ValidClaim>, StoreError> {
    let mut known = Vec::new();
    let mut page = PageRequest::first(500);
    loop {
        let rows = store.claims(&page).await?;
        known.extend(rows.items.iter().filter_map(|row| claim_of_row(row, aliases)));
        match rows.next {
            Some(cursor) => page = PageRequest::after(cursor, 500),
            None => return Ok(known),
        }
    }
}

/// The store does not know who owned what: every value counts as a person's, until the hub shows it.
fn claim_of_row(row: &ClaimRow, aliases: &Aliases) -> Option<ValidClaim> {
    let spec = serde_json::from_value(row.spec.clone()).ok()?;
    let object = ClusterResourceClaim::new(row.name.as_str(), spec);
    claim::validate(&ClaimText::from(&object), aliases).ok()
}

fn terms_of(cells: &[QuotaCell]) -> BTreeMap<Cell, Amount> {
    cells.iter().map(|cell| (cell.cell.clone(), cell.term)).collect()
}

#[cfg(test)]
mod tests;
