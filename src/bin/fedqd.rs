//! The daemon.

use std::process::ExitCode;

use clap::Parser;
use fedq_daemon::config::Args;

fn main() -> ExitCode {
    match fedq_daemon::run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            anstream::eprintln!("fedqd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
