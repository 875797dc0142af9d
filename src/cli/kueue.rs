//! `fedq kueue`, and this program under the names `kueuectl` and `kubectl-kueue`: kueuectl's commands.

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{ArgMatches, Args, FromArgMatches, parser::ValueSource};
use fedq_base::clock::Clock;
use fedq_kueuectl::{Called, Fleet};

use crate::{args::Connection, complete, error::CliError, fleet::Daemon};

/// Runs the line if it is one of kueuectl's. It is not read by clap: flags, help and errors are kueuectl's.
pub fn run_if_called(arguments: &[OsString]) -> Option<ExitCode> {
    let (program, rest) = arguments.split_first()?;
    let stem = Path::new(program).file_stem()?;
    if stem == "kueuectl" || stem == "kubectl-kueue" {
        return Some(run_alone(rest));
    }
    let (command, rest) = rest.split_first()?;
    (command == "kueue").then(|| run(rest, from_environment()))
}

/// Where fedqd is, as far as the environment says so.
fn from_environment() -> Connection {
    let flags = Connection::augment_args(clap::Command::new("fedq"));
    let read =
        flags.try_get_matches_from(["fedq"]).and_then(|matches| Connection::from_arg_matches(&matches));
    // Without flags there is nothing that could be wrong but a variable, which is then none.
    read.unwrap_or_default()
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
pub fn check(matches: &ArgMatches, line: &[OsString]) -> Result<(), CliError> {
    if line.iter().any(names_clusters) {
        return Ok(());
    }
    let flags = Connection::augment_args(clap::Command::new(""));
    let typed = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let of_fedqd = |flag: &&clap::Arg| flag.get_id() != "color" && typed(flag.get_id().as_str());
    match flags.get_arguments().find(of_fedqd).and_then(|flag| flag.get_long()) {
        None => Ok(()),
        Some(flag) => Err(CliError::usage(
            format!(
                "--{flag} before `kueue` is of fedqd, and without --cluster, --all-clusters or --hub kueue's commands ask the kubeconfig's cluster"
            ),
            format!("add one of those, or put it after `kueue`: fedq kueue COMMAND --{flag} VALUE"),
        )),
    }
}

/// Whether it may be one of the flags that name clusters of fedqd.
fn names_clusters(word: &OsString) -> bool {
    let word = word.to_string_lossy();
    let name = word.split('=').next().unwrap_or_default();
    ["--cluster", "--all-clusters", "--hub"].contains(&name)
}

/// kueuectl, which knows nothing of fedqd.
pub fn run_alone(arguments: &[OsString]) -> ExitCode {
    run_as("kueuectl", arguments, None)
}

/// `fedq kueue`, where `connection` says how fedqd is reached.
pub fn run(arguments: &[OsString], connection: Connection) -> ExitCode {
    let completes = arguments.first().is_some_and(complete::is_request);
    run_as("fedq kueue", arguments, Some(&Daemon::new(connection, completes)))
}

fn run_as(name: &str, arguments: &[OsString], fleet: Option<&dyn Fleet>) -> ExitCode {
    let version = concat!("fedq v", env!("CARGO_PKG_VERSION"));
    let clock = Clock::system();
    fedq_kueuectl::process(&Called { name, arguments, version }, &|| clock.now(), fleet)
}
