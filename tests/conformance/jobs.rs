//! Jobs that Kueue lets go: where their pods run, what is left when they end, and what a stopped queue does to them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::expect::{absent, any, time, with};
use super::stage::{FLAVORS, MERGE, NODES, QUEUES, Stage, node, text};

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";

pub async fn run(stage: &Stage<'_>) -> Result<()> {
    ground(stage).await;
    finishes(stage).await;
    let pod = runs_on(stage).await?;
    logs(stage, &pod).await;
    stopped(stage).await;
    Ok(())
}

/// A node, a flavor of it, and queues with two cores.
async fn ground(stage: &Stage<'_>) {
    let name = &stage.name;
    let amounts = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    let mut machine = node(name);
    machine["metadata"]["labels"] = json!({"conformance": name});
    machine["status"] = json!({"capacity": amounts, "allocatable": amounts});
    if let Some(conditions) = &stage.server.kubelet.conditions {
        machine["status"]["conditions"] = conditions.clone();
    }
    stage.make(NODES, machine).await;
    let named = |kind: &str, spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec});
    stage.make(FLAVORS, named("ResourceFlavor", json!({"nodeLabels": {"conformance": name}}))).await;
    let flavors = json!([{"name": name, "resources": [{"name": "cpu", "nominalQuota": "2"}]}]);
    let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
    let queue = json!({"namespaceSelector": {}, "resourceGroups": groups});
    stage.make(QUEUES, named("ClusterQueue", queue)).await;
    let local = named("LocalQueue", json!({"clusterQueue": name}));
    stage.make(&stage.within(KUEUE, "localqueues"), local).await;
    // A node is used once whoever watches over nodes has found it ready.
    let ready = json!({
        "spec": {"taints": absent()},
        "status": {"conditions": with(json!([{"type": "Ready", "status": "True"}]))},
    });
    stage.becomes(&format!("{NODES}/{name}"), 200, ready).await;
}

fn job(stage: &Stage<'_>, name: &str, seconds: u32) -> Value {
    let container = json!({
        "name": "main",
        "image": "example.invalid/x",
        "resources": {"requests": {"cpu": "1"}},
    });
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": stage.name}},
        "spec": {"parallelism": 2, "completions": 2, "template": {
            "metadata": {"annotations": (stage.server.kubelet.pods_end_after)(seconds)},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }},
    })
}

fn reserved(stage: &Stage<'_>, cpus: &str, admitted: u32) -> Value {
    let cpus = json!({"name": "cpu", "total": cpus, "borrowed": "0"});
    let usage = json!([{"name": stage.name, "resources": [cpus]}]);
    json!({"status": {"flavorsReservation": usage, "flavorsUsage": usage, "admittedWorkloads": admitted}})
}

async fn finishes(stage: &Stage<'_>) {
    let jobs = stage.within("/apis/batch/v1", "jobs");
    stage.make(&jobs, job(stage, "short", 1)).await;
    let done = json!({
        "spec": {"suspend": false},
        "status": {
            "succeeded": 2,
            "startTime": time(),
            "completionTime": time(),
            "active": absent(),
            "conditions": with(json!([{"type": "Complete", "status": "True"}])),
        },
    });
    stage.becomes(&format!("{jobs}/short"), 200, done).await;
    stage.becomes(&format!("{QUEUES}/{}", stage.name), 200, reserved(stage, "0", 0)).await;
    let finished = json!([{"type": "Finished", "status": "True", "reason": "Succeeded"}]);
    let list = json!({"items": [{"status": {"conditions": with(finished)}}]});
    stage.becomes(&stage.within(KUEUE, "workloads"), 200, list).await;
    stage.delete(&format!("{jobs}/short?propagationPolicy=Background")).gives(200, json!({})).await;
    // Its Workload and its pods belong to it.
    for path in [stage.within(KUEUE, "workloads"), stage.within("/api/v1", "pods")] {
        stage.becomes(&path, 200, json!({"items": []})).await;
    }
}

/// A Job that stays, and one of its pods.
async fn runs_on(stage: &Stage<'_>) -> Result<String> {
    let jobs = stage.within("/apis/batch/v1", "jobs");
    stage.make(&jobs, job(stage, "long", 600)).await;
    stage.becomes(&format!("{jobs}/long"), 200, json!({"status": {"active": 2, "startTime": time()}})).await;
    stage.becomes(&format!("{QUEUES}/{}", stage.name), 200, reserved(stage, "2", 1)).await;
    let pods = format!("{}?labelSelector=job-name%3Dlong", stage.within("/api/v1", "pods"));
    // The flavor says on which nodes.
    let running = json!({
        "metadata": {"ownerReferences": [{"kind": "Job", "name": "long", "controller": true}]},
        "spec": {"nodeName": stage.name, "nodeSelector": {"conformance": stage.name}},
        "status": {"phase": "Running"},
    });
    let list = stage.becomes(&pods, 200, json!({"items": [running, running]})).await;
    let pod = list.pointer("/items/0").context("no pod runs")?;
    Ok(text(pod, "/metadata/name").to_owned())
}

async fn logs(stage: &Stage<'_>, pod: &str) {
    let pods = stage.within("/api/v1", "pods");
    let path = format!("{pods}/{pod}/log");
    let plain = stage.get(&path).answers(200, Value::Null).await;
    let text = plain.as_ref().map(super::client::Answer::text).unwrap_or_default();
    stage.check(text.ends_with('\n'), || format!("the log is {text:?}"));
    stage.check(plain.is_some_and(|log| log.header("content-type").starts_with("text/plain")), || {
        "a log is no plain text".to_owned()
    });
    let stamped =
        stage.get(&format!("{path}?timestamps=true&container=main")).answers(200, Value::Null).await;
    let stamped = stamped.map(|log| log.text()).unwrap_or_default();
    let stamp = stamped.split(' ').next().unwrap_or_default();
    stage.check(stamp.parse::<jiff::Timestamp>().is_ok(), || format!("no time opens {stamped:?}"));
    let last = stage.get(&format!("{path}?tailLines=0")).answers(200, Value::Null).await;
    stage.check(last.is_some_and(|log| log.body.is_empty()), || "no lines are some".to_owned());
    let all = stage.get(&format!("{path}?sinceTime=2020-01-01T00:00:00Z")).answers(200, Value::Null).await;
    let all = all.map(|log| log.text()).unwrap_or_default();
    stage.check(all.starts_with(&text), || format!("since 2020 the log is {all:?}, not {text:?}"));
    let future = stage.get(&format!("{path}?sinceTime=2100-01-01T00:00:00Z")).answers(200, Value::Null).await;
    stage.check(future.is_some_and(|log| log.body.is_empty()), || "there are lines of the future".to_owned());
    match stage.watch(&format!("{path}?follow=true")).await {
        Ok(mut followed) => {
            let begins = followed.text(text.len()).await;
            stage.check(begins.as_ref() == Some(&text), || {
                format!("a log that is followed begins with {begins:?}, not {text:?}")
            });
        }
        Err(error) => stage.differs(format!("a log cannot be followed: {error:#}")),
    }
    let none = format!("container none is not valid for pod {pod}");
    stage.get(&format!("{path}?container=none")).refused(400, "BadRequest", &none).await;
    stage.get(&format!("{pods}/none/log")).refused(404, "NotFound", "pods \"none\" not found").await;
}

/// A queue that is stopped and drained takes back what it gave, and gives it again afterwards.
async fn stopped(stage: &Stage<'_>) {
    let (jobs, queue) = (stage.within("/apis/batch/v1", "jobs"), format!("{QUEUES}/{}", stage.name));
    let stop = |policy: &str| json!({"spec": {"stopPolicy": policy}});
    stage.patch(&queue, MERGE, stop("HoldAndDrain")).gives(200, json!({"kind": "ClusterQueue"})).await;
    let suspended = json!({
        "spec": {"suspend": true},
        "status": {
            "active": absent(),
            "startTime": absent(),
            "conditions": with(json!([{"type": "Suspended", "status": "True", "reason": "JobSuspended"}])),
        },
    });
    stage.becomes(&format!("{jobs}/long"), 200, suspended).await;
    stage.becomes(&queue, 200, reserved(stage, "0", 0)).await;
    let evicted = json!({"items": [{"status": {"admission": absent(), "conditions": with(json!([
        {"type": "Evicted", "status": "True", "reason": "ClusterQueueStopped", "message": any()},
        {"type": "QuotaReserved", "status": "False"},
    ]))}}]});
    stage.becomes(&stage.within(KUEUE, "workloads"), 200, evicted).await;
    stage.patch(&queue, MERGE, stop("None")).gives(200, json!({"kind": "ClusterQueue"})).await;
    stage
        .becomes(&format!("{jobs}/long"), 200, json!({"spec": {"suspend": false}, "status": {"active": 2}}))
        .await;
    stage.becomes(&queue, 200, reserved(stage, "2", 1)).await;
    stage.delete(&format!("{jobs}/long?propagationPolicy=Background")).gives(200, json!({})).await;
    stage.becomes(&queue, 200, reserved(stage, "0", 0)).await;
}
