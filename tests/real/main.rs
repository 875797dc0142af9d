//! Tests on real API servers with real Kueue: fleets of a hub and two workers, started once for all cases.
//!
//! `cargo test --test real -- <filter>` runs cases, `--list` names them, `--serve` only starts one fleet and keeps
//! it for whoever develops against it. `FEDQ_REAL_KEEP=1` keeps data and logs, `FEDQ_REAL_FLEETS` says how many fleets
//! to start, `FEDQ_REAL_TOOLS` and `KUBEBUILDER_ASSETS` name folders with programs built elsewhere.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test harness talks to the terminal")]
#![allow(clippy::panic, reason = "what installs other people's tools says what failed")]
#![allow(dead_code, reason = "the support offers more than the cases of one day use")]

mod cases;
#[path = "../support/checked.rs"]
mod checked;
#[path = "../clients/tools.rs"]
mod clients;
#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../support/document.rs"]
mod document;
#[path = "../support/follower.rs"]
mod follower;
mod pool;
mod rights;
mod said;
mod support;

use std::io::IsTerminal;
use std::os::unix::fs::FileTypeExt;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures::FutureExt;
use libtest_mimic::{Arguments, Failed, Trial};

use cases::{Case, Turn};
use pool::Pool;
use support::fleet::Fleet;
use support::tools::{self, Tools};
use support::{daemon, kueue};

/// Cases that may share a fleet wait far more than they compute, so more of them run at once than there are cores.
const THREADS: usize = 6;

/// A serial case keeps two cores busy for a quarter of its time: three side by side leave the servers time to answer.
const FLEETS: usize = 3;

/// No case may hold up the run. The slowest has an operator see a failure a minute late, case after case.
const CASE_WITHIN: Duration = Duration::from_mins(8);

type Build = fn() -> Result<PathBuf>;

/// What cases run beside the servers, by how the cases' names begin. It is built before any of them starts: where Go's
/// cache is empty that takes minutes, and a build beside the servers leaves them too little of the processor.
const PROGRAMS: [(&str, Build); 8] = [
    ("appwrapper", tools::appwrapper_operator),
    ("appwrapper", tools::fedq_appwrapper),
    ("chart", tools::helm),
    ("manifests", tools::helm),
    ("manifests", tools::kubeconform),
    ("metrics::prometheus", tools::prometheus),
    ("gitops", tools::argo_cd),
    ("gitops", tools::flux),
];

/// Enough to see what a faster run would have to change.
const SLOWEST_TOLD: usize = 15;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", chain(&error));
            ExitCode::from(101)
        }
    }
}

fn run() -> Result<ExitCode> {
    // An error only says that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(4).build()?;
    if std::env::args().any(|argument| argument == cases::bed::SUPERVISE) {
        return cases::bed::supervise_until_killed();
    }
    let serve = std::env::args().any(|argument| argument == "--serve");
    if serve || std::env::var_os("FEDQ_REAL_SERVE").is_some() {
        runtime.block_on(serve_until_told())?;
        return Ok(ExitCode::SUCCESS);
    }

    let mut args = Arguments::from_args();
    args.test_threads = args.test_threads.or(Some(THREADS));
    let cases = cases::all();
    let wanted = |case: &Case| !args.is_filtered_out(&Trial::test(case.name, || Ok(())));
    if args.list || !cases.iter().any(wanted) {
        let names = cases.iter().map(|case| Trial::test(case.name, || Ok(()))).collect();
        return Ok(libtest_mimic::run(&args, names).exit_code());
    }

    let wanted: Vec<_> = cases.iter().filter(|case| wanted(case)).map(|case| case.name).collect();
    let count = wanted.len().min(fleets()?);
    build_programs(&wanted)?;
    let pool = Arc::new(Pool::new(runtime.block_on(start(count))?));
    let times = Arc::new(Mutex::new(Vec::new()));
    let trials = cases.into_iter().map(|case| {
        let (pool, times, runtime) = (Arc::clone(&pool), Arc::clone(&times), runtime.handle().clone());
        Trial::test(case.name, move || {
            let start = Instant::now();
            let result = run_case(case, &pool, &runtime);
            times.lock().unwrap_or_else(PoisonError::into_inner).push((start.elapsed(), case.name));
            result
        })
    });
    let all = trials.len();
    let conclusion = libtest_mimic::run(&args, trials.collect());
    let whole = u64::try_from(all).is_ok_and(|all| conclusion.num_passed == all);
    let wrong = rights::compare(pool.fleets(), whole)?;
    for fleet in pool.fleets() {
        fleet.stop();
    }
    tell_slowest(&mut times.lock().unwrap_or_else(PoisonError::into_inner));
    for line in &wrong {
        eprintln!("error: {line}");
    }
    Ok(if wrong.is_empty() { conclusion.exit_code() } else { ExitCode::from(101) })
}

fn build_programs(cases: &[&str]) -> Result<()> {
    let needed = |(begins, _): &(&str, _)| cases.iter().any(|case| case.starts_with(begins));
    for (_, build) in PROGRAMS.into_iter().filter(needed) {
        build()?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "how many servers to start is the tester's choice, not configuration"
)]
fn fleets() -> Result<usize> {
    let Ok(text) = std::env::var("FEDQ_REAL_FLEETS") else { return Ok(FLEETS) };
    let count: usize = text.parse().with_context(|| format!("FEDQ_REAL_FLEETS is `{text}`, not a number"))?;
    Ok(count.max(1))
}

fn tell_slowest(times: &mut [(Duration, &str)]) {
    times.sort_unstable_by_key(|(time, _)| std::cmp::Reverse(*time));
    println!("The slowest cases, with the time they waited for a fleet:");
    for (time, name) in times.iter().take(SLOWEST_TOLD) {
        println!("  {:5.1} s  {name}", time.as_secs_f64());
    }
}

fn run_case(case: Case, pool: &Pool, runtime: &tokio::runtime::Handle) -> Result<(), Failed> {
    let turn = pool.wait_for(case.turn);
    let fleet = turn.fleet();
    let running = AssertUnwindSafe((case.run)(Arc::clone(fleet))).catch_unwind();
    let result = runtime.block_on(async {
        match tokio::time::timeout(CASE_WITHIN, running).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(anyhow!("panicked: {}", panic_text(&*panic))),
            Err(_) => Err(anyhow!("still running after {CASE_WITHIN:?}")),
        }
    });
    let short = case.name.rsplit("::").next().unwrap_or(case.name);
    let result = result.and_then(|()| said::fits(short));
    let healed = match case.turn {
        Turn::Serial => runtime.block_on(heal(fleet)),
        Turn::Parallel => Ok(()),
    };
    let result = result.and(healed);
    result.map_err(|error| {
        let mut text = chain(&error);
        // The harness tells it when all have ended, which a run that is broken off never sees.
        eprintln!("{} failed: {text}", case.name);
        if let Ok(dir) = fleet.scratch(short) {
            text.push('\n');
            text.push_str(&daemon::log_tails(&dir));
        }
        for casualty in fleet.casualties() {
            text.push_str("\na server died: ");
            text.push_str(&casualty);
        }
        Failed::from(text)
    })
}

async fn heal(fleet: &Fleet) -> Result<()> {
    for cluster in fleet.clusters() {
        let healing = async {
            if cluster.plane.heal().await? {
                kueue::wait_until_it_follows(cluster).await?;
            }
            Ok::<_, anyhow::Error>(())
        };
        healing.await.with_context(|| format!("heal {} after a serial case", cluster.name))?;
    }
    Ok(())
}

/// The error and its causes. Not `{:?}`, which adds a page of backtrace when RUST_BACKTRACE is set.
fn chain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n  because: ")
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

async fn start(count: usize) -> Result<Vec<Arc<Fleet>>> {
    let start = Instant::now();
    let tools = Arc::new(tokio::task::spawn_blocking(Tools::find_or_build).await??);
    println!("Starting {count} times a hub and two workers with Kueue.");
    let starting = (0..count).map(|_| Fleet::start(&tools));
    let fleets =
        futures::future::try_join_all(starting).await.context("the real clusters did not come up")?;
    println!("They are ready after {:.1} s.", start.elapsed().as_secs_f64());
    Ok(fleets.into_iter().map(Arc::new).collect())
}

async fn serve_until_told() -> Result<()> {
    let fleets = start(1).await?;
    let clusters = fleets.iter().flat_map(|fleet| fleet.clusters());
    for cluster in clusters {
        println!("{}", cluster.kubeconfig_path.display());
    }
    println!("They stay until Ctrl-C, SIGTERM or the end of a piped standard input.");
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        () = end_of_input() => {}
    }
    for fleet in fleets {
        fleet.stop();
    }
    Ok(())
}

/// Whoever started us through a pipe or at a terminal can end us by closing it. Started in the background, with
/// `/dev/null` for input, there is nobody to close it.
async fn end_of_input() {
    let stdin = std::io::stdin();
    let device = std::fs::metadata("/dev/stdin").is_ok_and(|stdin| stdin.file_type().is_char_device());
    if device && !stdin.is_terminal() {
        return std::future::pending().await;
    }
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread of its own: a read of standard input that never returns would keep the runtime from ending.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut stdin.lock(), &mut std::io::sink());
        let _ = tell.send(());
    });
    let _ = told.await;
}
