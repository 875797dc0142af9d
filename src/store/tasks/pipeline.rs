//! What a move of one stage means for the others: it is in the same commit, so that no crash comes between.

use jiff::Timestamp;
use sqlx::{
    Row,
    sqlite::{SqliteConnection, SqliteRow},
};

use super::{
    super::{Store, StoreError, column, error::reading},
    TaskMove, TaskRow, append, task,
};
use fedq_domain::task::{
    event::Event,
    names::TaskId,
    phase::{Move, State},
    pipeline::{Behind, Stage, called},
};

impl Store {
    /// All stages, in order; none that is not kept any more.
    pub async fn pipeline(&self, id: &TaskId) -> Result<Vec<TaskRow>, StoreError> {
        sqlx::query("SELECT * FROM tasks WHERE pipeline = ?1 ORDER BY stage")
            .bind(id.as_str())
            .try_map(|row| task(&row))
            .fetch_all(self.readers())
            .await
            .map_err(reading("read the pipeline"))
    }

    /// The task, or the first stage behind it that is not over.
    pub(super) async fn first_live(&self, of: &TaskRow) -> Result<Option<TaskRow>, StoreError> {
        let Some(stage) = of.stage.as_ref().filter(|_| of.state.phase.is_over()) else { return Ok(None) };
        sqlx::query(
            "SELECT * FROM tasks WHERE pipeline = ?1 AND ?2 < stage AND over = 0 ORDER BY stage LIMIT 1",
        )
        .bind(stage.pipeline.as_str())
        .bind(stage.number)
        .try_map(|row| task(&row))
        .fetch_optional(self.readers())
        .await
        .map_err(reading("read the pipeline"))
    }
}

pub(super) fn stage(row: &SqliteRow) -> sqlx::Result<Option<Stage>> {
    if row.try_get::<Option<&str>, _>("pipeline")?.is_none() {
        return Ok(None);
    }
    Ok(Some(Stage {
        pipeline: column::name(row, "pipeline")?,
        name: row.try_get("pipeline_name")?,
        number: row.try_get("stage")?,
        of: row.try_get("stages")?,
        waits_for: match row.try_get::<Option<&str>, _>("waits_for")? {
            Some(_) => Some(column::name(row, "waits_for")?),
            None => None,
        },
    }))
}

/// The next stage's turn, or the end of all that are behind.
pub(super) async fn follow_up(
    connection: &mut SqliteConnection,
    stage: &Stage,
    step: &TaskMove,
) -> sqlx::Result<()> {
    let this = called(stage.number, &step.id);
    match Behind::of(&step.to.phase) {
        None => Ok(()),
        Some(Behind::Next) => release(connection, &step.id, &this, step.event.at).await,
        Some(Behind::Never(why)) => cancel(connection, stage, &format!("{this} {why}"), step.event.at).await,
    }
}

async fn release(
    connection: &mut SqliteConnection,
    id: &TaskId,
    this: &str,
    at: Timestamp,
) -> sqlx::Result<()> {
    let next = sqlx::query(
        "UPDATE tasks SET waits_for = NULL WHERE waits_for = ?1 AND over = 0 RETURNING seq, state",
    )
    .bind(id.as_str())
    .fetch_optional(&mut *connection)
    .await?;
    let Some(row) = next else { return Ok(()) };
    let state: State = column::json(&row, "state")?;
    append(connection, row.try_get("seq")?, &Event::due(&state, at, this)).await
}

async fn cancel(
    connection: &mut SqliteConnection,
    stage: &Stage,
    why: &str,
    at: Timestamp,
) -> sqlx::Result<()> {
    let behind = sqlx::query("SELECT seq, state FROM tasks WHERE pipeline = ?1 AND ?2 < stage AND over = 0")
        .bind(stage.pipeline.as_str())
        .bind(stage.number)
        .fetch_all(&mut *connection)
        .await?;
    for row in behind {
        let (seq, state): (i64, State) = (row.try_get("seq")?, column::json(&row, "state")?);
        // What waits is pending, so that nothing is anywhere.
        let Ok(to) = state.next(Move::Cancel) else { continue };
        sqlx::query("UPDATE tasks SET state = ?1, over = 1, changed_ms = ?2 WHERE seq = ?3")
            .bind(column::json_text(&to)?)
            .bind(at.as_millisecond())
            .bind(seq)
            .execute(&mut *connection)
            .await?;
        append(connection, seq, &Event::of(&Move::Cancel, &to, at, Some(why))).await?;
    }
    Ok(())
}
