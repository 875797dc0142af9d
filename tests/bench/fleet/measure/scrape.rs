//! What a scrape costs: bytes as they are sent, plain and packed, series, and CPU of the daemon.

use std::sync::Arc;

use anyhow::{Result, ensure};
use fedq_sim::nodes::Template;

use super::SETTLE;
use crate::args::Args;
use crate::figures::{Curve, count};
use crate::stage::{Size, Stage};

/// So many that the CPU of one is more than the clock's step.
const TIMES: usize = 20;

/// As Prometheus asks: once for the text as it is, once for what it takes by default.
const WAYS: [(&str, &str, &str); 2] = [("plain", "", ""), ("packed", "accept-encoding: gzip\r\n", "≤1 MB")];

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::small());
    let mut series = Curve::new("series of a scrape", "clusters", "", "");
    let mut costs: Vec<[Curve; 2]> = WAYS
        .iter()
        .map(|(way, _, goal)| {
            let bytes = Curve::new(&format!("bytes of a scrape, {way}"), "clusters", "bytes", goal);
            [bytes, Curve::new(&format!("CPU of a scrape, {way}"), "clusters", "ms", "≤20 ms")]
        })
        .collect();
    for &clusters in &args.clusters {
        let mut stage = Stage::new(args, Size { clusters, nodes: args.nodes }, &template).await?;
        stage.start()?;
        stage.settled().await?;
        stage.quiet().await?;
        tokio::time::sleep(SETTLE).await;
        let text = String::from_utf8(stage.daemon()?.scrape("").await?)?;
        let samples = text.lines().filter(|line| line.starts_with("fedq_") || line.starts_with("process_"));
        let samples = samples.count();
        ensure!(clusters < samples, "{samples} series of {clusters} clusters");
        series.add(clusters, count(samples));
        for _ in 0..args.runs {
            for ((way, headers, _), [bytes, cpu]) in WAYS.iter().zip(&mut costs) {
                let (mut sent, began) = (0, stage.process()?.cpu_seconds()?);
                for _ in 0..TIMES {
                    sent += stage.daemon()?.scrape(headers).await?.len();
                }
                let millis = (stage.process()?.cpu_seconds()? - began) * 1e3 / count(TIMES);
                bytes.add(clusters, count(sent / TIMES));
                cpu.add(clusters, millis);
                println!(
                    "{clusters} clusters, {way}: {samples} series, {} bytes, {millis:.2} ms",
                    sent / TIMES
                );
            }
        }
    }
    Ok(std::iter::once(series).chain(costs.into_iter().flatten()).collect())
}
