//! fedqd killed at each request of a dispatch, before it is taken and before its answer, and at each commit of a
//! task's way, before and after it is on the disk: no task is lost, and none runs twice.

use std::time::{Duration, Instant};

use fedq_sim::cluster::Cluster;
use serde_json::Value;

use super::super::bed::{WITHIN, wait};
use super::stage::{Stage, of_task, wrong};

const TASK: &str = "run: x\nnum_nodes: 2\nsecrets: {TOKEN: hush}\nresources: {accelerators: 2}\n";

/// Longer than it takes to ask.
const HANGS: Duration = Duration::from_millis(400);

fn asked(cluster: &Cluster, verb: &'static str, plural: &str) -> u64 {
    cluster.state.counts.requests().get(&(verb, plural.to_owned())).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_request_of_a_dispatch_it_goes_on_to_the_same_end() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    for (on_hub, verb, plural) in [
        (false, "create", "jobs"),
        (false, "create", "secrets"),
        (false, "create", "services"),
        (true, "get", "secrets"),
    ] {
        // What is only read is as good as not asked while its answer is lost.
        let faults: &[&str] = if on_hub { &["hang"] } else { &["hang", "lose-answers"] };
        for fault in faults {
            let at = if on_hub { &stage.bed.hub } else { stage.worker("one") };
            let before = asked(at, verb, plural);
            wrong(at, &format!("{verb} {plural}: {fault}"));
            let id = stage.submit(1, TASK).await;
            let at = if on_hub { &stage.bed.hub } else { stage.worker("one") };
            if *fault == "hang" {
                // What hangs is counted nowhere.
                stage.reaches(&id, "dispatching").await;
                tokio::time::sleep(HANGS).await;
            } else {
                wait(&format!("{verb} {plural}, {fault}"), at, || before < asked(at, verb, plural)).await;
            }
            stage.kill();
            wrong(if on_hub { &stage.bed.hub } else { stage.worker("one") }, "");
            stage.start();
            stage.reaches(&id, "succeeded").await;
            assert_eq!(stage.ever(&id, "Job").len(), 1, "{verb} {plural}, {fault}");
            assert_eq!(stage.ever(&id, "Pod").len(), 2, "{verb} {plural}, {fault}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_moment_every_acknowledged_task_runs_once() {
    let mut stage = Stage::set(&[("one", 8), ("two", 8)]).await;
    let mut ids = Vec::new();
    for round in 0..6_u64 {
        for _ in 0..2 {
            ids.push(stage.submit(1, "run: x\nresources: {accelerators: 1}\n").await);
        }
        // From before the first write to after the last, differently each round.
        tokio::time::sleep(Duration::from_millis(round * 37 % 200)).await;
        stage.kill();
        stage.start();
    }
    for id in &ids {
        stage.reaches(id, "succeeded").await;
        assert_eq!((stage.ever(id, "Job").len(), stage.ever(id, "Pod").len()), (1, 1), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_takes_a_task_off_it_finishes_that() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    let id = stage.submit(600, "run: x\nresources: {accelerators: 1}\n").await;
    stage.reaches(&id, "running").await;
    wrong(stage.worker("one"), "delete jobs: hang");
    stage.fedq(&["task", "stop", &id, "--yes", "--no-wait"], "").await.unwrap();
    stage.reaches(&id, "stopping").await;
    tokio::time::sleep(HANGS).await;
    stage.kill();
    wrong(stage.worker("one"), "");
    stage.start();
    stage.reaches(&id, "stopped").await;
    stage.is_gone(&id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_moves_a_task_it_runs_once_and_elsewhere() {
    let mut stage = Stage::set_with(&[("one", 8), ("two", 4)], "", ", spillAfter: 1s").await;
    let blocks = stage.submit(600, "run: x\nresources: {accelerators: 8}\n").await;
    stage.reaches(&blocks, "running").await;
    let id = stage.submit(1, "run: x\nresources: {accelerators: 5}\n").await;
    assert_eq!(stage.reaches(&id, "queued").await["cluster"], "one");
    wrong(stage.worker("one"), "delete jobs: hang");
    stage.bed.assign(stage.worker("two"), "8").await;
    stage.reaches(&id, "withdrawing").await;
    tokio::time::sleep(HANGS).await;
    stage.kill();
    assert!(of_task(stage.worker("two"), "Job", &id).is_empty(), "it is on one cluster at a time");
    wrong(stage.worker("one"), "");
    stage.start();
    assert_eq!(stage.reaches(&id, "succeeded").await["cluster"], "two");
    assert_eq!((stage.ever(&id, "Job").len(), stage.ever(&id, "Pod").len()), (2, 1));
}

/// The ids of the tasks of a name.
async fn named(stage: &Stage, name: &str) -> Vec<String> {
    let told = stage.fedq(&["task", "list", "-o", "json"], "").await.unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    let all = told["items"].as_array().or(told.as_array()).cloned().unwrap_or_default();
    let named = all.iter().filter(|task| task["name"] == name);
    named.map(|task| task["id"].as_str().unwrap().to_owned()).collect()
}

/// Starts a fedqd that ends itself there.
fn start_to_end_at(stage: &mut Stage, side: &str, write: &str, count: u32) {
    stage.kill();
    stage.start_with(&[("FEDQ_ABORT_AT", format!("{side}:{write}:{count}"))]);
}

/// Until fedqd has ended, or a task is in a phase without that: some steps may be seen as one.
async fn ends_or(stage: &mut Stage, name: &str, phase: &str) {
    let began = Instant::now();
    while !stage.bed.has_ended() {
        let told = stage.fedq(&["task", "list", "-o", "json"], "").await.unwrap_or_default();
        let told: Value = serde_json::from_str(&told).unwrap_or_default();
        let all = told["items"].as_array().or(told.as_array()).cloned().unwrap_or_default();
        if all.iter().any(|task| task["name"] == name && task["phase"] == phase) {
            return;
        }
        assert!(began.elapsed() < WITHIN * 2, "{name} is neither {phase} nor did fedqd end: {told:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_commit_of_a_dispatch_it_goes_on_to_the_same_end() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    for (side, count) in
        [("before", 1), ("after", 1), ("before", 2), ("after", 2), ("before", 3), ("after", 3), ("after", 4)]
    {
        let name = format!("{side}-{count}");
        start_to_end_at(&mut stage, side, "record the task's move", count);
        // It may end before the answer has arrived.
        let answer = stage.try_submit(1, &format!("name: {name}\n{TASK}"), &[]).await;
        ends_or(&mut stage, &name, "succeeded").await;
        stage.kill();
        stage.start();
        let ids = named(&stage, &name).await;
        assert_eq!(ids.len(), 1, "{name}: {answer:?}");
        stage.reaches(&ids[0], "succeeded").await;
        assert_eq!(stage.ever(&ids[0], "Job").len(), 1, "{name}");
        assert_eq!(stage.ever(&ids[0], "Pod").len(), 2, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_accepts_a_task_there_is_one_or_none() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    for (side, accepted) in [("before", 0), ("after", 1)] {
        start_to_end_at(&mut stage, side, "accept the task", 1);
        stage.try_submit(1, &format!("name: {side}\n{TASK}"), &[]).await.unwrap_err();
        stage.kill();
        stage.start();
        let ids = named(&stage, side).await;
        assert_eq!(ids.len(), accepted, "{side}");
        for id in ids {
            stage.reaches(&id, "succeeded").await;
            assert_eq!(stage.ever(&id, "Job").len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_any_commit_of_a_stop_it_finishes_that() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    for (side, count) in [("before", 1), ("after", 1), ("before", 2), ("after", 2)] {
        let name = format!("{side}-{count}");
        let id = stage.submit(600, &format!("name: {name}\nrun: x\nresources: {{accelerators: 1}}\n")).await;
        stage.reaches(&id, "running").await;
        start_to_end_at(&mut stage, side, "record the task's move", count);
        let _ = stage.fedq(&["task", "stop", &id, "--yes", "--no-wait"], "").await;
        ends_or(&mut stage, &name, "stopped").await;
        stage.kill();
        stage.start();
        stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
        stage.reaches(&id, "stopped").await;
        stage.is_gone(&id).await;
        assert_eq!(stage.ever(&id, "Pod").len(), 1, "{name}");
    }
}

/// Bytes of all lists of a cluster's task objects so far.
fn listed(cluster: &Cluster) -> [u64; 4] {
    let sent = cluster.state.counts.bytes_sent();
    let of = |plural: &str| sent.get(&("list", plural.to_owned())).copied().unwrap_or_default();
    ["jobs", "jobsets", "pods", "persistentvolumeclaims"].map(of)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_and_started_it_reads_of_its_tasks_only_what_came_meanwhile() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    let long = stage.submit(600, "run: x\nresources: {accelerators: 1}\n").await;
    let short = stage.submit(15, "run: x\nresources: {accelerators: 1}\n").await;
    for id in [&long, &short] {
        stage.reaches(id, "running").await;
    }
    stage.bed.stop().await;
    let before = listed(stage.worker("one"));
    let one = stage.worker("one");
    wait("the short task to end", one, || {
        one.list("Pod").iter().any(|pod| pod["status"]["phase"] == "Succeeded")
    })
    .await;
    stage.start();
    stage.reaches(&short, "succeeded").await;
    stage.reaches(&long, "running").await;
    for (after, before) in listed(stage.worker("one")).into_iter().zip(before) {
        // What version the server has is asked, perhaps more than once; an object takes more.
        assert!(after - before < 1000, "{} bytes were listed", after - before);
    }
    for id in [&long, &short] {
        assert_eq!((stage.ever(id, "Job").len(), stage.ever(id, "Pod").len()), (1, 1), "{id}");
    }
}
