//! Tasks that run to their end.

use super::stage::{Stage, of_task};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_of_one_node_and_one_of_four_run_to_their_end() {
    let mut stage = Stage::set(&[("one", 8), ("two", 4)], "").await;
    let one = stage.submit("name: train\nrun: python train.py\nresources: {accelerators: 6}\n").await;
    let reached = stage.reaches(&one, "running").await;
    assert_eq!(reached["cluster"], "one", "only there it fits");
    assert_eq!(of_task(stage.worker("one"), "Pod", &one).len(), 1);
    let four = stage.submit("run: x\nnum_nodes: 4\nresources: {accelerators: 1}\n").await;
    let reached = stage.reaches(&four, "succeeded").await;
    assert_eq!(reached["cluster"], "two", "there was room");
    assert_eq!(of_task(stage.worker("two"), "Job", &four).len(), 1, "one Job stands for all four nodes");
    assert_eq!(of_task(stage.worker("one"), "Job", &four).len(), 0);
    stage.reaches(&one, "succeeded").await;
}
