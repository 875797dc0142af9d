//! Objects of one kind, kept typed and current.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Link, Malformed, Sink, Skipped};

/// (namespace, name)
pub type Key = (Option<String>, String);

/// A kind that a [`Table`] can keep. Every `kube::Resource` is one.
pub trait Record: DeserializeOwned + Send + Sync + 'static {
    fn key(&self) -> Key;
    fn version(&self) -> u64;
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
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// Never listed.
    Waiting,
    /// Complete; `broken` while the link is down and this is the last thing known.
    Synced { broken: Option<String> },
    /// The server does not know the kind.
    Absent,
}

/// Clones share the same objects.
pub struct Table<T>(Arc<Shared<T>>);

struct Shared<T> {
    _rows: parking::Rows<T>,
}

mod parking {
    pub(super) struct Rows<T>(pub(super) std::marker::PhantomData<T>);
}

impl<T> Clone for Table<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Record> Table<T> {
    pub fn new() -> Self {
        todo!()
    }

    /// The end that [`super::Follow::run`] fills.
    pub fn sink(&self) -> TableSink<T> {
        todo!()
    }

    pub fn state(&self) -> State {
        todo!()
    }

    /// Whether all objects are known (an absent kind has none).
    pub fn synced(&self) -> bool {
        !matches!(self.state(), State::Waiting)
    }

    /// Counts changes of rows or state: a signal without a payload, read the table for what is.
    pub fn changed(&self) -> watch::Receiver<u64> {
        todo!()
    }

    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<T>> {
        let _ = (namespace, name);
        todo!()
    }

    /// All objects as they are now, by (namespace, name).
    pub fn snapshot(&self) -> BTreeMap<Key, Arc<T>> {
        todo!()
    }

    /// All objects as they are now, in order of (namespace, name).
    pub fn all(&self) -> Vec<Arc<T>> {
        todo!()
    }

    /// Takes over what a write answered, ahead of its watch event, unless something newer is known.
    pub fn absorb(&self, object: T) {
        let _ = object;
        todo!()
    }
}

pub struct TableSink<T>(Table<T>);

impl<T: Record> Sink for TableSink<T> {
    fn begin(&mut self) {}
    fn set(&mut self, object: &[u8]) -> Result<(), Malformed> {
        let _ = object;
        todo!()
    }
    fn gone(&mut self, object: &[u8]) -> Result<(), Malformed> {
        let _ = object;
        todo!()
    }
    fn end(&mut self) {}
    fn at(&mut self, _version: u64) {}
    fn skipped(&mut self, _skipped: Skipped) {}
    fn link(&mut self, _link: Link<'_>) {}
}
