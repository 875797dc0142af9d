//! Which workloads to evict so that one fits: Kueue's classical preemption
//! (`pkg/scheduler/preemption`). Fair sharing is off by default there, and is not here.

use std::cmp::Ordering;

use jiff::Timestamp;

use super::{
    Key,
    quota::{Cell, Usage},
    snapshot::{Info, Queue, Snapshot},
};

#[derive(Clone, Debug)]
pub(super) struct Target {
    pub info: Info,
    pub reason: &'static str,
}

impl Target {
    pub(super) fn reason_in_words(&self) -> &'static str {
        match self.reason {
            "InClusterQueue" => "prioritization in the ClusterQueue",
            "InCohortReclaimWhileBorrowing" => "reclamation within the cohort while borrowing",
            _ => "reclamation within the cohort",
        }
    }
}

/// Why a workload may be evicted for another.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Variant {
    SameQueue,
    /// The preemptor is nearer to the quota than its user.
    Nearer,
    /// Only when the preemptor does not borrow then.
    WithoutBorrowing,
    WhileBorrowing,
}

impl Variant {
    fn reason(self) -> &'static str {
        match self {
            Self::SameQueue => "InClusterQueue",
            Self::Nearer | Self::WithoutBorrowing => "InCohortReclamation",
            Self::WhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }
}

struct Candidate {
    queue: String,
    key: Key,
    /// The lowest cohort that is above both queues.
    common: Option<usize>,
    variant: Variant,
}

/// What is to be made room for.
pub(super) struct Need<'a> {
    pub info: &'a Info,
    /// Where it does not fit.
    pub cells: Vec<Cell>,
    pub usage: Usage,
}

/// The workloads to evict; none when nothing that may be evicted would help. The snapshot is as before
/// afterwards.
pub(super) fn targets(snapshot: &mut Snapshot, need: &Need<'_>) -> Vec<Target> {
    let (nearer, others, same) = candidates(snapshot, need);
    let no_others = nearer.is_empty() && others.is_empty();
    let no_nearer = nearer.is_empty();
    let mut ordered: Vec<Candidate> = [nearer, others, same].into_iter().flatten().collect();
    let evicted = |candidate: &Candidate| snapshot.queues[&candidate.queue].workloads[&candidate.key].evicted;
    ordered.sort_by_key(|candidate| !evicted(candidate));
    let queue = &snapshot.queues[&need.info.queue];
    let forbidden = borrowing_threshold(queue).is_none();
    let under_nominal = need
        .cells
        .iter()
        .all(|cell| snapshot.tree.used(queue.node, cell) < snapshot.tree.quota(queue.node, cell).nominal);
    let attempts: &[bool] = if no_others || (forbidden && !under_nominal) {
        &[true]
    } else if forbidden && no_nearer {
        &[false, true]
    } else {
        &[true, false]
    };
    for borrowing in attempts {
        let targets = attempt(snapshot, need, &ordered, *borrowing);
        if !targets.is_empty() {
            return targets;
        }
    }
    Vec::new()
}

/// Takes candidates away until the preemptor fits, then gives back those that turn out not to matter.
fn attempt(snapshot: &mut Snapshot, need: &Need<'_>, ordered: &[Candidate], borrowing: bool) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut found = false;
    for candidate in ordered {
        if !still_valid(snapshot, need, candidate, borrowing) {
            continue;
        }
        let Some(info) = snapshot.take(&candidate.queue, &candidate.key) else { continue };
        targets.push(Target { info, reason: candidate.variant.reason() });
        if fits(snapshot, need, borrowing) {
            found = true;
            break;
        }
    }
    if found {
        for at in (0..targets.len().saturating_sub(1)).rev() {
            let info = targets[at].info.clone();
            let (queue, key) = (info.queue.clone(), info.key.clone());
            snapshot.insert(info);
            if fits(snapshot, need, borrowing) {
                targets.swap_remove(at);
            } else {
                snapshot.take(&queue, &key);
            }
        }
    }
    for target in &targets {
        snapshot.insert(target.info.clone());
    }
    if found { targets } else { Vec::new() }
}

fn fits(snapshot: &Snapshot, need: &Need<'_>, borrowing: bool) -> bool {
    let node = snapshot.queues[&need.info.queue].node;
    let tree = &snapshot.tree;
    need.usage.iter().all(|(cell, amount)| {
        (borrowing || !tree.borrows(node, cell, *amount)) && *amount <= tree.available(node, cell).max(0)
    })
}

fn still_valid(snapshot: &Snapshot, need: &Need<'_>, candidate: &Candidate, borrowing: bool) -> bool {
    if candidate.queue == need.info.queue {
        return true;
    }
    if borrowing && candidate.variant == Variant::WithoutBorrowing {
        return false;
    }
    let node = snapshot.queues[&candidate.queue].node;
    let below_common = snapshot.tree.ancestors(node).take_while(|node| Some(*node) != candidate.common);
    std::iter::once(node).chain(below_common).all(|node| !snapshot.tree.within(node, &need.cells))
}

type Candidates = Vec<Candidate>;

/// Those the preemptor is nearer to the quota than, those told apart by priority, and those of its own
/// queue.
fn candidates(snapshot: &Snapshot, need: &Need<'_>) -> (Candidates, Candidates, Candidates) {
    let own = &snapshot.queues[&need.info.queue];
    let mut same = Vec::new();
    collect(snapshot, need, &need.info.queue, (None, false), &mut same);
    let (mut nearer, mut others) = (Vec::new(), Vec::new());
    if policy(own, "reclaimWithinCohort") != "Never" {
        let (mut advantage, mut rest) = snapshot.tree.fits_in_quota(own.node, &need.usage);
        let mut done = None;
        for cohort in snapshot.tree.ancestors(own.node) {
            let into = if advantage { &mut nearer } else { &mut others };
            let mut queues = Vec::new();
            overusing(snapshot, need, cohort, done, &mut queues);
            for (name, queue) in &snapshot.queues {
                if queues.contains(&queue.node) && queue.node != own.node {
                    collect(snapshot, need, name, (Some(cohort), advantage), into);
                }
            }
            let (fits, left) = snapshot.tree.fits_in_quota(cohort, &rest);
            rest = left;
            advantage = advantage || fits;
            done = Some(cohort);
        }
    }
    for list in [&mut nearer, &mut others, &mut same] {
        list.sort_by(|a, b| order(snapshot, need, a, b));
    }
    (nearer, others, same)
}

/// The queues under `cohort` that use more than they bring, without the branch that was seen before.
fn overusing(snapshot: &Snapshot, need: &Need<'_>, cohort: usize, skip: Option<usize>, out: &mut Vec<usize>) {
    let node = &snapshot.tree.nodes[cohort];
    for child in node.cohorts.iter().copied().filter(|child| Some(*child) != skip) {
        if !snapshot.tree.within(child, &need.cells) {
            overusing(snapshot, need, child, skip, out);
        }
    }
    out.extend(node.queues.iter().copied().filter(|queue| !snapshot.tree.within(*queue, &need.cells)));
}

fn collect(
    snapshot: &Snapshot,
    need: &Need<'_>,
    name: &str,
    (common, advantage): (Option<usize>, bool),
    out: &mut Candidates,
) {
    let queue = &snapshot.queues[name];
    if !queue.active {
        return;
    }
    let own = &snapshot.queues[&need.info.queue];
    for info in queue.workloads.values().filter(|info| info.uses(&need.cells) && info.key != need.info.key) {
        let variant = if name == need.info.queue {
            satisfies(policy(own, "withinClusterQueue"), need.info, info).then_some(Variant::SameQueue)
        } else if !satisfies(policy(own, "reclaimWithinCohort"), need.info, info) {
            None
        } else if advantage {
            Some(Variant::Nearer)
        } else {
            let below = |threshold: i64| info.priority < need.info.priority && info.priority <= threshold;
            let may_borrow = borrowing_threshold(own).is_some_and(below);
            Some(if may_borrow { Variant::WhileBorrowing } else { Variant::WithoutBorrowing })
        };
        if let Some(variant) = variant {
            out.push(Candidate { queue: name.to_owned(), key: info.key.clone(), common, variant });
        }
    }
}

/// `pkg/scheduler/preemption/common/preemption_policy.go`.
fn satisfies(policy: &str, preemptor: &Info, candidate: &Info) -> bool {
    let lower = candidate.priority < preemptor.priority;
    match policy {
        "LowerPriority" => lower,
        "LowerOrNewerEqualPriority" => {
            lower || (candidate.priority == preemptor.priority && preemptor.queued < candidate.queued)
        }
        "Any" => true,
        _ => false,
    }
}

pub(super) fn policy<'a>(queue: &'a Queue, field: &str) -> &'a str {
    queue.spec["preemption"][field].as_str().unwrap_or("Never")
}

/// None when preempting while borrowing is forbidden, else the highest priority it may hit.
pub(super) fn borrowing_threshold(queue: &Queue) -> Option<i64> {
    let borrowing = &queue.spec["preemption"]["borrowWithinCohort"];
    let allowed = !matches!(borrowing["policy"].as_str(), None | Some("Never"));
    allowed.then(|| borrowing["maxPriorityThreshold"].as_i64().unwrap_or(i64::MAX))
}

/// The evicted first, then other queues' before one's own, lower priority, and the latest reserved.
fn order(snapshot: &Snapshot, need: &Need<'_>, a: &Candidate, b: &Candidate) -> Ordering {
    let sort_key = |candidate: &Candidate| {
        let info = &snapshot.queues[&candidate.queue].workloads[&candidate.key];
        let own = candidate.queue == need.info.queue;
        let reserved: std::cmp::Reverse<Timestamp> = std::cmp::Reverse(info.reserved);
        (!info.evicted, own, info.priority, reserved, info.uid.clone(), info.key.clone())
    };
    sort_key(a).cmp(&sort_key(b))
}
