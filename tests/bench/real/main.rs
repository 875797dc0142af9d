//! From a node that changed to the ClusterQueues that follow, on real API servers with real Kueue: how long
//! it takes, how much is written, what rest and a restart cost. `cargo bench --bench real`; numbers go to
//! target/bench/real.json. `FEDQ_BENCH_CHANGES` sets how many spaced changes are made of each kind.
//!
//! `cargo bench --bench real -- appwrappers` measures `fedq-appwrapper` beside upstream's operator instead; numbers go to
//! target/bench/appwrappers.json. `FEDQ_BENCH_APPWRAPPERS` sets how many, and `FEDQ_BENCH_REST` how many seconds of rest.
//!
//! Times are the API servers' own, from their audit logs: all servers share one clock. Nothing here fails
//! for being slow; what is wrong, or written without need, does.
#![allow(clippy::print_stdout, reason = "a benchmark talks to the terminal")]
#![allow(dead_code, reason = "the support of the real tests offers more than this needs")]

#[path = "../../real/support/mod.rs"]
mod support;

#[path = "../../real/cases/appwrapper_stage.rs"]
mod appwrapper_stage;
mod appwrappers;
mod bed;
mod measure;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

use bed::Bed;
use report::Report;

/// Enough for a p99 that is not the maximum of a handful.
const CHANGES: u32 = 60;
const APPWRAPPERS: u32 = 1000;
/// Two rounds of what upstream's does every minute.
const REST_SECONDS: u32 = 120;

fn main() -> ExitCode {
    // Asked for by `cargo test --benches`, which runs no benchmark.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return ExitCode::SUCCESS;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error:#}");
            ExitCode::from(101)
        }
    }
}

fn run() -> Result<()> {
    // An error only says that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let changes = number("FEDQ_BENCH_CHANGES")?.unwrap_or(CHANGES);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    if std::env::args().any(|argument| argument == "appwrappers") {
        let count = number("FEDQ_BENCH_APPWRAPPERS")?.unwrap_or(APPWRAPPERS);
        let rest = number("FEDQ_BENCH_REST")?.unwrap_or(REST_SECONDS);
        let sizes = appwrappers::Sizes { count: count.try_into()?, rest: Duration::from_secs(rest.into()) };
        let measured = runtime.block_on(appwrappers::run(&sizes));
        runtime.shutdown_background();
        return measured;
    }
    let report = runtime.block_on(measure_all(changes));
    // Not waited for: the clients of servers that are gone.
    runtime.shutdown_background();
    let report = report?;
    report.print();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");
    std::fs::create_dir_all(folder).context(folder)?;
    std::fs::write(format!("{folder}/real.json"), format!("{:#}\n", report.json()))?;
    Ok(())
}

fn number(variable: &str) -> Result<Option<u32>> {
    let text = std::env::var_os(variable);
    text.map(|text| text.to_string_lossy().parse().with_context(|| variable.to_owned())).transpose()
}

async fn measure_all(changes: u32) -> Result<Report> {
    println!("Starting a hub and two workers with Kueue, and fedqd.");
    let bed = Bed::start().await?;
    println!("All quotas are in place.");
    let rest = measure::rest(&bed).await.context("at rest")?;
    let heartbeats = measure::heartbeats(&bed).await.context("heartbeats")?;
    println!("Measured rest and heartbeats.");
    let one_queue = measure::spaced(&bed, bed::GPU, changes).await.context("changes of one queue")?;
    let all_queues =
        measure::spaced(&bed, bed::MEMORY, changes / 4).await.context("changes of all queues")?;
    println!("Measured changes one by one.");
    let burst = measure::burst(&bed).await.context("a burst")?;
    let restart = measure::restart(&bed).await.context("a restart")?;
    bed.stop();
    Ok(Report { rest, heartbeats, one_queue, all_queues, burst, restart })
}
