//! The only user of `kube::Client`: connects, watches, reads objects into domain types, writes changes.

pub mod types;
