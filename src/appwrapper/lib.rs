//! AppWrappers on a worker cluster: the framework controller and both webhooks, in the place of the upstream operator.
//!
//! What is decided is in functions that take objects and give decisions: [`lifecycle`] and [`running`] for the phases,
//! [`inject`] for what is put into its objects; what it must be and where its pods are is `fedq-wrapped`'s. [`controller`], `create`,
//! `remove` and [`review`] do what they say. Kueue's side of it (suspending, pod set infos, Workloads) is Kueue's own.

pub mod api;
pub mod autopilot;
#[cfg(test)]
mod cases;
pub mod certificate;
mod client;
pub mod conditions;
pub mod config;
pub mod controller;
mod create;
pub mod duration;
mod immutable;
pub mod inject;
pub mod kinds;
mod lease;
pub mod lifecycle;
pub mod metrics;
mod observed;
pub mod observed_pod;
pub mod pods;
mod remove;
pub mod review;
pub mod run;
pub mod running;
pub mod serve;
pub mod template;
pub mod tolerance;
pub mod trust;
mod upstream;

#[cfg(test)]
use fedq_wrapped::pod_sets;
use fedq_wrapped::{names, path, pod_template, validate};

/// Who writes, in `metadata.managedFields` and in Events.
pub const FIELD_MANAGER: &str = "fedq-appwrapper";
