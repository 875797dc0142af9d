//! What is to be written, and what is told of tasks, after their moves.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use crate::driver::Next;
use fedq_domain::task::{
    names::TaskId,
    phase::Phase,
    pipeline::Stage,
    progress::pending_reason,
    view::{TaskView, TaskViews, VolumeViews},
};
use fedq_k8s::{
    worker::JoinedClusters,
    write::{Change, Target},
};
use fedq_store::{Run, TaskRow};
use fedq_values::ids::ClusterName;

use super::{
    Cluster, Live, TaskController,
    chooser::lost_volume,
    decide,
    index::Whose,
    on_hub::is_dispatched,
    secrets::{Asking, Contents},
    wishes::{self, Cleaning, Dispatching, Maker, Past},
};

/// `None` is the hub.
type Place = Option<ClusterName>;

/// Dispatches of which a cluster's writer is told at a time: more than it has under way, so that it never waits, and few
/// enough that a look costs the same however many there are.
const AT_ONCE: usize = 32;
/// Files that tasks bring along, of those: each of its bytes is several in memory until it is on the cluster.
const BYTES_AT_ONCE: u64 = 16 << 20;

/// What is to be written where.
#[derive(Default)]
struct Plan {
    changes: BTreeMap<Place, Vec<Change>>,
    /// Whatever a dispatch that is not done yet has to do with.
    needed: BTreeMap<Place, HashSet<Target>>,
}

impl Plan {
    fn need(&mut self, place: &Place, targets: impl IntoIterator<Item = Target>) {
        self.needed.entry(place.clone()).or_default().extend(targets);
    }

    fn add(&mut self, place: &Place, changes: Vec<Change>) {
        self.changes.entry(place.clone()).or_default().extend(changes);
    }
}

/// What tasks' pods need is in memory, for as many of them at a time as that is bounded for.
#[derive(Default)]
struct Loads {
    /// Bytes for each place: of tasks that are dispatched, and of those for which it failed before, which hold up nobody.
    bytes: BTreeMap<(Place, bool), u64>,
    used: HashSet<TaskId>,
}

impl Loads {
    /// Whether it is this task's turn. One that is too large by itself has it when no other has.
    fn admits(&mut self, row: &TaskRow, place: &Place, failed: bool) -> bool {
        let own = row.spec.uploads.iter().map(|upload| upload.archive.bytes).fold(0, u64::saturating_add);
        let bytes = self.bytes.entry((place.clone(), failed)).or_default();
        let admitted = own == 0 || *bytes == 0 || bytes.saturating_add(own) <= BYTES_AT_ONCE;
        if admitted {
            *bytes = bytes.saturating_add(own);
            self.used.insert(row.id.clone());
        }
        admitted
    }
}

impl TaskController {
    /// What is being withdrawn must not be made any more.
    pub(super) fn retract(&self) {
        for Live { row, .. } in self.live.values() {
            let withdrawn = matches!(row.state.phase, Phase::Withdrawing { .. });
            let cluster = self.cluster_of(row).filter(|_| withdrawn);
            if let (Some(cluster), Some(dispatch)) = (cluster, &row.dispatch) {
                cluster.target.writer.retract(&Dispatching { task: row, dispatch }.mains());
            }
        }
    }

    /// Hands each cluster all that its tasks need now.
    pub(super) fn write(
        &mut self,
        joined: &JoinedClusters,
        volumes: BTreeMap<ClusterName, Vec<Change>>,
        held: &HashSet<Run>,
    ) {
        let mut plan = Plan::default();
        for (name, changes) in volumes {
            let place = Some(name);
            plan.need(&place, changes.iter().map(|change| change.target.clone()));
            plan.add(&place, changes);
        }
        self.plan_tasks(&mut plan, held);
        let places = self.clusters.iter().map(|(name, cluster)| (Some(name.clone()), cluster));
        for (place, cluster) in places.chain(self.place.iter().map(|hub| (None, hub))) {
            let mut wanted = plan.changes.remove(&place).unwrap_or_default();
            let entry = place.as_ref().and_then(|name| joined.get(name));
            if place.as_ref().map_or(cluster.index.current, |name| cluster.keeps(name, joined)) {
                let cleaning = Cleaning {
                    now: self.context.clock.now(),
                    keep: self.settings.keep_objects,
                    leaving: entry.is_some_and(|entry| entry.leaving),
                    held,
                };
                let epoch =
                    |id: &TaskId| self.live.get(id).map(|live| (Whose::of(&live.row), earliest_epoch(live)));
                let past = |id: &TaskId| self.past.get(id).cloned();
                wanted.extend(wishes::clean(&cluster.index, epoch, past, cleaning));
            } else {
                // A write that was decided on before the cluster fell silent must not land after.
                wanted.clear();
            }
            cluster.target.retain(&plan.needed.remove(&place).unwrap_or_default());
            cluster.target.writer.want(wanted);
        }
    }

    fn plan_tasks(&mut self, plan: &mut Plan, held: &HashSet<Run>) {
        let landed: HashMap<TaskId, ClusterName> = self
            .live
            .iter()
            .filter(|(_, live)| is_dispatched(&live.row) && is_starting(live))
            .filter_map(|(id, live)| Some((id.clone(), self.landed(&live.row)?.clone())))
            .collect();
        let Self { live, clusters, place: on_hub, tasks, contents, context, signal, settings, .. } = self;
        let maker = Maker {
            hub_id: &context.hub_id,
            tenants: &settings.tenants,
            default_image: &settings.default_image,
        };
        let deadline = context.writer.deadline;
        let asking = Asking { hub: &context.hub, store: &context.store, signal, deadline };
        // None waits for those that were dispatched after it.
        let mut lives: Vec<&Live> = live.values().collect();
        lives.sort_by_key(|live| live.row.changed);
        let mut fresh: BTreeMap<Place, usize> = BTreeMap::new();
        let mut loads = Loads::default();
        for live in lives {
            let Some(name) = live.row.state.phase.cluster() else { continue };
            let (place, cluster) = if is_dispatched(&live.row) {
                (None, on_hub.as_ref())
            } else {
                (Some(name.clone()), clusters.get(name))
            };
            let mut values = |place: &Place, failed: bool| {
                let spec = &live.row.spec;
                if spec.secrets.is_empty() && spec.uploads.is_empty() {
                    return Some(Arc::default());
                }
                loads.admits(&live.row, place, failed).then(|| contents.get(&live.row, &asking, tasks))?
            };
            if let Some(name) = landed.get(&live.row.id) {
                let place = Some(name.clone());
                let target = &clusters[name].target;
                let owned = live.row.dispatch.as_ref();
                let owned = owned.map(|dispatch| Dispatching { task: &live.row, dispatch }.owned());
                let failed = owned.iter().flatten().any(|object| target.failure(object).is_some());
                let mut values = || values(&place, failed);
                equip(live, (name, &clusters[name]), (&maker, &mut values), plan);
            }
            let Some(cluster) = cluster else { continue };
            if let Some(of) = being_dispatched(live) {
                let (mains, owned) = (of.mains(), of.owned());
                // What was refused is tried again after a pause, and holds up nobody meanwhile.
                let failed =
                    mains.iter().chain(&owned).any(|object| cluster.target.failure(object).is_some());
                plan.need(&place, mains.into_iter().chain(owned));
                let told = fresh.entry(place.clone()).or_default();
                if !failed && AT_ONCE <= *told {
                    continue;
                }
                let changes = wish(live, cluster, &maker, &mut || values(&place, failed));
                // One that waits for its secrets, or for what is being deleted, has nothing to write.
                *told += usize::from(!failed && !changes.is_empty());
                plan.add(&place, changes);
            } else if !held.contains(&(live.row.id.clone(), live.row.state.epoch)) {
                plan.add(&place, wish(live, cluster, &maker, &mut || None));
            }
        }
        contents.retain(|id| loads.used.contains(id));
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
        let views: Vec<TaskView> = self.live.values().map(|live| self.view(live, joined)).collect();
        for ((id, live), view) in self.live.iter_mut().zip(views) {
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
        let unknown = |(id, past): (&TaskId, &Past)| (*past == Past::Unknown).then(|| id.clone());
        let orphans: BTreeSet<TaskId> = self.past.iter().filter_map(unknown).collect();
        let fleet = Arc::clone(&self.gathered.fleet);
        self.published.tasks.send_if_modified(|known| {
            let same = known.tasks.len() == tasks.len() && Arc::ptr_eq(&known.fleet, &fleet);
            let differs = changed || !same || known.orphans != orphans || known.starting;
            if differs {
                *known = Arc::new(TaskViews { tasks, fleet, orphans, starting: false });
            }
            differs
        });
    }

    /// When a task that waits may move, or objects may go. `decided`: at what time this look decided; what became due
    /// since is for the next one.
    pub(super) fn next_look(&self, decided: Timestamp) -> Next {
        let due = |live: &Live| {
            let Phase::Queued { cluster } = &live.row.state.phase else { return None };
            self.waiting(&live.row, cluster).until()
        };
        let spills = self.live.values().filter_map(due);
        let keep = SignedDuration::try_from(self.settings.keep_objects).unwrap_or(SignedDuration::MAX);
        let cleanings = self.past.values().filter_map(|past| match past {
            Past::Over { at, .. } => at.checked_add(keep).ok(),
            Past::Unknown => None,
        });
        let starts = self.live.values().filter_map(|live| self.start_due(&live.row, decided));
        let ends = self.live.values().filter_map(|live| decide::run_due(&live.row, live.in_part));
        let rests = self.live.values().filter_map(|live| live.rest.as_ref().map(|rest| rest.until));
        let later = |at: &Timestamp| decided < *at;
        match spills
            .chain(cleanings)
            .chain(starts)
            .chain(rests)
            .chain(ends)
            .chain(self.awaited.ends())
            .filter(later)
            .min()
        {
            None => Next::AtPeriod,
            Some(at) => {
                let wait =
                    Duration::try_from(at.duration_since(self.context.clock.now())).unwrap_or_default();
                Next::After(wait + Duration::from_millis(1))
            }
        }
    }

    fn view(&self, live: &Live, joined: &JoinedClusters) -> TaskView {
        let row = &live.row;
        let name = row.state.phase.cluster();
        let cluster = self.cluster_of(row).filter(|_| name.is_some());
        let seen = cluster.map(|cluster| {
            if is_dispatched(row) {
                self.observe_dispatched(cluster, row)
            } else {
                decide::observe(cluster, row)
            }
        });
        let workload = cluster.and_then(|cluster| cluster.index.workload(row));
        let mut view = decide::view(live, seen.as_ref(), workload);
        if is_dispatched(row) {
            view.cluster = self.landed(row).cloned();
        }
        let lost = lost_volume(&self.volumes, row);
        view.pending_reason = match (&row.state.phase, &seen, name) {
            (Phase::Pending, ..) => {
                let waits = row.stage.as_ref().and_then(Stage::waits);
                let judged = waits.or_else(|| live.judged.as_ref().map(|(_, reason)| reason.clone()));
                Some(judged.unwrap_or_else(|| "a cluster is being chosen for it".to_owned()))
            }
            (Phase::Starting { .. }, ..) if lost.is_some() => lost,
            (phase, Some(seen), Some(name)) => {
                let silent = joined.get(name).filter(|entry| !entry.connection.is_writable());
                let silent = silent.filter(|_| !is_dispatched(row));
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
        if let (Phase::Lost { cluster, before }, Some(reason), Some((_, judged))) =
            (&row.state.phase, &mut view.pending_reason, &live.judged)
            && self.is_given_away(joined, cluster, *before)
        {
            *reason = format!("{reason}; another cluster takes it over once one can: {judged}");
        }
        view
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

/// Whether its pods may be about to start.
fn is_starting(live: &Live) -> bool {
    matches!(live.row.state.phase, Phase::Queued { .. } | Phase::Starting { .. })
}

/// Gives what the pods need to the cluster that MultiKueue put a task on.
fn equip(
    live: &Live,
    (name, cluster): (&ClusterName, &Cluster),
    (maker, values): (&Maker<'_>, &mut dyn FnMut() -> Option<Arc<Contents>>),
    plan: &mut Plan,
) {
    let (Some(dispatch), Some(here)) = (&live.row.dispatch, cluster.index.of(&live.row)) else { return };
    let of = Dispatching { task: &live.row, dispatch };
    let owned = of.owned();
    if owned.is_empty() {
        return;
    }
    let place = Some(name.clone());
    plan.need(&place, owned);
    let ours = here.copies.iter().filter(|job| job.epoch() == Some(live.row.state.epoch));
    let owners: Vec<_> = ours.filter(|job| !job.metadata.going).collect();
    plan.add(&place, wishes::create_owned(of, &owners, &cluster.target, (maker, values)));
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
    contents: &mut dyn FnMut() -> Option<Arc<Contents>>,
) -> Vec<Change> {
    let row = &live.row;
    let here = cluster.index.of(row);
    if let Some(of) = being_dispatched(live) {
        return wishes::create(of, here.as_deref(), &cluster.target, maker, contents);
    }
    match (&row.state.phase, here) {
        (Phase::Withdrawing { .. }, Some(here)) => wishes::withdraw(here.jobs.iter()),
        _ => Vec::new(),
    }
}

/// With what the cluster said to the last try of a write.
fn tried(live: &Live, cluster: Option<&Cluster>, reason: &str) -> String {
    let (Some(of), Some(cluster)) = (being_dispatched(live), cluster) else { return reason.to_owned() };
    let failure = of.mains().iter().chain(&of.owned()).find_map(|object| cluster.target.failure(object));
    failure.map_or_else(|| reason.to_owned(), |failure| format!("{reason}: {failure}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{
        rest::Rest,
        testing::{controller, row},
    };
    use fedq_domain::task::{
        testing::cluster_name,
        upload::{Archive, Digest, Upload},
    };

    #[test]
    fn files_of_few_tasks_are_in_memory_at_a_time_and_those_that_failed_hold_up_nobody() {
        let (one, two) = (Some(cluster_name("one")), Some(cluster_name("two")));
        let bringing = |number: u64, bytes: u64| {
            let archive = Archive { digest: Digest::of([0; 32]), bytes, file: false };
            let mut row = row("run: x\n", Phase::Pending);
            row.id = TaskId::draw(number);
            row.spec.uploads = vec![Upload { path: "~/a".to_owned(), archive }];
            row
        };
        let mut loads = Loads::default();
        let half = BYTES_AT_ONCE / 2;
        assert!(loads.admits(&bringing(1, half), &one, true));
        assert!(!loads.admits(&bringing(2, BYTES_AT_ONCE), &one, true));
        for (number, place, admitted) in [(3, &one, true), (4, &one, true), (5, &one, false), (6, &two, true)]
        {
            assert_eq!(loads.admits(&bringing(number, half), place, false), admitted, "{number}");
        }
        assert!(loads.admits(&bringing(7, 0), &one, false), "one with secrets only takes no room");
        assert!(loads.admits(&bringing(8, 2 * BYTES_AT_ONCE), &None, false), "by itself it has its turn");
        let used: BTreeSet<TaskId> = [1, 3, 4, 6, 7, 8].map(TaskId::draw).into();
        assert_eq!(loads.used.into_iter().collect::<BTreeSet<_>>(), used);
    }

    #[tokio::test]
    async fn what_becomes_due_while_it_is_decided_is_not_left_until_the_next_period() {
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let (mut controller, _ground) = controller().await;
        controller.keep(row("run: x\n", Phase::Pending));
        let live = controller.live.values_mut().next().expect("the task");
        live.rest = Some(Rest { until: at(10), from: None, reason: String::new() });
        assert_eq!(controller.next_look(at(9)), Next::After(Duration::from_millis(1)));
        assert_eq!(controller.next_look(at(10)), Next::AtPeriod, "that was decided with");
    }
}
