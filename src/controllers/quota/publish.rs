//! What the API and the webhook read: published whole when it differs, made anew where it may.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use fedq_domain::{
    claim::Owner,
    claim_status::{Condition, ConditionKind, heaviest, reason_word},
    conflict,
    overview::{
        AssignmentOverview, CellOverview, ClaimOverview, ClusterCapacity, ClusterOverview, Conflict,
        FlavorOverview, Overview, QueueOverview, TermOverview,
    },
    queue::report::QueueReport,
    quota::{CellPlan, ClusterReport, HubCellPlan, HubQueuePlan, Touched, WorkerCell},
    resource_groups::ResourceGroups,
    resources::{Cell, FlavorResource, Resources},
};
use fedq_k8s::{
    claims::ReadClaim,
    follow::TableSet,
    read::managed::{managed_overview, unjoined},
    worker::Joined,
};
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

use super::{QuotaController, Round};
use crate::{
    driver::Share,
    memo::{Identity, verify},
};

/// What people read waits no longer than this for writes that are to come first.
const PATIENCE: Duration = Duration::from_millis(250);
/// Where it takes less, nothing waits for it.
const NOTICED: Duration = Duration::from_millis(2);

/// When what people read is made. It is about everything, and must not hold up what a change leads to.
#[derive(Default)]
pub(super) struct Publishing {
    /// Before that, it would take up too much of the time.
    not_before: Option<Instant>,
    /// Since when a round is not in it.
    waits_since: Option<Instant>,
    last_took: Duration,
    /// Not told yet.
    took: Duration,
    /// Whose plans are not those of what was made last.
    touched: Touched,
    made: Made,
}

/// What was made last, and from what.
#[derive(Default)]
struct Made {
    clusters: BTreeMap<ClusterName, (ClusterBasis, Arc<ClusterOverview>)>,
    claims: BTreeMap<ClaimName, (ClaimBasis, Arc<ClaimOverview>)>,
    queues: BTreeMap<QueueName, Arc<QueueOverview>>,
}

/// What an overview of a cluster is made from, but its plan.
#[derive(PartialEq)]
struct ClusterBasis {
    joined: Identity<Joined>,
    /// None until that is known.
    kueue: Option<bool>,
    capacity: Option<Identity<ClusterCapacity>>,
    claim: Option<ClaimName>,
}

impl ClusterBasis {
    fn of(round: &Round<'_>, name: &ClusterName, joined: &Arc<Joined>) -> Self {
        let worker = joined.worker.as_ref().filter(|worker| worker.synced());
        Self {
            joined: Identity::of(joined),
            kueue: worker.map(|worker| worker.has_kueue()),
            capacity: Identity::of_some(round.capacity.get(name)),
            claim: round.in_force.get(name).map(|claim| claim.name().clone()),
        }
    }
}

/// What an overview of a claim is made from, but its cluster and that one's plan.
#[derive(PartialEq)]
struct ClaimBasis {
    claim: Identity<ReadClaim>,
    said: Option<Identity<Vec<Condition>>>,
}

impl Publishing {
    /// `None`: now. `writes`: whether more rounds are about to follow from this one.
    fn waits(&mut self, writes: bool, now: Instant) -> Option<Instant> {
        let since = *self.waits_since.get_or_insert(now);
        let comes_first = (writes && NOTICED <= self.last_took).then_some(since + PATIENCE);
        self.not_before.max(comes_first).filter(|until| now < *until)
    }

    /// What making it took of the time since this was last asked.
    pub fn took(&mut self) -> Duration {
        std::mem::take(&mut self.took)
    }

    fn made(&mut self, began: Instant) {
        self.last_took = began.elapsed();
        self.took += self.last_took;
        self.waits_since = None;
        self.not_before = Some(Instant::now() + Share::TENTH.pause(self.last_took));
    }
}

impl QuotaController {
    pub(super) fn publish_in_time(&mut self, round: &mut Round<'_>, writes: bool) {
        self.note_touched(round);
        let began = Instant::now();
        if let Some(until) = self.publishing.waits(writes, began) {
            return round.look_again(Some(until));
        }
        self.publish(round);
        self.publishing.made(began);
    }

    pub(super) fn note_touched(&mut self, round: &Round<'_>) {
        let touched = &mut self.publishing.touched;
        touched.clusters.extend(round.touched.clusters.iter().chain(&self.told.altered).cloned());
        touched.queues.extend(round.touched.queues.iter().cloned());
    }

    fn publish(&mut self, round: &Round<'_>) {
        let overview = self.overview(round);
        if cfg!(debug_assertions) {
            let afresh = self.overview_afresh(round);
            // Whether a cluster has Kueue, and what is not joined, is read as it is at the moment.
            verify(&overview, || afresh, || self.overview(round) == overview);
        }
        self.outputs.overview.send_if_modified(|current| {
            let overview = Overview { revision: current.revision, ..overview };
            // A hub without queues and claims looks like no overview at all, and is known all the same:
            // readiness waits for the first revision.
            let changed = current.revision == 0 || **current != overview;
            if changed {
                *current = Arc::new(Overview { revision: current.revision + 1, ..overview });
            }
            changed
        });
    }

    /// What did not change since it was made last is that very thing.
    pub(super) fn overview(&mut self, round: &Round<'_>) -> Overview {
        let mut touched = std::mem::take(&mut self.publishing.touched);
        let mut made = std::mem::take(&mut self.publishing.made);
        made.clusters = clusters(round, made.clusters, &mut touched.clusters);
        made.claims = claims(round, made.claims, &touched.clusters);
        made.queues = self.queues(round, made.queues, &touched);
        let overview = Overview {
            revision: 0,
            clusters: made
                .clusters
                .iter()
                .map(|(name, (_, made))| (name.clone(), Arc::clone(made)))
                .collect(),
            claims: made.claims.iter().map(|(name, (_, made))| (name.clone(), Arc::clone(made))).collect(),
            queues: made.queues.clone(),
            managed: unjoined(&self.context.hub, &self.context.hub_id, round.joined)
                .into_iter()
                .map(|(name, managed)| (name, managed_overview(&managed)))
                .collect(),
            in_force: self
                .accepted
                .claims()
                .map(|claim| (claim.name().clone(), claim.cluster().clone()))
                .collect(),
            held_claims: self.accepted.held().clone(),
            held_clusters: self
                .accepted
                .claims()
                .filter(|claim| self.accepted.held().contains(claim.name()))
                .map(|claim| claim.cluster().clone())
                .collect(),
        };
        self.publishing.made = made;
        overview
    }

    /// As when nothing was ever made.
    pub(super) fn overview_afresh(&mut self, round: &Round<'_>) -> Overview {
        let made = std::mem::take(&mut self.publishing.made);
        let overview = self.overview(round);
        self.publishing.made = made;
        overview
    }

    fn queues(
        &self,
        round: &Round<'_>,
        mut before: BTreeMap<QueueName, Arc<QueueOverview>>,
        touched: &Touched,
    ) -> BTreeMap<QueueName, Arc<QueueOverview>> {
        let of = |(name, plan): (&QueueName, &HubQueuePlan)| {
            let head = self.queue_head(round, name, plan);
            let concerns = |at: &FlavorResource| {
                self.planner.clusters_of(&cell_of(name, at)).any(|cluster| touched.clusters.contains(cluster))
            };
            let overview = match before.remove(name) {
                Some(known)
                    if !touched.queues.contains(name)
                        && !plan.cells.keys().any(concerns)
                        && known.says_beside_cells(&head) =>
                {
                    known
                }
                _ => Arc::new(QueueOverview { cells: self.cells(round, name, plan), ..head }),
            };
            (name.clone(), overview)
        };
        round.queues.iter().map(of).collect()
    }

    /// All but its cells.
    fn queue_head(&self, round: &Round<'_>, name: &QueueName, plan: &HubQueuePlan) -> QueueOverview {
        let object = self.told.hub_objects.get(name);
        let untouched = plan.untouched.as_ref().map(ToString::to_string);
        let untouched = untouched.or_else(|| round.left_alone.get(name).cloned());
        let quota_cohort = self.told.cohorts.get(name).map(|cohort| cohort.name.clone());
        let found = self.told.queues.get(name).map_or(&plan.groups, |found| &found.groups);
        let conflicts = conflicts(round, name, (plan, found), quota_cohort.as_deref());
        let conflict = conflicts.get(&None).map(|conflict| conflict.message.clone());
        QueueOverview {
            cohort: object.and_then(|object| object.spec.cohort_name.clone()),
            quota_cohort,
            untouched: untouched.or(conflict).or_else(|| round.unreadable.get(name).cloned()),
            conflicts,
            problems: queue_problems(round, name),
            cells: BTreeMap::new(),
        }
    }

    fn cells(
        &self,
        round: &Round<'_>,
        name: &QueueName,
        plan: &HubQueuePlan,
    ) -> BTreeMap<(FlavorName, ResourceName), CellOverview> {
        let cell = |(at, cell): (&FlavorResource, &HubCellPlan)| {
            let key = (at.flavor.clone(), at.resource.clone());
            let terms = self.terms_of_cell(round, name, at);
            let overview = CellOverview {
                nominal: cell.observed.unwrap_or_default(),
                base: cell.base,
                target: cell.target,
                terms,
            };
            (key, overview)
        };
        plan.cells.iter().map(cell).collect()
    }

    fn terms_of_cell(
        &self,
        round: &Round<'_>,
        queue: &QueueName,
        at: &FlavorResource,
    ) -> BTreeMap<ClusterName, TermOverview> {
        let cell = cell_of(queue, at);
        let term = |name: &ClusterName| {
            let planned = round.plans.get(name)?.0.cells.get(&cell)?;
            let connection = round.joined.get(name).map(|joined| &joined.connection);
            let worker = self.worker_cell(name, queue, at);
            let overview = TermOverview {
                requested: planned.requested,
                effective: planned.effective,
                worker_nominal: worker.map(|worker| worker.nominal),
                reserved: worker.map(|worker| worker.reserved).unwrap_or_default(),
                term: planned.term,
                reason: reason_word(&planned.reason, connection).to_owned(),
            };
            Some((name.clone(), overview))
        };
        self.planner.clusters_of(&cell).filter_map(term).collect()
    }

    fn worker_cell(
        &self,
        cluster: &ClusterName,
        queue: &QueueName,
        at: &FlavorResource,
    ) -> Option<WorkerCell> {
        let queues = &self.told.clusters.get(cluster)?.worker_queues;
        queues.iter().find(|input| input.name == *queue && input.ours)?.cells.get(at).copied()
    }
}

/// Adds those to `touched` that are joined in another way than before.
fn clusters(
    round: &Round<'_>,
    mut before: BTreeMap<ClusterName, (ClusterBasis, Arc<ClusterOverview>)>,
    touched: &mut BTreeSet<ClusterName>,
) -> BTreeMap<ClusterName, (ClusterBasis, Arc<ClusterOverview>)> {
    let mut made = BTreeMap::new();
    for (name, joined) in round.joined {
        let basis = ClusterBasis::of(round, name, joined);
        let overview = match before.remove(name) {
            Some((known, overview)) if known == basis && !touched.contains(name) => overview,
            known => {
                if known.is_none_or(|(known, _)| known.joined != basis.joined) {
                    touched.insert(name.clone());
                }
                Arc::new(cluster(round, name, &basis))
            }
        };
        made.insert(name.clone(), (basis, overview));
    }
    touched.extend(before.into_keys());
    made
}

fn claims(
    round: &Round<'_>,
    mut before: BTreeMap<ClaimName, (ClaimBasis, Arc<ClaimOverview>)>,
    touched: &BTreeSet<ClusterName>,
) -> BTreeMap<ClaimName, (ClaimBasis, Arc<ClaimOverview>)> {
    let mut made = BTreeMap::new();
    for (name, claim) in &*round.claims {
        let basis = ClaimBasis { claim: Identity::of(claim), said: Identity::of_some(round.said.get(name)) };
        let overview = match before.remove(name) {
            Some((known, overview)) if known == basis && !touched.contains(&overview.cluster) => overview,
            _ => match claim_overview(round, &basis) {
                Some(overview) => Arc::new(overview),
                None => continue,
            },
        };
        made.insert(name.clone(), (basis, overview));
    }
    made
}

fn cell_of(queue: &QueueName, at: &FlavorResource) -> Cell {
    Cell { queue: queue.clone(), flavor: at.flavor.clone(), resource: at.resource.clone() }
}

fn cluster(round: &Round<'_>, name: &ClusterName, basis: &ClusterBasis) -> ClusterOverview {
    let ClusterBasis { joined, kueue, capacity, claim } = basis;
    let capacity = capacity.as_ref();
    let report = round.plans.get(name).map(|(_, report)| report);
    let flavors: BTreeMap<FlavorName, FlavorOverview> = report
        .into_iter()
        .flat_map(|report| &report.flavors)
        .map(|(name, uses)| {
            let pick = |field: fn(&fedq_domain::quota::FlavorUse) -> Amount| {
                uses.iter().map(|(resource, usage)| (resource.clone(), field(usage))).collect::<Resources>()
            };
            let mut coming = pick(|usage| usage.coming);
            coming.retain(|_, amount| !amount.is_zero());
            let overview = FlavorOverview {
                capacity: pick(|usage| usage.capacity),
                coming,
                assigned: pick(|usage| usage.assigned),
                unassigned: pick(|usage| usage.unassigned),
            };
            (name.clone(), overview)
        })
        .collect();
    ClusterOverview {
        connection: joined.told(),
        cordoned: joined.cordoned,
        source: joined.source,
        joined: joined.joined_at,
        server: joined.server.clone(),
        kubernetes_version: joined.kubernetes_version.clone(),
        kueue_version: kueue
            .map(|is_there| if is_there { "v1beta2".to_owned() } else { "absent".to_owned() }),
        credential_expires: joined.credential_expires,
        last_seen: joined.last_seen.clone(),
        nodes: capacity.map(|known| known.nodes).unwrap_or_default(),
        capacity: capacity.map(|known| known.capacity.total.clone()).unwrap_or_default(),
        coming: capacity.map(|known| known.capacity.to_come.clone()).unwrap_or_default(),
        foreign: report.map(foreign).unwrap_or_default(),
        flavors,
        claim: claim.clone(),
    }
}

fn foreign(report: &ClusterReport) -> Resources {
    let mut sums = Resources::new();
    let uses = report.flavors.values().flatten();
    for (resource, usage) in uses.filter(|(_, usage)| !usage.foreign.is_zero()) {
        let resource: &ResourceName = resource;
        let sum = sums.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(usage.foreign);
    }
    sums
}

fn assignment_overview(
    round: &Round<'_>,
    cluster: &ClusterName,
    assignment: &fedq_domain::claim::Assignment,
) -> AssignmentOverview {
    let plan = round.plans.get(cluster).map(|(plan, _)| plan);
    let cells = assignment.resources.keys().filter_map(|resource| {
        let cell = Cell {
            queue: assignment.queue.clone(),
            flavor: assignment.flavor.clone(),
            resource: resource.clone(),
        };
        Some((resource.clone(), plan?.cells.get(&cell)?))
    });
    let cells: Vec<_> = cells.collect();
    let connection = round.joined.get(cluster).map(|joined| &joined.connection);
    let reason = heaviest(cells.iter().map(|(_, planned)| *planned), connection);
    let own = |(resource, planned): &(ResourceName, &CellPlan)| {
        let own = reason_word(&planned.reason, connection);
        (own != reason).then(|| (resource.clone(), own))
    };
    AssignmentOverview {
        queue: assignment.queue.clone(),
        flavor: assignment.flavor.clone(),
        requested: assignment.resources.clone(),
        effective: cells.iter().map(|(resource, planned)| (resource.clone(), planned.effective)).collect(),
        reason: reason.to_owned(),
        reasons: cells.iter().filter_map(own).collect(),
        message: String::new(),
    }
}

/// Who else writes the queue's quota, by where it is.
fn conflicts(
    round: &Round<'_>,
    name: &QueueName,
    (plan, found): (&HubQueuePlan, &ResourceGroups),
    cohort: Option<&str>,
) -> BTreeMap<Option<ClusterName>, Conflict> {
    let of = |((place, queue), writers): (&(String, String), &conflict::Writers)| {
        if *queue != name.as_str() {
            return None;
        }
        let cluster = match place.as_str() {
            "hub" => None,
            cluster => Some(ClusterName::new(cluster).ok()?),
        };
        let remedy = match &cluster {
            None => match cohort {
                Some(cohort) => conflict::remedy_in_cohort(writers, cohort),
                None => conflict::remedy(writers, name, found, plan.managed.keys()),
            },
            Some(cluster) => conflict::remedy_on_worker(writers, name, cluster),
        };
        let message = format!("{writers} keeps changing what fedq writes into it");
        Some((cluster, Conflict { message, remedy }))
    };
    round.conflicts.iter().filter_map(of).collect()
}

fn notes(conditions: &[Condition]) -> Vec<(String, String, String)> {
    let passing = conditions.iter().filter(|condition| ConditionKind::Ready < condition.kind);
    passing
        .map(|condition| {
            (condition.kind.word().to_owned(), condition.reason.clone(), condition.message.clone())
        })
        .collect()
}

/// The queue's problems on the clusters whose claims name it.
fn queue_problems(round: &Round<'_>, queue: &QueueName) -> Vec<(ClusterName, &'static str, String)> {
    let mut problems = Vec::new();
    for (cluster, reports) in round.reports.iter().filter(|(_, reports)| !reports.is_empty()) {
        let claim = round.in_force.get(cluster);
        if !claim.is_some_and(|claim| claim.assignments().iter().any(|one| one.queue == *queue)) {
            continue;
        }
        let concerns = |report: &&QueueReport| report.queue.as_ref().is_none_or(|of| of == queue);
        for report in reports.iter().filter(concerns) {
            problems.push((cluster.clone(), report.problem.word(), report.problem.to_string()));
        }
    }
    problems
}

/// The Ready condition: status, reason, message.
fn ready(conditions: &[Condition]) -> (String, String, String) {
    let ready = conditions.iter().find(|condition| condition.kind == ConditionKind::Ready);
    ready.map_or_else(
        || ("Unknown".to_owned(), "NotReconciled".to_owned(), String::new()),
        |ready| (format!("{:?}", ready.status), ready.reason.clone(), ready.message.clone()),
    )
}

fn claim_overview(round: &Round<'_>, ClaimBasis { claim, said }: &ClaimBasis) -> Option<ClaimOverview> {
    let cluster = ClusterName::new(&claim.cluster).ok()?;
    let (mut nominal, mut assignments) = (BTreeMap::new(), Vec::new());
    if let Some(valid) = claim.valid.as_ref().filter(|_| claim.in_force()) {
        for (resource, of) in valid.nominal() {
            nominal.insert(resource.clone(), (of.amount, of.owner == Owner::Cap));
        }
        let overviews = valid.assignments().iter();
        assignments.extend(overviews.map(|assignment| assignment_overview(round, &cluster, assignment)));
    }
    // Not what the object says, which may be of before these amounts.
    let conditions = said.as_ref().map(|said| said.as_slice()).unwrap_or_default();
    Some(ClaimOverview {
        cluster,
        generation: claim.object.metadata.generation.unwrap_or_default(),
        created: claim.object.metadata.creation_timestamp.as_ref().map(|created| created.0),
        ready: ready(conditions),
        notes: notes(conditions),
        nominal,
        assignments,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read_waits_for_writes_but_neither_for_long_nor_where_it_costs_nothing() {
        let (now, millis) = (Instant::now(), Duration::from_millis);
        assert_eq!(Publishing::default().waits(true, now), None);
        let dear = || Publishing { last_took: millis(20), ..Publishing::default() };
        assert_eq!(dear().waits(false, now), None);
        let mut publishing = dear();
        for (after, until) in [(0, Some(PATIENCE)), (100, Some(PATIENCE)), (250, None)] {
            assert_eq!(publishing.waits(true, now + millis(after)), until.map(|until| now + until));
        }
        let mut publishing = Publishing { not_before: Some(now + millis(400)), ..dear() };
        for writes in [true, false] {
            assert_eq!(publishing.waits(writes, now), Some(now + millis(400)), "it has a share of its own");
        }
        publishing.made(now.checked_sub(millis(10)).expect("a later time"));
        assert!(millis(10) <= publishing.took() && publishing.took().is_zero());
        assert_eq!(publishing.waits_since, None);
    }
}
