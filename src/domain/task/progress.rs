//! From what is seen of a task on its cluster to its next move, and to the reason why it does not run yet.

use std::time::Duration;

use super::{
    choose::{Choice, Outcome, Verdict},
    limits::span,
    phase::{Before, Epoch, Move, Phase, Then},
    spec::Recovery,
    view::{NodePhase, NodeView},
};

/// What one dispatch of a task has on its cluster, as far as it is known for sure.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is seen by itself, and may hold beside the others")]
pub struct Observed {
    /// Its Jobs, or its JobSet, that are there and stay.
    pub objects: usize,
    /// Of how many.
    pub expected: usize,
    /// Objects of whatever dispatch that are there, those that are being deleted among them, and writes that
    /// may still make one.
    pub left: usize,
    /// Whether all that its pods need besides is there.
    pub complete: bool,
    /// Why the cluster does not take its objects.
    pub refused: Option<String>,
    /// Why it has not taken them so far, though it was asked often enough.
    pub turned_away: Option<String>,
    pub admitted: bool,
    /// Its controller says that all its pods have run, also those that fedq does not see.
    pub ready: bool,
    /// Why Kueue took its quota back.
    pub evicted: Option<String>,
    pub end: Option<End>,
    /// A pod of it was ended by its cluster: an end that follows is not its program's.
    pub disrupted: bool,
    /// By rank.
    pub nodes: Vec<NodeView>,
    /// Kueue's word on why it is not admitted.
    pub waits: Option<String>,
    /// Its place among those that wait in its queue, from 1, and how many they are.
    pub place: Option<(usize, usize)>,
    /// The scheduler's word on a pod that has no node.
    pub unschedulable: Option<String>,
    /// The cluster's word on a pod that its Job may not make.
    pub unmade: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum End {
    Succeeded,
    Failed { message: String, fault: Fault },
}

/// What a task's objects say that it failed for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    Program,
    /// The cluster ended a pod.
    Cluster,
    /// Its pods did not all run in the time that their controller gives them.
    NotStarted,
}

/// A move with what is told of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Step {
    pub to: Move,
    pub detail: Option<String>,
    /// Whether it counts against `max_restarts`.
    pub counts: bool,
}

impl Step {
    pub fn new(to: Move, detail: Option<String>) -> Self {
        Self { to, detail, counts: false }
    }
}

/// The next move of a task whose cluster answers; `None`: it stays as it is.
pub fn next(phase: &Phase, seen: &Observed, (recovery, restarts): (&Recovery, u32)) -> Option<Step> {
    let plain = |to: Move| Some(Step::new(to, None));
    match phase {
        Phase::Dispatching { .. } => {
            if seen.expected <= seen.objects && seen.complete {
                // Whatever was refused before.
                return plain(Move::Written);
            }
            if let Some(reason) = &seen.refused {
                return Some(Step::new(Move::Refused, Some(reason.clone())));
            }
            let reason = seen.turned_away.as_ref()?;
            Some(Step::new(Move::TurnedAway, Some(reason.clone())))
        }
        Phase::Queued { .. } | Phase::Starting { .. } | Phase::Running { .. } => {
            if let Some(end) = &seen.end {
                return Some(ended(end, seen, recovery, restarts));
            }
            if seen.objects < seen.expected {
                return plain(Move::Vanished);
            }
            let queued = matches!(phase, Phase::Queued { .. });
            let running = matches!(phase, Phase::Running { .. });
            if let Some(reason) = seen.refused.as_ref().filter(|_| !running) {
                return Some(Step::new(Move::Refused, Some(reason.clone())));
            }
            if !seen.admitted && !queued {
                return Some(Step::new(Move::Evicted, seen.evicted.clone()));
            }
            if seen.admitted && !running && (seen.ready || seen.all_started()) {
                return plain(Move::Started);
            }
            if seen.admitted && queued { plain(Move::Admitted) } else { None }
        }
        Phase::Withdrawing { .. } => {
            if seen.left == 0 {
                plain(Move::Withdrawn)
            } else {
                None
            }
        }
        Phase::Pending
        | Phase::Lost { .. }
        | Phase::Succeeded { .. }
        | Phase::Failed { .. }
        | Phase::Stopped => None,
    }
}

/// Of a task that has its quota: whether it has been starting for so long that others should have that. `timeout` 0: never.
pub fn stuck(phase: &Phase, seen: &Observed, (starting, timeout): (Duration, Duration)) -> Option<Step> {
    let is_over = !timeout.is_zero() && timeout <= starting && matches!(phase, Phase::Starting { .. });
    is_over.then(|| Step::new(Move::Stuck, pending_reason(phase, seen)))
}

/// Of a task that runs, be it in part: whether it has done so for as long as it may.
pub fn overdue(
    phase: &Phase,
    seen: &Observed,
    (running, most): (Duration, Option<Duration>),
) -> Option<Step> {
    let runs = match phase {
        Phase::Running { .. } => true,
        Phase::Starting { .. } => runs_in_part(seen),
        _ => false,
    };
    let most = most.filter(|most| *most <= running && runs)?;
    Some(Step::new(Move::Overdue, Some(format!("max_duration is {}", span(most)))))
}

fn ended(end: &End, seen: &Observed, recovery: &Recovery, restarts: u32) -> Step {
    match end {
        End::Succeeded => Step::new(Move::Succeeded, None),
        End::Failed { message, fault } => {
            let detail = seen.why_failed().unwrap_or_else(|| message.clone());
            let detail = Some(detail).filter(|detail| !detail.is_empty());
            if *fault == Fault::NotStarted {
                return Step::new(Move::Stuck, detail);
            }
            if *fault == Fault::Cluster || seen.disrupted {
                return Step::new(Move::Disrupted, detail);
            }
            let free = seen.exit_codes().any(|code| recovery.always_on.contains(&code));
            let restart = free || restarts < recovery.max_restarts;
            Step { to: Move::ProgramFailed { restart }, detail, counts: restart && !free }
        }
    }
}

pub fn runs_in_part(seen: &Observed) -> bool {
    seen.ready || seen.nodes.iter().any(has_started)
}

fn has_started(node: &NodeView) -> bool {
    !matches!(node.phase, NodePhase::Waiting | NodePhase::Starting)
}

/// Before the dispatch after this one, where nothing else holds it up: what ends at once each time must not keep
/// everybody busy.
pub fn pause(epoch: Epoch) -> Duration {
    const LONGEST: Duration = Duration::from_mins(5);
    Duration::from_secs(2_u64.saturating_pow(epoch)).min(LONGEST)
}

impl Observed {
    fn all_started(&self) -> bool {
        !self.nodes.is_empty() && self.nodes.iter().all(has_started)
    }

    fn exit_codes(&self) -> impl Iterator<Item = u8> + '_ {
        let failed = self.nodes.iter().filter(|node| node.phase == NodePhase::Failed);
        failed.filter_map(|node| u8::try_from(node.exit_code?).ok())
    }

    /// The first node that failed, with its exit code.
    fn why_failed(&self) -> Option<String> {
        let (rank, node) = self.nodes.iter().enumerate().find(|(_, node)| node.phase == NodePhase::Failed)?;
        let reason = node.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        match node.exit_code {
            Some(code) => Some(format!("node {rank} ended with exit code {code}{reason}")),
            None => Some(format!("node {rank} was ended{reason}")),
        }
    }
}

/// Why a task does not run; `None` where it does, or is over.
pub fn pending_reason(phase: &Phase, seen: &Observed) -> Option<String> {
    match phase {
        Phase::Dispatching { cluster } => Some(match &seen.refused {
            Some(reason) => format!("{cluster} does not take its objects: {reason}"),
            None => format!("its objects are being created on {cluster}"),
        }),
        Phase::Queued { cluster } => Some(match &seen.waits {
            Some(reason) => format!("waits for quota on {cluster}: {reason}{}", placed(seen.place)),
            None => format!("waits for Kueue on {cluster} to look at it"),
        }),
        Phase::Starting { cluster } => Some(starting(cluster.as_str(), seen)),
        Phase::Withdrawing { cluster, then } => Some(format!(
            "{} {cluster} to confirm that nothing of it is left",
            match then {
                Then::Requeue => "it moves: waits for",
                Then::Stop => "it was stopped: waits for",
                Then::Fail(_) => "it cannot go on: waits for",
            }
        )),
        Phase::Lost { cluster, before } => Some(match before {
            Before::Withdrawing(_) => {
                format!("{cluster} does not answer, so nobody knows what is left there")
            }
            Before::Dispatching | Before::Queued | Before::Starting | Before::Running => {
                format!("{cluster} does not answer, so nobody knows how it does")
            }
        }),
        Phase::Pending
        | Phase::Running { .. }
        | Phase::Succeeded { .. }
        | Phase::Failed { .. }
        | Phase::Stopped => None,
    }
}

fn placed(place: Option<(usize, usize)>) -> String {
    place.map(|(place, of)| format!(" (number {place} of {of} in its queue)")).unwrap_or_default()
}

fn starting(cluster: &str, seen: &Observed) -> String {
    let there = seen.nodes.iter().filter(|node| node.phase != NodePhase::Waiting).count();
    if there < seen.nodes.len() || seen.nodes.is_empty() {
        let why = seen.unmade.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
        return format!("admitted on {cluster}; {there} of {} pods are there{why}", seen.nodes.len());
    }
    if let Some(message) = &seen.unschedulable {
        return format!("{cluster} has no node for a pod: {message}");
    }
    let stuck = seen.nodes.iter().enumerate().find(|(_, node)| node.phase == NodePhase::Starting);
    let reason = stuck.and_then(|(rank, node)| Some((rank, node.reason.as_deref()?)));
    match reason {
        Some((rank, reason)) => format!("node {rank} is not running on {cluster} yet: {reason}"),
        None => format!("its pods start on {cluster}"),
    }
}

/// Why a task has no cluster yet. `unknown`: clusters of which nothing is known.
pub fn undecided(choice: &Choice, unknown: &[&str]) -> String {
    let away = choice.verdicts.iter().filter_map(|(name, verdict)| match verdict {
        Verdict::Away(_, _) => Some(name.to_string()),
        Verdict::Fits(_) | Verdict::Waits(_) | Verdict::Never(_) => None,
    });
    let away: Vec<String> = away.collect();
    match &choice.outcome {
        Outcome::Run(placement) => format!("{} was chosen", placement.cluster),
        Outcome::Limited(excess) => excess.to_string(),
        Outcome::Wait if !away.is_empty() => {
            format!("no cluster takes it now; it could run on {}, which cannot be used", away.join(", "))
        }
        Outcome::Wait if choice.verdicts.values().any(Verdict::is_to_come) => never(choice),
        Outcome::Wait if !unknown.is_empty() => {
            format!("no cluster takes it so far, and {} did not answer yet", unknown.join(", "))
        }
        Outcome::Wait if choice.verdicts.is_empty() => "no cluster is joined".to_owned(),
        Outcome::Wait => never(choice),
        Outcome::Never => format!("no cluster can hold it as they are now: {}", never(choice)),
    }
}

/// Each cluster's obstacles, in a line.
pub fn never(choice: &Choice) -> String {
    let clusters = choice.verdicts.iter().filter_map(|(name, verdict)| match verdict {
        Verdict::Never(obstacles) => {
            let told: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
            Some(format!("{name}: {}", told.join("; ")))
        }
        Verdict::Fits(_) | Verdict::Waits(_) | Verdict::Away(..) => None,
    });
    clusters.collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::testing::cluster_name;

    fn node(phase: NodePhase, reason: Option<&str>, exit_code: Option<i32>) -> NodeView {
        NodeView { phase, reason: reason.map(str::to_owned), pod: None, exit_code }
    }

    fn there(nodes: Vec<NodeView>) -> Observed {
        Observed { objects: 1, expected: 1, left: 1, complete: true, nodes, ..Observed::default() }
    }

    fn to(phase: &Phase, seen: &Observed) -> Option<Move> {
        next(phase, seen, (&Recovery::default(), 0)).map(|step| step.to)
    }

    fn phases() -> [Phase; 4] {
        let cluster = cluster_name("one");
        [
            Phase::Dispatching { cluster: cluster.clone() },
            Phase::Queued { cluster: cluster.clone() },
            Phase::Starting { cluster: cluster.clone() },
            Phase::Running { cluster },
        ]
    }

    #[test]
    fn a_task_moves_as_its_objects_do() {
        let [dispatching, queued, starting, running] = phases();
        let two = |phase: NodePhase| vec![node(NodePhase::Running, None, None), node(phase, None, None)];
        let half = Observed { expected: 2, ..there(vec![]) };
        assert_eq!(to(&dispatching, &half), None);
        assert_eq!(to(&dispatching, &Observed { complete: false, ..there(vec![]) }), None);
        assert_eq!(to(&dispatching, &there(vec![])), Some(Move::Written));
        let refused = Observed { refused: Some("no".to_owned()), ..there(vec![]) };
        assert_eq!(to(&dispatching, &refused), Some(Move::Written), "what is there was taken after all");
        let refused = Observed { complete: false, ..refused };
        assert_eq!(to(&dispatching, &refused), Some(Move::Refused));
        assert_eq!(to(&queued, &refused), Some(Move::Refused), "its pods would wait for ever");
        let turned_away = Observed { turned_away: Some("forbidden".to_owned()), ..there(vec![]) };
        assert_eq!(to(&dispatching, &turned_away), Some(Move::Written));
        let turned_away = Observed { complete: false, ..turned_away };
        assert_eq!(to(&dispatching, &turned_away), Some(Move::TurnedAway));

        assert_eq!(to(&queued, &there(vec![])), None);
        let admitted = Observed { admitted: true, ..there(two(NodePhase::Starting)) };
        assert_eq!(to(&queued, &admitted), Some(Move::Admitted));
        assert_eq!(to(&starting, &admitted), None, "one node is not enough");
        let all = Observed { admitted: true, ..there(two(NodePhase::Running)) };
        assert_eq!(to(&queued, &all), Some(Move::Started), "steps in between may be missed");
        assert_eq!(to(&starting, &all), Some(Move::Started));
        assert_eq!(to(&running, &all), None);

        let evicted = Observed { admitted: false, evicted: Some("Preempted".to_owned()), ..all.clone() };
        for phase in [&starting, &running] {
            let step = next(phase, &evicted, (&Recovery::default(), 0)).expect("a move");
            assert_eq!((step.to, step.detail.as_deref()), (Move::Evicted, Some("Preempted")));
        }
        for phase in [&queued, &starting, &running] {
            assert_eq!(to(phase, &Observed { objects: 0, ..all.clone() }), Some(Move::Vanished));
            let over = Observed { end: Some(End::Succeeded), objects: 0, ..all.clone() };
            assert_eq!(to(phase, &over), Some(Move::Succeeded), "a result outlives its objects");
        }
        let withdrawing = Phase::Withdrawing { cluster: cluster_name("one"), then: Then::Stop };
        assert_eq!(to(&withdrawing, &all), None);
        assert_eq!(to(&withdrawing, &Observed::default()), Some(Move::Withdrawn));
    }

    #[test]
    fn a_failed_program_is_restarted_as_often_as_asked_and_a_disrupted_one_freely() {
        let [.., running] = phases();
        let failed = |code: i32, fault: Fault| Observed {
            admitted: true,
            end: Some(End::Failed { message: "BackoffLimitExceeded".to_owned(), fault }),
            ..there(vec![node(NodePhase::Failed, Some("Error"), Some(code))])
        };
        let recovery = Recovery { max_restarts: 2, always_on: vec![42], ..Recovery::default() };
        let outcome = |seen: &Observed, restarts: u32| {
            let step = next(&running, seen, (&recovery, restarts)).expect("a move");
            (step.to == Move::ProgramFailed { restart: true }, step.counts)
        };
        assert_eq!(outcome(&failed(1, Fault::Program), 0), (true, true));
        assert_eq!(outcome(&failed(1, Fault::Program), 2), (false, false));
        assert_eq!(outcome(&failed(42, Fault::Program), 2), (true, false));
        let spared = Observed { disrupted: true, ..failed(1, Fault::Program) };
        for disrupted in [failed(137, Fault::Cluster), spared] {
            let step = next(&running, &disrupted, (&recovery, 9)).expect("a move");
            assert_eq!((step.to, step.counts), (Move::Disrupted, false));
        }
        let step = next(&running, &failed(3, Fault::Program), (&Recovery::default(), 0)).expect("a move");
        assert_eq!(step.detail.as_deref(), Some("node 0 ended with exit code 3 (Error)"));
    }

    #[test]
    fn what_its_controller_gave_up_starting_is_tried_elsewhere() {
        let [_, queued, starting, running] = phases();
        let message = "InsufficientPodsReady: 0 of 1 pods are ready".to_owned();
        let end = |fault: Fault| Some(End::Failed { message: message.clone(), fault });
        for phase in [&queued, &starting, &running] {
            let pulls = there(vec![node(NodePhase::Starting, Some("ImagePullBackOff"), None)]);
            let seen = Observed { admitted: true, end: end(Fault::NotStarted), ..pulls };
            let step = next(phase, &seen, (&Recovery::default(), 0)).expect("a move");
            assert_eq!((step.to, step.detail.as_ref()), (Move::Stuck, Some(&message)), "{phase:?}");
            let drained = Observed { disrupted: true, ..seen };
            assert_eq!(to(phase, &drained), Some(Move::Stuck), "what was to replace a pod does not start");
        }
    }

    #[test]
    fn what_starts_for_too_long_gives_way_with_the_clusters_word() {
        let [dispatching, queued, starting, running] = phases();
        let pulls = there(vec![node(NodePhase::Starting, Some("ImagePullBackOff: no such image"), None)]);
        let minutes =
            |starting: u64, timeout: u64| (Duration::from_mins(starting), Duration::from_mins(timeout));
        let step = stuck(&starting, &pulls, minutes(60, 60)).expect("it is over");
        assert_eq!(step.to, Move::Stuck);
        assert_eq!(
            step.detail.as_deref(),
            Some("node 0 is not running on one yet: ImagePullBackOff: no such image")
        );
        assert_eq!(stuck(&starting, &pulls, minutes(59, 60)), None);
        assert_eq!(stuck(&starting, &pulls, minutes(9999, 0)), None, "0 is never");
        for phase in [&dispatching, &queued, &running] {
            assert_eq!(stuck(phase, &pulls, minutes(9999, 60)), None, "{phase:?}");
        }
    }

    #[test]
    fn what_runs_for_as_long_as_it_may_is_ended() {
        let [dispatching, queued, starting, running] = phases();
        let minutes = Duration::from_mins;
        let none = there(vec![NodeView::default(), node(NodePhase::Starting, None, None)]);
        let after = |phase: &Phase, seen: &Observed, ran: u64, most: Option<u64>| {
            overdue(phase, seen, (minutes(ran), most.map(minutes)))
        };
        let step = after(&running, &none, 60, Some(60)).expect("it is over");
        assert_eq!((step.to, step.detail.as_deref()), (Move::Overdue, Some("max_duration is 1h")));
        assert_eq!(after(&running, &none, 59, Some(60)), None);
        assert_eq!(after(&running, &none, 9999, None), None);
        for phase in [&dispatching, &queued, &starting] {
            assert_eq!(after(phase, &none, 9999, Some(60)), None, "it does not run: {phase:?}");
        }
        for phase in [NodePhase::Running, NodePhase::Succeeded, NodePhase::Failed] {
            let some = there(vec![NodeView::default(), node(phase, None, None)]);
            let step = after(&starting, &some, 60, Some(60));
            assert!(step.is_some(), "one node that never comes is no way to run the others for ever");
            assert_eq!(after(&starting, &some, 59, Some(60)), None);
            assert_eq!(after(&starting, &some, 9999, None), None);
        }
    }

    #[test]
    fn pauses_grow_up_to_some_minutes() {
        assert_eq!([1, 2, 8, 9, 4000].map(|epoch| pause(epoch).as_secs()), [2, 4, 256, 300, 300]);
    }

    #[test]
    fn there_is_always_a_reason_while_it_does_not_run() {
        let [dispatching, queued, starting, running] = phases();
        let reason = |phase: &Phase, seen: &Observed| pending_reason(phase, seen).expect("a reason");
        assert_eq!(reason(&dispatching, &there(vec![])), "its objects are being created on one");
        let waits = Observed { waits: Some("1 more needed".to_owned()), ..there(vec![]) };
        assert_eq!(reason(&queued, &waits), "waits for quota on one: 1 more needed");
        let placed = Observed { place: Some((2, 3)), ..waits };
        assert_eq!(
            reason(&queued, &placed),
            "waits for quota on one: 1 more needed (number 2 of 3 in its queue)"
        );
        let pulls = there(vec![node(NodePhase::Starting, Some("ImagePullBackOff"), None)]);
        assert_eq!(reason(&starting, &pulls), "node 0 is not running on one yet: ImagePullBackOff");
        let unschedulable = Observed { unschedulable: Some("unbound claims".to_owned()), ..pulls };
        assert_eq!(reason(&starting, &unschedulable), "one has no node for a pod: unbound claims");
        let missing = there(vec![NodeView::default(), node(NodePhase::Running, None, None)]);
        assert_eq!(reason(&starting, &missing), "admitted on one; 1 of 2 pods are there");
        let unmade = Some("pods \"x\" is forbidden: exceeded quota".to_owned());
        assert_eq!(
            reason(&starting, &Observed { unmade, ..missing }),
            "admitted on one; 1 of 2 pods are there: pods \"x\" is forbidden: exceeded quota"
        );
        assert_eq!(pending_reason(&running, &there(vec![])), None);
    }
}
