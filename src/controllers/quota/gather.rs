//! What the plan is made from, read off the tables.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use tokio::time::Instant;
use tracing::warn;

use crate::{
    domain::{
        claim::{self, ValidClaim},
        cluster::Connection,
        ids::{ClaimName, ClusterName, QueueName},
        overview::CapacityView,
        quota::{Assignment, ClaimInput, ClusterInput, HubQueueInput, Mode, WorkerQueueInput},
    },
    k8s::{
        claims::ReadClaim,
        hub::Hub,
        read,
        worker::{Joined, Worker},
    },
};

use super::{Settings, removal::Accepted, settling::Settling, target::Target};

/// Feeds the claims into what is in force; when to look again.
pub(super) fn accept(
    claims: &BTreeMap<ClaimName, ReadClaim>,
    accepted: &mut Accepted,
    now: Instant,
) -> Option<Instant> {
    let present: BTreeSet<ClaimName> = claims.keys().cloned().collect();
    let in_force = claims.values().filter(|claim| claim.in_force());
    accepted.observe(in_force.filter_map(|claim| claim.valid.clone()).collect(), &present, now)
}

/// The claim in force for each cluster: one that is there beats one that is held.
pub(super) fn by_cluster(accepted: &Accepted) -> BTreeMap<ClusterName, ValidClaim> {
    let mut claims: Vec<&ValidClaim> = accepted.claims().collect();
    claims.sort_by_key(|claim| !accepted.held().contains(claim.name()));
    claims.into_iter().map(|claim| (claim.cluster().clone(), claim.clone())).collect()
}

fn claim_input(claim: &ValidClaim) -> ClaimInput {
    let assignment = |assignment: &claim::Assignment| Assignment {
        queue: assignment.queue.clone(),
        flavor: assignment.flavor.clone(),
        resources: assignment.resources.clone(),
    };
    ClaimInput { caps: claim.caps(), assignments: claim.assignments().iter().map(assignment).collect() }
}

/// How far a cluster can be trusted now.
pub(super) fn mode(joined: &Joined, now: Timestamp, lost_timeout: Duration) -> Mode {
    match &joined.connection {
        Connection::Ready => match &joined.worker {
            Some(worker) if worker.is_current() && worker.has_kueue() => Mode::Live,
            _ => Mode::Frozen,
        },
        Connection::Connecting | Connection::Stale { .. } | Connection::Quarantined { .. } => Mode::Frozen,
        // A kubeconfig that is refused after the cluster worked is silence like any other.
        Connection::Refused { .. } => match joined.last_seen {
            Some(seen) if Duration::try_from(now.duration_since(seen)).unwrap_or_default() < lost_timeout => {
                Mode::Frozen
            }
            _ => Mode::Lost,
        },
        Connection::Lost { .. } => Mode::Lost,
        Connection::Unreached => Mode::Unreached,
    }
}

/// What of one cluster goes into the plan.
pub(super) struct ClusterFacts<'a> {
    pub name: &'a ClusterName,
    pub joined: &'a Joined,
    pub mode: Mode,
    pub claim: Option<&'a ValidClaim>,
    pub capacity: &'a CapacityView,
    pub target: Option<&'a Target>,
}

impl ClusterFacts<'_> {
    /// The plan's input, and when it changes by time alone.
    pub fn input(
        &self,
        hub_id: &str,
        settings: &Settings,
        settling: &mut Settling,
        now: Instant,
    ) -> (ClusterInput, Option<Instant>) {
        let mut input = ClusterInput::new(self.name.clone());
        let mut next = None;
        input.mode = self.mode;
        input.cordoned = self.joined.cordoned;
        input.count_foreign = settings.count_foreign;
        // A leaving cluster has no share, whatever its claim says.
        input.claim = self.claim.filter(|_| !self.joined.leaving).map(claim_input);
        if let Some(known) = self.capacity.get(self.name) {
            input.capacity = Some(known.capacity.clone());
            input.headroom.clone_from(&known.headroom);
        }
        if self.mode == Mode::Live
            && let Some(worker) = &self.joined.worker
        {
            input.worker_queues = worker_queues(worker, hub_id, self.target);
            next = settling.observe(self.name, &mut input.worker_queues, now);
        }
        (input, next)
    }
}

fn worker_queues(worker: &Worker, hub_id: &str, target: Option<&Target>) -> Vec<WorkerQueueInput> {
    let direct = read::direct_use(worker);
    let none = BTreeMap::new();
    let mut queues = Vec::new();
    for queue in worker.queues.all() {
        let name = &queue.metadata.name;
        let ours = queue.metadata.is_of_hub(hub_id);
        match read::worker_queue(&queue, ours, direct.get(name).unwrap_or(&none)) {
            Ok(mut input) => {
                input.settled &= !target.is_some_and(|target| target.is_being_written(name));
                queues.push(input);
            }
            Err(error) => {
                warn!(cluster.name = %worker.name, queue = %name, "ClusterQueue `{name}` of `{}` is left out of the plan: {error}", worker.name);
            }
        }
    }
    queues
}

/// Reads the hub's queues; one that cannot be read is left alone, with the reason.
pub(super) fn hub_queues(hub: &Hub) -> (BTreeMap<QueueName, HubQueueInput>, BTreeMap<QueueName, String>) {
    let (mut queues, mut unreadable) = (BTreeMap::new(), BTreeMap::new());
    for queue in hub.queues.all() {
        let Ok(name) = QueueName::new(&queue.metadata.name) else { continue };
        if queue.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match read::hub_queue(hub, &queue) {
            Ok(input) => {
                queues.insert(name, input);
            }
            Err(error) => {
                unreadable.insert(name, error.to_string());
            }
        }
    }
    (queues, unreadable)
}
