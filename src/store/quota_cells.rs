//! What each cluster contributes to each hub cell, so that a restart keeps the share of a cluster that
//! does not answer.

use std::collections::BTreeMap;

use futures::{FutureExt, TryStreamExt};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::{Store, StoreError, column, error::reading};
use fedq_domain::resources::Cell;
use fedq_values::{ids::ClusterName, quantity::Amount};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuotaCell {
    pub cell: Cell,
    /// What the plan gives it.
    pub effective: Amount,
    /// What the worker's queue last confirmed to hold.
    pub acknowledged: Amount,
    /// What of it the hub counts.
    pub term: Amount,
}

impl Store {
    /// Replaces all cells of the cluster. Writes nothing where they are the same.
    pub async fn put_quota_cells(
        &self,
        cluster: &ClusterName,
        cells: &[QuotaCell],
    ) -> Result<(), StoreError> {
        let (name, cells) = (cluster.clone(), cells.to_vec());
        self.write("record quota cells", move |connection| {
            async move {
                let mut before = stored(connection, &name).await?;
                for cell in cells {
                    if before.remove(&cell.cell).as_ref() != Some(&cell) {
                        put(connection, &name, &cell).await?;
                    }
                }
                for gone in before.keys() {
                    sqlx::query(
                        "DELETE FROM quota_cells WHERE cluster = ?1 AND queue = ?2 AND flavor = ?3 AND resource = ?4",
                    )
                    .bind(name.as_str())
                    .bind(gone.queue.as_str())
                    .bind(gone.flavor.as_str())
                    .bind(gone.resource.as_str())
                    .execute(&mut *connection)
                    .await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
        .map_err(|error| error.naming(cluster))
    }

    /// Cells of one cluster, in order of queue, flavor, resource.
    pub async fn quota_cells(&self, cluster: &ClusterName) -> Result<Vec<QuotaCell>, StoreError> {
        sqlx::query("SELECT * FROM quota_cells WHERE cluster = ?1 ORDER BY queue, flavor, resource")
            .bind(cluster.as_str())
            .try_map(|row| cell(&row))
            .fetch_all(self.readers())
            .await
            .map_err(reading("read quota cells"))
    }

    /// Cells of all clusters, for the first plan after a start.
    pub async fn load_quota_cells(&self) -> Result<BTreeMap<ClusterName, Vec<QuotaCell>>, StoreError> {
        let what = "read quota cells";
        let mut by_cluster = BTreeMap::<ClusterName, Vec<QuotaCell>>::new();
        let mut rows = sqlx::query("SELECT * FROM quota_cells ORDER BY cluster, queue, flavor, resource")
            .try_map(|row: SqliteRow| Ok((column::name(&row, "cluster")?, cell(&row)?)))
            .fetch(self.readers());
        while let Some((cluster, cell)) = rows.try_next().await.map_err(reading(what))? {
            by_cluster.entry(cluster).or_default().push(cell);
        }
        Ok(by_cluster)
    }
}

async fn stored(
    connection: &mut SqliteConnection,
    cluster: &ClusterName,
) -> sqlx::Result<BTreeMap<Cell, QuotaCell>> {
    let rows = sqlx::query("SELECT * FROM quota_cells WHERE cluster = ?1")
        .bind(cluster.as_str())
        .try_map(|row| cell(&row))
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| (row.cell.clone(), row)).collect())
}

async fn put(connection: &mut SqliteConnection, cluster: &ClusterName, cell: &QuotaCell) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT OR REPLACE INTO quota_cells (cluster, queue, flavor, resource, effective, acknowledged, term)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(cluster.as_str())
    .bind(cell.cell.queue.as_str())
    .bind(cell.cell.flavor.as_str())
    .bind(cell.cell.resource.as_str())
    .bind(cell.effective.units())
    .bind(cell.acknowledged.units())
    .bind(cell.term.units())
    .execute(connection)
    .await?;
    Ok(())
}

fn cell(row: &SqliteRow) -> sqlx::Result<QuotaCell> {
    Ok(QuotaCell {
        cell: Cell {
            queue: column::name(row, "queue")?,
            flavor: column::name(row, "flavor")?,
            resource: column::name(row, "resource")?,
        },
        effective: column::amount(row, "effective")?,
        acknowledged: column::amount(row, "acknowledged")?,
        term: column::amount(row, "term")?,
    })
}
