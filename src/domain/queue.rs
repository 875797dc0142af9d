//! What a worker needs besides quota so that the hub's queues work there.
//!
//! [`policy`] is a ClusterQueue's spec apart from its quota. Kueue's own rules and defaults are kept here;
//! who writes what is the controllers' affair.

pub mod policy;
