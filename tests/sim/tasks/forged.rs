//! I8 for tasks: what a cluster says of a task that is on another one.

use std::time::Duration;

use fedq_sim::api::{Internal, write_internally};
use fedq_sim::cluster::Cluster;
use fedq_sim::kind::Kind;
use serde_json::{Value, json};

use super::super::bed::wait;
use super::kept::{KEPT, logs};
use super::stage::{Stage, of_task, wrong};

/// Long enough for each of several looks at what changed.
const HEARD: Duration = Duration::from_millis(1500);

/// Copies of a task's objects on another cluster, with its name, labels and epoch, and this end.
async fn forge(stage: &Stage, id: &str, (from, to): (&str, &str), end: &str) {
    let (from, to) = (stage.worker(from), stage.worker(to));
    for (kind, status) in [
        (
            "Job",
            json!({"conditions": [{"type": end, "status": "True", "reason": "Forged", "message": "it is not so"}]}),
        ),
        ("Pod", json!({"phase": if end == "Complete" { "Succeeded" } else { "Failed" }})),
    ] {
        for mut object in of_task(from, kind, id) {
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata
                .retain(|field, _| ["name", "namespace", "labels", "annotations"].contains(&field.as_str()));
            object.as_object_mut().unwrap().shift_remove("status");
            put(to, object, status.clone()).await;
        }
    }
}

/// What fedqd or the cluster's own controllers clear up meanwhile is gone, which is as well.
async fn put(cluster: &Cluster, object: Value, status: Value) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap().to_owned();
    let kind = Kind::named(object["kind"].as_str().unwrap()).unwrap();
    let name = (text("namespace"), text("name"));
    if cluster.get(kind.kind, &name.0, &name.1).is_none() {
        write_internally(&cluster.state, "admin", kind, name.clone(), Internal::Create(object))
            .await
            .unwrap();
    }
    while let Err(refusal) =
        write_internally(&cluster.state, "admin", kind, name.clone(), Internal::Status(status.clone())).await
    {
        if refusal.reason != "Conflict" {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_says_of_anothers_task_is_not_heard() {
    let stage = Stage::set_with(&[("one", 8), ("two", 4)], ", lostTimeout: 6s", "").await;
    // Only one of them can hold it.
    let id = stage.submit(3600, "name: train\nrun: x\nresources: {accelerators: 6}\n").await;
    let before = stage.reaches(&id, "running").await;
    assert_eq!(before["cluster"], "one");
    for end in ["Complete", "Failed"] {
        forge(&stage, &id, ("one", "two"), end).await;
        tokio::time::sleep(HEARD).await;
        assert_eq!(stage.status(&id).await, before, "two said that it is {end}");
    }
    // Nor while the one that has it says nothing.
    wrong(stage.worker("one"), "refuse-connections; hang");
    forge(&stage, &id, ("one", "two"), "Complete").await;
    let lost = stage.reaches(&id, "lost").await;
    assert_eq!((&lost["cluster"], &lost["epoch"]), (&json!("one"), &before["epoch"]));
    forge(&stage, &id, ("one", "two"), "Failed").await;
    tokio::time::sleep(HEARD).await;
    assert_eq!(stage.status(&id).await["phase"], "lost");
    wrong(stage.worker("one"), "");
    let back = stage.reaches(&id, "running").await;
    assert_eq!((&back["cluster"], &back["epoch"]), (&json!("one"), &before["epoch"]));
    assert_eq!(of_task(stage.worker("one"), "Job", &id).len(), 1, "it runs on as it did");
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_has_of_anothers_task_is_not_kept_as_its_log() {
    let stage = Stage::set_with(&[("one", 4), ("two", 8)], "", KEPT).await;
    // The one that is looked at first cannot hold it.
    let id = stage.submit(3600, "run: x\nresources: {accelerators: 6}\n").await;
    assert_eq!(stage.reaches(&id, "running").await["cluster"], "two");
    forge(&stage, &id, ("two", "one"), "Complete").await;
    let pod = of_task(stage.worker("two"), "Pod", &id)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    for name in ["one", "two"] {
        let worker = stage.worker(name);
        let log = ("team".to_owned(), pod.clone(), "task".to_owned());
        worker.state.logs.write(&log, worker.state.now(), format!("written on {name}"));
    }
    tokio::time::sleep(HEARD).await;
    stage.fedq(&["task", "stop", &id], "").await.unwrap();
    // What was forged stays: it belongs to no Job that anybody would delete.
    let two = stage.worker("two");
    wait("its pods to be gone from two", two, || of_task(two, "Pod", &id).is_empty()).await;
    let (code, mut lines, told) = logs(&stage, &id, &[]).await;
    // What its program itself says first, if it was there in time.
    lines.retain(|line| !line.starts_with("hello from"));
    assert_eq!((code, lines), (Some(103), vec!["written on two".to_owned()]), "{told}");
}
