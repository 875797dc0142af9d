//! The inventory of joined clusters.

use std::{fmt, str::FromStr};

use futures::FutureExt;
use jiff::Timestamp;
use sqlx::{Row, sqlite::SqliteRow};

use super::{Page, PageRequest, Store, StoreError, column, error::reading};
use fedq_values::ids::ClusterName;

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterRow {
    pub name: ClusterName,
    /// UID of its kube-system namespace; `None` until it has answered once.
    pub identity: Option<String>,
    /// URL of its API server. Credentials in it are cut off before it is stored.
    pub server: String,
    pub source: ClusterSource,
    /// [`fedq_domain::cluster::Connection::word`].
    pub connection: String,
    pub last_seen: Option<Timestamp>,
    pub cordoned: bool,
    /// Of its Kubernetes.
    pub version: Option<String>,
    pub joined: Timestamp,
}

/// A cluster that sent more than is kept of one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RefusedCluster {
    pub reason: String,
    /// Hash of what it was joined with.
    pub joined_with: String,
    /// The bounds at the time.
    pub objects: u64,
    pub bytes: u64,
}

/// Where we know a cluster from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClusterSource {
    Secret,
    ManagedCluster,
    ClusterProfile,
    ClusterMetrics,
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a source of clusters")]
pub struct UnknownSource(String);

impl Store {
    /// Inserts the cluster or replaces all that is known of it but `joined`, and its identity where
    /// there is one: that changes only by [`Store::confirm_identity`].
    pub async fn put_cluster(&self, cluster: &ClusterRow) -> Result<(), StoreError> {
        let cluster = cluster.clone();
        self.write("record the cluster", move |connection| {
            async move {
                sqlx::query(
                    "INSERT INTO clusters (name, identity, server, source, connection, last_seen_ms, cordoned, version, joined_ms)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
                     ON CONFLICT (name) DO UPDATE SET
                       identity = coalesce(identity, excluded.identity), server = excluded.server,
                       source = excluded.source, connection = excluded.connection,
                       last_seen_ms = coalesce(excluded.last_seen_ms, last_seen_ms),
                       cordoned = excluded.cordoned, version = coalesce(excluded.version, version)",
                )
                .bind(cluster.name.as_str())
                .bind(&cluster.identity)
                .bind(without_credentials(&cluster.server))
                .bind(cluster.source.word())
                .bind(&cluster.connection)
                .bind(cluster.last_seen.map(Timestamp::as_millisecond))
                .bind(cluster.cordoned)
                .bind(&cluster.version)
                .bind(cluster.joined.as_millisecond())
                .execute(connection)
                .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }

    pub async fn cluster(&self, name: &ClusterName) -> Result<Option<ClusterRow>, StoreError> {
        sqlx::query("SELECT * FROM clusters WHERE name = ?1")
            .bind(name.as_str())
            .try_map(|row| cluster(&row))
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read the cluster"))
    }

    /// Who was last known to be this cluster.
    pub async fn clusters_with_identity(&self, identity: &str) -> Result<Vec<ClusterRow>, StoreError> {
        sqlx::query("SELECT * FROM clusters WHERE identity = ?1 ORDER BY joined_ms, name")
            .bind(identity)
            .try_map(|row| cluster(&row))
            .fetch_all(self.readers())
            .await
            .map_err(reading("look a cluster up by its identity"))
    }

    /// By name.
    pub async fn clusters(&self, page: &PageRequest) -> Result<Page<ClusterRow>, StoreError> {
        let rows = sqlx::query("SELECT * FROM clusters WHERE ?1 < name ORDER BY name LIMIT ?2")
            .bind(page.after_text())
            .bind(page.probe())
            .try_map(|row| cluster(&row))
            .fetch_all(self.readers())
            .await
            .map_err(reading("list clusters"))?;
        Ok(Page::cut(rows, page, |row| row.name.to_string()))
    }

    /// Records the state of the link; `seen` is kept where `None`. Whether there is such a cluster.
    pub async fn set_connection(
        &self,
        name: &ClusterName,
        connection: &str,
        seen: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let (name, word) = (name.clone(), connection.to_owned());
        self.write("record the cluster's connection", move |connection| {
            async move {
                let done = sqlx::query(
                    "UPDATE clusters SET connection = ?2, last_seen_ms = coalesce(?3, last_seen_ms) WHERE name = ?1",
                )
                .bind(name.as_str())
                .bind(word)
                .bind(seen.map(Timestamp::as_millisecond))
                .execute(connection)
                .await?;
                Ok(0 < done.rows_affected())
            }
            .boxed()
        })
        .await
    }

    /// A person says that the cluster answering under this name is the one they mean. Its objects and
    /// positions belong to the old one and go, so that it is listed in full; its share stays.
    /// Whether there is such a cluster.
    pub async fn confirm_identity(&self, name: &ClusterName, identity: &str) -> Result<bool, StoreError> {
        let (name, identity) = (name.clone(), identity.to_owned());
        self.write("confirm the cluster's identity", move |connection| {
            async move {
                for statement in [
                    "DELETE FROM nodes WHERE cluster = ?1",
                    "DELETE FROM watch_positions WHERE cluster = ?1",
                    "DELETE FROM known_objects WHERE cluster = ?1",
                ] {
                    sqlx::query(statement).bind(name.as_str()).execute(&mut *connection).await?;
                }
                let done = sqlx::query("UPDATE clusters SET identity = ?2 WHERE name = ?1")
                    .bind(name.as_str())
                    .bind(identity)
                    .execute(connection)
                    .await?;
                Ok(0 < done.rows_affected())
            }
            .boxed()
        })
        .await
    }

    /// Keeps in mind that the cluster is not to be followed, until [`Store::admit_cluster`].
    pub async fn refuse_cluster(
        &self,
        name: &ClusterName,
        refused: &RefusedCluster,
    ) -> Result<(), StoreError> {
        let (name, refused) = (name.clone(), refused.clone());
        self.write("record that the cluster is refused", move |connection| {
            async move {
                sqlx::query(
                    "INSERT OR REPLACE INTO refused_clusters (cluster, reason, joined_with, objects, bytes)
                     VALUES (?1, ?2, ?3, ?4, ?5)",
                )
                .bind(name.as_str())
                .bind(refused.reason)
                .bind(refused.joined_with)
                .bind(i64::try_from(refused.objects).unwrap_or(i64::MAX))
                .bind(i64::try_from(refused.bytes).unwrap_or(i64::MAX))
                .execute(connection)
                .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }

    pub async fn refused_cluster(&self, name: &ClusterName) -> Result<Option<RefusedCluster>, StoreError> {
        let number = |number: i64| u64::try_from(number).unwrap_or_default();
        sqlx::query("SELECT reason, joined_with, objects, bytes FROM refused_clusters WHERE cluster = ?1")
            .bind(name.as_str())
            .try_map(|row: SqliteRow| {
                Ok(RefusedCluster {
                    reason: row.try_get("reason")?,
                    joined_with: row.try_get("joined_with")?,
                    objects: number(row.try_get("objects")?),
                    bytes: number(row.try_get("bytes")?),
                })
            })
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read whether the cluster is refused"))
    }

    /// The cluster may be followed again.
    pub async fn admit_cluster(&self, name: &ClusterName) -> Result<(), StoreError> {
        let name = name.clone();
        self.write("admit the cluster", move |connection| {
            async move {
                sqlx::query("DELETE FROM refused_clusters WHERE cluster = ?1")
                    .bind(name.as_str())
                    .execute(connection)
                    .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }

    /// Forgets the cluster with its nodes, positions, capacity and cells; history stays. Whether there
    /// was such a cluster.
    pub async fn remove_cluster(&self, name: &ClusterName) -> Result<bool, StoreError> {
        let name = name.clone();
        self.write("remove the cluster", move |connection| {
            async move {
                let done = sqlx::query("DELETE FROM clusters WHERE name = ?1")
                    .bind(name.as_str())
                    .execute(connection)
                    .await?;
                Ok(0 < done.rows_affected())
            }
            .boxed()
        })
        .await
    }
}

fn cluster(row: &SqliteRow) -> sqlx::Result<ClusterRow> {
    Ok(ClusterRow {
        name: column::name(row, "name")?,
        identity: row.try_get("identity")?,
        server: row.try_get("server")?,
        source: column::name(row, "source")?,
        connection: row.try_get("connection")?,
        last_seen: column::optional_time(row, "last_seen_ms")?,
        cordoned: row.try_get("cordoned")?,
        version: row.try_get("version")?,
        joined: column::time(row, "joined_ms")?,
    })
}

/// `https://user:password@host/?token=x` → `https://host/`.
fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (authority, path) =
        rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let mut clean = String::with_capacity(url.len());
    if !scheme.is_empty() {
        clean.push_str(scheme);
        clean.push_str("://");
    }
    clean.push_str(host);
    if let Some(path) = path {
        clean.push('/');
        clean.push_str(path);
    }
    clean
}

impl ClusterSource {
    const ALL: [Self; 4] = [Self::Secret, Self::ManagedCluster, Self::ClusterProfile, Self::ClusterMetrics];

    pub fn word(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ManagedCluster => "ManagedCluster",
            Self::ClusterProfile => "ClusterProfile",
            Self::ClusterMetrics => "ClusterMetrics",
        }
    }
}

impl fmt::Display for ClusterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for ClusterSource {
    type Err = UnknownSource;

    fn from_str(text: &str) -> Result<Self, UnknownSource> {
        Self::ALL
            .into_iter()
            .find(|source| source.word() == text)
            .ok_or_else(|| UnknownSource(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_url_are_cut_off() {
        for (url, stored) in [
            ("https://10.0.0.1:6443", "https://10.0.0.1:6443"),
            ("https://admin:hunter2@host:6443/k8s/clusters/c-1", "https://host:6443/k8s/clusters/c-1"),
            ("https://host/?token=hunter2", "https://host/"),
            ("https://a@b@host#hunter2", "https://host"),
            ("host:6443", "host:6443"),
        ] {
            assert_eq!(without_credentials(url), stored);
        }
    }
}
