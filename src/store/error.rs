//! What can go wrong with the store, named by the failed step.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use the folder `{}` for the database", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot write the file `{}` for the database", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the database `{}` is in use by another fedqd ({holder})", path.display())]
    InUse { path: PathBuf, holder: String },
    #[error("cannot lock the database `{}`", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error(
        "this database was written by a newer fedqd: `{}` has schema {found}, this fedqd knows up to {known}; \
         start that version again, or run `fedqd --rebuild-store`, which moves the file aside and starts anew \
         (everything but history is rebuilt from the clusters)",
        path.display()
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "the database `{}` is damaged: {reason}; run `fedqd --rebuild-store`, which moves it aside and starts anew \
         (everything but history is rebuilt from the clusters)",
        path.display()
    )]
    Corrupt { path: PathBuf, reason: String },
    #[error("cannot open the database `{}`", path.display())]
    Open { path: PathBuf, source: sqlx::Error },
    #[error("cannot bring the database `{}` to this fedqd's schema", path.display())]
    Migrate { path: PathBuf, source: sqlx::migrate::MigrateError },
    #[error("cannot move the database `{}` aside", path.display())]
    MoveAside { path: PathBuf, source: io::Error },
    #[error("cannot {what} from the database")]
    Read { what: &'static str, source: sqlx::Error },
    #[error("cannot {what} in the database")]
    Write { what: &'static str, source: sqlx::Error },
    /// Shared, since every write of the commit fails with it.
    #[error("cannot {what}: the commit failed, nothing of it was kept")]
    Commit { what: &'static str, source: Arc<sqlx::Error> },
    #[error("cannot {what}: the disk that holds the database is full")]
    Full { what: &'static str },
    #[error("cannot {what}: cluster `{cluster}` is not joined")]
    UnknownCluster { what: &'static str, cluster: String },
    #[error("`{0}` is not a page cursor of this list")]
    Cursor(String),
    #[error("cannot {what}: the database is closed")]
    Closed { what: &'static str },
}

/// SQLite's primary result codes (<https://sqlite.org/rescode.html>).
const SQLITE_CORRUPT: i32 = 11;
const SQLITE_FULL: i32 = 13;
const SQLITE_CONSTRAINT: i32 = 19;
const SQLITE_NOTADB: i32 = 26;
/// The extended code: a row names a cluster that is not there.
const SQLITE_CONSTRAINT_FOREIGNKEY: i32 = 787;

impl StoreError {
    /// Whether the cluster left before what was to be recorded of it: nothing is lost.
    pub fn is_unknown_cluster(&self) -> bool {
        matches!(self, Self::UnknownCluster { .. })
    }

    /// Whether the same call may work later without anyone changing the request.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Commit { .. } | Self::Write { .. } | Self::Read { .. })
    }

    /// Whether it is the database that fails, and not the one write that breaks a rule of its.
    pub(super) fn is_trouble(&self) -> bool {
        match self {
            Self::Write { source, .. } => primary_code(source) != Some(SQLITE_CONSTRAINT),
            _ => true,
        }
    }

    pub(super) fn at_open(path: &Path, source: sqlx::Error) -> Self {
        match primary_code(&source) {
            Some(SQLITE_CORRUPT | SQLITE_NOTADB) => {
                Self::Corrupt { path: path.to_owned(), reason: source.to_string() }
            }
            _ => Self::Open { path: path.to_owned(), source },
        }
    }

    pub(super) fn at_write(what: &'static str, source: sqlx::Error) -> Self {
        match primary_code(&source) {
            Some(SQLITE_FULL) => Self::Full { what },
            _ => Self::Write { what, source },
        }
    }

    pub(super) fn at_commit(what: &'static str, source: Arc<sqlx::Error>) -> Self {
        match primary_code(&source) {
            Some(SQLITE_FULL) => Self::Full { what },
            _ => Self::Commit { what, source },
        }
    }

    /// Turns a missing reference into the name that is missing.
    pub(super) fn naming(self, name: &impl ToString) -> Self {
        match self {
            Self::Write { what, source } if code(&source) == Some(SQLITE_CONSTRAINT_FOREIGNKEY) => {
                Self::UnknownCluster { what, cluster: name.to_string() }
            }
            other => other,
        }
    }
}

/// For `map_err` on reads: `what` completes "cannot …".
pub(super) fn reading(what: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |source| StoreError::Read { what, source }
}

fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    code(error).map(|code| code & 0xff)
}
