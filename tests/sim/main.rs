//! The whole daemon on simulated clusters.

#![allow(clippy::print_stdout, reason = "a failed case shows the end of the log")]
#![allow(clippy::unwrap_used, reason = "a test may")]

mod bed;
mod demo;
mod joining;
mod logs;
mod wrong;
