//! Follows the logs of runs that go on, and puts what comes on the disk.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, PoisonError},
};

use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{LogKeeping, Progress, readable};
use crate::{
    driver,
    task::{Cluster, TaskController, on_hub::is_dispatched},
};
use fedq_base::{clock::Clock, telemetry::chain};
use fedq_domain::task::phase::Phase;
use fedq_k8s::logs::{After, Following, KEPT_AT_ONCE, Pod, Pods, places, trimmed};
use fedq_store::{KeptLogsError, Run, TaskRow};
use fedq_values::ids::ClusterName;

/// One that goes on.
pub(super) struct Followed {
    pods: watch::Sender<Pods>,
    cluster: ClusterName,
    /// Of the index that the pods were read from.
    seen: Option<[u64; 5]>,
    stop: CancellationToken,
    /// Held as long as it is followed.
    busy: Arc<Mutex<()>>,
}

impl Followed {
    /// What is there of it is on the disk once the lock is free.
    pub fn stop(self) -> Arc<Mutex<()>> {
        self.stop.cancel();
        self.busy
    }

    /// Nothing more will come.
    fn ends(&self) {
        self.pods.send_if_modified(|pods| {
            let differs = !(pods.complete && pods.pods.is_empty());
            *pods = Pods { pods: Vec::new(), complete: true };
            differs
        });
    }
}

impl TaskController {
    /// Follows each run of which a container has begun, as far as its cluster has places for it. The others are read when
    /// they end.
    pub(super) fn follow_logs(&mut self, settings: &LogKeeping) {
        self.forget_followed();
        let mut used: HashMap<ClusterName, usize> = HashMap::new();
        for followed in self.keeping.followed.values() {
            *used.entry(followed.cluster.clone()).or_default() += containers(&followed.pods.borrow().pods);
        }
        let (mut begin, mut news) = (Vec::new(), Vec::new());
        let mut current = HashSet::new();
        for live in self.live.values() {
            let row = &live.row;
            let Some((name, cluster)) = self.goes_on(row) else { continue };
            let run = (row.id.clone(), row.state.epoch);
            current.insert(run.clone());
            if !cluster.index.current {
                continue;
            }
            let seen = cluster.index.revisions();
            if let Some(followed) = self.keeping.followed.get(&run) {
                if followed.seen != seen {
                    news.push((run, seen, pods_of(cluster, row)));
                }
                continue;
            }
            let used = used.entry(name.clone()).or_default();
            if KEPT_AT_ONCE <= *used {
                continue;
            }
            let pods = pods_of(cluster, row);
            let wanted = containers(&pods);
            let is_new = || {
                let runs = self.keeping.runs.lock().unwrap_or_else(PoisonError::into_inner);
                !runs.contains_key(&run) && !settings.kept.has(&run)
            };
            if 0 < wanted && *used + wanted <= KEPT_AT_ONCE && is_new() {
                *used += wanted;
                begin.push((run, name.clone(), pods));
            }
        }
        for (run, seen, pods) in news {
            if let Some(followed) = self.keeping.followed.get_mut(&run) {
                followed.seen = seen;
                update(&followed.pods, pods);
            }
        }
        for (run, cluster, pods) in begin {
            self.begin_to_follow(settings, run, (cluster, pods));
        }
        self.close_parts(settings, &current);
    }

    /// Where a run is that is neither over nor being ended.
    fn goes_on<'a>(&'a self, row: &'a TaskRow) -> Option<(&'a ClusterName, &'a Cluster)> {
        let goes_on = matches!(
            row.state.phase,
            Phase::Queued { .. } | Phase::Starting { .. } | Phase::Running { .. } | Phase::Lost { .. }
        );
        let name = if is_dispatched(row) { self.runs_on(row) } else { row.state.phase.cluster() };
        self.clusters.get_key_value(name.filter(|_| goes_on)?)
    }

    fn begin_to_follow(&mut self, settings: &LogKeeping, run: Run, (cluster, pods): (ClusterName, Vec<Pod>)) {
        let (pods, all) = watch::channel(Pods { pods, complete: false });
        let (stop, busy) = (self.context.stop.child_token(), Arc::<Mutex<()>>::default());
        let held = Arc::clone(&busy).try_lock_owned();
        let part = Part { settings: settings.clone(), clock: self.context.clock.clone(), run: run.clone() };
        let (runs, signal) = (Arc::clone(&self.keeping.runs), Arc::clone(&self.signal));
        let followed = Followed { pods, cluster, seen: None, stop: stop.clone(), busy };
        self.keeping.followed.insert(run.clone(), followed);
        driver::spawn(&mut self.tasks, async move {
            let _held = held;
            let (id, epoch) = run.clone();
            // Cut off, it goes on from what is on the disk.
            let Some(ended) = stop.run_until_cancelled(part.follow(all)).await else { return };
            let progress = match ended {
                Ok(()) => {
                    debug!(task.id = %id, epoch, "Kept what task {id} wrote until its pods went");
                    Progress::Done
                }
                Err(error) => {
                    warn!(task.id = %id, epoch, error = %chain(&error), "The log of task {id} is not followed any more");
                    Progress::Left
                }
            };
            runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run, progress);
            signal.notify_one();
        });
    }

    /// Those that have ended, and those whose run is over without a pod to read.
    fn forget_followed(&mut self) {
        let runs = self.keeping.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |run: &Run| matches!(runs.get(run), Some(Progress::Done | Progress::Left));
        self.keeping.followed.retain(|run, _| !is_over(run));
    }

    /// Of runs that ended while nobody was there to read them.
    fn close_parts(&mut self, settings: &LogKeeping, current: &HashSet<Run>) {
        for (run, followed) in &self.keeping.followed {
            let live = self.live.get(&run.0).map(|live| &live.row.state);
            let live = live.is_some_and(|state| state.epoch == run.1 && state.phase != Phase::Pending);
            let is_gone = match self.clusters.get(&followed.cluster) {
                // It may come back.
                None => !live,
                Some(cluster) => cluster.index.current && cluster.index.pods_of(&run.0, run.1) == 0,
            };
            if is_gone && !current.contains(run) {
                followed.ends();
            }
        }
        for run in settings.kept.parts() {
            let ends = match self.live.get(&run.0) {
                Some(live) => live.row.state.epoch != run.1 || matches!(live.row.state.phase, Phase::Pending),
                None => !self.past.contains_key(&run.0),
            };
            let is_read = self.keeping.followed.contains_key(&run)
                || self.keeping.runs.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&run);
            if !ends || is_read {
                continue;
            }
            self.keeping
                .runs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(run.clone(), Progress::Reading);
            let (kept, runs) = (settings.kept.clone(), Arc::clone(&self.keeping.runs));
            driver::spawn(&mut self.tasks, async move {
                if let Err(error) = kept.close(run.clone()).await {
                    warn!(task.id = %run.0, error = %chain(&error), "What was kept of a run is not closed");
                }
                runs.lock().unwrap_or_else(PoisonError::into_inner).insert(run, Progress::Done);
            });
        }
    }
}

fn pods_of(cluster: &Cluster, row: &TaskRow) -> Vec<Pod> {
    let Some(here) = cluster.index.of(row) else { return Vec::new() };
    let worker = &cluster.target.worker;
    let pods = here.numbered(row.state.epoch).into_iter();
    let pods = pods.filter_map(|(place, pod)| readable(place, pod, worker));
    pods.map(|pod| Pod { connections: worker.kept_logs.clone(), ..pod }).collect()
}

fn containers(pods: &[Pod]) -> usize {
    pods.iter().map(|pod| pod.containers.len()).sum()
}

fn update(known: &watch::Sender<Pods>, pods: Vec<Pod>) {
    known.send_if_modified(|known| {
        let same = known.pods.len() == pods.len()
            && known.pods.iter().zip(&pods).all(|(one, other)| {
                one.uid == other.uid && one.containers == other.containers && one.cluster == other.cluster
            });
        if !same {
            known.pods = pods;
        }
        !same
    });
}

/// What is kept of a run that goes on.
pub(super) struct Part {
    pub settings: LogKeeping,
    pub clock: Clock,
    pub run: Run,
}

impl Part {
    async fn follow(&self, pods: watch::Receiver<Pods>) -> Result<(), KeptLogsError> {
        let mut following = Following::open(pods, self.begin().await?);
        self.add_all(&mut following).await?;
        self.close().await
    }

    /// Behind what is there already.
    pub async fn begin(&self) -> Result<BTreeMap<(u32, String), After>, KeptLogsError> {
        let LogKeeping { kept, largest } = &self.settings;
        if !kept.has_part(&self.run) {
            return Ok(BTreeMap::new());
        }
        let largest = *largest;
        kept.rewrite(self.run.clone(), move |text| trimmed(text, largest), self.clock.now()).await?;
        Ok(match kept.part(&self.run).await? {
            Some(mut file) => places(&mut file).await,
            None => BTreeMap::new(),
        })
    }

    pub async fn add_all(&self, following: &mut Following) -> Result<(), KeptLogsError> {
        let LogKeeping { kept, largest } = &self.settings;
        let (largest, mut bytes) = (*largest, u64::MAX);
        while let Some(text) = following.next(largest / 8).await {
            let room = u64::try_from(largest.saturating_sub(text.len())).unwrap_or_default();
            if room < bytes && kept.has_part(&self.run) {
                let most = largest.saturating_sub(text.len());
                kept.rewrite(self.run.clone(), move |text| trimmed(text, most), self.clock.now()).await?;
            }
            bytes = kept.add(self.run.clone(), text, self.clock.now()).await?;
        }
        Ok(())
    }

    pub async fn close(&self) -> Result<(), KeptLogsError> {
        self.settings.kept.close(self.run.clone()).await
    }
}
