//! Waiting for a database that is busy or has no room: it concerns everybody at once, and what is in memory
//! stays right meanwhile, so nobody gives up on it.

use std::{collections::BTreeMap, future::Future, time::Duration};

use futures::future::join_all;
use tokio::sync::mpsc;

use fedq_base::backoff::Backoff;

use super::{Store, StoreError};

const FIRST: Duration = Duration::from_millis(500);
const LAST: Duration = Duration::from_secs(30);

/// How long to wait before the next try. What goes wrong is logged once, by the writer.
#[derive(Debug)]
pub struct Patience(Backoff);

impl Default for Patience {
    fn default() -> Self {
        Self(Backoff::new(FIRST, LAST))
    }
}

impl Patience {
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.0.next_scattered()).await;
    }

    pub fn reset(&mut self) {
        self.0.reset();
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

/// Something to store that nobody waits for.
pub trait Deferred: Send + Sync {
    /// Of two with the same key only the later is worth storing.
    type Key: Ord + Send;

    fn key(&self) -> Self::Key;

    fn store(&self, store: &Store) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes over what of an earlier one that was not stored still counts.
    fn replaces(&mut self, _earlier: &Self) {}
}

/// Stores what arrives, in its order; what waits meanwhile shares a commit. While the database takes none,
/// the last of each key is kept for it. What concerns a cluster that has left is dropped.
pub async fn store_deferred<T: Deferred>(
    store: Store,
    mut arriving: mpsc::UnboundedReceiver<T>,
) -> Result<(), StoreError> {
    /// More would not make the commit cheaper.
    const BATCH: usize = 256;
    let (mut batch, mut patience) = (Vec::new(), Patience::default());
    while 0 < arriving.recv_many(&mut batch, BATCH).await {
        loop {
            let stored = join_all(batch.iter().map(|record| record.store(&store))).await;
            let mut left = BTreeMap::new();
            for (record, stored) in batch.drain(..).zip(stored) {
                match stored {
                    Err(error) if error.is_transient() => keep_last(&mut left, record),
                    Err(error) if !error.is_unknown_cluster() => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            if left.is_empty() {
                patience.reset();
                break;
            }
            patience.pause().await;
            while let Ok(later) = arriving.try_recv() {
                keep_last(&mut left, later);
            }
            batch.extend(left.into_values());
        }
    }
    Ok(())
}

fn keep_last<T: Deferred>(left: &mut BTreeMap<T::Key, T>, mut record: T) {
    let key = record.key();
    if let Some(earlier) = left.remove(&key) {
        record.replaces(&earlier);
    }
    left.insert(key, record);
}
