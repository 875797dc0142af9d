//! Last confirmed capacity, and each change of it.

use std::collections::BTreeMap;

use futures::FutureExt;
use jiff::Timestamp;
use sqlx::{
    Row,
    sqlite::{SqliteConnection, SqliteRow},
};

use super::{Page, PageRequest, Store, StoreError, column, error::reading};
use fedq_values::{
    ids::{ClusterName, FlavorName, ResourceName},
    quantity::Amount,
};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CapacityRow {
    pub flavor: FlavorName,
    pub resource: ResourceName,
    /// Σ allocatable of usable nodes.
    pub capacity: Amount,
    /// Quota of the worker's own queues.
    pub foreign: Amount,
    /// What claims may share out.
    pub usable: Amount,
}

/// One line of the history.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CapacityChange {
    pub id: i64,
    pub at: Timestamp,
    pub cluster: ClusterName,
    pub flavor: FlavorName,
    pub resource: ResourceName,
    /// `None`: no longer reported, which is not the same as 0.
    pub capacity: Option<Amount>,
    pub usable: Option<Amount>,
}

impl Store {
    /// Replaces what is known of the cluster's capacity and appends what changed to the history.
    /// How many (flavor, resource) changed; without a change nothing is written.
    pub async fn record_capacity(
        &self,
        cluster: &ClusterName,
        rows: &[CapacityRow],
        at: Timestamp,
    ) -> Result<usize, StoreError> {
        let (name, rows) = (cluster.clone(), rows.to_vec());
        self.write("record capacity", move |connection| {
            async move {
                let mut before = latest(connection, &name).await?;
                let mut changed = 0;
                for row in rows {
                    let known = before.remove(&(row.flavor.clone(), row.resource.clone()));
                    if known.as_ref() == Some(&row) {
                        continue;
                    }
                    changed += 1;
                    put(connection, &name, &row, at).await?;
                    append(connection, &name, &row, Some((row.capacity, row.usable)), at).await?;
                }
                for row in before.values() {
                    changed += 1;
                    sqlx::query("DELETE FROM capacity WHERE cluster = ?1 AND flavor = ?2 AND resource = ?3")
                        .bind(name.as_str())
                        .bind(row.flavor.as_str())
                        .bind(row.resource.as_str())
                        .execute(&mut *connection)
                        .await?;
                    append(connection, &name, row, None, at).await?;
                }
                Ok(changed)
            }
            .boxed()
        })
        .await
        .map_err(|error| error.naming(cluster))
    }

    /// Last confirmed capacity of one cluster, by flavor and resource.
    pub async fn capacity(&self, cluster: &ClusterName) -> Result<Vec<CapacityRow>, StoreError> {
        sqlx::query("SELECT * FROM capacity WHERE cluster = ?1 ORDER BY flavor, resource")
            .bind(cluster.as_str())
            .try_map(|row| capacity(&row))
            .fetch_all(self.readers())
            .await
            .map_err(reading("read capacity"))
    }

    /// Newest first; of all clusters where `None`.
    pub async fn capacity_history(
        &self,
        cluster: Option<&ClusterName>,
        page: &PageRequest,
    ) -> Result<Page<CapacityChange>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM capacity_history WHERE id < ?1 AND (?2 IS NULL OR cluster = ?2) ORDER BY id DESC LIMIT ?3",
        )
        .bind(page.before_id()?)
        .bind(cluster.map(ClusterName::as_str))
        .bind(page.probe())
        .try_map(|row| change(&row))
        .fetch_all(self.readers())
        .await
        .map_err(reading("list the history of capacity"))?;
        Ok(Page::cut(rows, page, |row| row.id.to_string()))
    }
}

async fn latest(
    connection: &mut SqliteConnection,
    cluster: &ClusterName,
) -> sqlx::Result<BTreeMap<(FlavorName, ResourceName), CapacityRow>> {
    let rows = sqlx::query("SELECT * FROM capacity WHERE cluster = ?1")
        .bind(cluster.as_str())
        .try_map(|row| capacity(&row))
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| ((row.flavor.clone(), row.resource.clone()), row)).collect())
}

async fn put(
    connection: &mut SqliteConnection,
    cluster: &ClusterName,
    row: &CapacityRow,
    at: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT OR REPLACE INTO capacity (cluster, flavor, resource, capacity, foreign_quota, usable, at_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(cluster.as_str())
    .bind(row.flavor.as_str())
    .bind(row.resource.as_str())
    .bind(row.capacity.units())
    .bind(row.foreign.units())
    .bind(row.usable.units())
    .bind(at.as_millisecond())
    .execute(connection)
    .await?;
    Ok(())
}

async fn append(
    connection: &mut SqliteConnection,
    cluster: &ClusterName,
    row: &CapacityRow,
    amounts: Option<(Amount, Amount)>,
    at: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO capacity_history (at_ms, cluster, flavor, resource, capacity, usable)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(at.as_millisecond())
    .bind(cluster.as_str())
    .bind(row.flavor.as_str())
    .bind(row.resource.as_str())
    .bind(amounts.map(|(capacity, _)| capacity.units()))
    .bind(amounts.map(|(_, usable)| usable.units()))
    .execute(connection)
    .await?;
    Ok(())
}

fn capacity(row: &SqliteRow) -> sqlx::Result<CapacityRow> {
    Ok(CapacityRow {
        flavor: column::name(row, "flavor")?,
        resource: column::name(row, "resource")?,
        capacity: column::amount(row, "capacity")?,
        foreign: column::amount(row, "foreign_quota")?,
        usable: column::amount(row, "usable")?,
    })
}

fn change(row: &SqliteRow) -> sqlx::Result<CapacityChange> {
    Ok(CapacityChange {
        id: row.try_get("id")?,
        at: column::time(row, "at_ms")?,
        cluster: column::name(row, "cluster")?,
        flavor: column::name(row, "flavor")?,
        resource: column::name(row, "resource")?,
        capacity: row.try_get::<Option<i64>, _>("capacity")?.map(Amount::new),
        usable: row.try_get::<Option<i64>, _>("usable")?.map(Amount::new),
    })
}
