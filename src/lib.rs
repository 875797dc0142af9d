//! fedq: joins Kubernetes clusters that run Kueue to one hub, and keeps their quota in step with
//! claims and capacity.
//!
//! Read in this order: `domain` decides, `k8s` and `store` observe and keep, `controllers` put the
//! decisions to work, `api`, `webhook` and `cli` serve people. What may import what is in
//! ARCHITECTURE.md and enforced by `tests/architecture.rs`.

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod controllers;
pub mod daemon;
pub mod demo;
pub mod domain;
pub mod failpoint;
pub mod k8s;
pub mod sim;
pub mod store;
pub mod telemetry;
pub mod webhook;
pub mod wire;
