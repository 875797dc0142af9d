//! The example workflows of k8s-cli's specification, with the requests that its client makes, in their order: the same
//! answers, from real Kueue.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::command_line::Person;
use super::stage::{Assign, GPU, KUEUE, PATIENT, SOON, Stage, ground, holds, queue};
use super::task_logs::may_run_tasks;
use super::task_stage::{Bed, LONG};
use crate::support::cluster::id;
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually};
use crate::support::web::{Answer, Client};

const CASE: &str = "k8s-cli";
const USER: &str = "myuser";
const DISK: &str = "k8s-cli-disk";

/// The client of someone who logged in as that user, with a URL of the form `http://anyone:TOKEN@host`.
struct K8sCli {
    client: Client,
    authorization: String,
}

impl K8sCli {
    async fn call(&self, line: &str, body: &Value) -> Result<Answer> {
        let (method, path) = line.split_once(' ').unwrap_or(("GET", line));
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .header("authorization", &self.authorization)
            .header("x-user", USER);
        self.client.send(request, if body.is_null() { String::new() } else { body.to_string() }).await
    }

    async fn gives(&self, line: &str, body: Value, status: u16, expected: &Value) -> Result<()> {
        let answer = self.call(line, &body).await?;
        let told: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        ensure!((answer.status, &told) == (status, expected), "{line}: {} {}", answer.status, answer.body);
        Ok(())
    }

    async fn json(&self, line: &str, body: Value) -> Result<Value> {
        let answer = self.call(line, &body).await?;
        ensure!(answer.status == 200, "{line}: {} {}", answer.status, answer.body);
        Ok(serde_json::from_str(&answer.body)?)
    }

    async fn submit(&self, task: Value) -> Result<String> {
        let told = self.json("POST /tasks/submit", task).await?;
        let id = told["task_id"].as_str().unwrap_or_default().to_owned();
        let message = format!("Task submitted successfully with ID: {id}");
        ensure!(told == json!({"task_id": id, "status": "submitted", "message": message}), "{told:#}");
        Ok(id)
    }

    /// `jobs logs`: a line of each node.
    async fn says_hello(&self, task: &str, nodes: usize) -> Result<()> {
        let logs = self.call(&format!("GET /tasks/{task}/logs"), &Value::Null).await?;
        let lines = logs.body.matches("hello from kwok\n").count();
        ensure!(logs.status == 200 && lines == nodes, "{} {}", logs.status, logs.body);
        Ok(())
    }

    async fn reaches(&self, task: &str, status: &str) -> Result<Value> {
        eventually(&format!("task {task} to be {status}"), SOON, async || {
            let told = self.json(&format!("GET /tasks/{task}"), Value::Null).await?;
            Ok(if told["status"] == status { Seen::Done(told) } else { Seen::Still(format!("{told:#}")) })
        })
        .await
    }
}

/// One cluster with quota of all that the examples ask for, and a disk for whoever asks for no class of it.
async fn set<'f>(fleet: &'f Fleet, name: &str) -> Result<Stage<'f>> {
    let tenants =
        format!("tasks: {{gang: indexed, tenants: [{{namespace: {CASE}, users: ['*'], queue: {CASE}}}]}}");
    let stage = Stage::set_with(fleet, name, CASE, PATIENT, &tenants).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(CASE, "a").gpus(8), node(CASE, "b").gpus(8)]).await?;
    hub.apply(&ground(CASE)).await?;
    hub.apply(&queue(CASE, CASE, &[("cpu", "0"), ("memory", "0"), (GPU, "0")], "")).await?;
    stage.join("one", worker).await?;
    let all = [("cpu", "32"), ("memory", "64Gi"), ("gpu", "8")];
    stage.assign("one", &[Assign { queue: CASE, flavor: CASE, resources: &all }]).await?;
    holds(worker, CASE, CASE, &[("cpu", "32"), ("memory", "64Gi"), (GPU, "8")]).await?;
    worker
        .apply(&format!(
            "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {DISK}}}
spec:
  capacity: {{storage: 10Gi}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {{path: /nowhere}}
"
        ))
        .await?;
    let user = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER});
    may_run_tasks(hub, CASE, user).await?;
    Ok(stage)
}

pub async fn the_workflows_of_its_specification_give_its_answers(fleet: &Fleet) -> Result<()> {
    let name = "the_workflows_of_its_specification_give_its_answers";
    let stage = set(fleet, name).await?;
    let bed = Bed { stage: &stage, person: Person::new(&stage, "boss", Some("cluster-admin")).await? };
    let cli = K8sCli { client: Client::new(&stage.server, None)?, authorization: bed.person.basic() };
    let health = cli.client.get("/").await?;
    ensure!(health.body == r#"{"status":"ok","service":"k8s-cli-api"}"#, "{}", health.body);
    let volume = cli.creates_a_volume().await?;
    trains(&cli, &bed, &volume).await?;
    trains_distributed(&cli, &bed).await?;
    stops(&cli, &bed).await?;
    cli.deletes_the_volume(&volume).await?;
    fleet.worker1().delete(id("v1", "PersistentVolume", DISK)).await
}

impl K8sCli {
    /// `volumes create data-vol 10Gi`
    async fn creates_a_volume(&self) -> Result<String> {
        let body = json!({
            "name": "data-vol", "size": "10Gi", "storage_class": null, "access_modes": ["ReadWriteOnce"],
        });
        let made = self.json("POST /volumes/create", body).await?;
        let volume = made["volume_id"].as_str().unwrap_or_default().to_owned();
        let message = format!("Volume created successfully with ID: {volume}");
        ensure!(made == json!({"volume_id": volume, "status": "created", "message": message}), "{made:#}");
        Ok(volume)
    }

    /// `volumes list`, once the first task says where it is.
    async fn has_the_volume(&self, volume: &str) -> Result<()> {
        let bound = eventually("the volume to be bound", SOON, async || {
            let told = self.json(&format!("GET /volumes/{volume}"), Value::Null).await?;
            Ok(if told["status"] == "Bound" { Seen::Done(told) } else { Seen::Still(format!("{told:#}")) })
        })
        .await?;
        let expected = json!({
            "volume_id": volume, "name": "data-vol", "size": "10Gi", "storage_class": null,
            "access_modes": ["ReadWriteOnce"], "status": "Bound", "created_at": bound["created_at"],
            "username": USER, "metadata": {"pvc_name": format!("data-vol-{volume}"), "namespace": CASE},
        });
        let mut plain = bound.clone();
        if let Some(metadata) = plain["metadata"].as_object_mut() {
            metadata.retain(|key, _| key == "pvc_name" || key == "namespace");
        }
        ensure!(plain == expected, "{bound:#}");
        self.gives("GET /volumes", Value::Null, 200, &json!({"volumes": [bound]})).await
    }

    /// `volumes delete VOLUME --force`
    async fn deletes_the_volume(&self, volume: &str) -> Result<()> {
        let message = format!("Volume {volume} deleted successfully");
        let deleted = json!({"volume_id": volume, "status": "deleted", "message": message});
        self.gives(&format!("DELETE /volumes/{volume}"), Value::Null, 200, &deleted).await?;
        let gone = json!({"detail": format!("Volume {volume} not found")});
        self.gives(&format!("GET /volumes/{volume}"), Value::Null, 404, &gone).await
    }
}

/// The lifecycle of the specification: `jobs submit`, `list`, `status`, `logs`.
async fn trains(cli: &K8sCli, bed: &Bed<'_, '_>, volume: &str) -> Result<()> {
    let told = cli
        .json(
            "POST /tasks/submit",
            json!({
                "name": "training-job", "num_nodes": 2,
                "resources": {"cpus": "4", "memory": "8Gi", "accelerators": "1", "image_id": "python:3.11"},
                "volumes": {"/data": "data-vol"}, "envs": {"EPOCHS": "100"},
                "setup": "pip install torch numpy\n", "run": "python train.py --data /data --epochs $EPOCHS\n",
            }),
        )
        .await?;
    let task = told["task_id"].as_str().unwrap_or_default().to_owned();
    let message = format!("Task submitted successfully with ID: {task}");
    ensure!(told["status"] == "submitted" && told["message"] == message, "{told:#}");
    cli.has_the_volume(volume).await?;
    let list = cli.json("GET /tasks", Value::Null).await?;
    ensure!(list["tasks"][0]["task_id"] == task.as_str() && list["tasks"][0]["username"] == USER, "{list:#}");
    let done = cli.reaches(&task, "completed").await?;
    let job = format!("training-job-{task}-node-0");
    let metadata = &done["metadata"];
    ensure!(done["name"] == "training-job" && metadata["namespace"] == CASE, "{done:#}");
    ensure!(metadata["job_name"] == job && metadata["succeeded_nodes"] == 2, "{done:#}");
    let pods = bed.has(bed.stage.fleet.worker1(), ("v1", "Pod"), &task).await?;
    let machines: BTreeSet<_> = pods.iter().map(|pod| pod["spec"]["nodeName"].to_string()).collect();
    ensure!(pods.len() == 2 && machines.len() == 1, "two on the machine that has the disk: {machines:?}");
    cli.says_hello(&task, 2).await
}

/// `jobs submit` of the distributed training, while another has a GPU that it needs.
async fn trains_distributed(cli: &K8sCli, bed: &Bed<'_, '_>) -> Result<()> {
    let worker = bed.stage.fleet.worker1();
    let blocks = bed.submit((1, 1), LONG)?;
    bed.reaches(&blocks, "running").await?;
    let distributed = json!({
        "name": "distributed-training", "num_nodes": 4,
        "resources": {
            "cpus": "8", "memory": "16Gi", "accelerators": "2", "image_id": "nvcr.io/nvidia/pytorch:23.10-py3",
        },
        "envs": {"MASTER_ADDR": "master-service", "MASTER_PORT": "29500"},
        "setup": "pip install transformers datasets\n",
        "run": "python -m torch.distributed.launch \\\n  --nproc_per_node=2 \\\n  --nnodes=$NUM_NODES \\\n  \
                --node_rank=$NODE_RANK \\\n  --master_addr=$MASTER_ADDR \\\n  --master_port=$MASTER_PORT \\\n  \
                train_distributed.py\n",
    });
    let waits = cli.submit(distributed).await?;
    eventually("all of its nodes to wait", SOON, async || {
        let told = cli.json(&format!("GET /tasks/{waits}"), Value::Null).await?;
        let metadata = &told["metadata"];
        let all = metadata["node_jobs"].as_array().map_or(0, Vec::len) == 4 && metadata["pending_nodes"] == 4;
        let kueue = metadata["pending_reason"].as_str().is_some_and(|reason| reason.contains("quota"));
        Ok(Seen::when(told["status"] == "pending" && all && kueue, || format!("{told:#}")))
    })
    .await?;
    ensure!(bed.has(worker, (KUEUE, "Workload"), &waits).await?.len() == 1, "admitted as one or not at all");
    bed.person.runs(&["task", "stop", &blocks, "--yes"])?.success()?;
    let done = cli.reaches(&waits, "completed").await?;
    ensure!(done["metadata"]["succeeded_nodes"] == 4, "{done:#}");
    let pods = bed.has(worker, ("v1", "Pod"), &waits).await?;
    ensure!(pods.len() == 4, "{} pods", pods.len());
    let container = &pods[0]["spec"]["containers"][0];
    ensure!(container["resources"]["requests"]["cpu"] == "8", "{container:#}");
    cli.says_hello(&waits, 4).await
}

/// `jobs stop`: what is stopped is gone for this client.
async fn stops(cli: &K8sCli, bed: &Bed<'_, '_>) -> Result<()> {
    let task = cli.submit(json!({"run": "sleep 1000", "resources": {"accelerators": "1"}})).await?;
    let message = format!("Task {task} stopped successfully");
    let stopped = json!({"task_id": task, "status": "stopped", "message": message});
    cli.gives(&format!("POST /tasks/{task}/stop"), Value::Null, 200, &stopped).await?;
    let gone = json!({"detail": format!("Task {task} not found")});
    cli.gives(&format!("GET /tasks/{task}"), Value::Null, 404, &gone).await?;
    bed.is_gone(bed.stage.fleet.worker1(), &task).await?;
    let none = json!({"count": 0, "status": "stopped", "message": "Stopped 0 tasks"});
    cli.gives("POST /tasks/stop", Value::Null, 200, &none).await
}
