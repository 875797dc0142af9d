//! What operators read of tasks: how many are where, what happened, how long it took.

use std::{collections::BTreeMap, time::Duration};

use fedq_domain::task::{event::Reason, phase::Move};
use fedq_store::{TaskMove, TaskRow};

use super::TaskController;

impl TaskController {
    pub(super) fn count_tasks(&self) {
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for live in self.live.values() {
            *counts.entry(live.row.state.phase.word()).or_default() += 1;
        }
        self.context.metrics.tasks(&counts);
    }

    /// A task that was not there at the last look.
    pub(super) fn count_submitted(&self, row: &TaskRow) {
        // At the start all are read, and were counted by the process before.
        if self.seen != 0 && !self.live.contains_key(&row.id) && !self.past.contains_key(&row.id) {
            self.context.metrics.task_event(Reason::Submitted);
        }
    }

    pub(super) fn measure(&self, row: &TaskRow, step: &TaskMove, to: &Move) {
        self.context.metrics.task_event(step.event.reason);
        // The first dispatch; later stages of a pipeline wait for others, not for a cluster.
        let first = step.to.epoch == 1 && row.stage.as_ref().is_none_or(|stage| stage.number == 1);
        if !first {
            return;
        }
        let took = Duration::try_from(step.event.at.duration_since(row.submitted)).unwrap_or_default();
        match to {
            Move::Written => self.context.metrics.task_dispatched(took),
            Move::Started => self.context.metrics.task_started(took),
            _ => {}
        }
    }
}
