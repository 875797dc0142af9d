//! Keeps the logs of runs. While one goes on it is followed, so that what was written is there whatever ends it: Kueue takes
//! pods away, nodes are drained, clusters are lost. When it ends while its pods are still there, the rest is read, and nobody
//! removes those meanwhile.

mod follow;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore},
    time::{Instant, error::Elapsed, timeout},
};
use tracing::{debug, warn};

use self::follow::{Followed, Part};
use super::{
    TaskController,
    index::{OnCluster, Whose},
    wishes::Past,
};
use crate::driver;
use fedq_base::{clock::Clock, telemetry::chain};
use fedq_domain::task::{names::TaskId, phase::Phase};
use fedq_k8s::{
    logs::{self, ContainerState, Following, LogPod, Pod},
    worker::Worker,
};
use fedq_store::{KeptLogs, Run};
use fedq_values::ids::ClusterName;

/// Of each cluster, so that a slow one delays no other. Each holds up to [`LogKeeping::largest`] in memory.
pub(super) const AT_ONCE: usize = 4;
/// Nobody waits for a task that is over, but its cluster is being tidied up one day.
const WITHIN: Duration = Duration::from_mins(5);
/// Somebody waits for a stop, also while others are being read.
const WITHIN_OF_STOP: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct LogKeeping {
    pub kept: KeptLogs,
    /// Bytes of one run.
    pub largest: usize,
}

/// What is being read, and what need not be read again.
#[derive(Default)]
pub(super) struct Keeping {
    runs: Arc<Mutex<HashMap<Run, Progress>>>,
    /// Those that go on.
    followed: HashMap<Run, Followed>,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Ending {
    Over,
    /// Something waits until it is read.
    Stopped,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Progress {
    Reading,
    /// Kept, or given up.
    Done,
    /// Not followed any more, and read when it ends.
    Left,
}

impl TaskController {
    /// Begins to read what ended. Objects of the runs that come back have to stay for now.
    pub(super) fn keep_logs(&mut self) -> HashSet<Run> {
        let Some(settings) = self.settings.logs.clone() else { return HashSet::new() };
        self.follow_logs(&settings);
        let mut held = HashSet::new();
        let mut begin = Vec::new();
        let mut runs = self.keeping.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.retain(|(id, _), progress| {
            *progress == Progress::Reading || self.live.contains_key(id) || self.past.contains_key(id)
        });
        for (name, cluster) in self.clusters.iter().filter(|(_, cluster)| cluster.index.current) {
            for (id, here) in cluster.index.tasks() {
                let Some((run, whose, ending)) = self.ending(name, id, here) else { continue };
                let here = here.only(&whose);
                match runs.get(&run) {
                    Some(Progress::Done) => continue,
                    Some(Progress::Reading) => {
                        held.insert(run);
                        continue;
                    }
                    None if settings.kept.has(&run) => {
                        runs.insert(run, Progress::Done);
                        continue;
                    }
                    Some(Progress::Left) | None => {}
                }
                let pods = here.numbered(run.1).into_iter();
                let pods = pods.filter_map(|(place, pod)| readable(place, pod, &cluster.target.worker));
                let pods: Vec<Pod> = pods.collect();
                if !pods.is_empty() {
                    runs.insert(run.clone(), Progress::Reading);
                    held.insert(run.clone());
                    let before = self.keeping.followed.remove(&run).map(Followed::stop);
                    begin.push((Arc::clone(&cluster.reading), before, run, pods, ending));
                }
            }
        }
        drop(runs);
        for (free, before, run, pods, ending) in begin {
            let reading = Reading {
                settings: settings.clone(),
                free,
                before,
                runs: Arc::clone(&self.keeping.runs),
                signal: Arc::clone(&self.signal),
                clock: self.context.clock.clone(),
            };
            let cancel = self.context.stop.clone();
            // Cut off by a stop, it is read anew by the next start: until then nothing of it is removed.
            driver::spawn(&mut self.tasks, async move {
                cancel.run_until_cancelled(reading.run(run, pods, ending)).await;
            });
        }
        held
    }

    /// The run that is over or being ended, if the cluster is where it was: what another has of it is not its log.
    fn ending(&self, cluster: &ClusterName, id: &TaskId, here: &OnCluster) -> Option<(Run, Whose, Ending)> {
        if let Some(live) = self.live.get(id) {
            if self.runs_on(&live.row) != Some(cluster) {
                return None;
            }
            let (state, whose) = (&live.row.state, Whose::of(&live.row));
            let ends = matches!(state.phase, Phase::Withdrawing { .. });
            // Kueue takes its copies away as soon as they have ended, before the task on the hub has.
            let ends = ends || here.only(&whose).copies_have_ended(state.epoch, live.row.spec.num_nodes);
            return ends.then(|| ((id.clone(), state.epoch), whose, Ending::Stopped));
        }
        match self.past.get(id)? {
            Past::Over { epoch, whose, cluster: ran_on, .. } => (ran_on.as_ref() == Some(cluster))
                .then(|| ((id.clone(), *epoch), whose.clone(), Ending::Over)),
            Past::Unknown => None,
        }
    }
}

/// `None` where there is nothing to read yet.
fn readable(place: Option<u32>, pod: &LogPod, worker: &Worker) -> Option<Pod> {
    let containers = pod.containers();
    let began = containers.iter().any(|one| !matches!(one.state, ContainerState::Waiting { .. }));
    pod.of_task(worker, place, containers).filter(|_| began)
}

struct Reading {
    settings: LogKeeping,
    free: Arc<Semaphore>,
    /// Held by whoever followed it until now.
    before: Option<Arc<AsyncMutex<()>>>,
    runs: Arc<Mutex<HashMap<Run, Progress>>>,
    signal: Arc<Notify>,
    clock: Clock,
}

impl Reading {
    async fn run(self, run: Run, pods: Vec<Pod>, ending: Ending) {
        let (id, epoch) = run.clone();
        if self.read(run.clone(), pods, ending).await.is_err() {
            warn!(task.id = %id, epoch, "The log of task {id} is not kept: too many are being read there");
        }
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run, Progress::Done);
        self.signal.notify_one();
    }

    /// `Err`: its turn did not come in time.
    async fn read(&self, run: Run, pods: Vec<Pod>, ending: Ending) -> Result<(), Elapsed> {
        let LogKeeping { kept, largest } = &self.settings;
        let begun = Instant::now();
        let (turn, within) = match ending {
            Ending::Over => (self.free.acquire().await, WITHIN),
            Ending::Stopped => {
                let turn = timeout(WITHIN_OF_STOP, self.free.acquire()).await?;
                (turn, WITHIN_OF_STOP.saturating_sub(begun.elapsed()))
            }
        };
        let _turn = turn.expect("the semaphore is never closed");
        let (id, epoch) = run.clone();
        if let Some(before) = &self.before {
            drop(before.lock().await);
        }
        if kept.has_part(&run) {
            return self.add_rest(run, pods, within).await;
        }
        let text = logs::gather(pods, *largest, within).await;
        let bytes = text.len();
        match kept.put(run, text, self.clock.now()).await {
            Ok(()) => debug!(task.id = %id, epoch, bytes, "Kept the log of task {id}"),
            // What runs on the clusters must not pile up for it.
            Err(error) => {
                warn!(task.id = %id, epoch, error = %chain(&error), "The log of task {id} is not kept");
            }
        }
        Ok(())
    }

    /// To what was kept while it went on.
    async fn add_rest(&self, run: Run, pods: Vec<Pod>, within: Duration) -> Result<(), Elapsed> {
        let part = Part { settings: self.settings.clone(), clock: self.clock.clone(), run };
        let added = async {
            let mut rest = Following::rest(pods, part.begin().await?);
            part.add_all(&mut rest).await
        };
        let added = timeout(within, added).await.unwrap_or(Ok(()));
        if let Err(error) = added.and(part.close().await) {
            warn!(task.id = %part.run.0, epoch = part.run.1, error = %chain(&error), "The rest of the log of task {} is not kept", part.run.0);
        }
        Ok(())
    }
}
