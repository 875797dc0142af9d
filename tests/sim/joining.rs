//! From joining to quota.

use serde_json::json;

use super::bed::{Bed, gpu_node};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn assigned_capacity_becomes_quota_and_follows_the_nodes() {
    let bed = Bed::start(&["one", "two"]).await;
    for worker in &bed.workers {
        bed.join(worker).await;
    }
    bed.assign(&bed.workers[0], "12").await;
    bed.assign(&bed.workers[1], "4").await;
    bed.holds(&bed.workers[0], "12").await;
    bed.holds(&bed.hub, "16").await;
    bed.workers[0].remove("Node", "b").await.unwrap();
    bed.holds(&bed.workers[0], "8").await;
    bed.holds(&bed.hub, "12").await;
    bed.workers[0].put(gpu_node("c", 8)).await.unwrap();
    bed.holds(&bed.hub, "16").await;
    bed.workers[0].merge("Node", "a", json!({"spec": {"unschedulable": true}})).await.unwrap();
    bed.holds(&bed.workers[0], "8").await;
}
