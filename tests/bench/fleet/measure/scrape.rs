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

/// A way to ask, and what shows in the head of an answer that it was taken.
struct Way {
    name: &'static str,
    headers: &'static str,
    answered: [&'static str; 2],
    goal: &'static str,
}

/// Both formats as they are, and packed, which is how Prometheus asks: version 3 with this `Accept`.
const WAYS: [Way; 4] = [
    Way { name: "text", headers: "", answered: ["text/plain; version=0.0.4", ""], goal: "" },
    Way {
        name: "text, packed",
        headers: "accept-encoding: gzip\r\n",
        answered: ["text/plain; version=0.0.4", "content-encoding: gzip"],
        goal: "≤1 MB",
    },
    Way {
        name: "OpenMetrics",
        headers: "accept: application/openmetrics-text;version=1.0.0\r\n",
        answered: ["application/openmetrics-text; version=1.0.0", ""],
        goal: "",
    },
    Way {
        name: "OpenMetrics, packed",
        headers: "accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                  application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                  text/plain;version=0.0.4;q=0.3,*/*;q=0.2\r\naccept-encoding: gzip\r\n",
        answered: ["application/openmetrics-text; version=1.0.0", "content-encoding: gzip"],
        goal: "≤1 MB",
    },
];

pub async fn measure(args: &Args) -> Result<Vec<Curve>> {
    let template = Arc::new(Template::small());
    let mut series = Curve::new("series of a scrape", "clusters", "", "");
    let mut costs: Vec<[Curve; 2]> = WAYS
        .iter()
        .map(|Way { name, goal, .. }| {
            let bytes = Curve::new(&format!("bytes of a scrape, {name}"), "clusters", "bytes", goal);
            [bytes, Curve::new(&format!("CPU of a scrape, {name}"), "clusters", "ms", "≤20 ms")]
        })
        .collect();
    for &clusters in &args.clusters {
        let mut stage = Stage::new(args, Size { clusters, nodes: args.nodes }, &template).await?;
        stage.start()?;
        stage.settled().await?;
        stage.quiet().await?;
        tokio::time::sleep(SETTLE).await;
        let text = String::from_utf8(stage.daemon()?.scrape("").await?.1)?;
        let samples = text.lines().filter(|line| line.starts_with("fedq_") || line.starts_with("process_"));
        let samples = samples.count();
        ensure!(clusters < samples, "{samples} series of {clusters} clusters");
        series.add(clusters, count(samples));
        for _ in 0..args.runs {
            for (way, [bytes, cpu]) in WAYS.iter().zip(&mut costs) {
                let (mut sent, began) = (0, stage.process()?.cpu_seconds()?);
                for _ in 0..TIMES {
                    let (head, body) = stage.daemon()?.scrape(way.headers).await?;
                    let taken = way.answered.iter().all(|told| head.contains(told));
                    ensure!(taken, "{} was answered with {head}", way.name);
                    sent += body.len();
                }
                let millis = (stage.process()?.cpu_seconds()? - began) * 1e3 / count(TIMES);
                bytes.add(clusters, count(sent / TIMES));
                cpu.add(clusters, millis);
                println!(
                    "{clusters} clusters, {}: {samples} series, {} bytes, {millis:.2} ms",
                    way.name,
                    sent / TIMES
                );
            }
        }
    }
    Ok(std::iter::once(series).chain(costs.into_iter().flatten()).collect())
}
