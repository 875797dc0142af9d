//! Where a demo keeps what it writes: only its owner may look, since kubeconfigs are there.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::{DemoError, stage, switches};

/// Says that a folder is a demo's; locked while the demo runs.
const MARK: &str = ".fedq-demo";

pub struct Folder {
    path: PathBuf,
    /// Removed at the end, also where that comes early.
    temporary: Option<TempDir>,
    _lock: Lock,
}

/// Closing the file is not enough: a program that is just being started has a copy of it for a moment, and with it
/// the lock.
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::debug!("The folder's lock goes with its file: {error}");
        }
    }
}

impl Folder {
    /// `dir`, which must be new, empty or an earlier demo's, else a new one that is removed at the end.
    pub fn open(dir: Option<&Path>) -> Result<Self, DemoError> {
        let Some(dir) = dir else {
            let parent = std::env::temp_dir();
            let made = tempfile::Builder::new().prefix("fedq-demo-").tempdir_in(&parent);
            let made = made.map_err(|source| DemoError::Folder { path: parent, source })?;
            let path = made.path().to_owned();
            return Ok(Self { _lock: lock(&path)?, path, temporary: Some(made) });
        };
        let failed = |source| DemoError::Folder { path: dir.to_owned(), source };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        // Where there is a file, the system says just that it exists.
        let not_a_folder = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => io::ErrorKind::NotADirectory.into(),
            _ => source,
        };
        made.map_err(not_a_folder).map_err(failed)?;
        // The commands that are run there, and those that a person pastes, need to find it from anywhere.
        let path = dir.canonicalize().map_err(failed)?;
        let there = entries(&path).map_err(failed)?;
        // Not even a mark is put among what is somebody's.
        if let Some(found) = there.first().filter(|_| !there.iter().any(|name| name == MARK)) {
            return Err(DemoError::Foreign { path, found: found.clone() });
        }
        let lock = lock(&path)?;
        let there = entries(&path).map_err(failed)?;
        if let Some(found) = there.into_iter().find(|name| !is_own(name)) {
            return Err(DemoError::Foreign { path, found });
        }
        clear(&path).map_err(failed)?;
        Ok(Self { path, temporary: None, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_temporary(&self) -> bool {
        self.temporary.is_some()
    }

    /// Whether it is removed.
    pub fn close(self) -> Result<bool, DemoError> {
        let Some(temporary) = self.temporary else { return Ok(false) };
        temporary.close().map_err(|source| DemoError::Folder { path: self.path, source })?;
        Ok(true)
    }

    /// For somebody to look into.
    pub fn keep(self) {
        self.temporary.map(TempDir::keep);
    }
}

fn lock(folder: &Path) -> Result<Lock, DemoError> {
    let path = folder.join(MARK);
    let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let failed = |source| DemoError::Folder { path: folder.to_owned(), source };
    let file = opened.map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(DemoError::Busy { path: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// Whether a demo writes it, or kubectl where a demo told it to.
fn is_own(name: &str) -> bool {
    name == MARK || stage::FILES.contains(&name) || switches::cluster(name).is_some()
}

/// What an earlier demo left there.
fn clear(folder: &Path) -> io::Result<()> {
    for name in entries(folder)?.iter().filter(|name| *name != MARK) {
        let path = folder.join(name);
        if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

/// A new file that only its owner may read.
pub fn write(path: &Path, text: &str) -> Result<(), DemoError> {
    let written = create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| DemoError::Write { path: path.to_owned(), source })
}

pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let full = tempfile::tempdir().unwrap();
        fs::write(full.path().join("mine"), "").unwrap();
        let refused = Folder::open(Some(full.path())).err().unwrap();
        assert!(matches!(&refused, DemoError::Foreign { found, .. } if found == "mine"), "{refused}");
        assert_eq!(entries(full.path()).unwrap(), ["mine"]);
    }

    #[test]
    fn a_demo_s_folder_is_used_again_unless_somebody_has_put_something_there() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("demo");
        for _ in 0..2 {
            let folder = Folder::open(Some(&dir)).unwrap();
            assert_eq!(entries(&dir).unwrap(), [MARK]);
            write(&folder.path().join(stage::LOG), "x").unwrap();
            fs::create_dir_all(folder.path().join("kubectl/cache")).unwrap();
            fs::write(folder.path().join("tokyo.off"), "").unwrap();
        }
        fs::write(dir.join("thesis.tex"), "").unwrap();
        let refused = Folder::open(Some(&dir)).err().unwrap();
        assert!(matches!(&refused, DemoError::Foreign { found, .. } if found == "thesis.tex"), "{refused}");
        assert!(dir.join(stage::LOG).exists());
    }

    #[test]
    fn a_file_is_no_folder() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = Folder::open(Some(file.path())).err().unwrap();
        let DemoError::Folder { source, .. } = refused else { panic!("{refused}") };
        assert_eq!(source.to_string(), "not a directory");
    }

    #[test]
    fn two_demos_do_not_share_a_folder() {
        let parent = tempfile::tempdir().unwrap();
        let first = Folder::open(Some(parent.path())).unwrap();
        let refused = Folder::open(Some(parent.path())).err().unwrap();
        assert!(matches!(refused, DemoError::Busy { .. }), "{refused}");
        first.close().unwrap();
        Folder::open(Some(parent.path())).unwrap();
    }

    #[test]
    fn what_was_named_stays_and_what_was_not_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let named = parent.path().join("a/b");
        let folder = Folder::open(Some(&named)).unwrap();
        write(&folder.path().join("env"), "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&named), mode(&named.join("env"))), (0o700, 0o600));
        assert!(!folder.is_temporary());
        assert!(!folder.close().unwrap());
        assert!(named.join("env").exists());

        let folder = Folder::open(None).unwrap();
        let path = folder.path().to_owned();
        assert!(folder.is_temporary() && path.exists());
        assert!(folder.close().unwrap());
        assert!(!path.exists());
    }
}
