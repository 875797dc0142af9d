//! The whole daemon on simulated clusters, and the clusters held to what real servers answer.

#![allow(clippy::print_stdout, reason = "a failed case shows the end of the log")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod agreement;
mod bed;
#[path = "../support/browser.rs"]
mod browser;
#[path = "../support/checked.rs"]
mod checked;
#[path = "../clients/tools.rs"]
#[expect(
    clippy::panic,
    dead_code,
    reason = "what installs other people's tools says what failed; one of them is used here"
)]
mod clients;
mod cohort_mode;
#[path = "../conformance/mod.rs"]
mod conformance;
mod demo;
#[path = "../support/demo.rs"]
mod demo_process;
#[path = "../support/document.rs"]
mod document;
mod faults;
#[path = "../support/follower.rs"]
mod follower;
mod formats;
mod inventory;
mod joining;
mod kueue;
mod logs;
mod metrics;
mod moving;
mod page;
mod placement;
mod profiles;
#[path = "../clients/relay.rs"]
mod relay;
mod said;
mod service_manager;
mod tasks;
#[path = "../support/terminal.rs"]
mod terminal;
mod top;
mod wrong;
