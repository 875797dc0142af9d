//! The command line, also as `kubectl-fedq`.

use std::process::ExitCode;

fn main() -> ExitCode {
    fedq_cli::run(std::env::args_os())
}
