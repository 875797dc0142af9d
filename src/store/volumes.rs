//! Volumes that people want: made and deleted on their clusters by a controller, which forgets them here once
//! they are gone there.

use futures::FutureExt;
use jiff::Timestamp;
use sqlx::{Row, sqlite::SqliteRow};

use super::{AuditEntry, Store, StoreError, audit, column, error::reading, tasks};
use fedq_domain::task::{
    event::Reason,
    names::TaskId,
    volume::{Known, VolumeSpec},
};
use fedq_values::ids::ClusterName;

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VolumeRow {
    pub id: TaskId,
    pub owner: String,
    pub namespace: String,
    /// `None`: to be chosen.
    pub cluster: Option<ClusterName>,
    pub spec: VolumeSpec,
    pub created: Timestamp,
    /// Somebody wants it gone.
    pub deleting: bool,
    /// Its claim was seen on its cluster.
    pub made: bool,
    /// And is not there any more, though nobody asked fedq to delete it.
    pub lost: bool,
}

impl VolumeRow {
    /// As far as it decides which one a task means.
    pub fn known(&self) -> Known<'_> {
        let Self { id, owner, namespace, cluster, spec, deleting, .. } = self;
        Known { id, owner, namespace, spec, cluster: cluster.as_ref(), deleting: *deleting }
    }
}

impl Store {
    /// Accepts a volume; `deed` is in the same commit. `false`: the id is taken, or its owner has one of that name.
    pub async fn insert_volume(
        &self,
        volume: &VolumeRow,
        deed: Option<AuditEntry>,
    ) -> Result<bool, StoreError> {
        let volume = volume.clone();
        self.write("accept the volume", move |connection| {
            async move {
                let done = sqlx::query(
                    "INSERT INTO volumes (id, owner, namespace, cluster, spec, created_ms, deleting)
                     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
                     WHERE NOT EXISTS (
                         SELECT 1 FROM volumes WHERE owner = ?2 AND json_extract(spec, '$.name') = ?8
                     )
                     ON CONFLICT (id) DO NOTHING",
                )
                .bind(volume.id.as_str())
                .bind(&volume.owner)
                .bind(&volume.namespace)
                .bind(volume.cluster.as_ref().map(ClusterName::as_str))
                .bind(column::json_text(&volume.spec)?)
                .bind(volume.created.as_millisecond())
                .bind(volume.deleting)
                .bind(volume.spec.name())
                .execute(&mut *connection)
                .await?;
                let accepted = 0 < done.rows_affected();
                if let Some(deed) = deed.as_ref().filter(|_| accepted) {
                    audit::append(connection, deed).await?;
                }
                Ok(accepted)
            }
            .boxed()
        })
        .await
    }

    /// `false`: it has a cluster already, or is not there any more.
    pub async fn place_volume(&self, id: &TaskId, cluster: &ClusterName) -> Result<bool, StoreError> {
        let (id, cluster) = (id.clone(), cluster.clone());
        let statement = "UPDATE volumes SET cluster = ?2 WHERE id = ?1 AND cluster IS NULL";
        self.write("place the volume", move |connection| {
            async move {
                let update = sqlx::query(statement).bind(id.as_str()).bind(cluster.as_str());
                Ok(0 < update.execute(connection).await?.rows_affected())
            }
            .boxed()
        })
        .await
    }

    /// Its claim is on its cluster.
    pub async fn volume_made(&self, id: &TaskId) -> Result<bool, StoreError> {
        self.change_volume("record the volume", "UPDATE volumes SET made = 1, lost = 0 WHERE id = ?1", id)
            .await
    }

    /// Its claim was deleted on its cluster. `users`, the tasks that mount it, are told of it in their history.
    pub async fn volume_lost(
        &self,
        id: &TaskId,
        users: Vec<TaskId>,
        now: Timestamp,
        message: String,
    ) -> Result<(), StoreError> {
        let id = id.clone();
        self.write("record the volume", move |connection| {
            async move {
                let lost =
                    sqlx::query("UPDATE volumes SET lost = 1 WHERE id = ?1 AND lost = 0").bind(id.as_str());
                if lost.execute(&mut *connection).await?.rows_affected() == 0 {
                    return Ok(());
                }
                for user in &users {
                    tasks::note(connection, user, now, Reason::VolumeLost, &message).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
    }

    /// Wants it gone. `false`: there is none.
    pub async fn delete_volume(&self, id: &TaskId) -> Result<bool, StoreError> {
        self.change_volume("delete the volume", "UPDATE volumes SET deleting = 1 WHERE id = ?1", id).await
    }

    /// Its cluster has nothing of it any more.
    pub async fn forget_volume(&self, id: &TaskId) -> Result<bool, StoreError> {
        self.change_volume("forget the volume", "DELETE FROM volumes WHERE id = ?1 AND deleting = 1", id)
            .await
    }

    async fn change_volume(
        &self,
        what: &'static str,
        statement: &'static str,
        id: &TaskId,
    ) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(what, move |connection| {
            async move {
                let done = sqlx::query(statement).bind(id.as_str()).execute(connection).await?;
                Ok(0 < done.rows_affected())
            }
            .boxed()
        })
        .await
    }

    pub async fn volume(&self, id: &TaskId) -> Result<Option<VolumeRow>, StoreError> {
        sqlx::query("SELECT * FROM volumes WHERE id = ?1")
            .bind(id.as_str())
            .try_map(|row| volume(&row))
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read the volume"))
    }

    /// Oldest first; `owner`: only theirs.
    pub async fn volumes(&self, owner: Option<&str>) -> Result<Vec<VolumeRow>, StoreError> {
        let query = match owner {
            None => sqlx::query("SELECT * FROM volumes ORDER BY seq"),
            Some(owner) => sqlx::query("SELECT * FROM volumes WHERE owner = ?1 ORDER BY seq").bind(owner),
        };
        query.try_map(|row| volume(&row)).fetch_all(self.readers()).await.map_err(reading("list volumes"))
    }
}

fn volume(row: &SqliteRow) -> sqlx::Result<VolumeRow> {
    Ok(VolumeRow {
        id: column::name(row, "id")?,
        owner: row.try_get("owner")?,
        namespace: row.try_get("namespace")?,
        cluster: match row.try_get::<Option<&str>, _>("cluster")? {
            Some(_) => Some(column::name(row, "cluster")?),
            None => None,
        },
        spec: column::json(row, "spec")?,
        created: column::time(row, "created_ms")?,
        deleting: row.try_get("deleting")?,
        made: row.try_get("made")?,
        lost: row.try_get("lost")?,
    })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn row(number: u64, owner: &str) -> VolumeRow {
        VolumeRow {
            id: TaskId::draw(number),
            owner: owner.to_owned(),
            namespace: "team".to_owned(),
            cluster: None,
            spec: VolumeSpec::new("data", "10Gi", Some("fast"), None).expect("valid"),
            created: Timestamp::from_second(1_700_000_000).expect("in range"),
            deleting: false,
            made: false,
            lost: false,
        }
    }

    #[tokio::test]
    async fn a_volume_is_placed_once_and_forgotten_only_after_somebody_wanted_it_gone() {
        let folder = TempDir::new().expect("a temporary folder");
        let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
        let (mine, theirs) = (row(1, "ann"), row(2, "bob"));
        assert!(store.insert_volume(&mine, None).await.expect("stored"));
        assert!(store.insert_volume(&theirs, None).await.expect("stored"));
        assert!(!store.insert_volume(&mine, None).await.expect("no failure"), "its id is taken");
        let again = VolumeRow { id: TaskId::draw(9), ..mine.clone() };
        assert!(!store.insert_volume(&again, None).await.expect("no failure"), "its name is taken");
        assert_eq!(store.volumes(None).await.expect("read"), [mine.clone(), theirs]);

        let cluster = |name: &str| ClusterName::new(name).expect("a name");
        assert!(store.place_volume(&mine.id, &cluster("one")).await.expect("stored"));
        assert!(!store.place_volume(&mine.id, &cluster("two")).await.expect("no failure"));
        assert!(!store.forget_volume(&mine.id).await.expect("no failure"), "nobody wants it gone");
        assert!(store.delete_volume(&mine.id).await.expect("stored"));
        let wanted = VolumeRow { cluster: Some(cluster("one")), deleting: true, ..mine.clone() };
        assert_eq!(store.volumes(Some("ann")).await.expect("read"), [wanted]);
        assert!(store.forget_volume(&mine.id).await.expect("stored"));
        assert_eq!(store.volume(&mine.id).await.expect("read"), None);
        assert!(!store.delete_volume(&mine.id).await.expect("no failure"));
    }

    #[tokio::test]
    async fn a_claim_that_went_by_itself_is_told_once_to_the_tasks_that_mount_it() {
        let folder = TempDir::new().expect("a temporary folder");
        let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
        let volume = row(1, "ann");
        assert!(store.insert_volume(&volume, None).await.expect("stored"));
        let task = tasks::testing::row(2, "ann");
        assert!(store.insert_task(&task).await.expect("stored"));
        assert!(store.volume_made(&volume.id).await.expect("stored"));
        let found = async || store.volume(&volume.id).await.expect("read").expect("a volume");
        assert_eq!(found().await, VolumeRow { made: true, ..volume.clone() });
        for _ in 0..2 {
            let message = "volume data was deleted on one".to_owned();
            store
                .volume_lost(&volume.id, vec![task.id.clone()], volume.created, message)
                .await
                .expect("stored");
        }
        assert!(found().await.lost);
        let events = store.task_events(&task.id).await.expect("read");
        assert_eq!((events.len(), events[1].reason), (2, Reason::VolumeLost));
        assert_eq!(events[1].phase, task.state.phase);
    }
}
