//! Objects that make no sense, or too much of it.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::bed::{KUEUE, gpu_node};
use super::stage::{GPU, Stage, gpus};

fn node_with(name: &str, gpus: &str) -> Value {
    let mut node = gpu_node(name, 8);
    node["status"]["allocatable"][GPU] = json!(gpus);
    node
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quantities_beyond_reason_count_nothing_and_spoil_nothing() {
    // What is too large to be counted counts as the largest there is, and limits are for that.
    let limits = "capacity: {limits: {one: {nvidia.com/gpu: \"16\"}}}\n";
    let mut stage = Stage::set_with("", limits).await;
    stage.may_fall = true;
    let odd = ["-5", "NaN", "1e1000", "9223372036854775808", "many", "0.1m", "0x10", "", " 8", "1.5e"];
    for (number, text) in odd.iter().enumerate() {
        stage.one().put(node_with(&format!("odd-{number}"), text)).await.unwrap();
    }
    stage.give(stage.one(), [20, 0]).await;
    // The honest nodes' 14 are there to give, and no more.
    stage.has(stage.one(), [14, 0]).await;
    stage.rests().await;
    assert_eq!(gpus(stage.one()), [Some(14), Some(0)]);
    for number in 0..odd.len() {
        stage.one().remove("Node", &format!("odd-{number}")).await.unwrap();
    }
    stage.give(stage.one(), [6, 4]).await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_lack_things_or_have_unknown_ones_count_by_what_is_there() {
    let mut stage = Stage::set().await;
    stage.may_fall = true;
    let mut bare = gpu_node("bare", 8);
    bare["status"] = json!({});
    let mut unready = gpu_node("unready", 8);
    unready["status"]["conditions"] = json!([]);
    let mut strange = gpu_node("strange", 4);
    strange["spec"]["fromTheFuture"] = json!({"a": [1, 2, {"b": null}]});
    strange["status"]["fromTheFuture"] = json!("x");
    for node in [bare, unready, strange] {
        stage.one().put(node).await.unwrap();
    }
    stage.give(stage.one(), [30, 0]).await;
    stage.has(stage.one(), [18, 0]).await;
    stage.rests().await;
    assert_eq!(gpus(stage.one()), [Some(18), Some(0)]);
    stage.give(stage.one(), [6, 4]).await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_are_too_large_or_too_deep_are_passed_over_and_the_cluster_is_kept() {
    let mut stage = Stage::set().await;
    let mut large = gpu_node("large", 8);
    large["metadata"]["annotations"] = json!({"note": "x".repeat(6 << 20)});
    let mut labels = gpu_node("labels", 2);
    for number in 0..20_000 {
        labels["metadata"]["labels"][format!("label-{number}")] = json!("x");
    }
    let mut deep = json!("deep");
    for _ in 0..400 {
        deep = json!({ "in": deep });
    }
    let flavor = json!({
        "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "deep"}, "spec": {"fromTheFuture": deep},
    });
    stage.one().put(flavor).await.unwrap();
    stage.one().put(large).await.unwrap();
    stage.one().put(labels).await.unwrap();
    stage.give(stage.one(), [8, 8]).await;
    stage.holds([[8, 8], [3, 5]]).await;
    // Also when all of it is listed from the start.
    stage.kill();
    stage.start();
    stage.give(stage.two(), [4, 5]).await;
    stage.holds([[8, 8], [4, 5]]).await;
    stage.one().remove("ResourceFlavor", "deep").await.unwrap();
    stage.one().remove("Node", "large").await.unwrap();
    stage.may_fall = true;
    stage.give(stage.one(), [7, 8]).await;
    stage.ends_with([[7, 8], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_flaps_ten_times_a_second_costs_a_bounded_number_of_writes() {
    let mut stage = Stage::set_with("", "quota: {mergeWindow: 1s}\n").await;
    stage.may_fall = true;
    for flap in 0..30 {
        let patch = json!({"spec": {"unschedulable": flap % 2 == 0}});
        stage.one().merge("Node", "b", patch).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let writes = stage.quota_writes()[1].len();
    // Two queues, a write each at once and one for every second after it.
    assert!(writes <= 12, "{writes} writes for 30 flaps");
    stage.ends_with([[6, 4], [3, 5]]).await;
}
