//! The bed itself: if one of these fails, believe no other case.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::support::cluster::{Cluster, Id, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::{CASE_LABEL, node};
use crate::support::process::Supervisor;
use crate::support::wait::{Seen, eventually, throughout};

const SOON: Duration = Duration::from_mins(1);
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// A namespace, a flavor over the case's nodes and a queue with quota for GPUs, all named after the case.
fn queue(case: &str, gpus: u32, check: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: Namespace
metadata: {{name: {case}}}
---
apiVersion: {KUEUE}
kind: ResourceFlavor
metadata: {{name: {case}}}
spec:
  nodeLabels: {{{CASE_LABEL}: {case}}}
---
apiVersion: {KUEUE}
kind: ClusterQueue
metadata: {{name: {case}}}
spec:
  namespaceSelector: {{}}
  {check}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: {case}
      resources:
      - {{name: cpu, nominalQuota: 100}}
      - {{name: memory, nominalQuota: 1Ti}}
      - {{name: nvidia.com/gpu, nominalQuota: {gpus}}}
---
apiVersion: {KUEUE}
kind: LocalQueue
metadata: {{name: main, namespace: {case}}}
spec: {{clusterQueue: {case}}}
"
    )
}

fn job(case: &str, name: &str, gpus: u32) -> String {
    format!(
        r"
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  namespace: {case}
  labels: {{kueue.x-k8s.io/queue-name: main}}
spec:
  suspend: true
  template:
    metadata:
      annotations: {{pod-complete.stage.kwok.x-k8s.io/jitter-delay: 1s}}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: example.invalid/train
        resources:
          requests: {{cpu: 1, memory: 1Gi, nvidia.com/gpu: {gpus}}}
          limits: {{nvidia.com/gpu: {gpus}}}
"
    )
}

fn job_id<'a>(case: &'a str, name: &'a str) -> Id<'a> {
    id("batch/v1", "Job", name).within(case)
}

pub async fn a_job_within_quota_runs_and_one_above_stays_suspended(fleet: &Fleet) -> Result<()> {
    let case = "bed-quota";
    let worker = fleet.worker1();
    worker.add_nodes(&[node(case, "a").gpus(8), node(case, "b").gpus(8)]).await?;
    worker.apply(&queue(case, 4, "")).await?;
    worker.apply(&job(case, "fits", 4)).await?;
    let done = worker
        .wait(job_id(case, "fits"), "complete", SOON, |job| has_condition(job, "Complete", "True"))
        .await?;
    ensure!(done["spec"]["suspend"] == false, "Kueue let the Job go");

    worker.apply(&job(case, "above", 5)).await?;
    let workload = eventually("the Job's workload to be found too large", SOON, async || {
        let workloads = worker.list(KUEUE, "Workload", Some(case)).await?;
        let found = workloads.iter().find(|workload| has_condition(workload, "QuotaReserved", "False"));
        Ok(found.cloned().map_or_else(|| Seen::Still(format!("{workloads:?}")), Seen::Done))
    })
    .await?;
    ensure!(workload.to_string().contains("nvidia.com/gpu"), "the reason names the resource: {workload:#}");
    throughout("the Job stays suspended", Duration::from_secs(2), async || {
        let job = worker.get(job_id(case, "above")).await?.context("the Job is there")?;
        Ok(Seen::when(job["spec"]["suspend"] == true, || job.to_string()))
    })
    .await
}

pub async fn the_webhook_refuses_to_lend_more_than_nominal(fleet: &Fleet) -> Result<()> {
    for cluster in fleet.clusters().filter(|cluster| cluster.name != "bare") {
        let wrong = queue("bed-webhook", 4, "cohortName: bed-webhook")
            .replace("nominalQuota: 4}", "nominalQuota: 4, lendingLimit: 5}");
        let error = cluster.apply(&wrong).await.err().context("the ClusterQueue was accepted")?;
        match error.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => ensure!(
                status.code == 403 && status.message.contains("lendingLimit"),
                "{}: {} {}",
                cluster.name,
                status.code,
                status.message
            ),
            _ => return Err(error),
        }
    }
    Ok(())
}

pub async fn multikueue_sends_a_job_to_a_worker(fleet: &Fleet) -> Result<()> {
    let case = "bed-multikueue";
    for worker in &fleet.workers {
        worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
        worker.apply(&queue(case, 2, "")).await?;
    }
    join(&fleet.hub, case, fleet).await?;
    fleet
        .hub
        .apply(&queue(case, 4, &format!("admissionChecksStrategy: {{admissionChecks: [{{name: {case}}}]}}")))
        .await?;
    for name in ["one", "two"] {
        fleet.hub.apply(&job(case, name, 2)).await?;
    }
    for name in ["one", "two"] {
        fleet
            .hub
            .wait(job_id(case, name), "complete", SOON * 2, |job| has_condition(job, "Complete", "True"))
            .await?;
    }
    let pods = fleet.hub.list("v1", "Pod", Some(case)).await?;
    ensure!(pods.is_empty(), "the hub ran pods itself: {pods:?}");
    Ok(())
}

/// Makes both workers MultiKueue clusters of the hub under the case's name, and waits until they are active.
pub async fn join(hub: &Cluster, case: &str, fleet: &Fleet) -> Result<()> {
    let mut names = Vec::new();
    for worker in &fleet.workers {
        let name = format!("{case}-{}", worker.name);
        let kubeconfig = worker.kubeconfig_for(&format!("multikueue-{case}"), &["system:masters"])?;
        let secret = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "kueue-system"},
            "stringData": {"kubeconfig": kubeconfig},
        });
        hub.apply_object("fedq-test", secret).await?;
        hub.apply(&format!(
            "{{apiVersion: {KUEUE}, kind: MultiKueueCluster, metadata: {{name: {name}}}, \
             spec: {{clusterSource: {{kubeConfig: {{location: {name}, locationType: Secret}}}}}}}}"
        ))
        .await?;
        names.push(name);
    }
    hub.apply(&format!(
        r"
apiVersion: {KUEUE}
kind: MultiKueueConfig
metadata: {{name: {case}}}
spec: {{clusters: [{clusters}]}}
---
apiVersion: {KUEUE}
kind: AdmissionCheck
metadata: {{name: {case}}}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {{apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: {case}}}
",
        clusters = names.join(", ")
    ))
    .await?;
    for name in &names {
        hub.wait(id(KUEUE, "MultiKueueCluster", name), "active", SOON, |cluster| {
            has_condition(cluster, "Active", "True")
        })
        .await?;
    }
    hub.wait(id(KUEUE, "AdmissionCheck", case), "active", SOON, |check| {
        has_condition(check, "Active", "True")
    })
    .await?;
    Ok(())
}

pub async fn writes_are_counted_by_user(fleet: &Fleet) -> Result<()> {
    let case = "bed-audit";
    let worker = fleet.worker2();
    let client =
        crate::support::cluster::client_of(&worker.kubeconfig_for("bed-auditor", &["system:masters"])?)
            .await?;
    let mark = worker.mark()?;
    client.apiserver_version().await?;
    ensure!(worker.writes_since(mark, "bed-auditor").await?.is_empty(), "a read is no write");
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(client);
    let new = serde_json::from_value(serde_json::json!({"metadata": {"name": case}}))?;
    namespaces.create(&kube::api::PostParams::default(), &new).await?;
    let writes = worker.writes_since(mark, "bed-auditor").await?;
    ensure!(writes.len() == 1, "{writes:?}");
    ensure!(writes[0].verb == "create" && writes[0].resource == "namespaces", "{writes:?}");
    ensure!(writes[0].name.as_deref() == Some(case) && writes[0].code == 201, "{writes:?}");
    Ok(())
}

pub async fn a_pod_logs_through_the_api_server(fleet: &Fleet) -> Result<()> {
    let case = "bed-logs";
    let worker = fleet.worker2();
    worker.add_nodes(&[node(case, "a").gpus(1)]).await?;
    worker.apply(&queue(case, 1, "")).await?;
    worker.apply(&job(case, "speaks", 1)).await?;
    worker
        .wait(job_id(case, "speaks"), "complete", SOON, |job| has_condition(job, "Complete", "True"))
        .await?;
    let text = worker.kubectl(&["logs", "--namespace", case, "job/speaks"])?;
    ensure!(text.contains("hello from kwok"), "{text}");
    Ok(())
}

pub async fn a_bare_cluster_has_no_kueue(fleet: &Fleet) -> Result<()> {
    let bare = fleet.bare().await?;
    bare.add_nodes(&[node("bed-bare", "a").gpus(8)]).await?;
    let kinds = bare.kubectl(&["api-resources", "--api-group=kueue.x-k8s.io", "--no-headers"])?;
    ensure!(kinds.trim().is_empty(), "{kinds}");
    Ok(())
}

pub async fn a_killed_api_server_comes_back_with_its_data(fleet: &Fleet) -> Result<()> {
    let case = "bed-restart";
    let worker = fleet.worker2();
    worker.apply(&queue(case, 3, "")).await?;
    worker.plane.kill_api_server()?;
    ensure!(worker.get(id(KUEUE, "ClusterQueue", case)).await.is_err(), "nobody answers");
    worker.plane.restart_api_server().await?;
    worker.wait(id(KUEUE, "ClusterQueue", case), "there as before", SOON, Value::is_object).await?;
    // Kueue and kwok connect again by themselves.
    worker.add_nodes(&[node(case, "a").gpus(3)]).await?;
    worker.apply(&job(case, "after", 3)).await?;
    worker
        .wait(job_id(case, "after"), "complete", SOON, |job| has_condition(job, "Complete", "True"))
        .await?;
    Ok(())
}

pub async fn a_frozen_api_server_answers_nobody(fleet: &Fleet) -> Result<()> {
    let worker = fleet.worker1();
    let namespace = id("v1", "Namespace", "default");
    worker.get(namespace).await?.context("the namespace default")?;
    worker.plane.freeze_api_server()?;
    let answer = tokio::time::timeout(Duration::from_secs(2), worker.get(namespace)).await;
    worker.plane.thaw_api_server()?;
    ensure!(answer.is_err(), "a stopped process answered: {answer:?}");
    worker.wait(namespace, "readable again", SOON, Value::is_object).await?;
    Ok(())
}

/// The argument that makes this program the victim of `nothing_outlives_a_killed_run`.
pub const SUPERVISE: &str = "--supervise-until-killed";

/// Starts a supervisor with one program in it, tells both the folder and the program's id, and waits.
pub fn supervise_until_killed() -> Result<ExitCode> {
    let dir = tempfile::Builder::new().prefix("fedq-real-").tempdir()?.keep();
    let supervisor = Supervisor::start(&dir, false)?;
    let server = supervisor.spawn(Command::new("sleep").arg("600"), "sleep", &dir.join("sleep.log"))?;
    println!("{} {}", server.id(), dir.display());
    loop {
        std::thread::park();
    }
}

pub async fn nothing_outlives_a_killed_run(fleet: &Fleet) -> Result<()> {
    let mut run = Command::new(std::env::current_exe()?);
    let mut run = fleet.adopt(run.arg(SUPERVISE)).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(run.stdout.take().context("its output")?).read_line(&mut line)?;
    let (id, dir) = line.trim().split_once(' ').with_context(|| format!("it said {line:?}"))?;
    let (process, dir) = (Path::new("/proc").join(id), Path::new(dir));
    ensure!(process.exists() && dir.exists(), "both are there while the run lives");
    run.kill()?;
    run.wait()?;
    eventually("the program and the folder to be gone", SOON, async || {
        let left = (process.exists(), dir.exists());
        Ok(Seen::when(left == (false, false), || {
            format!("program there: {}, folder there: {}", left.0, left.1)
        }))
    })
    .await
}
