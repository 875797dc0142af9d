//! The status of every claim, written when it says something new.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use fedq_domain::{
    claim_status::{ClaimStatus, Condition, ConditionKind, HubCell, StatusInput, WriteState, claim_status},
    cluster::Connection,
    overview::ClusterCapacity,
    queue::report::{Problem, QueueReport, QueueReports},
    quota::{Assignment, HubCellPlan, HubQueuePlan, Mode},
    resources::{Cell, FlavorResource},
};
use fedq_k8s::{
    claims::{ReadClaim, conditions, status_change},
    events::Happening,
    follow::TableSet,
    read::quota_place::cohort_of,
    write::{Change, Kind, Target as WriteTarget},
};
use fedq_values::ids::{ClaimName, ClusterName, QueueName};

use super::{
    PERIOD, QuotaController, Round,
    in_turn::{InOrder, Turns},
    target::Target,
    tell::PATIENCE,
};
use crate::memo::verify;

/// A write is mostly acknowledged in a moment; a status that says it is under way would be written for
/// nothing, and once more when it is through.
const MOMENT: Duration = Duration::from_millis(250);

/// What is known of the claims' statuses from one round to the next.
pub(super) struct Statuses {
    underway: Underway,
    found: BTreeMap<ClaimName, Found>,
    /// Those that are made anew, so that nothing that was missed stays missed.
    turns: Turns<ClaimName>,
    /// What each claim is to say, whether or not it says so yet.
    pub said: BTreeMap<ClaimName, Arc<Vec<Condition>>>,
}

/// What a claim is to say, and what that was found from.
struct Found {
    basis: Basis,
    conditions: Arc<Vec<Condition>>,
    status: Status,
    /// While something is being written it was found from more than the basis.
    stands: bool,
}

impl Found {
    fn is_due(&self, now: Instant) -> bool {
        matches!(self.status, Status::Waits(until) if until <= now)
    }
}

impl Statuses {
    pub fn new(merge_window: Duration) -> Self {
        Self {
            underway: Underway::new(merge_window),
            found: BTreeMap::new(),
            turns: Turns::new(PERIOD),
            said: BTreeMap::new(),
        }
    }

    #[cfg(test)]
    pub fn wait_for_nothing(&mut self) {
        self.underway.patience = Duration::ZERO;
    }

    pub fn look_at_all(&mut self) {
        self.found.clear();
    }
}

/// What a status is made from, beside the plan. A round looks anew at those claims for which something of it
/// changed: each takes longer than a plan.
struct Basis {
    claim: Arc<ReadClaim>,
    cluster: Option<ClusterName>,
    connection: Option<Connection>,
    capacity: Option<Arc<ClusterCapacity>>,
    reports: Vec<QueueReport>,
    /// Cells of its queues that the hub does not hold yet as they should be.
    behind: BTreeMap<Cell, HubCell>,
}

impl Basis {
    fn of(
        round: &Round<'_>,
        claim: &Arc<ReadClaim>,
        cluster: Option<&ClusterName>,
        behind: &Behind<'_>,
    ) -> Self {
        Self {
            claim: Arc::clone(claim),
            cluster: cluster.cloned(),
            connection: cluster.and_then(|name| round.joined.get(name)).map(|joined| joined.told()),
            capacity: cluster.and_then(|name| round.capacity.get(name)).cloned(),
            reports: cluster.and_then(|name| round.reports.get(name)).cloned().unwrap_or_default(),
            behind: behind.of(claim).collect(),
        }
    }

    /// Whether it would be the same in this round, but for cells of the hub: each round asks that of every claim.
    fn stands(&self, round: &Round<'_>, claim: &Arc<ReadClaim>, cluster: Option<&ClusterName>) -> bool {
        let same_capacity = match (&self.capacity, cluster.and_then(|name| round.capacity.get(name))) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let same_connection = match (&self.connection, cluster.and_then(|name| round.joined.get(name))) {
            (Some(told), Some(joined)) => joined.tells(told),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let same_claim = Arc::ptr_eq(&self.claim, claim)
            || Arc::ptr_eq(&self.claim.object, &claim.object) && self.claim.verdict == claim.verdict;
        same_capacity && same_connection && same_claim && self.is_reported(&round.reports)
    }

    fn is_reported(&self, reports: &QueueReports) -> bool {
        let reports = self.cluster.as_ref().and_then(|name| reports.get(name));
        self.reports == *reports.map_or(&[][..], Vec::as_slice)
    }
}

/// Cells of the hub that do not hold yet what they should.
struct Behind<'a>(BTreeMap<&'a QueueName, BTreeMap<&'a FlavorResource, HubCell>>);

impl<'a> Behind<'a> {
    fn in_round(round: &'a Round<'_>) -> Self {
        let cells = |name: &QueueName, plan: &'a HubQueuePlan| -> BTreeMap<&'a FlavorResource, HubCell> {
            let behind = plan.cells.iter().filter(|(_, cell)| cell.observed != Some(cell.target));
            behind.map(|(at, cell)| (at, hub_cell(round, name, cell))).collect()
        };
        let queues = round.queues.iter().map(|(name, plan)| (name, cells(name, plan)));
        Self(queues.filter(|(_, cells)| !cells.is_empty()).collect())
    }

    fn are(&self, known: &BTreeMap<Cell, HubCell>, claim: &ReadClaim) -> bool {
        self.0.is_empty() && known.is_empty() || self.of(claim).collect::<BTreeMap<_, _>>() == *known
    }

    fn concerns(&self, claim: &ReadClaim) -> bool {
        !self.0.is_empty() && claim.input.assignments.iter().any(|one| self.0.contains_key(&one.queue))
    }

    /// Those that the claim names.
    fn of(&self, claim: &ReadClaim) -> impl Iterator<Item = (Cell, HubCell)> {
        let named = claim.input.assignments.iter().filter(|one| self.0.contains_key(&one.queue));
        named.flat_map(cells).filter_map(|cell| {
            let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
            let found = self.0.get(&&cell.queue)?.get(&&at)?.clone();
            Some((cell, found))
        })
    }
}

/// The claims whose status would say that a write is under way, since when, and nothing was written of it.
pub(super) struct Underway {
    /// A write that waits for the merge window is no news either.
    patience: Duration,
    since: BTreeMap<ClaimName, Instant>,
}

impl Underway {
    pub fn new(merge_window: Duration) -> Self {
        Self { patience: merge_window + MOMENT, since: BTreeMap::new() }
    }

    /// When to look at the claim again, if its status can wait.
    fn waits(
        &mut self,
        claim: &ClaimName,
        before: &[Condition],
        now: &[Condition],
        at: Instant,
    ) -> Option<Instant> {
        if before.is_empty() || !is_underway(now) || is_underway(before) {
            self.since.remove(claim);
            return None;
        }
        let due = *self.since.entry(claim.clone()).or_insert(at) + self.patience;
        (at < due).then_some(due)
    }
}

impl Underway {
    /// The hub's cells are shared by many claims, and mostly hold what they should in a moment: until when a claim of
    /// which nothing else is new can be left as it is.
    fn can_wait(&mut self, claim: &ClaimName, known: &Found, at: Instant) -> Option<Instant> {
        let said_so = !known.basis.behind.is_empty() || is_underway(&known.conditions);
        if said_so || !matches!(known.status, Status::Same) {
            return None;
        }
        let due = *self.since.entry(claim.clone()).or_insert(at) + self.patience;
        (at < due).then_some(due)
    }

    /// Nothing is new.
    fn settles(&mut self, claim: &ClaimName, known: &Found) {
        if matches!(known.status, Status::Same) && !is_underway(&known.conditions) {
            self.since.remove(claim);
        }
    }
}

/// Whether quota is on its way, and nobody needs to do anything for it.
fn is_underway(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| {
        condition.kind == ConditionKind::QuotaSynced
            && matches!(condition.reason.as_str(), "Writing" | "Unconfirmed")
    })
}

impl QuotaController {
    pub(super) fn status_changes(&mut self, round: &mut Round<'_>, hub: &Target) -> Vec<Change> {
        let of_quota = |target: &WriteTarget| matches!(target.kind, Kind::ClusterQueue | Kind::Cohort);
        let queues = hub.writer.shortfalls().into_iter().filter(|(target, _)| of_quota(target));
        let failures: BTreeMap<String, String> =
            queues.map(|(target, reason)| (format!("{target} on the hub"), reason)).collect();
        let mut statuses = std::mem::replace(&mut self.statuses, Statuses::new(Duration::ZERO));
        let (mut changes, mut due) = (Vec::new(), None);
        let mut said = std::mem::take(&mut round.said);
        let now = Instant::now();
        for name in statuses.turns.next(&round.claims, now) {
            statuses.found.remove(&name);
        }
        let behind = Behind::in_round(round);
        let calm = failures.is_empty() && round.conflicts.is_empty();
        let mut found = InOrder::of(&statuses.found);
        let mut rests = |(name, claim): &(&ClaimName, &Arc<ReadClaim>)| {
            let is_calm = calm && !behind.concerns(claim) && !statuses.underway.since.contains_key(*name);
            is_calm && found.get(name).is_some_and(|found| self.is_at_rest(found, claim, round))
        };
        let claims = Arc::clone(&round.claims);
        let mut restless: Vec<_> = claims.iter().collect();
        restless.retain(|claim| !rests(claim));
        if cfg!(debug_assertions) {
            let rests = |name: &&ClaimName| restless.binary_search_by_key(name, |(name, _)| *name).is_err();
            for name in claims.keys().filter(rests) {
                self.verify_found(round, &statuses.found[name], &failures);
            }
        }
        for (name, claim) in restless {
            let cluster = ClusterName::new(&claim.cluster).ok();
            let quiet = failures.is_empty() && self.is_quiet(round, cluster.as_ref());
            let stands = |known: &Found| {
                quiet
                    && known.stands
                    && !known.is_due(now)
                    && known.basis.stands(round, claim, cluster.as_ref())
                    && (!matches!(known.status, Status::Starts)
                        || self.is_being_read(round, cluster.as_ref()))
            };
            let known = statuses.found.remove(name).filter(stands);
            let known = known.filter(|known| {
                if behind.are(&known.basis.behind, claim) {
                    self.verify_found(round, known, &failures);
                    statuses.underway.settles(name, known);
                    return true;
                }
                let until = statuses.underway.can_wait(name, known, now);
                due = [due, until].into_iter().flatten().min();
                until.is_some()
            });
            let mut found = known.unwrap_or_else(|| {
                let basis = Basis::of(round, claim, cluster.as_ref(), &behind);
                let underway = &mut statuses.underway;
                let (status, conditions) = self.status_change(round, (name, claim), &failures, underway);
                Found { basis, conditions: Arc::new(conditions), status, stands: false }
            });
            said.insert(name.clone(), Arc::clone(&found.conditions));
            match &found.status {
                Status::Same => {}
                Status::Waits(until) => due = [due, Some(*until)].into_iter().flatten().min(),
                Status::Starts => due = [due, Some(self.started + PATIENCE)].into_iter().flatten().min(),
                Status::Changes(change) => changes.push(change.clone()),
            }
            found.stands = failures.is_empty() && self.nothing_is_written(round, cluster.as_ref());
            statuses.found.insert(name.clone(), found);
        }
        if round.claims.len() < said.len() {
            said.retain(|name, _| round.claims.contains_key(name));
            statuses.found.retain(|name, _| round.claims.contains_key(name));
            statuses.underway.since.retain(|name, _| round.claims.contains_key(name));
        }
        drop(behind);
        (self.statuses, round.said) = (statuses, said);
        round.look_again(due);
        changes
    }

    /// Whether nothing that a claim's status is made from has changed since it was found to be as it should be: that is
    /// so for nearly all claims in nearly all rounds, and has to be found in a moment.
    fn is_at_rest(&self, found: &Found, claim: &Arc<ReadClaim>, round: &Round<'_>) -> bool {
        let Found { basis, status: Status::Same, stands: true, .. } = found else { return false };
        // Where nothing is planned, nobody looks at which clusters something is new of.
        if !self.planned {
            return false;
        }
        let news = |cluster: &ClusterName| {
            self.told.fresh.contains(cluster)
                || round.touched.clusters.contains(cluster)
                || self.kept.writing.contains(cluster)
        };
        Arc::ptr_eq(&basis.claim, claim)
            && basis.behind.is_empty()
            && !basis.cluster.as_ref().is_some_and(news)
            && basis.is_reported(&round.reports)
    }

    /// In debug builds: whether a claim says what it is to say, and what was found is what would be found now.
    fn verify_found(&self, round: &Round<'_>, known: &Found, hub_failures: &BTreeMap<String, String>) {
        if !cfg!(debug_assertions) || !matches!(known.status, Status::Same) {
            return;
        }
        let cluster = known.basis.cluster.as_ref();
        let since_ever = |conditions: &[Condition]| -> Vec<Condition> {
            let at = |condition: &Condition| Condition {
                last_transition: jiff::Timestamp::UNIX_EPOCH,
                ..condition.clone()
            };
            conditions.iter().map(at).collect()
        };
        let afresh = || {
            let claim = &known.basis.claim;
            let status = self.status(round, claim, hub_failures, &conditions(&claim.object));
            let is_said = status_change(&claim.object, &status, &self.settings.aliases).is_none();
            (since_ever(&status.conditions), is_said)
        };
        verify(&(since_ever(&known.conditions), true), afresh, || self.nothing_is_written(round, cluster));
    }

    /// Whether neither plan nor writes of this round concern the cluster's claim.
    fn is_quiet(&self, round: &Round<'_>, cluster: Option<&ClusterName>) -> bool {
        !cluster.is_some_and(|cluster| round.touched.clusters.contains(cluster))
            && self.nothing_is_written(round, cluster)
    }

    /// Whether this daemon has just started and does not know yet what the cluster says.
    fn is_being_read(&self, round: &Round<'_>, cluster: Option<&ClusterName>) -> bool {
        let Some(joined) = cluster.and_then(|name| round.joined.get(name)) else { return false };
        let told = cluster.and_then(|name| self.told.clusters.get(name));
        let capacity = cluster.and_then(|name| round.capacity.get(name));
        let has_old_nodes = told.is_some_and(|told| told.nodes_are_old)
            && capacity.is_some_and(|capacity| !capacity.was_read);
        let is_unread = match (&joined.connection, &joined.worker) {
            (Connection::Connecting, _) => true,
            // As it was when this round's plan was made, not as it is by now.
            (Connection::Ready, Some(worker)) => {
                (has_old_nodes || told.is_some_and(|told| told.treated_as() == Mode::Frozen))
                    && !worker.is_refused()
                    && !joined.is_without_kueue()
            }
            _ => false,
        };
        is_unread
            && self.started.elapsed() < PATIENCE
            && (has_old_nodes || !cluster.is_some_and(|name| self.recorded.knows(name)))
    }

    fn nothing_is_written(&self, round: &Round<'_>, cluster: Option<&ClusterName>) -> bool {
        let target = cluster.and_then(|cluster| self.targets.get(cluster));
        let concerns =
            |place: &str| place == "hub" || cluster.is_some_and(|cluster| cluster.as_str() == place);
        !round.conflicts.keys().any(|(place, _)| concerns(place))
            && target.is_none_or(|target| target.writer.wants_nothing())
    }

    fn status_change(
        &self,
        round: &Round<'_>,
        (claim_name, claim): (&ClaimName, &ReadClaim),
        hub_failures: &BTreeMap<String, String>,
        underway: &mut Underway,
    ) -> (Status, Vec<Condition>) {
        let name = ClusterName::new(&claim.cluster).ok();
        let previous = conditions(&claim.object);
        let status = self.status(round, claim, hub_failures, &previous);
        // A start is no news: what was said of this generation stands until the cluster has answered.
        let is_said = |condition: &Condition| condition.observed_generation == status.observed_generation;
        if !previous.is_empty() && previous.iter().all(is_said) && self.is_being_read(round, name.as_ref()) {
            return (Status::Starts, status.conditions);
        }
        if let Some(until) = underway.waits(claim_name, &previous, &status.conditions, Instant::now()) {
            return (Status::Waits(until), status.conditions);
        }
        let Some(change) = status_change(&claim.object, &status, &self.settings.aliases) else {
            return (Status::Same, status.conditions);
        };
        if let Some((happening, note)) = news(&previous, &status.conditions) {
            self.outputs.events.tell(&claim.object, happening, note, self.context.clock.now());
        }
        (Status::Changes(change), status.conditions)
    }

    fn status(
        &self,
        round: &Round<'_>,
        claim: &ReadClaim,
        hub_failures: &BTreeMap<String, String>,
        previous: &[Condition],
    ) -> ClaimStatus {
        let name = ClusterName::new(&claim.cluster).ok();
        let assignments = &claim.input.assignments;
        let joined = name.as_ref().and_then(|name| round.joined.get(name));
        let plan = name.as_ref().filter(|_| claim.in_force()).and_then(|name| round.plans.get(name));
        let connection = joined.map(|joined| joined.told());
        claim_status(&StatusInput {
            generation: claim.object.metadata.generation.unwrap_or_default(),
            cluster: &claim.cluster,
            verdict: &claim.verdict,
            assignments,
            caps: &claim.input.caps,
            connection: connection.as_ref(),
            hub_has_kueue: self.planned,
            capacity: name.as_ref().and_then(|name| round.capacity.get(name)).map(AsRef::as_ref),
            plan: plan.map(|(plan, _)| plan),
            report: plan.map(|(_, report)| report),
            hub: &hub_cells(round, assignments),
            writes: &self.write_state(round, name.as_ref(), assignments, hub_failures),
            queues: &name.as_ref().map(|name| problems(round, name)).unwrap_or_default(),
            aliases: &self.settings.aliases,
            now: self.context.clock.now(),
            previous,
        })
    }

    fn write_state(
        &self,
        round: &Round<'_>,
        cluster: Option<&ClusterName>,
        assignments: &[Assignment],
        hub_failures: &BTreeMap<String, String>,
    ) -> WriteState {
        let mut state = WriteState::default();
        let target = cluster.and_then(|cluster| self.targets.get(cluster).map(|target| (cluster, target)));
        if let Some((cluster, target)) = target {
            for (target, reason) in target.writer.shortfalls() {
                state.failed.insert(format!("{target} on {cluster}"), reason);
            }
            state
                .pending
                .extend(target.writer.wanted().iter().map(|target| format!("{target} on {cluster}")));
        }
        for report in cluster.and_then(|cluster| round.reports.get(cluster)).into_iter().flatten() {
            if let (Problem::NotWritten { object, reason }, Some(cluster)) = (&report.problem, cluster) {
                state.failed.insert(format!("{object} on {cluster}"), reason.clone());
            }
        }
        if cluster.is_some_and(|cluster| self.told.waiting.contains(cluster)) {
            let named = assignments.iter().filter(|one| !self.told.queues.contains_key(&one.queue));
            let unreadable = named.filter_map(|one| round.unreadable.get_key_value(&one.queue));
            state.unreadable = unreadable.map(|(queue, why)| (queue.clone(), why.clone())).collect();
        }
        for assignment in assignments {
            let queue = &assignment.queue;
            let cohort = cohort_of(queue.as_str());
            for on_hub in
                [format!("clusterqueues {queue} on the hub"), format!("cohorts {cohort} on the hub")]
            {
                let failure = hub_failures.get_key_value(&on_hub);
                state.failed.extend(failure.map(|(object, why)| (object.clone(), why.clone())));
            }
            let places = ["hub".to_owned()].into_iter().chain(cluster.map(ToString::to_string));
            for place in places {
                if let Some(who) = round.conflicts.get(&(place, assignment.queue.to_string())) {
                    state.conflicts.extend(cells(assignment).map(|cell| (cell, who.clone())));
                }
            }
        }
        state
    }
}

/// What is to be done about a claim's status.
enum Status {
    Same,
    Waits(Instant),
    /// It waits until the cluster is read.
    Starts,
    Changes(Change),
}

/// What keeps the queues of a cluster from working. What could not be written is told with the writes.
pub(super) fn problems(round: &Round<'_>, cluster: &ClusterName) -> Vec<QueueReport> {
    let reports = round.reports.get(cluster).into_iter().flatten();
    reports.filter(|report| !matches!(report.problem, Problem::NotWritten { .. })).cloned().collect()
}

/// What of a new status deserves an event: the claim got ready, or something else than before keeps it
/// from being so.
fn news(before: &[Condition], now: &[Condition]) -> Option<(Happening, String)> {
    let find =
        |conditions: &[Condition], kind| conditions.iter().find(|condition| condition.kind == kind).cloned();
    let overcommitted = find(now, ConditionKind::Overcommitted);
    if let Some(condition) = overcommitted.filter(|_| find(before, ConditionKind::Overcommitted).is_none()) {
        return Some((Happening::OverCommitted, condition.message));
    }
    let (before, now) = (find(before, ConditionKind::Ready), find(now, ConditionKind::Ready)?);
    let same = before.as_ref().is_some_and(|before| {
        (before.status, &before.reason, before.observed_generation)
            == (now.status, &now.reason, now.observed_generation)
    });
    if same {
        return None;
    }
    let was_lost = before.is_some_and(|before| matches!(before.reason.as_str(), "Lost" | "Stale"));
    let happening = match now.reason.as_str() {
        "Ready" if was_lost => Happening::Returned,
        "Ready" => Happening::QuotaApplied,
        "Draining" => Happening::Draining,
        "Lost" | "Stale" => Happening::Lost,
        "Conflict" | "QuotaConflict" => Happening::Conflict,
        _ => return None,
    };
    Some((happening, now.message))
}

fn cells(assignment: &Assignment) -> impl Iterator<Item = Cell> + '_ {
    assignment.resources.keys().map(|resource| Cell {
        queue: assignment.queue.clone(),
        flavor: assignment.flavor.clone(),
        resource: resource.clone(),
    })
}

fn hub_cell(round: &Round<'_>, queue: &QueueName, cell: &HubCellPlan) -> HubCell {
    let left_alone = round.left_alone.get(queue).cloned();
    HubCell { target: cell.target, observed: cell.observed, left_alone }
}

fn hub_cells(round: &Round<'_>, assignments: &[Assignment]) -> BTreeMap<Cell, HubCell> {
    let mut found = BTreeMap::new();
    for cell in assignments.iter().flat_map(cells) {
        let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
        let planned = round.queues.get(&cell.queue).and_then(|queue| queue.cells.get(&at));
        if let Some(planned) = planned {
            let hub_cell = hub_cell(round, &cell.queue, planned);
            found.insert(cell, hub_cell);
        }
    }
    found
}

#[cfg(test)]
mod tests;
