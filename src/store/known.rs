//! What each cluster's objects were when the daemon stopped.

use futures::FutureExt;

use super::{Store, StoreError, error::reading};
use fedq_values::ids::ClusterName;

impl Store {
    /// Keeps what is known of a cluster's objects. The bytes are the caller's: the store does not look into them.
    pub async fn keep_known_objects(
        &self,
        cluster: &ClusterName,
        build: &str,
        objects: Vec<u8>,
    ) -> Result<(), StoreError> {
        let (name, build) = (cluster.clone(), build.to_owned());
        self.write("keep what is known of the cluster", move |connection| {
            async move {
                sqlx::query(
                    "INSERT INTO known_objects (cluster, build, objects) VALUES (?1, ?2, ?3)
                     ON CONFLICT (cluster) DO UPDATE SET build = excluded.build, objects = excluded.objects",
                )
                .bind(name.as_str())
                .bind(build)
                .bind(objects)
                .execute(connection)
                .await
                .map(drop)
            }
            .boxed()
        })
        .await
        .map_err(|error| error.naming(cluster))
    }

    /// What this very build kept of the cluster.
    pub async fn known_objects(
        &self,
        cluster: &ClusterName,
        build: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        sqlx::query_scalar("SELECT objects FROM known_objects WHERE cluster = ?1 AND build = ?2")
            .bind(cluster.as_str())
            .bind(build)
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read what is known of the cluster"))
    }
}
