//! A real fedqd with up to a thousand simulated clusters: memory, CPU, requests, bytes and times as slopes over
//! sizes, beside other clients on the same clusters. `cargo bench --bench fleet -- --help` has the sizes and
//! measurements; figures go to target/bench/fleet.json, with curves to target/bench/fleet.html.
//!
//! The clusters run in this process, the daemon and the other clients in processes of their own. What is wrong
//! fails; what is slow shows.
#![allow(clippy::print_stdout, reason = "a benchmark talks to the terminal")]

mod args;
mod daemon;
mod figures;
mod measure;
mod peers;
mod process;
mod report;
mod stage;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use args::Args;

fn main() -> ExitCode {
    // Asked for by `cargo test --benches`, which runs no benchmark.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return ExitCode::SUCCESS;
    }
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::from(101)
        }
    }
}

fn run(args: &Args) -> Result<()> {
    // An error only says that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    if let Some(folder) = &args.follow {
        return peers::follow(folder);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    let figures = runtime.block_on(async {
        let mut ended = signal(SignalKind::terminate())?;
        // Dropped, a measurement takes its daemon along.
        tokio::select! {
            figures = measure::all(args) => figures,
            _ = ended.recv() => bail!("ended by a signal"),
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    });
    // Not waited for: what clusters that are gone have left open.
    runtime.shutdown_background();
    report::write(figures?)
}
