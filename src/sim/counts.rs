//! What was asked of a cluster and what it sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub struct Counts {
    requests: Mutex<BTreeMap<(&'static str, String), u64>>,
    bytes: AtomicU64,
    watches: AtomicU64,
    opened: AtomicU64,
    open: AtomicU64,
}

/// A connection, as long as it lasts.
pub struct Open<'a>(&'a Counts);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counts {
    pub(super) fn request(&self, verb: &'static str, resource: &str) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((verb, resource.to_owned())).or_default() += 1;
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.bytes.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
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
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests that write.
    pub fn writes(&self) -> u64 {
        let reviews = |resource: &str| resource.ends_with("reviews");
        let writes =
            |verb: &str| matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection");
        let requests = self.requests();
        let counted = requests.iter().filter(|((verb, resource), _)| writes(verb) && !reviews(resource));
        counted.map(|(_, count)| count).sum()
    }

    /// Bytes of bodies, before TLS.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn watches(&self) -> u64 {
        self.watches.load(Ordering::Relaxed)
    }

    /// Connections now, and ever.
    pub fn connections(&self) -> (u64, u64) {
        (self.open.load(Ordering::Relaxed), self.opened.load(Ordering::Relaxed))
    }
}
