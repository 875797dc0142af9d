//! Simulated clusters: Kubernetes API servers in this process.

pub mod nodes;
pub mod protobuf;
