//! Runs tasks: chooses a cluster for each, makes its objects there, follows them, and takes them off again.
//!
//! The store says what is wanted and how far each task is; a move is on the disk before anything is written for
//! it. Objects have the names that follow from the task's id, so whatever was cut off is done again to the same
//! effect. What is on a cluster is read from its tables, whole, at every look.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use tokio::{
    sync::{Notify, Semaphore, watch},
    task::{AbortHandle, JoinSet},
    time::Instant,
};
use tracing::info;

use crate::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Share, Tasks},
    writer::WriterConfig,
};
use fedq_domain::{
    overview::CapacityView,
    queue::ClaimedQueues,
    task::{
        choose::{Placement, Weights},
        event::Event,
        names::TaskId,
        phase::{Epoch, LostPolicy, Move, State},
        progress::Step,
        render::{Gang, Tenant},
        runtime::Runtime,
        view::{TaskView, TaskViews, VolumeViews},
    },
};
use fedq_k8s::{list_watch::Timing, worker::JoinedClusters, write};
use fedq_store::{Dispatch, StoreError, TaskMove, TaskRow, VolumeRow};
use fedq_values::ids::ClusterName;

pub use self::keep::LogKeeping;
use self::{
    asked::Asked, awaited::Awaited, gather::Gathered, index::Index, keep::Keeping, rest::Rest,
    secrets::TaskContents, target::Target, wishes::Past,
};

mod asked;
mod awaited;
mod chooser;
mod decide;
mod gather;
mod index;
mod job_sets;
mod keep;
mod measure;
mod on_hub;
mod places;
mod publish;
mod rest;
mod runtimes;
mod secrets;
mod target;
#[cfg(test)]
mod testing;
mod volumes;
mod wishes;

/// A move may make the next one possible at once.
const ROUNDS: usize = 4;

#[derive(Clone)]
pub struct Settings {
    pub spill_after: Duration,
    pub lost_policy: LostPolicy,
    /// How long objects of finished tasks stay.
    pub keep_objects: Duration,
    /// `None`: by the task and its cluster.
    pub gang: Option<Gang>,
    pub default_image: String,
    pub weights: Weights,
    /// `None`: logs go with their pods.
    pub logs: Option<LogKeeping>,
    /// By namespace.
    pub tenants: BTreeMap<String, Tenant>,
    pub timing: Timing,
}

/// What the place is called where a task is that MultiKueue is to dispatch.
const HUB: &str = "hub";

pub struct TaskController {
    context: Context,
    settings: Settings,
    joined: watch::Receiver<Arc<JoinedClusters>>,
    claimed: watch::Receiver<Arc<ClaimedQueues>>,
    capacity: watch::Receiver<Arc<CapacityView>>,
    published: Published,
    signal: Arc<Notify>,
    /// Up to where the store's moves are known.
    seen: i64,
    live: BTreeMap<TaskId, Live>,
    /// Of tasks whose objects are still on some cluster.
    past: HashMap<TaskId, Past>,
    gathered: Gathered,
    awaited: Awaited,
    more_come: bool,
    clusters: BTreeMap<ClusterName, Cluster>,
    /// The hub itself, for tasks that MultiKueue dispatches.
    place: Option<Cluster>,
    contents: TaskContents,
    keeping: Keeping,
    tasks: Tasks,
    /// What follows the hub as its workers are.
    follows: JoinSet<()>,
    /// That Workloads of the hub changed.
    workloads: watch::Receiver<()>,
    /// When the Secrets on the hub are to be looked through.
    sweep_at: Option<Timestamp>,
    /// Tasks that are over and had some.
    spent: BTreeSet<TaskId>,
    sweeping: Option<AbortHandle>,
    started: Instant,
}

/// What others found out.
pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    pub claimed: watch::Receiver<Arc<ClaimedQueues>>,
    pub capacity: watch::Receiver<Arc<CapacityView>>,
}

/// What others may know of it.
pub struct Published {
    pub tasks: watch::Sender<Arc<TaskViews>>,
    pub volumes: watch::Sender<Arc<VolumeViews>>,
}

struct Cluster {
    target: Target,
    index: Index,
    /// What was being sent when the index was read.
    sent: HashSet<write::Target>,
    /// Whether JobSets are run there.
    job_sets: Asked<bool>,
    app_wrappers: Asked<Runtime>,
    /// Logs of it that may be read at a time.
    reading: Arc<Semaphore>,
}

/// A task that is not over.
struct Live {
    row: Arc<TaskRow>,
    /// What it was chosen by the last time, and what came of it.
    judged: Option<(u64, String)>,
    /// Where it goes once it is withdrawn: room that others must not count on.
    destined: Option<Placement>,
    rest: Option<Rest>,
    view: Option<Arc<TaskView>>,
    /// Where MultiKueue put it in which dispatch: Kueue forgets that with the Workload.
    landed: Option<(Epoch, ClusterName)>,
}

/// A step with all that is stored of it.
struct Decided {
    step: Step,
    to: State,
    dispatch: Option<Dispatch>,
    destined: Option<Placement>,
    nodes: Option<fedq_domain::task::record::NodeCounts>,
}

impl TaskController {
    pub fn new(
        context: Context,
        settings: Settings,
        Inputs { joined, claimed, capacity }: Inputs,
        (published, signal): (Published, Arc<Notify>),
    ) -> Self {
        let gathered = Gathered::new(settings.weights);
        // Each object is made once and deleted once.
        let workloads = context.hub.workloads.changed();
        let writer = WriterConfig { merge_window: Duration::ZERO, ..context.writer };
        Self {
            context: Context { writer, ..context },
            settings,
            joined,
            claimed,
            capacity,
            published,
            signal,
            seen: 0,
            live: BTreeMap::new(),
            past: HashMap::new(),
            gathered,
            awaited: Awaited::default(),
            more_come: false,
            clusters: BTreeMap::new(),
            place: None,
            contents: TaskContents::default(),
            keeping: Keeping::default(),
            tasks: Tasks::new(),
            follows: JoinSet::new(),
            workloads,
            sweep_at: None,
            spent: BTreeSet::new(),
            sweeping: None,
            started: Instant::now(),
        }
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { metrics, stop, .. } = self.context.clone();
        self.follow_hub();
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    /// Where the objects of a task are written, as far as it has been dispatched.
    fn cluster_of(&self, row: &TaskRow) -> Option<&Cluster> {
        match &row.dispatch {
            Some(dispatch) if dispatch.by_multikueue => self.place.as_ref(),
            _ => self.clusters.get(row.state.phase.cluster()?),
        }
    }

    async fn look(&mut self) -> Result<Next, StoreError> {
        self.read_store().await?;
        let joined = Arc::clone(&self.joined.borrow_and_update());
        let claimed = Arc::clone(&self.claimed.borrow_and_update());
        self.gathered.promise(&self.context.hub, &claimed);
        self.keep_targets(&joined);
        if !self.context.hub.secrets.synced() || !self.context.hub.lists(&joined) {
            // Not the same as clusters that have all left.
            return Ok(Next::AtPeriod);
        }
        self.ask_for_job_sets(&joined);
        self.ask_for_runtimes(&joined);
        let mut volumes = self.context.store.volumes(None).await?;
        let mut now = self.context.clock.now();
        for _ in 0..ROUNDS {
            now = self.context.clock.now();
            self.retract();
            self.take_stock();
            let decided = self.decide(&joined, &volumes, now);
            if decided.is_empty() {
                break;
            }
            self.record((decided, &mut volumes), now).await?;
        }
        self.learn_past().await?;
        let held = self.keep_logs();
        let tended = self.tend_volumes(&volumes, &joined);
        self.record_volumes(&volumes, &tended).await?;
        self.write(&joined, tended.wishes, &held);
        self.publish(&joined, tended.views);
        self.count_tasks();
        self.sweep();
        Ok(self.next_look(now))
    }

    /// Reads what is on each cluster, and before that what is still being sent there: a write that ends in between is
    /// among what is there. The other way round, it would be in neither.
    fn take_stock(&mut self) {
        for cluster in self.clusters.values_mut() {
            let current = cluster.target.worker.follows_tasks();
            cluster.read(current);
        }
        if let Some(hub) = &mut self.place {
            let current = hub.target.worker.follows_jobs();
            hub.read(current);
        }
    }

    /// Takes in what was submitted, stopped or moved since the last look.
    async fn read_store(&mut self) -> Result<(), StoreError> {
        let changes = self.context.store.task_changes(self.seen).await?;
        for row in changes.tasks {
            self.count_submitted(&row);
            self.keep(row);
        }
        self.seen = changes.seen;
        Ok(())
    }

    fn keep(&mut self, row: TaskRow) {
        if row.state.phase.is_over() {
            let past = Past::of(&row);
            if !row.spec.secrets.is_empty() {
                self.spent.insert(row.id.clone());
            }
            self.live.remove(&row.id);
            self.past.insert(row.id, past);
            return;
        }
        if let Some(live) = self.live.get_mut(&row.id) {
            live.row = Arc::new(row);
        } else {
            let live = Live {
                row: Arc::new(row),
                judged: None,
                destined: None,
                rest: None,
                view: None,
                landed: None,
            };
            self.live.insert(live.row.id.clone(), live);
        }
    }

    /// Moves go to the disk together. One that somebody else was faster with is decided anew.
    async fn record(
        &mut self,
        (decided, volumes): (Vec<(TaskId, Decided)>, &mut [VolumeRow]),
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut moves = Vec::new();
        for (id, decided) in decided {
            let Some(live) = self.live.get(&id) else { continue };
            let row = Arc::clone(&live.row);
            if let Move::Dispatch(cluster) = &decided.step.to
                && !self.place_volumes(&row, cluster, volumes).await?
            {
                continue;
            }
            let step = TaskMove {
                id,
                from: row.state.clone(),
                to: decided.to.clone(),
                dispatch: decided.dispatch.clone(),
                restarts: row.restarts + u32::from(decided.step.counts),
                nodes: decided.nodes,
                event: Event::of(&decided.step.to, &decided.to, now, decided.step.detail.as_deref()),
            };
            moves.push((row, step, decided));
        }
        let outcomes = join_all(moves.iter().map(|(_, step, _)| self.context.store.move_task(step))).await;
        for ((row, step, decided), outcome) in moves.into_iter().zip(outcomes) {
            if !outcome? {
                continue;
            }
            self.measure(&row, &step, &decided.step.to);
            info!(task.id = %step.id, phase = step.to.phase.word(), "Task {}: {}", step.id, step.event.message);
            let row = TaskRow {
                state: step.to,
                dispatch: step.dispatch,
                restarts: step.restarts,
                nodes: step.nodes,
                changed: now,
                ..(*row).clone()
            };
            self.keep(row);
            if let Some(live) = self.live.get_mut(&step.id) {
                live.destined = decided.destined;
                live.judged = None;
                live.rest = rest::after(&decided.step, &live.row, now).or(live.rest.take());
            }
        }
        self.read_store().await
    }

    /// Of tasks that are not live and still have objects somewhere.
    async fn learn_past(&mut self) -> Result<(), StoreError> {
        let all = || self.clusters.values().chain(&self.place);
        let there = |id: &TaskId| all().any(|cluster| cluster.index.has(id));
        self.past.retain(|id, _| there(id));
        let mut asked: Vec<TaskId> = Vec::new();
        for cluster in all() {
            let unknown = cluster.index.tasks().map(|(id, _)| id);
            let unknown = unknown.filter(|id| !self.live.contains_key(*id) && !self.past.contains_key(*id));
            asked.extend(unknown.cloned());
        }
        for id in asked {
            let past = match self.context.store.task(&id).await? {
                Some(row) if row.state.phase.is_over() => Past::of(&row),
                // Submitted this very moment, and known at the next look.
                Some(_) => continue,
                None => Past::Unknown,
            };
            self.past.insert(id, past);
        }
        Ok(())
    }
}

impl Controller for TaskController {
    const NAME: &'static str = "task";

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        Ok(self.look().await?)
    }

    /// Without a task, nothing waits for a look.
    fn share(&self) -> Share {
        let busy = || Share::HALF.after_start(self.started, &self.joined.borrow());
        if self.live.is_empty() { Share::SHORT_TENTH } else { busy() }
    }

    /// Of what is joined, and of nodes, it hears by its signal.
    async fn woken(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.claimed.changed() => changed?,
            changed = self.workloads.changed() => changed?,
            Some(ended) = self.follows.join_next() => ended?,
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}
