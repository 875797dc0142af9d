//! Runs tasks: chooses a cluster for each, makes its objects there, follows them, and takes them off again.
//!
//! The store says what is wanted and how far each task is; a move is on the disk before anything is written for
//! it. Objects have the names that follow from the task's id, so whatever was cut off is done again to the same
//! effect. What is on a cluster is read from its tables, whole, at every look.
//!
//! # What a task goes through
//!
//! 1. `api/owner.rs` finds whose it is: the token's user, their tenant (`domain/task/tenant.rs`: namespace, default
//!    queue), their right to the virtual resource `tasks` there. Somebody else's task or volume is told of as one that is not there.
//!    `api/k8s_cli.rs` takes the same in k8s-cli's routes and shapes (`wire/k8s_cli.rs`).
//! 2. `sky.rs`, `read_file` or `read_request`: text to a tree with places (`yaml.rs`), the tree to a `NewTask`. Every
//!    field is run, mapped or named in a warning; `sky/reader.rs` reports what nobody asked for. What is given beside
//!    the file is put into the tree before (`sky/changes.rs`).
//!    What the file names of the submitter's machine was packed and sent before (`cli/task/pack.rs`, `cli/task/upload.rs`),
//!    looked through (`api/upload/archive.rs`, `inspect`) and stored (`store/uploads.rs`); the request names it by digest, and
//!    the `NewTask` keeps that (`domain/task/upload.rs`).
//! 3. `api/task/submit.rs`, `check`: a queue, and a cluster that could ever hold it. `choose_settled` waits a moment where
//!    clusters are about to be known; a queue that a cluster is still to get (`Gathered::promise`) is none that is missing. `accept`: values of secrets into a
//!    Secret on the hub, then the row on the disk, then the answer; a signal wakes the controller. An id that the
//!    caller made up lets the request be repeated, also where it was cut off behind its Secret; one that stands on objects
//!    of a task that nobody knows is refused.
//!    Tasks of one file are rows of one commit (`domain/task/pipeline.rs`), with the line of the audit log (`Store::submit_tasks`). What the end of one means for those behind it
//!    is in the commit of that end (`store/tasks/pipeline.rs`, `follow_up`), so that no crash comes between.
//! 4. `controllers/task.rs`, `TaskController`: at each look it takes in what moved in the store (`Store::task_changes`),
//!    decides one move a task, has it on the disk (`Store::move_task`: a compare-and-set on the state before it, with its
//!    event in the same commit), and only then hands each cluster's writer all that its tasks need.
//! 5. `controllers/task/gather.rs` reads the joined clusters into a `Fleet` (`fleet.rs`), which API and dispatch choose
//!    by alike, with what is on its way already. `choose.rs`, `choose`: a verdict with numbers for each cluster
//!    (`choose/verdict.rs`), and the best of those that can hold it. `spill` says when one that waits should move.
//!    What was accepted waits while no cluster can hold it. For clusters that are being connected it waits some seconds
//!    (`controllers/task/awaited.rs`).
//!    An AppWrapper is a task whose spec has `wrapped` (`domain/task/wrapped.rs`): `wrapped/read.rs` reads the manifest and what
//!    its pods ask for, `api/app_wrapper.rs` asks the hub whether its owner may create every object in it, and from there on it
//!    goes the way of a task, its pod sets taken one after the other as Kueue takes them (`choose/verdict.rs`). Where it can go,
//!    a Lease says (`runtime.rs`, `controllers/task/runtimes.rs`).
//! 6. `render.rs`, `render`: the objects, in one of three forms, or the AppWrapper as it was handed in (`Gang`). JobSets are made where something makes Jobs of them:
//!    `k8s/job_sets.rs`, `are_run`, tries one. `controllers/task/wishes.rs`, `create`: Jobs
//!    first, suspended, then the Secrets and Service their pods need, owned by them, so that Kubernetes removes all of it
//!    together and fedq needs no right to read a worker's Secrets. `controllers/task/secrets.rs`, `TaskContents`, has values of
//!    secrets and sent files in memory for that long only, `publish.rs`, `Loads`, for a bounded number of tasks at a time. The
//!    pods' script (`render/script.rs`, `unpack`) puts the files together.
//!    Where the hub's queue is MultiKueue's (`k8s/read/tasks.rs`, `dispatched_queues`), the Jobs go to the hub instead, and
//!    Kueue sends them on; a task that has to be on one cluster goes there directly. Where Kueue says that it put it, and
//!    its copy is seen, it has landed (`on_hub.rs`, `landed`): there it gets its Secret and Service, and its pods are followed.
//! 7. `controllers/task/index.rs`, `Index::observe`: what is there of a dispatch; `progress.rs`, `next`: what it means,
//!    and `pending_reason`: why it does not run yet. `phase.rs`, `State::next`: the legal moves. The label with its id makes
//!    no object a task's: it must be in the task's namespace, and a Job must have one of its names (`index.rs`, `Whose`).
//!    One that has its quota and does not start is told with the cluster's word (`controllers/task/starts.rs` asks for the
//!    Events of Jobs that may make no pods); after `tasks.startTimeout` it is withdrawn (`progress.rs`, `stuck`) and avoids that
//!    cluster for a while (`rest.rs`).
//!    Kueue takes MultiKueue's copies away as soon as they have ended, so how pods ended is kept in their table
//!    (`Table::ends`) for when the Job says that it is over (`Index::recall`).
//!    `target.rs`, `judge`, says which refusal is final; what a cluster forbids is tried some times, and then elsewhere.
//!    A Job says itself that its cluster ended it (`render.rs`, `tells_disruption`): an evicted pod is gone before its Job has
//!    failed.
//! 8. A task leaves a cluster only through a withdrawal that the cluster has confirmed, and each dispatch has its epoch,
//!    so that it never runs twice. What is being sent is noted before a cluster is looked at (`controllers/task.rs`,
//!    `take_stock`), so that no write ends unseen in between. A withdrawal deletes Jobs in the foreground: as long as one is there, its pods may be.
//!    `controllers/task/wishes.rs`, `clean`, removes what carries an older epoch, and what is left of finished tasks after
//!    `tasks.keepObjects`.
//!    Only with `tasks.lostPolicy: requeue` another cluster takes a task over while its own is lost and may still run it. What
//!    is left behind is stored in the commit of that move (`store/tasks/left_behind.rs`), counts as quota of the lost cluster,
//!    and is withdrawn before anything else is sent there (`controllers/task/left_behind.rs`).
//! 9. `controllers/task/volumes.rs`, `tend_volumes`: a claim for each volume that is stored, on the cluster that was named,
//!    or that the first task that mounts it goes to (`place_volumes`, stored before the task's move); one that is not wanted goes once no task mounts it. A claim that was there and that somebody deleted is not made
//!    again: the volume is Lost, and the tasks that mount it are told. `controllers/task/secrets.rs`, `sweep`: the hub's Secrets go
//!    with their tasks.
//! 10. What is published of it (`domain/task/view.rs`) and what is stored become an answer in `api/task/show.rs`.
//! 11. `api/task/logs.rs`: a stream over a session of `k8s/logs`; `api/task/logs/feed.rs` keeps the session in step with the
//!     task's pods, wherever they are, and `api/task/logs/place.rs` says where a next stream goes on.
//! 12. With `tasks.logs.keep`, `controllers/task/keep/follow.rs`, `follow_logs`, follows the logs of each run that goes on
//!     (`k8s/logs/kept.rs`, `Following`) into a part of a file (`store/kept_logs.rs`), which a crash costs its last seconds; the next
//!     start goes on behind it. `controllers/task/keep.rs`, `keep_logs`, reads the rest when it ends, or all of it where nobody
//!     followed it (`gather`). Until then nothing of the run is removed, however often fedqd is killed meanwhile. Where a task that is over has not all of its pods any more, the feed gives what was kept (`replay`); of an
//!     earlier run nothing else is left (`api/task/logs.rs`, `earlier`). Files go with the task's row, and its id is not given
//!     again before: whoever got it would read them.

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
        limits::{Excess, Limits},
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
    adopted::Adopted, asked::Asked, awaited::Awaited, gather::Gathered, index::Index, keep::Keeping,
    left_behind::LeftBehind, rest::Rest, secrets::TaskContents, starts::Unmade, target::Target, wishes::Past,
};

mod adopted;
mod asked;
mod awaited;
mod chooser;
mod decide;
mod gather;
mod index;
mod job_sets;
mod keep;
mod left_behind;
mod measure;
mod on_hub;
mod places;
mod publish;
mod rest;
mod runtimes;
mod secrets;
mod starts;
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
    /// How long a task that has its quota may take to start; 0: for ever.
    pub start_timeout: Duration,
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
    /// Of those that have some.
    pub limits: BTreeMap<String, Limits>,
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
    /// As they stood when tasks were judged by them.
    volumes: Vec<VolumeRow>,
    /// Of tasks whose objects are still on some cluster.
    past: HashMap<TaskId, Past>,
    left_behind: LeftBehind,
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
    /// Pods that Jobs of it may not make.
    unmade: Asked<Unmade>,
    /// Claims of it that volumes are of and that fedq did not make.
    adopted: Adopted,
    /// Logs of it that may be read at a time.
    reading: Arc<Semaphore>,
}

/// A task that is not over.
struct Live {
    row: Arc<TaskRow>,
    /// What it was chosen by the last time, and what came of it.
    judged: Option<(u64, String)>,
    /// What of its tenant's limits was in its way then.
    limited: Option<Excess>,
    /// Where it goes once it is withdrawn: room that others must not count on.
    destined: Option<Placement>,
    rest: Option<Rest>,
    view: Option<Arc<TaskView>>,
    /// Since when some of its nodes were seen to run while others start.
    in_part: Option<Timestamp>,
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
            volumes: Vec::new(),
            past: HashMap::new(),
            left_behind: LeftBehind::default(),
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
        self.ask_for_unmade(&joined);
        let mut volumes = self.context.store.volumes(None).await?;
        self.ask_for_adopted(&volumes, &joined);
        self.note_volumes(&volumes);
        let mut now = self.context.clock.now();
        for _ in 0..ROUNDS {
            now = self.context.clock.now();
            self.retract();
            self.take_stock();
            self.look_behind(&joined, now).await?;
            let decided = self.decide(&joined, &volumes, now);
            if decided.is_empty() {
                break;
            }
            self.record(decided, &mut volumes, now).await?;
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
            if self.live.remove(&row.id).is_some_and(|live| live.limited.is_some()) {
                // Whoever waits behind it is judged anew.
                self.gathered.revision += 1;
            }
            self.past.insert(row.id, past);
            return;
        }
        if let Some(live) = self.live.get_mut(&row.id) {
            if live.limited.is_some() && live.row.state.phase != row.state.phase {
                // Whoever waits behind it is judged anew.
                self.gathered.revision += 1;
            }
            live.row = Arc::new(row);
        } else {
            let live = Live {
                row: Arc::new(row),
                judged: None,
                limited: None,
                destined: None,
                rest: None,
                view: None,
                in_part: None,
                landed: None,
            };
            self.live.insert(live.row.id.clone(), live);
        }
    }

    /// Moves go to the disk together. One that somebody else was faster with is decided anew.
    async fn record(
        &mut self,
        decided: Vec<(TaskId, Decided)>,
        volumes: &mut [VolumeRow],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut moves = Vec::new();
        for (id, decided) in decided {
            let Some(live) = self.live.get(&id) else { continue };
            let row = Arc::clone(&live.row);
            if let Some(cluster) = decided.step.to.dispatches_to()
                && !self.place_volumes(&row, cluster, volumes).await?
            {
                continue;
            }
            let mut dispatch = decided.dispatch.clone();
            if let Some(dispatch) = &mut dispatch {
                match &decided.step.to {
                    Move::Started => dispatch.started = Some(now),
                    Move::Evicted => dispatch.started = None,
                    _ => {}
                }
            }
            let step = TaskMove {
                id,
                from: row.state.clone(),
                to: decided.to.clone(),
                dispatch,
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
            if matches!(decided.step.to, Move::Replace(_)) {
                self.left_behind.grew();
            }
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
