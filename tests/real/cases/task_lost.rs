//! A cluster that is lost with a task on it, and returns after another has taken the task over.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::stage::SOON;
use super::task_stage::{Bed, LONG, staged_at};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

/// The one that stays must not be given up because the machine is busy with the other's end.
const LATE: &str =
    "{allowLoopback: true, requestTimeout: 4s, staleAfter: 10s, lostTimeout: 25s, nodePositionInterval: 1s}";

pub async fn a_lost_clusters_task_runs_elsewhere_and_its_copy_is_withdrawn_at_return(
    fleet: &Fleet,
) -> Result<()> {
    let name = "a_lost_clusters_task_runs_elsewhere_and_its_copy_is_withdrawn_at_return";
    let stage = staged_at(fleet, name, "lost", ("lostPolicy: requeue, gang: indexed", "", LATE)).await?;
    // The first is preferred: more is free there.
    let bed = Bed::set(&stage, ["16", "8"]).await?;
    bed.both_fit().await?;
    let (one, two) = (fleet.worker1(), fleet.worker2());
    let id = bed.submit((1, 6), LONG)?;
    let running = bed.reaches(&id, "running").await?;
    ensure!(running["cluster"] == "one", "{running:#}");

    one.plane.kill_api_server()?;
    eventually("the other cluster to run it", SOON * 2, async || {
        let status = bed.status(&id)?;
        let moved = status["phase"] == "running" && status["cluster"] == "two" && status["epoch"] == 2;
        Ok(Seen::when(moved, || format!("{status:#}")))
    })
    .await?;
    stage.daemon.kill()?;
    stage.daemon.restart().await?;
    // Of 16 there are 6 taken until the earlier copy is gone.
    let next = bed.hand_in(
        json!({"name": "next", "run": "x", "num_nodes": 2, "resources": {"accelerators": 6, "infra": "k8s/one"}}),
        &[("pod-complete", LONG)],
    )?;
    one.plane.restart_api_server().await?;
    bed.is_gone(one, &id).await?;
    bed.reaches(&next, "running").await?;
    let told = bed.reaches(&id, "running").await?;
    ensure!(told["cluster"] == "two" && told["epoch"] == 2 && told["restarts"] == 0, "{told:#}");
    let pods: Vec<Value> = bed.has(two, ("v1", "Pod"), &id).await?;
    ensure!(pods.len() == 1, "{pods:#?}");
    let withdrawn = "one answers again, and nothing of it is left there";
    ensure!(told["events"].to_string().contains(withdrawn), "{told:#}");
    Ok(())
}
