//! Queues that belong to people and to other controllers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{
    Assign, CLAIM, CLAIMS, GPU, KUEUE, Recorder, SOON, Stage, claim_name, ground, holds, job, job_id,
    nominal, queue, quota, same,
};
use crate::support::cluster::{Cluster, Part, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually, throughout};

pub async fn a_foreign_queue_of_the_same_name_is_left_alone_until_adopted(fleet: &Fleet) -> Result<()> {
    let case = "foreign";
    let name = "a_foreign_queue_of_the_same_name_is_left_alone_until_adopted";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "foreign-queue", &[(GPU, "0")], "")).await?;
    worker.apply(&ground(case)).await?;
    worker.apply(&queue(case, "foreign-queue", &[(GPU, "1")], "")).await?;
    let theirs = worker.get(id(KUEUE, "ClusterQueue", "foreign-queue")).await?.context("just made")?;
    stage.join("foreign-one", worker).await?;
    give(&stage, "foreign-one", "foreign-queue", "5").await?;

    stage.claim_says("foreign-one", "Satisfied", "False", "Conflict").await?;
    stage.rest().await?;
    let now = worker.get(id(KUEUE, "ClusterQueue", "foreign-queue")).await?.context("still there")?;
    ensure!(now["spec"] == theirs["spec"], "it was touched: {now:#}");
    ensure!(now["metadata"]["labels"] == theirs["metadata"]["labels"], "it was labelled: {now:#}");
    holds(hub, "foreign-queue", case, &[(GPU, "0")]).await.context("it counts for nothing")?;

    let adopt = json!({"metadata": {"annotations": {"fedq.dev/adopt": "true"}}});
    worker.merge(id(KUEUE, "ClusterQueue", "foreign-queue"), Part::Whole, adopt).await?;
    for cluster in [worker, hub] {
        holds(cluster, "foreign-queue", case, &[(GPU, "5")]).await.context("adopted")?;
    }
    stage.claim_says("foreign-one", "Ready", "True", "Ready").await?;
    Ok(())
}

pub async fn what_people_wrote_on_a_hub_queue_is_kept(fleet: &Fleet) -> Result<()> {
    let case = "keep";
    let stage = Stage::set(fleet, "what_people_wrote_on_a_hub_queue_is_kept", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(16)]).await?;
    hub.apply(&ground(case)).await?;
    let mine = queue(case, "keep-queue", &[("cpu", "7"), (GPU, "4")], "  cohortName: keep-cohort")
        .replace("nominalQuota: 4", "nominalQuota: 4, lendingLimit: 3");
    hub.apply(&mine).await?;
    stage.join("keep-one", worker).await?;
    give(&stage, "keep-one", "keep-queue", "5").await?;
    holds(hub, "keep-queue", case, &[(GPU, "9"), ("cpu", "7")]).await.context("added to what was there")?;
    holds(worker, "keep-queue", case, &[(GPU, "5")]).await?;
    limit(hub, case, "3").await?;

    // Back to what was there before, and the limit with it.
    stage.assign("keep-one", &[]).await?;
    holds(hub, "keep-queue", case, &[(GPU, "4"), ("cpu", "7")]).await.context("base is left")?;
    limit(hub, case, "3").await
}

async fn limit(cluster: &Cluster, flavor: &str, wanted: &str) -> Result<()> {
    let object = cluster.get(id(KUEUE, "ClusterQueue", "keep-queue")).await?.context("it is there")?;
    let limit = quota(&object, flavor, GPU).and_then(|cell| cell["lendingLimit"].as_str());
    ensure!(limit.is_some_and(|limit| same(limit, wanted)), "lendingLimit is not {wanted}: {object:#}");
    Ok(())
}

pub async fn a_controller_that_writes_our_cells_is_named_not_fought(fleet: &Fleet) -> Result<()> {
    let case = "drift";
    let stage = Stage::set(fleet, "a_controller_that_writes_our_cells_is_named_not_fought", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(16)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "drift-queue", &[(GPU, "0")], "")).await?;
    stage.join("drift-one", worker).await?;
    give(&stage, "drift-one", "drift-queue", "5").await?;
    holds(hub, "drift-queue", case, &[(GPU, "5")]).await?;
    stage.rest().await?;

    let mark = hub.mark()?;
    let conflict = eventually("the other controller to be reported", SOON, async || {
        let object = hub.get(id(KUEUE, "ClusterQueue", "drift-queue")).await?.context("it is there")?;
        if nominal(&object, case, GPU).is_some_and(|now| same(&now, "5")) {
            let wrong = queue(case, "drift-queue", &[(GPU, "11")], "");
            hub.apply_as("other-controller", &wrong).await?;
        }
        let claim = stage.claim("drift-one").await?;
        let synced = super::stage::condition(&claim, "QuotaSynced").clone();
        Ok(if synced["reason"] == "QuotaConflict" {
            Seen::Done(synced)
        } else {
            Seen::Still(synced.to_string())
        })
    })
    .await?;
    ensure!(conflict["message"].to_string().contains("other-controller"), "it names nobody: {conflict}");
    let writes = hub.writes_since(mark, super::stage::FEDQD).await?;
    let queues = writes.iter().filter(|one| one.resource.starts_with("clusterqueues")).count();
    ensure!((1..=6).contains(&queues), "{queues} reverts: {writes:#?}");
    throughout("no write war", Duration::from_secs(3), async || {
        let object = hub.get(id(KUEUE, "ClusterQueue", "drift-queue")).await?.context("it is there")?;
        Ok(Seen::when(nominal(&object, case, GPU).is_some_and(|now| same(&now, "11")), || object.to_string()))
    })
    .await
}

pub async fn a_multikueue_queue_counts_only_clusters_it_dispatches_to(fleet: &Fleet) -> Result<()> {
    let case = "dispatch";
    let name = "a_multikueue_queue_counts_only_clusters_it_dispatches_to";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    hub.apply(&multikueue(case, "dispatch-one", "Manual")).await?;
    hub.apply(&ground(case)).await?;
    let check = format!("  admissionChecksStrategy: {{admissionChecks: [{{name: {case}}}]}}");
    hub.apply(&queue(case, "dispatch-queue", &[(GPU, "0")], &check)).await?;
    for (cluster, worker) in [("dispatch-one", one), ("dispatch-two", two)] {
        worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
        stage.join(cluster, worker).await?;
        give(&stage, cluster, "dispatch-queue", "3").await?;
    }
    holds(two, "dispatch-queue", case, &[(GPU, "3")]).await?;
    holds(hub, "dispatch-queue", case, &[(GPU, "3")]).await.context("only the listed cluster counts")?;
    stage.claim_says("dispatch-two", "Satisfied", "False", "NotDispatched").await?;
    let copy = one.get(id(KUEUE, "ClusterQueue", "dispatch-queue")).await?.context("copied")?;
    ensure!(copy["spec"]["admissionChecksStrategy"].is_null(), "the worker dispatches no further: {copy:#}");

    hub.apply(&multikueue(case, "dispatch-one, dispatch-two", "Manual")).await?;
    holds(hub, "dispatch-queue", case, &[(GPU, "6")]).await.context("listed later")?;
    stage.claim_says("dispatch-two", "Satisfied", "True", "Satisfied").await?;
    Ok(())
}

pub async fn quota_that_kueue_manages_is_left_to_it(fleet: &Fleet) -> Result<()> {
    let case = "auto";
    let stage = Stage::set(fleet, "quota_that_kueue_manages_is_left_to_it", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&multikueue(case, "auto-one", "Automated")).await?;
    hub.apply(&ground(case)).await?;
    let check = format!("  admissionChecksStrategy: {{admissionChecks: [{{name: {case}}}]}}");
    hub.apply(&queue(case, "auto-queue", &[(GPU, "2")], &check)).await?;
    stage.join("auto-one", worker).await?;
    give(&stage, "auto-one", "auto-queue", "3").await?;
    let claim = claim_name("auto-one");
    hub.wait(id(CLAIMS, CLAIM, &claim), "an assignment left to Kueue", SOON, |claim| {
        claim["status"]["assignments"][0]["reason"] == "Automated"
    })
    .await?;
    let object = hub.get(id(KUEUE, "ClusterQueue", "auto-queue")).await?.context("it is there")?;
    ensure!(nominal(&object, case, GPU).is_some_and(|now| now == "2"), "fedq wrote it: {object:#}");
    ensure!(object["metadata"]["annotations"]["fedq.dev/cells"] == Value::Null, "{object:#}");
    Ok(())
}

pub async fn a_queue_on_hold_keeps_what_still_runs(fleet: &Fleet) -> Result<()> {
    let case = "hold";
    let stage = Stage::set(fleet, "a_queue_on_hold_keeps_what_still_runs", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "hold-queue", &[(GPU, "0")], "")).await?;
    stage.join("hold-one", worker).await?;
    give(&stage, "hold-one", "hold-queue", "6").await?;
    holds(hub, "hold-queue", case, &[(GPU, "6")]).await?;
    let local_queue = id(KUEUE, "LocalQueue", "hold-queue").within(case);
    worker.wait(local_queue, "copied from the hub", SOON, Value::is_object).await?;
    worker.apply_object("fedq-test", job(case, "runs", "hold-queue", &[(GPU, "4")], "1h")).await?;
    worker.wait(job_id(case, "runs"), "running", SOON, |job| job["status"]["ready"] == 1).await?;
    stage.rest().await?;

    let recorder = Recorder::start(hub, KUEUE, "ClusterQueue").await?;
    let stop = async |policy: &str| {
        let patch = json!({"spec": {"stopPolicy": policy}});
        hub.merge(id(KUEUE, "ClusterQueue", "hold-queue"), Part::Whole, patch).await?;
        let is = |object: &Value| object["spec"]["stopPolicy"].as_str().unwrap_or("None") == policy;
        worker.wait(id(KUEUE, "ClusterQueue", "hold-queue"), policy, SOON, is).await
    };
    stop("Hold").await?;
    stage.claim_says("hold-one", "Satisfied", "False", "QueueInactive").await?;
    holds(hub, "hold-queue", case, &[(GPU, "4")]).await.context("what the Job holds still counts")?;
    stage.rest().await?;
    stop("None").await?;
    holds(hub, "hold-queue", case, &[(GPU, "6")]).await.context("resumed")?;
    stage.claim_says("hold-one", "Ready", "True", "Ready").await?;
    let seen: Vec<String> = recorder.stop()?.iter().filter_map(|state| nominal(state, case, GPU)).collect();
    ensure!(seen.iter().all(|gpus| same(gpus, "6") || same(gpus, "4")), "it fell below what runs: {seen:?}");
    Ok(())
}

/// A check that dispatches to these clusters. Nobody answers for them: only the names matter here.
fn multikueue(case: &str, clusters: &str, management: &str) -> String {
    format!(
        "
apiVersion: {KUEUE}
kind: MultiKueueConfig
metadata: {{name: {case}}}
spec: {{clusters: [{clusters}], quotaManagement: {management}}}
---
apiVersion: {KUEUE}
kind: AdmissionCheck
metadata: {{name: {case}}}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {{apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: {case}}}
"
    )
}

async fn give(stage: &Stage<'_>, cluster: &str, queue: &str, gpus: &str) -> Result<()> {
    stage.assign(cluster, &[Assign { queue, flavor: stage.case, resources: &[("gpu", gpus)] }]).await
}
