//! Logs of runs that ended, a file each, for when their pods are gone. What is in a file is for `k8s::logs` to know.
//!
//! A file is there whole or not at all, and nobody else can read it: programs print what they like. The oldest go when
//! all of them together are too large, and those of tasks that are not known any more: whoever got such an id next
//! would read them as theirs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write},
    ops::RangeInclusive,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use fedq_domain::task::{names::TaskId, phase::Epoch};

/// A task on one cluster, from when it is put there until it is off it.
pub type Run = (TaskId, Epoch);

#[derive(Debug, thiserror::Error)]
pub enum KeptLogsError {
    #[error("cannot use the folder `{}` for logs of tasks", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot remove `{}`", path.display())]
    Remove { path: PathBuf, source: io::Error },
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the log takes {bytes} bytes, and all logs together may take {most}")]
    TooLarge { bytes: u64, most: u64 },
}

/// A handle to the folder; clones share it.
#[derive(Clone, Debug)]
pub struct KeptLogs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    /// Bytes of all files together.
    most: u64,
    files: Mutex<BTreeMap<Run, Entry>>,
    /// One at a time, so that what is made room for still fits when it is written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    at: Timestamp,
}

const ENDING: &str = ".jsonl";
/// Of a file that is being written; one that is found at the start was cut off.
const DRAFT: &str = ".draft";

impl KeptLogs {
    /// Makes the folder if it is missing, and reads what is in it.
    pub fn open(folder: &Path, most: u64) -> Result<Self, KeptLogsError> {
        let failed = |source| KeptLogsError::Folder { path: folder.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(DRAFT) {
                remove(&entry.path())?;
            } else if let Some(run) = parse_name(name) {
                let metadata = entry.metadata().map_err(failed)?;
                let at = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
                files.insert(run, Entry { bytes: metadata.len(), at: at.unwrap_or(Timestamp::UNIX_EPOCH) });
            }
        }
        let inner = Inner {
            folder: folder.to_owned(),
            most,
            files: Mutex::new(files),
            writing: tokio::sync::Mutex::default(),
        };
        // It may have been more that was allowed the last time.
        inner.make_room(0)?;
        Ok(Self(Arc::new(inner)))
    }

    pub fn has(&self, run: &Run) -> bool {
        self.0.files().contains_key(run)
    }

    /// Whether anything is left of a task of this id.
    pub fn has_task(&self, task: &TaskId) -> bool {
        self.0.files().range(of_task(task)).next().is_some()
    }

    /// Whose files there are.
    pub fn tasks(&self) -> BTreeSet<TaskId> {
        self.0.files().keys().map(|(task, _)| task.clone()).collect()
    }

    /// Returns once it is on the disk.
    pub async fn put(&self, run: Run, text: Vec<u8>, now: Timestamp) -> Result<(), KeptLogsError> {
        let inner = Arc::clone(&self.0);
        let _one = self.0.writing.lock().await;
        let written = tokio::task::spawn_blocking(move || inner.put(run, &text, now));
        written.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Of which runs of a task there are files, in order.
    pub fn epochs(&self, task: &TaskId) -> Vec<Epoch> {
        self.0.files().range(of_task(task)).map(|((_, epoch), _)| *epoch).collect()
    }

    /// The file of one run.
    pub async fn file(&self, run: &Run) -> Result<Option<tokio::fs::File>, KeptLogsError> {
        if self.has(run) { open(self.0.path(run)).await } else { Ok(None) }
    }

    /// The files of a task, one for each run, in order.
    pub async fn files(&self, task: &TaskId) -> Result<Vec<tokio::fs::File>, KeptLogsError> {
        let paths: Vec<PathBuf> =
            self.0.files().range(of_task(task)).map(|(run, _)| self.0.path(run)).collect();
        let mut files = Vec::new();
        for path in paths {
            files.extend(open(path).await?);
        }
        Ok(files)
    }

    /// Removes those that are older; how many there were.
    pub async fn expire(&self, keep_for: Duration, now: Timestamp) -> Result<usize, KeptLogsError> {
        let keep_for = SignedDuration::try_from(keep_for).unwrap_or(SignedDuration::MAX);
        let oldest = now.saturating_sub(keep_for).unwrap_or(Timestamp::MIN);
        self.remove(|_, entry| entry.at < oldest).await
    }

    /// Removes what is left of these tasks; how many files there were.
    pub async fn forget(&self, tasks: &BTreeSet<TaskId>) -> Result<usize, KeptLogsError> {
        self.remove(|(task, _), _| tasks.contains(task)).await
    }

    async fn remove(&self, is_due: impl Fn(&Run, &Entry) -> bool) -> Result<usize, KeptLogsError> {
        let due: Vec<Run> = {
            let files = self.0.files();
            files.iter().filter(|(run, entry)| is_due(run, entry)).map(|(run, _)| run.clone()).collect()
        };
        let (inner, count) = (Arc::clone(&self.0), due.len());
        let removed = tokio::task::spawn_blocking(move || due.iter().try_for_each(|run| inner.remove(run)));
        removed.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        Ok(count)
    }
}

impl Inner {
    fn files(&self) -> MutexGuard<'_, BTreeMap<Run, Entry>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, (task, epoch): &Run) -> PathBuf {
        self.folder.join(format!("{task}-{epoch}{ENDING}"))
    }

    fn put(&self, run: Run, text: &[u8], now: Timestamp) -> Result<(), KeptLogsError> {
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if self.most < bytes {
            return Err(KeptLogsError::TooLarge { bytes, most: self.most });
        }
        self.make_room(bytes)?;
        let path = self.path(&run);
        let draft = path.with_extension(DRAFT.trim_start_matches('.'));
        if let Err(source) = write(&draft, &path, text) {
            // What was begun takes room on a disk that may be full.
            let _ = fs::remove_file(&draft);
            return Err(KeptLogsError::Write { path, source });
        }
        self.files().insert(run, Entry { bytes, at: now });
        Ok(())
    }

    /// Until so many more bytes are allowed.
    fn make_room(&self, bytes: u64) -> Result<(), KeptLogsError> {
        loop {
            let oldest = {
                let files = self.files();
                let all: u64 = files.values().map(|entry| entry.bytes).sum();
                if all.saturating_add(bytes) <= self.most {
                    return Ok(());
                }
                let oldest = files.iter().min_by_key(|(_, entry)| entry.at);
                oldest.map(|(run, _)| run.clone())
            };
            match oldest {
                Some(run) => self.remove(&run)?,
                None => return Ok(()),
            }
        }
    }

    fn remove(&self, run: &Run) -> Result<(), KeptLogsError> {
        remove(&self.path(run))?;
        self.files().remove(run);
        Ok(())
    }
}

async fn open(path: PathBuf) -> Result<Option<tokio::fs::File>, KeptLogsError> {
    match tokio::fs::File::open(&path).await {
        Ok(file) => Ok(Some(file)),
        // It had to make room just now.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(KeptLogsError::Read { path, source }),
    }
}

fn of_task(task: &TaskId) -> RangeInclusive<Run> {
    (task.clone(), 0)..=(task.clone(), Epoch::MAX)
}

fn remove(path: &Path) -> Result<(), KeptLogsError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(KeptLogsError::Remove { path: path.to_owned(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write(draft: &Path, path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    file.write_all(text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(draft, path)?;
    // Else the new name may be lost with the power.
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

fn parse_name(name: &str) -> Option<Run> {
    let (task, epoch) = name.strip_suffix(ENDING)?.split_once('-')?;
    Some((TaskId::parse(task)?, epoch.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tempfile::TempDir;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn run(id: &str, epoch: Epoch) -> Run {
        (TaskId::parse(id).expect("an id"), epoch)
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(1_790_000_000 + second).expect("a time")
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    async fn text(logs: &KeptLogs, id: &str) -> String {
        let mut text = String::new();
        for mut file in logs.files(&run(id, 0).0).await.expect("files") {
            file.read_to_string(&mut text).await.expect("text");
        }
        text
    }

    #[tokio::test]
    async fn runs_are_files_that_only_their_owner_reads_and_outlive_the_daemon() {
        let folder = TempDir::new().expect("a folder");
        let folder = folder.path().join("logs");
        let logs = KeptLogs::open(&folder, 100).expect("opens");
        logs.put(run("aaaaaaaa", 2), b"two".to_vec(), second(2)).await.expect("kept");
        logs.put(run("aaaaaaaa", 10), b"ten".to_vec(), second(3)).await.expect("kept");
        logs.put(run("aaaaaaab", 1), b"other".to_vec(), second(1)).await.expect("kept");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("aaaaaaaa-2.jsonl"))), (0o700, 0o600));
        // What was cut off, and what is somebody else's.
        fs::write(folder.join("aaaaaaaa-11.draft"), "half").expect("written");
        fs::write(folder.join("notes.txt"), "mine").expect("written");
        drop(logs);

        let logs = KeptLogs::open(&folder, 100).expect("opens");
        assert_eq!(text(&logs, "aaaaaaaa").await, "twoten", "by number, not by letter");
        assert!(logs.has(&run("aaaaaaab", 1)) && !logs.has(&run("aaaaaaaa", 11)));
        assert_eq!(
            names(&folder),
            ["aaaaaaaa-10.jsonl", "aaaaaaaa-2.jsonl", "aaaaaaab-1.jsonl", "notes.txt"]
        );
    }

    #[tokio::test]
    async fn the_oldest_make_room() {
        let folder = TempDir::new().expect("a folder");
        let logs = KeptLogs::open(folder.path(), 10).expect("opens");
        for (at, id) in [(3, "aaaaaaaa"), (1, "bbbbbbbb"), (2, "cccccccc")] {
            logs.put(run(id, 1), b"123".to_vec(), second(at)).await.expect("kept");
        }
        logs.put(run("dddddddd", 1), b"12345".to_vec(), second(4)).await.expect("kept");
        assert_eq!(names(folder.path()), ["aaaaaaaa-1.jsonl", "dddddddd-1.jsonl"]);
        assert_eq!(text(&logs, "bbbbbbbb").await, "");
        let refused = logs.put(run("eeeeeeee", 1), vec![0; 11], second(5)).await;
        assert!(matches!(refused, Err(KeptLogsError::TooLarge { bytes: 11, most: 10 })), "{refused:?}");
        assert_eq!(names(folder.path()).len(), 2, "nothing goes for what cannot stay");

        let logs = KeptLogs::open(folder.path(), 5).expect("opens");
        assert_eq!(names(folder.path()).len(), 1, "less is allowed than before");
        assert_eq!(logs.expire(Duration::from_hours(1), second(0)).await.expect("removed"), 0);
        let later = Timestamp::from_second(4_000_000_000).expect("a time");
        assert_eq!(logs.expire(Duration::from_hours(1), later).await.expect("removed"), 1);
        assert!(names(folder.path()).is_empty());
    }

    #[tokio::test]
    async fn what_is_left_of_a_task_goes_with_it_and_its_id_is_known_until_then() {
        let folder = TempDir::new().expect("a folder");
        let logs = KeptLogs::open(folder.path(), 100).expect("opens");
        for (id, epoch) in [("aaaaaaaa", 1), ("aaaaaaaa", 2), ("bbbbbbbb", 1)] {
            logs.put(run(id, epoch), b"123".to_vec(), second(1)).await.expect("kept");
        }
        let [a, b, c] = ["aaaaaaaa", "bbbbbbbb", "aaaaaaab"].map(|id| run(id, 0).0);
        assert_eq!(logs.tasks(), [a.clone(), b.clone()].into());
        assert!(logs.has_task(&a) && logs.has_task(&b) && !logs.has_task(&c));
        assert_eq!(logs.forget(&[a.clone(), c].into()).await.expect("removed"), 2);
        assert!(!logs.has_task(&a));
        assert_eq!(names(folder.path()), ["bbbbbbbb-1.jsonl"]);
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_an_error_and_leaves_no_trace() {
        let folder = TempDir::new().expect("a folder");
        let logs = KeptLogs::open(folder.path(), 10).expect("opens");
        // The place of the file is taken by a folder.
        fs::create_dir_all(folder.path().join("aaaaaaaa-1.jsonl/x")).expect("made");
        let failed = logs.put(run("aaaaaaaa", 1), b"123".to_vec(), second(1)).await;
        assert!(matches!(failed, Err(KeptLogsError::Write { .. })), "{failed:?}");
        assert!(!logs.has(&run("aaaaaaaa", 1)));
        assert_eq!(names(folder.path()), ["aaaaaaaa-1.jsonl"]);
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        assert!(matches!(KeptLogs::open(&file, 10), Err(KeptLogsError::Folder { .. })));
    }
}
