//! How much one cluster may make fedqd keep. Each object is small and each answer capped, but nothing else
//! ends what a cluster sends: without a bound one of them could take the memory from all others.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::Serialize;
use tokio::sync::watch;

use super::body::invalid;
use crate::client::ApiError;

/// Of all kinds of one cluster together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    pub objects: usize,
    /// As the objects take in memory, roughly.
    pub bytes: usize,
}

/// Shared by all that is kept of one cluster. The default has no bound: the hub's own objects are its operator's.
#[derive(Clone)]
pub struct Allowance(Arc<Shared>);

struct Shared {
    limits: Option<Limits>,
    objects: AtomicUsize,
    bytes: AtomicUsize,
    exceeded: watch::Sender<Option<String>>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::of(None)
    }
}

impl Allowance {
    pub fn new(limits: Limits) -> Self {
        Self::of(Some(limits))
    }

    fn of(limits: Option<Limits>) -> Self {
        let (objects, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self(Arc::new(Shared { limits, objects, bytes, exceeded: watch::Sender::new(None) }))
    }

    /// Says why, once there is too much.
    pub fn exceeded(&self) -> watch::Receiver<Option<String>> {
        self.0.exceeded.subscribe()
    }

    pub fn is_bounded(&self) -> bool {
        self.0.limits.is_some()
    }

    /// Nothing is taken in any more once there was too much.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        self.0.exceeded.borrow().as_ref().map_or(Ok(()), |reason| Err(invalid(reason)))
    }

    /// One list has come this far, whatever of it is kept.
    pub(super) fn listed(&self, objects: usize) {
        if self.0.limits.is_some_and(|limits| limits.objects < objects) {
            self.exceed("objects", "maxObjects", |limits| limits.objects);
        }
    }

    fn exceed(&self, what: &str, key: &str, most: impl Fn(Limits) -> usize) {
        let Some(limits) = self.0.limits else { return };
        self.0.exceeded.send_if_modified(|reason| {
            let first = reason.is_none();
            if first {
                let most = most(limits);
                *reason = Some(format!(
                    "it has more than the {most} {what} that fedqd keeps of a cluster (clusters.{key})"
                ));
            }
            first
        });
    }
}

/// What one holder keeps of it; given back when it is dropped.
#[derive(Default)]
pub struct Charge {
    allowance: Allowance,
    objects: usize,
    bytes: usize,
}

impl Charge {
    pub fn of(allowance: &Allowance) -> Self {
        Self { allowance: allowance.clone(), objects: 0, bytes: 0 }
    }

    /// Whether anybody asks how much it is.
    pub fn counts(&self) -> bool {
        self.allowance.is_bounded()
    }

    /// It keeps so much now.
    pub fn keep(&mut self, objects: usize, bytes: usize) {
        let Some(limits) = self.allowance.0.limits else { return };
        let shared = &self.allowance.0;
        let objects = moved(&shared.objects, std::mem::replace(&mut self.objects, objects), objects);
        let bytes = moved(&shared.bytes, std::mem::replace(&mut self.bytes, bytes), bytes);
        if limits.objects < objects {
            self.allowance.exceed("objects", "maxObjects", |limits| limits.objects);
        } else if limits.bytes < bytes {
            self.allowance.exceed("bytes of objects", "maxBytes", |limits| limits.bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.keep(0, 0);
    }
}

/// The sum, in which `before` has become `now`.
fn moved(sum: &AtomicUsize, before: usize, now: usize) -> usize {
    if before < now {
        sum.fetch_add(now - before, Ordering::Relaxed) + (now - before)
    } else {
        sum.fetch_sub(before - now, Ordering::Relaxed) - (before - now)
    }
}

/// What an object takes in memory: its texts, and what its fields and the maps around them take without any.
pub(super) fn size<T: Serialize>(object: &T) -> usize {
    /// Of a row: its key, which repeats the name, and its place.
    const ROW: usize = 256;
    let mut texts = Counted(0);
    let counted = serde_json::to_writer(&mut texts, object);
    counted.expect("an object that was read from JSON has a JSON form");
    ROW + size_of::<T>() + texts.0
}

struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_kinds_keep_together_is_bounded_and_the_first_reason_stays() {
        let allowance = Allowance::new(Limits { objects: 3, bytes: 100 });
        let [mut one, mut two] = [Charge::of(&allowance), Charge::of(&allowance)];
        one.keep(2, 50);
        two.keep(1, 50);
        assert!(allowance.check().is_ok());
        one.keep(1, 20);
        two.keep(2, 80);
        assert!(allowance.check().is_ok(), "what one gives back another may keep");
        drop(one);
        two.keep(3, 100);
        assert!(allowance.check().is_ok());
        two.keep(3, 101);
        let reason = allowance.check().expect_err("too much").to_string();
        assert!(reason.contains("100 bytes") && reason.contains("clusters.maxBytes"), "{reason}");
        two.keep(4, 0);
        assert_eq!(*allowance.exceeded().borrow(), Some(reason));
    }

    #[test]
    fn a_list_that_is_kept_nowhere_counts_too() {
        let allowance = Allowance::new(Limits { objects: 3, bytes: 100 });
        allowance.listed(3);
        assert!(allowance.check().is_ok());
        allowance.listed(4);
        assert!(allowance.check().is_err());
        Allowance::default().listed(usize::MAX);
    }
}
