//! Hours of churn: memory, files and database stay bounded, and in the end every queue says what a daemon
//! with an empty database makes of the same clusters.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use fedq_sim::fleet::Fleet;
use fedq_sim::nodes::{Change, Gpus, Template, rolling_drain};
use serde_json::Value;
use tokio::time::Instant;

use super::SETTLE;
use crate::args::Args;
use crate::figures::{Curve, count};
use crate::stage::{Size, Stage};

/// Heartbeats so many times as often as from kubelets.
const RATE: f64 = 10.0;
/// Changes a second over the whole fleet: in a fleet of 1,000 nodes each changes once a minute or two.
const CHANGES_EVERY: Duration = Duration::from_millis(100);
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// Connections of some cluster break so often.
const BREAK_EVERY: usize = 300;
/// A cluster is drained so often.
const DRAIN_EVERY: usize = 1200;

pub async fn measure(args: &Args, long: Duration) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::large());
    let clusters = args.clusters.iter().copied().max().unwrap_or_default();
    let mut stage = Stage::new(args, Size { clusters, nodes: args.nodes }, &template).await?;
    stage.start()?;
    stage.settled().await?;
    stage.quiet().await?;
    tokio::time::sleep(SETTLE).await;
    let curve = |what: &str, unit, goal| Curve::new(&format!("endurance, {what}"), "seconds", unit, goal);
    let mut curves = [
        curve("memory", "bytes", "bounded"),
        curve("open files", "", "bounded"),
        curve("database", "bytes", "bounded"),
    ];
    let beating = stage.fleet.beat(RATE);
    let began = Instant::now();
    let mut next = began;
    let mut turn = 0;
    while began.elapsed() < long {
        churn(&stage.fleet, args.nodes, turn).await;
        turn += 1;
        if next <= Instant::now() {
            next += SAMPLE_EVERY;
            sample(&stage, began, &mut curves)?;
        }
        tokio::time::sleep(CHANGES_EVERY).await;
    }
    println!("{turn} changes and {} heartbeats", beating.count());
    drop(beating);
    repair(&stage.fleet, args.nodes);
    stage.settled().await?;
    stage.quiet().await?;
    let kept = queues(&stage.fleet);
    stage.stop().await?;
    stage.home.forget()?;
    let before = stage.node_watches();
    stage.start()?;
    stage.watched_since(&before, 1).await?;
    stage.settled().await?;
    stage.quiet().await?;
    ensure!(kept == queues(&stage.fleet), "a daemon that begins anew has another opinion of the queues");
    Ok(curves.into())
}

fn sample(stage: &Stage, began: Instant, curves: &mut [Curve; 3]) -> Result<()> {
    let seconds = usize::try_from(began.elapsed().as_secs())?;
    let process = stage.process()?;
    let sampled = [process.rss()?, count(process.open_files()?), count(stage.home.database())];
    let [memory, files, database] = sampled;
    println!("{seconds} s: {:.1} MB, {files} files, database {:.1} MB", memory / 1e6, database / 1e6);
    for (curve, value) in curves.iter_mut().zip(sampled) {
        curve.add(seconds, value);
    }
    Ok(())
}

/// Nodes come and go, GPUs fail, kubelets fall silent, connections break.
async fn churn(fleet: &Fleet, nodes: usize, turn: usize) {
    let number = fastrand::usize(..fleet.workers.len());
    let node = fastrand::usize(..nodes);
    let changes = [
        Change::Gpus(Gpus::OneLost),
        Change::Gpus(Gpus::All),
        Change::Ready(false),
        Change::Ready(true),
        Change::Cordon(true),
        Change::Cordon(false),
        Change::Delete,
        Change::Restore,
    ];
    fleet.change(number, [(node, changes[fastrand::usize(..changes.len())])]);
    if turn % BREAK_EVERY == BREAK_EVERY - 1 {
        fleet.workers[number].state.faults.break_connections();
    }
    if turn % DRAIN_EVERY == DRAIN_EVERY - 1 {
        let pace = Duration::from_millis(20);
        fleet.play(number, rolling_drain(0..nodes, pace, pace * 10)).await;
    }
}

/// Every node as it was.
fn repair(fleet: &Fleet, nodes: usize) {
    for number in 0..fleet.workers.len() {
        let all = |change| (0..nodes).map(move |node| (node, change));
        fleet.change(number, all(Change::Restore));
        fleet.change(number, all(Change::Ready(true)));
        fleet.change(number, all(Change::Cordon(false)));
        // What is left differs from node to node, so that there is something to add up.
        let gpus = |node: usize| Change::Gpus(if node.is_multiple_of(3) { Gpus::Half } else { Gpus::All });
        fleet.change(number, (0..nodes).map(|node| (node, gpus(node))));
    }
}

/// What every queue of the fleet says, as text.
fn queues(fleet: &Fleet) -> Vec<String> {
    let of = |queue: &Arc<Value>| format!("{} {}", queue["metadata"]["name"], queue["spec"]);
    let workers = fleet.workers.iter().map(AsRef::as_ref);
    let clusters = [&fleet.hub].into_iter().chain(workers);
    clusters.flat_map(|cluster| cluster.list("ClusterQueue").iter().map(of).collect::<Vec<_>>()).collect()
}
