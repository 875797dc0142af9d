//! The bed of real servers: what starts, watches and stops them, and what a case does with them.

pub mod audit;
pub mod certs;
pub mod cluster;
pub mod control_plane;
pub mod daemon;
pub mod etcd;
pub mod fleet;
pub mod gitops;
pub mod jobset;
pub mod kueue;
pub mod nodes;
pub mod process;
pub mod relay;
pub mod tools;
pub mod wait;
pub mod web;
