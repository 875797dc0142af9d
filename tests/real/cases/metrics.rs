//! Prometheus reads what fedqd tells of itself.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::stage::{Assign, GPU, KUEUE, SOON, Stage, ground, holds, queue};
use crate::support::cluster::id;
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::tools::prometheus;

const README: &str = include_str!("../../../README.md");
/// What only happens where something goes wrong, or fedq runs tasks; `tests/sim` has samples of each of them.
const ELSEWHERE: [&str; 4] =
    ["fedq_watch_restarts_total", "fedq_cluster_refusals_total", "fedq_task_events_total", "fedq_insecure"];
/// Of scrapes, one a second.
const SECONDS: &str = "20";

pub async fn prometheus_scrapes_and_finds_every_metric(fleet: &Fleet) -> Result<()> {
    let case = "scrape";
    let program = tokio::task::spawn_blocking(prometheus).await??;
    let stage = Stage::set(fleet, "prometheus_scrapes_and_finds_every_metric", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "scrape-queue", &[(GPU, "0")], "")).await?;
    stage.join("scrape-one", worker).await?;
    let one = Assign { queue: "scrape-queue", flavor: case, resources: &[("gpu", "5")] };
    stage.assign("scrape-one", &[one]).await?;
    holds(hub, "scrape-queue", case, &[(GPU, "5")]).await?;
    let local_queue = id(KUEUE, "LocalQueue", "scrape-queue").within(case);
    worker.wait(local_queue, "copied", SOON, Value::is_object).await?;

    let mut queries: Vec<String> = listed()?
        .into_iter()
        .filter(|name| !ELSEWHERE.contains(name))
        .map(|name| format!("{{__name__=~\"{name}(_count)?\",job=\"fedq\"}}"))
        .collect();
    ensure!(15 < queries.len(), "the README lists only {queries:?}");
    queries.extend(
        [
            "fedq_cluster_connection{cluster=\"scrape-one\",state=\"Ready\"} == 1",
            "sum by (code) (rate(fedq_api_requests_total{cluster=\"scrape-one\",verb=\"get\",code=\"200\"}[1m]))",
            "histogram_quantile(0.99, sum by (le) (rate(fedq_reconcile_seconds_bucket[1m])))",
            "time() - fedq_cluster_last_seen_timestamp_seconds{cluster=\"scrape-one\"} < 60",
            "fedq_cluster_pending_workloads{cluster=\"scrape-one\"} == 0",
            "fedq_build_info == 1",
        ]
        .map(str::to_owned),
    );
    let url = format!("{}/metrics", stage.daemon.base_url());
    let run = Command::new(program).arg(url).arg(SECONDS).args(&queries).kill_on_drop(true).output();
    let ran =
        tokio::time::timeout(Duration::from_mins(2), run).await.context("Prometheus took too long")??;
    println!("{}", String::from_utf8_lossy(&ran.stdout));
    ensure!(ran.status.success(), "Prometheus says:\n{}", String::from_utf8_lossy(&ran.stderr));
    Ok(())
}

/// Every name in the README's table of metrics.
fn listed() -> Result<Vec<&'static str>> {
    let table = README.split("`/metrics` has:").nth(1).context("the README has a table of metrics")?;
    let rows =
        table.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    let names = rows.filter_map(|row| row.split('|').nth(1));
    Ok(names
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter_map(|name| name.split('{').next())
        .collect())
}
