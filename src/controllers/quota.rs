//! Quota: from claims and capacity to what the ClusterQueues of hub and workers say, and to the status
//! of the claims. It alone writes ClusterQueues.
//!
//! Each activation reads anew what changed, and now and then everything, plans, and hands each cluster's writer
//! what still differs. The order of writes needs no steps here: the plan lets a worker grow only into what is
//! confirmed free, and the hub promise only what a worker has confirmed, so each confirmation simply leads to the
//! next plan.
//!
//! # When rounds run
//!
//! With few clusters each change has a round of its own. With many, rounds that go through all of them leave time to
//! others (`driver::Share`): half of it where quota or tasks wait for the round, nine tenths elsewhere and before what people
//! read is made anew. Time that passed without rounds counts as left (`driver::Rest`), so that a lone change waits for nothing.
//! What people read waits for the writes that a change leads to, but no longer than a quarter of a second
//! (`quota/publish.rs`, `Publishing`), and statuses of other claims for a hub that is a moment behind (`Underway`). While
//! many clusters are being connected after a start, each round rests on little, and rounds are few.
//!
//! Who is woken by what: each kind that changes all the time wakes only those who read it, and everybody when it is complete,
//! breaks or is followed again (`k8s/follow.rs`, `Wake`; `Worker::follow`, `Hub::follow`). Whoever reads another table has to
//! be named there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tracing::{error, info};

use fedq_domain::{
    claim_status::Condition,
    cluster::LastSeen,
    conflict::Writers,
    overview::{CapacityView, Overview},
    queue::{ClaimedQueues, report::QueueReports},
    quota::{ClusterInput, ClusterPlan, ClusterReport, HubQueueInput, HubQueuePlan, Planner, Touched},
    resources::{Aliases, Cell},
};
use fedq_k8s::{
    claims::{ReadClaims, read_claims},
    events::Events,
    follow::TableSet,
    read::quota_place::QuotaCohort,
    worker::JoinedClusters,
    write::{Action, Change, Kind, Target as WriteTarget},
};
use fedq_store::{PageRequest, QuotaCell, StoreError, store_deferred};
use fedq_values::{
    ids::{ClaimName, ClusterName, QueueName},
    quantity::Amount,
};

use self::{
    at_start::AtStart,
    bases::Bases,
    drift::Drift,
    in_force::{InForce, Stored},
    in_turn::Turns,
    removal::Accepted,
    settling::Settling,
    target::{Target, Writing},
};
use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Share, Tasks},
    memo::verify,
    writer::{Place, keep_for_workers},
};

mod at_start;
mod bases;
mod changes;
mod cohorts;
mod drift;
mod gather;
mod in_force;
mod in_turn;
mod measure;
mod publish;
mod record;
mod removal;
mod settling;
mod status;
mod target;
mod tell;

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
    pub events: Events,
    pub overview: watch::Sender<Arc<Overview>>,
    pub claimed: watch::Sender<Arc<ClaimedQueues>>,
}

pub struct QuotaController {
    context: Context,
    settings: Settings,
    inputs: Inputs,
    outputs: Outputs,
    signal: Arc<Notify>,
    planner: Planner,
    accepted: Accepted,
    claims: Claims,
    stored: Stored,
    /// Whether the hub served Kueue in the last round.
    planned: bool,
    statuses: status::Statuses,
    settling: Settling,
    writing: Writing,
    /// The hub's, once it runs.
    to_hub: Option<Arc<Target>>,
    targets: BTreeMap<ClusterName, Target>,
    /// What was sent to clusters and not answered, until there is a connection to them again.
    unanswered: BTreeMap<ClusterName, Vec<Change>>,
    /// What the planner was last told, so that it is told only what is new.
    told: Told,
    /// The terms each cluster was last counted with: kept while it does not answer.
    terms: BTreeMap<ClusterName, BTreeMap<Cell, Amount>>,
    recorded: record::Recorded,
    records: mpsc::UnboundedSender<record::Record>,
    bases: Bases,
    at_start: AtStart,
    /// Nothing was stored when this process started: the store is new, or was lost.
    store_was_empty: bool,
    /// As of the last round.
    plans: Plans,
    kept: changes::Kept,
    publishing: publish::Publishing,
    started: Instant,
    /// Clusters that are read anew, whatever is known of them.
    turns: Turns<ClusterName>,
    /// When the claims are.
    claims_due: Instant,
    tasks: Tasks,
}

#[derive(Default)]
struct Told {
    /// Those that were joined at the last round, told apart from those joined anew under the same name.
    members: BTreeMap<ClusterName, LastSeen>,
    clusters: BTreeMap<ClusterName, ClusterInput>,
    /// What each was made from.
    known: BTreeMap<ClusterName, gather::Known>,
    /// Those whose claim names a queue that was never readable, or is not valid and never was.
    waiting: BTreeSet<ClusterName>,
    /// Those of them whose claim is not valid.
    unsettled: BTreeSet<ClusterName>,
    queues: BTreeMap<QueueName, HubQueueInput>,
    /// The objects that these were read from.
    hub_objects: gather::Seen<QueueName>,
    /// Where the quota of some of them stands.
    cohorts: BTreeMap<QueueName, QuotaCohort>,
    worker_objects: BTreeMap<ClusterName, gather::Seen<String>>,
    /// Those that this round had to look at.
    fresh: BTreeSet<ClusterName>,
    /// Those of them of which something is new, and those of which the plan was told.
    renewed: BTreeSet<ClusterName>,
    altered: BTreeSet<ClusterName>,
}

/// The hub's claims, and what of them is in force.
#[derive(Default)]
struct Claims {
    read: Arc<ReadClaims>,
    in_force: Arc<InForce>,
    /// The changes of the table that are in them, unless time alone may change what is in force.
    seen: Option<u64>,
}

type Plans = (BTreeMap<ClusterName, (ClusterPlan, ClusterReport)>, BTreeMap<QueueName, HubQueuePlan>);

/// One activation's view of everything.
struct Round<'a> {
    joined: &'a JoinedClusters,
    capacity: &'a CapacityView,
    reports: Arc<QueueReports>,
    claims: Arc<ReadClaims>,
    in_force: Arc<InForce>,
    plans: BTreeMap<ClusterName, (ClusterPlan, ClusterReport)>,
    queues: BTreeMap<QueueName, HubQueuePlan>,
    unreadable: BTreeMap<QueueName, String>,
    /// Queues of the hub that nothing is written to until somebody does something about it: why.
    left_alone: BTreeMap<QueueName, String>,
    /// Queues whose cells somebody keeps changing back: by place and queue, who.
    conflicts: BTreeMap<(String, String), Writers>,
    /// What each claim's status is to say, whether or not it says so yet.
    said: BTreeMap<ClaimName, Arc<Vec<Condition>>>,
    /// When something changes by time alone.
    next: Option<Instant>,
    /// Whose plans are not those of the last round.
    touched: Touched,
}

impl Round<'_> {
    fn look_again(&mut self, at: Option<Instant>) {
        self.next = [self.next, at].into_iter().flatten().min();
    }
}

impl QuotaController {
    pub async fn new(
        context: Context,
        settings: Settings,
        inputs: Inputs,
        outputs: Outputs,
        signal: Arc<Notify>,
    ) -> Result<Self, StoreError> {
        let store = &context.store;
        let stored = Stored::load(store, &settings.aliases).await?;
        let cells = store.load_quota_cells().await?;
        let hub_cells = store.load_hub_cells().await?;
        let store_was_empty = store.clusters(&PageRequest::first(1)).await?.items.is_empty();
        let terms: BTreeMap<_, _> =
            cells.into_iter().map(|(cluster, cells)| (cluster, terms_of(&cells))).collect();
        let merge_window = context.writer.merge_window;
        let statuses = status::Statuses::new(merge_window);
        let drift = Arc::new(Mutex::new(Drift::new(settings.drift_reverts_per_minute)));
        let writing = Writing {
            config: context.writer.clone(),
            drift,
            metrics: context.metrics.clone(),
            clock: context.clock.clone(),
            signal: Arc::clone(&signal),
        };
        Ok(Self {
            accepted: Accepted::new(merge_window, settings.removal_window, stored.claims().cloned()),
            stored,
            planned: true,
            claims: Claims::default(),
            context,
            settings,
            inputs,
            outputs,
            signal,
            planner: Planner::default(),
            statuses,
            settling: Settling::default(),
            writing,
            to_hub: None,
            targets: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            told: Told::default(),
            at_start: AtStart::new(terms.clone()),
            terms,
            recorded: record::Recorded::default(),
            // Replaced when it runs, by a channel with somebody at its other end.
            records: mpsc::unbounded_channel().0,
            bases: Bases::new(hub_cells),
            store_was_empty,
            plans: Plans::default(),
            kept: changes::Kept::default(),
            publishing: publish::Publishing::default(),
            started: Instant::now(),
            turns: Turns::new(PERIOD),
            claims_due: Instant::now(),
            tasks: Tasks::new(),
        })
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { hub, store, metrics, stop, .. } = self.context.clone();
        let to_hub = Target::start(Place::hub(hub), &self.writing, (&mut self.tasks, &stop));
        self.to_hub = Some(Arc::new(to_hub));
        let (records, recorded) = mpsc::unbounded_channel();
        self.records = records;
        self.tasks.spawn(async { Ok(store_deferred(store, recorded).await?) });
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    /// When something changes by time alone.
    async fn round(
        &mut self,
        hub: &Target,
        joined: &JoinedClusters,
        capacity: &CapacityView,
        reports: &Arc<QueueReports>,
    ) -> Option<Instant> {
        // Without a current view of the hub nothing can be decided, and the hub could not be written.
        if !self.context.hub.is_current() || !self.context.hub.lists(joined) {
            self.want_nothing(hub);
            return None;
        }
        let started = Instant::now();
        self.keep_targets(joined);
        let mut round = self.gather(joined, capacity, reports, started);
        self.confirm_removal().await;
        let hub_changes = if self.hub_has_kueue() {
            self.plan(&mut round);
            self.context.metrics.planned(started.elapsed());
            self.measure(&round);
            self.hub_changes(&mut round)
        } else {
            self.stand_still(&mut round);
            Vec::new()
        };
        // Statuses take longer to find than all else.
        hub.writer.want_also(hub_changes.clone());
        if self.planned {
            self.write_workers(&mut round);
        }
        let writes = !hub_changes.is_empty() || !round.touched.is_empty();
        let mut changes = hub_changes;
        changes.extend(self.status_changes(&mut round, hub));
        hub.writer.want(changes);
        if self.planned {
            self.record(&round);
        }
        self.publish_in_time(&mut round, writes);
        self.plans = (round.plans, round.queues);
        self.statuses.said = round.said;
        round.next
    }

    /// Whether the hub serves Kueue; all statuses say so when that changes.
    fn hub_has_kueue(&mut self) -> bool {
        let planned = self.context.hub.has_kueue();
        if self.planned != planned {
            self.planned = planned;
            self.statuses.look_at_all();
        }
        planned
    }

    /// The round of a hub that does not serve Kueue: what it was not asked for is not gone, so all stays as it is.
    fn stand_still(&mut self, round: &mut Round<'_>) {
        self.told.fresh.clear();
        self.told.renewed.clear();
        self.told.altered.clear();
        (round.plans, round.queues) = std::mem::take(&mut self.plans);
        // What was decided on before must not land after.
        self.targets.values().for_each(|target| target.writer.want(Vec::new()));
    }

    /// What waits to be written was decided from a view that is not to be relied on any more.
    fn want_nothing(&self, hub: &Target) {
        for target in self.targets.values().chain([hub]) {
            target.writer.want(Vec::new());
        }
    }

    fn keep_targets(&mut self, joined: &JoinedClusters) {
        let stop = &self.context.stop;
        // What was sent on a connection that is no more may still arrive.
        for (name, target) in &self.targets {
            let worker = joined.get(name).and_then(|entry| entry.worker.as_ref());
            if !gather::same(worker, target.worker.as_ref()) {
                let unanswered = target.writer.all_unanswered();
                self.unanswered.entry(name.clone()).or_default().extend(unanswered);
            }
        }
        self.unanswered.retain(|name, unanswered| joined.contains_key(name) && !unanswered.is_empty());
        keep_for_workers(
            &mut self.targets,
            joined,
            |target| target.worker.as_ref(),
            |worker| {
                let place = Place::Worker(Arc::clone(worker));
                let target = Target::start(place, &self.writing, (&mut self.tasks, stop));
                target.writer.inherit(self.unanswered.remove(&worker.name).unwrap_or_default());
                target
            },
        );
    }

    fn gather<'a>(
        &mut self,
        joined: &'a JoinedClusters,
        capacity: &'a CapacityView,
        reports: &Arc<QueueReports>,
        now: Instant,
    ) -> Round<'a> {
        let next = self.read_claims(now);
        Round {
            joined,
            capacity,
            reports: Arc::clone(reports),
            claims: Arc::clone(&self.claims.read),
            in_force: Arc::clone(&self.claims.in_force),
            plans: BTreeMap::new(),
            queues: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            left_alone: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            said: std::mem::take(&mut self.statuses.said),
            next,
            touched: Touched::default(),
        }
    }

    /// Takes in the claims, if something of them is new; when to look again.
    fn read_claims(&mut self, now: Instant) -> Option<Instant> {
        let revision = self.context.hub.claims.revision();
        let in_force = || self.accepted.claims().map(|claim| claim.name().as_str()).collect::<BTreeSet<_>>();
        if self.claims.seen == Some(revision) && now < self.claims_due {
            let (claims, aliases) = (&self.context.hub.claims, &self.settings.aliases);
            let afresh = || read_claims(claims, aliases, &ReadClaims::new(), &in_force());
            verify(&*self.claims.read, afresh, || claims.revision() == revision);
            return None;
        }
        self.claims_due = now + PERIOD;
        let in_force = in_force();
        let read =
            read_claims(&self.context.hub.claims, &self.settings.aliases, &self.claims.read, &in_force);
        let next = gather::accept(&read, &self.context.hub.claims.skipped(), &mut self.accepted, now);
        let settled = next.is_none() && self.accepted.held().is_empty();
        let in_force = Arc::new(gather::by_cluster(&self.accepted));
        self.keep_in_force(&in_force, &read);
        self.claims = Claims { read: Arc::new(read), in_force, seen: settled.then_some(revision) };
        next
    }

    /// Lets go of claims that are held, if a person said so on fedq's namespace.
    async fn confirm_removal(&mut self) {
        if self.accepted.held().is_empty() {
            return;
        }
        let namespace = self.context.hub.namespaces.get(None, &self.context.hub.namespace);
        if !namespace.is_some_and(|object| object.metadata.annotations.contains_key(CONFIRM_REMOVAL)) {
            return;
        }
        let change = Change {
            target: WriteTarget::cluster_scoped(Kind::Namespace, &self.context.hub.namespace),
            action: Action::Merge(serde_json::json!({"metadata": {"annotations": {CONFIRM_REMOVAL: null}}})),
            manager: MANAGER,
        };
        let client = self.context.hub.client.kube();
        // Taken back first: a confirmation that stays would let the next mistake through as well.
        match fedq_k8s::write::send(&client, &change, self.context.writer.deadline).await {
            Ok(_) => {
                let claims = self.accepted.confirm();
                info!(?claims, "The removal of claims is confirmed");
                self.signal.notify_one();
            }
            Err(error) => error!("Could not take back the confirmation of removed claims: {error}"),
        }
    }
}

impl Controller for QuotaController {
    const NAME: &'static str = "quota";

    fn pace(&self) -> Pace {
        Pace { period: PERIOD, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        let joined = Arc::clone(&self.inputs.joined.borrow_and_update());
        let capacity = Arc::clone(&self.inputs.capacity.borrow_and_update());
        let reports = Arc::clone(&self.inputs.reports.borrow_and_update());
        let Some(hub) = self.to_hub.clone() else { return Ok(Next::AtPeriod) };
        let next = self.round(&hub, &joined, &capacity, &reports).await;
        Ok(next.map_or(Next::AtPeriod, |at| Next::After(at.saturating_duration_since(Instant::now()))))
    }

    fn share(&self) -> Share {
        Share::HALF.after_start(self.started, &self.inputs.joined.borrow())
    }

    /// What people read has a share of its own.
    fn counted(&mut self, took: Duration) -> Duration {
        took.saturating_sub(self.publishing.took())
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.inputs.joined.changed() => changed?,
            changed = self.inputs.capacity.changed() => changed?,
            changed = self.inputs.reports.changed() => changed?,
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}

fn terms_of(cells: &[QuotaCell]) -> BTreeMap<Cell, Amount> {
    cells.iter().map(|cell| (cell.cell.clone(), cell.term)).collect()
}

#[cfg(test)]
mod tests;
