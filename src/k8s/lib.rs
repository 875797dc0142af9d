//! The only user of `kube::Client`: connects, watches, reads objects into domain types, writes changes.

pub mod app_wrappers;
pub mod check;
pub mod claims;
pub mod client;
pub mod enter;
pub mod events;
pub mod follow;
pub mod hub;
pub mod job_sets;
pub mod join_token;
pub mod kubeconfig;
pub mod list_watch;
pub mod logs;
pub mod memory;
pub mod multikueue;
pub mod onboard;
pub mod proxy;
pub mod read;
pub mod rights;
pub mod session;
pub mod types;
pub mod unmade;
pub mod volume_claims;
pub mod worker;
pub mod write;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
