//! `fedq kueue`, and this program under the names `kueuectl` and `kubectl-kueue`: kueuectl's commands.

use std::{ffi::OsString, path::Path, process::ExitCode};

use fedq_base::clock::Clock;
use fedq_kueuectl::Called;

/// Runs the line if it is one of kueuectl's. It is not read by clap: flags, help and errors are kueuectl's.
pub fn run_if_called(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    let stem = Path::new(program).file_stem()?;
    if stem == "kueuectl" || stem == "kubectl-kueue" {
        return Some(run("kueuectl", rest));
    }
    let (command, rest) = rest.split_first()?;
    (command == "kueue").then(|| run("fedq kueue", rest))
}

pub fn run(name: &str, arguments: &[OsString]) -> ExitCode {
    let version = concat!("fedq v", env!("CARGO_PKG_VERSION"));
    let clock = Clock::system();
    fedq_kueuectl::process(&Called { name, arguments, version }, &|| clock.now())
}
