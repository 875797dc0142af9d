//! Simulated clusters: Kubernetes API servers in this process, on real sockets with TLS, with as much of
//! Kueue and of the controllers around it as a joined cluster needs to live.
//!
//! They are for the demo, for tests in seconds and for a thousand clusters on one machine, and never the
//! judge: what they answer is held to what real servers answer by one suite that runs against both.

pub mod api;
pub mod callers;
pub mod cluster;
pub mod controllers;
pub mod counts;
mod draw;
pub mod faults;
pub mod fields;
pub mod fleet;
mod garbage;
pub mod kind;
pub mod kueue;
pub mod logs;
pub mod nodes;
pub mod protobuf;
pub mod rbac;
pub mod selector;
pub mod server;
pub mod status;
pub mod store;
pub mod structure;

/// As Secrets and kubeconfigs carry bytes.
pub(crate) fn base64(bytes: &[u8]) -> String {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec()))
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    serde_json::from_value::<k8s_openapi::ByteString>(text.into()).ok().map(|bytes| bytes.0)
}
