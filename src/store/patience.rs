//! Waiting for a database that is busy or has no room: it concerns everybody at once, and what is in memory
//! stays right meanwhile, so nobody gives up on it.

use std::{future::Future, time::Duration};

use super::StoreError;

const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(30);

/// How long to wait before the next try. What goes wrong is logged once, by the writer.
#[derive(Debug)]
pub struct Patience {
    next: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Patience {
    pub async fn pause(&mut self) {
        let wait = self.next;
        self.next = (wait * 2).min(LAST);
        // Half of it by chance, so that a thousand clusters do not come back in step.
        tokio::time::sleep(wait.mul_f64(0.5 + 0.5 * fastrand::f64())).await;
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Tries until the database takes it, or for good does not.
pub async fn until_kept<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut patience = Patience::default();
    loop {
        match attempt().await {
            Err(error) if error.is_transient() => patience.pause().await,
            outcome => return outcome,
        }
    }
}
