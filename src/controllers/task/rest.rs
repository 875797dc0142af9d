//! Pauses of tasks that would otherwise be dispatched to the same end at once.

use jiff::{SignedDuration, Timestamp};

use fedq_domain::task::{
    phase::Move,
    progress::{Step, pause},
};
use fedq_store::TaskRow;
use fedq_values::ids::ClusterName;

use super::HUB;

/// A cluster that did not take a task's objects is left alone by that task for so long.
const AVOIDED: SignedDuration = SignedDuration::from_mins(2);

/// One on which it did not start, for longer: what is wrong there takes somebody to mend it.
const AVOIDED_STUCK: SignedDuration = SignedDuration::from_mins(10);

/// A while in which a task is not dispatched. It is not stored: after a start it is tried at once.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub until: Timestamp,
    /// `None`: anywhere.
    pub from: Option<ClusterName>,
    pub reason: String,
}

/// The time that a task is left alone after `step`.
pub(super) fn after(step: &Step, row: &TaskRow, now: Timestamp) -> Option<Rest> {
    let detail = step.detail.as_deref().unwrap_or_default();
    match &step.to {
        Move::ProgramFailed { restart: true } | Move::Disrupted => {
            let until = now.checked_add(pause(row.state.epoch)).ok()?;
            let reason = format!("it was ended and is started again at {until:.0}: {detail}");
            Some(Rest { until, from: None, reason })
        }
        to @ (Move::TurnedAway | Move::Stuck) => {
            let stuck = *to == Move::Stuck;
            let until = now.checked_add(if stuck { AVOIDED_STUCK } else { AVOIDED }).ok()?;
            let dispatch = row.dispatch.as_ref()?;
            // Through the hub it may have been any of several.
            let from = (!dispatch.by_multikueue).then(|| dispatch.placement.cluster.clone());
            let place = from.as_ref().map_or(HUB, ClusterName::as_str);
            let what = if stuck { "did not start it" } else { "did not take its objects" };
            let reason = format!("{place} {what} and is tried again at {until:.0}: {detail}");
            Some(Rest { until, from, reason })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::testing::row;
    use fedq_domain::task::{phase::Phase, testing::cluster_name};

    #[test]
    fn what_ends_again_and_again_waits_longer_each_time_whether_or_not_that_counts() {
        let mut row = row("run: x\n", Phase::Running { cluster: cluster_name("one") });
        for to in [Move::ProgramFailed { restart: true }, Move::Disrupted] {
            for counts in [true, false] {
                let step = Step { to: to.clone(), detail: Some("exit code 1".to_owned()), counts };
                for (epoch, seconds) in [(1, 2), (2, 4), (5, 32), (40, 300)] {
                    row.state.epoch = epoch;
                    let rest = after(&step, &row, Timestamp::UNIX_EPOCH).expect("it rests");
                    assert_eq!((rest.until.as_second(), rest.from), (seconds, None), "{to:?}, {counts}");
                    assert!(rest.reason.contains("exit code 1"), "{}", rest.reason);
                }
            }
        }
        for (to, minutes) in [(Move::TurnedAway, 2), (Move::Stuck, 10)] {
            let rest = after(&Step::new(to, None), &row, Timestamp::UNIX_EPOCH).expect("it rests");
            let from = rest.from.as_ref().map(ClusterName::as_str);
            assert_eq!(
                (rest.until.as_second(), from),
                (60 * minutes, Some("one")),
                "others are tried at once"
            );
        }
        let over = Step::new(Move::ProgramFailed { restart: false }, None);
        assert!(after(&over, &row, Timestamp::UNIX_EPOCH).is_none());
    }
}
