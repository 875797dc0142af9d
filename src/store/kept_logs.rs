//! Logs of runs that ended, a file each, for when their pods are gone. What is in a file is for `k8s::logs` to know.
//!
//! A file is there whole or not at all, and nobody else can read it: programs print what they like. The oldest go when
//! all of them together are too large, and those of tasks that are not known any more: whoever got such an id next
//! would read them as theirs. Beside them are parts, of runs that go on: they are added to, and become files when their run is over.

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
    /// Of runs that go on.
    parts: Mutex<BTreeMap<Run, Entry>>,
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
/// Of a run that goes on.
const PART: &str = ".part";

impl KeptLogs {
    /// Makes the folder if it is missing, and reads what is in it.
    pub fn open(folder: &Path, most: u64) -> Result<Self, KeptLogsError> {
        let failed = |source| KeptLogsError::Folder { path: folder.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let (mut files, mut parts) = (BTreeMap::new(), BTreeMap::new());
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(DRAFT) {
                remove(&entry.path())?;
                continue;
            }
            for (all, ending) in [(&mut files, ENDING), (&mut parts, PART)] {
                let Some(run) = parse_name(name, ending) else { continue };
                let metadata = entry.metadata().map_err(failed)?;
                let at = metadata.modified().ok().and_then(|at| Timestamp::try_from(at).ok());
                all.insert(run, Entry { bytes: metadata.len(), at: at.unwrap_or(Timestamp::UNIX_EPOCH) });
            }
        }
        let inner = Inner {
            folder: folder.to_owned(),
            most,
            files: Mutex::new(files),
            parts: Mutex::new(parts),
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
        let has = |all: &BTreeMap<Run, Entry>| all.range(of_task(task)).next().is_some();
        has(&self.0.files()) || has(&self.0.parts())
    }

    /// Whose files there are.
    pub fn tasks(&self) -> BTreeSet<TaskId> {
        let of = |all: &BTreeMap<Run, Entry>| all.keys().map(|(task, _)| task.clone()).collect::<Vec<_>>();
        of(&self.0.files()).into_iter().chain(of(&self.0.parts())).collect()
    }

    /// Runs of which there is a part, and no file.
    pub fn parts(&self) -> Vec<Run> {
        self.0.parts().keys().cloned().collect()
    }

    pub fn has_part(&self, run: &Run) -> bool {
        self.0.parts().contains_key(run)
    }

    /// Adds to what is there of a run that goes on; how many bytes that is then.
    pub async fn add(&self, run: Run, text: Vec<u8>, now: Timestamp) -> Result<u64, KeptLogsError> {
        self.in_turn(move |inner| inner.add(run, &text, now)).await
    }

    /// What is there of a run that goes on.
    pub async fn part(&self, run: &Run) -> Result<Option<tokio::fs::File>, KeptLogsError> {
        if self.has_part(run) { open(self.0.part(run)).await } else { Ok(None) }
    }

    /// Makes something shorter of it.
    pub async fn rewrite(
        &self,
        run: Run,
        shorter: impl FnOnce(&[u8]) -> Vec<u8> + Send + 'static,
        now: Timestamp,
    ) -> Result<(), KeptLogsError> {
        self.in_turn(move |inner| inner.rewrite(run, shorter, now)).await
    }

    /// The run is over, and its part is all that is kept of it.
    pub async fn close(&self, run: Run) -> Result<(), KeptLogsError> {
        self.in_turn(move |inner| inner.close(run)).await
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, KeptLogsError> + Send + 'static,
    ) -> Result<T, KeptLogsError> {
        let inner = Arc::clone(&self.0);
        let _one = self.0.writing.lock().await;
        let done = tokio::task::spawn_blocking(move || work(&inner));
        done.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Returns once it is on the disk.
    pub async fn put(&self, run: Run, text: Vec<u8>, now: Timestamp) -> Result<(), KeptLogsError> {
        self.in_turn(move |inner| inner.put(run, &text, now)).await
    }

    /// Of which runs of a task there is something, in order.
    pub fn epochs(&self, task: &TaskId) -> Vec<Epoch> {
        self.runs(task).into_iter().map(|(_, epoch)| epoch).collect()
    }

    fn runs(&self, task: &TaskId) -> BTreeSet<Run> {
        let of = |all: &BTreeMap<Run, Entry>| -> Vec<Run> {
            all.range(of_task(task)).map(|(run, _)| run.clone()).collect()
        };
        let (files, parts) = (of(&self.0.files()), of(&self.0.parts()));
        files.into_iter().chain(parts).collect()
    }

    /// The file of one run, or what there is of it so far.
    pub async fn file(&self, run: &Run) -> Result<Option<tokio::fs::File>, KeptLogsError> {
        if self.has(run) { open(self.0.path(run)).await } else { self.part(run).await }
    }

    /// The files of a task, one for each run, in order.
    pub async fn files(&self, task: &TaskId) -> Result<Vec<tokio::fs::File>, KeptLogsError> {
        let mut files = Vec::new();
        for run in self.runs(task) {
            files.extend(self.file(&run).await?);
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
        let of = |all: &BTreeMap<Run, Entry>| -> Vec<Run> {
            all.iter().filter(|(run, entry)| is_due(run, entry)).map(|(run, _)| run.clone()).collect()
        };
        let (files, parts) = (of(&self.0.files()), of(&self.0.parts()));
        let (inner, count) = (Arc::clone(&self.0), files.len() + parts.len());
        let removed = tokio::task::spawn_blocking(move || {
            files.iter().try_for_each(|run| inner.remove(run))?;
            parts.iter().try_for_each(|run| inner.remove_part(run))
        });
        removed.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        Ok(count)
    }
}

impl Inner {
    fn files(&self) -> MutexGuard<'_, BTreeMap<Run, Entry>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<Run, Entry>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, (task, epoch): &Run) -> PathBuf {
        self.folder.join(format!("{task}-{epoch}{ENDING}"))
    }

    fn part(&self, (task, epoch): &Run) -> PathBuf {
        self.folder.join(format!("{task}-{epoch}{PART}"))
    }

    fn add(&self, run: Run, text: &[u8], now: Timestamp) -> Result<u64, KeptLogsError> {
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        if self.most < bytes {
            return Err(KeptLogsError::TooLarge { bytes, most: self.most });
        }
        // Before there is room for it: this one must not go to make some.
        let before = self.parts().insert(run.clone(), Entry { bytes: 0, at: Timestamp::MAX });
        let before = before.map_or(0, |entry| entry.bytes);
        let added = self.make_room(before.saturating_add(bytes)).and_then(|()| {
            let path = self.part(&run);
            append(&path, text).map_err(|source| KeptLogsError::Write { path, source })
        });
        let bytes = before + if added.is_ok() { bytes } else { 0 };
        self.parts().insert(run, Entry { bytes, at: now });
        added.map(|()| bytes)
    }

    fn rewrite(
        &self,
        run: Run,
        shorter: impl FnOnce(&[u8]) -> Vec<u8>,
        now: Timestamp,
    ) -> Result<(), KeptLogsError> {
        let path = self.part(&run);
        let text = fs::read(&path).map_err(|source| KeptLogsError::Read { path: path.clone(), source })?;
        let text = shorter(&text);
        let draft = path.with_extension(DRAFT.trim_start_matches('.'));
        if let Err(source) = write(&draft, &path, &text) {
            // What was begun takes room on a disk that may be full.
            let _ = fs::remove_file(&draft);
            return Err(KeptLogsError::Write { path, source });
        }
        let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
        self.parts().insert(run, Entry { bytes, at: now });
        Ok(())
    }

    fn close(&self, run: Run) -> Result<(), KeptLogsError> {
        let Some(entry) = self.parts().remove(&run) else { return Ok(()) };
        let (part, path) = (self.part(&run), self.path(&run));
        let renamed =
            fs::File::open(&part).and_then(|file| file.sync_all()).and_then(|()| fs::rename(&part, &path));
        match renamed {
            Ok(()) => {
                self.files().insert(run, entry);
                Ok(())
            }
            Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => {
                self.parts().insert(run, entry);
                Err(KeptLogsError::Write { path, source })
            }
        }
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
        self.remove_part(&run)?;
        self.files().insert(run, Entry { bytes, at: now });
        Ok(())
    }

    /// Until so many more bytes are allowed.
    fn make_room(&self, bytes: u64) -> Result<(), KeptLogsError> {
        loop {
            let sum = |all: &BTreeMap<Run, Entry>| all.values().map(|entry| entry.bytes).sum::<u64>();
            let all = sum(&self.files()).saturating_add(sum(&self.parts()));
            if all.saturating_add(bytes) <= self.most {
                return Ok(());
            }
            let oldest = |all: &BTreeMap<Run, Entry>| {
                let going = all.iter().filter(|(_, entry)| entry.at != Timestamp::MAX);
                going.min_by_key(|(_, entry)| entry.at).map(|(run, _)| run.clone())
            };
            // What is over goes before what goes on.
            let (file, part) = (oldest(&self.files()), oldest(&self.parts()));
            match (file, part) {
                (Some(run), _) => self.remove(&run)?,
                (None, Some(run)) => self.remove_part(&run)?,
                (None, None) => return Ok(()),
            }
        }
    }

    fn remove_part(&self, run: &Run) -> Result<(), KeptLogsError> {
        if self.parts().remove(run).is_some() {
            remove(&self.part(run))?;
        }
        Ok(())
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

/// Not onto the disk at once: a crash may cost what was added last.
fn append(path: &Path, text: &[u8]) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(text)
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

fn parse_name(name: &str, ending: &str) -> Option<Run> {
    let (task, epoch) = name.strip_suffix(ending)?.split_once('-')?;
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
    async fn a_part_grows_with_its_run_and_becomes_its_file() {
        let folder = TempDir::new().expect("a folder");
        let logs = KeptLogs::open(folder.path(), 20).expect("opens");
        let (over, goes_on) = (run("aaaaaaaa", 1), run("bbbbbbbb", 1));
        logs.put(over.clone(), b"over".to_vec(), second(1)).await.expect("kept");
        for (text, bytes) in [("one\n", 4), ("two\n", 8)] {
            let added = logs.add(goes_on.clone(), text.as_bytes().to_vec(), second(2)).await;
            assert_eq!(added.expect("added"), bytes);
        }
        assert!(!logs.has(&goes_on) && logs.has_part(&goes_on) && logs.has_task(&goes_on.0));
        let logs = KeptLogs::open(folder.path(), 20).expect("opens");
        assert_eq!(logs.parts(), std::slice::from_ref(&goes_on), "it outlives the daemon");
        logs.add(goes_on.clone(), b"0123456789".to_vec(), second(3)).await.expect("added");
        assert!(!logs.has(&over), "what is over makes room");
        logs.rewrite(goes_on.clone(), |text| text[4..].to_vec(), second(4)).await.expect("shorter");
        logs.close(goes_on.clone()).await.expect("closed");
        assert!(logs.has(&goes_on) && !logs.has_part(&goes_on));
        assert_eq!(text(&logs, "bbbbbbbb").await, "two\n0123456789");
        assert_eq!(names(folder.path()), ["bbbbbbbb-1.jsonl"]);
        let refused = logs.add(over.clone(), vec![b'x'; 21], second(5)).await;
        assert!(matches!(refused, Err(KeptLogsError::TooLarge { .. })), "{refused:?}");
        logs.close(over.clone()).await.expect("nothing to close");
        assert!(!logs.has(&over));
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
