//! The only user of `kube::Client`: connects, watches, reads objects into domain types, writes changes.

pub mod client;
pub mod kubeconfig;
pub mod list_watch;
pub mod types;
