//! The loop: list, watch, back off, list again.

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{Caps, Codec, Selector, Sink, Timing};

/// One kind of one cluster to follow.
#[derive(Clone)]
pub struct Follow {
    pub client: Client,
    /// Such as `/apis/kueue.x-k8s.io/v1beta2/clusterqueues` or `/api/v1/nodes`.
    pub path: String,
    pub selector: Selector,
    pub codec: Codec,
    /// The version of the stored rows.
    pub start: Option<u64>,
    pub timing: Timing,
    pub caps: Caps,
}

/// Why following ended. Everything else is tried again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stopped {
    Cancelled,
    /// The server is older than what was stored: etcd was restored, or it is another cluster.
    VersionsWentBack {
        stored: u64,
        found: u64,
    },
}

impl Follow {
    pub fn new(client: Client, path: impl Into<String>, codec: Codec) -> Self {
        Self {
            client,
            path: path.into(),
            selector: Selector::default(),
            codec,
            start: None,
            timing: Timing::default(),
            caps: Caps::default(),
        }
    }

    /// Follows until `stop`, or until the server proves to be older than what was stored.
    pub async fn run(self, sink: &mut impl Sink, stop: CancellationToken) -> Stopped {
        let _ = (sink, stop);
        todo!()
    }
}
