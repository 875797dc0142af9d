//! Files with several tasks, which run one after the other.

use fedq_domain::task::phase::Move;
use serde_json::{Value, json};

use super::{
    server::{ANN, Served, served},
    tasks::{dispatch, moves},
};

const THREE: &str =
    "name: train\n---\nname: fetch\nrun: a\n---\nrun: b\nsecrets: {TOKEN: hush}\n---\nname: report\nrun: c\n";

async fn submit(served: &Served, file: &str) -> Vec<String> {
    let (status, answer) = served.call(ANN, "POST /tasks", json!({"file": file})).await;
    assert_eq!(status, 201, "{answer}");
    let stages = answer["stages"].as_array().unwrap();
    assert_eq!(answer["id"], stages[0]["id"], "the first stands for all");
    stages.iter().map(|stage| stage["id"].as_str().unwrap().to_owned()).collect()
}

async fn task(served: &Served, id: &str) -> Value {
    let (status, task) = served.call(ANN, &format!("GET /tasks/{id}"), Value::Null).await;
    assert_eq!(status, 200, "{task}");
    task
}

#[tokio::test]
async fn a_file_of_several_tasks_is_accepted_as_one() {
    let served = served().await;
    let ids = submit(&served, THREE).await;
    assert_eq!(ids.len(), 3);
    let secret = format!("/api/v1/namespaces/fedq-system/secrets/fedq-task-{}", ids[1]);
    assert!(served.hub.world().objects.contains_key(&secret));
    let second = task(&served, &ids[1]).await;
    assert_eq!(second["pipeline"], json!({"id": ids[0], "name": "train", "stage": 2, "stages": 3}));
    assert_eq!(
        (&second["phase"], &second["pendingReason"]),
        (&json!("pending"), &json!(format!("waits for stage 1 ({})", ids[0])))
    );
    let names: Vec<_> =
        second["stages"].as_array().unwrap().iter().map(|stage| stage["name"].clone()).collect();
    assert_eq!(names, [json!("fetch"), json!(format!("task-{}", ids[1])), json!("report")]);
    assert_eq!(task(&served, &ids[0]).await["pendingReason"], "no cluster is chosen for it yet");

    moves(&served, &ids[0], &[dispatch(), Move::Succeeded]).await;
    assert_eq!(task(&served, &ids[1]).await["pendingReason"], "no cluster is chosen for it yet");
    moves(&served, &ids[1], &[dispatch(), Move::ProgramFailed { restart: false }]).await;
    let last = task(&served, &ids[2]).await;
    assert_eq!((&last["phase"], &last["events"][1]["reason"]), (&json!("stopped"), &json!("Cancelled")));
    assert_eq!(last["events"][1]["message"], format!("it is not run: stage 2 ({}) failed", ids[1]));
}

#[tokio::test]
async fn a_pipeline_that_is_repeated_is_submitted_once() {
    let served = served().await;
    let asked = |file: &str| json!({"file": file, "id": "0a1b2c3d"});
    let (status, first) = served.call(ANN, "POST /tasks", asked(THREE)).await;
    assert_eq!((status, &first["id"]), (201, &json!("0a1b2c3d")));
    assert_eq!(served.call(ANN, "POST /tasks", asked(THREE)).await, (201, first));
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 3);
    let secrets = |served: &Served| {
        let world = served.hub.world();
        world.objects.keys().filter(|path| path.contains("/secrets/fedq-task-")).count()
    };
    assert_eq!(secrets(&served), 1, "what was made for the repetition is gone");
    for other in
        [THREE.replace("run: c", "run: d").as_str(), THREE.replace("train", "other").as_str(), "run: a\n"]
    {
        let (status, problem) = served.call(ANN, "POST /tasks", asked(other)).await;
        assert_eq!((status, &problem["code"]), (409, &json!("already-exists")), "{problem}");
    }
    assert_eq!((served.store.live_tasks().await.unwrap().len(), secrets(&served)), (3, 1));
}

#[tokio::test]
async fn a_stop_of_one_stage_ends_what_comes_after_it() {
    let served = served().await;
    let ids = submit(&served, THREE).await;
    moves(&served, &ids[0], &[dispatch(), Move::Succeeded]).await;
    let (status, first) = served.call(ANN, &format!("POST /tasks/{}/stop", ids[0]), Value::Null).await;
    assert_eq!((status, &first["phase"]), (202, &json!("succeeded")), "the first stands for all");
    for id in &ids[1..] {
        assert_eq!(task(&served, id).await["phase"], "stopped");
    }
}

#[tokio::test]
async fn nothing_of_a_file_is_accepted_where_one_task_of_it_cannot_be() {
    let served = served().await;
    for (file, told) in [
        ("run: a\n---\nname: b\n", "there is no `run`"),
        ("execution: parallel\n---\nrun: a\n---\nrun: b\n", "side by side"),
        ("name: a\nrun: a\n---\nname: a\nrun: b\n", "two tasks of the file are called `a`"),
    ] {
        let (status, problem) = served.call(ANN, "POST /tasks", json!({"file": file})).await;
        assert_eq!(status, 422, "{problem}");
        assert!(problem.to_string().contains(told), "{problem}");
    }
    let (status, problem) =
        served.call(ANN, "POST /tasks", json!({"file": "run: a\n---\nrun: b\n", "numNodes": 2})).await;
    assert_eq!(status, 422, "{problem}");
    let (status, _) =
        served.call(ANN, "POST /tasks", json!({"file": "run: a\n---\nrun: b\n", "cluster": "north"})).await;
    assert_eq!(status, 404);
    served.hub.world().down = true;
    let (status, _) = served.call(ANN, "POST /tasks", json!({"file": THREE})).await;
    assert_eq!(status, 503);
    assert!(served.store.live_tasks().await.unwrap().is_empty());
    served.hub.world().down = false;
    let dry = served.call(ANN, "POST /tasks?dryRun=All", json!({"file": THREE})).await;
    assert_eq!((dry.0, dry.1["stages"].as_array().unwrap().len(), &dry.1["name"]), (200, 3, &json!("train")));
    assert!(served.store.live_tasks().await.unwrap().is_empty());
}
