//! What happens to fedqd itself: killed, its database broken or without space, its clock set.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use fedq_sim::cluster::Cluster;
use serde_json::json;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::super::bed::gpu_node;
use super::preload::Preload;
use super::stage::{Stage, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_a_write_and_its_answer_it_goes_on_from_what_is_there() {
    let mut stage = Stage::set().await;
    for round in 1..=3_i64 {
        let cluster = if round % 2 == 0 { stage.hub() } else { stage.one() };
        let before = super::stage::gpus(cluster);
        wrong(cluster, "patch clusterqueues: lose-answers");
        stage.give(stage.one(), [6 + round, 4]).await;
        let what = format!("the write of round {round}");
        super::super::bed::wait(&what, cluster, || super::stage::gpus(cluster) != before).await;
        wrong(cluster, "");
        stage.kill();
        stage.start();
        stage.holds([[6 + round, 4], [3, 5]]).await;
        stage.mark();
    }
    stage.ends_with([[9, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_it_ends_where_it_would_have() {
    let mut stage = Stage::set().await;
    for round in 1..=5_u64 {
        let gpus = i64::try_from(round).unwrap();
        stage.give(stage.one(), [6 + gpus.min(3), 4]).await;
        stage.give(stage.two(), [3, 5 + gpus]).await;
        // From before the first write to after the last one, differently each round.
        tokio::time::sleep(Duration::from_millis(round * 211 % 450)).await;
        stage.kill();
        stage.start();
    }
    stage.holds([[9, 4], [3, 10]]).await;
    stage.ends_with([[9, 4], [3, 10]]).await;
}

/// Bytes of all lists of a cluster, by kind.
fn listed(cluster: &Cluster) -> BTreeMap<String, u64> {
    let sent = cluster.state.counts.bytes_sent().into_iter();
    sent.filter(|((verb, _), _)| *verb == "list").map(|((_, kind), bytes)| (kind, bytes)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_and_started_it_reads_of_a_cluster_only_what_came_meanwhile() {
    let mut stage = Stage::set().await;
    stage.rests().await;
    stage.bed.stop().await;
    let before = listed(stage.one());
    stage.one().put(gpu_node("c", 4)).await.unwrap();
    stage.give(stage.one(), [10, 7]).await;
    stage.start();
    stage.holds([[10, 7], [3, 5]]).await;
    stage.rests().await;
    let after = listed(stage.one());
    assert!(9 < before.len(), "{before:?}");
    for (kind, bytes) in after {
        // What version the server has is all that is asked.
        let more = bytes - before.get(&kind).copied().unwrap_or_default();
        assert!(more < 200, "{more} bytes of {kind} were listed");
    }
    stage.ends_with([[10, 7], [3, 5]]).await;
}

/// Requests that change something, by cluster.
fn written(stage: &Stage) -> Vec<BTreeMap<(&'static str, String), u64>> {
    let of = |cluster: &Cluster| {
        let requests = cluster.state.counts.requests().into_iter();
        let reads =
            |verb: &str, kind: &str| matches!(verb, "get" | "list" | "watch") || kind.ends_with("reviews");
        requests.filter(|((verb, kind), _)| !reads(verb, kind)).collect()
    };
    [stage.hub(), stage.one(), stage.two()].map(of).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_and_started_it_writes_nothing_and_tells_nothing() {
    let mut stage = Stage::set().await;
    for again in [1, 2, 3] {
        stage.rests().await;
        let before = written(&stage);
        // After the first time it has no time to store what it knows.
        if again == 1 {
            stage.bed.stop().await;
        } else {
            stage.kill();
        }
        // As of a large cluster of which nothing was stored: all else is known long before its nodes are.
        if again == 3 {
            for file in ["fedq.db", "fedq.db-wal", "fedq.db-shm"] {
                let _ = std::fs::remove_file(stage.bed.path(file));
            }
            wrong(stage.one(), "nodes: hang");
        }
        stage.start();
        for name in ["one", "two"] {
            stage.bed.logs(&format!("Connected to `{name}`"), 1 + again).await;
        }
        if again == 3 {
            tokio::time::sleep(Duration::from_millis(1500)).await;
            wrong(stage.one(), "");
        }
        stage.rests().await;
        assert_eq!(written(&stage), before, "claims' conditions and events say what they said");
    }
}

/// Whether fedqd ends well, and what it says, where it is to end by itself.
fn ends(stage: &Stage, more: &[&str]) -> (bool, String) {
    let output = Command::new("timeout")
        .args(["20", env!("CARGO_BIN_EXE_fedqd"), "--config"])
        .arg(stage.bed.path("fedqd.yaml"))
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    assert_ne!(output.status.code(), Some(124), "it runs on");
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_the_same_database_is_refused_and_the_first_goes_on() {
    let stage = Stage::set().await;
    let (well, text) = ends(&stage, &[]);
    assert!(!well && text.contains("fedq.db"), "{text}");
    stage.give(stage.one(), [7, 4]).await;
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_or_newer_database_is_refused_and_a_rebuilt_one_lowers_nothing() {
    let mut stage = Stage::set().await;
    let path = stage.bed.path("fedq.db");
    stage.kill();
    let options = SqliteConnectOptions::new().filename(&path);
    let mut database = SqliteConnection::connect_with(&options).await.unwrap();
    let newer = "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time) \
                 VALUES (9999, 'from the future', '2030-01-01', 1, x'00', 0)";
    sqlx::query(newer).execute(&mut database).await.unwrap();
    database.close().await.unwrap();
    let (well, text) = ends(&stage, &[]);
    assert!(!well && text.contains("9999"), "{text}");
    let (well, text) = ends(&stage, &["--rebuild-store"]);
    assert!(well, "{text}");
    stage.start();
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    stage.rests().await;
    stage.kill();
    std::fs::write(&path, b"this is no database, whatever its name says").unwrap();
    // What stands there would heal it.
    std::fs::remove_file(stage.bed.path("fedq.db-wal")).unwrap();
    let (well, text) = ends(&stage, &[]);
    assert!(!well && text.contains("--rebuild-store"), "{text}");
    let (well, text) = ends(&stage, &["--rebuild-store"]);
    assert!(well, "{text}");
    stage.start();
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_no_quota_and_is_caught_up_with() {
    let mut stage = Stage::set().await;
    let preload = Preload::build(&stage.bed.path("preload"));
    stage.restarted_with(preload.environment(&stage.bed.path("fedq.db"))).await;
    stage.holds([[6, 4], [3, 5]]).await;
    for (round, failure) in (1..).zip(["full", "broken"]) {
        preload.set_disk(failure);
        stage.one().put(gpu_node(&format!("c{round}"), 4)).await.unwrap();
        stage.give(stage.one(), [6 + round, 5]).await;
        stage.holds([[6 + round, 5], [3, 5]]).await;
        preload.set_disk("");
        stage.rests().await;
    }
    // What was kept in memory has reached the disk: a restart knows it before any cluster answers.
    stage.kill();
    stage.start();
    stage.ends_with([[8, 5], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_share_of_a_refused_cluster_is_given_up_also_on_a_full_disk() {
    let mut stage = Stage::set_with("lostTimeout: 6s, maxObjects: 1000", "").await;
    let preload = Preload::build(&stage.bed.path("preload"));
    stage.restarted_with(preload.environment(&stage.bed.path("fedq.db"))).await;
    stage.holds([[6, 4], [3, 5]]).await;
    stage.may_fall = true;
    preload.set_disk("full");
    let nodes: Vec<String> = (0..1000).map(|number| format!("more-{number}")).collect();
    for node in &nodes {
        stage.one().put(gpu_node(node, 0)).await.unwrap();
    }
    stage.logs("`one` is refused: it has more than the 1000 objects").await;
    stage.has(stage.hub(), [3, 5]).await;
    preload.set_disk("");
    for node in &nodes {
        stage.one().remove("Node", node).await.unwrap();
    }
    let uid = stage.one().get("Namespace", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    let confirmed = json!({"metadata": {"annotations": {"fedq.dev/confirm-identity": uid}}});
    stage.change_secret(stage.one(), confirmed).await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_makes_no_cluster_lost() {
    let mut stage = Stage::set_with("lostTimeout: 15m", "").await;
    let preload = Preload::build(&stage.bed.path("preload"));
    stage.restarted_with(preload.environment(&stage.bed.path("fedq.db"))).await;
    stage.holds([[6, 4], [3, 5]]).await;
    for (round, seconds) in (1..).zip([3600, -3600, 0]) {
        preload.set_clock(seconds);
        tokio::time::sleep(Duration::from_millis(1200)).await;
        stage.give(stage.one(), [6 + round, 4]).await;
        stage.holds([[6 + round, 4], [3, 5]]).await;
    }
    for worker in [stage.one(), stage.two()] {
        worker.state.jump(jiff::SignedDuration::from_hours(1));
    }
    stage.hub().state.jump(jiff::SignedDuration::from_hours(-1));
    stage.give(stage.two(), [4, 5]).await;
    stage.ends_with([[9, 4], [4, 5]]).await;
}

/// As a laptop that is closed for a while, and has no network yet when it is opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_that_fails_after_a_long_sleep_makes_no_cluster_lost() {
    let mut stage = Stage::set_with("lostTimeout: 5s", "").await;
    stage.rests().await;
    let pid = i32::try_from(stage.bed.pid().expect("fedqd runs")).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    wrong(stage.one(), "server-errors");
    stage.one().state.faults.break_connections();
    tokio::time::sleep(Duration::from_secs(7)).await;
    let asked = || stage.one().state.counts.requests().values().sum::<u64>();
    let before = asked();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let began = std::time::Instant::now();
    while asked() == before {
        assert!(began.elapsed() < super::super::bed::WITHIN, "it is not asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    wrong(stage.one(), "");
    // That the hub's quota never fell meanwhile is looked for in its history.
    stage.give(stage.one(), [7, 4]).await;
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_write_to_the_disk_it_ends_where_it_would_have() {
    let mut stage = Stage::set().await;
    let preload = Preload::build(&stage.bed.path("preload"));
    let environment = preload.environment(&stage.bed.path("fedq.db"));
    for round in 1..=4_i64 {
        preload.kill_at_sync(round * 2 - 1);
        stage.restart_with(environment.clone());
        stage.give(stage.one(), [6, 3 + round]).await;
        // It kills itself at that sync, or is through with everything.
        tokio::time::sleep(Duration::from_millis(900)).await;
    }
    preload.kill_at_sync(0);
    stage.restart_with(environment);
    stage.holds([[6, 7], [3, 5]]).await;
    stage.ends_with([[6, 7], [3, 5]]).await;
}
