//! The objects of one simulated cluster and what happened to them, under one counter of versions as etcd
//! has it. Everything here is synchronous; watchers are told that the counter moved.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::kind::{KINDS, Kind};

/// Namespace, or none, and name.
pub type Name = (String, String);

/// An object as it is at one version, which it carries in its metadata.
pub type Object = Arc<Value>;

#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    /// By which the histories of several servers are put in order.
    pub at: Instant,
    pub before: Option<Object>,
    pub after: Option<Object>,
    /// Of a deletion: the last state, with the version of the deletion.
    pub last: Option<Object>,
}

/// The version asked for is not kept any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Expired {
    pub oldest: u64,
}

#[derive(Debug, Eq, PartialEq)]
pub enum Lost {
    /// Somebody was faster: the object is not what the write was made from.
    Moved,
}

/// How many changes of a kind are kept, as a real server keeps what happened within minutes.
const HISTORY: usize = 20_000;

#[derive(Debug)]
pub struct Store {
    inner: Mutex<Inner>,
    moved: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    version: u64,
    kinds: HashMap<&'static str, Kept>,
    /// Of all kinds: watches from before find nothing.
    compacted: u64,
}

/// What is kept of one kind.
#[derive(Debug, Default)]
struct Kept {
    objects: BTreeMap<Name, Object>,
    history: VecDeque<Change>,
    /// Changes up to this version are forgotten.
    forgotten: u64,
}

/// The text by which a kind is found: plural and group.
fn key(kind: &'static Kind) -> &'static str {
    // No two kinds that are served share a plural, and events are kept once for both of their groups.
    kind.plural
}

impl Store {
    pub fn new(version: u64) -> Self {
        let inner = Inner { version, compacted: version, ..Inner::default() };
        Self { inner: Mutex::new(inner), moved: watch::Sender::new(version) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn version(&self) -> u64 {
        self.lock().version
    }

    /// Told whenever something was written.
    pub fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    pub fn get(&self, kind: &'static Kind, name: &Name) -> Option<Object> {
        self.lock().kinds.get(key(kind))?.objects.get(name).cloned()
    }

    /// All objects, or those of one namespace, and the version as of which they are.
    pub fn list(&self, kind: &'static Kind, namespace: Option<&str>) -> (Vec<(Name, Object)>, u64) {
        let inner = self.lock();
        let objects = inner.kinds.get(key(kind)).map(|kept| in_namespace(&kept.objects, namespace));
        (objects.unwrap_or_default(), inner.version)
    }

    /// Those of all kinds that are wanted.
    pub fn select(&self, wanted: impl Fn(&Value) -> bool) -> Vec<(&'static Kind, Name, Object)> {
        let inner = self.lock();
        let kinds = KINDS.iter().filter_map(|kind| Some((kind, inner.kinds.get(key(kind))?)));
        let objects = kinds
            .flat_map(|(kind, kept)| kept.objects.iter().map(move |(name, object)| (kind, name, object)));
        let found = objects.filter(|(_, _, object)| wanted(object));
        found.map(|(kind, name, object)| (kind, name.clone(), Arc::clone(object))).collect()
    }

    /// As it was at a version: later changes are taken back.
    pub fn list_at(
        &self,
        kind: &'static Kind,
        namespace: Option<&str>,
        version: u64,
    ) -> Result<Vec<(Name, Object)>, Expired> {
        let inner = self.lock();
        let Some(kept) = inner.kinds.get(key(kind)) else { return Ok(Vec::new()) };
        inner.check(kept, version)?;
        let mut objects = kept.objects.clone();
        for change in kept.history.iter().rev().take_while(|change| change.version > version) {
            let Some(object) = change.before.as_ref().or(change.after.as_ref()) else { continue };
            match &change.before {
                Some(before) => objects.insert(name_of(object), Arc::clone(before)),
                None => objects.remove(&name_of(object)),
            };
        }
        Ok(in_namespace(&objects, namespace))
    }

    /// What happened after a version, and up to which version that is all.
    pub fn since(&self, kind: &'static Kind, version: u64) -> Result<(Vec<Change>, u64), Expired> {
        let inner = self.lock();
        let Some(kept) = inner.kinds.get(key(kind)) else { return Ok((Vec::new(), inner.version)) };
        inner.check(kept, version)?;
        let newer = kept.history.iter().rev().take_while(|change| change.version > version);
        let mut newer: Vec<Change> = newer.cloned().collect();
        newer.reverse();
        Ok((newer, inner.version))
    }

    /// Replaces what `before` says by `after`, if it is still there; `None` is nothing. Returns the object
    /// with its new version, of a deletion the last state with it.
    pub fn commit(
        &self,
        kind: &'static Kind,
        name: &Name,
        before: Option<&Object>,
        after: Option<Value>,
    ) -> Result<Object, Lost> {
        let mut inner = self.lock();
        let now = inner.kinds.get(key(kind)).and_then(|kept| kept.objects.get(name));
        let same = match (now, before) {
            (None, None) => true,
            (Some(now), Some(before)) => Arc::ptr_eq(now, before),
            _ => false,
        };
        if !same {
            return Err(Lost::Moved);
        }
        inner.version += 1;
        let version = inner.version;
        let removed = after.is_none();
        let mut object = after.or_else(|| before.map(|before| before.as_ref().clone())).unwrap_or_default();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let object = Arc::new(object);
        let kept = inner.kinds.entry(key(kind)).or_default();
        let change = Change {
            version,
            at: Instant::now(),
            before: before.cloned(),
            after: (!removed).then(|| Arc::clone(&object)),
            last: removed.then(|| Arc::clone(&object)),
        };
        match &change.after {
            Some(object) => kept.objects.insert(name.clone(), Arc::clone(object)),
            None => kept.objects.remove(name),
        };
        kept.history.push_back(change);
        if kept.history.len() > HISTORY
            && let Some(oldest) = kept.history.pop_front()
        {
            kept.forgotten = oldest.version;
        }
        drop(inner);
        self.moved.send_replace(version);
        Ok(object)
    }

    /// Takes in what was kept elsewhere until now: nothing has happened to it.
    pub(super) fn adopt(&self, kind: &'static Kind, name: &Name, object: Value) {
        self.lock().kinds.entry(key(kind)).or_default().objects.insert(name.clone(), Arc::new(object));
    }

    /// Forgets what happened until now, as etcd's compaction does: older versions have expired.
    pub fn compact(&self) {
        let mut inner = self.lock();
        inner.compacted = inner.version;
        for kept in inner.kinds.values_mut() {
            kept.history.clear();
        }
    }

    /// Draws the next version for what is kept elsewhere. Nobody is woken.
    pub(super) fn advance(&self) -> u64 {
        let mut inner = self.lock();
        inner.version += 1;
        inner.version
    }

    /// Up to which version everything is forgotten.
    pub(super) fn compacted(&self) -> u64 {
        self.lock().compacted
    }

    /// Lets the counter run ahead without a change, as writes of other kinds do on a real server.
    pub fn skip_to(&self, version: u64) {
        let mut inner = self.lock();
        inner.version = inner.version.max(version);
        let version = inner.version;
        drop(inner);
        self.moved.send_replace(version);
    }

    /// What a backup holds.
    pub fn snapshot(&self) -> Snapshot {
        let inner = self.lock();
        let kinds = inner.kinds.iter().map(|(kind, kept)| (*kind, kept.objects.clone())).collect();
        Snapshot { version: inner.version, kinds }
    }

    /// Puts a backup back: the counter goes back too, and history is gone.
    pub fn restore(&self, snapshot: Snapshot) {
        let mut inner = self.lock();
        inner.version = snapshot.version;
        inner.compacted = snapshot.version;
        let kept = |objects| Kept { objects, ..Kept::default() };
        inner.kinds = snapshot.kinds.into_iter().map(|(kind, objects)| (kind, kept(objects))).collect();
        let version = inner.version;
        drop(inner);
        self.moved.send_replace(version);
    }
}

#[derive(Clone, Debug)]
pub struct Snapshot {
    version: u64,
    kinds: HashMap<&'static str, BTreeMap<Name, Object>>,
}

impl Inner {
    fn check(&self, kept: &Kept, version: u64) -> Result<(), Expired> {
        let oldest = self.compacted.max(kept.forgotten);
        if version < oldest { Err(Expired { oldest }) } else { Ok(()) }
    }
}

fn in_namespace(objects: &BTreeMap<Name, Object>, namespace: Option<&str>) -> Vec<(Name, Object)> {
    let within = |name: &Name| namespace.is_none_or(|namespace| name.0 == namespace);
    objects
        .iter()
        .filter(|(name, _)| within(name))
        .map(|(name, object)| (name.clone(), Arc::clone(object)))
        .collect()
}

/// Where an object is kept.
pub fn name_of(object: &Value) -> Name {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str, step: u32) -> Value {
        json!({"metadata": {"name": name}, "spec": {"step": step}})
    }

    fn queues() -> &'static Kind {
        Kind::named("ClusterQueue").unwrap()
    }

    fn at(name: &str) -> Name {
        (String::new(), name.to_owned())
    }

    #[test]
    fn a_list_as_of_an_older_version_shows_what_was_then() {
        let store = Store::new(10);
        let first = store.commit(queues(), &at("a"), None, Some(queue("a", 1))).unwrap();
        let then = store.version();
        store.commit(queues(), &at("a"), Some(&first), Some(queue("a", 2))).unwrap();
        store.commit(queues(), &at("b"), None, Some(queue("b", 1))).unwrap();
        let old = store.list_at(queues(), None, then).unwrap();
        assert_eq!(old, [(at("a"), first)]);
        assert_eq!(store.list(queues(), None).0.len(), 2);
    }

    #[test]
    fn a_write_over_something_newer_is_refused() {
        let store = Store::new(0);
        let first = store.commit(queues(), &at("a"), None, Some(queue("a", 1))).unwrap();
        store.commit(queues(), &at("a"), Some(&first), Some(queue("a", 2))).unwrap();
        assert_eq!(store.commit(queues(), &at("a"), Some(&first), None), Err(Lost::Moved));
        assert_eq!(store.commit(queues(), &at("a"), None, Some(queue("a", 3))), Err(Lost::Moved));
    }

    #[test]
    fn changes_come_in_order_until_they_are_compacted() {
        let store = Store::new(5);
        let first = store.commit(queues(), &at("a"), None, Some(queue("a", 1))).unwrap();
        let gone = store.commit(queues(), &at("a"), Some(&first), None).unwrap();
        assert_eq!(gone["metadata"]["resourceVersion"], "7");
        let (changes, until) = store.since(queues(), 5).unwrap();
        assert_eq!(changes.iter().map(|change| change.version).collect::<Vec<_>>(), [6, 7]);
        assert!(changes[1].after.is_none() && changes[1].last.is_some());
        assert_eq!(until, 7);
        store.compact();
        assert_eq!(store.since(queues(), 5).unwrap_err(), Expired { oldest: 7 });
        assert!(store.since(queues(), 7).unwrap().0.is_empty());
    }

    #[test]
    fn a_restored_backup_goes_back_in_versions() {
        let store = Store::new(0);
        store.commit(queues(), &at("a"), None, Some(queue("a", 1))).unwrap();
        let backup = store.snapshot();
        store.commit(queues(), &at("b"), None, Some(queue("b", 1))).unwrap();
        store.restore(backup);
        assert_eq!(store.version(), 1);
        assert!(store.get(queues(), &at("b")).is_none());
    }
}
