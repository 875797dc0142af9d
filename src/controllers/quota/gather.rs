//! What the plan is made from, read off the tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::Instant;
use tracing::warn;

use fedq_domain::{
    claim::{self, ValidClaim},
    cluster::Connection,
    overview::ClusterCapacity,
    quota::{Assignment, ClaimInput, ClusterInput, HubQueueInput, Mode, WorkerQueueInput},
};
use fedq_k8s::{
    claims::ReadClaims,
    follow::TableSet,
    hub::Hub,
    list_watch::Skipped,
    read::{
        self,
        quota_place::{QuotaCohort, as_ordinary},
    },
    types::kueue::ClusterQueue,
    worker::{Joined, Worker},
};
use fedq_values::ids::{ClaimName, ClusterName, CohortName, FlavorName, QueueName};

use super::{Settings, removal::Accepted, settling::Settling, target::Target};
use crate::memo::Identity;

/// In the queues of one cluster, far above real ones: a plan takes time and memory for each.
const MOST_FLAVORS: usize = 4096;

/// Feeds the claims into what is in force; when to look again.
pub(super) fn accept(
    claims: &ReadClaims,
    skipped: &[Skipped],
    accepted: &mut Accepted,
    now: Instant,
) -> Option<Instant> {
    // A claim that cannot be read is not one that is gone.
    let unreadable = skipped.iter().filter_map(|skipped| ClaimName::new(skipped.name.as_deref()?).ok());
    let present: BTreeSet<ClaimName> = claims.keys().cloned().chain(unreadable).collect();
    let in_force = claims.values().filter(|claim| claim.in_force());
    accepted.observe(in_force.filter_map(|claim| claim.valid.clone()).collect(), &present, now)
}

/// The claim in force for each cluster: one that is there beats one that vanished.
pub(super) fn by_cluster(accepted: &Accepted) -> BTreeMap<ClusterName, Arc<ValidClaim>> {
    let mut claims: Vec<&Arc<ValidClaim>> = accepted.claims().collect();
    claims.sort_by_key(|claim| !accepted.is_gone(claim.name()));
    claims.into_iter().map(|claim| (claim.cluster().clone(), Arc::clone(claim))).collect()
}

fn claim_input(claim: &ValidClaim) -> ClaimInput {
    let assignment = |assignment: &claim::Assignment| Assignment {
        queue: assignment.queue.clone(),
        flavor: assignment.flavor.clone(),
        resources: assignment.resources.clone(),
    };
    ClaimInput { caps: claim.caps(), assignments: claim.assignments().iter().map(assignment).collect() }
}

/// How far a cluster can be trusted now. Nodes that are not followed, or that were counted for flavors that are only
/// presumed, are as unknown as a cluster that does not answer.
pub(super) fn mode(joined: &Joined, capacity: Option<&Arc<ClusterCapacity>>) -> Mode {
    let mode = link_mode(joined);
    let silent = capacity.is_some_and(|known| known.silent.is_some() || known.presumed);
    if silent && mode == Mode::Live { Mode::Frozen } else { mode }
}

fn link_mode(joined: &Joined) -> Mode {
    match &joined.connection {
        Connection::Ready => match &joined.worker {
            Some(worker) if worker.is_current() && worker.has_kueue() => Mode::Live,
            _ => Mode::Frozen,
        },
        Connection::Refused { .. } if joined.is_given_up => Mode::Lost,
        // A kubeconfig that is refused after the cluster worked is silence like any other.
        Connection::Connecting
        | Connection::Stale { .. }
        | Connection::Quarantined { .. }
        | Connection::Refused { .. } => Mode::Frozen,
        Connection::Lost { .. } => Mode::Lost,
        Connection::Unreached => Mode::Unreached,
    }
}

/// What of one cluster goes into the plan.
pub(super) struct ClusterFacts<'a> {
    pub name: &'a ClusterName,
    pub joined: &'a Arc<Joined>,
    pub claim: Option<&'a Arc<ValidClaim>>,
    pub capacity: Option<&'a Arc<ClusterCapacity>>,
    pub target: Option<&'a Target>,
}

/// ClusterQueues as a plan was made from them. They are also what its writes are made from: a queue that
/// changes in between refuses them, where the newest object would be set back to what the plan saw.
pub(super) type Seen<K> = BTreeMap<K, Arc<ClusterQueue>>;

/// What a cluster's input was made from.
pub(super) struct Known {
    pub mark: Mark,
    pub stamp: Stamp,
    /// When it changes by time alone.
    pub until: Option<Instant>,
}

/// While it is the same, nothing at all is new of the cluster. Most of what changes it says nothing new, but to compare
/// it takes a moment, so that an activation costs what changed, not all clusters.
#[derive(PartialEq)]
pub(super) struct Mark {
    joined: Identity<Joined>,
    /// Of the worker's tables and of its writer.
    changes: (u64, u64),
    capacity: Option<Identity<ClusterCapacity>>,
    claim: Option<Identity<ValidClaim>>,
}

impl Mark {
    /// Of the writer, when it was taken.
    pub fn writes(&self) -> u64 {
        self.changes.1
    }

    /// To be taken before anything is read: what changes in between then counts as new.
    pub fn of(facts: &ClusterFacts<'_>) -> Self {
        let tables = facts.joined.worker.as_ref().map_or(0, |worker| worker.changes());
        Self {
            joined: Identity::of(facts.joined),
            changes: (tables, facts.writes()),
            capacity: Identity::of_some(facts.capacity),
            claim: Identity::of_some(facts.claim),
        }
    }
}

/// What a cluster's input was made from. While it is the same, so is the input.
#[derive(PartialEq)]
pub(super) struct Stamp {
    mode: Mode,
    cordoned: bool,
    leaving: bool,
    worker: Option<Identity<Worker>>,
    /// Of the worker's tables and of its writer.
    revisions: (u64, u64),
    capacity: Option<Identity<ClusterCapacity>>,
    /// One that was read anew may say the same.
    claim: Option<Arc<ValidClaim>>,
}

pub(super) fn same<T>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

impl ClusterFacts<'_> {
    fn writes(&self) -> u64 {
        self.target.map_or(0, |target| target.writer.revision())
    }

    /// To be taken before the input is read, too.
    pub fn stamp(&self, mode: Mode) -> Stamp {
        let worker = self.joined.worker.as_ref();
        let tables = worker.map_or(0, |worker| worker.revision());
        Stamp {
            mode,
            cordoned: self.joined.cordoned,
            leaving: self.joined.leaving,
            worker: Identity::of_some(worker),
            revisions: (tables, self.writes()),
            capacity: Identity::of_some(self.capacity),
            claim: self.claim.cloned(),
        }
    }

    /// The plan's input, and when it changes by time alone.
    pub fn input(
        &self,
        (mode, seen): (Mode, &Seen<String>),
        (hub_id, settings): (&str, &Settings),
        settling: &mut Settling,
        now: Instant,
    ) -> (ClusterInput, Option<Instant>) {
        let mut input = ClusterInput::new(self.name.clone());
        let mut next = None;
        input.mode = mode;
        input.cordoned = self.joined.cordoned;
        input.count_foreign = settings.count_foreign;
        // A leaving cluster has no share, whatever its claim says.
        input.claim = self.claim.filter(|_| !self.joined.leaving).map(|claim| claim_input(claim));
        if let Some(known) = self.capacity {
            input.capacity = Some(known.capacity.clone());
            input.nodes_are_old = known.is_old;
            input.headroom.clone_from(&known.headroom);
        }
        if mode == Mode::Live
            && let Some(worker) = &self.joined.worker
        {
            let claimed: BTreeSet<&str> = input
                .claim
                .iter()
                .flat_map(|claim| &claim.assignments)
                .map(|one| one.queue.as_str())
                .collect();
            match worker_queues(worker, seen, hub_id, &claimed, self.target) {
                Some(queues) => input.worker_queues = queues,
                // Quota that cannot be read is not zero: nothing may grow beside it.
                None => input.mode = Mode::Frozen,
            }
            next = settling.observe(self.name, &mut input.worker_queues, now);
        }
        (input, next)
    }
}

/// Whether a cluster may have queues of ours: only one that was read can be known to have none.
pub(super) fn may_hold_quota(joined: &Joined, hub_id: &str) -> bool {
    joined.worker.as_ref().is_none_or(|worker| {
        !worker.queues.synced() || worker.queues.any(|queue| queue.metadata.is_labelled(hub_id))
    })
}

/// All of a worker's queues.
pub(super) fn seen(worker: Option<&Worker>) -> Seen<String> {
    let all = worker.map(|worker| worker.queues.all()).unwrap_or_default();
    all.into_iter().map(|queue| (queue.metadata.name.clone(), queue)).collect()
}

pub(super) fn worker_queues(
    worker: &Worker,
    seen: &Seen<String>,
    hub_id: &str,
    claimed: &BTreeSet<&str>,
    target: Option<&Target>,
) -> Option<Vec<WorkerQueueInput>> {
    if let Some(skipped) = worker.queues.skipped().first() {
        warn!(cluster.name = %worker.name, "`{}` is left as it is, since a ClusterQueue there cannot be read: {}", worker.name, skipped.reason);
        return None;
    }
    let direct = read::direct_use(worker);
    let none = BTreeMap::new();
    let mut queues = Vec::new();
    let asked = |queue: &str, version: Option<&str>| {
        target.map(|target| target.asked(queue, version)).unwrap_or_default()
    };
    for (name, queue) in seen {
        let handed_over = queue.metadata.is_handed_over() && claimed.contains(name.as_str());
        let ours = queue.metadata.is_labelled(hub_id) || handed_over;
        match read::worker_queue(queue, ours, direct.get(name).unwrap_or(&none)) {
            Ok(mut input) => {
                input.cohort = input.cohort.map(|cohort| lending_tree(worker, cohort));
                input.settled &= !target.is_some_and(|target| target.is_being_written(name));
                let (asked, more) = asked(name, Some(&queue.metadata.resource_version));
                input.asked = asked;
                input.settled &= !more;
                queues.push(input);
            }
            Err(error) => {
                warn!(cluster.name = %worker.name, queue = %name, "`{}` is left as it is, since ClusterQueue `{name}` there cannot be read: {error}", worker.name);
                return None;
            }
        }
    }
    let flavors: BTreeSet<_> =
        queues.iter().flat_map(|queue| queue.cells.keys()).map(|cell| &cell.flavor).collect();
    if MOST_FLAVORS < flavors.len() {
        warn!(cluster.name = %worker.name, "`{}` is left as it is, since its ClusterQueues name more than {MOST_FLAVORS} flavors", worker.name);
        return None;
    }
    // What is being made is there already, as far as the sum is concerned: without this, a claim edited at
    // this moment could give the same nodes to another queue.
    let made = target.into_iter().flat_map(Target::queues_being_made);
    for queue in made.filter(|queue| !seen.contains_key(&queue.metadata.name)) {
        if let Ok(input) = read::worker_queue(&queue, true, &none) {
            let cohort = input.cohort.map(|cohort| lending_tree(worker, cohort));
            let (asked, _) = asked(&queue.metadata.name, None);
            queues.push(WorkerQueueInput { settled: false, asked, cohort, ..input });
        }
    }
    let mut known: BTreeSet<_> = queues.iter().map(|queue| queue.name.clone()).collect();
    for queue in target.into_iter().flat_map(Target::queues_perhaps_made) {
        if let Ok(input) = read::worker_queue(&queue, true, &none)
            && known.insert(input.name.clone())
        {
            let cohort = input.cohort.map(|cohort| lending_tree(worker, cohort));
            let (asked, _) = asked(&queue.metadata.name, None);
            queues.push(WorkerQueueInput { settled: true, cells: BTreeMap::new(), asked, cohort, ..input });
        }
    }
    Some(queues)
}

/// Cohorts under one parent lend to each other as the queues of one do: all of them count as the topmost. One with quota
/// or limits of its own may keep some of it from the others, and counts by itself.
fn lending_tree(worker: &Worker, mut cohort: CohortName) -> CohortName {
    let mut passed = BTreeSet::new();
    while passed.insert(cohort.clone())
        && let Some(object) = worker.cohorts.get(None, cohort.as_str())
        && object.spec.resource_groups.is_empty()
        && let Some(parent) = object.spec.parent_name.as_deref().filter(|parent| !parent.is_empty())
        && let Ok(parent) = CohortName::new(parent)
    {
        cohort = parent;
    }
    cohort
}

pub(super) fn flavors(hub: &Hub) -> BTreeSet<FlavorName> {
    let names = hub.flavors.all().into_iter();
    names.filter_map(|flavor| FlavorName::new(&flavor.metadata.name).ok()).collect()
}

/// Reads the hub's queues; one that cannot be read is left alone, with the reason.
pub(super) fn hub_queues(hub: &Hub, hub_id: &str) -> HubQueues {
    let mut found = HubQueues::default();
    let unreadable_cohorts = hub.cohorts.skipped();
    for queue in hub.queues.all() {
        let Ok(name) = QueueName::new(&queue.metadata.name) else { continue };
        let cohort = QuotaCohort::find(hub, &queue, hub_id);
        let seen = match &cohort {
            Some(cohort) => Arc::new(as_ordinary(&queue, cohort)),
            None => Arc::clone(&queue),
        };
        found.seen.insert(name.clone(), seen);
        if queue.metadata.deletion_timestamp.is_some() {
            found.cohorts.extend(cohort.map(|cohort| (name, cohort)));
            continue;
        }
        let input = read::hub_queue(hub, &queue, cohort.as_ref());
        if let Some(cohort) = cohort {
            let is_it = |skipped: &&Skipped| skipped.name.as_deref() == Some(cohort.name.as_str());
            if let Some(skipped) = unreadable_cohorts.iter().find(is_it) {
                found
                    .unreadable
                    .insert(name.clone(), format!("its Cohort `{}`: {}", cohort.name, skipped.reason));
            }
            found.cohorts.insert(name.clone(), cohort);
        }
        if found.unreadable.contains_key(&name) {
            continue;
        }
        match input {
            Ok(input) => {
                found.inputs.insert(name, input);
            }
            Err(error) => {
                found.unreadable.insert(name, error.to_string());
            }
        }
    }
    found
}

#[derive(Default)]
pub(super) struct HubQueues {
    pub inputs: BTreeMap<QueueName, HubQueueInput>,
    /// All of them, also those that are going or cannot be read, as they are copied to workers.
    pub seen: Seen<QueueName>,
    /// Of those whose quota does not stand in themselves.
    pub cohorts: BTreeMap<QueueName, QuotaCohort>,
    pub unreadable: BTreeMap<QueueName, String>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fedq_domain::{
        capacity::Capacity,
        claim::{AssignmentText, ClaimText, owners::Owners, validate},
        overview::CapacityView,
        resources::Aliases,
    };
    use fedq_k8s::worker::CLUSTER_METRICS;

    fn settings() -> Settings {
        Settings {
            aliases: Aliases::default(),
            count_foreign: true,
            lost_timeout: Duration::from_mins(15),
            drift_reverts_per_minute: 1,
            removal_window: Duration::ZERO,
            copy_admission_checks: Vec::new(),
        }
    }

    fn joined(cordoned: bool, leaving: bool) -> Joined {
        Joined { cordoned, leaving, ..Joined::new(Connection::Unreached, CLUSTER_METRICS) }
    }

    fn claim(cpu: &str) -> Arc<ValidClaim> {
        let assignment = AssignmentText {
            queue: "q".to_owned(),
            flavor: "f".to_owned(),
            resources: BTreeMap::from([("cpu".to_owned(), cpu.to_owned())]),
        };
        let text = ClaimText {
            name: "w-resource-claim".to_owned(),
            cluster: "w".to_owned(),
            nominal: BTreeMap::new(),
            assignments: vec![assignment],
            owners: Owners::default(),
        };
        Arc::new(validate(&text, &Aliases::default()).expect("a valid claim"))
    }

    fn view(nodes: usize) -> CapacityView {
        let known = ClusterCapacity::alone(Capacity { nodes, ..Capacity::default() });
        BTreeMap::from([(ClusterName::new("w").expect("a name"), Arc::new(known))])
    }

    #[test]
    fn where_a_stamp_is_the_same_so_is_the_input() {
        let (name, settings) = (ClusterName::new("w").expect("a name"), settings());
        let views = [CapacityView::new(), view(1), view(1), view(2)];
        let claims = [None, Some(claim("1")), Some(claim("1")), Some(claim("2"))];
        let mut seen: Vec<(Stamp, ClusterInput)> = Vec::new();
        for mode in [Mode::Live, Mode::Frozen, Mode::Lost, Mode::Unreached] {
            for (cordoned, leaving) in [(false, false), (false, true), (true, false), (true, true)] {
                for (capacity, claim) in views.iter().flat_map(|view| claims.iter().map(move |c| (view, c))) {
                    let joined = &Arc::new(joined(cordoned, leaving));
                    let (claim, capacity) = (claim.as_ref(), capacity.get(&name));
                    let facts = ClusterFacts { name: &name, joined, claim, capacity, target: None };
                    let (stamp, now) = (facts.stamp(mode), Instant::now());
                    let input = facts
                        .input((mode, &Seen::new()), ("hub", &settings), &mut Settling::default(), now)
                        .0;
                    for (other, found) in &seen {
                        assert!(*other != stamp || *found == input, "{found:?}\nand\n{input:?}");
                    }
                    seen.push((stamp, input));
                }
            }
        }
        let distinct =
            seen.iter().enumerate().filter(|(i, (stamp, _))| seen[..*i].iter().all(|(s, _)| s != stamp));
        // Two of the claims say the same; two of the capacities do too, but are not the same sum.
        assert_eq!(distinct.count(), 4 * 4 * 4 * 3);
    }
}
