//! Clusters that fall silent with tasks on them.

use super::stage::{Stage, wrong};

const SOON: &str = ", lostTimeout: 6s";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_on_a_lost_cluster_is_lost_and_goes_on_when_it_is_back() {
    let stage = Stage::set_with(&[("one", 8)], SOON, "").await;
    let id = stage.submit(25, "run: x\nresources: {accelerators: 1}\n").await;
    stage.reaches(&id, "running").await;
    wrong(stage.worker("one"), "refuse-connections; hang");
    let lost = stage.reaches(&id, "lost").await;
    assert!(
        lost["pendingReason"].as_str().is_some_and(|reason| reason.contains("does not answer")),
        "{lost:#}"
    );
    wrong(stage.worker("one"), "");
    stage.reaches(&id, "succeeded").await;
    let reasons = stage.reasons(&id).await;
    assert!(reasons.iter().any(|reason| reason == "ClusterBack"), "{reasons:?}");
    assert_eq!(stage.ever(&id, "Pod").len(), 1, "it was not run again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_on_a_cluster_that_was_let_go_of_runs_elsewhere_if_that_is_the_policy() {
    let stage = Stage::set_with(&[("one", 8), ("two", 4)], SOON, ", lostPolicy: requeue").await;
    let id = stage.submit(3600, "run: x\nresources: {accelerators: 6}\n").await;
    stage.reaches(&id, "running").await;
    wrong(stage.worker("one"), "refuse-connections; hang");
    stage.reaches(&id, "lost").await;
    stage.bed.assign(stage.worker("two"), "8").await;
    stage.fedq(&["cluster", "leave", "one", "--yes"], "").await.unwrap();
    let running = stage.reaches(&id, "running").await;
    assert_eq!(running["cluster"], "two");
    let reasons = stage.reasons(&id).await;
    assert!(reasons.iter().any(|reason| reason == "Fenced"), "{reasons:?}");
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
}
