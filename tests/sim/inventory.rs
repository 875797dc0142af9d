//! Joined clusters as ManagedClusters with scores, on a hub without OCM.

use fedq_sim::cluster::{Cluster, Options};
use serde_json::{Value, json};

use super::{
    bed::{Bed, gpu_node, wait},
    placement::{decides, place, rests},
};

const OCM: &str = "cluster.open-cluster-management.io";
/// A cluster that falls silent is noticed within the time of a case.
const HASTY: &str = "clusters: {allowLoopback: true, requestTimeout: 1s, staleAfter: 3s, lostTimeout: 60s}\n";

async fn bed(workers: &[&str]) -> Bed {
    let hub = Options { ocm: true, ..Options::named("hub") };
    let bed = Bed::with_hub(hub, workers).await;
    bed.configure(HASTY);
    bed
}

fn condition(hub: &Cluster, name: &str, kind: &str) -> Option<String> {
    let cluster = hub.get("ManagedCluster", "", name)?;
    let conditions = cluster["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    found["status"].as_str().map(str::to_owned)
}

fn taints(hub: &Cluster, name: &str) -> Vec<String> {
    let cluster = hub.get("ManagedCluster", "", name);
    let taints = cluster.and_then(|cluster| cluster["spec"]["taints"].as_array().cloned());
    taints.unwrap_or_default().iter().map(|taint| taint["key"].as_str().unwrap().to_owned()).collect()
}

fn score(hub: &Cluster, cluster: &str, resource: &str, name: &str) -> Option<i64> {
    let scores = hub.get("AddOnPlacementScore", cluster, resource)?;
    let items = scores["status"]["scores"].as_array()?;
    items.iter().find(|item| item["name"] == name)?["value"].as_i64()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joined_clusters_are_managed_clusters_with_scores() {
    let mut bed = bed(&["one", "two"]).await;
    bed.start_daemon();
    for worker in &bed.workers {
        bed.join(worker).await;
    }
    let hub = &bed.hub;
    let available = "ManagedClusterConditionAvailable";
    for name in ["one", "two"] {
        wait("the cluster to be available", hub, || {
            condition(hub, name, available).as_deref() == Some("True") && taints(hub, name).is_empty()
        })
        .await;
    }
    wait("its capacity", hub, || {
        let cluster = hub.get("ManagedCluster", "", "one").unwrap();
        cluster["status"]["allocatable"]["nvidia.com/gpu"] == "16"
            && cluster["status"]["capacity"]["cpu"] == "128"
    })
    .await;
    let cluster = hub.get("ManagedCluster", "", "one").unwrap();
    let claims = cluster["status"]["clusterClaims"].as_array().unwrap();
    assert!(claims.iter().any(|claim| claim["name"] == "id.k8s.io"), "{claims:?}");
    assert_eq!(cluster["metadata"]["labels"][format!("{OCM}/clusterset")], "default");

    // 16 GPUs of 20, and 8 on the best node.
    wait("scores", hub, || {
        score(hub, "one", "resource-usage-score", "gpuClusterAvailable") == Some(60)
            && score(hub, "one", "resource-usage-score", "gpuNodeAvailable") == Some(-20)
    })
    .await;
    bed.assign(&bed.workers[0], "4").await;
    wait("the queue's score", hub, || score(hub, "one", "queue-quota-score", "team.gpu") == Some(100)).await;

    // A Placement over both: capacity of one changes, so the best cluster does.
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1beta2"), "kind": "ManagedClusterSetBinding",
        "metadata": {"name": "global", "namespace": "kueue-system"}, "spec": {"clusterSet": "global"},
    }))
    .await
    .unwrap();
    place(hub, "best", best()).await;
    decides(hub, "best", &["one"]).await;
    bed.workers[0].remove("Node", "b").await.unwrap();
    decides(hub, "best", &["two"]).await;
    rests(hub).await;

    // A restart changes nothing of it.
    let before = versions(hub);
    assert!(9 <= before.len(), "{before:?}");
    bed.kill();
    bed.start_daemon();
    bed.logs("Connected to `two`", 2).await;
    bed.logs("Placements are decided by fedq", 2).await;
    rests(&bed.hub).await;
    assert_eq!(versions(&bed.hub), before);
}

/// Of all objects that placement rests on.
fn versions(hub: &Cluster) -> Vec<String> {
    let kinds =
        ["ManagedCluster", "ManagedClusterSet", "AddOnPlacementScore", "Placement", "PlacementDecision"];
    let objects = kinds.iter().flat_map(|kind| hub.list(kind));
    objects
        .map(|object| format!("{} {}", object["metadata"]["name"], object["metadata"]["resourceVersion"]))
        .collect()
}

fn best() -> Value {
    json!({
        "numberOfClusters": 1,
        "prioritizerPolicy": {"mode": "Exact", "configurations": [{
            "scoreCoordinate": {"type": "AddOn", "addOn": {
                "resourceName": "resource-usage-score", "scoreName": "gpuClusterAvailable",
            }},
            "weight": 1,
        }]},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_cluster_is_tainted_and_one_that_left_is_gone() {
    let mut bed = bed(&["one", "two"]).await;
    bed.start_daemon();
    for worker in &bed.workers {
        bed.join(worker).await;
    }
    let hub = &bed.hub;
    for name in ["one", "two"] {
        wait("no taint", hub, || {
            hub.get("ManagedCluster", "", name).is_some() && taints(hub, name).is_empty()
        })
        .await;
    }
    // A person's labels and taints are kept through all of it.
    let own = json!({"metadata": {"labels": {"gpu": "yes"}}, "spec": {"taints": [{"key": "k", "effect": "NoSelectIfNew"}]}});
    hub.merge("ManagedCluster", "one", own).await.unwrap();
    bed.workers[0].power_off().await;
    wait("the taint of silence", hub, || taints(hub, "one") == ["k", &format!("{OCM}/unreachable")]).await;
    bed.workers[0].power_on().await.unwrap();
    wait("the taint to go", hub, || taints(hub, "one") == ["k"]).await;
    assert_eq!(hub.get("ManagedCluster", "", "one").unwrap()["metadata"]["labels"]["gpu"], "yes");

    hub.remove_in("fedq-system", "Secret", "fedq-cluster-two").await.unwrap();
    wait("the cluster that left to go", hub, || hub.get("ManagedCluster", "", "two").is_none()).await;
    assert!(hub.get("ManagedCluster", "", "one").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_made_is_left_alone() {
    let mut bed = bed(&["one", "two"]).await;
    let hub = &bed.hub;
    // OCM registered this one, and an addon scores it.
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1"), "kind": "ManagedCluster", "metadata": {"name": "one"},
        "spec": {"hubAcceptsClient": true},
    }))
    .await
    .unwrap();
    hub.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}})).await.unwrap();
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1alpha1"), "kind": "AddOnPlacementScore",
        "metadata": {"name": "resource-usage-score", "namespace": "one"},
        "status": {"scores": [{"name": "gpuClusterAvailable", "value": 7}]},
    }))
    .await
    .unwrap();
    bed.start_daemon();
    for worker in &bed.workers {
        bed.join(worker).await;
    }
    let hub = &bed.hub;
    wait("scores of both", hub, || {
        score(hub, "two", "resource-usage-score", "gpuClusterAvailable") == Some(60)
            && score(hub, "one", "queue-quota-score", "team.gpu").is_none()
            && hub.get("AddOnPlacementScore", "one", "queue-quota-score").is_some()
    })
    .await;
    bed.workers[0].put(gpu_node("c", 8)).await.unwrap();
    rests(hub).await;
    assert_eq!(score(hub, "one", "resource-usage-score", "gpuClusterAvailable"), Some(7));
    let cluster = hub.get("ManagedCluster", "", "one").unwrap();
    assert!(cluster["status"].is_null() && cluster["spec"]["taints"].is_null(), "{cluster}");
}

/// KubeStellar's agents report clusters that fedqd does not reach.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reported_cluster_is_a_managed_cluster_too() {
    let mut bed = bed(&["one"]).await;
    bed.start_daemon();
    bed.join(&bed.workers[0]).await;
    let hub = &bed.hub;
    let report = |gpus: &str, unschedulable: bool| {
        json!({"nodes": [
            {"name": "a", "labels": {"accelerator": "h100"}, "allocatableResources": {"nvidia.com/gpu": gpus, "cpu": "64"}},
            {"name": "b", "unschedulable": unschedulable, "allocatableResources": {"nvidia.com/gpu": "2", "cpu": "64"}},
        ]})
    };
    hub.put(json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterMetrics", "metadata": {"name": "far"},
        "status": report("8", true),
    }))
    .await
    .unwrap();
    let has = |field: &str, gpus: &str| {
        let cluster = hub.get("ManagedCluster", "", "far");
        cluster.is_some_and(|cluster| cluster["status"][field]["nvidia.com/gpu"] == gpus)
    };
    wait("what it reports", hub, || has("allocatable", "8") && has("capacity", "10")).await;
    let available = "ManagedClusterConditionAvailable";
    wait("it to be one that Placements choose", hub, || {
        condition(hub, "far", available).as_deref() == Some("True") && taints(hub, "far").is_empty()
    })
    .await;
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1beta2"), "kind": "ManagedClusterSetBinding",
        "metadata": {"name": "global", "namespace": "kueue-system"}, "spec": {"clusterSet": "global"},
    }))
    .await
    .unwrap();
    place(hub, "all", json!({})).await;
    decides(hub, "all", &["far", "one"]).await;
    hub.set_status("ClusterMetrics", "far", report("4", false)).await.unwrap();
    wait("the next report", hub, || has("allocatable", "6") && has("capacity", "6")).await;
    rests(hub).await;
    // What fedqd says there itself is not taken for another's word.
    assert!(taints(hub, "far").is_empty());
    hub.remove("ClusterMetrics", "far").await.unwrap();
    wait("it to go", hub, || hub.get("ManagedCluster", "", "far").is_none()).await;
    decides(hub, "all", &["one"]).await;
}
