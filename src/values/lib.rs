//! Names, quantities and ages as Kubernetes writes them: what everything else is said in. And what no JSON may hold.

pub mod age;
pub mod amount;
pub mod ids;
pub mod nested;
pub mod quantity;
