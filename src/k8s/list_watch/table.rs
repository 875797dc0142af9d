//! Objects of one kind, kept typed and current.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::{Allowance, Charge, Link, Malformed, Sink, Skipped, allowance};
use fedq_values::nested;

/// Of what Kubernetes has.
pub(super) const LONGEST_NAME: usize = 253;
/// Versions of deleted objects that are kept: an answer that comes later than so many deletions was long given up.
const DELETED: usize = 10_000;
/// Ends that are kept, whether or not their objects are still there: whoever waits for one looks within seconds.
/// Twice the nodes that one task can have.
const ENDS: usize = 2_000;
/// In bytes, by what rows are counted in; these are kept beside them. A pod that says more has not ended as a task's does.
const LARGEST_END: usize = 16 << 10;

/// (namespace, name)
pub type Key = (Option<String>, String);

/// A kind that a [`Table`] can keep. Every `kube::Resource` is one.
pub trait Record: DeserializeOwned + Send + Sync + 'static {
    fn key(&self) -> Key;
    fn version(&self) -> u64;
    /// Lets go of what nobody reads before the object is kept.
    fn trim(&mut self) {}
    /// Whether it says how something ended, which is of use also when the object is gone before anybody has looked.
    fn is_end(&self) -> bool {
        false
    }
}

impl<K> Record for K
where
    K: kube::Resource + DeserializeOwned + Send + Sync + 'static,
{
    fn key(&self) -> Key {
        (self.meta().namespace.clone(), self.meta().name.clone().unwrap_or_default())
    }

    fn version(&self) -> u64 {
        self.meta().resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or(0)
    }

    /// Who wrote a status is nobody's question, and its fields take more than all else of a claim: each is an
    /// object of its own.
    fn trim(&mut self) {
        if let Some(managers) = &mut self.meta_mut().managed_fields {
            managers.retain(|entry| entry.subresource.as_deref() != Some("status"));
            managers.shrink_to_fit();
        }
    }
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum State {
    /// Never listed.
    #[default]
    Waiting,
    /// All objects are known; `broken` says why the link is down and this is the last thing known.
    Synced { broken: Option<String> },
    /// The server does not know the kind. Objects known from before are kept: a kind that vanished
    /// is not the same as each of its objects deleted.
    Absent,
}

/// All objects of one kind and what they are complete to.
#[derive(Deserialize, Serialize)]
pub struct Known<T> {
    version: u64,
    objects: Vec<Arc<T>>,
}

/// Clones share the same objects.
pub struct Table<T>(Arc<Shared<T>>);

struct Shared<T> {
    kept: RwLock<Kept<T>>,
    /// Asked by each controller of each cluster in each round.
    changes: AtomicU64,
    changed: watch::Sender<()>,
    wakes: OnceLock<Wakes>,
}

struct Wakes {
    on_rows: Vec<Arc<Notify>>,
    on_state: Vec<Arc<Notify>>,
}

struct Kept<T> {
    rows: BTreeMap<Key, Row<T>>,
    /// What the rows take.
    bytes: usize,
    charge: Charge,
    /// What a row takes, where anybody asks.
    size: Option<fn(&T) -> usize>,
    /// What they are complete to.
    version: Option<u64>,
    state: State,
    /// It could not be listed so far.
    refused: bool,
    /// Objects that could not be read since the last list began.
    skipped: Vec<Skipped>,
    /// Versions of objects that were deleted, while an answer of a write may still arrive late.
    deleted: BTreeMap<Key, u64>,
    /// The last objects that said how something ended.
    ends: BTreeMap<Key, Arc<T>>,
}

struct Row<T> {
    object: Arc<T>,
    bytes: usize,
}

impl<T: Record> Kept<T> {
    fn insert(&mut self, key: Key, object: Arc<T>) {
        let bytes = self.size.map_or(0, |size| size(&object));
        if object.is_end() && bytes <= LARGEST_END {
            self.ends.insert(key.clone(), Arc::clone(&object));
            forget_older(&mut self.ends, ENDS, |end| end.version());
        }
        let before = self.rows.insert(key, Row { object, bytes });
        self.bytes = self.bytes + bytes - before.map_or(0, |row| row.bytes);
        self.charge.keep(self.rows.len(), self.bytes);
    }

    fn remove(&mut self, key: &Key) -> bool {
        let Some(row) = self.rows.remove(key) else { return false };
        self.bytes -= row.bytes;
        self.charge.keep(self.rows.len(), self.bytes);
        true
    }

    /// Of those that were deleted long ago no answer comes any more.
    fn forget_deleted(&mut self) {
        forget_older(&mut self.deleted, DELETED, |version| *version);
    }
}

/// The older half, once there are more than `most`.
fn forget_older<V>(kept: &mut BTreeMap<Key, V>, most: usize, version: impl Fn(&V) -> u64) {
    if kept.len() <= most {
        return;
    }
    let mut versions: Vec<u64> = kept.values().map(&version).collect();
    let (_, middle, _) = versions.select_nth_unstable(most / 2);
    let middle = *middle;
    kept.retain(|_, one| middle < version(one));
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Record> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Record> Table<T> {
    pub fn new() -> Self {
        Self::counting(Charge::default(), None)
    }

    /// One that counts towards what is kept of a cluster.
    pub fn within(allowance: &Allowance) -> Self
    where
        T: Serialize,
    {
        Self::counting(Charge::of(allowance), allowance.is_bounded().then_some(allowance::size::<T>))
    }

    fn counting(charge: Charge, size: Option<fn(&T) -> usize>) -> Self {
        let kept = Kept {
            rows: BTreeMap::new(),
            bytes: 0,
            charge,
            size,
            version: None,
            state: State::Waiting,
            refused: false,
            skipped: Vec::new(),
            deleted: BTreeMap::new(),
            ends: BTreeMap::new(),
        };
        Self(Arc::new(Shared {
            kept: RwLock::new(kept),
            changes: AtomicU64::new(0),
            changed: watch::Sender::new(()),
            wakes: OnceLock::new(),
        }))
    }

    /// The end that [`super::Follow::run`] fills.
    pub fn sink(&self) -> TableSink<T> {
        TableSink { table: self.clone(), listed: None }
    }

    pub fn state(&self) -> State {
        self.read().state.clone()
    }

    /// Whether all objects are known (an absent kind has none).
    pub fn synced(&self) -> bool {
        !matches!(self.read().state, State::Waiting)
    }

    /// Whether it was asked for, and has never been listed.
    pub fn is_refused(&self) -> bool {
        self.read().refused
    }

    /// Whether all objects are known and being followed at this moment.
    pub fn is_current(&self) -> bool {
        matches!(self.read().state, State::Absent | State::Synced { broken: None })
    }

    /// Whether the server does not know the kind.
    pub fn is_absent(&self) -> bool {
        matches!(self.read().state, State::Absent)
    }

    /// Told of changes of rows or state: a signal without a payload, read the table for what is.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Whom to wake on each change of rows, and of state. Said once.
    pub fn wakes(&self, on_rows: Vec<Arc<Notify>>, on_state: Vec<Arc<Notify>>) {
        self.0.wakes.get_or_init(|| Wakes { on_rows, on_state });
    }

    /// How many changes there were: while it is the same, so are the rows, what could not be read, and the state.
    pub fn revision(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<T>> {
        let key = (namespace.map(str::to_owned), name.to_owned());
        self.read().rows.get(&key).map(|row| Arc::clone(&row.object))
    }

    /// All objects as they are now, by (namespace, name).
    pub fn snapshot(&self) -> BTreeMap<Key, Arc<T>> {
        self.read().rows.iter().map(|(key, row)| (key.clone(), Arc::clone(&row.object))).collect()
    }

    /// All objects as they are now, in order of (namespace, name).
    pub fn all(&self) -> Vec<Arc<T>> {
        self.read().rows.values().map(|row| Arc::clone(&row.object)).collect()
    }

    /// How things ended, as far as that was seen: of the last ones also when their objects are gone.
    pub fn ends(&self) -> Vec<Arc<T>> {
        self.read().ends.values().map(Arc::clone).collect()
    }

    /// Whether some object is so. Nobody changes the table meanwhile: to be told in a moment.
    pub fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        self.read().rows.values().any(|row| is(&row.object))
    }

    /// What the objects are complete to, if they are.
    pub fn version(&self) -> Option<u64> {
        self.read().version
    }

    /// For the next start to begin from; nothing of a kind that is not there or was never complete.
    pub fn known(&self) -> Option<Known<T>> {
        let kept = self.read();
        // What could not be read is not stored, and a start that resumes from here would not miss it.
        let whole = kept.skipped.is_empty() && matches!(kept.state, State::Synced { .. });
        let version = kept.version.filter(|_| whole)?;
        Some(Known { version, objects: kept.rows.values().map(|row| Arc::clone(&row.object)).collect() })
    }

    /// Begins from what was known, as long as nothing is.
    pub fn restore(&self, known: Known<T>) {
        let mut kept = self.write();
        if kept.version.is_none() && kept.rows.is_empty() {
            kept.version = Some(known.version);
            for object in known.objects {
                kept.insert(object.key(), object);
            }
            self.count(&kept);
        }
    }

    /// Objects of the last list and since that could not be read.
    pub fn skipped(&self) -> Vec<Skipped> {
        self.read().skipped.clone()
    }

    /// Takes over what a write answered, ahead of its watch event, unless something newer is known.
    pub fn absorb(&self, object: T) {
        if self.put(object, None) {
            self.wake();
        }
    }

    /// The same from an answer's JSON.
    pub fn absorb_answer(&self, answer: &Value) {
        if let Ok(object) = T::deserialize(answer) {
            self.absorb(object);
        } else {
            // The watch brings the same object in a moment. The reader's words may quote a Secret.
            warn!("The answer to a write cannot be read");
        }
    }

    /// Whether anything changed. Versions of one kind are comparable, since all come from one counter;
    /// but a list is right about a row that nobody touched since it began (`before`), even when the
    /// counter was set back by restoring a backup.
    fn put(&self, mut object: T, before: Option<u64>) -> bool {
        object.trim();
        let (key, version) = (object.key(), object.version());
        let mut kept = self.write();
        let row = kept.rows.get(&key).map(|row| row.object.version());
        let known = row.max(kept.deleted.get(&key).copied());
        let untouched = before.is_some() && before == row && Some(version) != row;
        if !untouched && known.is_some_and(|known| version <= known) {
            return false;
        }
        kept.deleted.remove(&key);
        kept.insert(key, Arc::new(object));
        self.count(&kept);
        true
    }

    fn read(&self) -> RwLockReadGuard<'_, Kept<T>> {
        // Nothing panics while the lock is held, and rows are replaced whole.
        self.0.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Kept<T>> {
        self.0.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a change while nobody can read it yet: whoever sees what is new finds another count.
    fn count(&self, _changed: &RwLockWriteGuard<'_, Kept<T>>) {
        self.0.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn wake(&self) {
        self.wake_those(|wakes| &wakes.on_rows);
    }

    fn wake_those(&self, whom: impl Fn(&Wakes) -> &Vec<Arc<Notify>>) {
        self.0.changed.send_replace(());
        self.0.wakes.get().into_iter().flat_map(whom).for_each(|waiting| waiting.notify_one());
    }
}

/// Fills a [`Table`].
pub struct TableSink<T> {
    table: Table<T>,
    listed: Option<Listed>,
}

/// A list in progress.
#[derive(Default)]
struct Listed {
    seen: BTreeSet<Key>,
    /// Rows that were there when it began: only these can be proved gone.
    before: BTreeMap<Key, u64>,
    unreadable: BTreeSet<String>,
    /// What was passed over in this list. What was passed over before stands beside it until the list is whole: half of
    /// one must not look like all that is there.
    skipped: Vec<Skipped>,
    changed: bool,
}

impl<T: Record> TableSink<T> {
    fn parse(object: &[u8]) -> Result<T, Malformed> {
        if nested::is_nested(object) {
            return Err(Malformed("it holds JSON as a text that would be read as JSON once more".to_owned()));
        }
        // The position, not the reader's message: that quotes the object, which may be a Secret.
        let object: T = serde_json::from_slice(object)
            .map_err(|error| Malformed(format!("it cannot be read at byte {}", error.column())))?;
        if object.key().1.is_empty() || object.version() == 0 {
            return Err(Malformed("it has no name or no resourceVersion".to_owned()));
        }
        // No API server takes longer ones, and each is kept several times.
        let (namespace, name) = object.key();
        if LONGEST_NAME < name.len() || namespace.is_some_and(|namespace| LONGEST_NAME < namespace.len()) {
            return Err(Malformed("its name is longer than names can be".to_owned()));
        }
        Ok(object)
    }
}

impl<T: Record> Sink for TableSink<T> {
    fn begin(&mut self) {
        let kept = self.table.write();
        let before = kept.rows.iter().map(|(key, row)| (key.clone(), row.object.version())).collect();
        self.listed = Some(Listed { before, ..Listed::default() });
    }

    fn set(&mut self, object: &[u8]) -> Result<(), Malformed> {
        let object = Self::parse(object)?;
        let Some(listed) = &mut self.listed else {
            self.table.absorb(object);
            return Ok(());
        };
        let key = object.key();
        // Those who wait are woken once for a list, not for each object.
        listed.changed |= self.table.put(object, listed.before.get(&key).copied());
        listed.seen.insert(key);
        Ok(())
    }

    fn gone(&mut self, object: &[u8]) -> Result<(), Malformed> {
        let object = Self::parse(object)?;
        let key = object.key();
        let mut kept = self.table.write();
        let newer = kept.rows.get(&key).is_some_and(|row| object.version() < row.object.version());
        if newer {
            return Ok(());
        }
        let removed = kept.remove(&key);
        kept.deleted.insert(key, object.version());
        kept.forget_deleted();
        if removed {
            self.table.count(&kept);
            drop(kept);
            self.table.wake();
        }
        Ok(())
    }

    fn end(&mut self) {
        let Some(listed) = self.listed.take() else { return };
        let mut kept = self.table.write();
        let is_gone = |(key, row): &(&Key, &Row<T>)| {
            // Written while the list was on its way, or unreadable just now: neither is gone.
            let written = listed.before.get(*key).is_none_or(|version| *version < row.object.version());
            let (namespace, name) = key;
            !(listed.seen.contains(*key)
                || written
                || listed.unreadable.contains(&full_name(namespace.as_deref(), name)))
        };
        let gone: Vec<Key> = kept.rows.iter().filter(is_gone).map(|(key, _)| key.clone()).collect();
        for key in &gone {
            kept.remove(key);
        }
        kept.deleted.clear();
        let skipped = std::mem::replace(&mut kept.skipped, listed.skipped);
        let changed = !gone.is_empty() || skipped != kept.skipped;
        if changed {
            self.table.count(&kept);
        }
        drop(kept);
        if changed || listed.changed {
            self.table.wake();
        }
    }

    fn at(&mut self, version: u64) {
        self.table.write().version = Some(version);
    }

    fn skipped(&mut self, mut skipped: Skipped) {
        skipped.name = skipped.name.filter(|name| name.len() <= 2 * LONGEST_NAME);
        if let Some(listed) = &mut self.listed {
            listed.unreadable.extend(skipped.name.clone());
            tell_some(&mut listed.skipped, &skipped);
        }
        let mut kept = self.table.write();
        if tell_some(&mut kept.skipped, &skipped) {
            self.table.count(&kept);
            drop(kept);
            self.table.wake();
        }
    }

    fn link(&mut self, link: Link<'_>) {
        let mut kept = self.table.write();
        let refused = match (&link, &kept.state) {
            (Link::Broken { .. }, State::Waiting) => true,
            (Link::Alive, _) => kept.refused,
            (Link::Synced | Link::Absent | Link::Broken { .. }, _) => false,
        };
        let state = match (link, &kept.state) {
            // An answer alone does not mean that what was missed meanwhile has arrived.
            (Link::Synced, _) => State::Synced { broken: None },
            (Link::Absent, _) => State::Absent,
            (Link::Broken { error, .. }, State::Synced { .. }) => {
                State::Synced { broken: Some(error.message.clone()) }
            }
            // Never complete so far, or not known to have come back.
            (Link::Alive | Link::Broken { .. }, state) => state.clone(),
        };
        if state == kept.state && refused == kept.refused {
            return;
        }
        kept.state = state;
        kept.refused = refused;
        self.table.count(&kept);
        drop(kept);
        self.table.wake_those(|wakes| &wakes.on_state);
    }
}

/// Enough to show a person; the rest is more of the same. Whether it says something new.
fn tell_some(told: &mut Vec<Skipped>, skipped: &Skipped) -> bool {
    const SHOWN: usize = 20;
    if let Some(same) = told.iter_mut().find(|one| one.name.is_some() && one.name == skipped.name) {
        let is_new = same != skipped;
        same.clone_from(skipped);
        return is_new;
    }
    let is_new = told.len() < SHOWN;
    if is_new {
        told.push(skipped.clone());
    }
    is_new
}

/// As [`Skipped::name`] has it.
pub(super) fn full_name(namespace: Option<&str>, name: &str) -> String {
    namespace.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests;
