//! Tasks that MultiKueue dispatches. Kueue's side of it, which no simulation has, is played by the tests.

use std::time::{Duration, Instant};

use fedq_sim::cluster::Cluster;
use serde_json::{Value, json};

use super::super::bed::{Bed, KUEUE, WITHIN, wait};
use super::stage::{Stage, of_task, wrong};

/// The queue of the hub is MultiKueue's, which knows one cluster.
async fn dispatch(bed: &Bed) {
    let hub = &bed.hub;
    let location = json!({"location": "one", "locationType": "Secret"});
    let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
    for (kind, name, spec) in [
        ("MultiKueueCluster", "one", json!({"clusterSource": {"kubeConfig": location}})),
        ("MultiKueueConfig", "all", json!({"clusters": ["one"]})),
        (
            "AdmissionCheck",
            "multikueue",
            json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}),
        ),
    ] {
        let object = json!({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec});
        hub.put(object).await.unwrap();
    }
    let active = json!({"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    hub.set_status("AdmissionCheck", "multikueue", active).await.unwrap();
    let asks = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "multikueue"}]}}});
    hub.merge("ClusterQueue", "team", asks).await.unwrap();
}

/// Lets MultiKueue put a task's Job on a cluster, as soon as it has quota on the hub: its name.
async fn lands(stage: &Stage, id: &str, worker: &Cluster) -> String {
    let hub = &stage.bed.hub;
    let mut found = None;
    wait("quota on the hub", hub, || {
        let reserved = |workload: &Value| {
            let conditions = workload["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|one| one["type"] == "QuotaReserved" && one["status"] == "True")
        };
        // That of an earlier run has been put somewhere.
        let new = |workload: &Value| workload["status"]["clusterName"].is_null() && reserved(workload);
        found = of_task(hub, "Workload", id).into_iter().find(new);
        found.is_some()
    })
    .await;
    let workload = found.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let mut job = of_task(hub, "Job", id).remove(0);
    let metadata = job["metadata"].as_object_mut().unwrap();
    metadata.retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
    let labels = metadata["labels"].as_object_mut().unwrap();
    labels.remove("kueue.x-k8s.io/queue-name");
    labels.insert("kueue.x-k8s.io/multikueue-origin".to_owned(), json!("multikueue"));
    let spec = job["spec"].as_object_mut().unwrap();
    spec.remove("managedBy");
    spec.insert("suspend".to_owned(), json!(false));
    job.as_object_mut().unwrap().remove("status");
    let job_name = job["metadata"]["name"].as_str().unwrap().to_owned();
    worker.put(job).await.unwrap();
    let check = json!({
        "name": "multikueue", "state": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let cluster = &worker.state.name;
    set_status(hub, "Workload", name, json!({"nominatedClusterNames": [cluster]})).await;
    let status = json!({"clusterName": cluster, "nominatedClusterNames": null, "admissionChecks": [check]});
    set_status(hub, "Workload", name, status).await;
    job_name
}

async fn set_status(cluster: &Cluster, kind: &str, name: &str, status: Value) {
    let kind = fedq_sim::kind::Kind::named(kind).unwrap();
    let name = ("team".to_owned(), name.to_owned());
    let what = fedq_sim::api::Internal::Status(status);
    fedq_sim::api::write_internally(&cluster.state, "kueue", kind, name, what).await.unwrap();
}

/// Takes the copy of a Job away once its only pod has failed: the status that it had.
async fn ends(id: &str, worker: &Cluster, job: &str) -> Value {
    let failed = |of: &str| of_task(worker, of, id).iter().any(|one| one["status"]["failed"] == 1);
    wait("the copy to fail", worker, || failed("Job")).await;
    let status = worker.get("Job", "team", job).unwrap()["status"].clone();
    worker.remove_in("team", "Job", job).await.unwrap();
    wait("its pod to be gone", worker, || of_task(worker, "Pod", id).is_empty()).await;
    status
}

/// Until fedqd knows that no pod of it is left.
async fn is_missed(stage: &Stage, id: &str) {
    let began = Instant::now();
    while stage.status(id).await["nodes"]["running"] == 1 {
        assert!(began.elapsed() < WITHIN, "fedqd does not hear of it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

const FAILS: &str = "run: x\nresources: {accelerators: 1, job_recovery: {recover_on_exit_codes: [42]}}\nconfig: {kubernetes: \
                     {custom_metadata: {annotations: {sim.fedq.dev/seconds: '2', sim.fedq.dev/exit: '42'}}}}\n";

/// How a task's events tell of its failures.
async fn failures(stage: &Stage, id: &str) -> Vec<String> {
    let status = stage.status(id).await;
    let events = status["events"].as_array().unwrap().iter();
    let failed = events.filter(|event| event["message"].as_str().unwrap().contains("exit code"));
    failed.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exit_codes_outlive_the_copies_that_kueue_takes_away() {
    let stage = Stage::set_prepared(&[("one", 8)], "", dispatch).await;
    let worker = stage.worker("one");
    let told = stage.fedq(&["task", "submit", "-", "-o", "name"], FAILS).await.unwrap();
    let id = told.trim().strip_prefix("task/").unwrap().to_owned();
    // Seen while it was there.
    let job = lands(&stage, &id, worker).await;
    stage.reaches(&id, "running").await;
    let status = ends(&id, worker, &job).await;
    is_missed(&stage, &id).await;
    set_status(&stage.bed.hub, "Job", &job, status).await;
    // Between two looks. The code says that it is to run again.
    let job = lands(&stage, &id, worker).await;
    assert_eq!(failures(&stage, &id).await.len(), 1);
    stage.reaches(&id, "running").await;
    wrong(worker, "hang");
    worker.state.faults.break_connections();
    let status = ends(&id, worker, &job).await;
    wrong(worker, "");
    is_missed(&stage, &id).await;
    set_status(&stage.bed.hub, "Job", &job, status).await;
    lands(&stage, &id, worker).await;
    assert_eq!(failures(&stage, &id).await.len(), 2, "though nobody looked in between");
    assert_eq!(stage.status(&id).await["restarts"], 0, "what it names is not counted");
}
