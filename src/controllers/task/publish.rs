//! What is to be written, and what is told of tasks, after their moves.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use crate::{
    controllers::driver::Next,
    domain::{
        ids::ClusterName,
        task::{
            choose::{Waiting, spill_at},
            names::TaskId,
            phase::Phase,
            progress::pending_reason,
            view::{TaskView, TaskViews, VolumeViews},
        },
    },
    k8s::{
        worker::JoinedClusters,
        write::{Change, Target},
    },
};

use super::{
    Cluster, Live, TaskController, decide,
    secrets::Asking,
    wishes::{self, Cleaning, Dispatching, Maker, Past},
};

impl TaskController {
    /// Hands each cluster all that its tasks need now.
    pub(super) fn write(&mut self, joined: &JoinedClusters, mut wishes: BTreeMap<ClusterName, Vec<Change>>) {
        let of_volumes = |changes: &Vec<Change>| changes.iter().map(|change| change.target.clone()).collect();
        let mut needed: BTreeMap<ClusterName, HashSet<Target>> =
            wishes.iter().map(|(name, changes)| (name.clone(), of_volumes(changes))).collect();
        let dispatching = |id: &TaskId| {
            let live = self.live.get(id);
            live.is_some_and(|live| matches!(live.row.state.phase, Phase::Dispatching { .. }))
        };
        self.secrets.retain(dispatching);
        let Self { live, clusters, tasks, secrets, hub, signal, settings, .. } = self;
        let maker = Maker {
            hub_id: &self.hub_id,
            tenants: &settings.tenants,
            default_image: &settings.default_image,
        };
        let asking = Asking { hub, signal, deadline: settings.writer.deadline };
        for live in live.values() {
            let Some(name) = live.row.state.phase.cluster() else { continue };
            let Some(cluster) = clusters.get(name) else { continue };
            if let Some(of) = being_dispatched(live) {
                needed.entry(name.clone()).or_default().extend(of.mains().into_iter().chain(of.owned()));
            }
            let mut secret_values = || {
                if live.row.spec.secrets.is_empty() {
                    return Some(Arc::default());
                }
                secrets.get(&live.row.id, &asking, tasks)
            };
            wishes.entry(name.clone()).or_default().extend(wish(live, cluster, &maker, &mut secret_values));
        }
        for (name, cluster) in &self.clusters {
            let mut wanted = wishes.remove(name).unwrap_or_default();
            let entry = joined.get(name);
            if cluster.keeps(name, joined) {
                let cleaning = Cleaning {
                    now: self.clock.now(),
                    keep: self.settings.keep_objects,
                    leaving: entry.is_some_and(|entry| entry.leaving),
                };
                let epoch = |id: &TaskId| self.live.get(id).map(earliest_epoch);
                let past = |id: &TaskId| self.past.get(id).cloned();
                wanted.extend(wishes::clean(&cluster.index, epoch, past, cleaning));
            } else {
                // A write that was decided on before the cluster fell silent must not land after.
                wanted.clear();
            }
            cluster.target.retain(&needed.remove(name).unwrap_or_default());
            cluster.target.writer.want(wanted);
        }
    }

    pub(super) fn publish(&mut self, joined: &JoinedClusters, volumes: VolumeViews) {
        self.published.volumes.send_if_modified(|known| {
            let differs = **known != volumes;
            if differs {
                *known = Arc::new(volumes);
            }
            differs
        });
        let mut changed = false;
        let mut tasks = BTreeMap::new();
        for (id, live) in &mut self.live {
            let view = view_of(live, &self.clusters, joined);
            let view = match &live.view {
                Some(known) if **known == view => Arc::clone(known),
                _ => {
                    changed = true;
                    Arc::new(view)
                }
            };
            live.view = Some(Arc::clone(&view));
            tasks.insert(id.clone(), view);
        }
        let fleet = Arc::clone(&self.gathered.fleet);
        self.published.tasks.send_if_modified(|known| {
            let differs = changed || known.tasks.len() != tasks.len() || !Arc::ptr_eq(&known.fleet, &fleet);
            if differs {
                *known = Arc::new(TaskViews { tasks, fleet });
            }
            differs
        });
    }

    /// When a task that waits may move, or objects may go.
    pub(super) fn next_look(&self) -> Next {
        let now = self.clock.now();
        let due = |live: &Live| {
            let Phase::Queued { cluster } = &live.row.state.phase else { return None };
            let after = live.row.spec.spill_after.unwrap_or(self.settings.spill_after);
            spill_at(&Waiting { cluster: cluster.clone(), since: live.row.changed }, after)
        };
        let spills = self.live.values().filter_map(due);
        let keep = SignedDuration::try_from(self.settings.keep_objects).unwrap_or(SignedDuration::MAX);
        let cleanings = self.past.values().filter_map(|past| match past {
            Past::Over { at, .. } => at.checked_add(keep).ok(),
            Past::Unknown => None,
        });
        let later = |at: &Timestamp| now < *at;
        match spills.chain(cleanings).filter(later).min() {
            None => Next::AtPeriod,
            Some(at) => {
                let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                Next::After(wait + Duration::from_millis(1))
            }
        }
    }
}

/// The dispatch that may have objects; what carries an earlier one is an orphan.
fn earliest_epoch(live: &Live) -> u32 {
    let state = &live.row.state;
    match state.phase {
        Phase::Pending => state.epoch.saturating_add(1),
        _ => state.epoch,
    }
}

fn being_dispatched(live: &Live) -> Option<Dispatching<'_>> {
    let dispatching = matches!(live.row.state.phase, Phase::Dispatching { .. });
    let dispatch = live.row.dispatch.as_ref().filter(|_| dispatching)?;
    Some(Dispatching { task: &live.row, dispatch })
}

fn wish(
    live: &Live,
    cluster: &Cluster,
    maker: &Maker<'_>,
    secrets: &mut dyn FnMut() -> Option<Arc<crate::domain::task::spec::Secrets>>,
) -> Vec<Change> {
    let row = &live.row;
    let here = cluster.index.get(&row.id);
    if let Some(of) = being_dispatched(live) {
        return wishes::create(of, here, &cluster.target, maker, secrets());
    }
    match (&row.state.phase, here) {
        (Phase::Withdrawing { .. }, Some(here)) => wishes::withdraw(here.jobs.iter()),
        _ => Vec::new(),
    }
}

fn view_of(live: &Live, clusters: &BTreeMap<ClusterName, Cluster>, joined: &JoinedClusters) -> TaskView {
    let row = &live.row;
    let name = row.state.phase.cluster();
    let cluster = name.and_then(|name| clusters.get(name));
    let seen = cluster.map(|cluster| decide::observe(cluster, row));
    let workload = cluster.and_then(|cluster| cluster.index.workload(&row.id, row.state.epoch));
    let mut view = decide::view(live, seen.as_ref(), workload);
    view.pending_reason = match (&row.state.phase, &seen, name) {
        (Phase::Pending, ..) => {
            let judged = live.judged.as_ref().map(|(_, reason)| reason.clone());
            Some(judged.unwrap_or_else(|| "a cluster is being chosen for it".to_owned()))
        }
        (phase, Some(seen), Some(name)) => {
            let silent = joined.get(name).filter(|entry| !entry.connection.is_writable());
            let broken = cluster.and_then(|cluster| cluster.target.worker.tasks.broken());
            match (pending_reason(phase, seen), silent, broken) {
                (None, ..) => None,
                (Some(reason), Some(entry), _) => {
                    Some(format!("{reason} ({name} is {})", entry.connection.word()))
                }
                (Some(reason), None, Some(broken)) => {
                    Some(format!("{reason} ({name} cannot be followed: {broken})"))
                }
                (Some(reason), None, None) => Some(tried(live, cluster, &reason)),
            }
        }
        (phase, ..) => pending_reason(phase, &decide::nothing()),
    };
    view
}

/// With what the cluster said to the last try of a write.
fn tried(live: &Live, cluster: Option<&Cluster>, reason: &str) -> String {
    let (Some(of), Some(cluster)) = (being_dispatched(live), cluster) else { return reason.to_owned() };
    let failure = of.mains().iter().chain(&of.owned()).find_map(|object| cluster.target.failure(object));
    failure.map_or_else(|| reason.to_owned(), |failure| format!("{reason}: {failure}"))
}
