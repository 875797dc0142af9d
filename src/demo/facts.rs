//! What the demo's API servers say of claims and Jobs.

use std::{fmt::Write, sync::Arc};

use serde_json::Value;

use super::stage::Stage;
use fedq_sim::cluster::Cluster;

pub const CLAIMS: &str = "ClusterResourceClaim";

pub fn claim(stage: &Stage, cluster: &str) -> Option<Arc<Value>> {
    stage.hub().get(CLAIMS, "", &format!("{cluster}-resource-claim"))
}

pub fn status(stage: &Stage, cluster: &str) -> String {
    claim(stage, cluster).map_or_else(String::new, |claim| format!("{:#}", claim["status"]))
}

pub fn names(cluster: &Cluster, kind: &str) -> String {
    let objects = cluster.list(kind);
    let names: Vec<&str> = objects.iter().filter_map(|object| object["metadata"]["name"].as_str()).collect();
    names.join(", ")
}

pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

pub fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// The name of the Job that a Workload or pod belongs to.
pub fn owner(object: &Value) -> &str {
    object["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default()
}

/// The Workload that the hub's Kueue made for a Job.
fn workload(stage: &Stage, job: &str) -> Option<Arc<Value>> {
    let of_job = |workload: &Arc<Value>| owner(workload) == job;
    stage.hub().list("Workload").into_iter().find(of_job)
}

/// Where a Job is, with its pods that run there.
fn place(stage: &Stage, workload: &Value) -> Option<(String, usize)> {
    let cluster = workload["status"]["clusterName"].as_str()?;
    let runs = |pod: &&Arc<Value>| owner(pod) == owner(workload) && pod["status"]["phase"] == "Running";
    Some((cluster.to_owned(), stage.cluster(cluster).list("Pod").iter().filter(runs).count()))
}

pub fn runs(stage: &Stage, job: &str, on: &str, pods: usize) -> bool {
    workload(stage, job).is_some_and(|workload| {
        holds(&workload, "Admitted") && place(stage, &workload) == Some((on.to_owned(), pods))
    })
}

pub fn waits(stage: &Stage, job: &str) -> bool {
    workload(stage, job).is_some_and(|workload| !reason_to_wait(&workload).is_empty())
}

/// As Kueue words it.
fn reason_to_wait(workload: &Value) -> &str {
    let reserved = condition(workload, "QuotaReserved").filter(|reserved| reserved["status"] == "False");
    reserved.and_then(|reserved| reserved["message"].as_str()).unwrap_or_default()
}

pub fn jobs(stage: &Stage, names: &[&str]) -> String {
    let mut text = format!("{:<12}{:<12}{:<7}{}\n", "JOB", "CLUSTER", "PODS", "KUEUE SAYS");
    for job in names {
        let Some(workload) = workload(stage, job) else { continue };
        let (cluster, pods) = place(stage, &workload).unwrap_or_else(|| ("-".to_owned(), 0));
        let says = match reason_to_wait(&workload) {
            "" if holds(&workload, "Admitted") => "admitted".to_owned(),
            "" => "pending".to_owned(),
            reason => format!("waits: {reason}"),
        };
        let _ = writeln!(text, "{job:<12}{cluster:<12}{pods:<7}{says}");
    }
    text
}
