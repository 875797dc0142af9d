//! The API on a hub kept in memory, and the command line as people run it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod api;
mod app_wrappers;
mod bounds;
#[path = "../support/browser.rs"]
mod browser;
mod callers;
#[path = "../support/checked.rs"]
mod checked;
mod cli;
#[path = "../clients/tools.rs"]
#[expect(dead_code, reason = "the browser's driver is one of the tools that are installed there")]
mod clients;
mod completion;
mod contract;
mod described;
#[path = "../support/document.rs"]
mod document;
mod edit;
mod fake_hub;
mod help;
mod k8s_cli;
mod large;
mod page;
mod pages;
mod pipelines;
mod placement;
mod plans;
mod refusals;
mod server;
mod task;
mod tasks;
#[path = "../support/terminal.rs"]
#[expect(dead_code, reason = "a test of what draws on it uses more of it")]
mod terminal;
mod uploads;
mod volumes;
