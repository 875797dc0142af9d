//! Words for the cases of Placements and MultiKueue: OCM's kinds on the hub, checks and queues as an administrator
//! applies them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::stage::{GPU, KUEUE, OCM_CRDS, SOON, condition, finish, ground, job_id};
use crate::support::cluster::{Cluster, Id, Part, has_condition, id};
use crate::support::kueue::install_crds;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually};

pub const OCM: &str = "cluster.open-cluster-management.io/v1beta1";
pub const NAMESPACE: &str = "kueue-system";
/// Kueue waits up to half a minute between its tries to reach a cluster.
pub const CONNECTS_WITHIN: Duration = Duration::from_mins(2);

/// OCM's kinds, with nothing of them left in Kueue's namespace.
pub async fn install_ocm(hub: &Cluster) -> Result<()> {
    install_crds(hub, OCM_CRDS).await?;
    for kind in ["PlacementDecision", "Placement"] {
        let all = eventually(&format!("{kind} to be served"), SOON, async || {
            hub.list(OCM, kind, Some(NAMESPACE)).await.map(Seen::Done)
        })
        .await?;
        for object in all {
            hub.delete(ocm(kind, object["metadata"]["name"].as_str().unwrap_or_default())).await?;
        }
    }
    Ok(())
}

pub fn ocm<'a>(kind: &'a str, name: &'a str) -> Id<'a> {
    id(OCM, kind, name).within(NAMESPACE)
}

pub fn mk<'a>(kind: &'a str, name: &'a str) -> Id<'a> {
    id(KUEUE, kind, name)
}

/// A Placement of Kueue's namespace, and what it decided on.
pub async fn decide(hub: &Cluster, placement: &str, clusters: &[&str]) -> Result<()> {
    hub.apply(&format!(
        "{{apiVersion: {OCM}, kind: Placement, metadata: {{name: {placement}, namespace: {NAMESPACE}}}, spec: {{}}}}"
    ))
    .await?;
    let name = format!("{placement}-decision-1");
    let decision = json!({
        "apiVersion": OCM, "kind": "PlacementDecision",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
            "cluster.open-cluster-management.io/placement": placement,
            "cluster.open-cluster-management.io/decision-group-index": "0",
            "cluster.open-cluster-management.io/decision-group-name": "",
        }},
    });
    hub.apply_object("fedq-test", decision).await?;
    let decisions: Vec<Value> =
        clusters.iter().map(|name| json!({"clusterName": name, "reason": ""})).collect();
    hub.merge(ocm("PlacementDecision", &name), Part::Status, json!({"status": {"decisions": decisions}}))
        .await
}

/// The two checks of the guide: MultiKueue's, with the config that is named as the Placement, and the Placement's.
pub fn checks(case: &str, placement: &str) -> String {
    format!(
        "
apiVersion: {KUEUE}
kind: AdmissionCheck
metadata: {{name: multikueue-{case}}}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {{apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: {placement}}}
---
{}",
        placement_check(&format!("placement-{case}"), placement)
    )
}

pub fn placement_check(name: &str, placement: &str) -> String {
    format!(
        "
apiVersion: {KUEUE}
kind: AdmissionCheck
metadata: {{name: {name}}}
spec:
  controllerName: open-cluster-management.io/placement
  parameters: {{apiGroup: cluster.open-cluster-management.io, kind: Placement, name: {placement}}}
"
    )
}

/// The hub's queue with both checks. Its flavor has no labels: an API server of 1.36 does not let Kueue take a
/// flavor's labels out of a Job that has started, so that its eviction would never end.
pub async fn hub_queue(hub: &Cluster, case: &str, gpus: u32) -> Result<()> {
    hub.apply(&format!(
        "
apiVersion: v1
kind: Namespace
metadata: {{name: {case}}}
---
apiVersion: {KUEUE}
kind: ResourceFlavor
metadata: {{name: {case}}}
"
    ))
    .await?;
    let both = format!(
        "  admissionChecksStrategy: {{admissionChecks: [{{name: multikueue-{case}}}, {{name: placement-{case}}}]}}"
    );
    hub.apply(&super::stage::queue(case, case, &[(GPU, &gpus.to_string())], &both)).await
}

/// What an administrator sets up on a worker: nodes, and queues as on the hub.
pub async fn worker_queue(worker: &Cluster, case: &str, gpus: u32) -> Result<()> {
    worker.add_nodes(&[node(case, "a").gpus(gpus)]).await?;
    worker.apply(&ground(case)).await?;
    worker.apply(&super::stage::queue(case, case, &[(GPU, &gpus.to_string())], "")).await
}

/// Waits until the config names exactly these, in this order.
pub async fn config_is(hub: &Cluster, name: &str, clusters: &[&str]) -> Result<()> {
    let what = format!("clusters {clusters:?}");
    let is = |config: &Value| config["spec"]["clusters"] == json!(clusters);
    hub.wait(mk("MultiKueueConfig", name), &what, SOON, is).await?;
    Ok(())
}

pub async fn check_says(hub: &Cluster, check: &str, status: &str, reason: &str) -> Result<()> {
    check_tells(hub, check, (status, reason), "").await
}

/// Until the check's condition has this in its message as well.
pub async fn check_tells(
    hub: &Cluster,
    check: &str,
    (status, reason): (&str, &str),
    text: &str,
) -> Result<()> {
    let what = format!("Active={status}/{reason} {text}");
    let says = |check: &Value| {
        let active = condition(check, "Active");
        active["status"] == status
            && active["reason"] == reason
            && active["observedGeneration"] == check["metadata"]["generation"]
            && active["message"].as_str().is_some_and(|message| message.contains(text))
    };
    hub.wait(mk("AdmissionCheck", check), &what, SOON, says).await?;
    Ok(())
}

pub async fn is_active(hub: &Cluster, kind: &str, name: &str) -> Result<()> {
    let active = |object: &Value| has_condition(object, "Active", "True");
    hub.wait(mk(kind, name), "active", CONNECTS_WITHIN, active).await?;
    Ok(())
}

/// The Workload that Kueue made for a Job.
pub async fn workload_of(cluster: &Cluster, case: &str, job: &str) -> Result<Option<Value>> {
    let all = cluster.list(KUEUE, "Workload", Some(case)).await?;
    let owned = |workload: &&Value| {
        workload["metadata"]["ownerReferences"]
            .as_array()
            .is_some_and(|owners| owners.iter().any(|owner| owner["name"] == job))
    };
    Ok(all.iter().find(owned).cloned())
}

/// Waits until a Job of the hub runs on the cluster of that MultiKueue name.
pub async fn runs_on(hub: &Cluster, case: &str, job: &str, cluster: &str) -> Result<()> {
    eventually(&format!("{job} to run on {cluster}"), CONNECTS_WITHIN, async || {
        let workload = workload_of(hub, case, job).await?.context("no Workload yet")?;
        let there =
            workload["status"]["clusterName"] == cluster && has_condition(&workload, "Admitted", "True");
        Ok(Seen::when(there, || format!("{:#}", workload["status"])))
    })
    .await
}

/// Lets the Job's pods on the worker succeed, once they are there, until the Job of the hub is complete.
pub async fn finishes(hub: &Cluster, worker: &Cluster, case: &str, job: &str) -> Result<()> {
    eventually(&format!("{job} to finish"), CONNECTS_WITHIN, async || {
        finish(worker, case, job).await?;
        let found = hub.get(job_id(case, job)).await?.context("the Job")?;
        Ok(Seen::when(has_condition(&found, "Complete", "True"), || found["status"].to_string()))
    })
    .await
}

/// With what Kueue says of the Workload where it was, because how often alone tells nobody why.
pub async fn was_not_evicted(hub: &Cluster, case: &str, job: &str) -> Result<()> {
    if 0 < evictions(hub, case, job).await? {
        let workload = workload_of(hub, case, job).await?.context("it has a Workload")?;
        bail!("{job} was evicted: {:#}", workload["status"]);
    }
    Ok(())
}

/// How often Kueue has evicted the Job's Workload.
pub async fn evictions(hub: &Cluster, case: &str, job: &str) -> Result<i64> {
    let workload = workload_of(hub, case, job).await?.with_context(|| format!("{job} has a Workload"))?;
    let all = workload["status"]["schedulingStats"]["evictions"].as_array().cloned().unwrap_or_default();
    Ok(all.iter().filter_map(|eviction| eviction["count"].as_i64()).sum())
}
