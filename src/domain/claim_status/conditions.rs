//! The conditions of a claim, and `Ready` as their summary.

use std::collections::BTreeMap;

use super::{
    Assigned, Condition, ConditionKind, StatusInput, Truth, Verdict, Weight,
    words::{self, list, name, sentences},
};
use crate::{
    cluster::Connection,
    overview::ClusterCapacity,
    quota::{ClusterReport, Overcommit, Reason, Unresolved},
    resources::Cell,
};

/// A condition's status, reason and message.
type Said = (Truth, &'static str, String);

pub(super) fn conditions(input: &StatusInput<'_>, assigned: &[Assigned]) -> Vec<Condition> {
    let mut said: Vec<(ConditionKind, Said)> = vec![
        (ConditionKind::Accepted, accepted(input)),
        (ConditionKind::Resolved, resolved(input)),
        (ConditionKind::CapacityKnown, capacity_known(input)),
        (ConditionKind::QuotaSynced, quota_synced(input)),
        (ConditionKind::Satisfied, satisfied(input, assigned)),
    ];
    let ready = ready(&said, assigned.len());
    said.push((ConditionKind::Ready, ready));
    let extra = [
        (ConditionKind::Incomplete, incomplete(input)),
        (ConditionKind::Overcommitted, overcommitted(input)),
        (ConditionKind::HubRunsLocally, hub_runs_locally(input)),
        (ConditionKind::QueueProblems, queue_problems(input)),
    ];
    said.extend(extra.into_iter().filter_map(|(kind, said)| Some((kind, said?))));
    said.into_iter().map(|(kind, said)| condition(input, kind, said)).collect()
}

fn condition(input: &StatusInput<'_>, kind: ConditionKind, (status, reason, message): Said) -> Condition {
    let before = input.previous.iter().find(|before| before.kind == kind && before.status == status);
    Condition {
        kind,
        status,
        reason: reason.to_owned(),
        message,
        observed_generation: input.generation,
        last_transition: before.map_or(input.now, |before| before.last_transition),
    }
}

const NOTHING_ASSIGNED: &str = "the claim assigns nothing to any queue";

/// The first condition that is False, else the first that is Unknown.
fn ready(said: &[(ConditionKind, Said)], assignments: usize) -> Said {
    let first = |truth: Truth| said.iter().map(|(_, said)| said).find(|said| said.0 == truth);
    match first(Truth::False).or_else(|| first(Truth::Unknown)) {
        Some(said) => said.clone(),
        None if assignments == 0 => (Truth::True, "Ready", NOTHING_ASSIGNED.to_owned()),
        None => (Truth::True, "Ready", format!("all assignments ({assignments}) have what they ask for")),
    }
}

fn accepted(input: &StatusInput<'_>) -> Said {
    match input.verdict {
        Verdict::Accepted => (Truth::True, "Accepted", "the claim is in force".to_owned()),
        Verdict::ClaimedBy(_) => (Truth::False, "ClusterAlreadyClaimed", words::claimed(input)),
        Verdict::Rejected(problems) => {
            let reason = problems.first().map_or("Invalid", |(reason, _)| *reason);
            (Truth::False, reason, sentences(problems.iter().map(|(_, message)| message.clone())))
        }
    }
}

fn not_accepted() -> Said {
    (Truth::Unknown, "NotAccepted", "the claim is not accepted".to_owned())
}

fn resolved(input: &StatusInput<'_>) -> Said {
    if *input.verdict != Verdict::Accepted {
        return not_accepted();
    }
    if input.connection.is_none() {
        return (Truth::False, "ClusterNotFound", words::no_cluster(input));
    }
    let Some(report) = input.report else { return not_planned() };
    let Some(first) = report.unresolved.first() else {
        return (Truth::True, "Resolved", "cluster, queues and flavors are there".to_owned());
    };
    let reason = match first {
        Unresolved::Queue(_) => "QueueNotFound",
        Unresolved::Flavor(_) | Unresolved::HubFlavor(_) => "FlavorNotFound",
        Unresolved::Rule { .. } => "CannotExtend",
    };
    let message = |unresolved: &Unresolved| match unresolved {
        Unresolved::Queue(queue) => words::no_queue(queue),
        Unresolved::Flavor(flavor) => words::no_flavor(flavor, input.cluster),
        Unresolved::HubFlavor(flavor) => words::no_hub_flavor(flavor, input.cluster),
        Unresolved::Rule { queue, flavor, rule } => {
            format!("ClusterQueue `{queue}` cannot take flavor `{flavor}`: {rule}; change its resourceGroups")
        }
    };
    (Truth::False, reason, sentences(report.unresolved.iter().map(message)))
}

fn not_planned() -> Said {
    (Truth::Unknown, "NotPlanned", "waits for its first plan".to_owned())
}

fn capacity_known(input: &StatusInput<'_>) -> Said {
    let unanswered = |truth, word| (truth, word, words::unanswered(input));
    match (input.connection, input.capacity) {
        (None, _) => (Truth::Unknown, "ClusterNotFound", words::no_cluster(input)),
        (Some(connection @ (Connection::Lost { .. } | Connection::Refused { .. })), _) => {
            unanswered(Truth::False, connection.word())
        }
        (
            Some(
                connection @ (Connection::Connecting
                | Connection::Stale { .. }
                | Connection::Quarantined { .. }),
            ),
            _,
        ) => unanswered(Truth::Unknown, connection.word()),
        (Some(Connection::Ready | Connection::Unreached), None) => {
            let message = format!("the nodes of `{}` are being read", input.cluster);
            (Truth::Unknown, "NotObserved", message)
        }
        (
            Some(Connection::Ready | Connection::Unreached),
            Some(ClusterCapacity { silent: Some(why), .. }),
        ) => {
            let message =
                format!("the nodes of `{}` are not being followed: {why}; its share stands", input.cluster);
            (Truth::Unknown, "NotObserved", message)
        }
        (Some(Connection::Ready | Connection::Unreached), Some(capacity)) => {
            let mut message = vec![format!("{} nodes are usable", capacity.nodes.usable)];
            if !capacity.bad.is_empty() {
                let bad = list(capacity.bad.iter().cloned());
                message.push(format!("what cannot be read counts as 0: {bad}"));
            }
            message.extend(input.report.and_then(unchecked));
            (Truth::True, "Observed", message.join("; "))
        }
    }
}

fn unchecked(report: &ClusterReport) -> Option<String> {
    let flavors = list(report.unchecked.iter().map(ToString::to_string));
    (!report.unchecked.is_empty()).then(|| {
        format!(
            "too many flavors share nodes to check every combination, only pairs and the whole are: {flavors}"
        )
    })
}

fn quota_synced(input: &StatusInput<'_>) -> Said {
    if *input.verdict != Verdict::Accepted {
        return not_accepted();
    }
    if let Some(said) = refused_writes(input) {
        return said;
    }
    if !input.hub_has_kueue {
        return (Truth::False, "HubWithoutKueue", words::NO_KUEUE_ON_HUB.to_owned());
    }
    match input.connection {
        None => return (Truth::Unknown, "ClusterNotFound", words::no_cluster(input)),
        Some(Connection::Unreached) => return (Truth::Unknown, "NotReachable", words::unanswered(input)),
        Some(
            connection @ (Connection::Connecting
            | Connection::Stale { .. }
            | Connection::Lost { .. }
            | Connection::Quarantined { .. }
            | Connection::Refused { .. }),
        ) => return (Truth::Unknown, connection.word(), words::unanswered(input)),
        Some(Connection::Ready) => {}
    }
    if input.plan.is_none() {
        return not_planned();
    }
    if !input.writes.pending.is_empty() {
        let pending = list(input.writes.pending.iter().cloned());
        return (Truth::False, "Writing", format!("waiting to be written: {pending}"));
    }
    let behind: Vec<String> = input.hub.iter().filter_map(|(cell, hub)| behind(input, cell, hub)).collect();
    if !behind.is_empty() {
        return (Truth::False, "Writing", sentences(behind));
    }
    let unconfirmed = unconfirmed(input);
    if !unconfirmed.is_empty() {
        let message = format!("`{}` has yet to confirm {}", input.cluster, list(unconfirmed));
        return (Truth::False, "Unconfirmed", message);
    }
    (Truth::True, "Synced", format!("hub and `{}` hold the planned quota", input.cluster))
}

fn refused_writes(input: &StatusInput<'_>) -> Option<Said> {
    if !input.writes.conflicts.is_empty() {
        let queues: BTreeMap<_, _> =
            input.writes.conflicts.iter().map(|(cell, writers)| (&cell.queue, writers)).collect();
        let conflicts = queues.into_iter().map(|(queue, writers)| words::conflict(queue, writers));
        return Some((Truth::False, "QuotaConflict", sentences(conflicts)));
    }
    if !input.writes.failed.is_empty() {
        let failed = input.writes.failed.iter().map(|(object, error)| format!("{object}: {error}"));
        return Some((Truth::False, "WriteFailed", sentences(failed)));
    }
    let alone = input.hub.iter().filter(|(_, hub)| hub.is_behind());
    let alone: BTreeMap<_, _> =
        alone.filter_map(|(cell, hub)| Some((&cell.queue, hub.left_alone.as_ref()?))).collect();
    if alone.is_empty() {
        return None;
    }
    let said = alone
        .into_iter()
        .map(|(queue, why)| format!("ClusterQueue `{queue}` of the hub is left alone: {why}"));
    Some((Truth::False, "LeftAlone", sentences(said)))
}

fn behind(input: &StatusInput<'_>, cell: &Cell, hub: &super::HubCell) -> Option<String> {
    let text = |amount: super::Amount| amount.text(&cell.resource);
    let observed = hub.observed.unwrap_or_default();
    hub.is_behind().then(|| {
        format!("{} is {} on the hub and becomes {}", name(input, cell), text(observed), text(hub.target))
    })
}

fn unconfirmed(input: &StatusInput<'_>) -> Vec<String> {
    let cells = input.plan.iter().flat_map(|plan| &plan.cells);
    cells
        .filter(|(_, planned)| planned.reason == Reason::Unconfirmed)
        .map(|(cell, _)| name(input, cell))
        .collect()
}

fn satisfied(input: &StatusInput<'_>, assigned: &[Assigned]) -> Said {
    if *input.verdict != Verdict::Accepted {
        return (Truth::False, "NotAccepted", "the claim is not accepted".to_owned());
    }
    if assigned.is_empty() {
        return (Truth::True, "NothingAssigned", NOTHING_ASSIGNED.to_owned());
    }
    let lacking = || assigned.iter().filter(|assigned| Weight::Unconfirmed < assigned.finding.weight);
    let Some(weight) = lacking().map(|assigned| assigned.finding.weight).max() else {
        return (Truth::True, "Satisfied", "every assignment has what it asks for".to_owned());
    };
    let heaviest = lacking().find(|assigned| assigned.finding.weight == weight);
    let word = heaviest.map_or(words::ASSIGNED, |assigned| assigned.finding.word);
    let mut messages: Vec<String> = Vec::new();
    for assigned in lacking() {
        if !messages.contains(&assigned.finding.message) {
            messages.push(assigned.finding.message.clone());
        }
    }
    let truth = match word {
        // Nothing is known to be missing.
        "Pending" | "CapacityUnknown" => Truth::Unknown,
        _ => Truth::False,
    };
    (truth, word, sentences(messages))
}

fn incomplete(input: &StatusInput<'_>) -> Option<Said> {
    let accepted = *input.verdict == Verdict::Accepted && input.connection.is_some();
    let missing: Vec<String> = input
        .assignments
        .iter()
        .filter_map(|assignment| words::incomplete(input, assignment))
        .map(|finding| finding.message)
        .collect();
    (accepted && !missing.is_empty()).then(|| (Truth::True, "Incomplete", sentences(missing)))
}

fn overcommitted(input: &StatusInput<'_>) -> Option<Said> {
    let report = input.report?;
    let message = |Overcommit { flavors, resource, usable, held }: &Overcommit| {
        format!(
            "queues hold {} of {} on the nodes of {}, {} is usable: {} too much, which frees as workloads end",
            held.text(resource),
            input.aliases.short(resource),
            list(flavors.iter().map(ToString::to_string)),
            usable.text(resource),
            held.saturating_sub(*usable).text(resource)
        )
    };
    let messages = sentences(report.overcommitted.iter().map(message));
    (!report.overcommitted.is_empty()).then_some((Truth::True, "Overcommitted", messages))
}

fn hub_runs_locally(input: &StatusInput<'_>) -> Option<Said> {
    let report = input.report?;
    let queues = list(report.runs_locally.iter().map(|queue| format!("`{queue}`")));
    (!report.runs_locally.is_empty()).then(|| {
        let message = format!(
            "{queues} on the hub has no MultiKueue check, so the hub runs its workloads itself on quota that stands for clusters: add a check, or take it out of the claim"
        );
        (Truth::True, "HubRunsLocally", message)
    })
}

fn queue_problems(input: &StatusInput<'_>) -> Option<Said> {
    let accepted = *input.verdict == Verdict::Accepted && input.connection.is_some();
    let first = input.queues.first().filter(|_| accepted)?;
    let mut messages: Vec<String> = Vec::new();
    for report in input.queues {
        let problem = report.problem.to_string();
        let message = match &report.queue {
            Some(queue) => format!("`{queue}` on `{}`: {problem}", input.cluster),
            None => format!("`{}`: {problem}", input.cluster),
        };
        if !messages.contains(&message) {
            messages.push(message);
        }
    }
    Some((Truth::True, first.problem.word(), sentences(messages)))
}

impl ConditionKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::Resolved => "Resolved",
            Self::CapacityKnown => "CapacityKnown",
            Self::QuotaSynced => "QuotaSynced",
            Self::Satisfied => "Satisfied",
            Self::Ready => "Ready",
            Self::Incomplete => "Incomplete",
            Self::Overcommitted => "Overcommitted",
            Self::HubRunsLocally => "HubRunsLocally",
            Self::QueueProblems => "QueueProblems",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        const ALL: [ConditionKind; 10] = [
            ConditionKind::Accepted,
            ConditionKind::Resolved,
            ConditionKind::CapacityKnown,
            ConditionKind::QuotaSynced,
            ConditionKind::Satisfied,
            ConditionKind::Ready,
            ConditionKind::Incomplete,
            ConditionKind::Overcommitted,
            ConditionKind::HubRunsLocally,
            ConditionKind::QueueProblems,
        ];
        ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl Truth {
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        [Self::True, Self::False, Self::Unknown].into_iter().find(|truth| truth.word() == word)
    }
}
