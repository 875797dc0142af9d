//! A tenth of the fleet is bad, in one way after the other: what the others notice of it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fedq_sim::faults::Plan;
use fedq_sim::nodes::Template;

use super::SETTLE;
use super::changes::spaced;
use crate::args::Args;
use crate::figures::{Curve, count, percentile};
use crate::stage::{QUEUES, Size, Stage};

const WAYS: [&str; 8] = [
    "hang",
    "half-open",
    "silent-watch",
    "latency 2s",
    "server-errors 100%",
    "too-many-requests 1s",
    "endless-body",
    "refuse-connections",
];
/// Of so many the slowest hundredth is more than one.
const CHANGES: usize = 200;
/// Long enough for retries to be under way.
const TAKES_HOLD: Duration = Duration::from_secs(5);

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::large());
    let mut curves = Vec::new();
    // One size will do, and a tenth of fewer clusters than queues would be none.
    let clusters = args.clusters.iter().copied().max().unwrap_or_default().max(QUEUES);
    let size = Size { clusters, nodes: args.nodes };
    let mut stage = Stage::new(args, size, &template).await?;
    stage.start()?;
    stage.settled().await?;
    stage.quiet().await?;
    tokio::time::sleep(SETTLE).await;
    // The last tenth is bad; changes are made to the others.
    let good = clusters - clusters / 10;
    for way in WAYS {
        let plan: Plan = way.parse()?;
        let curve = |what: &str, unit, goal| {
            Curve::new(&format!("a tenth bad: {way}, {what}"), "clusters", unit, goal)
        };
        let mut slow = curve("p99 of the others over p99 when all are well", "×", "≤1.1×");
        let mut memory = curve("memory over before", "×", "");
        let mut files = curve("open files more than before", "", "");
        for run in 0..args.runs {
            // What the last way left to be written would be within the merging window of what is timed now.
            stage.quiet().await?;
            let turn = 2 * run * CHANGES;
            let (well, _) = spaced(&stage, turn..turn + CHANGES, good).await?;
            let before = (stage.process()?.rss()?, count(stage.process()?.open_files()?));
            stage.spoil(good, &plan);
            tokio::time::sleep(TAKES_HOLD).await;
            let (ill, _) = spaced(&stage, turn + CHANGES..turn + 2 * CHANGES, good).await?;
            let after = (stage.process()?.rss()?, count(stage.process()?.open_files()?));
            stage.spoil(good, &Plan::default());
            stage.settled().await?;
            stage.connected().await?;
            let (well, ill) = (percentile(&well, 99.0), percentile(&ill, 99.0));
            println!("{way}: p99 {ill:.1} ms, {well:.1} ms when all are well");
            slow.add(clusters, ill / well);
            memory.add(clusters, after.0 / before.0);
            files.add(clusters, after.1 - before.1);
        }
        curves.extend([slow, memory, files]);
    }
    Ok(curves)
}
