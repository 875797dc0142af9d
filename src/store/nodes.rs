//! What of each node changes capacity, and how far each watch has been read: always in one transaction.

use futures::FutureExt;
use sqlx::{Row, sqlite::SqliteConnection};

use super::{Store, StoreError, error::reading};
use fedq_values::ids::ClusterName;

/// A change to one node's row. The bytes are the caller's: the store does not look into them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeChange {
    Put { name: String, row: Vec<u8> },
    Remove { name: String },
}

/// How far the watch of one kind has been read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Position {
    /// `nodes`, `resourceflavors`, …
    pub kind: String,
    pub resource_version: String,
    /// Hash of the label keys that rows were trimmed to. With other labels the rows lack what is now
    /// of interest, and the position must not be resumed from.
    pub labels_of_interest: String,
}

impl Store {
    /// Applies the changes and moves the position, both or neither. What changed is asked for when its turn
    /// has come: of a thousand clusters that are listed at once, the rows of one at a time are in memory.
    pub async fn commit_nodes(
        &self,
        cluster: &ClusterName,
        changes: impl FnOnce() -> (Vec<NodeChange>, Option<Position>) + Send + 'static,
    ) -> Result<(), StoreError> {
        let name = cluster.clone();
        self.write("record nodes", move |connection| {
            async move {
                let (changes, position) = changes();
                for change in &changes {
                    apply(connection, &name, change).await?;
                }
                if let Some(position) = position {
                    put_position(connection, &name, &position).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
        .map_err(|error| error.naming(cluster))
    }

    /// All rows of one cluster with the position they stand at, read at one moment: a commit between
    /// two reads would pair old rows with a newer position.
    pub async fn load_nodes(
        &self,
        cluster: &ClusterName,
    ) -> Result<(Vec<(String, Vec<u8>)>, Vec<Position>), StoreError> {
        let what = "read nodes";
        let mut snapshot = self.readers().begin().await.map_err(reading(what))?;
        let nodes = sqlx::query("SELECT name, row FROM nodes WHERE cluster = ?1 ORDER BY name")
            .bind(cluster.as_str())
            .try_map(|row: sqlx::sqlite::SqliteRow| Ok((row.try_get("name")?, row.try_get("row")?)))
            .fetch_all(&mut *snapshot)
            .await
            .map_err(reading(what))?;
        let positions = sqlx::query("SELECT * FROM watch_positions WHERE cluster = ?1 ORDER BY kind")
            .bind(cluster.as_str())
            .try_map(|row| position(&row))
            .fetch_all(&mut *snapshot)
            .await
            .map_err(reading(what))?;
        snapshot.commit().await.map_err(reading(what))?;
        Ok((nodes, positions))
    }

    /// Where the rows of one kind stand.
    pub async fn load_position(
        &self,
        cluster: &ClusterName,
        kind: &str,
    ) -> Result<Option<Position>, StoreError> {
        sqlx::query("SELECT * FROM watch_positions WHERE cluster = ?1 AND kind = ?2")
            .bind(cluster.as_str())
            .bind(kind)
            .try_map(|row| position(&row))
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read a watch position"))
    }
}

fn position(row: &sqlx::sqlite::SqliteRow) -> Result<Position, sqlx::Error> {
    Ok(Position {
        kind: row.try_get("kind")?,
        resource_version: row.try_get("resource_version")?,
        labels_of_interest: row.try_get("labels_of_interest")?,
    })
}

async fn apply(
    connection: &mut SqliteConnection,
    cluster: &ClusterName,
    change: &NodeChange,
) -> sqlx::Result<()> {
    match change {
        NodeChange::Put { name, row } => {
            sqlx::query(
                "INSERT INTO nodes (cluster, name, row) VALUES (?1, ?2, ?3)
                 ON CONFLICT (cluster, name) DO UPDATE SET row = excluded.row",
            )
            .bind(cluster.as_str())
            .bind(name)
            .bind(row)
            .execute(connection)
            .await?
        }
        NodeChange::Remove { name } => {
            sqlx::query("DELETE FROM nodes WHERE cluster = ?1 AND name = ?2")
                .bind(cluster.as_str())
                .bind(name)
                .execute(connection)
                .await?
        }
    };
    Ok(())
}

async fn put_position(
    connection: &mut SqliteConnection,
    cluster: &ClusterName,
    position: &Position,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO watch_positions (cluster, kind, resource_version, labels_of_interest)
         VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (cluster, kind) DO UPDATE SET
           resource_version = excluded.resource_version, labels_of_interest = excluded.labels_of_interest",
    )
    .bind(cluster.as_str())
    .bind(&position.kind)
    .bind(&position.resource_version)
    .bind(&position.labels_of_interest)
    .execute(connection)
    .await?;
    Ok(())
}
