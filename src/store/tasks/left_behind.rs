//! What tasks left behind on lost clusters when others took them over.

use futures::FutureExt;
use jiff::Timestamp;
use sqlx::sqlite::SqliteConnection;

use super::{
    super::{Store, StoreError, column, error::reading},
    TaskMove, TaskRow, note, task,
};
use fedq_domain::task::{
    event::Reason,
    names::TaskId,
    phase::{Epoch, Phase},
};

impl Store {
    /// Dispatches that may still be on a cluster that was lost: each task as it was then, with the dispatch of then.
    pub async fn left_behind(&self) -> Result<Vec<TaskRow>, StoreError> {
        sqlx::query(
            "SELECT t.*, l.state AS left_state, l.dispatch AS left_dispatch
             FROM task_left_behind l JOIN tasks t ON t.seq = l.task ORDER BY l.task, l.epoch",
        )
        .try_map(|row| {
            let (state, dispatch) = (column::json(&row, "left_state")?, column::json(&row, "left_dispatch")?);
            Ok(TaskRow { state, dispatch: Some(dispatch), ..task(&row)? })
        })
        .fetch_all(self.readers())
        .await
        .map_err(reading("read what tasks left behind"))
    }

    /// Nothing of that dispatch is left. Told of the task with `message`, where it is not over.
    pub async fn forget_left_behind(
        &self,
        id: &TaskId,
        epoch: Epoch,
        (now, message): (Timestamp, &str),
    ) -> Result<(), StoreError> {
        let (id, message) = (id.clone(), message.to_owned());
        self.write("record that nothing of a task is left behind", move |connection| {
            async move {
                let gone = sqlx::query(
                    "DELETE FROM task_left_behind WHERE epoch = ?1 AND task = (SELECT seq FROM tasks WHERE id = ?2)",
                )
                .bind(epoch)
                .bind(id.as_str())
                .execute(&mut *connection)
                .await?;
                if 0 < gone.rows_affected() {
                    note(connection, &id, now, Reason::Withdrawn, &message).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
    }
}

/// Before a move is stored: keeps what that leaves behind.
pub(super) async fn leave(connection: &mut SqliteConnection, step: &TaskMove) -> sqlx::Result<()> {
    let leaves = matches!(step.from.phase, Phase::Lost { .. }) && step.from.epoch < step.to.epoch;
    if leaves {
        sqlx::query(
            "INSERT INTO task_left_behind (task, epoch, state, dispatch)
             SELECT seq, ?1, state, dispatch FROM tasks WHERE id = ?2 AND state = ?3 AND dispatch IS NOT NULL",
        )
        .bind(step.from.epoch)
        .bind(step.id.as_str())
        .bind(column::json_text(&step.from)?)
        .execute(connection)
        .await?;
    }
    Ok(())
}
