//! CPU of heartbeats that change nothing, all in: TLS, HTTP/2, the kernel's part; and that nothing is written.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use fedq_sim::nodes::Template;
use tokio::time::Instant;

use super::SETTLE;
use crate::args::Args;
use crate::figures::{Curve, count};
use crate::peers;
use crate::stage::{Size, Stage};

/// Heartbeats a second over the whole fleet: far apart on each connection where there are many clusters.
const RATES: [usize; 4] = [100, 300, 1000, 2000];
const LONG: Duration = Duration::from_secs(10);
/// Until what is on its way has arrived, on a machine that others use too.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(100);
/// Every kubelet of so many nodes reports once a second.
const PERIOD: usize = 300;

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::large());
    let mut curves = Vec::new();
    for &clusters in &args.clusters {
        let curve = |who, goal| {
            let name = format!("CPU of heartbeats of 16.5 kB, {clusters} clusters");
            Curve::new(&name, "heartbeats", "s", goal).by(who).slope_of()
        };
        let size = Size { clusters, nodes: args.nodes };
        let mut stage = Stage::new(args, size, &template).await?;
        stage.start()?;
        stage.settled().await?;
        stage.quiet().await?;
        tokio::time::sleep(SETTLE).await;
        curves.push(ours(args, &stage, curve("fedq", "≤20 µs each")).await?);
        stage.stop().await?;
        for peer in peers::ALL.into_iter().filter(|_| !args.alone) {
            curves.push(theirs(args, &mut stage, curve(peer.name(), ""), peer).await?);
        }
    }
    Ok(curves)
}

async fn ours(args: &Args, stage: &Stage, mut curve: Curve) -> Result<Curve> {
    for _ in 0..args.runs {
        for rate in [0].into_iter().chain(RATES) {
            let (before, seen) = (stage.totals(), events(stage).await?);
            let cpu = stage.process()?.cpu_seconds()?;
            let beats = beat(stage, rate).await;
            let until = Instant::now() + PATIENCE;
            while events(stage).await? < seen + count(beats) {
                ensure!(Instant::now() < until, "fedqd does not keep up");
                tokio::time::sleep(PAUSE).await;
            }
            add(&mut curve, beats, stage.process()?.cpu_seconds()? - cpu);
            let now = stage.totals();
            let wrote = now.0.since(&before.0).writes + now.1.since(&before.1).writes;
            ensure!(wrote == 0, "heartbeats change nothing, and fedqd wrote {wrote} times");
        }
    }
    Ok(curve)
}

async fn theirs(args: &Args, stage: &mut Stage, mut curve: Curve, peer: peers::Peer) -> Result<Curve> {
    let mut running = stage.peer(peer).await?;
    tokio::time::sleep(SETTLE).await;
    for _ in 0..args.runs {
        for rate in [0].into_iter().chain(RATES) {
            let (seen, cpu) = (running.events()?, running.process.cpu_seconds()?);
            let beats = beat(stage, rate).await;
            let until = Instant::now() + PATIENCE;
            while running.events()? < seen + beats {
                ensure!(Instant::now() < until, "{} does not keep up", peer.name());
                tokio::time::sleep(PAUSE).await;
            }
            add(&mut curve, beats, running.process.cpu_seconds()? - cpu);
        }
    }
    Ok(curve)
}

/// Counts that were meant to be the same are one point: one digit tells them apart.
fn add(curve: &mut Curve, beats: u64, cpu: f64) {
    let unit = 10_u64.pow(beats.checked_ilog10().unwrap_or_default());
    curve.add(usize::try_from((beats + unit / 2) / unit * unit).unwrap_or_default(), cpu);
    println!("{}, {}: {beats} in {LONG:?}, {cpu:.2} s", curve.name, curve.who);
}

/// How many were sent.
async fn beat(stage: &Stage, rate: usize) -> u64 {
    let nodes = stage.fleet.workers.len() * stage.nodes;
    let began = Instant::now();
    let beating = (0 < rate).then(|| stage.fleet.beat(count(rate * PERIOD) / count(nodes)));
    tokio::time::sleep_until(began + LONG).await;
    beating.map_or(0, |beating| beating.count())
}

async fn events(stage: &Stage) -> Result<f64> {
    stage.daemon()?.metric("fedq_node_events_total", "").await
}
