//! The next move of each task.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use fedq_domain::{
    cluster::Connection,
    task::{
        choose::{Outcome, Placement, Waiting, avoided, spill},
        limits::Usage,
        names::{TaskId, object_name},
        phase::{Before, LostPolicy, Move, Phase},
        progress::{self, End, Fault, Observed, Step},
        record::NodeCounts,
        render::{Gang, main_names},
        runtime::Runtime,
        view::{NodePhase, TaskView},
    },
};
use fedq_k8s::worker::JoinedClusters;
use fedq_store::{Dispatch, TaskRow, VolumeRow};
use fedq_values::ids::ClusterName;

use super::{
    Cluster, Decided, HUB, Live, Rest, TaskController,
    awaited::Coming,
    chooser::{self, Chooser},
    gather::{self, InFlight, Routes},
    index::Expected,
    job_sets,
    on_hub::{is_dispatched, route},
    wishes::Dispatching,
};

impl TaskController {
    pub(super) fn decide(
        &mut self,
        joined: &JoinedClusters,
        volumes: &[VolumeRow],
        now: Timestamp,
    ) -> Vec<(TaskId, Decided)> {
        let clusters = &self.clusters;
        let runs = |name: &ClusterName| {
            let cluster = clusters.get(name);
            let job_sets = cluster.is_some_and(|cluster| cluster.job_sets.answer() == Some(true));
            (job_sets, cluster.map(Cluster::runtime).unwrap_or_default())
        };
        let routes = self.gathered.routes(&self.context.hub);
        let mut fleet = self.gathered.read(joined, &self.capacity.borrow(), runs);
        fleet.by_multikueue = Arc::clone(&routes);
        fleet.hub_has_app_wrappers = self.hub_has_app_wrappers();
        fleet.usage = self.usage();
        self.left_behind.close(|name, row| self.stays(name, row, joined), &mut fleet);
        let in_flight = self.in_flight(&fleet);
        let mut chooser = Chooser::new(fleet, in_flight, volumes);
        if !self.more_come(&chooser.fleet.unknown, joined, now) {
            chooser.fleet.coming.clear();
        }
        self.gathered.replace(chooser.fleet.clone());
        let mut decided = Vec::new();
        // What already has a place in mind comes first, then the order of submission.
        let mut ids: Vec<(bool, Timestamp, TaskId)> = self
            .live
            .iter()
            .map(|(id, live)| (live.destined.is_none(), live.row.submitted, id.clone()))
            .collect();
        ids.sort();
        for (_, _, id) in ids {
            let row = Arc::clone(&self.live[&id].row);
            self.note_parts(&id, joined, now);
            let step = match &row.state.phase {
                Phase::Pending => self.place(&id, &mut chooser, &routes, now),
                _ if is_dispatched(&row) => {
                    self.note_landed(&id);
                    self.follow_on_hub(&id)
                }
                Phase::Lost { cluster, before } => {
                    let step = self.after_loss(&id, joined, cluster, *before);
                    if step.is_none() && self.is_given_away(joined, cluster, *before) {
                        self.place(&id, &mut chooser, &routes, now)
                    } else {
                        step
                    }
                }
                phase => match phase.cluster() {
                    Some(cluster) => self.follow(&id, (cluster, joined), (&mut chooser, now)),
                    None => None,
                },
            };
            decided.extend(step.map(|step| (id, step)));
        }
        decided
    }

    /// Whether a task that would wait may as well wait for clusters that are about to be known.
    fn more_come(
        &mut self,
        unknown: &BTreeSet<ClusterName>,
        joined: &JoinedClusters,
        now: Timestamp,
    ) -> bool {
        let coming = |name: &ClusterName| Some((name.clone(), Coming::of(joined.get(name)?)?));
        let coming: BTreeMap<_, _> = unknown.iter().filter_map(coming).collect();
        let more_come = self.awaited.look(&coming, now);
        if std::mem::replace(&mut self.more_come, more_come) != more_come {
            // What was judged with it is judged again without.
            self.gathered.revision += 1;
        }
        more_come
    }

    /// Of tenants with limits.
    fn usage(&self) -> BTreeMap<String, Usage> {
        let limits = self.settings.limits.iter();
        let mut usage: BTreeMap<String, Usage> =
            limits.map(|(namespace, limits)| (namespace.clone(), Usage::of(*limits))).collect();
        if usage.is_empty() {
            return usage;
        }
        let live = self.live.values().map(|live| &live.row);
        for row in live.chain(self.left_behind.rows()) {
            if let Some(usage) = usage.get_mut(&row.namespace) {
                usage.add(&row.owner, row.takes());
            }
        }
        usage
    }

    /// What tasks take that Kueue does not count yet: dispatched and not admitted, or on their way elsewhere.
    fn in_flight(&self, fleet: &fedq_domain::task::fleet::Fleet) -> InFlight {
        let mut in_flight = InFlight::new();
        for live in self.live.values() {
            let row = &live.row;
            let placement = match &row.state.phase {
                Phase::Dispatching { .. } | Phase::Queued { .. } => {
                    row.dispatch.as_ref().map(|dispatch| &dispatch.placement)
                }
                Phase::Withdrawing { .. } => live.destined.as_ref(),
                Phase::Pending
                | Phase::Starting { .. }
                | Phase::Running { .. }
                | Phase::Lost { .. }
                | Phase::Succeeded { .. }
                | Phase::Failed { .. }
                | Phase::Stopped => None,
            };
            let Some(placement) = placement else { continue };
            let cluster = self.cluster_of(row);
            if cluster.is_some_and(|cluster| cluster.index.is_reserved(row)) {
                continue;
            }
            let cells = gather::takes(fleet, &row.namespace, &row.spec, placement);
            gather::add(&mut in_flight, &placement.cluster, cells);
        }
        self.left_behind.count(&self.clusters, fleet, &mut in_flight);
        in_flight
    }

    fn place(
        &mut self,
        id: &TaskId,
        chooser: &mut Chooser<'_>,
        routes: &Routes,
        now: Timestamp,
    ) -> Option<Decided> {
        let revision = self.gathered.revision;
        let live = self.live.get_mut(id)?;
        if is_settled(live, chooser, (revision, now)) {
            return None;
        }
        let row = live.row.clone();
        let spilled = live.destined.is_some();
        let was = row.dispatch.as_ref().map(|dispatch| dispatch.placement.cluster.clone());
        let avoid = was.and_then(|was| avoided(&row.spec, was, spilled));
        let rest = live.rest.clone();
        let without = rest.as_ref().and_then(|rest| rest.from.as_ref());
        let choice = match chooser.choose(&row, avoid, without) {
            Ok(choice) => choice,
            Err(reason) => {
                live.judged = Some((revision, reason));
                return None;
            }
        };
        let lost = match row.state.phase {
            Phase::Lost { before, .. } => Some(before),
            _ => None,
        };
        let to = |cluster| if lost.is_some() { Move::Replace(cluster) } else { Move::Dispatch(cluster) };
        match &choice.outcome {
            Outcome::Run(placement) if !placement.now && !chooser.fleet.coming.is_empty() => {
                live.judged = Some((revision, "waits for clusters that are being connected".to_owned()));
                None
            }
            // It would be ended, once its cluster is back, for a place in a queue.
            Outcome::Run(placement) if !placement.now && lost.is_some_and(Before::has_quota) => {
                live.judged = Some((revision, format!("it would wait on {}", placement.cluster)));
                None
            }
            // The answer comes in a moment, and decides on the form of the task.
            Outcome::Run(placement) if job_sets::is_asked(&self.clusters, &row, placement) => None,
            Outcome::Run(placement)
                if row.spec.is_app_wrapper()
                    && route(&row, placement, routes).is_some()
                    && let Some(no_route) = chooser.fleet.no_route(&row.namespace, &placement.queue)
                    && !(row.spec.may_unwrap() && no_route.stays()) =>
            {
                live.judged = Some((revision, no_route.to_string()));
                None
            }
            Outcome::Run(placement) => {
                let mut dispatch = self.dispatch(&row, placement, chooser);
                chooser.take(&row, placement);
                if let Some(clusters) = route(&row, placement, routes) {
                    dispatch.by_multikueue = true;
                    if dispatch.gang == Gang::JobSet && !self.has_jobsets(clusters, chooser) {
                        dispatch.gang = Gang::Indexed;
                    }
                    if row.spec.may_unwrap() {
                        let no_route = chooser.fleet.no_route(&row.namespace, &placement.queue);
                        dispatch.gang = if no_route.is_some() { Gang::Unwrapped } else { Gang::AppWrapper };
                    }
                    let hub = ClusterName::new(HUB).expect("a constant name is valid");
                    let step = Step::new(to(hub), Some("MultiKueue dispatches it".to_owned()));
                    return decided(&row, step, Some(dispatch), None);
                }
                let detail = if placement.now { "it has room now" } else { "it will wait there for quota" };
                let step = Step::new(to(placement.cluster.clone()), Some(detail.to_owned()));
                decided(&row, step, Some(dispatch), None)
            }
            // It was accepted, and quota and queues come back: what cannot hold it now may do so later.
            Outcome::Wait | Outcome::Limited(_) | Outcome::Never => {
                if let Outcome::Limited(excess) = &choice.outcome {
                    live.limited = Some(excess.clone());
                    chooser.wait(&row, Some(excess));
                }
                let unknown: Vec<&str> = chooser.fleet.unknown.iter().map(ClusterName::as_str).collect();
                let undecided = || progress::undecided(&choice, &unknown);
                live.judged = Some((revision, rest.map_or_else(undecided, |rest| rest.reason)));
                None
            }
        }
    }

    fn dispatch(&self, row: &TaskRow, placement: &Placement, chooser: &Chooser<'_>) -> Dispatch {
        let member = chooser.fleet.clusters.get(&placement.cluster);
        let has_jobsets = member.is_some_and(|member| member.has_jobsets);
        let auto = Gang::auto(row.spec.num_nodes, true, has_jobsets);
        // One node has no gang to be made of.
        let of_script = || self.settings.gang.filter(|_| 1 < row.spec.num_nodes).unwrap_or(auto);
        let has_no_runtime = member.is_some_and(|member| matches!(member.app_wrappers, Runtime::None(_)));
        let gang = match row.spec.is_app_wrapper() {
            true if has_no_runtime && row.spec.may_unwrap() => Gang::Unwrapped,
            true => Gang::AppWrapper,
            false => of_script(),
        };
        let priority = row.spec.priority.as_ref();
        Dispatch {
            placement: placement.clone(),
            gang,
            priority_class: priority.and_then(|priority| member?.priority_class(priority)),
            by_multikueue: false,
            spills: row.dispatch.as_ref().map_or(0, |dispatch| dispatch.spills),
            landed: None,
            started: None,
        }
    }

    /// A lost cluster answers again, or can never again.
    fn after_loss(
        &self,
        id: &TaskId,
        joined: &JoinedClusters,
        cluster: &ClusterName,
        before: Before,
    ) -> Option<Decided> {
        let row = &self.live.get(id)?.row;
        let to = if let Some(entry) = joined.get(cluster) {
            let back = entry.connection == Connection::Ready && self.usable(cluster, joined).is_some();
            back.then_some(Move::ClusterBack)?
        } else {
            // Somebody let go of it, which is their word that nothing of it counts any more.
            let given_up = matches!(before, Before::Withdrawing(_));
            (given_up || self.settings.lost_policy != LostPolicy::Wait).then_some(Move::Fenced)?
        };
        decided(row, Step::new(to, None), row.dispatch.clone(), None)
    }

    /// Whether another cluster is to take it over, though the lost one may still run it.
    pub(super) fn is_given_away(
        &self,
        joined: &JoinedClusters,
        cluster: &ClusterName,
        before: Before,
    ) -> bool {
        let is_silent = joined.get(cluster).is_some_and(|entry| entry.connection.is_silent_for_long());
        is_silent && before.goes_on() && self.settings.lost_policy == LostPolicy::Requeue
    }

    /// A cluster of which it is known for sure what is there.
    pub(super) fn usable(&self, name: &ClusterName, joined: &JoinedClusters) -> Option<&Cluster> {
        self.clusters.get(name).filter(|cluster| cluster.keeps(name, joined))
    }

    /// Keeps since when a task whose time is limited runs in part. What cannot be seen now stands as it was seen.
    fn note_parts(&mut self, id: &TaskId, joined: &JoinedClusters, now: Timestamp) {
        let Some(live) = self.live.get(id) else { return };
        let row = &live.row;
        let Phase::Starting { cluster } = &row.state.phase else { return };
        if row.spec.max_duration.is_none() {
            return;
        }
        let seen = if is_dispatched(row) {
            self.place.as_ref().map(|hub| self.observe_dispatched(hub, row))
        } else {
            self.usable(cluster, joined).map(|cluster| observe(cluster, row))
        };
        let Some(runs) = seen.map(|seen| progress::runs_in_part(&seen)) else { return };
        if let Some(live) = self.live.get_mut(id) {
            live.in_part = runs.then(|| live.in_part.unwrap_or(now));
        }
    }

    fn follow(
        &self,
        id: &TaskId,
        (name, joined): (&ClusterName, &JoinedClusters),
        (chooser, now): (&mut Chooser<'_>, Timestamp),
    ) -> Option<Decided> {
        let live = self.live.get(id)?;
        let row = &live.row;
        let connection = joined.get(name).map(|entry| &entry.connection);
        if matches!(connection, None | Some(Connection::Lost { .. })) {
            let step = Step::new(Move::ClusterLost, None);
            return decided(row, step, row.dispatch.clone(), live.destined.clone());
        }
        let cluster = self.usable(name, joined)?;
        if is_app_wrapper(row) && !cluster.index.has_app_wrappers {
            return None;
        }
        let mut seen = observe(cluster, row);
        seen.refused = seen.refused.or_else(|| self.contents.gone(id));
        if let Some(step) = progress::next(&row.state.phase, &seen, (&row.spec.recovery, row.restarts)) {
            let nodes = over(&step, &seen, row);
            let mut next = decided(row, step, row.dispatch.clone(), live.destined.clone())?;
            next.nodes = nodes;
            return Some(next);
        }
        let step = self.stuck(row, &seen, now).or_else(|| overdue((row, live.in_part), &seen, now));
        if let Some(step) = step {
            return decided(row, step, row.dispatch.clone(), None);
        }
        self.spill(live, joined, (chooser, now))
    }

    /// Moves a task that waits to where there is room.
    fn spill(
        &self,
        live: &Live,
        joined: &JoinedClusters,
        (chooser, now): (&mut Chooser<'_>, Timestamp),
    ) -> Option<Decided> {
        let row = &live.row;
        let Phase::Queued { cluster } = &row.state.phase else { return None };
        if joined.get(cluster).is_some_and(|entry| entry.leaving) {
            return decided(row, Step::new(Move::Spill, None), row.dispatch.clone(), None);
        }
        if self.cluster_of(row).is_some_and(|at| at.index.is_reserved(row)) {
            // It has its quota; what it waits for are checks, which may take long.
            return None;
        }
        let waiting = self.waiting(row, cluster);
        if waiting.until().is_none_or(|until| now < until) {
            return None;
        }
        let choice = chooser.choose(row, Some(cluster.clone()), None).ok()?;
        let to = spill(&waiting, now, &choice)?;
        let placement = chooser::run(&choice)?.clone();
        chooser.take(row, &placement);
        let step = Step::new(Move::Spill, Some(format!("{to} has room")));
        let mut dispatch = row.dispatch.clone()?;
        dispatch.spills = dispatch.spills.saturating_add(1);
        decided(row, step, Some(dispatch), Some(placement))
    }

    /// An AppWrapper's own controller starts it anew.
    fn stuck(&self, row: &TaskRow, seen: &Observed, now: Timestamp) -> Option<Step> {
        if row.spec.wrapped.is_some() {
            return None;
        }
        let starting = Duration::try_from(now.duration_since(row.changed)).unwrap_or_default();
        let step = progress::stuck(&row.state.phase, seen, (starting, self.settings.start_timeout))?;
        // Its pods wait for what is not there any more, whatever the scheduler makes of that.
        let lost = chooser::lost_volume(&self.volumes, row);
        Some(Step { detail: lost.or(step.detail), ..step })
    }

    pub(super) fn waiting(&self, row: &TaskRow, cluster: &ClusterName) -> Waiting {
        Waiting {
            cluster: cluster.clone(),
            since: row.changed,
            spill_after: row.spec.spill_after.unwrap_or(self.settings.spill_after),
            spills: row.dispatch.as_ref().map_or(0, |dispatch| dispatch.spills),
        }
    }
}

/// Whether there is nothing to judge a task by that it was not judged by already.
fn is_settled(live: &mut Live, chooser: &mut Chooser<'_>, (revision, now): (u64, Timestamp)) -> bool {
    if live.row.stage.as_ref().is_some_and(|stage| stage.waits_for.is_some()) {
        return true;
    }
    if live.rest.as_ref().is_some_and(|rest| rest.until <= now) {
        (live.rest, live.judged) = (None, None);
    }
    if live.judged.as_ref().is_some_and(|(judged, _)| *judged == revision) {
        // It keeps its place before those that came later.
        chooser.wait(&live.row, live.limited.as_ref());
        return true;
    }
    live.limited = None;
    if let Some(Rest { from: None, reason, .. }) = &live.rest {
        live.judged = Some((revision, reason.clone()));
        return true;
    }
    false
}

/// Whoever counts the time for it, fedqd does: of all forms of tasks alike, and also of one that MultiKueue moved.
pub(super) fn overdue(
    (row, in_part): (&TaskRow, Option<Timestamp>),
    seen: &Observed,
    now: Timestamp,
) -> Option<Step> {
    let since = running_since(row, in_part)?;
    let running = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    progress::overdue(&row.state.phase, seen, (running, row.spec.max_duration))
}

fn running_since(row: &TaskRow, in_part: Option<Timestamp>) -> Option<Timestamp> {
    let started = || row.dispatch.as_ref().and_then(|dispatch| dispatch.started);
    match row.state.phase {
        Phase::Running { .. } => Some(started().unwrap_or(row.changed)),
        Phase::Starting { .. } => started().or(in_part),
        _ => None,
    }
}

/// When a task that runs, be it in part, has done so for as long as it may.
pub(super) fn run_due(row: &TaskRow, in_part: Option<Timestamp>) -> Option<Timestamp> {
    let most = SignedDuration::try_from(row.spec.max_duration?).ok()?;
    running_since(row, in_part)?.checked_add(most).ok()
}

/// A step that was decided from what may be old is left out: the next look has what is new.
pub(super) fn decided(
    row: &TaskRow,
    step: Step,
    dispatch: Option<Dispatch>,
    destined: Option<Placement>,
) -> Option<Decided> {
    let to = row.state.clone().next(step.to.clone()).ok()?;
    Some(Decided { step, to, dispatch, destined, nodes: row.nodes })
}

/// Whether its object is an AppWrapper.
pub(super) fn is_app_wrapper(row: &TaskRow) -> bool {
    row.dispatch.as_ref().is_some_and(|dispatch| dispatch.gang == Gang::AppWrapper)
}

/// What is seen of a task on its cluster, writes under way included.
pub(super) fn observe(cluster: &Cluster, row: &TaskRow) -> Observed {
    let Some(dispatch) = &row.dispatch else { return Observed::default() };
    let of = Dispatching { task: row, dispatch };
    let object = object_name(row.spec.name.as_deref(), &row.id, row.spec.num_nodes);
    let expected = Expected {
        epoch: row.state.epoch,
        objects: main_names(dispatch.gang, &object, row.spec.num_nodes).len(),
        nodes: row.spec.num_nodes,
    };
    let mut seen = cluster.index.observe(row, expected);
    leave_to_controller(row, &mut seen);
    let target = &cluster.target;
    match &row.state.phase {
        Phase::Dispatching { .. } => {
            let found = cluster.index.of(row);
            let here = || found.iter().flat_map(|here| here.of(row.state.epoch));
            // What is there was refused at an earlier try.
            let mains = of.mains().into_iter();
            let mains = mains.filter(|object| here().all(|(_, job)| job.metadata.name != object.name));
            let missing: Vec<_> = mains.chain(of.owned()).collect();
            seen.refused = missing.iter().find_map(|object| target.refusal(object));
            seen.turned_away = missing.iter().find_map(|object| target.turned_away(object));
            let owner = here().next();
            seen.complete = owner.is_some_and(|(_, job)| {
                of.owned().iter().all(|object| target.has_made(object, &job.metadata.uid))
            });
        }
        Phase::Withdrawing { .. } => {
            seen.left += of.mains().iter().filter(|object| cluster.sent.contains(object)).count();
        }
        Phase::Starting { .. } => seen.unmade = cluster.unmade(row, &seen),
        Phase::Pending
        | Phase::Queued { .. }
        | Phase::Running { .. }
        | Phase::Lost { .. }
        | Phase::Succeeded { .. }
        | Phase::Failed { .. }
        | Phase::Stopped => {}
    }
    seen
}

/// Who makes what was handed in makes pods anew that were ended; what it says at last is the end.
pub(super) fn leave_to_controller(row: &TaskRow, seen: &mut Observed) {
    if row.spec.wrapped.is_none() {
        return;
    }
    seen.disrupted = false;
    if let Some(End::Failed { fault, .. }) = &mut seen.end {
        *fault = Fault::Program;
    }
}

/// How its nodes ended, if this is its end.
pub(super) fn over(step: &Step, seen: &Observed, row: &TaskRow) -> Option<NodeCounts> {
    match &step.to {
        Move::Succeeded => Some(NodeCounts { succeeded: row.spec.num_nodes, ..NodeCounts::default() }),
        Move::ProgramFailed { restart: false } => {
            let of = |phase: NodePhase| seen.nodes.iter().filter(|node| node.phase == phase).count();
            let count = |phase: NodePhase| u32::try_from(of(phase)).unwrap_or_default();
            Some(NodeCounts {
                succeeded: count(NodePhase::Succeeded),
                failed: count(NodePhase::Failed).max(1),
                running: 0,
            })
        }
        _ => row.nodes,
    }
}

/// Kept with the view of a task, so that publishing needs no second look.
pub(super) fn view(live: &Live, seen: Option<&Observed>, workload: Option<String>) -> TaskView {
    let row = &live.row;
    let dispatch = row.dispatch.as_ref();
    TaskView {
        state: row.state.clone(),
        cluster: row.state.phase.cluster().cloned(),
        queue: dispatch.map(|dispatch| dispatch.placement.queue.clone()).or_else(|| row.queue.clone()),
        gang: dispatch.map(|dispatch| dispatch.gang),
        workload,
        nodes: seen.map(|seen| seen.nodes.clone()).unwrap_or_default(),
        pending_reason: None,
    }
}

/// Of a cluster that is not connected.
pub(super) fn nothing() -> Observed {
    Observed::default()
}

#[cfg(test)]
mod tests;
