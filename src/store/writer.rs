//! Group commit. One fsync costs milliseconds; acknowledgements of a thousand clusters arrive in
//! one. While a commit is on its way to the disk, further writes queue up and share the next one.

use std::{sync::Arc, time::Instant};

use futures::future::BoxFuture;
use sqlx::{Connection, sqlite::SqliteConnection};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    task::JoinHandle,
};

use super::{OnCommit, StoreError};
use fedq_base::failpoint::{self, Side};

/// Writers wait when this many are queued: memory stays bounded while the disk is slow.
const QUEUE: usize = 1024;
/// Writes in one commit. Larger batches save nothing: the fsync is shared already.
const BATCH: usize = 256;

pub(super) struct Writer {
    /// `None` once closed.
    jobs: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub(super) fn spawn(connection: SqliteConnection, on_commit: OnCommit) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(run(connection, queue, on_commit));
        Self { jobs: Mutex::new(Some(jobs)), task: Mutex::new(Some(task)) }
    }

    pub(super) async fn write<T, F>(&self, what: &'static str, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, sqlx::Result<T>> + Send + 'static,
    {
        let (reply, outcome) = oneshot::channel();
        let jobs = self.jobs.lock().await.clone().ok_or(StoreError::Closed { what })?;
        let job = Write { what, work: Some(work), value: None, reply };
        jobs.send(Box::new(job)).await.map_err(|_| StoreError::Closed { what })?;
        // Else the task would wait for us when it is told to end.
        drop(jobs);
        outcome.await.map_err(|_| StoreError::Closed { what })?
    }

    /// Commits what is queued and closes the connection.
    pub(super) async fn close(&self) {
        self.jobs.lock().await.take();
        if let Some(task) = self.task.lock().await.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "The database writer ended abnormally");
        }
    }
}

/// One caller's write, with its result type hidden.
trait Job: Send {
    fn what(&self) -> &'static str;
    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, sqlx::Result<()>>;
    /// The write itself failed; the rest of the batch goes on. Why, if the database is to blame.
    fn fail(self: Box<Self>, source: sqlx::Error) -> Option<String>;
    /// The batch ended.
    fn finish(self: Box<Self>, commit: Result<(), Arc<sqlx::Error>>);
}

struct Write<T, F> {
    what: &'static str,
    work: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Write<T, F>
where
    T: Send + 'static,
    F: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, sqlx::Result<T>> + Send + 'static,
{
    fn what(&self) -> &'static str {
        self.what
    }

    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection) -> BoxFuture<'c, sqlx::Result<()>> {
        let work = self.work.take().expect("a job runs once");
        Box::pin(async move {
            self.value = Some(work(connection).await?);
            Ok(())
        })
    }

    fn fail(self: Box<Self>, source: sqlx::Error) -> Option<String> {
        let error = StoreError::at_write(self.what, source);
        let trouble = error.is_trouble().then(|| error.to_string());
        // A caller that gave up has nobody to tell.
        let _ = self.reply.send(Err(error));
        trouble
    }

    fn finish(self: Box<Self>, commit: Result<(), Arc<sqlx::Error>>) {
        let outcome = match (commit, self.value) {
            (Ok(()), Some(value)) => Ok(value),
            (Err(source), _) => Err(StoreError::at_commit(self.what, source)),
            // The batch broke before its turn came.
            (Ok(()), None) => Err(StoreError::Closed { what: self.what }),
        };
        let _ = self.reply.send(outcome);
    }
}

async fn run(mut connection: SqliteConnection, mut queue: mpsc::Receiver<Box<dyn Job>>, on_commit: OnCommit) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut failing = false;
    while queue.recv_many(&mut batch, BATCH).await != 0 {
        let begun = Instant::now();
        let (mut done, mut trouble) = (Vec::with_capacity(batch.len()), None);
        let batch = batch.drain(..);
        let commit = commit(&mut connection, batch, &mut done, &mut trouble).await;
        let commit = commit.map_err(Arc::new);
        let trouble = trouble.or_else(|| commit.as_ref().err().map(ToString::to_string));
        on_commit(begun.elapsed(), trouble.is_none());
        tell(&mut failing, trouble.as_deref());
        for job in done {
            job.finish(commit.clone());
        }
    }
    if let Err(error) = connection.close().await {
        tracing::warn!(error = %error, "The database did not close cleanly; its log is replayed at the next start");
    }
}

/// Logs when the database begins to fail and when that is over, not each write that waits meanwhile.
fn tell(failing: &mut bool, trouble: Option<&str>) {
    match trouble {
        Some(error) if !*failing => tracing::error!(
            error,
            "The database cannot be written; fedqd goes on with what it knows, and stores it once that is possible"
        ),
        None if *failing => tracing::info!("The database can be written again"),
        Some(_) | None => {}
    }
    *failing = trouble.is_some();
}

/// Runs every job in a savepoint of its own inside one transaction. Jobs that failed by themselves are
/// answered at once; those in `done` share the fate of the commit.
///
/// The statements are written out, since sqlx counts how deep its own transactions are nested and loses
/// count where SQLite rolls back by itself (a full disk): every later write would fail.
async fn commit(
    connection: &mut SqliteConnection,
    mut jobs: impl Iterator<Item = Box<dyn Job>>,
    done: &mut Vec<Box<dyn Job>>,
    trouble: &mut Option<String>,
) -> sqlx::Result<()> {
    let mut outcome = run_all(connection, &mut jobs, done, trouble).await;
    done.extend(jobs);
    if outcome.is_ok() {
        failpoint::reached(Side::Before, done.iter().map(|job| job.what()));
        outcome = execute(connection, "COMMIT").await;
    }
    if outcome.is_ok() {
        failpoint::reached(Side::After, done.iter().map(|job| job.what()));
    }
    if outcome.is_err()
        && let Err(error) = execute(connection, "ROLLBACK").await
    {
        tracing::debug!(%error, "SQLite had rolled back already");
    }
    outcome
}

/// All but the commit itself.
async fn run_all(
    connection: &mut SqliteConnection,
    jobs: &mut impl Iterator<Item = Box<dyn Job>>,
    done: &mut Vec<Box<dyn Job>>,
    trouble: &mut Option<String>,
) -> sqlx::Result<()> {
    execute(connection, "BEGIN IMMEDIATE").await?;
    for mut job in jobs {
        execute(connection, "SAVEPOINT job").await?;
        match job.run(connection).await {
            Ok(()) => done.push(job),
            Err(error) => {
                if execute(connection, "ROLLBACK TO job").await.is_err() {
                    // The transaction is gone, and what brought it down is this error.
                    done.push(job);
                    return Err(error);
                }
                *trouble = trouble.take().or(job.fail(error));
            }
        }
        execute(connection, "RELEASE job").await?;
    }
    Ok(())
}

async fn execute(connection: &mut SqliteConnection, statement: &'static str) -> sqlx::Result<()> {
    sqlx::query(statement).execute(connection).await.map(|_| ())
}
