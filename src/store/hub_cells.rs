//! What each hub queue's annotation `fedq.dev/cells` last said, so that a queue whose annotation gets lost keeps its base,
//! also when that happens while no daemon runs.

use std::collections::BTreeMap;

use futures::FutureExt;
use sqlx::sqlite::SqliteRow;

use super::{Store, StoreError, column, error::reading};
use fedq_values::ids::QueueName;

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HubCells {
    /// Of the object: one that is made anew under the same name is another.
    pub uid: String,
    /// The annotation's text.
    pub cells: String,
}

impl Store {
    /// Replaces what is known of a queue; `None` forgets it.
    pub async fn put_hub_cells(&self, queue: &QueueName, cells: Option<&HubCells>) -> Result<(), StoreError> {
        let (queue, cells) = (queue.clone(), cells.cloned());
        self.write("record a hub queue's cells", move |connection| {
            async move {
                let query = match &cells {
                    Some(HubCells { uid, cells }) => sqlx::query(
                        "INSERT OR REPLACE INTO hub_cells (queue, uid, cells) VALUES (?1, ?2, ?3)",
                    )
                    .bind(queue.as_str())
                    .bind(uid.as_str())
                    .bind(cells.as_str()),
                    None => sqlx::query("DELETE FROM hub_cells WHERE queue = ?1").bind(queue.as_str()),
                };
                query.execute(connection).await.map(drop)
            }
            .boxed()
        })
        .await
    }

    pub async fn load_hub_cells(&self) -> Result<BTreeMap<QueueName, HubCells>, StoreError> {
        let cells = |row: SqliteRow| {
            let cells = HubCells { uid: text(&row, "uid")?, cells: text(&row, "cells")? };
            Ok((column::name(&row, "queue")?, cells))
        };
        let rows = sqlx::query("SELECT * FROM hub_cells").try_map(cells).fetch_all(self.readers()).await;
        rows.map(|rows| rows.into_iter().collect()).map_err(reading("read the hub queues' cells"))
    }
}

fn text(row: &SqliteRow, column: &'static str) -> sqlx::Result<String> {
    sqlx::Row::try_get(row, column)
}
