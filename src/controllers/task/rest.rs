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
        Move::TurnedAway => {
            let until = now.checked_add(AVOIDED).ok()?;
            let dispatch = row.dispatch.as_ref()?;
            // Through the hub it may have been any of several.
            let from = (!dispatch.by_multikueue).then(|| dispatch.placement.cluster.clone());
            let place = from.as_ref().map_or(HUB, ClusterName::as_str);
            let reason =
                format!("{place} did not take its objects and is tried again at {until:.0}: {detail}");
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
        let over = Step::new(Move::ProgramFailed { restart: false }, None);
        assert!(after(&over, &row, Timestamp::UNIX_EPOCH).is_none());
    }
}
