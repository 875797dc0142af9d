//! A herd as its cluster serves it: with what happened to it, under the cluster's one counter of versions.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::{Change, Encoding, Event, Herd, List, Span, State};
use crate::sim::protobuf::ListMeta;
use crate::sim::store::{Expired, Store};

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

/// An event, with the node as it was then.
#[derive(Clone, Copy, Debug)]
struct Happened {
    state: State,
    node: u32,
    event: Event,
}

/// A page of a list as somebody asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    pub encoding: Encoding,
    /// Index of the first node.
    pub from: usize,
    pub limit: Option<usize>,
    /// Of a list that goes on: the version it began at.
    pub version: Option<u64>,
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

    /// Every node in full, for what is asked rarely.
    pub fn values(&self, store: &Store, name: Option<&str>) -> (Vec<Value>, u64) {
        let inner = self.lock();
        let herd = &inner.herd;
        let nodes = match name {
            Some(name) => herd.find(name).and_then(|i| herd.value(i)).into_iter().collect(),
            None => (0..herd.len()).filter_map(|i| herd.value(i)).collect(),
        };
        (nodes, store.version())
    }

    /// Every node as a watch sends it that begins with all, and the version that they are of.
    pub fn all(&self, store: &Store, encoding: Encoding) -> (Vec<Vec<u8>>, u64) {
        let inner = self.lock();
        let herd = &inner.herd;
        let existing = (0..herd.len()).filter(|i| herd.exists(*i));
        let added = existing.map(|i| herd.event_of(encoding, (i, &herd.states[i]), Event::Added));
        (added.collect(), store.version())
    }

    /// The pieces of a page. A list that goes on shows its later pages as they are now: whoever watches
    /// from the version it bears is told of the difference.
    pub fn page(&self, store: &Store, page: Page) -> Result<List, Expired> {
        let inner = self.lock();
        if let Some(version) = page.version {
            inner.check(store, version)?;
        }
        let version = page.version.unwrap_or_else(|| store.version());
        let span = inner.herd.span(page.from, page.limit);
        let Span { range, remaining } = &span;
        let next = (*remaining != 0).then(|| format!("{version}.{}", range.end));
        let text = version.to_string();
        let left = next.as_ref().and_then(|_| i64::try_from(*remaining).ok());
        let meta = ListMeta { resource_version: &text, next: next.as_deref(), remaining: left };
        Ok(inner.herd.list(page.encoding, &span, meta))
    }

    /// The events after a version as a watch sends them, and up to which version that is all.
    pub fn since(
        &self,
        store: &Store,
        version: u64,
        encoding: Encoding,
    ) -> Result<(Vec<Vec<u8>>, u64), Expired> {
        let inner = self.lock();
        inner.check(store, version)?;
        let from = inner.history.partition_point(|happened| happened.state.version <= version);
        let events = inner.history.range(from..).map(|happened| inner.render(encoding, happened));
        // Versions are drawn under the lock that is held here, so none up to this one is still to come.
        Ok((events.collect(), store.version()))
    }
}

impl Inner {
    fn apply(&mut self, store: &Store, i: usize, change: Change, now: Timestamp) -> Option<u64> {
        // The version is drawn only for what happens, or history would have gaps that nothing explains.
        if !self.herd.would_apply(i, change) {
            return None;
        }
        let version = store.advance();
        let event = self.herd.apply(i, change, version, now)?;
        let state = self.herd.states[i];
        self.history.push_back(Happened { state, node: u32::try_from(i).ok()?, event });
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

    fn render(&self, encoding: Encoding, happened: &Happened) -> Vec<u8> {
        let node = happened.node as usize;
        self.herd.event_of(encoding, (node, &happened.state), happened.event)
    }
}
