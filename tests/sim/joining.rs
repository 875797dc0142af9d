//! From joining to quota.

use std::time::Duration;

use fedq_sim::cluster::Cluster;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::bed::{Bed, gpu_node, wait};

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

const RIGHTS: &str = include_str!("../../deploy/worker/rbac.yaml");

/// The Secret that joins a cluster.
fn secret(bed: &Bed, worker: &Cluster) -> Value {
    let name = format!("fedq-cluster-{}", worker.state.name);
    let secret = bed.hub.get("Secret", "fedq-system", &name).expect("it joins the cluster");
    (*secret).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_ends_is_made_anew_before_and_no_quota_dips() {
    let mut bed = Bed::without_daemon(&["one"]).await;
    // It is looked at whenever the cluster is probed, four times in that time.
    bed.configure("clusters: {allowLoopback: true, requestTimeout: 2s, staleAfter: 4s}\n");
    bed.start_daemon();
    let worker = &bed.workers[0];
    let documents: Vec<Value> = serde_saphyr::from_multiple(RIGHTS).unwrap();
    for document in documents {
        worker.put(document).await.unwrap();
    }
    let ends = worker.state.now() + SignedDuration::from_secs(9);
    let kubeconfig = worker.kubeconfig_of_account("fedq-system", "fedq", ends);
    bed.join_with(worker, &kubeconfig).await;
    bed.has_claim(worker).await;
    bed.assign(worker, "12").await;
    bed.holds(&bed.hub, "12").await;
    let before = secret(&bed, worker);
    let is_new = || secret(&bed, worker)["data"]["kubeconfig"] != before["data"]["kubeconfig"];
    wait("a new token", &bed.hub, is_new).await;
    assert!(worker.state.now() < ends, "the old one was still good");
    while worker.state.now() <= ends + SignedDuration::from_secs(1) {
        let cells = bed.hub.get("ClusterQueue", "", "team").unwrap();
        assert!(cells["spec"].to_string().contains("\"12\""), "{cells:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The old one is worth nothing any more, and fedqd still moves quota there.
    bed.assign(worker, "8").await;
    bed.holds(worker, "8").await;
    assert!(secret(&bed, worker)["metadata"]["annotations"]["fedq.dev/token-renewed"].is_string());
}
