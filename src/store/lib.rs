//! What is stored, and why. The only user of sqlx.
//!
//! | table | content | why it is kept |
//! |---|---|---|
//! | `clusters` | inventory, identity, last known state | to know a cluster again, and to list those that do not answer |
//! | `nodes`, `watch_positions` | what of each node changes capacity, and how far we have read | restart without listing every node; both change in one transaction, so a position never runs ahead of its rows |
//! | `known_objects` | queues, flavors and what else of a cluster fits in memory, as of the last stop | restart without listing them; nothing is decided by it before the cluster has answered |
//! | `capacity`, `capacity_history` | last confirmed capacity, and each change of it | unknown is not zero: a silent cluster keeps its capacity |
//! | `claims`, `claim_history` | each claim as last seen, each edit with its author | "who took my GPUs, and when" |
//! | `claims_in_force` | the last valid text of each cluster's claim, and the generation at which it was last in force | an edit that is not valid, or a second claim, must not come into force by a restart |
//! | `plans` | every applied plan with its cause and report | `quota explain`, `claim history` |
//! | `quota_cells` | what each cluster contributes to each hub cell | a restart keeps the share of a cluster that does not answer |
//! | `hub_cells` | what each hub queue's `fedq.dev/cells` last said | a queue that is replaced without it keeps its base |
//! | `tasks`, `task_events` | accepted tasks until they are over, and what happened to them | they have no other home |
//! | `task_left_behind` | dispatches that may still run on a cluster that was lost when another took them over | it has to be withdrawn there whenever that answers |
//! | `volumes` | the volumes people want, and where | their names have no other home; what is in them is on their clusters |
//! | `uploads`, `upload_data`, `task_uploads` | archives of files that tasks bring along, and which tasks need them | a task that moves takes them to another cluster, and whoever sent them may be gone |
//! | `audit` | who did what through fedq | the answer when Kubernetes' own audit log is out of reach |
//!
//! Other intent is not here: claims, queues and Placements live on the hub. Everything but tasks and
//! history can be rebuilt from the clusters, so a broken file is moved aside ([`rebuild`]), never repaired. Secrets
//! are never stored.
//!
//! One connection writes and a pool reads (WAL). Writes that arrive while another is on its way to the
//! disk share the next commit (`writer`), and each caller waits for the commit that holds its own.
//!
//! Beside the database, if the configuration says so: the logs of runs of tasks that ended (`kept_logs`), in files, since
//! they are large, read whole, and no loss to anything else here.

use std::{path::Path, sync::Arc, time::Duration};

use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnection, SqlitePoolOptions},
};
use tokio::sync::Mutex;

pub use self::{
    audit::{AuditEntry, AuditFilter},
    capacity::{CapacityChange, CapacityRow},
    claims::{ClaimChange, ClaimGeneration, ClaimInForce, ClaimRow},
    clusters::{ClusterRow, ClusterSource, RefusedCluster},
    error::StoreError,
    hub_cells::HubCells,
    kept_logs::{KeptLogs, KeptLogsError, Run},
    nodes::{NodeChange, Position},
    open::rebuild,
    page::{Cursor, Page, PageRequest},
    patience::{Deferred, Patience, store_deferred, until_kept},
    plans::{PlanCause, PlanRow},
    quota_cells::QuotaCell,
    retention::{Pruned, Retention},
    tasks::{Acceptance, Changes, Dispatch, Live, Submission, TaskFilter, TaskMove, TaskRow},
    uploads::NewUpload,
    volumes::VolumeRow,
};
use self::{lock::Lock, writer::Writer};

mod audit;
mod capacity;
mod claims;
mod clusters;
mod column;
mod error;
mod hub_cells;
mod kept_logs;
mod known;
mod lock;
mod nodes;
mod open;
mod page;
mod patience;
mod plans;
mod quota_cells;
mod retention;
mod tasks;
mod uploads;
mod volumes;
mod writer;

/// Called after each commit with the time it took, and whether all of it was kept.
pub type OnCommit = Box<dyn Fn(Duration, bool) + Send + Sync>;

/// A handle to the database; clones share it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    writer: Writer,
    readers: SqlitePool,
    /// Held for as long as the file is open: no second daemon may write it.
    lock: Mutex<Option<Lock>>,
}

/// Enough for a page of the API and a controller's start-up reads at once.
const READERS: u32 = 4;

impl Store {
    /// Opens the database at `path`, making it and its folder if they are missing.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with(path, Box::new(|_, _| ())).await
    }

    /// As [`Store::open`], reporting how long commits take.
    pub async fn open_with(path: &Path, on_commit: OnCommit) -> Result<Self, StoreError> {
        let path = open::prepare(path)?;
        let lock = Lock::take(&path)?;
        let connection = open::writer(&path).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(open::options(&path).read_only(true))
            .await
            .map_err(|source| StoreError::at_open(&path, source))?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer: Writer::spawn(connection, on_commit),
                readers,
                lock: Mutex::new(Some(lock)),
            }),
        })
    }

    /// Waits for writes under way, closes the file, so that no `-wal` stays behind, and lets another
    /// daemon have it. Later writes are refused with [`StoreError::Closed`].
    pub async fn close(&self) {
        self.inner.readers.close().await;
        self.inner.writer.close().await;
        self.inner.lock.lock().await.take();
    }

    /// Runs `work` in the next commit and returns once that is on the disk. `what` completes
    /// "cannot …" in the error.
    async fn write<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> futures::future::BoxFuture<'c, sqlx::Result<T>>
            + Send
            + 'static,
    {
        self.inner.writer.write(what, work).await
    }

    /// Makes it fail, or work again.
    #[cfg(any(test, feature = "testing"))]
    pub async fn execute(&self, statement: &'static str) {
        self.write("make it so", move |connection| {
            Box::pin(async move { sqlx::query(statement).execute(connection).await.map(|_| ()) })
        })
        .await
        .expect("the statement of a test");
    }

    fn readers(&self) -> &SqlitePool {
        &self.inner.readers
    }
}

#[cfg(test)]
mod tests;
