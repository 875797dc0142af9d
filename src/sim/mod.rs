//! Simulated clusters: Kubernetes API servers in this process, on real sockets with TLS, with as much of
//! Kueue and of the controllers around it as a joined cluster needs to live.
//!
//! They are for the demo, for tests in seconds and for a thousand clusters on one machine, and never the
//! judge: what they answer is held to what real servers answer by one suite that runs against both.

mod draw;
pub mod faults;
pub mod fields;
pub mod kueue;
pub mod nodes;
pub mod protobuf;
