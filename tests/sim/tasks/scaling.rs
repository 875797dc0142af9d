//! Clusters whose nodes come when something waits for them.

use std::time::{Duration, Instant};

use serde_json::json;

use super::super::bed::{WITHIN, gpu_node, wait};
use super::stage::Stage;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_for_nodes_that_could_come_is_accepted() {
    let stage = Stage::set(&[("one", 8)]).await;
    let one = stage.worker("one");
    let task = "run: x\nnum_nodes: 12\nresources: {accelerators: 2}\n";
    let refused = stage.try_submit(1, task, &[]).await.unwrap_err();
    assert!(refused.contains("at most 8"), "{refused}");
    let annotate = async |most: Option<&str>| {
        let patch = json!({"metadata": {"annotations": {"fedq.dev/max-capacity": most}}});
        stage.bed.hub.merge("ResourceFlavor", "gpus", patch).await.unwrap();
    };
    stage.bed.assign(one, "40").await;
    stage.bed.holds(one, "16").await;
    annotate(Some("nvidia.com/gpu=32")).await;
    stage.bed.holds(one, "32").await;
    let shown = stage.fedq(&["capacity", "one"], "").await.unwrap();
    assert!(shown.contains("16 (+16 could come)"), "{shown}");
    let shown = stage.fedq(&["cluster", "show", "one"], "").await.unwrap();
    assert!(shown.contains("16 (+16 could come)"), "{shown}");

    let began = Instant::now();
    let id = loop {
        match stage.try_submit(3600, task, &[]).await {
            Ok(id) => break id,
            Err(error) => assert!(began.elapsed() < WITHIN, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // Simulated pods need no node; others wait for theirs.
    stage.reaches(&id, "running").await;
    for name in ["came-1", "came-2"] {
        one.put(gpu_node(name, 8)).await.unwrap();
    }
    annotate(Some("nvidia.com/gpu=-1")).await;
    let told = "fedq.dev/max-capacity of ResourceFlavor gpus: `nvidia.com/gpu=-1`: it is less than 0";
    let hub = &stage.bed.hub;
    wait("the claim to say what does not count", hub, || {
        let claim = hub.get("ClusterResourceClaim", "", "one-resource-claim");
        claim.is_some_and(|claim| claim["status"].to_string().contains(told))
    })
    .await;
    stage.bed.holds(one, "32").await;
}
