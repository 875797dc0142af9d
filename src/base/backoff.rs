//! How long to wait before what failed is tried again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Waits, each twice the one before and none longer than the longest, for ever.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    waits: ExponentialBackoff,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        let waits = ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest);
        Self { first, longest, waits: waits.without_max_times().build() }
    }

    /// The wait after so many failures before, for whoever keeps only their number.
    pub fn after(failures: u32, first: Duration, longest: Duration) -> Duration {
        let mut backoff = Self::new(first, longest);
        // By then any wait is the longest.
        for _ in 0..failures.min(64) {
            backoff.next_wait();
        }
        backoff.next_wait()
    }

    pub fn next_wait(&mut self) -> Duration {
        self.waits.next().unwrap_or(self.longest).min(self.longest)
    }

    /// Half of it by chance, so that what failed together does not come back in step.
    pub fn next_scattered(&mut self) -> Duration {
        self.next_wait().mul_f64(0.5 + 0.5 * fastrand::f64())
    }

    /// After a success.
    pub fn reset(&mut self) {
        *self = Self::new(self.first, self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(3);

    #[test]
    fn waits_double_up_to_the_longest_and_start_over() {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let waits: Vec<u128> = (0..5).map(|_| backoff.next_wait().as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 3000, 3000]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), FIRST);
        assert_eq!(Backoff::new(LONGEST, FIRST).next_wait(), FIRST, "the first one too");
    }

    #[test]
    fn the_wait_after_some_failures_is_the_one_that_they_lead_to() {
        let after = |failures| Backoff::after(failures, FIRST, LONGEST);
        assert_eq!(
            [after(0), after(1), after(2), after(3)],
            [500, 1000, 2000, 3000].map(Duration::from_millis)
        );
        assert_eq!(after(u32::MAX), LONGEST);
    }

    #[test]
    fn a_scattered_wait_is_at_least_half_of_it() {
        for _ in 0..100 {
            let wait = Backoff::new(FIRST, LONGEST).next_scattered();
            assert!(FIRST / 2 <= wait && wait <= FIRST, "{wait:?}");
        }
    }
}
