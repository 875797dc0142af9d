//! What was asked of a cluster and what it sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Counts {
    tallies: Mutex<BTreeMap<(&'static str, String), Arc<Tally>>>,
    watches: AtomicU64,
    opened: AtomicU64,
    open: AtomicU64,
}

#[derive(Debug, Default)]
struct Tally {
    requests: AtomicU64,
    /// Of these, without dry runs.
    succeeded: AtomicU64,
    bytes: AtomicU64,
}

/// Where what is sent in answer to one request is counted.
#[derive(Clone, Debug)]
pub(super) struct Sent(Arc<Tally>);

impl Sent {
    pub(super) fn add(&self, bytes: usize) {
        self.0.bytes.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn succeeded(&self) {
        self.0.succeeded.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection, as long as it lasts.
pub struct Open<'a>(&'a Counts);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(super) fn request(&self, verb: &'static str, resource: &str) -> Sent {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = tallies.entry((verb, resource.to_owned())).or_default();
        tally.requests.fetch_add(1, Ordering::Relaxed);
        Sent(Arc::clone(tally))
    }

    pub(super) fn watch_began(&self) {
        self.watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn connection(&self) -> Open<'_> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Open(self)
    }

    /// By verb and resource, with the subresource.
    pub fn requests(&self) -> BTreeMap<(&'static str, String), u64> {
        self.read(|tally| &tally.requests)
    }

    /// Bytes of bodies before TLS, by verb and resource.
    pub fn bytes_sent(&self) -> BTreeMap<(&'static str, String), u64> {
        self.read(|tally| &tally.bytes)
    }

    fn read(&self, number: impl Fn(&Tally) -> &AtomicU64) -> BTreeMap<(&'static str, String), u64> {
        let tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let read = |tally: &Tally| number(tally).load(Ordering::Relaxed);
        tallies.iter().map(|(key, tally)| (key.clone(), read(tally))).collect()
    }

    /// Requests that write.
    pub fn writes(&self) -> u64 {
        let requests = self.requests();
        let counted = requests.iter().filter(|((verb, resource), _)| writes(verb, resource));
        counted.map(|(_, count)| count).sum()
    }

    /// Requests that wrote an object, or a part of one, by its kind.
    pub fn written(&self) -> BTreeMap<String, u64> {
        let mut written = BTreeMap::new();
        for ((verb, resource), count) in self.read(|tally| &tally.succeeded) {
            // A token is made for whoever asks, and kept nowhere.
            if 0 < count && writes(verb, &resource) && resource != "serviceaccounts/token" {
                let kind = resource.split('/').next().unwrap_or_default();
                *written.entry(kind.to_owned()).or_default() += count;
            }
        }
        written
    }

    /// All of them.
    pub fn bytes(&self) -> u64 {
        self.bytes_sent().values().sum()
    }

    pub fn watches(&self) -> u64 {
        self.watches.load(Ordering::Relaxed)
    }

    /// Connections now, and ever.
    pub fn connections(&self) -> (u64, u64) {
        (self.open.load(Ordering::Relaxed), self.opened.load(Ordering::Relaxed))
    }
}

/// Reviews are created like objects, and kept nowhere.
fn writes(verb: &str, resource: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
        && !resource.ends_with("reviews")
}
