//! Opening: folder, integrity, schema. Everything here refuses rather than guesses.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    Connection,
    migrate::{MigrateError, Migrator},
    sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous},
};

use super::{StoreError, lock::Lock};

/// Forward only: a released file is never changed, since its checksum is in every database.
static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations");

/// A checkpoint cuts the `-wal` file back to this, so that one burst does not hold disk for ever.
const WAL_KEEP_BYTES: &str = "67108864";

/// More files moved aside than this are a loop that someone should look at.
const MAX_ASIDE: u32 = 1000;

/// Moves the database aside and returns where to; the next start makes a new one. `None` if there is
/// no file. Refused while a daemon has it open.
pub fn rebuild(path: &Path) -> Result<Option<PathBuf>, StoreError> {
    let path = prepare(path)?;
    let _lock = Lock::take(&path)?;
    if !path.exists() {
        return Ok(None);
    }
    let failed = |source| StoreError::MoveAside { path: path.clone(), source };
    let aside = (1..=MAX_ASIDE)
        .map(|number| beside(&path, &format!(".aside-{number}")))
        .find(|aside| !aside.exists())
        .ok_or_else(|| failed(io::ErrorKind::AlreadyExists.into()))?;
    // The log first: if we die between the two, the database opens as of its last checkpoint, and is
    // moved by the next run.
    for suffix in ["-wal", "-shm", ""] {
        match fs::rename(beside(&path, suffix), beside(&aside, suffix)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound && !suffix.is_empty() => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(Some(aside))
}

/// Makes the folder and resolves links, so that one file cannot be opened under two names.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, StoreError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let folder = |source| StoreError::Folder { path: parent.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(folder)?;
    if path.is_dir() {
        return Err(StoreError::File { path: path.to_owned(), source: io::ErrorKind::IsADirectory.into() });
    }
    if path.exists() {
        return fs::canonicalize(path).map_err(folder);
    }
    let name = path
        .file_name()
        .ok_or_else(|| folder(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file")))?;
    Ok(fs::canonicalize(parent).map_err(folder)?.join(name))
}

pub(super) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .journal_mode(SqliteJournalMode::Wal)
        // NORMAL may lose the last commits on power loss, and callers were told that they are kept.
        .synchronous(SqliteSynchronous::Full)
        // A savepoint that rewrites more than 64 KiB spills to a temporary file otherwise, and the container's
        // root is read-only.
        .pragma("temp_store", "MEMORY")
        .pragma("journal_size_limit", WAL_KEEP_BYTES)
}

/// The one connection that writes: file checked, schema brought up to ours.
pub(super) async fn writer(path: &Path) -> Result<SqliteConnection, StoreError> {
    // SQLite would make it readable by everyone; `-wal` and `-shm` take the mode of the database.
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|source| StoreError::File { path: path.to_owned(), source })?;
    let mut connection = SqliteConnection::connect_with(&options(path).optimize_on_close(true, None))
        .await
        .map_err(|source| StoreError::at_open(path, source))?;
    let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)")
        .fetch_one(&mut connection)
        .await
        .map_err(|source| StoreError::at_open(path, source))?;
    if verdict != "ok" {
        return Err(StoreError::Corrupt { path: path.to_owned(), reason: verdict });
    }
    MIGRATIONS.run(&mut connection).await.map_err(|source| refused_schema(path, source))?;
    Ok(connection)
}

fn refused_schema(path: &Path, source: MigrateError) -> StoreError {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default();
    match source {
        MigrateError::VersionMissing(found) | MigrateError::VersionTooNew(found, _) => {
            StoreError::Newer { path: path.to_owned(), found, known }
        }
        MigrateError::Execute(source) => StoreError::at_open(path, source),
        source => StoreError::Migrate { path: path.to_owned(), source },
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
