//! The status of every claim, written when it says something new.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    domain::{
        claim_status::{Condition, ConditionKind, HubCell, StatusInput, Verdict, WriteState, claim_status},
        cluster::Connection,
        ids::{ClaimName, ClusterName},
        overview::ClusterCapacity,
        queue::report::{Problem, QueueReport},
        quota::Assignment,
        resources::{Cell, FlavorResource},
    },
    k8s::{
        claims::{ReadClaim, conditions, status_change},
        events::Happening,
        types::claim::ClusterResourceClaim,
        worker::Joined,
        write::{Change, Kind},
    },
};

use super::{QuotaController, Round, target::Target};

/// A write is mostly acknowledged in a moment; a status that says it is under way would be written for
/// nothing, and once more when it is through.
const MOMENT: Duration = Duration::from_millis(250);

/// What is known of the claims' statuses from one round to the next.
pub(super) struct Statuses {
    underway: Underway,
    found: BTreeMap<ClaimName, Found>,
}

/// What a claim is to say, and what that was found from.
struct Found {
    basis: Basis,
    conditions: Arc<Vec<Condition>>,
    status: Status,
}

impl Found {
    /// Whether it would be found again.
    fn stands(&self, basis: &Basis, now: Instant) -> bool {
        let due = matches!(self.status, Status::Waits(until) if until <= now);
        !due && self.basis.is(basis)
    }
}

impl Statuses {
    pub fn new(merge_window: Duration) -> Self {
        Self { underway: Underway::new(merge_window), found: BTreeMap::new() }
    }

    /// In this round each is made anew, so that nothing that was missed stays missed.
    pub fn look_at_all(&mut self) {
        self.found.clear();
    }
}

/// What a status is made from, beside the plan. A round looks anew at those claims for which something of it
/// changed: each takes longer than a plan.
struct Basis {
    object: Arc<ClusterResourceClaim>,
    verdict: Verdict,
    connection: Option<Connection>,
    capacity: Option<Arc<ClusterCapacity>>,
    reports: Vec<QueueReport>,
    /// Cells of its queues that the hub does not hold yet as they should be.
    behind: BTreeMap<Cell, HubCell>,
}

impl Basis {
    fn of(round: &Round<'_>, claim: &ReadClaim, cluster: Option<&ClusterName>) -> Self {
        let mut behind = hub_cells(round, &claim.input.assignments);
        behind.retain(|_, cell| cell.observed != Some(cell.target));
        Self {
            object: Arc::clone(&claim.object),
            verdict: claim.verdict.clone(),
            connection: cluster.and_then(|name| round.joined.get(name)).map(Joined::told),
            capacity: cluster.and_then(|name| round.capacity.get(name)).cloned(),
            reports: cluster.and_then(|name| round.reports.get(name)).cloned().unwrap_or_default(),
            behind,
        }
    }

    fn is(&self, other: &Self) -> bool {
        let same_capacity = match (&self.capacity, &other.capacity) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_capacity
            && Arc::ptr_eq(&self.object, &other.object)
            && self.verdict == other.verdict
            && self.connection == other.connection
            && self.reports == other.reports
            && self.behind == other.behind
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

/// Whether quota is on its way, and nobody needs to do anything for it.
fn is_underway(conditions: &[Condition]) -> bool {
    conditions.iter().any(|condition| {
        condition.kind == ConditionKind::QuotaSynced
            && matches!(condition.reason.as_str(), "Writing" | "Unconfirmed")
    })
}

impl QuotaController {
    pub(super) fn status_changes(&mut self, round: &mut Round<'_>, hub: &Target) -> Vec<Change> {
        let queues =
            hub.writer.failures().into_iter().filter(|(target, _)| target.kind == Kind::ClusterQueue);
        let failures: BTreeMap<String, String> =
            queues.map(|(target, reason)| (format!("{target} on the hub"), reason)).collect();
        let mut statuses = std::mem::replace(&mut self.statuses, Statuses::new(Duration::ZERO));
        statuses.underway.since.retain(|name, _| round.claims.contains_key(name));
        let mut before = std::mem::take(&mut statuses.found);
        let (mut changes, mut due, mut said) = (Vec::new(), None, BTreeMap::new());
        let now = Instant::now();
        for (name, claim) in &round.claims {
            let cluster = ClusterName::new(&claim.cluster).ok();
            let basis = Basis::of(round, claim, cluster.as_ref());
            let quiet = failures.is_empty() && self.is_quiet(round, cluster.as_ref());
            let known = before.remove(name).filter(|known| quiet && known.stands(&basis, now));
            let found = known.unwrap_or_else(|| {
                let underway = &mut statuses.underway;
                let (status, conditions) = self.status_change(round, (name, claim), &failures, underway);
                Found { basis, conditions: Arc::new(conditions), status }
            });
            said.insert(name.clone(), Arc::clone(&found.conditions));
            match &found.status {
                Status::Same => {}
                Status::Waits(until) => due = [due, Some(*until)].into_iter().flatten().min(),
                Status::Changes(change) => changes.push(change.clone()),
            }
            // While something is being written this was found from more than the basis.
            if failures.is_empty() && self.nothing_is_written(round, cluster.as_ref()) {
                statuses.found.insert(name.clone(), found);
            }
        }
        (self.statuses, round.said) = (statuses, said);
        round.look_again(due);
        changes
    }

    /// Whether neither plan nor writes of this round concern the cluster's claim.
    fn is_quiet(&self, round: &Round<'_>, cluster: Option<&ClusterName>) -> bool {
        !cluster.is_some_and(|cluster| round.touched.clusters.contains(cluster))
            && self.nothing_is_written(round, cluster)
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
        let assignments = &claim.input.assignments;
        let joined = name.as_ref().and_then(|name| round.joined.get(name));
        let plan = name.as_ref().filter(|_| claim.in_force()).and_then(|name| round.plans.get(name));
        let previous = conditions(&claim.object);
        let connection = joined.map(Joined::told);
        let input = StatusInput {
            generation: claim.object.metadata.generation.unwrap_or_default(),
            cluster: &claim.cluster,
            verdict: &claim.verdict,
            assignments,
            caps: &claim.input.caps,
            connection: connection.as_ref(),
            capacity: name.as_ref().and_then(|name| round.capacity.get(name)).map(AsRef::as_ref),
            plan: plan.map(|(plan, _)| plan),
            report: plan.map(|(_, report)| report),
            hub: &hub_cells(round, assignments),
            writes: &self.write_state(round, name.as_ref(), assignments, hub_failures),
            queues: &name.as_ref().map(|name| problems(round, name)).unwrap_or_default(),
            aliases: &self.settings.aliases,
            now: self.clock.now(),
            previous: &previous,
        };
        let status = claim_status(&input);
        if let Some(until) = underway.waits(claim_name, &previous, &status.conditions, Instant::now()) {
            return (Status::Waits(until), status.conditions);
        }
        let Some(change) = status_change(&claim.object, &status, &self.settings.aliases) else {
            return (Status::Same, status.conditions);
        };
        if let Some((happening, note)) = news(&previous, &status.conditions) {
            self.outputs.events.tell(&claim.object, happening, note, input.now);
        }
        (Status::Changes(change), status.conditions)
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
            for (target, reason) in target.writer.failures() {
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
        for assignment in assignments {
            let on_hub = format!("clusterqueues {} on the hub", assignment.queue);
            state.failed.extend(hub_failures.get_key_value(&on_hub).map(|(k, v)| (k.clone(), v.clone())));
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

fn hub_cells(round: &Round<'_>, assignments: &[Assignment]) -> BTreeMap<Cell, HubCell> {
    let mut found = BTreeMap::new();
    for cell in assignments.iter().flat_map(cells) {
        let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
        let planned = round.queues.get(&cell.queue).and_then(|queue| queue.cells.get(&at));
        if let Some(planned) = planned {
            found.insert(cell, HubCell { target: planned.target, observed: planned.observed });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::domain::claim_status::Truth;

    const WINDOW: Duration = Duration::from_secs(1);

    fn synced(word: &str) -> Vec<Condition> {
        vec![Condition {
            kind: ConditionKind::QuotaSynced,
            status: if word == "Synced" { Truth::True } else { Truth::False },
            reason: word.to_owned(),
            message: String::new(),
            observed_generation: 1,
            last_transition: Timestamp::UNIX_EPOCH,
        }]
    }

    /// Statuses at these milliseconds, as rounds would come to them; those that are written.
    fn written(rounds: &[(u64, &'static str)]) -> Vec<&'static str> {
        let (claim, start) = (ClaimName::new("eu-west").expect("a name"), Instant::now());
        let mut underway = Underway::new(WINDOW);
        let (mut before, mut written) = (synced("Synced"), Vec::new());
        for (millis, word) in rounds {
            let (now, at) = (synced(word), start + Duration::from_millis(*millis));
            if underway.waits(&claim, &before, &now, at).is_none() && before != now {
                before = now;
                written.push(*word);
            }
        }
        written
    }

    #[test]
    fn a_write_that_is_acknowledged_in_a_moment_costs_one_status() {
        let rounds = [(0, "Writing"), (20, "Writing"), (40, "Unconfirmed"), (60, "Writing"), (90, "Synced")];
        assert_eq!(written(&rounds), [""; 0], "the same status as before: none");
        assert_eq!(
            written(&[(0, "Writing"), (50, "WriteFailed"), (60, "Writing"), (70, "Synced")]),
            ["WriteFailed", "Synced"]
        );
    }

    #[test]
    fn a_write_that_takes_long_is_told() {
        let rounds =
            [(0, "Writing"), (900, "Writing"), (1250, "Writing"), (1300, "Writing"), (2000, "Synced")];
        assert_eq!(written(&rounds), ["Writing", "Synced"]);
        // Told since the first of them, however often it went from one to the other.
        assert_eq!(written(&[(0, "Writing"), (1000, "Unconfirmed"), (1250, "Unconfirmed")]), ["Unconfirmed"]);
        // Two changes, each quick.
        let rounds =
            [(0, "Writing"), (100, "Synced"), (1200, "Writing"), (1300, "Writing"), (1400, "Synced")];
        assert_eq!(written(&rounds), [""; 0]);
    }

    #[test]
    fn the_first_status_of_a_claim_waits_for_nothing() {
        let mut underway = Underway::new(WINDOW);
        let (claim, now) = (ClaimName::new("eu-west").expect("a name"), Instant::now());
        assert_eq!(underway.waits(&claim, &[], &synced("Writing"), now), None);
        assert_eq!(
            underway.waits(&claim, &synced("Synced"), &synced("Writing"), now),
            Some(now + WINDOW + MOMENT)
        );
    }
}
