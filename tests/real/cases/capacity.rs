//! From joined clusters and their nodes to quota.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::stage::{
    Assign, CLAIM, CLAIMS, GPU, KUEUE, SOON, Stage, claim_name, condition, ground, heartbeat, holds, job,
    job_id, queue, same,
};
use crate::support::cluster::{has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually, throughout};

pub async fn two_joined_workers_fill_the_queues_of_the_hub_and_run_jobs(fleet: &Fleet) -> Result<()> {
    let case = "join";
    let name = "two_joined_workers_fill_the_queues_of_the_hub_and_run_jobs";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    let sized = |name| node(case, name).gpus(8);
    one.add_nodes(&[sized("a"), sized("b")]).await?;
    two.add_nodes(&[sized("a")]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "join-queue", &[("cpu", "0"), ("memory", "0"), (GPU, "0")], "")).await?;
    stage.join("join-one", one).await?;
    stage.join("join-two", two).await?;

    for (cluster, cpu, memory, gpu) in [("join-one", "64", "512Gi", "16"), ("join-two", "32", "256Gi", "8")] {
        let claim = claim_name(cluster);
        let claim = hub.wait(id(CLAIMS, CLAIM, &claim), "made with the capacity found", SOON, |claim| {
            let found = &claim["spec"]["nominalResources"];
            [("cpu", cpu), ("memory", memory), ("gpu", gpu)]
                .iter()
                .all(|(key, want)| found[*key].as_str().is_some_and(|has| same(has, want)))
        });
        let claim = claim.await?;
        ensure!(claim["spec"]["clusterName"] == cluster, "{claim:#}");
    }

    let assigned = |resources| [Assign { queue: "join-queue", flavor: case, resources }];
    stage.assign("join-one", &assigned(&[("cpu", "40"), ("memory", "400Gi"), ("gpu", "12")])).await?;
    stage.assign("join-two", &assigned(&[("cpu", "20"), ("memory", "100Gi"), ("gpu", "5")])).await?;
    holds(one, "join-queue", case, &[("cpu", "40"), ("memory", "400Gi"), (GPU, "12")]).await?;
    holds(two, "join-queue", case, &[("cpu", "20"), ("memory", "100Gi"), (GPU, "5")]).await?;
    holds(hub, "join-queue", case, &[("cpu", "60"), ("memory", "500Gi"), (GPU, "17")]).await?;
    for cluster in ["join-one", "join-two"] {
        stage.claim_says(cluster, "Ready", "True", "Ready").await?;
    }

    let asks = |gpus| [("cpu", "1"), ("memory", "1Gi"), (GPU, gpus)];
    one.wait(id(KUEUE, "LocalQueue", "join-queue").within(case), "copied", SOON, Value::is_object).await?;
    one.apply_object("fedq-test", job(case, "fits", "join-queue", &asks("8"), "1s")).await?;
    one.wait(job_id(case, "fits"), "complete", SOON, |job| has_condition(job, "Complete", "True")).await?;
    two.wait(id(KUEUE, "LocalQueue", "join-queue").within(case), "copied", SOON, Value::is_object).await?;
    two.apply_object("fedq-test", job(case, "above", "join-queue", &asks("6"), "1s")).await?;
    eventually("the Job's workload to wait for quota", SOON, async || {
        let workloads = two.list(KUEUE, "Workload", Some(case)).await?;
        let waits = workloads.iter().any(|one| has_condition(one, "QuotaReserved", "False"));
        Ok(Seen::when(waits, || format!("{workloads:?}")))
    })
    .await?;
    throughout("the Job above the quota stays suspended", Duration::from_secs(1), async || {
        let job = two.get(job_id(case, "above")).await?.context("the Job is there")?;
        Ok(Seen::when(job["spec"]["suspend"] == true, || job.to_string()))
    })
    .await
}

pub async fn quota_follows_the_nodes_and_heartbeats_write_nothing(fleet: &Fleet) -> Result<()> {
    let case = "nodes";
    let stage = Stage::set(fleet, "quota_follows_the_nodes_and_heartbeats_write_nothing", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    let (a, b) = (node(case, "a").gpus(8), node(case, "b").gpus(8));
    worker.add_nodes(&[a.clone(), b.clone()]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "nodes-queue", &[(GPU, "0")], "")).await?;
    stage.join("nodes-one", worker).await?;
    let assigned = [Assign { queue: "nodes-queue", flavor: case, resources: &[("gpu", "12")] }];
    stage.assign("nodes-one", &assigned).await?;

    let gives = async |gpus: &str, capacity: &str| -> Result<()> {
        for cluster in [worker, hub] {
            holds(cluster, "nodes-queue", case, &[(GPU, gpus)]).await?;
        }
        let claim = claim_name("nodes-one");
        let what = format!("capacity {capacity}, short of {gpus} or not");
        hub.wait(id(CLAIMS, CLAIM, &claim), &what, SOON, |claim| {
            let satisfied = if gpus == "12" { "True" } else { "False" };
            claim["status"]["capacity"]["gpu"] == capacity
                && condition(claim, "Satisfied")["status"] == satisfied
                && claim["status"]["short"] == if gpus == "12" { Value::Null } else { "gpu 4".into() }
        })
        .await?;
        Ok(())
    };
    gives("12", "16").await?;
    worker.cordon(b.name(), true).await.context("cordon")?;
    gives("8", "8").await?;
    worker.cordon(b.name(), false).await?;
    gives("12", "16").await?;
    worker.taint(b.name(), &[("example.com/broken", "yes", "NoSchedule")]).await?;
    holds(hub, "nodes-queue", case, &[(GPU, "8")]).await.context("taint")?;
    worker.taint(b.name(), &[]).await?;
    gives("12", "16").await?;
    worker.delete_node(b.name()).await?;
    gives("8", "8").await.context("delete")?;
    worker.add_nodes(&[node(case, "c").gpus(8)]).await?;
    gives("12", "16").await.context("add")?;

    stage.rest().await?;
    let marks = stage.marks()?;
    for second in 0..50 {
        heartbeat(worker, a.name(), second).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let writes = stage.writes_since(&marks).await?;
    ensure!(writes.is_empty(), "heartbeats for 10 s made fedqd write: {writes:#?}");
    Ok(())
}
