//! fedqd killed in the middle of a submit: a task is never lost, and never run twice.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::stage::{FEDQD, SOON};
use super::task_stage::{Bed, SHORT, stage};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

/// The requests and the commits of a submit and of a dispatch, in their order, and whether the task is acknowledged
/// once they are made. The second Secret is the cluster's, the first one the hub's.
const STEPS: [(&str, u32, bool); 11] = [
    ("create tokenreviews", 1, false),
    ("create subjectaccessreviews", 1, false),
    ("create secrets", 1, false),
    ("accept the task", 1, true),
    ("record the task's move", 1, true),
    ("get secrets", 1, true),
    ("create jobs", 1, true),
    ("create secrets", 2, true),
    ("create services", 1, true),
    ("record the task's move", 2, true),
    ("delete secrets", 1, true),
];

/// What fedqd does all the time, whether there are tasks or not, and what pods write, which is read while they run.
const BESIDE: [&str; 5] = ["clusterresourceclaims", "clusterqueues", "events", "namespaces", "pods"];

impl Bed<'_, '_> {
    /// Two nodes and a secret, so that there is one of each object.
    fn submit_whole(&self) -> Result<String> {
        let task = json!({
            "name": "train", "run": "python train.py", "num_nodes": 2, "resources": {"accelerators": 1},
            "secrets": {"TOKEN": "hush"},
        });
        self.hand_in(task, &[("pod-complete", SHORT)])
    }
}

pub async fn killed_at_each_step_of_a_submit_a_task_is_neither_lost_nor_run_twice(
    fleet: &Fleet,
) -> Result<()> {
    let name = "killed_at_each_step_of_a_submit_a_task_is_neither_lost_nor_run_twice";
    let stage = stage(fleet, name, "task-kills", "gang: indexed").await?;
    let bed = Bed::set(&stage, ["8", "4"]).await?;
    let marks = stage.marks()?;
    let id = bed.submit_whole()?;
    bed.reaches(&id, "succeeded").await?;
    eventually("all that it takes to be among the steps", SOON, async || {
        let mut asked = BTreeSet::new();
        for (cluster, mark) in &marks {
            for request in cluster.requests_since(*mark)?.into_iter().filter(|request| request.user == FEDQD)
            {
                let kind = request.resource.split(['.', '/']).next().unwrap_or_default();
                if !BESIDE.contains(&kind) && !kind.is_empty() && !["watch", "list"].contains(&&*request.verb)
                {
                    asked.insert(format!("{} {kind}", request.verb));
                }
            }
        }
        let steps =
            STEPS.iter().map(|(step, ..)| (*step).to_owned()).filter(|step| !step.contains("the task"));
        let steps: BTreeSet<String> = steps.collect();
        Ok(Seen::when(asked == steps, || format!("{asked:?} and not {steps:?}")))
    })
    .await?;
    for (step, count, acknowledged) in STEPS {
        for side in ["before", "after"] {
            let lost = !acknowledged || (side, step) == ("before", "accept the task");
            let at = format!("{side}:{step}:{count}");
            let known = bed.all()?;
            stage.daemon.kill()?;
            stage.daemon.restart_with(&[("FEDQ_ABORT_AT", &at)]).await?;
            // It may end before the answer has arrived.
            let told = bed.submit_whole();
            eventually("fedqd to end itself", SOON, async || {
                Ok(Seen::when(stage.daemon.has_ended()?, || "it still runs".to_owned()))
            })
            .await
            .context(at.clone())?;
            stage.daemon.restart().await?;
            let new: Vec<String> = bed.all()?.into_iter().filter(|id| !known.contains(id)).collect();
            ensure!(new.len() == usize::from(!lost), "{at}: {new:?}, {told:?}");
            for id in new {
                let ended = bed.reaches(&id, "succeeded").await.context(at.clone())?;
                ensure!(ended["epoch"] == 1, "{at}: {ended:#}");
                let mut there = [0, 0, 0, 0];
                for worker in &fleet.workers {
                    for (there, kind) in there.iter_mut().zip([
                        ("batch/v1", "Job"),
                        ("v1", "Pod"),
                        ("v1", "Secret"),
                        ("v1", "Service"),
                    ]) {
                        *there += bed.has(worker, kind, &id).await?.len();
                    }
                }
                ensure!(there == [1, 2, 1, 1], "{at}: {there:?} Jobs, pods, Secrets and Services");
            }
        }
    }
    Ok(())
}
