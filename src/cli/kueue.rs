//! `fedq kueue`, and this program under the names `kueuectl` and `kubectl-kueue`: kueuectl's commands.

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{ArgMatches, Args, parser::ValueSource};
use fedq_base::clock::Clock;
use fedq_kueuectl::Called;

use crate::{args::Connection, error::CliError};

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

/// fedq's own flags with the word `kueue` after them, and the rest, which is not fedq's to read.
pub fn split(arguments: &[OsString]) -> Option<(&[OsString], &[OsString])> {
    let mut at = 1;
    loop {
        let word = arguments.get(at)?.to_str()?;
        if word == "kueue" {
            return Some(arguments.split_at(at + 1));
        }
        // Each of the flags has a value.
        at += if word.strip_prefix("--")?.contains('=') { 1 } else { 2 };
    }
}

/// What says where fedqd is says nothing of a cluster: leaving it out would work on another one than was meant.
pub fn check(matches: &ArgMatches) -> Result<(), CliError> {
    let flags = Connection::augment_args(clap::Command::new(""));
    let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let of_fedqd = |flag: &&clap::Arg| flag.get_id() != "color" && typed(flag.get_id().as_str());
    match flags.get_arguments().find(of_fedqd).and_then(|flag| flag.get_long()) {
        None => Ok(()),
        Some(flag) => Err(CliError::usage(
            format!("--{flag} before `kueue` is of fedqd, and kueue's commands ask a cluster"),
            format!("put it after `kueue`: fedq kueue COMMAND --{flag} VALUE"),
        )),
    }
}

pub fn run(name: &str, arguments: &[OsString]) -> ExitCode {
    let version = concat!("fedq v", env!("CARGO_PKG_VERSION"));
    let clock = Clock::system();
    fedq_kueuectl::process(&Called { name, arguments, version }, &|| clock.now())
}
