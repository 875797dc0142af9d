//! From what the controllers published to what people read.

use fedq_domain::{
    cluster::{Connection, QuarantineReason},
    overview::{
        AssignmentOverview, CellOverview, ClaimOverview, ClusterOverview, ManagedOverview, Overview,
        QueueOverview,
    },
    resources::{Aliases, Resources},
};
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};
use fedq_wire::{
    capacity::Capacity,
    claim::{AssignmentState, Claim, Nominal, Note, Ready},
    cluster::{Cluster, Flavor, Nodes},
    quantity::{Quantities, Quantity},
    quota::{Cell, Queue, QueueConflict, QueueProblem, Term},
    time::Time,
};

pub fn quantity(amount: Amount, resource: &ResourceName) -> Quantity {
    Quantity(amount.text(resource))
}

pub fn quantities(resources: &Resources, aliases: &Aliases) -> Quantities {
    resources
        .iter()
        .map(|(resource, amount)| (aliases.short(resource).to_owned(), quantity(*amount, resource)))
        .collect()
}

pub fn cluster(name: &ClusterName, cluster: &ClusterOverview, aliases: &Aliases) -> Cluster {
    let (since, reason, found_identity) = connection(&cluster.connection);
    Cluster {
        name: name.to_string(),
        state: cluster.connection.word().to_owned(),
        since: since.map(Time),
        reason,
        found_identity,
        cordoned: cluster.cordoned,
        source: cluster.source.to_owned(),
        joined: cluster.joined.map(Time),
        server: cluster.server.clone(),
        kubernetes_version: cluster.kubernetes_version.clone(),
        kueue_version: cluster.kueue_version.clone(),
        app_wrappers: None,
        credential_expires: cluster.credential_expires.map(Time),
        last_seen: cluster.last_seen.get().map(Time),
        nodes: Nodes { total: cluster.nodes.total, usable: cluster.nodes.usable },
        capacity: quantities(&cluster.capacity, aliases),
        foreign: quantities(&cluster.foreign, aliases),
        flavors: flavors(cluster, aliases),
        claim: cluster.claim.as_ref().map(ToString::to_string),
    }
}

/// A cluster that is only known.
pub fn managed(name: &ClusterName, cluster: &ManagedOverview, aliases: &Aliases) -> Cluster {
    let unavailable = cluster.unavailable.as_ref();
    let reason = unavailable.map_or_else(
        || "OCM knows it, and it is not joined".to_owned(),
        |(_, message)| format!("its ManagedCluster is not available: {message}"),
    );
    Cluster {
        name: name.to_string(),
        state: Connection::Unreached.word().to_owned(),
        since: unavailable.and_then(|(since, _)| *since).map(Time),
        reason: Some(reason),
        found_identity: None,
        cordoned: false,
        source: "managedCluster".to_owned(),
        joined: cluster.known_since.map(Time),
        server: cluster.server.clone(),
        kubernetes_version: cluster.kubernetes_version.clone(),
        kueue_version: None,
        app_wrappers: None,
        credential_expires: None,
        last_seen: None,
        nodes: Nodes::default(),
        capacity: quantities(&cluster.capacity, aliases),
        foreign: Quantities::default(),
        flavors: Vec::new(),
        claim: None,
    }
}

fn connection(connection: &Connection) -> (Option<jiff::Timestamp>, Option<String>, Option<String>) {
    match connection {
        Connection::Connecting | Connection::Ready | Connection::Unreached => (None, None, None),
        Connection::Stale { since, reason } | Connection::Lost { since, reason } => {
            (Some(*since), Some(reason.clone()), None)
        }
        Connection::Refused { reason } => (None, Some(reason.clone()), None),
        Connection::Quarantined { since, reason } => match reason {
            QuarantineReason::IdentityChanged { expected, found } => {
                let reason = format!(
                    "it is another cluster than the one joined: its kube-system namespace has UID {found}, expected {expected}"
                );
                (Some(*since), Some(reason), Some(found.clone()))
            }
            QuarantineReason::VersionsWentBack { stored, found } => {
                let reason = format!(
                    "its resourceVersion went back from {stored} to {found}, as after a restored backup"
                );
                (Some(*since), Some(reason), None)
            }
        },
    }
}

pub fn flavors(cluster: &ClusterOverview, aliases: &Aliases) -> Vec<Flavor> {
    let flavors = cluster.flavors.iter();
    flavors
        .map(|(name, flavor)| Flavor {
            name: name.to_string(),
            capacity: quantities(&flavor.capacity, aliases),
            coming: quantities(&flavor.coming, aliases),
            assigned: quantities(&flavor.assigned, aliases),
            unassigned: quantities(&flavor.unassigned, aliases),
        })
        .collect()
}

pub fn claim(name: &ClaimName, claim: &ClaimOverview, aliases: &Aliases) -> Claim {
    let (status, reason, message) = claim.ready.clone();
    let nominal = claim.nominal.iter().map(|(resource, (amount, cap))| Nominal {
        resource: aliases.short(resource).to_owned(),
        amount: quantity(*amount, resource),
        cap: *cap,
    });
    Claim {
        name: name.to_string(),
        cluster: claim.cluster.to_string(),
        generation: claim.generation,
        created: claim.created.map(Time),
        ready: Ready { status, reason, message },
        notes: claim
            .notes
            .iter()
            .cloned()
            .map(|(kind, reason, message)| Note { kind, reason, message })
            .collect(),
        nominal: nominal.collect(),
        assignments: claim.assignments.iter().map(|assigned| assignment(assigned, aliases)).collect(),
        short: quantities(&short(&claim.assignments), aliases),
    }
}

fn assignment(assignment: &AssignmentOverview, aliases: &Aliases) -> AssignmentState {
    AssignmentState {
        queue: assignment.queue.to_string(),
        flavor: assignment.flavor.to_string(),
        requested: quantities(&assignment.requested, aliases),
        effective: quantities(&assignment.effective, aliases),
        reason: assignment.reason.clone(),
        reasons: aliases.words(&assignment.reasons),
        message: assignment.message.clone(),
    }
}

/// What assignments ask for beyond what the queues get.
fn short(assignments: &[AssignmentOverview]) -> Resources {
    let mut short = Resources::new();
    for assignment in assignments {
        for (resource, requested) in &assignment.requested {
            let effective = assignment.effective.get(resource).copied().unwrap_or_default();
            let missing = requested.saturating_sub(effective);
            if !missing.is_zero() {
                let sum = short.entry(resource.clone()).or_default();
                *sum = sum.saturating_add(missing);
            }
        }
    }
    short
}

pub fn queue(name: &QueueName, queue: &QueueOverview, aliases: &Aliases) -> Queue {
    let cells = queue.cells.iter();
    Queue {
        name: name.to_string(),
        cohort: queue.cohort.clone(),
        quota_cohort: queue.quota_cohort.clone(),
        untouched: queue.untouched.clone(),
        conflicts: queue
            .conflicts
            .iter()
            .map(|(cluster, conflict)| QueueConflict {
                cluster: cluster.as_ref().map(ToString::to_string),
                message: conflict.message.clone(),
                next: conflict.remedy.clone(),
            })
            .collect(),
        problems: queue
            .problems
            .iter()
            .map(|(cluster, reason, message)| QueueProblem {
                cluster: cluster.to_string(),
                reason: (*reason).to_owned(),
                message: message.clone(),
            })
            .collect(),
        cells: cells.map(|(key, value)| cell(name, key, value, aliases)).collect(),
    }
}

pub fn cell(
    queue: &QueueName,
    (flavor, resource): &(FlavorName, ResourceName),
    cell: &CellOverview,
    aliases: &Aliases,
) -> Cell {
    let text = |amount: Amount| quantity(amount, resource);
    let terms = cell.terms.iter().map(|(cluster, term)| Term {
        cluster: cluster.to_string(),
        requested: text(term.requested),
        effective: text(term.effective),
        worker: term.worker_nominal.map(text),
        reserved: text(term.reserved),
        term: text(term.term),
        reason: term.reason.clone(),
    });
    Cell {
        queue: queue.to_string(),
        flavor: flavor.to_string(),
        resource: aliases.short(resource).to_owned(),
        nominal: text(cell.nominal),
        base: text(cell.base),
        target: text(cell.target),
        terms: terms.collect(),
    }
}

/// Capacity of all clusters, or of one, row by row with a key that orders them.
pub fn capacity(overview: &Overview, aliases: &Aliases) -> Vec<(String, Capacity)> {
    let mut rows = Vec::new();
    for (name, cluster) in &overview.clusters {
        for (flavor_name, flavor) in &cluster.flavors {
            for (resource, capacity) in &flavor.capacity {
                let of = |amounts: &Resources| {
                    quantity(amounts.get(resource).copied().unwrap_or_default(), resource)
                };
                let row = Capacity {
                    cluster: name.to_string(),
                    state: cluster.connection.word().to_owned(),
                    flavor: flavor_name.to_string(),
                    resource: aliases.short(resource).to_owned(),
                    capacity: quantity(*capacity, resource),
                    coming: flavor.coming.get(resource).map(|amount| quantity(*amount, resource)),
                    assigned: of(&flavor.assigned),
                    unassigned: of(&flavor.unassigned),
                };
                rows.push((format!("{name} {flavor_name} {resource}"), row));
            }
        }
    }
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    rows
}
