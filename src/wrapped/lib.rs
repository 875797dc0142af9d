//! What an AppWrapper wraps: its components, where in them the pods are, and what it must be. Shared by the controller on
//! workers and by what dispatches AppWrappers to them, so that both find the same pods. No client, no clock.

pub mod component;
pub mod names;
pub mod path;
pub mod pod_sets;
pub mod pod_template;
pub mod validate;
