//! How long to wait after a failure.

use std::time::Duration;

use tokio::time::Instant;

use super::Timing;
use crate::client::{ApiError, RetryClass};
use fedq_base::backoff::Backoff;

/// A server that asks for more has a problem that asking again will show.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(1);

/// Of a stream, which may end well after it was good for a while.
pub(crate) struct StreamBackoff {
    ceilings: Backoff,
    min: Duration,
    healthy: Duration,
    good_since: Option<Instant>,
}

impl StreamBackoff {
    pub(crate) fn new(timing: &Timing) -> Self {
        let (min, max) = (timing.backoff_min, timing.backoff_max);
        Self { ceilings: Backoff::new(min, max), min, healthy: timing.healthy, good_since: None }
    }

    pub(crate) fn good(&mut self) {
        self.good_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn after(&mut self, error: &ApiError) -> Duration {
        if self.good_since.take().is_some_and(|since| self.healthy <= since.elapsed()) {
            self.ceilings.reset();
        }
        // Full jitter: a thousand clusters behind one broken network must not come back in step.
        let delay = self.ceilings.next_wait().mul_f64(fastrand::f64());
        match error.class {
            RetryClass::Throttled { retry_after: Some(asked) } => asked.min(LONGEST_RETRY_AFTER) + delay,
            _ => delay.max(self.min / 2),
        }
    }
}

/// ± 10 %, so that streams that began together do not stay together.
pub(crate) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.9 + 0.2 * fastrand::f64())
}
