//! Volumes on clusters, and tasks that follow them.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::bed::{WITHIN, wait};
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_that_somebody_deleted_is_told_of_and_not_made_anew() {
    let stage = Stage::set(&[("one", 8)]).await;
    stage.fedq(&["volume", "create", "data", "1Gi"], "").await.unwrap();
    let worker = stage.worker("one");
    let claims = || worker.list("PersistentVolumeClaim");
    let task = "run: x\nvolumes: {/data: data}\nresources: {accelerators: 1}\n";
    let id = stage.submit(600, task).await;
    stage.reaches(&id, "running").await;
    wait("the claim", worker, || claims().len() == 1).await;
    // Seen, so that it is missed.
    stage.volume_is("data", "it is not bound").await;
    let claim = claims()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let kind = fedq_sim::kind::Kind::named("PersistentVolumeClaim").unwrap();
    let what = fedq_sim::api::Internal::Delete;
    fedq_sim::api::write_internally(&worker.state, "admin", kind, ("team".to_owned(), claim), what)
        .await
        .unwrap();
    let shown = async || -> Value {
        let told = stage.fedq(&["volume", "show", "data", "-o", "json"], "").await.unwrap_or_default();
        serde_json::from_str(&told).unwrap_or_default()
    };
    let began = Instant::now();
    loop {
        let volume = shown().await;
        if volume["state"] == "Lost" {
            assert!(volume["reason"].as_str().unwrap().contains("somebody deleted it on one"), "{volume:#}");
            break;
        }
        assert!(began.elapsed() < WITHIN, "{volume:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    while !stage.reasons(&id).await.iter().any(|reason| reason == "VolumeLost") {
        assert!(began.elapsed() < WITHIN, "its task is not told");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A task that comes now looks at all there is, the claim included: it is not there again.
    let waits = stage.submit(1, task).await;
    stage.waits_because(&waits, "volume data was deleted on its cluster").await;
    assert!(claims().is_empty());
    for id in [&waits, &id] {
        stage.fedq(&["task", "stop", id, "--yes"], "").await.unwrap();
    }
    stage.fedq(&["volume", "delete", "data", "--force"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_made_where_its_first_task_can_run() {
    let mut stage = Stage::set(&[("one", 2), ("two", 8)]).await;
    stage.fedq(&["volume", "create", "data", "1Gi"], "").await.unwrap();
    stage.volume_is("data", "it is made on the cluster of the first task").await;
    let claims = |stage: &Stage, name: &str| stage.worker(name).list("PersistentVolumeClaim").len();
    assert_eq!((claims(&stage, "one"), claims(&stage, "two")), (0, 0));
    let task = |gpus: u32| format!("run: x\nvolumes: {{/data: data}}\nresources: {{accelerators: {gpus}}}\n");
    let large = stage.submit(3600, &task(4)).await;
    assert_eq!(stage.reaches(&large, "running").await["cluster"], "two", "the other one is too small");
    wait("the claim", stage.worker("two"), || claims(&stage, "two") == 1).await;
    stage.kill();
    stage.start();
    let small = stage.submit(3600, &task(1)).await;
    assert_eq!(stage.reaches(&small, "running").await["cluster"], "two", "that is where the volume is");
    let refused = stage.try_submit(1, &task(1), &["--cluster", "one"]).await.unwrap_err();
    assert!(refused.contains("volume data is on two"), "{refused}");
    assert_eq!(claims(&stage, "one"), 0);
}
