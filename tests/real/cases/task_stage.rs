//! Two joined workers, someone who hands in tasks, and what is seen of a task on the clusters.

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::command_line::Person;
use super::stage::{Assign, GPU, KUEUE, SOON, Stage, ground, holds, queue};
use crate::support::cluster::Cluster;
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually};

/// Longer than any case.
pub const LONG: &str = "10m";
pub const SHORT: &str = "1s";
/// What of fast networks tasks may ask for.
const PODS: &str = "{capabilities: [IPC_LOCK], hostNetwork: true}";

/// Someone who may do all, on two joined workers with so many GPUs of quota each, of 16 that they have.
pub struct Bed<'s, 'f> {
    pub stage: &'s Stage<'f>,
    pub person: Person<'s, 'f>,
}

pub async fn stage<'f>(fleet: &'f Fleet, name: &str, case: &'static str, more: &str) -> Result<Stage<'f>> {
    staged(fleet, name, case, (more, "")).await
}

/// With more keys of `tasks`, and more fields of the hub's queue.
pub async fn staged<'f>(
    fleet: &'f Fleet,
    name: &str,
    case: &'static str,
    (more, of_queue): (&str, &str),
) -> Result<Stage<'f>> {
    staged_at(fleet, name, case, (more, of_queue, super::stage::PATIENT)).await
}

/// With `clusters` of the configuration, too.
pub async fn staged_at<'f>(
    fleet: &'f Fleet,
    name: &str,
    case: &'static str,
    (more, of_queue, clusters): (&str, &str, &str),
) -> Result<Stage<'f>> {
    let tenant = format!("{{namespace: {case}, users: ['*'], queue: {case}, podConfig: {PODS}}}");
    let tasks = format!("tasks: {{tenants: [{tenant}], {more}}}");
    let stage = Stage::set_with(fleet, name, case, clusters, &tasks).await?;
    for worker in &fleet.workers {
        worker.add_nodes(&[node(case, "a").gpus(8), node(case, "b").gpus(8)]).await?;
    }
    stage.hub().apply(&ground(case)).await?;
    stage.hub().apply(&queue(case, case, &[(GPU, "0")], of_queue)).await?;
    Ok(stage)
}

impl<'s, 'f> Bed<'s, 'f> {
    pub async fn set(stage: &'s Stage<'f>, gpus: [&str; 2]) -> Result<Self> {
        Self::set_as(stage, ["one".to_owned(), "two".to_owned()], gpus).await
    }

    pub async fn set_as(stage: &'s Stage<'f>, names: [String; 2], gpus: [&str; 2]) -> Result<Self> {
        let case = stage.case;
        for ((name, worker), gpus) in names.iter().zip(&stage.fleet.workers).zip(gpus) {
            stage.join(name, worker).await?;
            give(stage, name, gpus).await?;
            holds(worker, case, case, &[(GPU, gpus)]).await?;
        }
        Ok(Self { stage, person: Person::new(stage, "ann", Some("cluster-admin")).await? })
    }

    /// Until both clusters are known to have room: before that a task goes to the one that is.
    pub async fn both_fit(&self) -> Result<()> {
        let task = json!({"name": "probe", "run": "x", "resources": {"accelerators": 1}}).to_string();
        let file = self.stage.daemon.home().file("probe.yaml", &task)?.display().to_string();
        eventually("both clusters to be ones that fit", SOON, async || {
            let ran = self.person.runs(&["task", "submit", &file, "--dry-run", "-o", "json"])?;
            let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
            let fits = |cluster: &&Value| cluster["verdict"] == "fits";
            let fit = told["clusters"].as_array().is_some_and(|all| all.iter().filter(fits).count() == 2);
            Ok(Seen::when(fit, || format!("{ran:?}")))
        })
        .await
    }

    /// As [`Self::submit`], with a file of some mebibytes that it brings along: so large that it takes three Secrets.
    pub fn submit_bringing(&self, (nodes, gpus): (u32, u32), runs: &str) -> Result<String> {
        let mut random = fastrand::Rng::with_seed(7);
        let text: String = (0..3 << 20).map(|_| random.alphanumeric()).collect();
        let weights = self.stage.daemon.home().file("weights", &text)?.display().to_string();
        self.hand_in(
            json!({
                "name": "train", "run": "python train.py", "num_nodes": nodes, "resources": {"accelerators": gpus},
                "file_mounts": {"~/weights": weights},
            }),
            &[("pod-complete", runs)],
        )
    }

    /// Hands in a task of so many nodes with so many GPUs each.
    pub fn submit(&self, (nodes, gpus): (u32, u32), runs: &str) -> Result<String> {
        let resources = json!({"accelerators": gpus});
        self.hand_in(
            json!({"name": "train", "run": "python train.py", "num_nodes": nodes, "resources": resources}),
            &[("pod-complete", runs)],
        )
    }

    /// Hands in a task whose pods spend so long in kwok's stages.
    pub fn hand_in(&self, mut task: Value, stages: &[(&str, &str)]) -> Result<String> {
        let delays = stages.iter().flat_map(|(stage, time)| {
            ["delay", "jitter-delay"].map(|key| (format!("{stage}.stage.kwok.x-k8s.io/{key}"), json!(time)))
        });
        let annotations: Map<String, Value> = delays.collect();
        task["config"]["kubernetes"]["custom_metadata"] = json!({"annotations": annotations});
        let file = self.stage.daemon.home().file("task.yaml", &task.to_string())?;
        let told =
            self.person.runs(&["task", "submit", &file.display().to_string(), "-o", "json"])?.success()?;
        let told: Value = serde_json::from_str(&told)?;
        let id = told["id"].as_str().or(told["task"]["id"].as_str());
        Ok(id.context("an id")?.to_owned())
    }

    /// The ids of all tasks.
    pub fn all(&self) -> Result<Vec<String>> {
        let told = self.person.runs(&["task", "list", "-o", "json"])?.success()?;
        let told: Value = serde_json::from_str(&told)?;
        let items = told["items"].as_array().or(told.as_array()).context("a list")?;
        Ok(items.iter().filter_map(|task| task["id"].as_str().map(str::to_owned)).collect())
    }

    pub fn status(&self, id: &str) -> Result<Value> {
        let told = self.person.runs(&["task", "status", id, "-o", "json"])?.success()?;
        Ok(serde_json::from_str(&told)?)
    }

    pub async fn reaches(&self, id: &str, phase: &str) -> Result<Value> {
        eventually(&format!("task {id} to be {phase}"), SOON * 2, async || {
            let status = self.status(id)?;
            let over = matches!(status["phase"].as_str(), Some("succeeded" | "failed" | "stopped"));
            ensure!(status["phase"] == phase || !over, "it is over: {status:#}");
            Ok(if status["phase"] == phase { Seen::Done(status) } else { Seen::Still(format!("{status:#}")) })
        })
        .await
    }

    pub async fn has(&self, worker: &Cluster, kind: (&str, &str), id: &str) -> Result<Vec<Value>> {
        let all = worker.list(kind.0, kind.1, Some(self.stage.case)).await?;
        let of = |object: &Value| {
            let metadata = &object["metadata"];
            metadata["labels"]["task-id"] == id
                || metadata["name"].as_str().is_some_and(|name| name.contains(id))
        };
        Ok(all.into_iter().filter(of).collect())
    }

    /// That the Secrets with what it brings along are there, and that its pods mount them.
    pub async fn has_files(&self, worker: &Cluster, id: &str) -> Result<()> {
        let secrets = self.has(worker, ("v1", "Secret"), id).await?;
        let mut names: Vec<&str> =
            secrets.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
        names.sort_unstable();
        ensure!(names == [0, 1, 2].map(|part| format!("train-{id}-files-{part}")), "{names:?}");
        let pods = self.has(worker, ("v1", "Pod"), id).await?;
        let mounted =
            |pod: &Value| names.iter().all(|name| pod["spec"]["volumes"].to_string().contains(name));
        ensure!(!pods.is_empty() && pods.iter().all(mounted), "{pods:#?}");
        Ok(())
    }

    pub async fn is_gone(&self, worker: &Cluster, id: &str) -> Result<()> {
        // Its garbage collector takes a minute to come back to an API server that was away.
        eventually(&format!("nothing of {id} on {}", worker.name), SOON * 3, async || {
            let mut left = Vec::new();
            for kind in [
                ("batch/v1", "Job"),
                ("jobset.x-k8s.io/v1alpha2", "JobSet"),
                ("v1", "Pod"),
                ("v1", "Service"),
                ("v1", "Secret"),
                (KUEUE, "Workload"),
            ] {
                left.extend(self.has(worker, kind, id).await?);
            }
            Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
        })
        .await
    }
}

pub async fn give(stage: &Stage<'_>, cluster: &str, gpus: &str) -> Result<()> {
    let assign = Assign { queue: stage.case, flavor: stage.case, resources: &[("gpu", gpus)] };
    stage.assign(cluster, &[assign]).await
}
