//! fedqd killed at each request of a dispatch, before it is taken and before its answer: no task is lost, and
//! none runs twice.

use std::time::Duration;

use fedq::sim::cluster::Cluster;

use super::super::bed::wait;
use super::stage::{Stage, wrong};

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
