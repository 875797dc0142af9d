//! Volumes on clusters, and tasks that follow them.

use serde_json::Value;

use super::super::bed::wait;
use super::stage::{Stage, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_and_its_task_goes_where_it_is_and_it_stays_while_it_is_used() {
    let mut stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    stage.fedq(&["volume", "create", "data", "1Gi", "--cluster", "two"], "").await.unwrap();
    let there = |stage: &Stage, name: &str| stage.worker(name).list("PersistentVolumeClaim").len();
    wait("the claim", stage.worker("two"), || there(&stage, "two") == 1).await;
    assert_eq!(there(&stage, "one"), 0);
    let task = "run: x\nvolumes: {/data: data}\nresources: {accelerators: 1}\n";
    let id = stage.submit(600, task).await;
    let running = stage.reaches(&id, "running").await;
    assert_eq!(running["cluster"], "two", "that is where the volume is");
    let several = format!("num_nodes: 2\n{task}");
    let refused = stage.try_submit(1, &several, &[]).await.unwrap_err();
    assert!(refused.contains("ReadWriteMany"), "{refused}");
    let refused = stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap_err();
    assert!(refused.contains(&id), "it is used: {refused}");
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
    stage.reaches(&id, "stopped").await;

    wrong(stage.worker("two"), "delete persistentvolumeclaims: server-errors");
    let listed: Value =
        serde_json::from_str(&stage.fedq(&["volume", "list", "-o", "json"], "").await.unwrap()).unwrap();
    assert!(listed.to_string().contains("data"), "{listed:#}");
    stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap();
    stage.kill();
    wrong(stage.worker("two"), "");
    stage.start();
    wait("the claim to be gone", stage.worker("two"), || there(&stage, "two") == 0).await;
}
