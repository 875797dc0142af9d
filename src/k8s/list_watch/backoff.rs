//! How long to wait after a failure.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::time::Instant;

use super::Timing;
use crate::client::{ApiError, RetryClass};

/// A server that asks for more has a problem that asking again will show.
const LONGEST_RETRY_AFTER: Duration = Duration::from_mins(1);

pub(crate) struct Backoff {
    delays: ExponentialBackoff,
    min: Duration,
    max: Duration,
    healthy: Duration,
    good_since: Option<Instant>,
}

impl Backoff {
    pub(crate) fn new(timing: &Timing) -> Self {
        let (min, max) = (timing.backoff_min, timing.backoff_max);
        Self { delays: delays(min, max), min, max, healthy: timing.healthy, good_since: None }
    }

    pub(crate) fn good(&mut self) {
        self.good_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn after(&mut self, error: &ApiError) -> Duration {
        if self.good_since.take().is_some_and(|since| self.healthy <= since.elapsed()) {
            self.delays = delays(self.min, self.max);
        }
        let ceiling = self.delays.next().unwrap_or(self.max);
        // Full jitter: a thousand clusters behind one broken network must not come back in step.
        let delay = ceiling.mul_f64(fastrand::f64());
        match error.class {
            RetryClass::Throttled { retry_after: Some(asked) } => asked.min(LONGEST_RETRY_AFTER) + delay,
            _ => delay.max(self.min / 2),
        }
    }
}

fn delays(min: Duration, max: Duration) -> ExponentialBackoff {
    ExponentialBuilder::new().with_min_delay(min).with_max_delay(max).without_max_times().build()
}

/// ± 10 %, so that streams that began together do not stay together.
pub(crate) fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.9 + 0.2 * fastrand::f64())
}
