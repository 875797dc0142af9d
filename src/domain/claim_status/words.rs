//! What keeps a cell from what it asks for: a word for programs, a sentence with numbers and the next
//! step for people.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Finding, StatusInput, Verdict, Weight};
use crate::{
    cluster::{Connection, QuarantineReason},
    conflict::Writers,
    quota::{Assignment, CellPlan, Reason, Unresolved},
    resources::Cell,
};
use fedq_values::{
    ids::{FlavorName, QueueName},
    quantity::Amount,
};

pub(super) const ASSIGNED: &str = "Assigned";
pub(super) const NO_KUEUE_ON_HUB: &str = "the hub does not serve kueue.x-k8s.io/v1beta2, so all quota stays as it is: \
    install Kueue 0.16 or newer there";
/// Names in a list before it is cut.
const SHOWN: usize = 5;

/// Why no assignment of the claim gets anything, whatever it asks for.
pub(super) fn not_in_force(input: &StatusInput<'_>) -> Option<Finding> {
    let blocked = |word, message| Some(Finding { weight: Weight::Blocked, word, message });
    match (input.verdict, input.connection, input.plan) {
        (Verdict::Rejected(_), _, _) => blocked("NotAccepted", "the claim is not accepted".to_owned()),
        (Verdict::ClaimedBy(_), _, _) => blocked("ClusterAlreadyClaimed", claimed(input)),
        (Verdict::Accepted, None, _) => blocked("ClusterNotFound", no_cluster(input)),
        (Verdict::Accepted, Some(_), None) => Some(Finding {
            weight: Weight::Passing,
            word: "Pending",
            message: "waits for its first plan".to_owned(),
        }),
        (Verdict::Accepted, Some(_), Some(_)) => None,
    }
}

pub(super) fn claimed(input: &StatusInput<'_>) -> String {
    let Verdict::ClaimedBy(other) = input.verdict else { return String::new() };
    format!(
        "cluster `{}` is already claimed by `{other}`: edit that claim, and delete this one",
        input.cluster
    )
}

pub(super) fn no_cluster(input: &StatusInput<'_>) -> String {
    let cluster = input.cluster;
    format!("no cluster `{cluster}` is joined: run `fedq cluster join {cluster} --kubeconfig FILE`")
}

/// One cell: what the plan says of it, and what happened to its writes.
pub(super) fn finding(
    input: &StatusInput<'_>,
    cell: &Cell,
    requested: Amount,
    planned: Option<&CellPlan>,
) -> Finding {
    let Some(planned) = planned else {
        let message = format!("{} waits to be planned", name(input, cell));
        return Finding { weight: Weight::Passing, word: "Pending", message };
    };
    let word = word(&planned.reason, input.connection);
    let message = sentence(input, cell, requested, planned);
    let weight = weight(&planned.reason, planned.effective < requested);
    if weight <= Weight::Unconfirmed
        && let Some(writers) = input.writes.conflicts.get(cell)
    {
        let message = conflict(&cell.queue, writers);
        return Finding { weight: Weight::Unconfirmed, word: "QuotaConflict", message };
    }
    Finding { weight, word, message }
}

/// The word for several cells together, the way [`super::claim_status`] has it.
pub fn heaviest<'a>(
    cells: impl IntoIterator<Item = &'a CellPlan>,
    connection: Option<&Connection>,
) -> &'static str {
    let mut heaviest = (Weight::Fine, ASSIGNED);
    for planned in cells {
        let weight = weight(&planned.reason, planned.effective < planned.requested);
        if heaviest.0 < weight {
            heaviest = (weight, word(&planned.reason, connection));
        }
    }
    heaviest.1
}

fn weight(reason: &Reason, less: bool) -> Weight {
    match reason {
        Reason::MissingQueue
        | Reason::MissingFlavor
        | Reason::CannotExtend(_)
        | Reason::Automated
        | Reason::Conflict
        | Reason::Lost
        | Reason::NotDispatched
        | Reason::QueueInactive => Weight::Blocked,
        Reason::Cordoned | Reason::Cap | Reason::Capacity(_) | Reason::Direct => Weight::Lacking,
        Reason::CapacityUnknown | Reason::Draining | Reason::Unassigned => Weight::Passing,
        Reason::Frozen | Reason::Unconfirmed if less => Weight::Passing,
        Reason::Frozen | Reason::Unconfirmed => Weight::Unconfirmed,
        Reason::Satisfied => Weight::Fine,
    }
}

pub fn word(reason: &Reason, connection: Option<&Connection>) -> &'static str {
    match reason {
        Reason::MissingQueue => "QueueNotFound",
        Reason::MissingFlavor => "FlavorNotFound",
        Reason::CannotExtend(_) => "CannotExtend",
        Reason::Automated => "Automated",
        Reason::Conflict => "Conflict",
        Reason::CapacityUnknown => "CapacityUnknown",
        Reason::Lost => "Lost",
        Reason::Frozen => frozen(connection),
        Reason::Cordoned => "Cordoned",
        Reason::Cap => "Capped",
        Reason::Capacity(_) => "OverCapacity",
        Reason::Draining => "Draining",
        Reason::NotDispatched => "NotDispatched",
        Reason::QueueInactive => "QueueInactive",
        Reason::Unconfirmed => "Unconfirmed",
        Reason::Direct => "UsedDirectly",
        Reason::Unassigned => "Pending",
        Reason::Satisfied => ASSIGNED,
    }
}

fn sentence(input: &StatusInput<'_>, cell: &Cell, requested: Amount, planned: &CellPlan) -> String {
    let Cell { queue, flavor, resource } = cell;
    let (cluster, key, name) = (input.cluster, input.aliases.short(resource), name(input, cell));
    let effective = planned.effective.text(resource);
    let got = || format!("{name} asks for {} and gets {effective}", requested.text(resource));
    match &planned.reason {
        Reason::MissingQueue => no_queue(queue),
        Reason::MissingFlavor if lacks_hub_flavor(input, flavor) => no_hub_flavor(flavor, cluster),
        Reason::MissingFlavor => no_flavor(flavor, cluster),
        Reason::CannotExtend(rule) => format!(
            "ClusterQueue `{queue}` cannot take {key} of `{flavor}`: {rule}; change its resourceGroups"
        ),
        Reason::Automated => format!(
            "ClusterQueue `{queue}` has quotaManagement: Automated, so Kueue writes its quota and fedq does not"
        ),
        Reason::Conflict => format!(
            "`{cluster}` has a ClusterQueue `{queue}` that is not fedq's: remove it, or annotate it fedq.dev/adopt: \"true\""
        ),
        Reason::CapacityUnknown => format!("the capacity of `{cluster}` is not known yet"),
        Reason::Lost | Reason::Frozen => unanswered(input),
        Reason::Cordoned => format!(
            "`{cluster}` is cordoned, so only what its workloads hold counts: `fedq cluster uncordon {cluster}` lifts it"
        ),
        Reason::Cap => format!("{}: {}", got(), cap(input, cell)),
        Reason::Capacity(flavors) => format!("{}: {}", got(), full(input, cell, flavors)),
        Reason::Draining => format!(
            "{} of the {effective} for {name} waits until running workloads free it",
            planned.draining.text(resource)
        ),
        Reason::NotDispatched => format!(
            "the MultiKueueConfig of ClusterQueue `{queue}` does not list `{cluster}`: add it, or its {effective} of {key} stays unused"
        ),
        Reason::QueueInactive => format!(
            "ClusterQueue `{queue}` on `{cluster}` is not active: its condition Active there says why"
        ),
        Reason::Unconfirmed => format!("`{cluster}` has yet to confirm {effective} for {name}"),
        Reason::Direct => format!(
            "{} of the {effective} for {name} is held by workloads that the hub did not send to `{cluster}`",
            planned.effective.saturating_sub(planned.term).text(resource)
        ),
        Reason::Unassigned => format!("{name} waits to be planned"),
        Reason::Satisfied => String::new(),
    }
}

pub(super) fn no_queue(queue: &QueueName) -> String {
    format!("ClusterQueue `{queue}` is not on the hub: create it or name another")
}

pub(super) fn no_flavor(flavor: &FlavorName, cluster: &str) -> String {
    format!("ResourceFlavor `{flavor}` is neither on the hub nor on `{cluster}`: create it or name another")
}

pub(super) fn no_hub_flavor(flavor: &FlavorName, cluster: &str) -> String {
    format!(
        "ResourceFlavor `{flavor}` is on `{cluster}` and not on the hub: create it on the hub or name another"
    )
}

fn lacks_hub_flavor(input: &StatusInput<'_>, flavor: &FlavorName) -> bool {
    let lacking = Unresolved::HubFlavor(flavor.clone());
    input.report.is_some_and(|report| report.unresolved.contains(&lacking))
}

fn full(input: &StatusInput<'_>, cell: &Cell, flavors: &BTreeSet<FlavorName>) -> String {
    let resource = &cell.resource;
    let uses = input.report.iter().flat_map(|report| &report.flavors);
    let of_flavors = uses.filter(|(flavor, _)| flavors.contains(*flavor));
    let has = of_flavors.filter_map(|(_, uses)| uses.get(resource)).map(|use_| {
        let free_of_ours = use_.capacity.saturating_sub(use_.foreign);
        free_of_ours.text(resource)
    });
    // Flavors may share nodes, so their sum would count some twice.
    let has = list(has);
    let nodes = list(flavors.iter().map(|flavor| format!("`{flavor}`")));
    let key = input.aliases.short(resource);
    format!("all {key} on the nodes of {nodes} ({has}) is given out; lower assignments or add nodes")
}

fn cap(input: &StatusInput<'_>, cell: &Cell) -> String {
    let resource = &cell.resource;
    let key = input.aliases.short(resource);
    let sum: Amount =
        input.assignments.iter().filter_map(|assignment| assignment.resources.get(resource)).copied().sum();
    let sum = sum.text(resource);
    match input.caps.get(resource) {
        Some(cap) => format!(
            "all assignments of {key} add up to {sum}, nominalResources caps it at {}; raise the cap or lower assignments",
            cap.text(resource)
        ),
        None => format!("all assignments of {key} add up to {sum}, more than nominalResources allows"),
    }
}

/// Covered cells of the assignment's flavor that hold 0 since the claim does not name them.
pub(super) fn incomplete(input: &StatusInput<'_>, assignment: &Assignment) -> Option<Finding> {
    let report = input.report?;
    let here = |cell: &&Cell| cell.queue == assignment.queue && cell.flavor == assignment.flavor;
    let missing: Vec<String> = report
        .incomplete
        .iter()
        .filter(here)
        .map(|cell| input.aliases.short(&cell.resource).to_owned())
        .collect();
    if missing.is_empty() {
        return None;
    }
    let message = format!(
        "{} has no {} in ClusterQueue `{}`, and pods that ask for it are not admitted there: assign some",
        assignment.flavor,
        list(missing),
        assignment.queue
    );
    Some(Finding { weight: Weight::Lacking, word: "Incomplete", message })
}

/// Of a whole queue: its groups are one field, so whoever writes one of its cells writes all.
pub(super) fn conflict(queue: &QueueName, writers: &Writers) -> String {
    format!(
        "ClusterQueue `{queue}` is changed back again and again by {writers}: `fedq quota explain {queue}` \
         prints what to put into their configuration (docs/gitops.md)"
    )
}

/// Reason word of a cluster whose last share stands.
pub(super) fn frozen(connection: Option<&Connection>) -> &'static str {
    match connection {
        Some(
            connection @ (Connection::Connecting
            | Connection::Quarantined { .. }
            | Connection::Refused { .. }
            | Connection::Lost { .. }),
        ) => connection.word(),
        Some(Connection::Stale { .. } | Connection::Ready | Connection::Unreached) | None => "Stale",
    }
}

/// Why the cluster cannot be written to, and what that means for its share.
pub(super) fn unanswered(input: &StatusInput<'_>) -> String {
    let cluster = input.cluster;
    match input.connection {
        None => no_cluster(input),
        Some(Connection::Connecting) => {
            format!("`{cluster}` has not answered yet: its last share stands")
        }
        Some(Connection::Stale { since, reason }) => {
            format!("`{cluster}` has not answered since {} ({reason}): its last share stands", time(*since))
        }
        Some(Connection::Lost { since, reason }) => format!(
            "`{cluster}` has not answered since {} ({reason}): its share is off the hub until it returns",
            time(*since)
        ),
        Some(Connection::Quarantined { since, reason }) => format!(
            "`{cluster}` may be another cluster since {} ({}): if it is meant, run `fedq cluster confirm {cluster}`",
            time(*since),
            changed(reason)
        ),
        Some(Connection::Refused { reason }) => {
            format!("`{cluster}` cannot be used ({reason}): `fedq cluster check {cluster}` tells what to do")
        }
        Some(Connection::Unreached) => {
            format!("the hub cannot reach `{cluster}`, so nothing is written there; its share counts at once")
        }
        Some(Connection::Ready) => match input.writes.unreadable.first_key_value() {
            Some((queue, why)) => format!(
                "ClusterQueue `{queue}` on the hub cannot be read ({why}), so what `{cluster}` has stands: put the queue right"
            ),
            None => format!("`{cluster}` answers again and is being read"),
        },
    }
}

fn changed(reason: &QuarantineReason) -> String {
    match reason {
        QuarantineReason::IdentityChanged { expected, found } => {
            format!("its kube-system namespace has the UID {found}, it was {expected}")
        }
        QuarantineReason::VersionsWentBack { stored, found } => {
            format!("its resourceVersion went back from {stored} to {found}")
        }
    }
}

/// `gpu of high-priority-queue on on-demand`
pub(super) fn name(input: &StatusInput<'_>, cell: &Cell) -> String {
    format!("{} of {} on {}", input.aliases.short(&cell.resource), cell.queue, cell.flavor)
}

/// To the second: finer is noise to a reader.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `a, b and 3 more`
pub(super) fn list(items: impl IntoIterator<Item = String>) -> String {
    cut(items, ", ")
}

/// As [`list`], of sentences.
pub(super) fn sentences(items: impl IntoIterator<Item = String>) -> String {
    cut(items, "; ")
}

fn cut(items: impl IntoIterator<Item = String>, between: &str) -> String {
    let mut items: Vec<String> = items.into_iter().collect();
    let more = items.len().saturating_sub(SHOWN);
    items.truncate(SHOWN);
    let text = items.join(between);
    if more == 0 { text } else { format!("{text} and {more} more") }
}
