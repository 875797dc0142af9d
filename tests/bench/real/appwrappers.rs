//! AppWrappers of one Job each, under our operator and then under upstream's, on the same server with real Kueue: how long
//! until all run, what the operator took for it, and what it does at rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream};
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use super::appwrapper_stage::{APPWRAPPER, OURS, Operator, UPSTREAMS, remove_webhooks};
use super::support::audit::Mark;
use super::support::cluster::{Cluster, has_condition, id};
use super::support::fleet::Fleet;
use super::support::nodes::{CASE_LABEL, node};
use super::support::tools::{self, Tools};
use super::support::wait::{Seen, eventually};

const PLACE: &str = "bench-appwrappers";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// How many are created at once.
const CREATORS: usize = 16;
const PODS_A_NODE: usize = 250;
const WITHIN: Duration = Duration::from_mins(15);
/// Until what is left of the work is done.
const QUIET: Duration = Duration::from_secs(15);

pub struct Sizes {
    pub count: usize,
    pub rest: Duration,
}

/// Of one operator.
#[derive(Debug)]
struct Figures {
    operator: &'static str,
    seconds_running: f64,
    seconds_ready: f64,
    cpu_seconds: f64,
    rss_mb: f64,
    peak_rss_mb: f64,
    /// By verb and resource.
    requests: BTreeMap<String, u32>,
    rest_requests: BTreeMap<String, u32>,
    rest_cpu_seconds: f64,
    seconds_removed: f64,
    removal_cpu_seconds: f64,
}

pub async fn run(sizes: &Sizes) -> Result<()> {
    tools::measure_what_is_shipped();
    println!("Building both operators, and starting a hub and two workers with Kueue.");
    tokio::task::spawn_blocking(|| tools::fedq_appwrapper().and_then(|_| tools::appwrapper_operator()))
        .await??;
    let tools = Arc::new(tokio::task::spawn_blocking(Tools::find_or_build).await??);
    let fleet = Fleet::start(&tools).await.context("the real clusters did not come up")?;
    let cluster = fleet.worker1();
    lay(cluster, sizes.count).await?;
    // Ours first: it does not run where anything of upstream's is.
    let ours = measure(&fleet, cluster, Operator::Ours, sizes).await.context("ours")?;
    remove_webhooks(cluster).await?;
    let upstreams = measure(&fleet, cluster, Operator::Upstreams, sizes).await.context("upstream's")?;
    fleet.stop();
    let all = [ours, upstreams];
    print(sizes, &all);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");
    std::fs::create_dir_all(folder).context(folder)?;
    let report =
        json!({"count": sizes.count, "operators": all.iter().map(Figures::json).collect::<Vec<_>>()});
    std::fs::write(format!("{folder}/appwrappers.json"), format!("{report:#}\n"))?;
    Ok(())
}

async fn measure(fleet: &Fleet, cluster: &Cluster, operator: Operator, sizes: &Sizes) -> Result<Figures> {
    let (name, user) = match operator {
        Operator::Ours => ("fedq-appwrapper", OURS),
        Operator::Upstreams => ("upstream's", UPSTREAMS),
    };
    let running = operator.start(fleet, cluster, PLACE).await?;
    let process = running.server.id();
    tokio::time::sleep(QUIET).await;
    println!("{name} runs; making {} AppWrappers.", sizes.count);

    let (mark, began, cpu) = (cluster.mark()?, Instant::now(), cpu_seconds(process)?);
    let all_there = tokio::join!(create(cluster, sizes.count), all_run(cluster, sizes.count, began));
    all_there.0?;
    let (seconds_running, seconds_ready) = all_there.1?;
    tokio::time::sleep(QUIET).await;
    let cpu_seconds_of_work = cpu_seconds(process)? - cpu;
    let requests = requests(cluster, mark, user)?;
    let (rss_mb, peak_rss_mb) = memory(process)?;

    let (mark, cpu) = (cluster.mark()?, cpu_seconds(process)?);
    tokio::time::sleep(sizes.rest).await;
    let rest_cpu_seconds = cpu_seconds(process)? - cpu;
    let rest_requests = self::requests(cluster, mark, user)?;

    println!("Removing them.");
    let (began, cpu) = (Instant::now(), cpu_seconds(process)?);
    remove(cluster, sizes.count).await?;
    let seconds_removed = began.elapsed().as_secs_f64();
    let removal_cpu_seconds = cpu_seconds(process)? - cpu;
    Ok(Figures {
        operator: name,
        seconds_running,
        seconds_ready,
        cpu_seconds: cpu_seconds_of_work,
        rss_mb,
        peak_rss_mb,
        requests,
        rest_requests,
        rest_cpu_seconds,
        seconds_removed,
        removal_cpu_seconds,
    })
}

/// Nodes and quota for all of them at once: nobody waits for another.
async fn lay(cluster: &Cluster, count: usize) -> Result<()> {
    let nodes: Vec<_> = (0..count.div_ceil(PODS_A_NODE))
        .map(|number| {
            let node = node(PLACE, &number.to_string());
            node.allocatable("pods", &PODS_A_NODE.to_string()).allocatable("cpu", "1000")
        })
        .collect();
    cluster.add_nodes(&nodes).await?;
    let quota = json!({"name": "cpu", "nominalQuota": count.to_string()});
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}}),
        json!({
            "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": PLACE},
            "spec": {"nodeLabels": {CASE_LABEL: PLACE}},
        }),
        json!({
            "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": PLACE},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": ["cpu"], "flavors": [{"name": PLACE, "resources": [quota]}],
            }]},
        }),
        json!({
            "apiVersion": KUEUE, "kind": "LocalQueue", "metadata": {"name": PLACE, "namespace": PLACE},
            "spec": {"clusterQueue": PLACE},
        }),
    ] {
        cluster.apply_object("fedq-test", object).await?;
    }
    Ok(())
}

fn wrapper(number: usize) -> Result<DynamicObject> {
    let name = format!("wrapped-{number:05}");
    // The server's own controllers take longer for so many pods than an operator waits for them by default.
    let patience = ["admissionGracePeriodDuration", "warmupGracePeriodDuration"]
        .map(|key| (format!("workload.codeflare.dev.appwrapper/{key}"), json!("1h")));
    let patience: serde_json::Map<String, Value> = patience.into_iter().collect();
    Ok(serde_json::from_value(json!({
        "apiVersion": APPWRAPPER, "kind": "AppWrapper",
        "metadata": {
            "name": name, "namespace": PLACE, "annotations": patience,
            "labels": {"kueue.x-k8s.io/queue-name": PLACE},
        },
        "spec": {"suspend": true, "components": [{"template": {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": {
                "metadata": {"annotations": {
                    "pod-complete.stage.kwok.x-k8s.io/delay": "86400s",
                    "pod-complete.stage.kwok.x-k8s.io/jitter-delay": "86400s",
                }},
                "spec": {
                    "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "main", "image": "example.invalid/main", "resources": {"requests": {"cpu": "1"}},
                    }],
                },
            }},
        }}]},
    }))?)
}

async fn api(cluster: &Cluster) -> Result<Api<DynamicObject>> {
    cluster.api(id(APPWRAPPER, "AppWrapper", "any").within(PLACE)).await
}

async fn create(cluster: &Cluster, count: usize) -> Result<()> {
    let api = api(cluster).await?;
    let api = &api;
    let made = stream::iter(0..count).map(|number| async move {
        api.create(&PostParams::default(), &wrapper(number)?).await?;
        anyhow::Ok(())
    });
    let mut made = std::pin::pin!(made.buffer_unordered(CREATORS));
    while let Some(made) = made.next().await {
        made?;
    }
    Ok(())
}

/// Seconds until all were Running, and until all had their pods.
async fn all_run(cluster: &Cluster, count: usize, began: Instant) -> Result<(f64, f64)> {
    let objects = watcher(api(cluster).await?, watcher::Config::default()).default_backoff();
    let mut objects = objects.applied_objects().boxed();
    let (mut running, mut ready) = (BTreeMap::new(), BTreeMap::new());
    let all = async {
        while let Some(object) = objects.next().await {
            let Ok(object) = object else { continue };
            let value = serde_json::to_value(&object)?;
            let name = object.metadata.name.unwrap_or_default();
            match value["status"]["phase"].as_str() {
                Some("Running") => _ = running.entry(name.clone()).or_insert_with(|| began.elapsed()),
                Some("Failed" | "Resetting") => bail!("{name}: {:#}", value["status"]),
                _ => {}
            }
            if has_condition(&value, "PodsReady", "True") {
                ready.entry(name).or_insert_with(|| began.elapsed());
            }
            if ready.len() == count && running.len() == count {
                break;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(WITHIN, all).await.context("not all run")??;
    let last = |all: &BTreeMap<String, Duration>| all.values().max().map_or(0.0, Duration::as_secs_f64);
    Ok((last(&running), last(&ready)))
}

async fn remove(cluster: &Cluster, count: usize) -> Result<()> {
    let api = api(cluster).await?;
    let api = &api;
    let gone = stream::iter(0..count).map(|number| async move {
        api.delete(&format!("wrapped-{number:05}"), &kube::api::DeleteParams::background()).await?;
        anyhow::Ok(())
    });
    let mut gone = std::pin::pin!(gone.buffer_unordered(CREATORS));
    while let Some(gone) = gone.next().await {
        gone?;
    }
    eventually("all to be gone", WITHIN, async || {
        let left = cluster.list(APPWRAPPER, "AppWrapper", Some(PLACE)).await?.len();
        Ok(Seen::when(left == 0, || format!("{left} are left")))
    })
    .await
}

fn requests(cluster: &Cluster, mark: Mark, user: &str) -> Result<BTreeMap<String, u32>> {
    let mut counts = BTreeMap::new();
    for request in cluster.requests_since(mark)?.into_iter().filter(|request| request.user == user) {
        *counts.entry(format!("{} {}", request.verb, request.resource)).or_default() += 1;
    }
    Ok(counts)
}

/// User and system, in hundredths.
fn cpu_seconds(process: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = text.rsplit_once(") ").context("/proc/PID/stat")?;
    let ticks = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() / 100.0)
}

/// Resident now, and at most so far.
fn memory(process: u32) -> Result<(f64, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let kb = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).context(name.to_owned())
    };
    Ok((kb("VmRSS:")? / 1024.0, kb("VmHWM:")? / 1024.0))
}

fn total(counts: &BTreeMap<String, u32>) -> f64 {
    f64::from(counts.values().sum::<u32>())
}

/// What keeps the Lease goes on in any case.
fn without_lease(counts: &BTreeMap<String, u32>) -> f64 {
    let others = counts.iter().filter(|(what, _)| !what.contains("leases"));
    f64::from(others.map(|(_, count)| count).sum::<u32>())
}

impl Figures {
    fn json(&self) -> Value {
        json!({
            "operator": self.operator,
            "secondsToAllRunning": self.seconds_running,
            "secondsToAllReady": self.seconds_ready,
            "cpuSeconds": self.cpu_seconds,
            "rssMegabytes": self.rss_mb,
            "peakRssMegabytes": self.peak_rss_mb,
            "requests": self.requests,
            "requestsAtRest": self.rest_requests,
            "cpuSecondsAtRest": self.rest_cpu_seconds,
            "secondsToAllGone": self.seconds_removed,
            "cpuSecondsOfRemoval": self.removal_cpu_seconds,
        })
    }
}

fn print(sizes: &Sizes, all: &[Figures; 2]) {
    let [ours, upstreams] = all;
    println!("\n{} AppWrappers of one Job each", sizes.count);
    println!("{:<52}{:>12}{:>12}{:>9}", "", "ours", "upstream's", "ratio");
    let row = |what: &str, figure: fn(&Figures) -> f64| {
        let (here, there) = (figure(ours), figure(upstreams));
        let ratio = if 0.0 < there { format!("{:.2}", here / there) } else { String::new() };
        println!("{what:<52}{here:>12.2}{there:>12.2}{ratio:>9}");
    };
    row("seconds until all are Running", |all| all.seconds_running);
    row("seconds until all have their pods", |all| all.seconds_ready);
    row("CPU seconds of the operator until then", |all| all.cpu_seconds);
    row("resident MB with all of them", |all| all.rss_mb);
    row("resident MB at most", |all| all.peak_rss_mb);
    row("requests until then", |all| total(&all.requests));
    row("requests at rest, without the Lease's", |all| without_lease(&all.rest_requests));
    row("requests at rest, all", |all| total(&all.rest_requests));
    row("CPU seconds at rest", |all| all.rest_cpu_seconds);
    row("seconds until all are gone", |all| all.seconds_removed);
    row("CPU seconds of that", |all| all.removal_cpu_seconds);
    println!("(rest: {} s)", sizes.rest.as_secs());
    for one in all {
        println!("{}: {:?}; at rest {:?}", one.operator, one.requests, one.rest_requests);
    }
}
