//! Tasks that no cluster takes at the moment.

use futures::future::join_all;

use super::super::bed::wait;
use super::stage::{Stage, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_never_known_keeps_no_task_out_of_the_others_queues() {
    let mut stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let first = stage.submit(3600, "run: x\nresources: {accelerators: 8}\n").await;
    stage.reaches(&first, "running").await;
    stage.kill();
    wrong(stage.worker("two"), "list workloads: server-errors");
    stage.start();
    let second = stage.submit(1, "run: x\nresources: {accelerators: 8}\n").await;
    let queued = stage.reaches(&second, "queued").await;
    assert_eq!(queued["cluster"], "one");
    stage.fedq(&["task", "stop", &first, "--yes"], "").await.unwrap();
    stage.reaches(&second, "succeeded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_task_outlasts_a_time_in_which_no_cluster_can_hold_it() {
    let stage = Stage::set(&[("one", 8)]).await;
    let worker = stage.worker("one");
    stage.fedq(&["cluster", "cordon", "one"], "").await.unwrap();
    wait("the queue to be held", worker, || {
        worker.get("ClusterQueue", "", "team").is_some_and(|queue| queue["spec"]["stopPolicy"] == "Hold")
    })
    .await;
    let id = stage.submit(1, "run: x\nresources: {accelerators: 8}\n").await;
    stage.bed.assign(worker, "4").await;
    stage
        .waits_because(&id, "no cluster can hold it as they are now: one: queue queue can hold at most 4")
        .await;
    stage.bed.assign(worker, "8").await;
    stage.fedq(&["cluster", "uncordon", "one"], "").await.unwrap();
    stage.reaches(&id, "succeeded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_may_not_be_written_to_loses_its_tasks_to_one_that_may() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    wrong(stage.worker("one"), "create jobs: forbidden");
    // It would have more room.
    let id = stage.submit(600, "run: x\nresources: {accelerators: 2}\n").await;
    let running = stage.reaches(&id, "running").await;
    assert_eq!(running["cluster"], "two", "{running:#}");
    let reasons = stage.reasons(&id).await;
    assert!(reasons.iter().any(|reason| reason == "TurnedAway"), "{reasons:?}");
    assert_eq!(stage.ever(&id, "Job").len(), 1);
    // Where no other one can hold it, it waits and says why.
    let large = stage.submit(1, "run: x\nresources: {accelerators: 8}\n").await;
    stage.waits_because(&large, "one did not take its objects and is tried again at").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_whose_secrets_cannot_be_read_or_written_hold_up_no_other() {
    let stage = Stage::set(&[("one", 8)]).await;
    wrong(&stage.bed.hub, "get secrets: server-errors");
    // More than a cluster is told of at a time.
    let task = "run: x\nresources: {accelerators: 1}\n";
    let secret = format!("{task}secrets: {{TOKEN: hush-hush-42}}\n");
    let stuck = join_all((0..40).map(|_| stage.submit(1, &secret))).await;
    let plain = stage.submit(1, task).await;
    stage.reaches(&plain, "succeeded").await;
    for id in &stuck {
        assert_eq!(stage.status(id).await["phase"], "dispatching");
    }

    wrong(stage.worker("one"), "create secrets: server-errors");
    wrong(&stage.bed.hub, "");
    stage.waits_because(&stuck[0], "its objects are being created on one: ").await;
    let plain = stage.submit(1, task).await;
    stage.reaches(&plain, "succeeded").await;
    wrong(stage.worker("one"), "");
    for id in &stuck {
        stage.reaches(id, "succeeded").await;
    }
}
