//! What is kept of answers and objects of all clusters together that have not arrived whole. Each is capped; as many
//! clusters as send the beginnings of large ones would fill the memory all the same.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{ApiError, RetryClass};

/// Bytes that are shared by all clones.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Semaphore>);

impl Budget {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> usize {
        self.0.available_permits()
    }
}

impl Default for Budget {
    /// As much as 16 of the largest objects, of which few clusters have one.
    fn default() -> Self {
        Self::new(64 << 20)
    }
}

/// Each reader keeps so much without asking: most objects take less, and they get through whatever others do.
const FREE: usize = 32 << 10;
/// Those who have to ask again do it after this, and not in step.
const RETRY: Duration = Duration::from_secs(1);

/// What one reader keeps.
pub(crate) struct Share {
    budget: Budget,
    held: Option<OwnedSemaphorePermit>,
    bytes: usize,
    /// Since when it waits for the end of one object.
    since: Instant,
}

impl Share {
    pub(crate) fn of(budget: &Budget) -> Self {
        Self { budget: budget.clone(), held: None, bytes: 0, since: Instant::now() }
    }

    /// The reader's buffers have so many bytes now. An error: too much is held already, by others or by itself.
    pub(crate) fn hold(&mut self, bytes: usize) -> Result<(), ApiError> {
        let has = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let wants = if bytes <= FREE { 0 } else { bytes };
        // Buffers only shrink when an object has become whole.
        if has == 0 || bytes < self.bytes {
            self.since = Instant::now();
        }
        self.bytes = bytes;
        if wants == 0 {
            self.held = None;
        } else if wants < has {
            drop(self.held.as_mut().and_then(|held| held.split(has - wants)));
        } else if has < wants {
            let more = u32::try_from(wants - has).map_err(|_| full())?;
            let more = Arc::clone(&self.budget.0).try_acquire_many_owned(more).map_err(|_| full())?;
            match &mut self.held {
                Some(held) => held.merge(more),
                None => self.held = Some(more),
            }
        }
        Ok(())
    }

    /// When the object that takes more than everybody's share has to be whole: who never ends one would keep others
    /// from theirs.
    fn due(&self, within: Duration) -> Option<Instant> {
        self.held.as_ref().map(|_| self.since + within)
    }

    /// Waits no longer than that.
    pub(crate) async fn in_time<T>(
        &self,
        within: Duration,
        what: impl Future<Output = T>,
    ) -> Result<T, ApiError> {
        match self.due(within) {
            Some(due) => timeout_at(due, what).await.map_err(|_| slow("a large object", within)),
            None => Ok(what.await),
        }
    }
}

fn full() -> ApiError {
    let class = RetryClass::Throttled { retry_after: Some(RETRY) };
    ApiError::new(class, "too many large objects are being read from all clusters at once")
}

pub(crate) fn slow(what: &str, within: Duration) -> ApiError {
    ApiError::new(RetryClass::Timeout, format!("{what} did not arrive within {within:?}"))
}

/// What a large object took is given back once it is whole.
pub(crate) fn give_back(buffer: &mut Vec<u8>) {
    if FREE < buffer.capacity() && buffer.len() <= FREE {
        buffer.shrink_to(FREE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_one_holds_others_cannot_and_what_it_lets_go_they_can() {
        let budget = Budget::new(3 * MIB);
        let [mut one, mut two] = [Share::of(&budget), Share::of(&budget)];
        one.hold(2 * MIB).expect("room for it");
        let error = two.hold(2 * MIB).expect_err("too much");
        assert!(matches!(error.class, RetryClass::Throttled { retry_after: Some(_) }));
        two.hold(MIB).expect("what is left");
        one.hold(MIB).expect("less than before");
        two.hold(2 * MIB).expect("what the other let go");
        drop(two);
        one.hold(3 * MIB).expect("all of it");
        one.hold(3 * MIB + 1).expect_err("more than there is");
        one.hold(0).expect("nothing");
        assert_eq!(budget.left(), 3 * MIB);
    }

    #[test]
    fn objects_of_usual_size_need_nobodys_leave() {
        let budget = Budget::new(MIB);
        let [mut one, mut two] = [Share::of(&budget), Share::of(&budget)];
        one.hold(MIB).expect("room for it");
        two.hold(FREE).expect("its own");
        assert!(two.due(Duration::ZERO).is_none() && one.due(Duration::ZERO).is_some());
    }

    #[tokio::test]
    async fn each_large_object_has_its_time() {
        let within = Duration::from_secs(10);
        let mut share = Share::of(&Budget::new(MIB));
        assert_eq!(share.due(within), None);
        share.hold(MIB / 4).expect("room for it");
        let first = share.due(within).expect("something is held");
        tokio::time::sleep(Duration::from_millis(2)).await;
        share.hold(MIB / 2).expect("more of the same");
        assert_eq!(share.due(within), Some(first));
        share.hold(MIB / 4).expect("another one");
        assert!(share.due(within).is_some_and(|due| first < due));
        let error = share.in_time(Duration::ZERO, std::future::pending::<()>()).await.expect_err("too late");
        assert_eq!(error.class, RetryClass::Timeout);
        share.hold(0).expect("nothing");
        share.in_time(Duration::ZERO, std::future::ready(())).await.expect("nothing is held");
    }
}
