//! Tasks that run one after the other.

use serde_json::{Value, json};

use super::super::bed::wait;
use super::stage::{Stage, of_task, wrong};

fn stage(name: &str, seconds: u32, exit: u32) -> String {
    let annotations =
        json!({"sim.fedq.dev/seconds": seconds.to_string(), "sim.fedq.dev/exit": exit.to_string()});
    let config = json!({"kubernetes": {"custom_metadata": {"annotations": annotations}}});
    format!("---\nname: {name}\nrun: x\nresources: {{accelerators: 1}}\nconfig: {config}\n")
}

/// The ids of the stages.
async fn submit(bed: &Stage, stages: &[String]) -> Vec<String> {
    let file = format!("name: train\n{}", stages.concat());
    let told = loop {
        match bed.fedq(&["task", "submit", "-", "-o", "json"], &file).await {
            Ok(told) => break told,
            // A busy machine is not taken for a fault.
            Err(error) => assert!(error.contains("in time"), "{error}"),
        }
    };
    let told: Value = serde_json::from_str(&told).unwrap();
    let stages = told["stages"].as_array().unwrap();
    stages.iter().map(|stage| stage["id"].as_str().unwrap().to_owned()).collect()
}

fn started(status: &Value) -> String {
    let events = status["events"].as_array().unwrap();
    events.iter().find(|event| event["reason"] == "Chosen").unwrap()["at"].as_str().unwrap().to_owned()
}

fn ended(status: &Value) -> String {
    let events = status["events"].as_array().unwrap();
    events.iter().find(|event| event["reason"] == "Succeeded").unwrap()["at"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stage_runs_once_the_one_before_it_has_succeeded() {
    let bed = Stage::set(&[("one", 8), ("two", 4)]).await;
    let ids = submit(&bed, &[stage("a", 1, 0), stage("b", 1, 0), stage("c", 1, 0)]).await;
    let mut before: Option<Value> = None;
    for id in &ids {
        let status = bed.reaches(id, "succeeded").await;
        if let Some(before) = before {
            assert!(ended(&before) <= started(&status), "{before:#} {status:#}");
        }
        assert_eq!(bed.ever(id, "Job").len(), 1);
        before = Some(status);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_in_the_middle_ends_the_pipeline() {
    let bed = Stage::set(&[("one", 8)]).await;
    let ids = submit(&bed, &[stage("a", 1, 0), stage("b", 1, 3), stage("c", 1, 0)]).await;
    bed.reaches(&ids[1], "failed").await;
    bed.reaches(&ids[0], "succeeded").await;
    let last = bed.reaches(&ids[2], "stopped").await;
    let told = last["events"].as_array().unwrap().last().unwrap()["message"].as_str().unwrap().to_owned();
    assert_eq!(told, format!("it is not run: stage 2 ({}) failed", ids[1]));
    assert!(bed.ever(&ids[2], "Job").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_stages_it_goes_on_where_it_was() {
    let mut bed = Stage::set(&[("one", 8)]).await;
    let ids = submit(&bed, &[stage("a", 1, 0), stage("b", 1, 0), stage("c", 1, 0)]).await;
    for id in &ids {
        // It ends while nobody looks.
        let worker = bed.worker("one");
        wait("its Job", worker, || !of_task(worker, "Job", id).is_empty()).await;
        bed.kill();
        let worker = bed.worker("one");
        wait("its end", worker, || {
            of_task(worker, "Job", id).iter().any(|job| job["status"]["succeeded"] == 1)
        })
        .await;
        bed.start();
    }
    for id in &ids {
        bed.reaches(id, "succeeded").await;
        assert_eq!((bed.ever(id, "Job").len(), bed.ever(id, "Pod").len()), (1, 1), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_what_runs_and_all_behind_it() {
    let mut bed = Stage::set(&[("one", 8)]).await;
    let ids = submit(&bed, &[stage("a", 1, 0), stage("b", 600, 0), stage("c", 1, 0)]).await;
    bed.reaches(&ids[1], "running").await;
    bed.waits_because(&ids[2], &format!("waits for stage 2 ({})", ids[1])).await;
    // Killed before the cluster has confirmed anything.
    wrong(bed.worker("one"), "delete jobs: hang");
    bed.fedq(&["task", "stop", &ids[0], "--yes", "--no-wait"], "").await.unwrap();
    bed.kill();
    wrong(bed.worker("one"), "");
    bed.start();
    bed.reaches(&ids[1], "stopped").await;
    bed.reaches(&ids[2], "stopped").await;
    bed.is_gone(&ids[1]).await;
    assert_eq!(bed.status(&ids[0]).await["phase"], "succeeded");
    assert!(bed.ever(&ids[2], "Job").is_empty());
}
