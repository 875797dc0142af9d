//! A start with an empty database, a restart, and one after every version expired: time, bytes, CPU, memory.
//! Beside them a start of other clients, which keep nothing from one to the next.

use std::sync::Arc;

use anyhow::{Result, ensure};
use fedq_sim::fleet::Totals;
use fedq_sim::nodes::Template;
use tokio::time::Instant;

use super::SETTLE;
use crate::args::Args;
use crate::figures::{Curve, count};
use crate::peers::{self, Peer};
use crate::process::Process;
use crate::stage::{Size, Stage};

/// One way to start, over sizes.
struct Curves {
    seconds: Curve,
    cpu: Curve,
    bytes: Curve,
    peak: Curve,
    /// As of [`Stage::watched_since`].
    requests: u64,
}

impl Curves {
    fn new(how: &str, requests: u64, goals: [&'static str; 2]) -> Self {
        let curve = |what: &str, unit, goal| Curve::new(&format!("{how}, {what}"), "clusters", unit, goal);
        Self {
            seconds: curve("time", "s", goals[0]),
            cpu: curve("CPU", "s", ""),
            bytes: curve("bytes of a JSON list over bytes sent", "×", goals[1]),
            peak: curve("peak over steady memory", "×", ""),
            requests,
        }
    }

    fn of(peer: Peer) -> Self {
        let Self { seconds, cpu, bytes, peak, requests } = Self::new("start", 0, ["", ""]);
        let [seconds, cpu, bytes, peak] = [seconds, cpu, bytes, peak].map(|curve| curve.by(peer.name()));
        Self { seconds, cpu, bytes, peak, requests }
    }

    fn add(&mut self, stage: &Stage, start: &Start, steady: f64) {
        let Start { seconds, cpu, peak, sent } = start;
        let clusters = stage.fleet.workers.len();
        let json = count(clusters * stage.nodes) * json_bytes(stage);
        let bytes = count(sent.all_bytes());
        println!(
            "{clusters} clusters, {}: {} {seconds:.2} s, {cpu:.2} s CPU, {:.2} MB ({:.1}× less than JSON), peak {:.1} MB",
            self.seconds.who,
            self.seconds.name,
            bytes / 1e6,
            json / bytes,
            peak / 1e6,
        );
        self.seconds.add(clusters, *seconds);
        self.cpu.add(clusters, *cpu);
        self.bytes.add(clusters, json / bytes);
        self.peak.add(clusters, peak / steady);
    }
}

/// As it is once it is through.
struct Start {
    seconds: f64,
    cpu: f64,
    peak: f64,
    sent: Totals,
}

impl Start {
    fn of(stage: &Stage, process: Process, before: &Totals, began: Instant) -> Result<Self> {
        let (seconds, sent) = (began.elapsed().as_secs_f64(), stage.fleet.totals().since(before));
        Ok(Self { seconds, cpu: process.cpu_seconds()?, peak: process.peak()?, sent })
    }
}

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::large());
    let mut cold = Curves::new("first start", 1, ["", ""]);
    let mut resumed = Curves::new("restart", 1, ["≤5 s for 1,000 clusters", "≥50×"]);
    let mut expired = Curves::new("restart after versions expired", 2, ["", "≥20×"]);
    let others = if args.alone { &[][..] } else { &peers::ALL };
    let mut others: Vec<(Peer, Curves)> = others.iter().map(|peer| (*peer, Curves::of(*peer))).collect();
    for _ in 0..args.runs {
        for &clusters in &args.clusters {
            let size = Size { clusters, nodes: args.nodes };
            let mut stage = Stage::new(args, size, &template).await?;
            start(&mut stage, &mut cold).await?;
            let beating = stage.fleet.beat(1.0);
            tokio::time::sleep(SETTLE).await;
            stage.stop().await?;
            tokio::time::sleep(SETTLE).await;
            is_silent(start(&mut stage, &mut resumed).await?)?;
            tokio::time::sleep(SETTLE).await;
            stage.stop().await?;
            tokio::time::sleep(SETTLE).await;
            drop(beating);
            for worker in &stage.fleet.workers {
                // As other objects move the version of a real server.
                worker.state.store.skip_to(worker.state.store.version() + 1);
                worker.state.store.compact();
            }
            is_silent(start(&mut stage, &mut expired).await?)?;
            stage.stop().await?;
            for (peer, curves) in &mut others {
                let (before, began) = (stage.fleet.totals(), Instant::now());
                let running = stage.peer(*peer).await?;
                let start = Start::of(&stage, running.process, &before, began)?;
                tokio::time::sleep(SETTLE).await;
                curves.add(&stage, &start, running.process.rss()?);
            }
        }
    }
    let curves = [cold, resumed, expired].into_iter().chain(others.into_iter().map(|(_, curves)| curves));
    Ok(curves.flat_map(|of| [of.seconds, of.cpu, of.bytes, of.peak]).collect())
}

/// Until every node is watched, every quota in place and the daemon says that it is ready; what it wrote.
async fn start(stage: &mut Stage, curves: &mut Curves) -> Result<u64> {
    let (before, watches, began) = (stage.fleet.totals(), stage.node_watches(), Instant::now());
    stage.start()?;
    stage.watched_since(&watches, curves.requests).await?;
    stage.settled().await?;
    while !stage.daemon()?.is_ready().await {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let start = Start::of(stage, stage.process()?, &before, began)?;
    stage.quiet().await?;
    tokio::time::sleep(SETTLE).await;
    curves.add(stage, &start, stage.process()?.rss()?);
    Ok(stage.fleet.totals().since(&before).writes)
}

/// Nothing is news but to a daemon that knows nothing.
fn is_silent(writes: u64) -> Result<()> {
    ensure!(writes == 0, "{writes} writes for a restart");
    Ok(())
}

/// Of one node.
fn json_bytes(stage: &Stage) -> f64 {
    let herd = stage.fleet.workers.first().and_then(|worker| worker.state.herd());
    herd.map_or(0.0, |herd| herd.with(|herd| count(herd.body_json(0, 1_000_000).len())))
}
