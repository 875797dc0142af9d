//! Tasks that run one after the other: each waits until the one before it has succeeded, and is never run once
//! that cannot happen any more.

use super::{
    names::TaskId,
    phase::{Before, Phase, Then},
};

/// A task's place in a pipeline.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stage {
    /// The first task's id, by which the whole goes.
    pub pipeline: TaskId,
    /// What the file calls the whole.
    pub name: Option<String>,
    /// From 1.
    pub number: u32,
    pub of: u32,
    /// The stage before, until that has succeeded.
    pub waits_for: Option<TaskId>,
}

/// What becomes of the stages behind a task.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Behind {
    /// It is the next one's turn.
    Next,
    /// None of them is run, since this one did so.
    Never(&'static str),
}

impl Stage {
    /// Of all of `ids`, in order.
    pub fn of(ids: &[TaskId], name: Option<&str>) -> Vec<Self> {
        let Some(first) = ids.first() else { return Vec::new() };
        let of = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let before = std::iter::once(None).chain(ids.iter().map(Some));
        let stage = |(number, waits_for): (u32, Option<&TaskId>)| Self {
            pipeline: first.clone(),
            name: name.map(str::to_owned),
            number,
            of,
            waits_for: waits_for.cloned(),
        };
        (1..=of).zip(before).map(stage).collect()
    }

    /// Why it is not its turn.
    pub fn waits(&self) -> Option<String> {
        let before = self.waits_for.as_ref()?;
        Some(format!("waits for {}", called(self.number.saturating_sub(1), before)))
    }
}

/// How a stage is called.
pub fn called(number: u32, id: &TaskId) -> String {
    format!("stage {number} ({id})")
}

impl Behind {
    /// `None`: that is still open.
    pub fn of(phase: &Phase) -> Option<Self> {
        match phase {
            Phase::Succeeded { .. } => Some(Self::Next),
            Phase::Failed { .. }
            | Phase::Withdrawing { then: Then::Fail(_), .. }
            | Phase::Lost { before: Before::Withdrawing(Then::Fail(_)), .. } => Some(Self::Never("failed")),
            Phase::Stopped
            | Phase::Withdrawing { then: Then::Stop, .. }
            | Phase::Lost { before: Before::Withdrawing(Then::Stop), .. } => Some(Self::Never("was stopped")),
            Phase::Pending
            | Phase::Dispatching { .. }
            | Phase::Queued { .. }
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Withdrawing { then: Then::Requeue, .. }
            | Phase::Lost { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{phase::Failure, testing::cluster_name};

    #[test]
    fn each_stage_waits_for_the_one_before_it() {
        let ids: Vec<TaskId> = (1..=3).map(TaskId::draw).collect();
        let stages = Stage::of(&ids, Some("train"));
        assert_eq!(
            stages.iter().map(|stage| (stage.number, stage.of)).collect::<Vec<_>>(),
            [(1, 3), (2, 3), (3, 3)]
        );
        assert!(
            stages.iter().all(|stage| stage.pipeline == ids[0] && stage.name.as_deref() == Some("train"))
        );
        assert_eq!(stages[0].waits(), None);
        assert_eq!(stages[2].waits(), Some(format!("waits for stage 2 ({})", ids[1])));
        assert!(Stage::of(&[], None).is_empty());
    }

    #[test]
    fn a_pipeline_goes_on_after_success_and_ends_with_anything_that_is_final() {
        let cluster = || cluster_name("one");
        let never = |phase: Phase| matches!(Behind::of(&phase), Some(Behind::Never(_)));
        assert_eq!(Behind::of(&Phase::Succeeded { cluster: cluster() }), Some(Behind::Next));
        assert!(never(Phase::Failed { reason: Failure::Program }));
        assert!(never(Phase::Stopped));
        let withdrawing = |then| Phase::Withdrawing { cluster: cluster(), then };
        assert!(never(withdrawing(Then::Stop)) && never(withdrawing(Then::Fail(Failure::Refused))));
        let lost = |before| Phase::Lost { cluster: cluster(), before };
        assert!(never(lost(Before::Withdrawing(Then::Stop))));
        for open in [
            Phase::Pending,
            Phase::Running { cluster: cluster() },
            withdrawing(Then::Requeue),
            lost(Before::Running),
            lost(Before::Withdrawing(Then::Requeue)),
        ] {
            assert_eq!(Behind::of(&open), None, "{open:?}");
        }
    }
}
