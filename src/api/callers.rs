//! What one caller may take of fedqd at a time, so that nobody keeps everybody else from it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

use super::Failure;
use fedq_k8s::proxy::{Place, Places};

/// Streams of lists and logs that are open, of all people and of one.
const STREAMS: usize = 2048;
const STREAMS_OF_ONE: usize = 200;
/// Ways into pods that are open: each has a connection of its own to its cluster.
const WAYS: usize = 512;
const WAYS_OF_ONE: usize = 64;
/// Checks of clusters and simulations under way: each is many requests, or a second of a processor.
const LOOKS: usize = 16;
const LOOKS_OF_ONE: usize = 4;
/// Uploads under way: each is in memory as a whole.
const UPLOADS: usize = 8;
const UPLOADS_OF_ONE: usize = 2;
/// Refusals that are written down in a minute: whoever is refused again and again writes the log full else.
const REFUSALS: usize = 300;
const REFUSALS_OF_ONE: usize = 30;
const MINUTE: Duration = Duration::from_mins(1);

pub struct Callers {
    streams: Places,
    ways: Places,
    looks: Places,
    uploads: Places,
    refusals: Mutex<Refusals>,
}

/// Those of this minute.
struct Refusals {
    since: Instant,
    all: usize,
    of: HashMap<String, usize>,
}

impl Default for Callers {
    fn default() -> Self {
        Self {
            streams: Places::new(STREAMS, STREAMS_OF_ONE),
            ways: Places::new(WAYS, WAYS_OF_ONE),
            looks: Places::new(LOOKS, LOOKS_OF_ONE),
            uploads: Places::new(UPLOADS, UPLOADS_OF_ONE),
            refusals: Mutex::new(Refusals { since: Instant::now(), all: 0, of: HashMap::new() }),
        }
    }
}

impl Callers {
    /// For a stream, until it ends.
    pub(super) async fn stream(&self, user: &str) -> Result<Place, Failure> {
        let busy = |_| Failure::too_many_requests("too many streams are open, of one person or in all");
        self.streams.take(user).await.map_err(busy)
    }

    /// For a way into a pod, until it is closed.
    pub(super) async fn way(&self, user: &str) -> Result<Place, Failure> {
        let busy =
            |_| Failure::too_many_requests("too many ways into pods are open, of one person or in all");
        self.ways.take(user).await.map_err(busy)
    }

    /// For a check or a simulation.
    pub(super) async fn look(&self, user: &str) -> Result<Place, Failure> {
        let busy = |_| {
            Failure::too_many_requests(
                "too many checks and simulations are under way, of one person or in all",
            )
        };
        self.looks.take(user).await.map_err(busy)
    }

    /// For an upload, until it is on the disk.
    pub(super) async fn upload(&self, user: &str) -> Result<Place, Failure> {
        let busy = |_| Failure::too_many_requests("too many uploads are under way, of one person or in all");
        self.uploads.take(user).await.map_err(busy)
    }

    /// Whether one more refusal of this person is written down.
    pub(super) fn notes_refusal(&self, user: &str) -> bool {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if MINUTE <= refusals.since.elapsed() {
            *refusals = Refusals { since: Instant::now(), all: 0, of: HashMap::new() };
        }
        if REFUSALS <= refusals.all {
            return false;
        }
        let own = refusals.of.entry(user.to_owned()).or_default();
        *own += 1;
        if *own == REFUSALS_OF_ONE + 1 {
            warn!(
                audit.who = user,
                "So much is refused to one person that the audit log takes no more of it this minute"
            );
        }
        if REFUSALS_OF_ONE < *own {
            return false;
        }
        refusals.all += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_person_writes_down_few_refusals_and_all_together_not_without_end() {
        let callers = Callers::default();
        let noted = |user: &str| (0..1000).filter(|_| callers.notes_refusal(user)).count();
        assert_eq!(noted("mallory"), REFUSALS_OF_ONE);
        assert_eq!(noted("ann"), REFUSALS_OF_ONE, "somebody else's are still written down");
        let others: usize = (0..100).map(|number| noted(&format!("made-up-{number}"))).sum();
        assert_eq!(others, REFUSALS - 2 * REFUSALS_OF_ONE);
    }
}
