//! Connections that carry nothing but logs: an API server takes 100 streams a connection, and those of the
//! watches must not wait behind somebody's log.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kube::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::client::{ClientLimits, ClusterClient, ConnectError};

/// Logs read at a time over one connection. The rest up to the server's 100 is for second looks, such as at
/// the run before.
const STREAMS: usize = 80;
/// One of a cluster's log connections for each 80 logs: 1,280 logs of one cluster at a time.
const CONNECTIONS: usize = 16;
/// Of logs that are followed to be kept.
const KEEPING: usize = 4;
/// How many containers of a cluster may be followed so.
pub const KEPT_AT_ONCE: usize = KEEPING * STREAMS * (KEPT - 1) / KEPT;
/// One place in so many is kept for sessions that hold less than a connection's worth: somebody who follows a task of
/// a thousand nodes must not keep everybody else from reading at all.
const KEPT: usize = 5;
/// What a log that nobody reads holds in memory.
const STREAM_WINDOW: u32 = 64 << 10;
/// All of a connection's streams may lie unread, and the next one still moves.
const CONNECTION_WINDOW: u32 = 128 * STREAM_WINDOW;

/// The connections of one cluster, made as they are needed. Clones share them.
#[derive(Clone)]
pub struct LogConnections(Arc<Inner>);

struct Inner {
    cluster: ClusterClient,
    streams: usize,
    free: Arc<Semaphore>,
    /// The rest, for sessions that hold few.
    kept: Arc<Semaphore>,
    open: Mutex<Vec<Connection>>,
}

struct Connection {
    id: u64,
    client: Client,
    used: usize,
}

/// A place for one log, given back when dropped.
pub(super) struct Place {
    pub client: Client,
    connection: u64,
    inner: Arc<Inner>,
    _permit: OwnedSemaphorePermit,
    _held: Held,
}

/// How many logs of one cluster a session reads or waits to read.
#[derive(Clone, Default)]
pub(super) struct Share(Arc<AtomicUsize>);

struct Held {
    share: Share,
    /// Those that the session had already.
    before: usize,
}

impl Share {
    fn one_more(&self) -> Held {
        Held { share: self.clone(), before: self.0.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.share.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LogConnections {
    pub fn new(cluster: ClusterClient) -> Self {
        Self::with(cluster, CONNECTIONS, STREAMS)
    }

    /// For logs that are kept: however many these are, they take no place from people who read.
    pub fn for_keeping(cluster: ClusterClient) -> Self {
        Self::with(cluster, KEEPING, STREAMS)
    }

    fn with(cluster: ClusterClient, connections: usize, streams: usize) -> Self {
        let all = connections * streams;
        let (free, kept) = (Arc::new(Semaphore::new(all - all / KEPT)), Arc::new(Semaphore::new(all / KEPT)));
        Self(Arc::new(Inner { cluster, streams, free, kept, open: Mutex::default() }))
    }

    /// Whether the next log of a session has to wait until another one ends.
    pub(super) fn is_full(&self, share: &Share) -> bool {
        let few = share.0.load(Ordering::Relaxed) < self.0.streams;
        self.0.free.available_permits() == 0 && !(few && 0 < self.0.kept.available_permits())
    }

    /// Waits while as many logs of this cluster are read as fedq allows, or as one session may.
    pub(super) async fn place(&self, share: &Share) -> Result<Place, ConnectError> {
        let held = share.one_more();
        let permit = if held.before < self.0.streams {
            tokio::select! {
                biased;
                permit = Arc::clone(&self.0.free).acquire_owned() => permit,
                permit = Arc::clone(&self.0.kept).acquire_owned() => permit,
            }
        } else {
            Arc::clone(&self.0.free).acquire_owned().await
        };
        let permit = permit.expect("the semaphore is never closed");
        let mut open = self.0.open.lock().unwrap_or_else(PoisonError::into_inner);
        // The fullest that has room, so that the others empty and close.
        let fullest = open.iter_mut().filter(|one| one.used < self.0.streams).max_by_key(|one| one.used);
        let connection = if let Some(connection) = fullest {
            connection
        } else {
            let id = open.iter().map(|one| one.id + 1).max().unwrap_or_default();
            open.push(Connection { id, client: self.0.cluster.further(of_logs)?, used: 0 });
            open.last_mut().expect("it was put there just now")
        };
        connection.used += 1;
        let (client, connection) = (connection.client.clone(), connection.id);
        Ok(Place { client, connection, inner: Arc::clone(&self.0), _permit: permit, _held: held })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.inner.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = open.iter_mut().find(|one| one.id == self.connection) {
            connection.used -= 1;
        }
        // One stays, for whoever comes next; it closes by itself when nobody does.
        let keep = open.iter().find(|one| 0 < one.used).or(open.first()).map(|one| one.id);
        open.retain(|one| 0 < one.used || Some(one.id) == keep);
    }
}

fn of_logs(limits: &mut ClientLimits) {
    // A kubelet sends its headers with the first line, so the reader decides how long to wait for them, and
    // a quiet log holds its slot all that time.
    limits.headers = Duration::from_hours(24);
    limits.concurrent = 100;
    limits.stream_window = STREAM_WINDOW;
    limits.connection_window = CONNECTION_WINDOW;
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use futures::FutureExt;

    use super::*;
    use crate::testing::Server;

    fn used(connections: &LogConnections) -> Vec<usize> {
        let open = connections.0.open.lock().expect("no panic");
        open.iter().map(|one| one.used).collect()
    }

    #[tokio::test]
    async fn places_fill_one_connection_after_the_other_and_come_back() {
        let server = Server::start(Router::new());
        let connections = LogConnections::with(server.client(), 2, 2);
        let mut places = Vec::new();
        for _ in 0..4 {
            let share = Share::default();
            assert!(!connections.is_full(&share));
            places.push(connections.place(&share).await.expect("a place"));
        }
        assert_eq!(used(&connections), [2, 2]);
        assert!(connections.is_full(&Share::default()));
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { connections.place(&Share::default()).await.map(|place| place.connection) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        places.remove(0);
        assert_eq!(waiting.await.expect("no panic").expect("a place"), 0);
        places.remove(0);
        assert_eq!(used(&connections), [2], "the empty one is closed");
        places.clear();
        assert_eq!(used(&connections), [0], "one is kept");
    }

    #[tokio::test]
    async fn a_session_with_many_logs_leaves_some_places_to_others() {
        let server = Server::start(Router::new());
        let connections = LogConnections::with(server.client(), 4, 2);
        let (many, few) = (Share::default(), Share::default());
        let mut places = Vec::new();
        for _ in 0..7 {
            assert!(!connections.is_full(&many));
            places.push(connections.place(&many).await.expect("a place"));
        }
        assert!(connections.is_full(&many));
        assert!(connections.place(&many).now_or_never().is_none(), "the last place is not for it");
        let other = connections.place(&few).now_or_never().expect("at once").expect("a place");
        places.clear();
        assert!(!connections.is_full(&many), "what it gave back, or no longer waits for, does not count");
        drop(other);
    }
}
