//! A hub whose tables a test fills, and an empty store.

use std::time::Duration;

use axum::Router;
use jiff::Timestamp;

use super::{CancellationToken, Clock, Context, Hub, Metrics, Store, WriterConfig};
use fedq_k8s::testing::Server;

/// What goes away with the test.
pub type Ground = (Server, tempfile::TempDir);

/// `router` answers what is asked of the hub.
pub async fn context(router: Router) -> (Context, Ground) {
    let server = Server::start(router);
    let folder = tempfile::TempDir::new().expect("a folder");
    let context = Context {
        hub: Hub::new(server.client(), "hub-uid".to_owned(), "fedq-system".to_owned()),
        hub_id: "hub".to_owned(),
        store: Store::open(&folder.path().join("fedq.db")).await.expect("opens"),
        clock: Clock::test(Timestamp::UNIX_EPOCH),
        metrics: Metrics::new(),
        writer: WriterConfig {
            merge_window: Duration::ZERO,
            deadline: Duration::from_secs(1),
            may_arrive: WriterConfig::MAY_ARRIVE,
        },
        stop: CancellationToken::new(),
    };
    (context, (server, folder))
}
