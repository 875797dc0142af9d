//! Prometheus reads what fedqd tells of itself.

use std::collections::BTreeMap;
use std::future::ready;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::http::{HeaderMap, header};
use axum::routing::get;
use fedq_base::telemetry::{Format, Metrics};
use fedq_domain::cluster::Connection;
use fedq_values::ids::ClusterName;
use serde_json::Value;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::stage::{Assign, GPU, KUEUE, SOON, Stage, ground, holds, queue};
use crate::support::cluster::id;
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::tools::prometheus;

const PAGE: &str = include_str!("../../../docs/observability.md");
const RULES: &str = "deploy/prometheus/rules.yml";
const DASHBOARD: &str = include_str!("../../../deploy/prometheus/dashboard.json");
/// What only happens where something goes wrong, or fedq runs tasks, or MultiKueue sends work, or nodes could come. Prometheus
/// finds them in `prometheus_raises_alerts_and_takes_any_label`, and `tests/sim` in a fedqd.
const ELSEWHERE: [&str; 6] = [
    "fedq_watch_restarts_total",
    "fedq_cluster_refusals_total",
    "fedq_task_events_total",
    "fedq_insecure",
    "fedq_admission_seconds",
    "fedq_quota_coming",
];

pub async fn prometheus_scrapes_and_finds_every_metric(fleet: &Fleet) -> Result<()> {
    let case = "scrape";
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
    ensure!(15 < queries.len(), "only these metrics are listed: {queries:?}");
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
    queries.extend(shown()?);
    let url = format!("{}/metrics", stage.daemon.base_url());
    let alerts = scraped(&url, 60, &queries).await?;
    let raised: Vec<&String> = alerts.iter().filter(|(_, raised)| **raised).map(|(name, _)| name).collect();
    ensure!(raised.is_empty(), "all is well, and yet {raised:?}");
    Ok(())
}

/// What a fedqd in trouble tells, and what none ever told: a label value of a megabyte.
pub async fn prometheus_raises_alerts_and_takes_any_label(_: &Fleet) -> Result<()> {
    let metrics = Metrics::new();
    let cluster = ClusterName::new("worker-1")?;
    let nasty = format!("a\"}} 1\nfedq_x 2 \\{}", "é".repeat(1 << 19));
    metrics.connection(&cluster, &Connection::Refused { reason: "exec".to_owned() });
    metrics.insecure("insecureXUser", true);
    metrics.task_event(fedq_domain::task::event::Reason::Chosen);
    metrics.watch_restarted(&cluster, &nasty, "Expired");
    let told = metrics.clone();
    let exposition = move |headers: HeaderMap| {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let (format, text) = (Format::accepted(accept), told.encode().expect("encodes"));
        ready(([(header::CONTENT_TYPE, format.content_type())], format.of(text)))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/metrics", listener.local_addr()?);
    let mut beside = JoinSet::new();
    beside.spawn(async move {
        axum::serve(listener, Router::new().route("/metrics", get(exposition))).await.expect("it serves");
    });
    let at = fedq_domain::resources::FlavorResource {
        flavor: fedq_values::ids::FlavorName::new("gpus")?,
        resource: fedq_values::ids::ResourceName::new(GPU)?,
    };
    let coming = fedq_values::quantity::Amount::new(8);
    let zero = fedq_base::telemetry::QuotaGauge::zero(at);
    metrics.quota(&cluster, &[fedq_base::telemetry::QuotaGauge { coming, ..zero }]);
    beside.spawn(async move {
        loop {
            metrics.refused(&cluster, "Forbidden");
            metrics.reconciled("quota", Duration::from_millis(1), true);
            metrics.committed(Duration::from_millis(1), false);
            metrics.admitted_by(&cluster, Duration::from_mins(20));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let names = ELSEWHERE.map(|name| format!("{{__name__=~\"{name}(_count)?\",job=\"fedq\"}}"));
    let mut queries = names.to_vec();
    queries.push("fedq_watch_restarts_total{kind=~\"(?s)a\\\"} 1\\nfedq_x 2 .*é\"} == 1".to_owned());
    let alerts = scraped(&url, 12, &queries).await?;
    for (name, raised) in &alerts {
        ensure!(*raised == (name != "FedqDown"), "{name}: {raised}");
    }
    ensure!(alerts.len() == 7, "{alerts:?}");
    Ok(())
}

/// Scrapes each second for so long; which alerts are raised then.
async fn scraped(url: &str, seconds: u64, queries: &[String]) -> Result<BTreeMap<String, bool>> {
    let program = tokio::task::spawn_blocking(prometheus).await??;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join(RULES);
    let mut run = Command::new(program);
    run.arg(url).arg(seconds.to_string()).arg(rules).args(queries).kill_on_drop(true);
    let ran = tokio::time::timeout(Duration::from_mins(3), run.output());
    let ran = ran.await.context("Prometheus took too long")??;
    ensure!(ran.status.success(), "Prometheus says:\n{}", String::from_utf8_lossy(&ran.stderr));
    let said = String::from_utf8(ran.stdout)?;
    let alert = |line: &str| {
        let (name, raised) = line.strip_prefix("alert ")?.split_once(' ')?;
        Some((name.to_owned(), raised == "true"))
    };
    said.lines().map(|line| alert(line).with_context(|| line.to_owned())).collect()
}

/// What the dashboard asks, of everything: whether it can be read. That it asks for what there is, `tests/architecture` shows; not
/// all of it happens to this fedqd.
fn shown() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(DASHBOARD)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let asked = targets.filter_map(|target| target["expr"].as_str()).map(|expression| {
        let mut expression = expression.replace("$__rate_interval", "1m");
        for variable in ["$cluster", "$flavor", "$resource"] {
            expression = expression.replace(variable, ".+");
        }
        format!("({expression}) or vector(0)")
    });
    let asked: Vec<String> = asked.collect();
    ensure!(20 < asked.len(), "{asked:?}");
    Ok(asked)
}

/// Every name in the table of metrics.
fn listed() -> Result<Vec<&'static str>> {
    let table =
        PAGE.split("`/metrics` has:").nth(1).context("docs/observability.md has a table of metrics")?;
    let rows =
        table.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    let names = rows.filter_map(|row| row.split('|').nth(1));
    Ok(names
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter_map(|name| name.split('{').next())
        .collect())
}
