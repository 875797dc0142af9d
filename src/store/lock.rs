//! One daemon a file: an advisory lock on `<database>.lock`, which the kernel drops when we die.
//!
//! SQLite's own locks would let two daemons take turns, and each would undo the other's quotas.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
};

use super::StoreError;

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    /// The file stays: removing it would let a third daemon lock a new file of that name while a second still
    /// holds the old one.
    file: File,
}

/// Closing the file is not enough: a program that is just being started has a copy of it for a moment, and with it
/// the lock.
impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            tracing::debug!("The database's lock goes with its file: {error}");
        }
    }
}

impl Lock {
    pub(super) fn take(database: &Path) -> Result<Self, StoreError> {
        let path = lock_path(database);
        let failed = |source| StoreError::Lock { path: database.to_owned(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| StoreError::File { path, source })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Its holder may be between locking and writing; the refusal stands without the id.
                let holder = match file.read_to_string(&mut text) {
                    Ok(_) if !text.trim().is_empty() => format!("process {}", text.trim()),
                    Ok(_) | Err(_) => "process unknown".to_owned(),
                };
                return Err(StoreError::InUse { path: database.to_owned(), holder });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { file })
    }
}

fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
