use proptest::prelude::*;

use super::*;

fn cluster(name: &str) -> ClusterName {
    ClusterName::new(name).expect("a name")
}

fn after(moves: &[Move]) -> State {
    moves.iter().fold(State::default(), |state, step| {
        state.next(step.clone()).unwrap_or_else(|error| panic!("{error}"))
    })
}

fn dispatch() -> Move {
    Move::Dispatch(cluster("one"))
}

#[test]
fn a_task_runs_to_its_end() {
    let state = after(&[dispatch(), Move::Written, Move::Admitted, Move::Started, Move::Succeeded]);
    assert_eq!(state, State { phase: Phase::Succeeded { cluster: cluster("one") }, epoch: 1 });
}

#[test]
fn steps_that_a_watch_missed_are_skipped() {
    assert_eq!(after(&[dispatch(), Move::Succeeded]).phase.word(), "succeeded");
    assert_eq!(after(&[dispatch(), Move::Started]).phase.word(), "running");
}

#[test]
fn a_spill_is_withdrawn_first_and_dispatched_under_the_next_epoch() {
    let spilled = after(&[dispatch(), Move::Written, Move::Spill]);
    assert_eq!(spilled.phase, Phase::Withdrawing { cluster: cluster("one"), then: Then::Requeue });
    assert!(spilled.clone().next(Move::Dispatch(cluster("two"))).is_err());
    let moved =
        after(&[dispatch(), Move::Written, Move::Spill, Move::Withdrawn, Move::Dispatch(cluster("two"))]);
    assert_eq!((moved.phase.cluster(), moved.epoch), (Some(&cluster("two")), 2));
}

#[test]
fn an_admitted_task_does_not_spill() {
    let state = after(&[dispatch(), Move::Written, Move::Admitted]);
    assert!(state.clone().next(Move::Spill).is_err());
    assert_eq!(state.next(Move::Evicted).map(|state| state.phase.word()), Ok("queued"));
}

#[test]
fn a_stop_waits_until_the_cluster_confirms() {
    for before in [vec![], vec![Move::Written], vec![Move::Written, Move::Admitted, Move::Started]] {
        let state = after(&[vec![dispatch()], before, vec![Move::Stop]].concat());
        assert_eq!(state.phase.word(), "stopping");
        assert_eq!(state.next(Move::Withdrawn).map(|state| state.phase), Ok(Phase::Stopped));
    }
    assert_eq!(after(&[Move::Stop, Move::Stop]).phase, Phase::Stopped);
}

#[test]
fn a_stop_wins_over_another_try() {
    let state = after(&[dispatch(), Move::Spill, Move::Stop, Move::Withdrawn]);
    assert_eq!(state.phase, Phase::Stopped);
    let state = after(&[dispatch(), Move::Spill, Move::ClusterLost, Move::Stop, Move::Fenced]);
    assert_eq!(state.phase, Phase::Stopped);
}

#[test]
fn what_does_not_start_gives_its_quota_back_and_waits_anew() {
    for before in [vec![], vec![Move::Admitted], vec![Move::Admitted, Move::Started]] {
        let stuck = after(&[vec![dispatch(), Move::Written], before, vec![Move::Stuck]].concat());
        assert_eq!(stuck.phase.word(), "withdrawing", "its pods might start at this very moment");
        let again = stuck.next(Move::Withdrawn).expect("legal");
        assert_eq!((again.phase, again.epoch), (Phase::Pending, 1));
    }
    assert!(after(&[dispatch()]).next(Move::Stuck).is_err(), "nothing of it was there");
}

#[test]
fn a_lost_cluster_keeps_the_task_until_it_is_back_or_fenced() {
    let lost = after(&[dispatch(), Move::Written, Move::Started, Move::ClusterLost]);
    assert_eq!(lost.phase.word(), "lost");
    assert!(lost.clone().next(Move::Dispatch(cluster("two"))).is_err());
    assert_eq!(lost.clone().next(Move::ClusterBack).map(|state| state.phase.word()), Ok("running"));
    let fenced = lost.next(Move::Fenced).expect("legal");
    assert_eq!((fenced.phase, fenced.epoch), (Phase::Pending, 1));
}

#[test]
fn another_cluster_takes_over_from_a_lost_one_what_is_to_go_on() {
    let by = || Move::Replace(cluster("two"));
    let lost = |step: Move| after(&[dispatch(), Move::Written, step, Move::ClusterLost]);
    for before in [Move::Started, Move::Spill] {
        let replaced = lost(before).next(by()).expect("legal");
        assert_eq!((replaced.phase, replaced.epoch), (Phase::Dispatching { cluster: cluster("two") }, 2));
    }
    assert!(lost(Move::Started).next(Move::Replace(cluster("one"))).is_err(), "that is the lost one");
    for over in [Move::Stop, Move::Vanished] {
        assert!(lost(over).next(by()).is_err(), "it is not to run again");
    }
    assert!(after(&[dispatch(), Move::Written]).next(by()).is_err(), "its cluster answers");
}

#[test]
fn refusals_and_vanished_objects_fail_once_nothing_is_left() {
    for (step, reason) in [(Move::Refused, Failure::Refused), (Move::Vanished, Failure::Vanished)] {
        let state = after(&[dispatch(), step]);
        assert_eq!(state.phase.word(), "withdrawing");
        assert_eq!(state.next(Move::Withdrawn).map(|state| state.phase), Ok(Phase::Failed { reason }));
    }
    for runs in [Move::Admitted, Move::Started] {
        let overdue = after(&[dispatch(), Move::Written, runs, Move::Overdue]);
        let failed = Phase::Failed { reason: Failure::Overdue };
        assert_eq!(overdue.next(Move::Withdrawn).map(|state| state.phase), Ok(failed));
    }
    assert!(after(&[dispatch(), Move::Written]).next(Move::Overdue).is_err(), "it does not run");
    assert_eq!(after(&[Move::NeverFits]).phase, Phase::Failed { reason: Failure::NeverFits });
}

#[test]
fn states_are_kept_as_json() {
    let lost = after(&[dispatch(), Move::Refused, Move::ClusterLost]);
    let text = serde_json::to_string(&lost).expect("JSON");
    assert_eq!(
        text,
        r#"{"phase":"lost","cluster":"one","before":{"withdrawing":{"fail":"refused"}},"epoch":1}"#
    );
    assert_eq!(serde_json::from_str::<State>(&text).expect("JSON"), lost);
}

fn any_move() -> impl Strategy<Value = Move> {
    let names = proptest::sample::select(vec!["one", "two", "three"]);
    prop_oneof![
        4 => names.clone().prop_map(|name| Move::Dispatch(cluster(name))),
        2 => names.prop_map(|name| Move::Replace(cluster(name))),
        2 => Just(Move::Withdrawn),
        20 => proptest::sample::select(vec![
            Move::Written,
            Move::Refused,
            Move::TurnedAway,
            Move::Admitted,
            Move::Started,
            Move::Evicted,
            Move::Succeeded,
            Move::ProgramFailed { restart: true },
            Move::ProgramFailed { restart: false },
            Move::Disrupted,
            Move::Spill,
            Move::Stuck,
            Move::Overdue,
            Move::Vanished,
            Move::NeverFits,
            Move::Stop,
            Move::ClusterLost,
            Move::ClusterBack,
            Move::Fenced,
        ]),
    ]
}

proptest! {
    /// Whatever comes: epochs never fall and rise only by a dispatch, a task changes its cluster only
    /// through a confirmed withdrawal or a fence, or from a lost one, and what is over stays so.
    #[test]
    fn any_sequence_of_moves_keeps_the_rules(moves in proptest::collection::vec(any_move(), 0..60)) {
        let mut state = State::default();
        // The cluster on which something of the task may be.
        let mut on: Option<ClusterName> = None;
        for step in moves {
            let before = state.clone();
            match state.next(step.clone()) {
                Err(refused) => {
                    prop_assert_eq!(&refused.from, &before.phase);
                    prop_assert_eq!(refused.to, step);
                    state = before;
                    continue;
                }
                Ok(next) => state = next,
            }
            let rise = u32::from(step.dispatches_to().is_some());
            prop_assert_eq!(state.epoch, before.epoch + rise);
            if before.phase.is_over() {
                prop_assert_eq!(&state, &before);
            }
            match &step {
                Move::Dispatch(cluster) => {
                    prop_assert_eq!(on.replace(cluster.clone()), None);
                }
                Move::Replace(cluster) => {
                    prop_assert_eq!(before.phase.word(), "lost");
                    let was = on.replace(cluster.clone());
                    prop_assert_ne!(was.as_ref(), Some(cluster));
                }
                Move::Withdrawn | Move::Fenced => on = None,
                _ => {}
            }
            if let Some(cluster) = state.phase.cluster() {
                prop_assert_eq!(Some(cluster), on.as_ref());
            }
            if state.phase == Phase::Pending {
                prop_assert_eq!(on.as_ref(), None);
            }
            let text = serde_json::to_string(&state).expect("JSON");
            prop_assert_eq!(serde_json::from_str::<State>(&text).expect("JSON"), state.clone());
        }
    }
}
