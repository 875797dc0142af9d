//! Quota that moves from one queue to another while workloads hold it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::stage::{
    Assign, CLAIM, CLAIMS, GPU, KUEUE, Recorder, SOON, Stage, claim_name, finish, ground, holds, job, job_id,
    nominal, queue, reserved,
};
use crate::support::cluster::{Cluster, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;

/// A worker of 8 GPUs that one of two queues has; what becomes of its queues is recorded.
async fn all_in_one_queue<'f>(fleet: &'f Fleet, name: &str) -> Result<(Stage<'f>, Recorder)> {
    let case = "move";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    for name in ["move-from", "move-to"] {
        hub.apply(&queue(case, name, &[(GPU, "0")], "")).await?;
    }
    let recorder = Recorder::start(worker, KUEUE, "ClusterQueue").await?;
    stage.join("move-one", worker).await?;
    assign(&stage, "8", "0").await?;
    holds(worker, "move-from", case, &[(GPU, "8")]).await?;
    Ok((stage, recorder))
}

pub async fn quota_moves_only_as_workloads_free_it(fleet: &Fleet) -> Result<()> {
    let (stage, recorder) = all_in_one_queue(fleet, "quota_moves_only_as_workloads_free_it").await?;
    let (hub, worker, case) = (stage.hub(), fleet.worker1(), stage.case);
    for name in ["first", "second"] {
        submit(worker, case, name, "move-from").await?;
        running(worker, case, name).await?;
    }

    assign(&stage, "2", "6").await?;
    holds(worker, "move-from", case, &[(GPU, "2")]).await?;
    holds(hub, "move-from", case, &[(GPU, "2")]).await?;
    waits_to_drain(&stage).await?;
    holds(worker, "move-to", case, &[(GPU, "0")]).await?;
    submit(worker, case, "third", "move-to").await?;

    finish(worker, case, "first").await?;
    holds(worker, "move-to", case, &[(GPU, "4")]).await?;
    running(worker, case, "third").await?;
    finish(worker, case, "second").await?;
    holds(worker, "move-to", case, &[(GPU, "6")]).await?;
    holds(hub, "move-to", case, &[(GPU, "6")]).await?;
    stage.claim_says("move-one", "Ready", "True", "Ready").await?;

    never_above(8, case, &recorder.stop()?)
}

pub async fn quota_that_is_moved_to_and_fro_is_never_out_twice(fleet: &Fleet) -> Result<()> {
    let name = "quota_that_is_moved_to_and_fro_is_never_out_twice";
    let (stage, recorder) = all_in_one_queue(fleet, name).await?;
    let (hub, worker, case) = (stage.hub(), fleet.worker1(), stage.case);
    // A growth is decided, waits for the merge window or is on its way, and the next edit takes it back.
    for round in 0..24_u64 {
        let (from, to) = if round % 2 == 0 { ("1", "7") } else { ("7", "1") };
        assign(&stage, from, to).await?;
        tokio::time::sleep(Duration::from_millis(40 + round * 173 % 700)).await;
    }
    assign(&stage, "3", "5").await?;
    for (name, gpus) in [("move-from", "3"), ("move-to", "5")] {
        holds(worker, name, case, &[(GPU, gpus)]).await?;
        holds(hub, name, case, &[(GPU, gpus)]).await?;
    }
    never_above(8, case, &recorder.stop()?)
}

async fn assign(stage: &Stage<'_>, from: &str, to: &str) -> Result<()> {
    let (from, to) = ([("gpu", from)], [("gpu", to)]);
    let give = [
        Assign { queue: "move-from", flavor: stage.case, resources: &from },
        Assign { queue: "move-to", flavor: stage.case, resources: &to },
    ];
    stage.assign("move-one", &give).await
}

async fn submit(worker: &Cluster, case: &str, name: &str, queue: &str) -> Result<()> {
    let local_queue = id(KUEUE, "LocalQueue", queue).within(case);
    worker.wait(local_queue, "copied from the hub", SOON, Value::is_object).await?;
    worker.apply_object("fedq-test", job(case, name, queue, &[(GPU, "4")], "1h")).await?;
    Ok(())
}

async fn running(worker: &Cluster, case: &str, name: &str) -> Result<()> {
    worker.wait(job_id(case, name), "running", SOON, |job| job["status"]["ready"] == 1).await?;
    Ok(())
}

async fn waits_to_drain(stage: &Stage<'_>) -> Result<()> {
    let name = claim_name("move-one");
    let what = "an assignment that waits for workloads";
    stage
        .hub()
        .wait(id(CLAIMS, CLAIM, &name), what, SOON, |claim| {
            let assignments = claim["status"]["assignments"].as_array().map_or(&[][..], Vec::as_slice);
            let draining = |one: &&Value| one["clusterQueueName"] == "move-to" && one["reason"] == "Draining";
            assignments.iter().any(|one| draining(&one)) && has_condition(claim, "Satisfied", "False")
        })
        .await?;
    Ok(())
}

/// At no instant did the queues hold or promise more than the nodes have.
fn never_above(capacity: i64, flavor: &str, states: &[Value]) -> Result<()> {
    let mut queues: BTreeMap<String, i64> = BTreeMap::new();
    ensure!(8 < states.len(), "the recorder saw only {} states", states.len());
    for state in states {
        let amount = |text: String| text.parse().unwrap_or(0);
        let promised = nominal(state, flavor, GPU).map_or(0, amount);
        let held = reserved(state, flavor, GPU).parse().unwrap_or(0);
        queues.insert(state["metadata"]["name"].to_string(), promised.max(held));
        let sum: i64 = queues.values().sum();
        ensure!(sum <= capacity, "{sum} of {capacity} GPUs were out at once: {queues:?}, after {state:#}");
    }
    Ok(())
}
