//! What is shipped beside the programs: archives, manual pages, plugins' manifests, the unit of systemd.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what they expect")]

mod pages;
mod release;
#[path = "../real/support/tools.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "it has the programs of the real clusters, too")]
mod tools;
mod unit;

use std::{path::PathBuf, process::Command};

/// A program that is not there has not been tried.
fn found(program: &str, package: &str) -> PathBuf {
    let places = ["/bin", "/usr/bin", "/usr/local/bin"].map(|folder| PathBuf::from(folder).join(program));
    let found = places.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| {
        panic!("{program} is not installed: on Debian `apt-get install {package}` brings it")
    })
}

/// What it says on both outputs, and whether it ended well.
fn said(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}
