//! Names and quantities as Kubernetes writes them: what everything else is said in.

pub mod ids;
pub mod quantity;
