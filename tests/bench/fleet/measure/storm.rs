//! All clusters go away at once and come back with every version expired: everything is listed anew.

use std::sync::Arc;

use anyhow::Result;
use fedq_sim::faults::Plan;
use fedq_sim::nodes::Template;
use tokio::time::Instant;

use super::SETTLE;
use crate::args::Args;
use crate::figures::Curve;
use crate::stage::{Size, Stage};

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::large());
    let mut peak = Curve::new("relist storm, peak over steady memory", "clusters", "×", "≤1.5×");
    let mut seconds = Curve::new("relist storm, time until all is current", "clusters", "s", "");
    for &clusters in &args.clusters {
        let mut stage = Stage::new(args, Size { clusters, nodes: args.nodes }, &template).await?;
        let watches = stage.node_watches();
        stage.start()?;
        stage.watched_since(&watches, 1).await?;
        stage.settled().await?;
        stage.quiet().await?;
        tokio::time::sleep(SETTLE).await;
        for _ in 0..args.runs {
            let (ratio, time) = storm(&mut stage).await?;
            println!("{clusters} clusters: storm over after {time:.1} s, peak {ratio:.2}× steady");
            peak.add(clusters, ratio);
            seconds.add(clusters, time);
        }
    }
    Ok(vec![peak, seconds])
}

async fn storm(stage: &mut Stage) -> Result<(f64, f64)> {
    let process = stage.process()?;
    let steady = process.rss()?;
    process.forget_peak()?;
    stage.spoil(0, &"refuse-connections".parse()?);
    // A watch that is still served would be told of the expiry, and need not ask to be told.
    stage.until("nobody is connected", |stage| stage.fleet.totals().connections_open == 0).await?;
    for worker in &stage.fleet.workers {
        let store = &worker.state.store;
        // Other objects have moved the version of a real server meanwhile.
        store.skip_to(store.version() + 1);
        store.compact();
    }
    let (watches, began) = (stage.node_watches(), Instant::now());
    stage.spoil(0, &Plan::default());
    stage.watched_since(&watches, 2).await?;
    stage.settled().await?;
    let time = began.elapsed().as_secs_f64();
    stage.quiet().await?;
    tokio::time::sleep(SETTLE).await;
    Ok((process.peak()? / steady, time))
}
