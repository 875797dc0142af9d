//! Clusters that fall silent with tasks on them.

use std::time::{Duration, Instant};

use fedq_sim::api::{Internal, write_internally};
use fedq_sim::cluster::Cluster;
use fedq_sim::kind::Kind;
use serde_json::{Value, json};

use super::super::bed::{WITHIN, wait};
use super::stage::{Stage, of_task, wrong};

const SOON: &str = ", lostTimeout: 6s";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_on_a_lost_cluster_is_lost_and_goes_on_when_it_is_back() {
    let stage = Stage::set_with(&[("one", 8), ("two", 4)], SOON, "").await;
    let id = stage.submit(25, "run: x\nresources: {accelerators: 6}\n").await;
    stage.reaches(&id, "running").await;
    wrong(stage.worker("one"), "refuse-connections; hang");
    stage.reaches(&id, "lost").await;
    stage.bed.assign(stage.worker("two"), "8").await;
    stage.bed.holds(stage.worker("two"), "8").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lost = stage.reaches(&id, "lost").await;
    assert!(
        lost["pendingReason"].as_str().is_some_and(|reason| reason.contains("does not answer")),
        "{lost:#}"
    );
    wrong(stage.worker("one"), "");
    stage.reaches(&id, "succeeded").await;
    let reasons = stage.reasons(&id).await;
    assert!(reasons.iter().any(|reason| reason == "ClusterBack"), "{reasons:?}");
    assert_eq!(stage.ever(&id, "Pod").len(), 1, "it was not run again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_on_a_cluster_that_was_let_go_of_runs_elsewhere_if_that_is_the_policy() {
    let stage = Stage::set_with(&[("one", 8), ("two", 4)], SOON, ", lostPolicy: requeueOnceLeft").await;
    let id = stage.submit(3600, "run: x\nresources: {accelerators: 6}\n").await;
    stage.reaches(&id, "running").await;
    wrong(stage.worker("one"), "refuse-connections; hang");
    stage.reaches(&id, "lost").await;
    stage.bed.assign(stage.worker("two"), "8").await;
    stage.fedq(&["cluster", "leave", "one", "--yes"], "").await.unwrap();
    let running = stage.reaches(&id, "running").await;
    assert_eq!(running["cluster"], "two");
    let reasons = stage.reasons(&id).await;
    assert!(reasons.iter().any(|reason| reason == "Fenced"), "{reasons:?}");
    // What it left behind goes as soon as somebody can see it again.
    let one = stage.worker("one");
    assert_eq!(of_task(one, "Job", &id).len(), 1, "nobody could delete it");
    wrong(one, "");
    stage.bed.join(one).await;
    wait("the Job of the earlier dispatch to be gone", one, || of_task(one, "Job", &id).is_empty()).await;
    assert_eq!(stage.reaches(&id, "running").await["cluster"], "two");
    assert_eq!(of_task(stage.worker("two"), "Job", &id).len(), 1);
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
}

/// Killed in between at each stage, it goes the same way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_cluster_gives_its_task_away_and_takes_nothing_else_before_its_own_copy_is_withdrawn() {
    let mut stage = Stage::set_with(&[("one", 8), ("two", 4)], SOON, ", lostPolicy: requeue").await;
    let id = stage.submit(3600, "run: x\nresources: {accelerators: 6}\n").await;
    stage.reaches(&id, "running").await;
    wrong(stage.worker("one"), "refuse-connections; hang");
    let lost = stage.reaches(&id, "lost").await;
    assert_eq!(
        (lost["cluster"].as_str(), lost["epoch"].as_u64()),
        (Some("one"), Some(1)),
        "nobody can take it"
    );
    stage.bed.assign(stage.worker("two"), "8").await;
    let running = stage.reaches(&id, "running").await;
    assert_eq!((running["cluster"].as_str(), running["epoch"].as_u64()), (Some("two"), Some(2)));
    assert_eq!(stage.reasons(&id).await.iter().filter(|reason| *reason == "Replaced").count(), 1);
    // What the lost one still has counts nowhere as the task's, and is not forgotten by a restart.
    assert_eq!(of_task(stage.worker("one"), "Job", &id).len(), 1);
    stage.kill();
    stage.start();
    let next = stage.try_submit(1, "run: x\nresources: {accelerators: 4}\n", &["--cluster", "one"]).await;
    wrong(stage.worker("one"), "delete jobs: hang");
    tokio::time::sleep(Duration::from_secs(3)).await;
    let next = match next {
        Ok(next) => next,
        // Nothing is known of the cluster yet.
        Err(_) => stage.submit_to("one", 1, "run: x\nresources: {accelerators: 4}\n").await,
    };
    stage.waits_because(&next, "no cluster takes it now; it could run on one").await;
    stage.kill();
    wrong(stage.worker("one"), "");
    stage.start();
    stage.reaches(&next, "succeeded").await;
    let one = stage.worker("one");
    wait("the Job of the earlier dispatch to be gone", one, || of_task(one, "Job", &id).is_empty()).await;
    let jobs = stage.history("one", "Job");
    let first = |holds: &dyn Fn(&Value) -> bool| jobs.iter().position(holds).expect("it happened");
    let of = |job: &Value, id: &str| job["metadata"]["labels"]["task-id"] == id;
    let withdrawn = first(&|job| of(job, &id) && !job["metadata"]["deletionTimestamp"].is_null());
    assert!(withdrawn < first(&|job| of(job, &next)), "it was withdrawn before the next one came");
    let running = stage.reaches(&id, "running").await;
    assert_eq!((running["cluster"].as_str(), running["epoch"].as_u64()), (Some("two"), Some(2)));
    assert!(
        running["events"].to_string().contains("one answers again, and nothing of it is left there"),
        "{running:#}"
    );
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
    stage.is_gone(&id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_answers_make_no_sense_gets_its_task_once_they_do() {
    let stage = Stage::set(&[("one", 8)]).await;
    let worker = stage.worker("one");
    let tries = || {
        let requests = worker.state.counts.requests();
        requests.get(&("create", "jobs".to_owned())).copied().unwrap_or_default()
    };
    let before = tries();
    wrong(worker, "create jobs: endless-body");
    let id = stage.submit(1, "run: x\nresources: {accelerators: 1}\n").await;
    let began = Instant::now();
    let told = loop {
        let told = stage.status(&id).await;
        if before + 2 <= tries() {
            break told;
        }
        assert!(began.elapsed() < WITHIN, "it is not tried again: {told:#}");
    };
    let reason = told["pendingReason"].as_str().unwrap_or_default();
    assert!(told["phase"] == "dispatching" && reason.contains(": "), "with what came instead: {told:#}");
    assert!(of_task(worker, "Job", &id).is_empty());
    wrong(worker, "");
    stage.reaches(&id, "succeeded").await;
    assert_eq!((stage.ever(&id, "Job").len(), stage.ever(&id, "Pod").len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_node_is_lost_or_drained_has_not_failed_and_runs_again() {
    let stage = Stage::set(&[("one", 8)]).await;
    let worker = stage.worker("one");
    let task = "run: x\nnum_nodes: 2\nresources: {accelerators: 1}\n";
    let lost = stage.submit(3600, task).await;
    stage.reaches(&lost, "running").await;
    let node = of_task(worker, "Pod", &lost)[0]["spec"]["nodeName"].as_str().unwrap().to_owned();
    write(worker, ("Node", "", &node), Internal::Delete).await;
    runs_again(&stage, &lost).await;
    stage.fedq(&["task", "stop", &lost, "--yes"], "").await.unwrap();
    stage.is_gone(&lost).await;

    let drained = stage.submit(3600, task).await;
    stage.reaches(&drained, "running").await;
    let pod = of_task(worker, "Pod", &drained)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    write(worker, ("Pod", "team", &pod), Internal::Status(json!({"conditions": [condition]}))).await;
    runs_again(&stage, &drained).await;
}

async fn write(worker: &Cluster, (kind, namespace, name): (&str, &str, &str), what: Internal) {
    let name = (namespace.to_owned(), name.to_owned());
    write_internally(&worker.state, "admin", Kind::named(kind).unwrap(), name, what).await.unwrap();
}

/// In its second dispatch, which is not counted as a restart.
async fn runs_again(stage: &Stage, id: &str) {
    let began = Instant::now();
    loop {
        let status = stage.reaches(id, "running").await;
        if status["epoch"] == 2 {
            assert_eq!(status["restarts"], 0, "{status:#}");
            break;
        }
        assert!(began.elapsed() < WITHIN, "it is not run again: {status:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let status = stage.status(id).await;
    let told = status["events"].to_string();
    assert!(told.contains("its cluster ended a pod of it; it is started again"), "{status:#}");
}
