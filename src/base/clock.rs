//! The time of day, passed to whoever needs it, so that a test can set it. Waiting is tokio's matter.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;

/// Cheap to clone; clones of a test clock show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    /// Milliseconds since 1970.
    Test(Arc<AtomicI64>),
}

impl Clock {
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that moves only by [`Clock::advance`] and [`Clock::set`].
    pub fn test(at: Timestamp) -> Self {
        Self(Source::Test(Arc::new(AtomicI64::new(at.as_millisecond()))))
    }

    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_time(),
            Source::Test(at) => {
                // The last millisecond there is does not convert back.
                Timestamp::from_millisecond(at.load(Ordering::Relaxed)).unwrap_or(Timestamp::MAX)
            }
        }
    }

    /// Moves a test clock; the system's cannot be moved.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().saturating_add(by).expect("a duration of fixed units adds to any time"));
    }

    /// Sets a test clock, also backwards; the system's cannot be set.
    pub fn set(&self, to: Timestamp) {
        match &self.0 {
            Source::System => debug_assert!(false, "the system clock cannot be set"),
            Source::Test(at) => at.store(to.as_millisecond(), Ordering::Relaxed),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
fn system_time() -> Timestamp {
    Timestamp::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_clock_moves_only_when_told_and_clones_see_it() {
        let start = Timestamp::from_second(1_700_000_000).expect("in range");
        let clock = Clock::test(start);
        let seen = clock.clone();
        assert_eq!(seen.now(), start);
        clock.advance(Duration::from_millis(1500));
        assert_eq!(seen.now().as_millisecond(), start.as_millisecond() + 1500);
        clock.set(start);
        assert_eq!(seen.now(), start, "also backwards: wall clocks jump");
        clock.advance(Duration::MAX);
        assert!(start < seen.now());
    }

    #[test]
    fn the_system_clock_is_read() {
        assert!(Timestamp::from_second(1_700_000_000).expect("in range") < Clock::system().now());
    }
}
