//! k8s-cli's contract, request by request: statuses and bodies as its own server gives them.

use axum::{
    body::Body,
    http::{HeaderMap, Request},
};
use fedq_api::UnprovenNames;
use fedq_domain::task::phase::Move;
use fedq_values::nested;
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    server::{ANN, BOB, ROOT, Served, served, served_as},
    tasks::{dispatch, moves},
};

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn is(&self, status: u16, text: &str) {
        assert_eq!((self.status, self.text.as_str()), (status, text));
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("no JSON: {}", self.text))
    }
}

struct Client<'a> {
    served: &'a Served,
    user: Option<&'a str>,
    token: Option<&'a str>,
}

/// What clients on this machine ask for.
const HERE: &str = "localhost:8750";

impl Client<'_> {
    async fn call(&self, line: &str, body: &str) -> Answer {
        self.call_with(line, "application/json", body).await
    }

    async fn call_with(&self, line: &str, media: &str, body: &str) -> Answer {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request =
            Request::builder().method(method).uri(path).header("content-type", media).header("host", HERE);
        if let Some(user) = self.user {
            request = request.header("X-User", user);
        }
        if let Some(token) = self.token {
            // As httpx makes it of http://anyone:TOKEN@host.
            let pair = k8s_openapi::ByteString(format!("anyone:{token}").into_bytes());
            let encoded = serde_json::to_value(pair).unwrap();
            request = request.header("authorization", format!("Basic {}", encoded.as_str().unwrap()));
        }
        let response = self.served.send(request.body(Body::from(body.to_owned())).unwrap()).await;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    async fn get(&self, path: &str) -> Answer {
        self.call(&format!("GET {path}"), "").await
    }

    async fn submit(&self, body: &str) -> String {
        let answer = self.call("POST /tasks/submit", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["task_id"].as_str().unwrap().to_owned()
    }
}

fn ann(served: &Served) -> Client<'_> {
    Client { served, user: Some("ann"), token: Some(ANN) }
}

#[tokio::test]
async fn anyone_may_ask_whether_it_is_there() {
    let served = served().await;
    let anyone = Client { served: &served, user: None, token: None };
    anyone.get("/").await.is(200, r#"{"status":"ok","service":"k8s-cli-api"}"#);
}

#[tokio::test]
async fn the_life_of_a_volume() {
    let served = served().await;
    let client = ann(&served);
    let body =
        r#"{"name": "data-vol", "size": "10Gi", "storage_class": null, "access_modes": ["ReadWriteOnce"]}"#;
    let answer = client.call("POST /volumes/create", body).await;
    let id = answer.json()["volume_id"].as_str().unwrap().to_owned();
    answer.is(200, &format!(
        r#"{{"volume_id":"{id}","status":"created","message":"Volume created successfully with ID: {id}"}}"#
    ));
    let expected = json!({
        "volume_id": id, "name": "data-vol", "size": "10Gi", "storage_class": null,
        "access_modes": ["ReadWriteOnce"], "status": "Pending", "created_at": "2023-11-14T22:13:20",
        "username": "ann", "metadata": {"pvc_name": format!("data-vol-{id}"), "namespace": "default"},
    });
    client.get(&format!("/volumes/{id}")).await.is(200, &expected.to_string());
    client.get("/volumes").await.is(200, &json!({"volumes": [expected]}).to_string());
    let path = format!("DELETE /volumes/{id}");

    let task = client.submit(r#"{"run": "x", "volumes": {"/data": "data-vol"}}"#).await;
    let used = client.call(&path, "").await;
    assert_eq!(used.status, 500);
    let detail = used.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.starts_with("Failed to delete volume: volume `data-vol` is used by"), "{detail}");
    client.call(&format!("POST /tasks/{task}/stop"), "").await;
    client.call(&path, "").await.is(
        200,
        &format!(r#"{{"volume_id":"{id}","status":"deleted","message":"Volume {id} deleted successfully"}}"#),
    );
    for line in [&path, &format!("GET /volumes/{id}")] {
        client.call(line, "").await.is(404, &format!(r#"{{"detail":"Volume {id} not found"}}"#));
    }
    client.get("/volumes").await.is(200, r#"{"volumes":[]}"#);
}

#[tokio::test]
async fn the_life_of_a_task() {
    let served = served().await;
    let client = ann(&served);
    // The specification's own example.
    let body = r#"{
        "name": "training-job", "num_nodes": 2,
        "resources": {"cpus": "4", "memory": "8Gi", "accelerators": "1", "image_id": "python:3.11"},
        "volumes": {"/data": "data-vol"}, "envs": {"EPOCHS": "100"},
        "setup": "pip install torch numpy\n", "run": "python train.py --data /data --epochs $EPOCHS\n"
    }"#;
    let answer = client.call("POST /tasks/submit", body).await;
    let id = answer.json()["task_id"].as_str().unwrap().to_owned();
    answer.is(200, &format!(
        r#"{{"task_id":"{id}","status":"submitted","message":"Task submitted successfully with ID: {id}"}}"#
    ));
    let job = |node: u32| format!("training-job-{id}-node-{node}");
    let expected = json!({
        "task_id": id, "name": "training-job", "status": "pending", "created_at": "2023-11-14T22:13:20",
        "updated_at": "2023-11-14T22:13:20", "username": "ann",
        "metadata": {
            "job_name": job(0), "namespace": "default", "num_nodes": 2, "node_jobs": [job(0), job(1)],
            "succeeded_nodes": 0, "failed_nodes": 0, "running_nodes": 0, "pending_nodes": 2,
            "queue": "main", "pending_reason": "no cluster is chosen for it yet",
        },
    });
    client.get("/tasks").await.is(200, &json!({"tasks": [expected]}).to_string());
    client.get(&format!("/tasks/{id}")).await.is(200, &expected.to_string());
    moves(&served, &id, &[dispatch(), Move::Written, Move::Started]).await;
    let status = client.get(&format!("/tasks/{id}")).await.json();
    assert_eq!((&status["status"], &status["metadata"]["cluster"]), (&json!("running"), &json!("east")));

    client.call(&format!("POST /tasks/{id}/stop"), "").await.is(
        200,
        &format!(r#"{{"task_id":"{id}","status":"stopped","message":"Task {id} stopped successfully"}}"#),
    );
    for line in ["GET /tasks/{}", "POST /tasks/{}/stop"] {
        let gone = client.call(&line.replace("{}", &id), "").await;
        gone.is(404, &format!(r#"{{"detail":"Task {id} not found"}}"#));
    }
    client.get("/tasks").await.is(200, r#"{"tasks":[]}"#);
}

#[tokio::test]
async fn several_nodes_with_a_volume_of_one_machine_go_to_one() {
    let served = served().await;
    let client = ann(&served);
    let body = r#"{"name": "data-vol", "size": "10Gi", "access_modes": ["ReadWriteOnce"]}"#;
    assert_eq!(client.call("POST /volumes/create", body).await.status, 200);
    let task = r#"{"run": "x", "num_nodes": 2, "volumes": {"/data": "data-vol"}}"#;
    let answer = client.call("POST /tasks/submit", task).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.json()["warnings"][0].as_str().unwrap().contains("all nodes of the task go to one"));
    client.submit(r#"{"run": "x", "num_nodes": 1, "volumes": {"/data": "data-vol"}}"#).await;
    let together: Vec<bool> =
        served.store.live_tasks().await.unwrap().iter().map(|row| row.spec.one_machine).collect();
    assert_eq!(together, [true, false]);
}

#[tokio::test]
async fn logs_are_text_and_end_with_the_task() {
    let served = served().await;
    let client = ann(&served);
    let id = client.submit(r#"{"run": "x"}"#).await;
    moves(&served, &id, &[dispatch(), Move::ProgramFailed { restart: false }]).await;
    let logs = client.get(&format!("/tasks/{id}/logs")).await;
    logs.is(200, "");
    assert_eq!(logs.headers["content-type"], "text/plain; charset=utf-8");
    client.get("/tasks/abc12345/logs").await.is(404, r#"{"detail":"Task abc12345 not found"}"#);
    let bob = Client { served: &served, user: Some("bob@example.com"), token: Some(BOB) };
    bob.get(&format!("/tasks/{id}/logs")).await.is(404, &format!(r#"{{"detail":"Task {id} not found"}}"#));
}

#[tokio::test]
async fn stopping_all_counts_tasks_and_not_nodes() {
    let served = served().await;
    let client = ann(&served);
    client.submit(r#"{"run": "x", "num_nodes": 4}"#).await;
    client.submit(r#"{"run": "x"}"#).await;
    let root = Client { served: &served, user: Some("root"), token: Some(ROOT) };
    root.submit(r#"{"run": "x"}"#).await;
    let answer = client.call("POST /tasks/stop", "").await;
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (200, r#"{"count":2,"status":"stopped","message":"Stopped 2 tasks"}"#)
    );
    assert_eq!(client.call("POST /tasks/stop?all_users=true", "").await.status, 403);
    let answer = root.call("POST /tasks/stop?all_users=true", "").await;
    assert_eq!(answer.text, r#"{"count":1,"status":"stopped","message":"Stopped 1 tasks for all users"}"#);
}

#[tokio::test]
async fn what_fedq_takes_less_of_is_a_422_too() {
    let served = served().await;
    let client = ann(&served);
    let empty = Client { user: Some(""), ..ann(&served) };
    assert_eq!(empty.get("/tasks").await.json()["detail"][0]["loc"], json!(["header", "x-user"]));
    assert_eq!(empty.call("POST /tasks/stop", "").await.status, 422, "an empty name is not everybody");
    for (line, body, kind, loc) in [
        (
            "POST /tasks/submit",
            r#"{"run": "x", "num_nodes": 10000}"#,
            "value_error",
            json!(["body", "num_nodes"]),
        ),
        ("POST /tasks/submit", r#"{"run": "x", "resorces": {}}"#, "value_error", json!(["body", "resorces"])),
        ("POST /tasks/submit", r#"{"run": "x", "run": "y"}"#, "value_error", json!(["body"])),
        ("POST /tasks/submit", r#"{"run": NaN}"#, "json_invalid", json!(["body", 8])),
        (
            "POST /tasks/submit?strict=1",
            r#"{"run": "x", "resources": {"disk_size": 1}}"#,
            "value_error",
            json!(["body", "resources", "disk_size"]),
        ),
        ("POST /volumes/create", r#"{"name": "a", "size": "much"}"#, "value_error", json!(["body", "size"])),
        (
            "POST /volumes/create",
            r#"{"name": "a", "size": "1Gi", "storageClass": "fast"}"#,
            "value_error",
            json!(["body", "storageClass"]),
        ),
    ] {
        let answer = client.call(line, body).await;
        let detail = &answer.json()["detail"][0];
        assert_eq!(
            (answer.status, &detail["type"], &detail["loc"]),
            (422, &json!(kind), &loc),
            "{line} {body}"
        );
    }
    assert_eq!(client.get("/tasks").await.text, r#"{"tasks":[]}"#, "nothing was created");
    let huge = format!(r#"{{"run": "{}"}}"#, "x".repeat((1 << 20) + 1));
    assert_eq!(client.call("POST /tasks/submit", &huge).await.status, 413);
    assert_eq!(client.call("POST /tasks/submit", &"x".repeat(3 << 20)).await.status, 413);
}

#[tokio::test]
async fn skypilots_own_types_are_taken() {
    let served = served().await;
    let body = r#"{
        "num_nodes": 1, "resources": {"cpus": 2, "memory": "32+", "accelerators": {"H100": 2}, "ports": 8080},
        "envs": {"A": 1, "B": true}, "run": "x", "file_mounts": {"/a": "./a"}
    }"#;
    let answer = ann(&served).call("POST /tasks/submit", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let warnings = answer.json()["warnings"].to_string();
    assert!(warnings.contains("resources.ports") && warnings.contains("file_mounts"), "{warnings}");
    let row = &served.store.live_tasks().await.unwrap()[0];
    assert_eq!(row.spec.candidates[0].accelerator.as_ref().unwrap().kind.as_deref(), Some("H100"));
    assert_eq!(row.spec.envs, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "true".to_owned())]);
}

/// An exchange of `tests/clients/k8s_cli`, where FastAPI itself is held to the same.
#[derive(Deserialize)]
struct Exchange {
    ask: String,
    /// Whether the request says whose it is.
    #[serde(default = "always")]
    user: bool,
    /// Of the body.
    #[serde(rename = "type")]
    media: Option<String>,
    #[serde(default)]
    body: String,
    status: u16,
    location: Option<String>,
    answer: Option<Value>,
}

fn always() -> bool {
    true
}

#[tokio::test]
async fn what_is_wrong_is_told_as_k8s_clis_own_server_tells_it() {
    let served = served().await;
    let exchanges = include_str!("../clients/k8s_cli/exchanges.json");
    let exchanges: Vec<Exchange> = serde_json::from_str(exchanges).unwrap();
    let mut wrong = Vec::new();
    for Exchange { ask, user, media, body, status, location, answer } in &exchanges {
        let client = Client { served: &served, user: user.then_some("root"), token: Some(ROOT) };
        let media = media.as_deref().unwrap_or("application/json");
        let found = client.call_with(ask, media, body).await;
        let found = (
            found.status,
            found.headers.get("location").map(|place| place.to_str().unwrap().to_owned()),
            Some(found.text).filter(|text| !text.is_empty()),
        );
        // Its fields in its order, too.
        let expected = (*status, location.clone(), answer.as_ref().map(Value::to_string));
        if found != expected {
            wrong.push(format!("{ask} {body}\n  expected {expected:?}\n     found {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), exchanges.len(), wrong.join("\n"));
    assert_eq!(ann(&served).get("/volumes").await.text, r#"{"volumes":[]}"#, "nothing was created");
}

/// `/tasks/a/logs` → `/tasks/{task}/logs`, as the document has it.
fn described<'a>(document: &'a Value, line: &str) -> Option<&'a Value> {
    let (method, path) = line.split_once(' ')?;
    let path = path.split('?').next()?;
    let fits = |template: &str| {
        let same = |(one, other): (&str, &str)| one == other || one.starts_with('{') && !other.is_empty();
        template.split('/').count() == path.split('/').count()
            && template.split('/').zip(path.split('/')).all(same)
    };
    let paths = document["paths"].as_object()?;
    // What stands there in full comes first.
    let mut found: Vec<_> = paths.iter().filter(|(template, _)| fits(template)).collect();
    found.sort_by_key(|(template, _)| template.contains('{'));
    found.into_iter().find_map(|(_, item)| item.get(method.to_ascii_lowercase()))
}

#[tokio::test]
async fn a_document_of_their_own_describes_these_routes() {
    let served = served().await;
    let client = ann(&served);
    for (path, place) in [("/openapi.json", "/k8s-cli/openapi.json"), ("/docs", "/k8s-cli/docs")] {
        let moved = client.get(path).await;
        assert_eq!((moved.status, moved.headers["location"].to_str().unwrap()), (307, place));
    }
    let document = client.get("/k8s-cli/openapi.json").await.json();
    let page = client.get("/k8s-cli/docs").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    assert!(page.text.contains("href=\"/k8s-cli/openapi.json\"") && page.text.contains("/tasks/{task}/logs"));
    let exchanges = include_str!("../clients/k8s_cli/exchanges.json");
    let exchanges: Vec<Exchange> = serde_json::from_str(exchanges).unwrap();
    let mut known = 0;
    for Exchange { ask, status, answer, .. } in &exchanges {
        let nowhere = answer.as_ref().is_none_or(|answer| answer["detail"] == "Not Found");
        let operation = described(&document, ask);
        if nowhere || matches!(status, 307 | 405) {
            continue;
        }
        let response = operation.and_then(|operation| operation["responses"].get(status.to_string()));
        assert!(response.is_some(), "{ask} gives {status}, which the document does not say");
        known += 1;
    }
    assert!(100 < known, "{known}");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let refers = document.to_string();
    for name in schemas.keys() {
        assert!(refers.contains(&format!("#/components/schemas/{name}\"")), "{name} is nobody's");
    }
}

#[tokio::test]
async fn a_path_with_a_slash_at_its_end_leads_to_where_it_was_asked_for() {
    let served = served().await;
    let place = async |headers: &[(&str, &str)], uri: &str| {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = served.send(request.body(Body::empty()).unwrap()).await;
        response.headers()["location"].to_str().unwrap().to_owned()
    };
    let host = ("host", "fedq.example.com");
    assert_eq!(place(&[host], "/tasks/").await, "http://fedq.example.com/tasks");
    assert_eq!(
        place(&[host, ("x-forwarded-proto", "https")], "/tasks/").await,
        "https://fedq.example.com/tasks"
    );
    assert_eq!(
        place(&[host, ("x-forwarded-proto", "gopher")], "/tasks/").await,
        "http://fedq.example.com/tasks"
    );
    assert_eq!(place(&[], "http://h:1/volumes/x/?a=b").await, "http://h:1/volumes/x?a=b", "as HTTP/2 has it");
    assert_eq!(place(&[], "/tasks/").await, "/tasks", "nobody knows how it was asked for");
}

/// Each would take the process with it.
#[tokio::test]
async fn what_is_made_to_end_a_reader_is_refused() {
    let served = served().await;
    let client = ann(&served);
    let nest = nested::nest(390);
    assert!(nest.len() < 2 << 20, "{}", nest.len());
    // Not through the test's own reader of requests, which has no such care.
    for path in ["/volumes/create", "/tasks/submit", "/api/v1/tasks", "/api/v1/placements/simulate"] {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("host", HERE)
            .header("X-User", "ann")
            .header("authorization", format!("Bearer {ANN}"))
            .body(Body::from(nest.clone()))
            .unwrap();
        let answer = served.router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, 400, "{path}: {}", String::from_utf8_lossy(&text));
    }

    let modes = vec!["0"; 200_000].join(",");
    let many = format!(r#"{{"name":"a","size":"1Gi","access_modes":[{modes}]}}"#);
    let answer = client.call("POST /volumes/create", &many).await;
    let told = answer.json()["detail"].as_array().unwrap().len();
    assert!(answer.status == 422 && told == 100, "{} {told}", answer.status);
}

#[tokio::test]
async fn what_a_stranger_sends_is_not_read_whatever_the_name() {
    let served = served().await;
    for user in [None, Some(" "), Some("ann")] {
        for token in [None, Some("wrong")] {
            let stranger = Client { served: &served, user, token };
            for line in ["POST /volumes/create", "POST /tasks/submit"] {
                assert_eq!(stranger.call(line, "7").await.status, 401, "{line} as {user:?} with {token:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_name_is_believed_with_its_token_only() {
    let served = served().await;
    let none = Client { served: &served, user: Some("ann"), token: None };
    let answer = none.get("/tasks").await;
    assert_eq!(answer.status, 401);
    assert!(answer.json()["detail"].as_str().unwrap().contains("no token"));
    let posing = Client { served: &served, user: Some("ann"), token: Some(BOB) };
    assert_eq!(posing.get("/tasks").await.status, 403);
    ann(&served).submit(r#"{"run": "x", "name": "anns"}"#).await;
    let on_behalf = Client { served: &served, user: Some("ann"), token: Some(ROOT) };
    assert_eq!(on_behalf.get("/tasks").await.json()["tasks"][0]["name"], "anns");
    assert!(on_behalf.get("/tasks").await.headers.get("x-fedq-insecure").is_none());
}

#[tokio::test]
async fn names_alone_are_believed_where_that_is_set() {
    let served = served_as(|parts| parts.unproven_names = UnprovenNames::Own).await;
    let client = Client { served: &served, user: Some("ann"), token: None };
    client.submit(r#"{"run": "x"}"#).await;
    let answer = client.get("/tasks").await;
    assert_eq!(answer.json()["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(answer.headers["x-fedq-insecure"], "true");
    assert_eq!(client.get("/tasks?all_users=true").await.status, 403, "ann is no administrator");
    let (status, _) = served.call("", "GET /tasks", Value::Null).await;
    assert_eq!(status, 401, "fedq's own API takes a token always");
    for name in ["", " ", "system:admin", &"x".repeat(300)] {
        let posing = Client { served: &served, user: Some(name), token: None };
        assert!(matches!(posing.get("/tasks").await.status, 403 | 422), "{name}");
    }
}

/// What `/tasks` answers ann, without a token, with these headers.
async fn asked_with(served: &Served, headers: &[(&str, &str)]) -> u16 {
    let mut request = Request::builder().uri("/tasks").header("X-User", "ann");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    served.send(request.body(Body::empty()).unwrap()).await.status().as_u16()
}

#[tokio::test]
async fn a_page_whose_name_is_made_to_lead_here_is_nobody() {
    let served = served_as(|parts| parts.unproven_names = UnprovenNames::All).await;
    for host in ["localhost", "LocalHost:8750", "127.0.0.1:8750", "127.9.9.9", "[::1]:8750"] {
        assert_eq!(asked_with(&served, &[("host", host)]).await, 200, "{host}");
        let origin = format!("http://{host}");
        assert_eq!(asked_with(&served, &[("host", host), ("origin", &origin)]).await, 200, "{host}");
    }
    let rebound = [
        "evil.example.com",
        "evil.example.com:8750",
        "localhost.evil.example.com",
        "127.0.0.1.evil.example.com",
        "10.0.0.1:8750",
        "localhost@evil.example.com",
        "0.0.0.0:8750",
        "",
    ];
    for host in rebound {
        assert_eq!(asked_with(&served, &[("host", host)]).await, 403, "{host}");
    }
    assert_eq!(asked_with(&served, &[]).await, 403, "no Host");
    assert_eq!(asked_with(&served, &[("host", HERE), ("host", "evil.example.com")]).await, 403, "two Hosts");
    for origin in
        ["http://evil.example.com", "http://localhost:3000", "null", "https://evil.example.com:8750", ""]
    {
        assert_eq!(asked_with(&served, &[("host", HERE), ("origin", origin)]).await, 403, "{origin}");
    }
    // A token says who asks, whatever the machine is called.
    let request = Request::get("/tasks").header("host", "fedq.example.com").header("X-User", "ann");
    let request = request.header("authorization", format!("Bearer {ANN}")).body(Body::empty()).unwrap();
    assert_eq!(served.send(request).await.status(), 200);
}

/// Whom an administrator's name lets see, read and stop somebody else's task.
async fn reach_by_name(believed: UnprovenNames) -> Vec<u16> {
    let served = served_as(|parts| parts.unproven_names = believed).await;
    let id = ann(&served).submit(r#"{"run": "x"}"#).await;
    let root = Client { served: &served, user: Some("root"), token: None };
    let mut statuses = Vec::new();
    for line in
        ["GET /tasks?all_users=true", "GET /tasks/{}", "GET /volumes?all_users=true", "POST /tasks/{}/stop"]
    {
        statuses.push(root.call(&line.replace("{}", &id), "").await.status);
    }
    statuses.push(root.call("POST /tasks/stop?all_users=true", "").await.status);
    let proven = Client { served: &served, user: Some("root"), token: Some(ROOT) };
    assert_eq!(proven.get("/tasks?all_users=true").await.status, 200, "with a token it is no question");
    statuses
}

#[tokio::test]
async fn a_name_alone_makes_no_administrator() {
    assert_eq!(reach_by_name(UnprovenNames::Refused).await, [401; 5]);
    assert_eq!(reach_by_name(UnprovenNames::Own).await, [403, 404, 403, 404, 403]);
    assert_eq!(reach_by_name(UnprovenNames::All).await, [200; 5]);
}
