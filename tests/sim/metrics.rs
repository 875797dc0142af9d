//! What `/metrics` shows after a small story.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use fedq_sim::cluster::{Cluster, Options};

use super::bed::{KUEUE, WITHIN, wait};
use super::tasks::stage::{Stage, wrong};

const PAGE: &str = include_str!("../../docs/observability.md");

/// Every name in the table of metrics.
fn listed() -> BTreeSet<&'static str> {
    let table = PAGE.split("`/metrics` has:").nth(1).unwrap();
    let rows =
        table.lines().skip_while(|line| !line.starts_with("| `")).take_while(|line| line.starts_with('|'));
    let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    names.map(|name| name.split('{').next().unwrap()).collect()
}

async fn scrape(address: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

/// A series, or what a histogram is made of.
fn has_sample(text: &str, name: &str) -> bool {
    let sample = |line: &str| {
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']) || rest.starts_with("_count"))
    };
    text.lines().any(sample)
}

/// Where this start of fedqd tells its metrics.
fn address(stage: &Stage) -> String {
    let log = stage.bed.log();
    let told = log.split("Metrics are on http://").last().expect("fedqd listens");
    told.split("/metrics").next().unwrap().to_owned()
}

/// The series of a metric with their values.
fn series<'t>(text: &'t str, name: &str) -> BTreeMap<&'t str, f64> {
    let of = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{')));
    of.filter_map(|line| line.rsplit_once(' ')).map(|(key, value)| (key, value.parse().unwrap())).collect()
}

async fn shows(stage: &Stage, what: &str, mut holds: impl FnMut(&str) -> bool) {
    let (address, began) = (address(stage), Instant::now());
    loop {
        let text = scrape(&address).await;
        if holds(&text) {
            return;
        }
        assert!(began.elapsed() < WITHIN, "{what}:\n{text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_that_is_listed_has_samples() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let task = stage.submit(1, "run: x\nresources: {accelerators: 6}\n").await;
    stage.reaches(&task, "succeeded").await;
    stage.worker("one").remove("Node", "b").await.unwrap();
    stage.worker("one").state.faults.break_connections();

    // One that does not take what it is to have.
    wrong(stage.worker("two"), "create localqueues: forbidden");
    let mut queue = (*stage.bed.hub.get("LocalQueue", "team", "queue").unwrap()).clone();
    queue["metadata"] = json!({"namespace": queue["metadata"]["namespace"], "name": "another"});
    stage.bed.hub.put(queue).await.unwrap();

    // More nodes could come.
    let most = json!({"metadata": {"annotations": {"fedq.dev/max-capacity": "example.com/licence=4"}}});
    stage.bed.hub.merge("ResourceFlavor", "gpus", most).await.unwrap();

    let mut listed = listed();
    assert_eq!(listed.len(), 28, "{listed:?}");
    // Only Kueue itself gives a Workload to a cluster: the real case of MultiKueue's stories finds its samples.
    assert!(listed.remove("fedq_admission_seconds"), "{listed:?}");
    shows(&stage, &format!("not all of {listed:?}"), |text| listed.iter().all(|name| has_sample(text, name)))
        .await;
    for kind in ["clusterresourceclaims", "clusterqueues"] {
        let written = format!("fedq_writes_total{{cluster=\"hub\",kind=\"{kind}\"}}");
        shows(&stage, &written, |text| has_sample(text, &written)).await;
    }
    for controller in [
        "admission_check",
        "capacity",
        "claim",
        "cluster",
        "inventory",
        "placement",
        "queue",
        "quota",
        "task",
    ] {
        let runs = format!("fedq_reconcile_seconds_count{{controller=\"{controller}\"}}");
        shows(&stage, &runs, |text| text.contains(&runs)).await;
    }
    for line in [
        "fedq_cluster_connection{cluster=\"one\",state=\"Ready\"} 1",
        "fedq_quota_assigned{cluster=\"one\",flavor=\"gpus\",resource=\"nvidia.com/gpu\"} 8.0",
        "fedq_quota_effective{cluster=\"one\",flavor=\"gpus\",resource=\"nvidia.com/gpu\"} 8.0",
        "fedq_quota_capacity{cluster=\"one\",flavor=\"gpus\",resource=\"nvidia.com/gpu\"} 8.0",
    ] {
        shows(&stage, line, |text| text.lines().any(|found| found == line)).await;
    }
    for beginning in [
        "fedq_api_requests_total{cluster=\"one\",verb=\"get\",code=\"200\"}",
        "fedq_api_requests_total{cluster=\"two\",verb=\"watch\",code=\"200\"}",
        "fedq_api_requests_total{cluster=\"hub\",verb=\"list\",code=\"200\"}",
        "fedq_watch_restarts_total{cluster=\"one\",kind=\"clusterqueues\",reason=\"Disconnected\"}",
        "fedq_watch_restarts_total{cluster=\"one\",kind=\"nodes\",reason=\"Disconnected\"}",
    ] {
        shows(&stage, beginning, |text| text.contains(beginning)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gauges_of_a_cluster_that_left_go() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let gauges = ["fedq_cluster_connection{cluster=\"two\"", "fedq_quota_capacity{cluster=\"two\""];
    for gauge in gauges {
        shows(&stage, gauge, |text| text.contains(gauge)).await;
    }
    stage.bed.hub.remove_in("fedq-system", "Secret", "fedq-cluster-two").await.unwrap();
    for gauge in gauges {
        shows(&stage, &format!("no {gauge}"), |text| !text.contains(gauge)).await;
    }
    shows(&stage, "one", |text| text.contains("fedq_quota_capacity{cluster=\"one\"")).await;
}

/// A Job that asks for so many GPUs of the team's quota.
fn asking_job(name: &str, gpus: &str) -> Value {
    let container = json!({
        "name": "c", "image": "i",
        "resources": {"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}},
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "queue"}},
        "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_on_a_silent_cluster_is_not_told_and_what_is_decided_is() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let one = stage.worker("one");
    one.put(asking_job("large", "9")).await.unwrap();
    let waits = |cluster, count| format!("fedq_cluster_pending_workloads{{cluster=\"{cluster}\"}} {count}\n");
    for line in [waits("one", 1), waits("two", 0)] {
        shows(&stage, &line, |text| text.contains(&line)).await;
    }
    wrong(one, "hang");
    one.state.faults.break_connections();
    one.remove_in("team", "Job", "large").await.unwrap();
    let stale = "fedq_cluster_connection{cluster=\"one\",state=\"Stale\"} 1\n";
    shows(&stage, "a silence without a number of what waits", |text| {
        text.contains(stale) && !text.contains("fedq_cluster_pending_workloads{cluster=\"one\"}")
    })
    .await;
    let text = scrape(&address(&stage)).await;
    // Decided by fedq, and when it last answered: both stand.
    for kept in [
        "fedq_quota_effective{cluster=\"one\",flavor=\"gpus\",resource=\"nvidia.com/gpu\"} 8.0",
        "fedq_quota_capacity{cluster=\"one\",flavor=\"gpus\",resource=\"nvidia.com/gpu\"} 16.0",
        "fedq_cluster_last_seen_timestamp_seconds{cluster=\"one\"}",
        "fedq_cluster_pending_workloads{cluster=\"two\"} 0",
    ] {
        assert!(text.contains(kept), "no `{kept}`:\n{text}");
    }
    wrong(one, "");
    let line = waits("one", 0);
    shows(&stage, &line, |text| text.contains(&line)).await;
}

/// How often each cluster was asked whether it is still there: each probe takes two requests.
fn probes(text: &str) -> Vec<f64> {
    let requests = series(text, "fedq_api_requests_total");
    let of = |cluster| format!("fedq_api_requests_total{{cluster=\"{cluster}\",verb=\"get\",code=\"200\"}}");
    ["one", "two", "three"].map(|cluster| requests[of(cluster).as_str()] / 2.0).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fedqd_at_rest_tells_nobody_anything_and_writes_nothing() {
    const PERIODS: f64 = 6.0;
    let stage = Stage::set(&[("one", 8), ("two", 4), ("three", 6)]).await;
    let task = stage.submit(1, "run: x\nresources: {accelerators: 6}\n").await;
    stage.reaches(&task, "succeeded").await;
    let clusters = || stage.bed.workers.iter().chain([&stage.bed.hub]);
    let writes = || clusters().map(|cluster| cluster.state.counts.writes()).sum::<u64>();
    let (address, began) = (address(&stage), Instant::now());
    // What came of the task takes a moment to be told.
    loop {
        let (before, written) = (scrape(&address).await, writes());
        let seen = probes(&before);
        let later = |text: &str| probes(text).iter().zip(&seen).all(|(now, seen)| seen + PERIODS <= *now);
        shows(&stage, "probes", later).await;
        let after = scrape(&address).await;
        let told = |text| series(text, "fedq_publications_total");
        if told(&before) == told(&after) && written == writes() {
            assert!(0.0 < told(&after)["fedq_publications_total{of=\"joined\"}"], "it was told of at all");
            return;
        }
        let (before, after) = (told(&before), told(&after));
        assert!(began.elapsed() < WITHIN, "{} writes, {before:?}, {after:?}", writes() - written);
    }
}

/// How many objects fedqd says that it has written to a cluster, by kind.
fn told_of_writes(text: &str, cluster: &str) -> BTreeMap<String, u64> {
    let prefix = format!("fedq_writes_total{{cluster=\"{cluster}\",kind=\"");
    let of = text.lines().filter_map(|line| line.strip_prefix(&prefix)?.split_once("\"} "));
    of.map(|(kind, count)| (kind.to_owned(), count.parse().unwrap())).collect()
}

/// A check that a Placement answers, and a Job that has to pass it.
async fn asks_a_placement(hub: &Cluster) {
    let ocm = "cluster.open-cluster-management.io";
    let placement = json!({"apiGroup": ocm, "kind": "Placement", "name": "gpu"});
    for object in [
        json!({
            "apiVersion": format!("{ocm}/v1beta2"), "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "global", "namespace": "kueue-system"}, "spec": {"clusterSet": "global"},
        }),
        json!({
            "apiVersion": format!("{ocm}/v1beta1"), "kind": "Placement",
            "metadata": {"name": "gpu", "namespace": "kueue-system"}, "spec": {},
        }),
        json!({
            "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": "placement"},
            "spec": {"controllerName": "open-cluster-management.io/placement", "parameters": placement},
        }),
    ] {
        hub.put(object).await.unwrap();
    }
    let asks = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "placement"}]}}});
    hub.merge("ClusterQueue", "team", asks).await.unwrap();
    hub.put(asking_job("j", "1")).await.unwrap();
    wait("a Workload that passes the check", hub, || {
        let workloads = hub.list("Workload");
        let mut checks =
            workloads.iter().filter_map(|one| one["status"]["admissionChecks"].as_array()).flatten();
        checks.any(|check| check["name"] == "placement" && check["state"] == "Ready")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_is_counted_as_the_servers_count_it() {
    let hub = Options { ocm: true, ..Options::named("hub") };
    let more = "capacity: {clusterMetrics: {publish: true}}\n";
    let stage = Stage::set_on(hub, &[("one", 8), ("two", 4)], ("", "", more)).await;
    asks_a_placement(&stage.bed.hub).await;
    let task = stage.submit(1, "run: x\nresources: {accelerators: 6}\n").await;
    stage.reaches(&task, "succeeded").await;
    // By people, with their own rights and with fedqd's, and tried only.
    for said in [
        "claim assign one-resource-claim --queue team --flavor gpus gpu=7",
        "cluster cordon two",
        "cluster leave two --yes --dry-run",
        "cluster uncordon two",
    ] {
        stage.fedq(&said.split(' ').collect::<Vec<_>>(), "").await.unwrap();
    }
    stage.bed.holds(stage.worker("one"), "7").await;
    stage.worker("two").remove("Node", "b").await.unwrap();

    let clusters = || stage.bed.workers.iter().chain([&stage.bed.hub]);
    let counted = |text: &str| {
        let pairs = clusters().map(|cluster| {
            let name = &cluster.state.name;
            (name.clone(), (told_of_writes(text, name), cluster.state.counts.written()))
        });
        pairs.collect::<BTreeMap<_, _>>()
    };
    let (address, began) = (address(&stage), Instant::now());
    loop {
        let before = counted(&scrape(&address).await);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = counted(&scrape(&address).await);
        if before == now && now.values().all(|(told, counted)| told == counted) {
            break;
        }
        assert!(began.elapsed() < WITHIN, "{now:#?}");
    }
    let counted = counted(&scrape(&address).await);
    for (cluster, kinds) in [
        ("one", &["clusterqueues", "jobs", "localqueues", "resourceflavors", "serviceaccounts"][..]),
        (
            "hub",
            &[
                "addonplacementscores",
                "admissionchecks",
                "clustermetrics",
                "clusterqueues",
                "clusterresourceclaims",
                "events",
                "managedclusters",
                "multikueueclusters",
                "multikueueconfigs",
                "placementdecisions",
                "placements",
                "secrets",
                "workloads",
            ],
        ),
    ] {
        let (told, _) = &counted[cluster];
        let missing: Vec<_> = kinds.iter().filter(|kind| !told.contains_key(**kind)).collect();
        assert!(missing.is_empty(), "no {missing:?} on {cluster}, but {told:?}");
    }
}
