//! Other people's programs that read what fedq says: clients made from the API's document and tools that read it, on a fedqd
//! with simulated clusters; what reads YAML and JSON; a collector of logs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

#[path = "../support/checked.rs"]
mod checked;
#[path = "../support/demo.rs"]
#[expect(dead_code, reason = "the tests of the demo itself use more of it")]
mod demo_process;
#[path = "../support/document.rs"]
mod document;
mod k8s_cli;
mod log_lines;
mod programs;
mod readers;
mod relay;
mod tools;
