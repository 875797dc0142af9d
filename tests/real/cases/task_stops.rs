//! A stop in every phase, under real Kueue: confirmed, and nothing of the task is left or comes later.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{KUEUE, SOON};
use super::task_stage::{Bed, LONG, SHORT, give, stage};
use crate::support::cluster::{Part, id};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

impl Bed<'_, '_> {
    /// Asks for a stop, without waiting for its end.
    fn stop(&self, task: &str) -> Result<()> {
        self.person.runs(&["task", "stop", task, "--yes", "--no-wait"])?.success().map(drop)
    }

    /// A stop that has been asked for ends, leaves nothing, and may be repeated.
    async fn ends(&self, task: &str) -> Result<()> {
        let stopped = self.reaches(task, "stopped").await?;
        for worker in &self.stage.fleet.workers {
            self.is_gone(worker, task).await?;
        }
        self.stop(task)?;
        let again = self.status(task)?;
        ensure!(again["phase"] == "stopped" && again["finishedAt"] == stopped["finishedAt"], "{again:#}");
        Ok(())
    }

    /// Lets something of ours stand in the way of the end of a task's Job, or no more.
    async fn hold(&self, task: &str, held: bool) -> Result<()> {
        let case = self.stage.case;
        let jobs = self.has(self.stage.fleet.worker1(), ("batch/v1", "Job"), task).await?;
        let name = jobs.first().and_then(|job| job["metadata"]["name"].as_str()).context("the Job")?;
        let finalizers = if held { json!(["example.com/held"]) } else { Value::Null };
        let patch = json!({"metadata": {"finalizers": finalizers}});
        self.stage.fleet.worker1().merge(id("batch/v1", "Job", name).within(case), Part::Whole, patch).await
    }

    async fn cordon(&self, verb: &str) -> Result<()> {
        let case = self.stage.case;
        for (name, worker) in ["one", "two"].into_iter().zip(&self.stage.fleet.workers) {
            self.person.runs(&["cluster", verb, name])?.success()?;
            worker
                .wait(id(KUEUE, "ClusterQueue", case), verb, SOON, |queue| {
                    (queue["spec"]["stopPolicy"] == "Hold") == (verb == "cordon")
                })
                .await?;
        }
        Ok(())
    }
}

pub async fn a_task_is_stopped_in_every_phase(fleet: &Fleet) -> Result<()> {
    let case = "task-stops";
    let stage =
        stage(fleet, "a_task_is_stopped_in_every_phase", case, "spillAfter: 3s, gang: indexed").await?;
    let bed = Bed::set(&stage, ["8", "2"]).await?;
    let one = fleet.worker1();

    bed.cordon("cordon").await?;
    let pending = bed.submit((1, 1), LONG)?;
    let status = bed.reaches(&pending, "pending").await?;
    ensure!(status["pendingReason"].is_string(), "{status:#}");
    bed.stop(&pending)?;
    bed.ends(&pending).await?;
    bed.cordon("uncordon").await?;

    one.plane.freeze_api_server()?;
    let asked = async {
        // 4 fit on this one only.
        let id = bed.submit((2, 2), LONG)?;
        bed.reaches(&id, "dispatching").await?;
        bed.stop(&id)?;
        let stopping = bed.reaches(&id, "stopping").await?;
        ensure!(stopping["pendingReason"].is_string(), "{stopping:#}");
        Ok(id)
    }
    .await;
    one.plane.thaw_api_server()?;
    bed.ends(&asked?).await?;

    let resources = json!({"accelerators": 4});
    let task = json!({"name": "slow", "run": "x", "num_nodes": 2, "resources": resources});
    let starting = bed.hand_in(task, &[("pod-ready", LONG)])?;
    eventually("its pods to be there, and to start for ever", SOON, async || {
        let status = bed.reaches(&starting, "starting").await?;
        let pods = bed.has(one, ("v1", "Pod"), &starting).await?.len();
        Ok(Seen::when(pods == 2, || format!("{pods} pods, {status:#}")))
    })
    .await?;
    let queued = bed.submit((1, 4), LONG)?;
    bed.reaches(&queued, "queued").await?;
    for id in [&queued, &starting] {
        bed.stop(id)?;
        bed.ends(id).await?;
    }

    // The first fills the cluster, so the second waits there until the other one gets room.
    let running = bed.submit((1, 8), LONG)?;
    bed.reaches(&running, "running").await?;
    let moving = bed.submit((1, 4), LONG)?;
    ensure!(bed.reaches(&moving, "queued").await?["cluster"] == "one");
    bed.hold(&moving, true).await?;
    give(&stage, "two", "8").await?;
    bed.reaches(&moving, "withdrawing").await?;
    bed.stop(&moving)?;
    bed.reaches(&moving, "stopping").await?;
    // As long as something of it is there, it is not over.
    bed.stop(&moving)?;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    ensure!(bed.status(&moving)?["phase"] == "stopping");
    bed.hold(&moving, false).await?;
    bed.ends(&moving).await?;
    bed.stop(&running)?;
    bed.ends(&running).await?;

    let over = bed.submit((1, 1), SHORT)?;
    bed.reaches(&over, "succeeded").await?;
    bed.stop(&over)?;
    ensure!(bed.status(&over)?["phase"] == "succeeded", "what is over stays as it is");
    Ok(())
}
