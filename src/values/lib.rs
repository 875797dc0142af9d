//! Names, quantities and ages as Kubernetes writes them: what everything else is said in.

pub mod age;
pub mod amount;
pub mod ids;
pub mod quantity;
