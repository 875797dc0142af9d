//! Archives that people uploaded for their tasks, each by its digest and whose it is: nobody reaches somebody else's by
//! knowing what is in it.

use std::time::Duration;

use futures::FutureExt;
use jiff::{SignedDuration, Timestamp};
use sqlx::{Row, sqlite::SqliteConnection};

use super::{Store, StoreError, column, error::reading};
use fedq_domain::task::{
    spec::TaskSpec,
    upload::{Archive, Digest},
};

/// An archive on its way to the disk.
#[derive(Clone, Debug)]
pub struct NewUpload {
    pub owner: String,
    pub archive: Archive,
    pub data: Vec<u8>,
    pub now: Timestamp,
    /// What the person's may take together.
    pub most: u64,
}

/// One of this age is still to be named by the task that it was uploaded for.
const FRESH: SignedDuration = SignedDuration::from_mins(15);

impl Store {
    /// Keeps an archive. To make room, those of the same person go that no live task names, the longest unused first.
    /// `Some`: the person's take so much, and what they still need leaves no room.
    pub async fn insert_upload(&self, upload: NewUpload) -> Result<Option<u64>, StoreError> {
        self.write("keep the upload", move |connection| {
            async move {
                let NewUpload { owner, archive, data, now, most } = upload;
                if touch(connection, &owner, &archive.digest, now).await?.is_some() {
                    return Ok(None);
                }
                let taken = make_room(connection, &owner, archive.bytes, most, now).await?;
                if taken.is_some() {
                    return Ok(taken);
                }
                let seq: i64 = sqlx::query_scalar(
                    "INSERT INTO uploads (owner, digest, bytes, is_file, used_ms) VALUES (?1, ?2, ?3, ?4, ?5)
                     RETURNING seq",
                )
                .bind(&owner)
                .bind(archive.digest.as_str())
                .bind(i64::try_from(archive.bytes).unwrap_or(i64::MAX))
                .bind(archive.file)
                .bind(now.as_millisecond())
                .fetch_one(&mut *connection)
                .await?;
                sqlx::query("INSERT INTO upload_data (upload, data) VALUES (?1, ?2)")
                    .bind(seq)
                    .bind(data)
                    .execute(connection)
                    .await?;
                Ok(None)
            }
            .boxed()
        })
        .await
    }

    /// Whether this person has uploaded it, for somebody who is about to use it: it stays for a while.
    pub async fn use_upload(
        &self,
        owner: &str,
        digest: &Digest,
        now: Timestamp,
    ) -> Result<Option<Archive>, StoreError> {
        let (owner, digest) = (owner.to_owned(), digest.clone());
        self.write("look for the upload", move |connection| {
            async move { touch(connection, &owner, &digest, now).await }.boxed()
        })
        .await
    }

    pub async fn upload_data(&self, owner: &str, digest: &Digest) -> Result<Option<Vec<u8>>, StoreError> {
        sqlx::query_scalar(
            "SELECT d.data FROM upload_data d JOIN uploads u ON u.seq = d.upload
             WHERE u.owner = ?1 AND u.digest = ?2",
        )
        .bind(owner)
        .bind(digest.as_str())
        .fetch_optional(self.readers())
        .await
        .map_err(reading("read the upload"))
    }

    /// Removes what no live task names and nobody has used for so long; how many went.
    pub async fn prune_uploads(&self, keep_for: Duration, now: Timestamp) -> Result<u64, StoreError> {
        let keep_for = SignedDuration::try_from(keep_for).unwrap_or(SignedDuration::MAX).max(FRESH);
        let oldest = now.saturating_sub(keep_for).unwrap_or(Timestamp::MIN).as_millisecond();
        self.write("prune uploads", move |connection| {
            async move {
                let done = sqlx::query(
                    "DELETE FROM uploads WHERE used_ms < ?1 AND NOT EXISTS (
                         SELECT 1 FROM task_uploads n JOIN tasks t ON t.seq = n.task
                         WHERE n.upload = uploads.seq AND t.over = 0
                     )",
                )
                .bind(oldest)
                .execute(connection)
                .await?;
                Ok(done.rows_affected())
            }
            .boxed()
        })
        .await
    }
}

async fn touch(
    connection: &mut SqliteConnection,
    owner: &str,
    digest: &Digest,
    now: Timestamp,
) -> sqlx::Result<Option<Archive>> {
    sqlx::query(
        "UPDATE uploads SET used_ms = max(used_ms, ?3) WHERE owner = ?1 AND digest = ?2
         RETURNING digest, bytes, is_file",
    )
    .bind(owner)
    .bind(digest.as_str())
    .bind(now.as_millisecond())
    .try_map(|row| {
        let bytes: i64 = row.try_get("bytes")?;
        Ok(Archive {
            digest: column::name(&row, "digest")?,
            bytes: u64::try_from(bytes).unwrap_or_default(),
            file: row.try_get("is_file")?,
        })
    })
    .fetch_optional(connection)
    .await
}

/// `Some`: what is taken, where there is no room for `(more, most)`.
async fn make_room(
    connection: &mut SqliteConnection,
    owner: &str,
    more: u64,
    most: u64,
    now: Timestamp,
) -> sqlx::Result<Option<u64>> {
    let fresh = now.saturating_sub(FRESH).unwrap_or(Timestamp::MIN).as_millisecond();
    loop {
        let taken: i64 = sqlx::query_scalar("SELECT coalesce(sum(bytes), 0) FROM uploads WHERE owner = ?1")
            .bind(owner)
            .fetch_one(&mut *connection)
            .await?;
        let taken = u64::try_from(taken).unwrap_or_default();
        if taken.saturating_add(more) <= most {
            return Ok(None);
        }
        let done = sqlx::query(
            "DELETE FROM uploads WHERE seq = (
                 SELECT seq FROM uploads WHERE owner = ?1 AND used_ms < ?2 AND NOT EXISTS (
                     SELECT 1 FROM task_uploads n JOIN tasks t ON t.seq = n.task
                     WHERE n.upload = uploads.seq AND t.over = 0
                 ) ORDER BY used_ms, seq LIMIT 1
             )",
        )
        .bind(owner)
        .bind(fresh)
        .execute(&mut *connection)
        .await?;
        if done.rows_affected() == 0 {
            return Ok(Some(taken));
        }
    }
}

/// What of all that these tasks name is not there, where something is not.
pub(super) async fn missing(
    connection: &mut SqliteConnection,
    owner: &str,
    specs: impl Iterator<Item = &'_ TaskSpec>,
) -> sqlx::Result<Option<Digest>> {
    for upload in specs.flat_map(|spec| &spec.uploads) {
        let digest = &upload.archive.digest;
        let found = sqlx::query("SELECT 1 FROM uploads WHERE owner = ?1 AND digest = ?2")
            .bind(owner)
            .bind(digest.as_str())
            .fetch_optional(&mut *connection)
            .await?;
        if found.is_none() {
            return Ok(Some(digest.clone()));
        }
    }
    Ok(None)
}

/// Writes down what a task needs, so that it stays as long as the task is not over.
pub(super) async fn hold(
    connection: &mut SqliteConnection,
    seq: i64,
    owner: &str,
    spec: &TaskSpec,
) -> sqlx::Result<()> {
    for upload in &spec.uploads {
        sqlx::query(
            "INSERT INTO task_uploads (task, upload)
             SELECT ?1, seq FROM uploads WHERE owner = ?2 AND digest = ?3 ON CONFLICT DO NOTHING",
        )
        .bind(seq)
        .bind(owner)
        .bind(upload.archive.digest.as_str())
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::{
        super::{Acceptance, AuditEntry, Live, Submission, TaskMove, TaskRow, tasks},
        *,
    };
    use fedq_domain::task::{
        event::Event,
        phase::Move,
        upload::{Upload, WORKDIR},
    };

    const MOST: u64 = 10;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("in range")
    }

    fn new(owner: &str, number: u8, bytes: u64, now: i64) -> NewUpload {
        NewUpload {
            owner: owner.to_owned(),
            archive: Archive { digest: Digest::of([number; 32]), bytes, file: number.is_multiple_of(2) },
            data: vec![number; usize::try_from(bytes).expect("small")],
            now: at(now),
            most: MOST,
        }
    }

    async fn open() -> (Store, TempDir) {
        let folder = TempDir::new().expect("a temporary folder");
        let store = Store::open(&folder.path().join("fedq.db")).await.expect("opens");
        (store, folder)
    }

    fn task(number: u64, archive: &Archive) -> TaskRow {
        let mut row = tasks::testing::row(number, "ann");
        row.spec.uploads = vec![Upload { path: WORKDIR.to_owned(), archive: archive.clone() }];
        row
    }

    async fn submit(store: &Store, row: &TaskRow) -> Acceptance {
        let deed = AuditEntry {
            id: 0,
            through: None,
            at: at(0),
            who: row.owner.clone(),
            verb: "create".to_owned(),
            object: "tasks/x".to_owned(),
            outcome: "ok".to_owned(),
            detail: None,
            refused: false,
        };
        let most = Live { tasks: 100, bytes: 1 << 20 };
        let submission = Submission { tasks: vec![row.clone()], adds: Live::default(), most, deed };
        store.submit_tasks(submission).await.expect("stored")
    }

    async fn end(store: &Store, row: &TaskRow) {
        let row = store.task(&row.id).await.expect("read").expect("a task");
        let to = row.state.clone().next(Move::Stop).expect("it is nowhere yet");
        let event = Event::of(&Move::Stop, &to, at(0), None);
        let TaskRow { id, state: from, dispatch, restarts, nodes, .. } = row;
        let step = TaskMove { id, from, to, dispatch, restarts, nodes, event };
        assert!(store.move_task(&step).await.expect("stored"));
    }

    #[tokio::test]
    async fn an_upload_is_whose_it_is_and_there_once() {
        let (store, _folder) = open().await;
        let upload = new("ann", 1, 4, 0);
        let digest = upload.archive.digest.clone();
        assert_eq!(store.insert_upload(upload.clone()).await.expect("stored"), None);
        assert_eq!(store.insert_upload(upload.clone()).await.expect("stored"), None, "it takes no more");
        let used = async |owner: &str| store.use_upload(owner, &digest, at(0)).await.expect("read");
        assert_eq!(used("ann").await, Some(upload.archive.clone()));
        assert_eq!(used("bob").await, None, "that he knows what is in it makes it none of his");
        assert_eq!(store.upload_data("ann", &digest).await.expect("read"), Some(upload.data));
        assert_eq!(store.upload_data("bob", &digest).await.expect("read"), None);
        let mut theirs = task(1, &upload.archive);
        theirs.owner = "bob".to_owned();
        assert_eq!(submit(&store, &theirs).await, Acceptance::Gone(digest));
        assert!(store.live_tasks().await.expect("read").is_empty(), "nothing of it was kept");
    }

    #[tokio::test]
    async fn what_a_live_task_names_stays_and_the_rest_goes_after_a_while() {
        let (store, _folder) = open().await;
        let (named, unnamed) = (new("ann", 1, 4, 0), new("ann", 2, 4, 0));
        for upload in [&named, &unnamed] {
            store.insert_upload(upload.clone()).await.expect("stored");
        }
        let row = task(1, &named.archive);
        assert_eq!(submit(&store, &row).await, Acceptance::Accepted);
        let hour = Duration::from_hours(1);
        assert_eq!(store.prune_uploads(hour, at(3600)).await.expect("pruned"), 0);
        assert_eq!(
            store.prune_uploads(Duration::ZERO, at(60)).await.expect("pruned"),
            0,
            "a task may be on its way"
        );
        assert_eq!(store.prune_uploads(hour, at(3601)).await.expect("pruned"), 1);
        let data =
            async |upload: &NewUpload| store.upload_data("ann", &upload.archive.digest).await.expect("read");
        assert_eq!((data(&named).await.is_some(), data(&unnamed).await), (true, None));
        end(&store, &row).await;
        store.use_upload("ann", &named.archive.digest, at(3601)).await.expect("read");
        assert_eq!(
            store.prune_uploads(hour, at(7200)).await.expect("pruned"),
            0,
            "it was asked for just then"
        );
        assert_eq!(store.prune_uploads(hour, at(7202)).await.expect("pruned"), 1);
        assert_eq!(data(&named).await, None);
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM upload_data")
            .fetch_one(store.readers())
            .await
            .expect("read");
        assert_eq!(left, 0, "its bytes go with it");
    }

    #[tokio::test]
    async fn room_is_made_by_what_nobody_needs_and_is_not_fresh() {
        let (store, _folder) = open().await;
        let later = 3600;
        let all = [new("ann", 1, 4, 0), new("ann", 2, 4, 1), new("ann", 3, 4, later), new("bob", 4, 9, 0)];
        let row = task(1, &all[0].archive);
        store.insert_upload(all[0].clone()).await.expect("stored");
        assert_eq!(submit(&store, &row).await, Acceptance::Accepted);
        for upload in &all[1..] {
            assert_eq!(store.insert_upload(upload.clone()).await.expect("stored"), None);
        }
        let there = async |number: usize| {
            let upload: &NewUpload = &all[number];
            store.upload_data(&upload.owner, &upload.archive.digest).await.expect("read").is_some()
        };
        assert!(there(0).await && !there(1).await && there(2).await && there(3).await);
        // One is needed, the other has just been sent.
        let more = new("ann", 5, 3, later);
        assert_eq!(store.insert_upload(more.clone()).await.expect("no failure"), Some(8));
        assert!(store.upload_data("ann", &more.archive.digest).await.expect("read").is_none());
        let later = NewUpload { now: at(2 * later), ..more };
        assert_eq!(store.insert_upload(later).await.expect("stored"), None);
    }
}
