//! A herd as its cluster serves it: with what happened to it, under the cluster's one counter of versions.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::{Change, Encoding, Event, Herd, Nodes, State};
use crate::kind::Kind;
use crate::store::{self, Expired, Object, Store};

/// How many events are kept: five minutes of heartbeats of a thousand nodes and as much again, about
/// as long as a real server remembers.
const HISTORY: usize = 2_000;

#[derive(Debug)]
pub struct ServedHerd {
    inner: Mutex<Inner>,
    /// Apart from the store's: a heartbeat is of interest to those who watch nodes only.
    moved: watch::Sender<u64>,
}

#[derive(Debug)]
struct Inner {
    herd: Herd,
    history: VecDeque<Happened>,
    /// Events up to this version are forgotten.
    forgotten: u64,
}

/// An event, with the node as it was before and then.
#[derive(Clone, Copy, Debug)]
struct Happened {
    before: State,
    state: State,
    node: u32,
    event: Event,
}

/// What a watch is told of a change: what it sends, or what happened, of which it may want to see a part.
#[derive(Debug)]
pub enum Told {
    Rendered { version: u64, event: Vec<u8> },
    Changed(store::Change),
}

impl Told {
    fn version(&self) -> u64 {
        match self {
            Self::Rendered { version, .. } => *version,
            Self::Changed(change) => change.version,
        }
    }
}

impl ServedHerd {
    pub fn new(herd: Herd) -> Self {
        let forgotten = (0..herd.len()).filter_map(|i| herd.version(i)).max().unwrap_or_default();
        let inner = Inner { herd, history: VecDeque::new(), forgotten };
        Self { inner: Mutex::new(inner), moved: watch::Sender::new(forgotten) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Told whenever something happened to a node.
    pub fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    /// Looks at the herd as it stands.
    pub fn with<T>(&self, look: impl FnOnce(&Herd) -> T) -> T {
        look(&self.lock().herd)
    }

    /// Makes changes happen, each in a version of its own, and returns how many did. Nobody sees one of
    /// them without those before it.
    pub fn apply(
        &self,
        store: &Store,
        changes: impl IntoIterator<Item = (usize, Change)>,
        now: Timestamp,
    ) -> usize {
        let mut inner = self.lock();
        let mut newest = None;
        let mut happened = 0;
        for (i, change) in changes {
            let Some(version) = inner.apply(store, i, change, now) else { continue };
            newest = Some(version);
            happened += 1;
        }
        drop(inner);
        if let Some(version) = newest {
            self.moved.send_replace(version);
        }
        happened
    }

    pub fn value(&self, name: &str) -> Option<Value> {
        let inner = self.lock();
        inner.herd.value(inner.herd.find(name)?)
    }

    /// All names there are.
    pub fn names(&self) -> Vec<String> {
        let inner = self.lock();
        let herd = &inner.herd;
        (0..herd.len()).filter(|i| herd.exists(*i)).map(|i| herd.name(i)).collect()
    }

    /// Makes an object of the store of a node that somebody is about to write to: 24 bytes cannot hold what people
    /// write. It is the same node in the same version, and nobody is told; only that nothing happens to it by itself
    /// any more, heartbeats among that.
    pub fn hand_over(&self, store: &Store, kind: &'static Kind, name: &str) {
        let mut inner = self.lock();
        if let Some(value) = inner.herd.find(name).and_then(|i| inner.herd.give_up(i)) {
            store.adopt(kind, &(String::new(), name.to_owned()), value);
        }
    }

    /// All nodes, those that the store keeps among them, as they were at a version, or now; and as of which version
    /// that is.
    pub fn nodes(
        &self,
        store: &Store,
        kind: &'static Kind,
        at: Option<u64>,
    ) -> Result<(Nodes, u64), Expired> {
        // What is handed over moves under this lock, so that no node is seen twice or not at all.
        let inner = self.lock();
        let Some(version) = at else {
            let (objects, now) = store.list(kind, None);
            let objects = objects.into_iter().map(|(_, object)| object).collect();
            return Ok((Nodes::new(&inner.herd, &inner.herd.states, objects), now));
        };
        inner.check(store, version)?;
        // One that is newer was of the herd then.
        let then = |object: &Object| object_version(object) <= version;
        let objects = store.list_at(kind, None, version)?.into_iter().map(|(_, object)| object).filter(then);
        Ok((Nodes::new(&inner.herd, &inner.states_at(version), objects.collect()), version))
    }

    /// What happened after a version, in order, and up to which version that is all. Without an encoding nothing is
    /// rendered.
    pub fn since(
        &self,
        store: &Store,
        kind: &'static Kind,
        version: u64,
        encoding: Option<Encoding>,
    ) -> Result<(Vec<Told>, u64), Expired> {
        let inner = self.lock();
        inner.check(store, version)?;
        let from = inner.history.partition_point(|happened| happened.state.version <= version);
        let mut told: Vec<Told> =
            inner.history.range(from..).map(|happened| inner.tell(happened, encoding)).collect();
        // Versions are drawn under the lock that is held here, so none up to this one is still to come.
        let (changes, until) = store.since(kind, version)?;
        if !changes.is_empty() {
            told.extend(changes.into_iter().map(Told::Changed));
            told.sort_by_key(Told::version);
        }
        Ok((told, until))
    }
}

fn object_version(object: &Object) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

impl Inner {
    fn apply(&mut self, store: &Store, i: usize, change: Change, now: Timestamp) -> Option<u64> {
        // The version is drawn only for what happens, or history would have gaps that nothing explains.
        if !self.herd.would_apply(i, change) {
            return None;
        }
        let before = *self.herd.states.get(i)?;
        let version = store.advance();
        let event = self.herd.apply(i, change, version, now)?;
        let state = self.herd.states[i];
        self.history.push_back(Happened { before, state, node: u32::try_from(i).ok()?, event });
        if self.history.len() > HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.forgotten = oldest.state.version;
        }
        Some(version)
    }

    fn check(&self, store: &Store, version: u64) -> Result<(), Expired> {
        let oldest = self.forgotten.max(store.compacted());
        if version < oldest { Err(Expired { oldest }) } else { Ok(()) }
    }

    /// Later changes are taken back.
    fn states_at(&self, version: u64) -> Cow<'_, [State]> {
        let mut states = Cow::Borrowed(&self.herd.states[..]);
        for later in self.history.iter().rev().take_while(|happened| version < happened.state.version) {
            states.to_mut()[later.node as usize] = later.before;
        }
        states
    }

    fn tell(&self, happened: &Happened, encoding: Option<Encoding>) -> Told {
        let Happened { before, state, node, event } = happened;
        let (version, node) = (state.version, *node as usize);
        if let Some(encoding) = encoding {
            return Told::Rendered { version, event: self.herd.event_of(encoding, node, state, *event) };
        }
        let object = |state: &State| Arc::new(self.herd.template.value((self.herd.cluster, node, state)));
        let gone = *event == Event::Deleted;
        Told::Changed(store::Change {
            version,
            at: Instant::now(),
            before: (*event != Event::Added).then(|| object(before)),
            after: (!gone).then(|| object(state)),
            last: gone.then(|| object(state)),
        })
    }
}
