//! Resident memory a joined cluster and a watched node, and sockets a cluster.

use std::sync::Arc;

use anyhow::{Result, ensure};
use fedq_sim::nodes::Template;

use super::SETTLE;
use crate::args::Args;
use crate::figures::{Curve, count};
use crate::peers::{self, Peer};
use crate::stage::{Size, Stage};

/// Of one client.
struct Curves {
    peer: Option<Peer>,
    clusters: Curve,
    nodes: Curve,
    sockets: Curve,
}

impl Curves {
    fn new(peer: Option<Peer>) -> Self {
        let who = peer.map_or("fedq", Peer::name);
        let goal = |goal| if peer.is_none() { goal } else { "" };
        let curve = |name: &str, x, unit, of| Curve::new(name, x, unit, goal(of)).by(who).slope_of();
        Self {
            peer,
            clusters: curve("memory by clusters without nodes", "clusters", "bytes", "≤100 kB each"),
            nodes: curve("memory by nodes", "nodes", "bytes", "≤160 B each"),
            sockets: curve("connections", "clusters", "", "1 each"),
        }
    }
}

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::small());
    let others = if args.alone { &[][..] } else { &peers::ALL };
    let sides = [None].into_iter().chain(others.iter().copied().map(Some));
    let mut all: Vec<Curves> = sides.map(Curves::new).collect();
    for _ in 0..args.runs {
        for &number in &args.clusters {
            let mut stage = Stage::new(args, Size { clusters: number, nodes: 0 }, &template).await?;
            for of in &mut all {
                let (bytes, open) = resident(&mut stage, of.peer).await?;
                println!("{number} clusters, {}: {:.1} MB, {open} connections", of.clusters.who, bytes / 1e6);
                ensure!(of.peer.is_some() || open == number as u64, "more than one connection a cluster");
                of.clusters.add(number, bytes);
                of.sockets.add(number, count(open));
            }
        }
        for &each in &args.nodes_each {
            let size = Size { clusters: args.nodes_clusters, nodes: each };
            let mut stage = Stage::new(args, size, &template).await?;
            let nodes = size.clusters * each;
            for of in &mut all {
                let (bytes, _) = resident(&mut stage, of.peer).await?;
                println!("{nodes} nodes, {}: {:.1} MB", of.nodes.who, bytes / 1e6);
                of.nodes.add(nodes, bytes);
            }
        }
    }
    Ok(all.into_iter().flat_map(|of| [of.clusters, of.nodes, of.sockets]).collect())
}

/// Memory once everything is known and quiet, and connections to the workers.
async fn resident(stage: &mut Stage, peer: Option<Peer>) -> Result<(f64, u64)> {
    let Some(peer) = peer else {
        let before = stage.node_watches();
        stage.start()?;
        stage.watched_since(&before, 1).await?;
        stage.settled().await?;
        stage.quiet().await?;
        tokio::time::sleep(SETTLE).await;
        let measured = (stage.process()?.rss()?, stage.fleet.totals().connections_open);
        stage.stop().await?;
        return Ok(measured);
    };
    let running = stage.peer(peer).await?;
    tokio::time::sleep(SETTLE).await;
    Ok((running.process.rss()?, stage.fleet.totals().connections_open))
}
