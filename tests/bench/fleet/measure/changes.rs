//! From a node that changes to the queues of worker and hub, and how much is written for it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use fedq_sim::fleet::Totals;
use fedq_sim::nodes::{Change, Gpus, Template, rolling_drain};
use tokio::time::Instant;

use crate::args::Args;
use crate::figures::{Curve, count, percentile};
use crate::stage::{QUEUES, Size, Stage};

/// Of so many the slowest hundredth is more than one.
const CHANGES: usize = 300;
/// Each hub queue is written to once within its merging window of 1 s: there are ten.
const APART: Duration = Duration::from_millis(150);
const WITHIN: Duration = Duration::from_secs(20);
const DRAINED: usize = 5_000;
const PACE: Duration = Duration::from_millis(10);
const AWAY: Duration = Duration::from_secs(5);

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::large());
    let curve = |name: &str, goal| Curve::new(name, "clusters", "ms", goal);
    let mut median = curve("change of a node to quota on the hub, p50", "≤25 ms");
    let mut slow = curve("change of a node to quota on the hub, p99", "≤100 ms");
    let mut worker = curve("change of a node to quota on the worker, p50", "");
    let mut writes = Curve::new("writes of queues a changed queue", "clusters", "", "1");
    let mut cpu = Curve::new("CPU of a change of a node, all in", "clusters", "s", "");
    let mut plan = Curve::new("reading and planning at each look, mean", "clusters", "s", "");
    for &clusters in &args.clusters {
        let mut stage = Stage::new(args, Size { clusters, nodes: args.nodes }, &template).await?;
        stage.start()?;
        stage.settled().await?;
        stage.quiet().await?;
        for run in 0..args.runs {
            let (before, cost) = (stage.totals(), Cost::now(&stage).await?);
            let (on_hub, on_worker) = spaced(&stage, run * CHANGES..(run + 1) * CHANGES, clusters).await?;
            stage.quiet().await?;
            median.add(clusters, percentile(&on_hub, 50.0));
            slow.add(clusters, percentile(&on_hub, 99.0));
            worker.add(clusters, percentile(&on_worker, 50.0));
            let wrote = queue_writes(&stage, &before);
            writes.add(clusters, count(wrote) / count(2 * CHANGES));
            let cost = Cost::now(&stage).await?.since(&cost);
            let (each, look) = (cost.cpu / count(CHANGES), cost.planning / cost.plans);
            cpu.add(clusters, each);
            plan.add(clusters, look);
            let (p50, p99) = (percentile(&on_hub, 50.0), percentile(&on_hub, 99.0));
            println!(
                "{clusters} clusters: p50 {p50:.1} ms, p99 {p99:.1} ms, {wrote} writes, {:.1} ms CPU a change, \
                 {:.2} ms a plan, {} of them",
                each * 1e3,
                look * 1e3,
                cost.plans
            );
        }
    }
    Ok(vec![median, slow, worker, writes, cpu, plan, drain(args, &template).await?])
}

/// What the daemon has used so far.
struct Cost {
    cpu: f64,
    planning: f64,
    plans: f64,
}

impl Cost {
    async fn now(stage: &Stage) -> Result<Self> {
        let daemon = stage.daemon()?;
        Ok(Self {
            cpu: stage.process()?.cpu_seconds()?,
            planning: daemon.metric("fedq_plan_seconds_sum", "").await?,
            plans: daemon.metric("fedq_plan_seconds_count", "").await?,
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            planning: self.planning - before.planning,
            plans: self.plans - before.plans,
        }
    }
}

/// One change after the other, each of another queue, in the first `clusters`: milliseconds until the hub's and
/// the worker's quota.
pub async fn spaced(stage: &Stage, turns: Range<usize>, clusters: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let fleet = &stage.fleet;
    let (mut on_hub, mut on_worker) = (Vec::new(), Vec::new());
    for turn in turns {
        // Another cluster each time, queues in turn.
        let number = (turn * (QUEUES + 1)) % clusters;
        let gpus = if fleet.gpus(number).is_multiple_of(8) { Gpus::OneLost } else { Gpus::All };
        let (queue, node) = (number % QUEUES, 0);
        let before = (fleet.gpus(number), fleet.hub_quota(queue).unwrap_or_default());
        let began = Instant::now();
        ensure!(fleet.change(number, [(node, Change::Gpus(gpus))]) == 1, "a node did not change");
        let now = fleet.gpus(number);
        let hub = before.1 + now - before.0;
        let reached_worker =
            reached(&fleet.workers[number].state, || fleet.worker_quota(number) == Some(now));
        let reached_hub = reached(&fleet.hub.state, || fleet.hub_quota(queue) == Some(hub));
        let (at_worker, at_hub) = tokio::join!(reached_worker, reached_hub);
        on_worker.push(at_worker?.duration_since(began).as_secs_f64() * 1e3);
        on_hub.push(at_hub?.duration_since(began).as_secs_f64() * 1e3);
        tokio::time::sleep_until(began + APART).await;
    }
    Ok((on_hub, on_worker))
}

async fn reached(state: &fedq_sim::cluster::State, holds: impl Fn() -> bool) -> Result<Instant> {
    ensure!(fedq_sim::cluster::until(state, WITHIN, |_| holds()).await, "quota does not follow a node");
    Ok(Instant::now())
}

fn queue_writes(stage: &Stage, before: &(Totals, Totals)) -> u64 {
    let (workers, hub) = stage.totals();
    let of = |totals: Totals| {
        let writes =
            ["create", "update", "patch", "delete"].map(|verb| totals.requests_of(verb, "clusterqueues"));
        writes.iter().sum::<u64>()
    };
    of(workers.since(&before.0)) + of(hub.since(&before.1))
}

/// Every node of a cluster of 5,000 is cordoned, replaced and comes back.
async fn drain(args: &Args, template: &Arc<Template>) -> Result<Curve> {
    let mut curve =
        Curve::new("rolling drain, writes a second and queue", "nodes", "", "≤2; by event it were 300");
    let mut stage = Stage::new(args, Size { clusters: 1, nodes: DRAINED }, template).await?;
    stage.start()?;
    stage.settled().await?;
    stage.quiet().await?;
    let (before, began) = (stage.totals(), Instant::now());
    stage.fleet.play(0, rolling_drain(0..DRAINED, PACE, AWAY)).await;
    let seconds = began.elapsed().as_secs_f64();
    stage.settled().await?;
    // The queue on the worker and the one on the hub.
    let rate = count(queue_writes(&stage, &before)) / 2.0 / seconds;
    println!("a drain of {DRAINED} nodes in {seconds:.0} s: {rate:.2} writes a second and queue");
    curve.add(DRAINED, rate);
    Ok(curve)
}
