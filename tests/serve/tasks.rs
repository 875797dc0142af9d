//! `/api/v1/tasks`.

use std::sync::Arc;

use axum::{body::Body, http::Request};
use fedq_api::Parts;
use fedq_domain::task::{
    choose::{obstacle::Obstacle, view::Access},
    event::Event,
    fleet::{Fleet, Member},
    limits::Limits,
    names::TaskId,
    phase::Move,
    record::NodeCounts,
    runtime::Runtime,
    view::TaskViews,
};
use fedq_store::{KeptLogs, Live, PageRequest, TaskFilter, TaskMove, TaskRow};
use fedq_values::ids::ClusterName;
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::server::{ANN, BOB, GUEST, ROOT, STRANGER, Served, VIEWER, served, served_as};

mod lists;
mod logs;

pub async fn submit(served: &Served, token: &str, task: &str) -> String {
    let (status, answer) = served.call(token, "POST /tasks", json!({"file": task})).await;
    assert_eq!(status, 201, "{answer}");
    answer["id"].as_str().unwrap().to_owned()
}

/// As a controller would.
pub async fn moves(served: &Served, id: &str, steps: &[Move]) -> TaskRow {
    let id = TaskId::parse(id).unwrap();
    for step in steps {
        let row = served.store.task(&id).await.unwrap().unwrap();
        let to = row.state.clone().next(step.clone()).unwrap();
        let event = Event::of(step, &to, Timestamp::from_second(1_700_000_100).unwrap(), None);
        let nodes = to.phase.is_over().then_some(NodeCounts { failed: 1, ..NodeCounts::default() });
        let TaskRow { state: from, dispatch, restarts, .. } = row;
        let step = TaskMove { id: id.clone(), from, to, dispatch, restarts, nodes, event };
        assert!(served.store.move_task(&step).await.unwrap());
    }
    served.store.task(&id).await.unwrap().unwrap()
}

pub fn dispatch() -> Move {
    Move::Dispatch(ClusterName::new("east").unwrap())
}

async fn list(served: &Served, token: &str, query: &str) -> Vec<String> {
    let (status, answer) = served.call(token, &format!("GET /tasks{query}"), Value::Null).await;
    assert_eq!(status, 200, "{answer}");
    let names = answer["items"].as_array().unwrap().iter();
    names.map(|task| task["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_task_is_stored_before_it_is_acknowledged() {
    let served = served().await;
    let file = "name: train\nnum_nodes: 2\nresources: {accelerators: H100:8, disk_size: 10}\nenvs: {A: }\nrun: python x.py\n";
    let asked = json!({"file": file, "envs": {"A": "1"}, "queue": "fast", "cluster": "east", "numNodes": 4, "image": "img"});
    let signal = served.task_signal.notified();
    let (status, answer) = served.call(ANN, "POST /tasks", asked).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(
        (&answer["name"], &answer["namespace"], &answer["queue"]),
        (&json!("train"), &json!("default"), &json!("fast"))
    );
    assert!(answer["warnings"][0].as_str().unwrap().contains("disk_size"), "{answer}");
    signal.await;
    let rows = served.store.live_tasks().await.unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        (row.owner.as_str(), row.spec.num_nodes, row.cluster.as_ref().unwrap().as_str()),
        ("ann", 4, "east")
    );
    assert_eq!(row.spec.candidates[0].image.as_deref(), Some("img"));

    let id = answer["id"].as_str().unwrap();
    let (_, task) = served.call(ANN, &format!("GET /tasks/{id}"), Value::Null).await;
    assert_eq!(
        (&task["phase"], &task["accelerators"], &task["numNodes"]),
        (&json!("pending"), &json!("H100:8"), &json!(4))
    );
    assert_eq!(task["nodes"], json!({"succeeded": 0, "failed": 0, "running": 0, "pending": 4}));
    assert_eq!(task["pendingReason"], "no cluster is chosen for it yet");
    assert_eq!((&task["events"][0]["reason"], &task["envs"]), (&json!("Submitted"), &json!(["A"])));
}

#[tokio::test]
async fn what_cannot_be_run_is_refused_by_line_and_nothing_is_created() {
    let served = served().await;
    for (file, field, message) in [
        ("run: [\n", "", "not YAML"),
        ("", "", ""),
        ("name: a\n", "", "there is no `run`"),
        (
            "run: x\nresorces: {}\n",
            "resorces",
            "line 2, column 1: there is no field `resorces` here; did you mean `resources`?",
        ),
        ("run: x\nresources: {cpus: lots}\n", "resources.cpus", "line 2"),
        ("run: x\nnum_nodes: 0\n", "num_nodes", "1 to 1000 nodes, not 0"),
        ("run: x\nnum_nodes: 10000\n", "num_nodes", "not 10000"),
        ("run: x\nname: \"a\\u0007\"\n", "name", "cannot be printed"),
    ] {
        let (status, problem) = served.call(ANN, "POST /tasks", json!({"file": file})).await;
        assert_eq!((status, &problem["code"]), (422, &json!("invalid")), "{file}: {problem}");
        if !message.is_empty() {
            let cause = &problem["causes"][0];
            assert!(cause["message"].as_str().unwrap().contains(message), "{file}: {problem}");
            assert_eq!(cause["field"].as_str().unwrap_or_default(), field, "{file}");
        }
    }
    let long = format!("name: {}\nrun: x\n", "n".repeat(201));
    assert_eq!(served.call(ANN, "POST /tasks", json!({"file": long})).await.0, 422);
    for strange in
        [json!({}), json!({"file": 1}), json!({"file": "run: x", "fil": ""}), json!([]), Value::Null]
    {
        let (status, problem) = served.call(ANN, "POST /tasks", strange.clone()).await;
        assert_eq!(status, 422, "{strange}: {problem}");
    }
    let secret = json!({"file": "run: x", "secrets": {"TOKEN": "hush"}, "numNodes": "hush"});
    let (status, problem) = served.call(ANN, "POST /tasks", secret).await;
    assert!(status == 422 && !problem.to_string().contains("hush"), "{problem}");
    for name in ["a@b", "two words", &"n".repeat(200)] {
        submit(&served, ANN, &format!("name: {name}\nrun: x\n")).await;
    }
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 3, "only what is right was created");
}

#[tokio::test]
async fn bodies_have_a_limit() {
    let served = served().await;
    let file = format!("run: |\n  {}\n", "x".repeat((1 << 20) + 1));
    let (status, problem) = served.call(ANN, "POST /tasks", json!({"file": file})).await;
    let refused = (status, &problem["code"], &problem["causes"][0]["field"]);
    assert_eq!(refused, (422, &json!("invalid"), &json!("file")));
    // The document counts characters, and what is read of a file is counted in bytes.
    let file = format!("run: |\n  {}\n", "ä".repeat((1 << 19) + 1));
    let (status, problem) = served.call(ANN, "POST /tasks", json!({"file": file})).await;
    assert_eq!((status, &problem["code"]), (413, &json!("too-large")));
    let (status, problem) = served.call(ANN, "POST /tasks", json!({"file": "x".repeat(3 << 20)})).await;
    assert_eq!((status, &problem["code"]), (413, &json!("too-large")));
    assert!(served.store.live_tasks().await.unwrap().is_empty());
}

#[tokio::test]
async fn strict_refuses_what_has_no_effect() {
    let served = served().await;
    let task = json!({"file": "run: x\nresources: {disk_size: 10}\n", "strict": true});
    let (status, problem) = served.call(ANN, "POST /tasks", task).await;
    assert_eq!((status, &problem["causes"][0]["field"]), (422, &json!("resources.disk_size")));
}

#[tokio::test]
async fn a_request_that_is_repeated_submits_once() {
    let served = served().await;
    let task = |run: &str| json!({"file": format!("run: {run}\n"), "id": "0a1b2c3d"});
    let (status, first) = served.call(ANN, "POST /tasks", task("x")).await;
    assert_eq!((status, &first["id"]), (201, &json!("0a1b2c3d")));
    assert_eq!(served.call(ANN, "POST /tasks", task("x")).await, (201, first));
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 1);
    for (token, run) in [(ANN, "y"), (ROOT, "x")] {
        let (status, problem) = served.call(token, "POST /tasks", task(run)).await;
        assert_eq!((status, &problem["code"]), (409, &json!("already-exists")), "{problem}");
    }
    let (status, _) = served.call(ANN, "POST /tasks", json!({"file": "run: x", "id": "No!"})).await;
    assert_eq!(status, 422);
}

#[tokio::test]
async fn secrets_are_on_the_hub_before_the_task_is_and_nowhere_else() {
    let served = served().await;
    let task =
        json!({"file": "run: x\nsecrets: {TOKEN: }\n", "secrets": {"TOKEN": "hush"}, "id": "0a1b2c3d"});
    let (status, answer) = served.call(ANN, "POST /tasks", task.clone()).await;
    assert_eq!(status, 201, "{answer}");
    let path = "/api/v1/namespaces/fedq-system/secrets/fedq-task-0a1b2c3d";
    let secret = served.hub.world().objects[path].clone();
    assert_eq!(secret["data"]["TOKEN"], "aHVzaA==");
    assert_eq!(
        (&secret["metadata"]["labels"]["task-id"], &secret["metadata"]["annotations"]["fedq.dev/owner"]),
        (&json!("0a1b2c3d"), &json!("ann"))
    );
    let (_, detail) = served.call(ANN, "GET /tasks/0a1b2c3d", Value::Null).await;
    assert_eq!(detail["secrets"], json!(["TOKEN"]));
    let row = &served.store.live_tasks().await.unwrap()[0];
    for told in [answer.to_string(), detail.to_string(), format!("{row:?}")] {
        assert!(!told.contains("hush"), "{told}");
    }
    // An id whose Secret is there belongs to another request.
    let other = json!({"file": "run: y\nsecrets: {TOKEN: b}\n", "id": "0a1b2c3d"});
    assert_eq!(served.call(ANN, "POST /tasks", other).await.0, 409);
    assert_eq!(served.hub.world().objects[path]["data"]["TOKEN"], "aHVzaA==", "it is not overwritten");
    served.hub.world().down = true;
    let (status, _) = served.call(ANN, "POST /tasks", json!({"file": "run: y\nsecrets: {TOKEN: b}\n"})).await;
    assert_eq!(status, 503);
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 1, "no Secret, no task");
}

#[tokio::test]
async fn tasks_are_their_owners_alone() {
    let served = served().await;
    let mine = submit(&served, ANN, "name: mine\nrun: x\n").await;
    let body = json!({"file": "name: bobs\nrun: x\n", "queue": "q"});
    let (_, bobs) = served.call(BOB, "POST /tasks", body).await;
    let bobs = bobs["id"].as_str().unwrap().to_owned();
    assert_eq!(list(&served, ANN, "").await, ["mine"]);
    assert_eq!(list(&served, BOB, "").await, ["bobs"]);
    assert_eq!(list(&served, ROOT, "?allUsers=true").await, ["bobs", "mine"]);
    for line in ["GET /tasks/{}", "GET /tasks/{}/events", "GET /tasks/{}/explain", "POST /tasks/{}/stop"] {
        let none = served.call(BOB, &line.replace("{}", "00000000"), Value::Null).await;
        let someone_elses = served.call(BOB, &line.replace("{}", &mine), Value::Null).await;
        assert_eq!((none.0, someone_elses.0), (404, 404), "{line}");
        assert_eq!(none.1.to_string().replace("00000000", &mine), someone_elses.1.to_string(), "told alike");
    }
    for line in ["GET /tasks?allUsers=true", "POST /tasks/stop?allUsers=true"] {
        let (status, problem) = served.call(ANN, line, Value::Null).await;
        assert_eq!((status, &problem["code"]), (403, &json!("forbidden")), "{line}");
        assert!(problem["next"].as_str().unwrap().contains("fedq-task-admin"), "{problem}");
    }
    assert_eq!(served.call(ROOT, &format!("GET /tasks/{bobs}"), Value::Null).await.0, 200);
    let (_, stopped) = served.call(BOB, "POST /tasks/stop", Value::Null).await;
    assert_eq!(stopped["ids"], json!([bobs]));
    assert_eq!(served.call(ANN, &format!("GET /tasks/{mine}"), Value::Null).await.1["phase"], "pending");
}

#[tokio::test]
async fn rights_are_the_hubs_to_give() {
    let served = served().await;
    let task = json!({"file": "run: x\n"});
    let (status, problem) = served.call(GUEST, "POST /tasks", task.clone()).await;
    assert_eq!(status, 403);
    assert!(problem["next"].as_str().unwrap().contains("tasks.tenants"), "{problem}");
    let (status, problem) = served.call(VIEWER, "POST /tasks", task.clone()).await;
    assert_eq!(status, 403);
    assert!(problem["next"].as_str().unwrap().contains("fedq-task-user"), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("in the namespace \"default\""), "{problem}");
    assert_eq!(served.call(STRANGER, "GET /tasks", Value::Null).await.0, 403);
    assert_eq!(served.call("wrong", "GET /tasks", Value::Null).await.0, 401);
    assert!(served.store.live_tasks().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_task_without_a_queue_is_told_what_there_is() {
    let served = served().await;
    let (status, problem) = served.call(BOB, "POST /tasks", json!({"file": "run: x\n"})).await;
    assert_eq!(status, 422);
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("names no queue") && detail.contains("namespace research has no queue"),
        "{detail}"
    );
    let file = "run: x\nconfig: {kubernetes: {kueue: {local_queue_name: own}}}\n";
    let (status, answer) = served.call(BOB, "POST /tasks", json!({"file": file})).await;
    assert_eq!((status, &answer["queue"]), (201, &json!("own")));
    let (status, problem) =
        served.call(ANN, "POST /tasks", json!({"file": "run: x\n", "cluster": "north"})).await;
    assert_eq!(status, 404, "{problem}");
}

#[tokio::test]
async fn stopping_is_idempotent_in_every_phase() {
    let served = served().await;
    let pending = submit(&served, ANN, "run: x\n").await;
    let running = submit(&served, ANN, "run: x\n").await;
    moves(&served, &running, &[dispatch(), Move::Written, Move::Started]).await;
    let over = submit(&served, ANN, "run: x\n").await;
    moves(&served, &over, &[dispatch(), Move::ProgramFailed { restart: false }]).await;
    for _ in 0..2 {
        for (id, phase) in [(&pending, "stopped"), (&running, "stopping"), (&over, "failed")] {
            let (status, task) = served.call(ANN, &format!("POST /tasks/{id}/stop"), Value::Null).await;
            assert_eq!((status, &task["phase"]), (202, &json!(phase)), "{task}");
        }
    }
    let (_, task) = served.call(ANN, &format!("GET /tasks/{over}"), Value::Null).await;
    assert_eq!((&task["failure"], &task["nodes"]["failed"]), (&json!("program"), &json!(1)));
    let (_, events) = served.call(ANN, &format!("GET /tasks/{running}/events"), Value::Null).await;
    let reasons: Vec<_> =
        events["items"].as_array().unwrap().iter().map(|event| event["reason"].clone()).collect();
    assert_eq!(reasons, ["Submitted", "Chosen", "Created", "Started", "Stopping"]);
    let (mut paged, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("GET /tasks/{running}/events?limit=2&continue={next}");
        let (_, page) = served.call(ANN, &path, Value::Null).await;
        paged.extend(page["items"].as_array().unwrap().iter().map(|event| event["reason"].clone()));
        let Some(more) = page["continue"].as_str() else { break };
        assert_eq!(paged.len() % 2, 0, "{page}");
        next = more.to_owned();
    }
    assert_eq!(paged, reasons);
    let (_, stopped) = served.call(ANN, "POST /tasks/stop", Value::Null).await;
    assert_eq!(stopped["ids"], json!([]), "nothing is left to stop");
}

#[tokio::test]
async fn a_request_that_was_cut_off_behind_its_secrets_goes_on_when_it_is_repeated() {
    let served = served().await;
    let path = "/api/v1/namespaces/fedq-system/secrets/fedq-task-0a1b2c3d";
    let left = |owner: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "fedq-task-0a1b2c3d", "annotations": {"fedq.dev/owner": owner}},
            "data": {"OLD": "b2xk"},
        })
    };
    let task = json!({"file": "run: x\nsecrets: {TOKEN: hush}\n", "id": "0a1b2c3d"});
    served.hub.world().put(path, left("bob@example.com"));
    assert_eq!(served.call(ANN, "POST /tasks", task.clone()).await.0, 409, "it is somebody else's");
    assert_eq!(served.hub.world().objects[path]["data"], json!({"OLD": "b2xk"}));
    served.hub.world().put(path, left("ann"));
    let (status, answer) = served.call(ANN, "POST /tasks", task.clone()).await;
    assert_eq!((status, &answer["id"]), (201, &json!("0a1b2c3d")), "{answer}");
    assert_eq!(served.hub.world().objects[path]["data"], json!({"TOKEN": "aHVzaA=="}));
    assert_eq!(served.call(ANN, "POST /tasks", task).await, (201, answer));
    assert!(served.hub.world().objects.contains_key(path), "the task needs them");
}

#[tokio::test]
async fn an_id_that_stands_on_objects_of_no_known_task_is_not_given_again() {
    let served = served().await;
    let id = TaskId::parse("0a1b2c3d").unwrap();
    served.task_views.send_modify(|views| {
        Arc::make_mut(views).orphans.insert(id);
    });
    let task = |id: &str| json!({"file": "run: x", "id": id});
    let (status, problem) = served.call(ANN, "POST /tasks", task("0a1b2c3d")).await;
    assert_eq!((status, &problem["code"]), (409, &json!("already-exists")), "{problem}");
    assert_eq!(served.call(ANN, "POST /tasks", task("0a1b2c3e")).await.0, 201);
}

#[tokio::test]
async fn an_id_of_which_a_log_is_left_is_not_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let kept = KeptLogs::open(folder.path(), 1 << 20).unwrap();
    let served = served_as(|parts| parts.kept_logs = Some(kept.clone())).await;
    let task = |id: &str| json!({"file": "run: x", "id": id});
    assert_eq!(served.call(ANN, "POST /tasks", task("0a1b2c3e")).await.0, 201);
    let now = Timestamp::from_second(1_700_000_000).unwrap();
    for id in ["0a1b2c3d", "0a1b2c3e"] {
        kept.put((TaskId::parse(id).unwrap(), 1), b"{}".to_vec(), now).await.unwrap();
    }
    for line in ["POST /tasks", "POST /tasks?dryRun=All"] {
        let (status, problem) = served.call(ANN, line, task("0a1b2c3d")).await;
        assert_eq!((status, &problem["code"]), (409, &json!("already-exists")), "{line}: {problem}");
    }
    assert_eq!(served.call(ANN, "POST /tasks", task("0a1b2c3e")).await.0, 201, "one's own, repeated");
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_person_has_no_more_tasks_than_they_may() {
    let served = served().await;
    let first = submit(&served, ANN, "run: x").await;
    for _ in 1..50 {
        submit(&served, ANN, "run: x").await;
    }
    let (status, problem) = served.call(ANN, "POST /tasks", json!({"file": "run: x"})).await;
    assert_eq!((status, &problem["code"]), (429, &json!("too-many-requests")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("you have 50 tasks"), "{problem}");
    let body = json!({"file": "run: x", "queue": "q"});
    assert_eq!(served.call(BOB, "POST /tasks", body).await.0, 201, "others may");
    served.call(ANN, &format!("POST /tasks/{first}/stop"), Value::Null).await;
    submit(&served, ANN, "run: x").await;
}

#[tokio::test]
async fn a_persons_tasks_take_no_more_memory_than_they_may() {
    let served = served_as(|parts| parts.max_live.bytes = 10_000).await;
    let task = |bytes: usize| json!({"file": format!("run: {}", "x".repeat(bytes)), "queue": "q"});
    let (_, first) = served.call(ANN, "POST /tasks", task(4000)).await;
    assert_eq!(served.call(ANN, "POST /tasks", task(4000)).await.0, 201);
    for line in ["POST /tasks", "POST /tasks?dryRun=All"] {
        let (status, problem) = served.call(ANN, line, task(4000)).await;
        assert_eq!((status, &problem["code"]), (429, &json!("too-many-requests")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("of at most 10000"), "{problem}");
        let next = problem["next"].as_str().unwrap();
        assert!(next.contains("stop them") && next.contains("tasks.maxLiveBytesPerUser"), "{problem}");
    }
    assert_eq!(served.call(BOB, "POST /tasks", task(4000)).await.0, 201, "others may");
    let stages = format!("run: {0}\n---\nrun: {0}\n", "x".repeat(6000));
    let (status, _) = served.call(BOB, "POST /tasks", json!({"file": stages, "queue": "q"})).await;
    assert_eq!(status, 429, "those of one file count together");
    served.call(ANN, &format!("POST /tasks/{}/stop", first["id"].as_str().unwrap()), Value::Null).await;
    assert_eq!(served.call(ANN, "POST /tasks", task(4000)).await.0, 201, "what is over takes nothing");
}

#[tokio::test]
async fn many_requests_at_once_get_no_more_in_than_one_after_the_other() {
    let served = served_as(|parts| parts.max_live.bytes = 10_000).await;
    let task = json!({"file": format!("run: {}\nsecrets: {{A: b}}\n", "x".repeat(4000))});
    let all = (0..20).map(|_| served.call(ANN, "POST /tasks", task.clone()));
    let answers = futures::future::join_all(all).await;
    let count = |wanted: u16| answers.iter().filter(|(status, _)| *status == wanted).count();
    assert_eq!((count(201), count(429)), (2, 18), "{answers:?}");
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 2);
    let secrets = served.hub.world().objects.keys().filter(|path| path.contains("/fedq-task-")).count();
    assert_eq!(secrets, 2, "what was refused leaves no Secret");
}

async fn audit(served: &Served, token: &str) -> Vec<(String, String, String, Value)> {
    let (status, list) = served.call(token, "GET /audit", Value::Null).await;
    assert_eq!(status, 200, "{list}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = list["items"].as_array().unwrap().iter().rev();
    let items = items.inspect(|item| assert_eq!(item["outcome"], "ok"));
    items
        .map(|item| (text(&item["who"]), text(&item["verb"]), text(&item["object"]), item["detail"].clone()))
        .collect()
}

#[tokio::test]
async fn who_submits_makes_volumes_and_reads_others_logs_is_written_down() {
    let served = served().await;
    let id = submit(&served, ANN, "name: one\nrun: x\n").await;
    let pipeline = submit(&served, ANN, "name: both\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n").await;
    let repeated = json!({"file": "run: x\n", "id": "0a1b2c3d"});
    for _ in 0..2 {
        assert_eq!(served.call(ANN, "POST /tasks", repeated.clone()).await.0, 201);
    }
    served.call(ANN, "POST /tasks?dryRun=All", json!({"file": "run: x\n"})).await;
    let (_, volume) = served.call(ANN, "POST /volumes", json!({"name": "data", "size": "1Gi"})).await;
    moves(&served, &id, &[dispatch(), Move::ProgramFailed { restart: false }]).await;
    for token in [ANN, BOB, ROOT] {
        served.call(token, &format!("GET /tasks/{id}/logs"), Value::Null).await;
    }
    let expected = [
        (
            "ann",
            "create",
            format!("tasks/{id}"),
            json!({"name": "one", "namespace": "default", "queue": "main", "tasks": 1}),
        ),
        (
            "ann",
            "create",
            format!("tasks/{pipeline}"),
            json!({"name": "both", "namespace": "default", "queue": "main", "tasks": 2}),
        ),
        (
            "ann",
            "create",
            "tasks/0a1b2c3d".to_owned(),
            json!({"name": null, "namespace": "default", "queue": "main", "tasks": 1}),
        ),
        (
            "ann",
            "create",
            format!("volumes/{}", volume["id"].as_str().unwrap()),
            json!({"name": "data", "size": "1Gi"}),
        ),
        ("root", "get", format!("tasks/{id}/log"), json!({"owner": "ann"})),
    ];
    let expected =
        expected.map(|(who, verb, object, detail)| (who.to_owned(), verb.to_owned(), object, detail));
    assert_eq!(audit(&served, ROOT).await, expected);
    assert_eq!(audit(&served, ANN).await, expected[..4], "who reads them is the administrators' business");
    assert_eq!(audit(&served, VIEWER).await, [], "others' tasks are not there");
}

/// Puts so many tasks of ann's there, and tells their ids, newest first.
async fn crowd(served: &Served, count: u64) -> Vec<String> {
    let id = TaskId::parse(&submit(served, ANN, "run: x\n").await).unwrap();
    let row = served.store.task(&id).await.unwrap().unwrap();
    let mut ids = vec![id.to_string()];
    let rows: Vec<_> = (1..count).map(|number| TaskRow { id: TaskId::draw(number), ..row.clone() }).collect();
    assert!(served.store.insert_tasks(&rows).await.unwrap());
    ids.extend(rows.iter().map(|row| row.id.to_string()));
    ids.reverse();
    ids
}

#[tokio::test]
async fn all_tasks_are_stopped_in_one_deed() {
    let served = served().await;
    let ids = crowd(&served, 200).await;
    let (status, stopped) = served.call(ANN, "POST /tasks/stop", Value::Null).await;
    assert_eq!((status, &stopped["ids"]), (202, &json!(ids)));
    served.call(ANN, "POST /tasks/stop", Value::Null).await;
    let deeds = audit(&served, ANN).await;
    let expected =
        ("ann".to_owned(), "stop".to_owned(), "tasks".to_owned(), json!({"allUsers": false, "stopped": ids}));
    assert_eq!(deeds[1..], [expected], "to stop none is no deed");
}

#[tokio::test]
async fn whoever_hangs_up_has_all_tasks_stopped_all_the_same() {
    let served = served().await;
    crowd(&served, 500).await;
    let live = async || served.store.live_tasks_of("ann").await.unwrap().tasks;
    let begun = async {
        while live().await == 500 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = begun => {}
        _ = served.call(ANN, "POST /tasks/stop", Value::Null) => {}
    }
    let done = async {
        while 0 < live().await || audit(&served, ANN).await.len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), done).await.expect("all are stopped");
}

/// With a cluster `east` that has no queue, and `west`, of which nothing is known yet.
fn half_known() -> TaskViews {
    let name = |name: &str| ClusterName::new(name).unwrap();
    let east = Member {
        access: Access::Ready,
        facts: Arc::default(),
        local_queues: Arc::default(),
        promised: Arc::default(),
        priorities: Arc::default(),
        has_jobsets: false,
        app_wrappers: Runtime::Unknown,
    };
    let fleet = Fleet {
        clusters: [(name("east"), east)].into(),
        unknown: [name("west")].into(),
        coming: [name("west")].into(),
        ..Fleet::default()
    };
    TaskViews { fleet: Arc::new(fleet), ..TaskViews::default() }
}

#[tokio::test]
async fn a_cluster_that_is_known_in_a_moment_is_waited_for_before_a_task_is_accepted() {
    let served = served().await;
    served.task_views.send_replace(Arc::new(half_known()));
    let known = async {
        let mut fleet = Fleet::clone(&half_known().fleet);
        (fleet.unknown, fleet.coming) = Default::default();
        let far = ClusterName::new("west").unwrap();
        fleet.unusable.insert(far, Obstacle::OutOfReach);
        served
            .task_views
            .send_replace(Arc::new(TaskViews { fleet: Arc::new(fleet), ..TaskViews::default() }));
    };
    let submit = served.call(ANN, "POST /tasks", json!({"file": "run: x\n"}));
    let ((status, problem), ()) = tokio::join!(submit, known);
    assert_eq!(status, 422, "{problem}");
    let causes: Vec<_> =
        problem["causes"].as_array().unwrap().iter().map(|cause| cause["field"].clone()).collect();
    assert_eq!(causes, ["east", "west"], "{problem}");
    assert!(served.store.live_tasks().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_accepted_task_is_not_judged_again_when_its_request_is_repeated() {
    let served = served().await;
    let task = |run: &str| json!({"file": format!("run: {run}\n"), "id": "0a1b2c3d"});
    let (status, first) = served.call(ANN, "POST /tasks", task("x")).await;
    assert_eq!(status, 201, "{first}");
    let mut fleet = Fleet::clone(&half_known().fleet);
    (fleet.unknown, fleet.coming) = Default::default();
    served.task_views.send_replace(Arc::new(TaskViews { fleet: Arc::new(fleet), ..TaskViews::default() }));
    let (status, problem) = served.call(ANN, "POST /tasks", json!({"file": "run: x\n"})).await;
    assert_eq!(status, 422, "now no cluster can hold it: {problem}");
    assert_eq!(served.call(ANN, "POST /tasks", task("x")).await, (201, first));
    let (status, problem) = served.call(ANN, "POST /tasks", task("y")).await;
    assert_eq!((status, &problem["code"]), (409, &json!("already-exists")), "{problem}");
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cluster_that_stays_unknown_may_be_able_to_hold_a_task() {
    let served = served().await;
    served.task_views.send_replace(Arc::new(half_known()));
    submit(&served, ANN, "run: x\n").await;
    assert_eq!(served.store.live_tasks().await.unwrap().len(), 1);
}

#[tokio::test]
async fn what_a_tenants_limits_can_never_allow_is_refused_where_it_stands() {
    let served = served().await;
    for (task, field, told) in [
        (
            "run: x\nresources: {accelerators: 17}\n",
            "resources",
            "line 2, column 1: the tasks of one person in your tenant may take 16 GPUs at once, and this one needs 17; \
             have an administrator raise tasks.tenants[].limits.perUser.gpus",
        ),
        (
            "num_nodes: 9\nresources:\n  any_of: [{accelerators: H100:8}, {accelerators: A100:16}]\nrun: x\n",
            "resources",
            "line 2, column 1: the tasks of one person in your tenant may take 16 GPUs at once, and this one needs",
        ),
        (
            "run: x\nmax_duration: 9h\n",
            "max_duration",
            "line 2, column 1: a task of your tenant may run for 8h at most; have an administrator raise \
             tasks.tenants[].limits.maxDuration",
        ),
        ("run: x\nmax_duration: 0\n", "max_duration", "line 2, column 1: a task runs for a second at least"),
        ("run: x\nmax_duration: -1h\n", "max_duration", "line 2, column 1: this takes seconds"),
    ] {
        let (status, problem) = served.call(BOB, "POST /tasks", json!({"file": task, "queue": "q"})).await;
        assert_eq!((status, &problem["causes"][0]["field"]), (422, &json!(field)), "{problem}");
        let message = problem["causes"][0]["message"].as_str().unwrap();
        assert!(message.starts_with(told), "{message}");
    }
    let file = "run: x\nresources: {any_of: [{accelerators: 17}, {accelerators: 16}]}\n";
    let (status, answer) = served.call(BOB, "POST /tasks", json!({"file": file, "queue": "q"})).await;
    assert_eq!(status, 201, "{answer}");
    let path = format!("GET /tasks/{}", answer["id"].as_str().unwrap());
    let (_, told) = served.call(BOB, &path, Value::Null).await;
    assert_eq!(told["maxDuration"], "8h", "what may be at most is the default where there is none: {told}");
    let id = submit(&served, ANN, "run: x\nresources: {accelerators: 99}\n").await;
    assert!(!id.is_empty(), "another tenant has no limits");
}

#[tokio::test]
async fn what_was_accepted_is_answered_again_also_when_limits_have_changed_since() {
    let unbounded = |parts: &mut Parts| {
        for rule in &mut parts.tenants.0 {
            rule.limits = Limits::default();
        }
    };
    let before = served_as(unbounded).await;
    let asked = |id: &str, file: &str| json!({"file": file, "queue": "q", "id": id});
    let large = "run: x\nmax_duration: 9h\nresources: {accelerators: 17}\n";
    let (status, first) = before.call(BOB, "POST /tasks", asked("0a1b2c3d", large)).await;
    assert_eq!(status, 201, "{first}");
    let (status, small) = before.call(BOB, "POST /tasks", asked("0a1b2c3e", "run: x\n")).await;
    assert_eq!(status, 201, "{small}");
    let after = served_as(|parts| parts.store = before.store.clone()).await;
    let again = after.call(BOB, "POST /tasks", asked("0a1b2c3d", large)).await;
    assert_eq!(again, (201, first));
    let again = after.call(BOB, "POST /tasks", asked("0a1b2c3e", "run: x\n")).await;
    assert_eq!(again, (201, small), "the maximum is the default of what comes from now on");
    let (status, other) = after.call(BOB, "POST /tasks", asked("0a1b2c3d", "run: x\n")).await;
    assert_eq!(status, 409, "{other}");
    let (status, new) = after.call(BOB, "POST /tasks", asked("0a1b2c3f", large)).await;
    assert_eq!(status, 422, "{new}");
}
