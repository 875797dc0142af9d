//! Logs that are kept when their pods are gone.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use fedq_sim::api::{Internal, write_internally};
use fedq_sim::kind::Kind;
use futures::future::join_all;
use serde_json::json;

use super::super::bed::wait;
use super::super::faults::preload::Preload;
use super::stage::{Stage, of_task, wrong};

/// What is over goes at once, so that nothing but what is kept can answer.
pub const KEPT: &str = ", keepObjects: 1s, logs: {keep: true, maxSize: 64Ki, maxTotal: 128Ki}";
const TASK: &str = "run: x\nresources: {accelerators: 1}\n";

/// Exit code, lines, and what is said beside them.
pub async fn logs(stage: &Stage, id: &str, more: &[&str]) -> (Option<i32>, Vec<String>, String) {
    let output = stage.run(&[&["task", "logs", id], more].concat(), "").await;
    let lines = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    (output.status.code(), lines, String::from_utf8(output.stderr).unwrap())
}

/// A task whose pods have written these lines when they end after a second.
fn writes(lines: &str, more: &str) -> String {
    let annotations = json!({"sim.fedq.dev/seconds": "1", "sim.fedq.dev/log": lines});
    let config = json!({"kubernetes": {"custom_metadata": {"annotations": annotations}}});
    format!("run: x\nresources: {{accelerators: 1}}\n{more}config: {config}\n")
}

/// A task that breaks after so many seconds, is started again and breaks again.
fn fails_twice(gpus: u32, seconds: u32) -> String {
    let fails = format!("seconds\":\"{seconds}\",\"sim.fedq.dev/exit\":\"3\"");
    let recovery = format!("accelerators: {gpus}, job_recovery: {{max_restarts_on_errors: 1}}");
    writes("it breaks", "").replace("seconds\":\"1\"", &fails).replace("accelerators: 1", &recovery)
}

/// Without what a pod says by itself, which is there only if it was read before the rest was written.
fn written(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().filter(|line| line.starts_with("line ")).collect()
}

async fn submit(stage: &Stage, task: &str) -> String {
    let name = stage.fedq(&["task", "submit", "-", "-o", "name"], task).await.unwrap();
    name.trim().strip_prefix("task/").unwrap().to_owned()
}

/// Runs it, lets its pod write so many lines, and stops it.
async fn stopped_after(stage: &Stage, lines: usize) -> String {
    let id = stage.submit(600, TASK).await;
    stage.reaches(&id, "running").await;
    let worker = stage.worker("one");
    let pod = of_task(worker, "Pod", &id)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    for number in 0..lines {
        let log = ("team".to_owned(), pod.clone(), "task".to_owned());
        worker.state.logs.write(&log, worker.state.now(), format!("line {number} {}", "x".repeat(80)));
    }
    stage.fedq(&["task", "stop", &id], "").await.unwrap();
    stage.is_gone(&id).await;
    id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_outlive_their_pods_and_fedqd() {
    let mut stage = Stage::set_with(&[("one", 8)], "", KEPT).await;
    let id = submit(&stage, &writes("first\n\nlast", "num_nodes: 2\n")).await;
    stage.reaches(&id, "succeeded").await;
    stage.is_gone(&id).await;
    let whole =
        ["node-0 | first", "node-0 | ", "node-0 | last", "node-1 | first", "node-1 | ", "node-1 | last"];
    for _ in 0..2 {
        let (code, mut lines, told) = logs(&stage, &id, &[]).await;
        // Both nodes began in the same second or not.
        lines.sort_by_key(|line| line.starts_with("node-1"));
        assert_eq!((code, lines.as_slice()), (Some(0), whole.map(str::to_owned).as_slice()), "{told}");
        let one = logs(&stage, &id, &["--node", "1", "--tail", "1", "-o", "raw", "--no-follow"]).await;
        assert_eq!((one.0, one.1), (Some(0), vec!["last".to_owned()]));
        stage.kill();
        stage.start();
    }
    let folder = stage.bed.path("task-logs");
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder.clone()), mode(folder.join(format!("{id}-1.jsonl")))), (0o700, 0o600));

    // Of each run that failed, too.
    let id = submit(&stage, &fails_twice(1, 1)).await;
    stage.reaches(&id, "failed").await;
    stage.is_gone(&id).await;
    let (code, lines, _) = logs(&stage, &id, &[]).await;
    assert_eq!((code, lines), (Some(100), vec!["it breaks".to_owned(); 2]));
    let (code, lines, told) = logs(&stage, &id, &["--previous"]).await;
    assert_eq!((code, lines), (Some(100), vec!["it breaks".to_owned()]), "{told}");

    // Whoever has the database made anew must not hand old logs to new tasks.
    assert!(std::fs::read_dir(&folder).unwrap().next().is_some());
    stage.kill();
    for file in ["fedq.db", "fedq.db-wal", "fedq.db-shm"] {
        let _ = std::fs::remove_file(stage.bed.path(file));
    }
    stage.start();
    stage.bed.logs("Let go of 3 logs of tasks", 1).await;
    assert!(std::fs::read_dir(&folder).unwrap().next().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_a_run_that_failed_is_there_while_the_task_waits_for_the_next() {
    let stage = Stage::set_with(&[("one", 8)], "", KEPT).await;
    let id = submit(&stage, &fails_twice(8, 5)).await;
    stage.reaches(&id, "running").await;
    // It takes all there is once the other one's first run is over.
    let next = stage.submit(600, "run: x\nresources: {accelerators: 8}\n").await;
    stage.reaches(&next, "running").await;
    stage.reaches(&id, "queued").await;
    let (code, lines, told) = logs(&stage, &id, &["--previous"]).await;
    assert_eq!((code, lines), (Some(101), vec!["it breaks".to_owned()]), "{told}");
    let (code, lines, told) = logs(&stage, &id, &["--epoch", "2"]).await;
    assert_eq!((code, lines), (Some(1), Vec::new()), "{told}");
    assert!(told.contains("nothing is kept of run 2") && told.contains("tasks.logs.keep"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stopped_is_kept_also_when_fedqd_is_killed_while_it_reads() {
    let mut stage = Stage::set_with(&[("one", 8)], "", KEPT).await;
    let id = stopped_after(&stage, 3).await;
    let (code, lines, told) = logs(&stage, &id, &[]).await;
    let lines = written(lines);
    assert_eq!((code, lines.len()), (Some(103), 3), "{lines:?} {told}");
    assert!(lines[2].starts_with("line 2 "), "{lines:?}");

    let id = stage.submit(600, TASK).await;
    stage.reaches(&id, "running").await;
    wrong(stage.worker("one"), "get pods: hang");
    stage.fedq(&["task", "stop", &id, "--no-wait"], "").await.unwrap();
    stage.reaches(&id, "stopping").await;
    assert!(!of_task(stage.worker("one"), "Pod", &id).is_empty(), "it has to be read first");
    stage.kill();
    wrong(stage.worker("one"), "");
    stage.start();
    stage.reaches(&id, "stopped").await;
    stage.is_gone(&id).await;
    let (code, lines, told) = logs(&stage, &id, &[]).await;
    assert_eq!((code, lines.len()), (Some(103), 1), "{lines:?} {told}");
    assert!(lines[0].starts_with("hello from "), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_log_keeps_its_end_and_the_oldest_log_makes_room() {
    let stage = Stage::set_with(&[("one", 8)], "", KEPT).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(stopped_after(&stage, 1000).await);
    }
    for id in &ids[1..] {
        let (code, lines, told) = logs(&stage, id, &[]).await;
        assert_eq!(code, Some(103));
        assert!(lines.last().unwrap().starts_with("line 999 ") && lines.len() < 500, "{}", lines.len());
        // With what the pod says by itself, if that was read in time.
        let missing =
            [1000, 1001].map(|all| format!("… {} lines before this were not kept", all - lines.len()));
        assert!(missing.iter().any(|missing| told.contains(missing)), "{told}");
    }
    let (code, lines, told) = logs(&stage, &ids[0], &[]).await;
    assert_eq!((code, lines.len()), (Some(103), 0));
    assert!(told.contains("its pods are gone, and with them its logs"), "{told}");
    let folder = std::fs::read_dir(stage.bed.path("task-logs")).unwrap();
    let bytes: u64 = folder.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 128 << 10, "{bytes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_costs_the_log_and_nothing_else() {
    let mut stage = Stage::set_with(&[("one", 8)], "", KEPT).await;
    let preload = Preload::build(&stage.bed.path("preload"));
    stage.kill();
    stage.start_with(&preload.environment(&stage.bed.path("task-logs")));
    preload.set_disk("full");
    let lost = stopped_after(&stage, 3).await;
    stage.reaches(&lost, "stopped").await;
    assert_eq!(logs(&stage, &lost, &[]).await.1.len(), 0);
    let log = stage.bed.path("fedqd.log");
    let told = || std::fs::read_to_string(&log).unwrap().contains("No space left on device");
    wait("fedqd to say so", stage.worker("one"), told).await;
    preload.set_disk("");
    let kept = stopped_after(&stage, 3).await;
    assert_eq!(written(logs(&stage, &kept, &[]).await.1).len(), 3);
    assert_eq!(std::fs::read_dir(stage.bed.path("task-logs")).unwrap().count(), 1, "no half of a file");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_gives_no_logs_delays_no_stop_on_another() {
    let stage = Stage::set_with(&[("one", 8), ("two", 8)], "", KEPT).await;
    wrong(stage.worker("one"), "get pods: hang");
    // More than are read at a time.
    let tasks: Vec<String> =
        join_all((0..10).map(|_| async { stage.try_submit(1, TASK, &["--cluster", "one"]).await.unwrap() }))
            .await;
    for id in &tasks {
        stage.reaches(id, "succeeded").await;
    }
    let id = stage.try_submit(600, TASK, &["--cluster", "two"]).await.unwrap();
    stage.reaches(&id, "running").await;
    let began = Instant::now();
    stage.fedq(&["task", "stop", &id, "--no-wait"], "").await.unwrap();
    stage.reaches(&id, "stopped").await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let (code, lines, told) = logs(&stage, &id, &[]).await;
    assert_eq!((code, lines.len()), (Some(103), 1), "{lines:?} {told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_run_wrote_is_there_though_its_pods_went_before_they_could_be_read() {
    let mut stage = Stage::set_with(&[("one", 8)], "", KEPT).await;
    let id = stage.submit(600, TASK).await;
    stage.reaches(&id, "running").await;
    let part = stage.bed.path("task-logs").join(format!("{id}-1.part"));
    for round in 0..2 {
        let worker = stage.worker("one");
        let pod = of_task(worker, "Pod", &id)[0]["metadata"]["name"].as_str().unwrap().to_owned();
        for number in 0..3 {
            let log = ("team".to_owned(), pod.clone(), "task".to_owned());
            worker.state.logs.write(&log, worker.state.now(), format!("line {number} of {round}"));
        }
        let last = format!("line 2 of {round}");
        let is_there = || std::fs::read_to_string(&part).unwrap_or_default().contains(&last);
        until("what it wrote to be on the disk", is_there).await;
        if round == 0 {
            stage.kill();
            stage.start();
            stage.reaches(&id, "running").await;
        }
    }
    let worker = stage.worker("one");
    // From now on nothing can be read there, and somebody deletes all of it.
    wrong(worker, "get pods: hang");
    let job = of_task(worker, "Job", &id)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let name = ("team".to_owned(), job);
    write_internally(&worker.state, "admin", Kind::named("Job").unwrap(), name, Internal::Delete)
        .await
        .unwrap();
    stage.reaches(&id, "failed").await;
    let (code, lines, told) = logs(&stage, &id, &[]).await;
    let rounds = (0..2).flat_map(|round| (0..3).map(move |number| format!("line {number} of {round}")));
    assert_eq!((code, written(lines)), (Some(100), rounds.collect()), "each line once: {told}");
}

/// What happens on the disk wakes nobody.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(30), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
