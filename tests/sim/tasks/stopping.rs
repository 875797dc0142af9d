//! A stop in every phase: confirmed, and as often as one likes.

use serde_json::json;

use super::super::bed::wait;
use super::stage::{Stage, of_task, wrong};

async fn stop(stage: &Stage, id: &str) {
    stage.fedq(&["task", "stop", id, "--yes"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stopped_wherever_it_is() {
    let stage = Stage::set(&[("one", 8)]).await;
    let running = stage.submit(60, "run: x\nnum_nodes: 2\nresources: {accelerators: 4}\n").await;
    stage.reaches(&running, "running").await;
    let queued = stage.submit(60, "run: x\nresources: {accelerators: 1}\n").await;
    stage.reaches(&queued, "queued").await;
    for id in [&queued, &running] {
        stop(&stage, id).await;
        stage.reaches(id, "stopped").await;
        stage.is_gone(id).await;
        stop(&stage, id).await;
    }
    let ended = stage.submit(1, "run: x\nresources: {accelerators: 1}\n").await;
    stage.reaches(&ended, "succeeded").await;
    stop(&stage, &ended).await;
    assert_eq!(stage.status(&ended).await["phase"], "succeeded", "what is over stays as it is");
    assert_eq!(of_task(stage.worker("one"), "Job", &ended).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stopped_before_it_has_a_cluster() {
    let stage = Stage::set(&[("one", 8)]).await;
    stage.fedq(&["cluster", "cordon", "one"], "").await.unwrap();
    let worker = stage.worker("one");
    wait("the queue to be held", worker, || {
        worker.get("ClusterQueue", "", "team").is_some_and(|queue| queue["spec"]["stopPolicy"] == "Hold")
    })
    .await;
    let id = stage.submit(60, "run: x\nresources: {accelerators: 1}\n").await;
    let pending = stage.reaches(&id, "pending").await;
    assert!(pending["pendingReason"].is_string(), "{pending:#}");
    stop(&stage, &id).await;
    stage.reaches(&id, "stopped").await;
    assert!(stage.ever(&id, "Job").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_stopped_while_it_is_being_dispatched_and_nothing_of_it_comes_later() {
    let stage = Stage::set(&[("one", 8)]).await;
    let worker = stage.worker("one");
    wrong(worker, "create jobs: lose-answers");
    let id = stage.submit(60, "run: x\nresources: {accelerators: 1}\n").await;
    wait("the Job", worker, || !of_task(worker, "Job", &id).is_empty()).await;
    stop(&stage, &id).await;
    wrong(worker, "");
    stage.reaches(&id, "stopped").await;
    stage.is_gone(&id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_elses_delete_is_told_as_such() {
    let stage = Stage::set(&[("one", 8)]).await;
    let id = stage.submit(60, "run: x\nresources: {accelerators: 1}\n").await;
    stage.reaches(&id, "running").await;
    let worker = stage.worker("one");
    let name = of_task(worker, "Job", &id)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let kind = fedq_sim::kind::Kind::named("Job").unwrap();
    let what = fedq_sim::api::Internal::Delete;
    fedq_sim::api::write_internally(&worker.state, "admin", kind, ("team".to_owned(), name), what)
        .await
        .unwrap();
    let failed = stage.reaches(&id, "failed").await;
    assert_eq!(failed["failure"], json!("vanished"));
}
