//! History is bounded by age and by count, whichever is reached first.

use std::time::Duration;

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};

use super::{Store, StoreError};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Retention {
    pub keep_for: Duration,
    /// In each table.
    pub keep_rows: u32,
}

/// How many rows went.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pruned {
    pub rows: u64,
}

/// The last plan of each cluster stays whatever its age: it explains the quotas of today.
const STATEMENTS: [&str; 6] = [
    "DELETE FROM plans WHERE (at_ms < ?1 OR id <= (SELECT id FROM plans ORDER BY id DESC LIMIT 1 OFFSET ?2))
       AND id NOT IN (SELECT max(id) FROM plans GROUP BY cluster)",
    "DELETE FROM capacity_history
       WHERE at_ms < ?1 OR id <= (SELECT id FROM capacity_history ORDER BY id DESC LIMIT 1 OFFSET ?2)",
    "DELETE FROM claim_history
       WHERE at_ms < ?1 OR id <= (SELECT id FROM claim_history ORDER BY id DESC LIMIT 1 OFFSET ?2)",
    // What people do with tasks and volumes is counted apart: thousands of submissions push out nothing that was done
    // to a cluster or a claim. So is what was refused, which anybody can have as much of as they like.
    "DELETE FROM audit WHERE at_ms < ?1 OR (refused = 0 AND object NOT GLOB 'tasks*' AND object NOT GLOB 'volumes*' AND id <=
       (SELECT id FROM audit WHERE refused = 0 AND object NOT GLOB 'tasks*' AND object NOT GLOB 'volumes*'
        ORDER BY id DESC LIMIT 1 OFFSET ?2))",
    "DELETE FROM audit WHERE at_ms < ?1 OR (refused = 0 AND (object GLOB 'tasks*' OR object GLOB 'volumes*') AND id <=
       (SELECT id FROM audit WHERE refused = 0 AND (object GLOB 'tasks*' OR object GLOB 'volumes*')
        ORDER BY id DESC LIMIT 1 OFFSET ?2))",
    "DELETE FROM audit WHERE at_ms < ?1 OR (refused = 1 AND id <=
       (SELECT id FROM audit WHERE refused = 1 ORDER BY id DESC LIMIT 1 OFFSET ?2))",
];
/// A task that is not over is no history, nor one of which a lost cluster may still run something. Its events go with it.
const TASKS: [&str; 1] = ["DELETE FROM tasks WHERE over = 1 AND seq NOT IN (SELECT task FROM task_left_behind)
       AND (changed_ms < ?1 OR seq <= (SELECT seq FROM tasks WHERE over = 1 ORDER BY seq DESC LIMIT 1 OFFSET ?2))"];

impl Store {
    /// Removes history that `retention` does not keep; finished tasks are not part of it.
    pub async fn prune(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.remove(&STATEMENTS, retention, now).await
    }

    /// Removes finished tasks that `retention` does not keep.
    pub async fn prune_tasks(&self, retention: Retention, now: Timestamp) -> Result<Pruned, StoreError> {
        self.remove(&TASKS, retention, now).await
    }

    async fn remove(
        &self,
        statements: &'static [&'static str],
        retention: Retention,
        now: Timestamp,
    ) -> Result<Pruned, StoreError> {
        let keep_for = SignedDuration::try_from(retention.keep_for).unwrap_or(SignedDuration::MAX);
        let oldest = now.saturating_sub(keep_for).unwrap_or(Timestamp::MIN).as_millisecond();
        let mut pruned = Pruned::default();
        // A write each: one long delete would hold up acknowledgements.
        for statement in statements {
            pruned.rows += self
                .write("prune history", move |connection| {
                    async move {
                        let done = sqlx::query(*statement)
                            .bind(oldest)
                            .bind(retention.keep_rows)
                            .execute(connection)
                            .await?;
                        Ok(done.rows_affected())
                    }
                    .boxed()
                })
                .await?;
        }
        Ok(pruned)
    }
}
