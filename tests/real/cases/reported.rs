//! Clusters that the hub cannot reach and that only report, as KubeStellar has them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::stage::{Assign, GPU, HASTY, SOON, Setup, Stage, claim_name, clear, ground, holds, queue};
use crate::support::cluster::{Cluster, Part, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::{CASE_LABEL, node};

/// The kinds with what of their schemas fedq reads: `clustermetrics_types.go` of KubeStellar's galaxy and
/// `types.go` of OCM's `cluster/v1`.
const KINDS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clustermetrics.galaxy.kubestellar.io}
spec:
  group: galaxy.kubestellar.io
  scope: Cluster
  names: {kind: ClusterMetrics, listKind: ClusterMetricsList, plural: clustermetrics, singular: clustermetrics}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: managedclusters.cluster.open-cluster-management.io
  annotations: {api-approved.kubernetes.io: 'https://github.com/open-cluster-management-io/enhancements'}
spec:
  group: cluster.open-cluster-management.io
  scope: Cluster
  names: {kind: ManagedCluster, listKind: ManagedClusterList, plural: managedclusters, singular: managedcluster}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";
const GALAXY: &str = "galaxy.kubestellar.io/v1alpha1";
const OCM: &str = "cluster.open-cluster-management.io/v1";

pub async fn a_cluster_that_only_reports_counts_on_the_hub(fleet: &Fleet) -> Result<()> {
    let case = "reported";
    let name = "a_cluster_that_only_reports_counts_on_the_hub";
    let hub = &fleet.hub;
    clear(fleet).await?;
    serve_kinds(hub).await?;
    let setup = Setup { clusters: Some(HASTY), ..Setup::default() };
    let stage = Stage::start(fleet, name, case, setup).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "reported-queue", &[(GPU, "0")], "")).await?;
    hub.apply(&format!("{{apiVersion: {GALAXY}, kind: ClusterMetrics, metadata: {{name: reported}}}}"))
        .await?;
    report(hub, case, &[8, 8]).await?;

    // The claim is made with what was reported, and its share counts at once: nobody can confirm it.
    let claim = claim_name("reported");
    hub.wait(id(super::stage::CLAIMS, super::stage::CLAIM, &claim), "made from the report", SOON, |claim| {
        claim["spec"]["nominalResources"]["gpu"] == "16"
    })
    .await?;
    stage
        .assign("reported", &[Assign { queue: "reported-queue", flavor: case, resources: &[("gpu", "12")] }])
        .await?;
    holds(hub, "reported-queue", case, &[(GPU, "12")]).await?;
    stage.claim_says("reported", "QuotaSynced", "Unknown", "NotReachable").await?;

    // Fewer nodes, fewer GPUs.
    report(hub, case, &[8]).await?;
    holds(hub, "reported-queue", case, &[(GPU, "8")]).await?;

    // Silence proves nothing; OCM's word that it is gone does, after lostTimeout.
    hub.apply(&format!("{{apiVersion: {OCM}, kind: ManagedCluster, metadata: {{name: reported}}}}")).await?;
    available(hub, "Unknown").await?;
    holds(hub, "reported-queue", case, &[(GPU, "0")]).await?;
    available(hub, "True").await?;
    holds(hub, "reported-queue", case, &[(GPU, "8")]).await?;

    hub.delete(id(GALAXY, "ClusterMetrics", "reported")).await?;
    holds(hub, "reported-queue", case, &[(GPU, "0")]).await?;
    hub.delete(id(OCM, "ManagedCluster", "reported")).await?;
    Ok(())
}

pub async fn nodes_of_followed_clusters_are_published_when_asked_for(fleet: &Fleet) -> Result<()> {
    let case = "published";
    let name = "nodes_of_followed_clusters_are_published_when_asked_for";
    let (hub, worker) = (&fleet.hub, fleet.worker1());
    clear(fleet).await?;
    serve_kinds(hub).await?;
    let more = "capacity: {clusterMetrics: {publish: true}}";
    let setup = Setup { clusters: Some(HASTY), more, ..Setup::default() };
    let stage = Stage::start(fleet, name, case, setup).await?;
    hub.apply(&ground(case)).await?;
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    stage.join("published", worker).await?;
    let object = id(GALAXY, "ClusterMetrics", "published");
    let gpus = |object: &Value, node: &str| {
        let nodes = object["status"]["nodes"].as_array().cloned().unwrap_or_default();
        let found = nodes.into_iter().find(|one| one["name"] == node);
        found.map(|node| node["allocatableResources"][GPU].clone())
    };
    hub.wait(object, "has the node", SOON, |object| gpus(object, "published-a") == Some(json!("8"))).await?;
    worker.set_allocatable("published-a", GPU, "4").await?;
    hub.wait(object, "follows the node", SOON, |object| gpus(object, "published-a") == Some(json!("4")))
        .await?;
    stage.rest().await?;
    stage.delete_secret("published").await?;
    hub.wait_gone(object, SOON).await
}

async fn serve_kinds(hub: &Cluster) -> Result<()> {
    hub.apply(KINDS).await?;
    for plural in
        ["clustermetrics.galaxy.kubestellar.io", "managedclusters.cluster.open-cluster-management.io"]
    {
        let crd = id("apiextensions.k8s.io/v1", "CustomResourceDefinition", plural);
        hub.wait(crd, "served", SOON, |crd| has_condition(crd, "Established", "True")).await?;
    }
    Ok(())
}

async fn report(hub: &Cluster, case: &str, gpus: &[u32]) -> Result<()> {
    let node = |(index, gpus): (usize, &u32)| -> Value {
        json!({
            "name": format!("n{index}"), "labels": {CASE_LABEL: case},
            "allocatableResources": {"cpu": "64", "memory": "256Gi", GPU: gpus.to_string()},
        })
    };
    let nodes: Vec<Value> = gpus.iter().enumerate().map(node).collect();
    hub.merge(id(GALAXY, "ClusterMetrics", "reported"), Part::Status, json!({"status": {"nodes": nodes}}))
        .await
}

async fn available(hub: &Cluster, status: &str) -> Result<()> {
    let cluster =
        hub.get(id(OCM, "ManagedCluster", "reported")).await?.context("there is no ManagedCluster")?;
    let since = &cluster["metadata"]["creationTimestamp"];
    let condition = json!({
        "type": "ManagedClusterConditionAvailable", "status": status, "reason": "Test",
        "message": "the registration agent stopped updating its lease", "lastTransitionTime": since,
    });
    let patch = json!({"status": {"conditions": [condition]}});
    hub.merge(id(OCM, "ManagedCluster", "reported"), Part::Status, patch).await
}
