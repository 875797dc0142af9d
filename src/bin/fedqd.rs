//! The daemon.

use std::process::ExitCode;

use clap::Parser;
use fedq::{config::Args, daemon};

fn main() -> ExitCode {
    match daemon::run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            anstream::eprintln!("fedqd: {error:#}");
            ExitCode::FAILURE
        }
    }
}
