//! Serde mirrors of the Kubernetes kinds fedq reads and writes, with just the fields it uses.

pub mod claim;
pub mod cluster_metrics;
pub mod cluster_profile;
pub mod kueue;
pub mod meta;
pub mod ocm;
pub mod task;
