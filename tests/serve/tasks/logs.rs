//! Logs of tasks as streams, of runs that go on and of runs that are over.

use super::*;

#[tokio::test]
async fn a_stream_of_logs_ends_with_a_word_on_the_task() {
    let served = served().await;
    let id = submit(&served, ANN, "run: x\n").await;
    moves(&served, &id, &[dispatch(), Move::ProgramFailed { restart: false }]).await;
    let expected = json!({"type": "TASK", "phase": "failed", "message": "program"});
    for query in ["", "?follow=true", "?follow=1&tail=5&node=0&sinceSeconds=60"] {
        let (status, last) = served.call(ANN, &format!("GET /tasks/{id}/logs{query}"), Value::Null).await;
        assert_eq!((status, last), (200, expected.clone()), "{query}");
    }
    for (query, status) in [("node=1", 422), ("tail=x", 400), ("after=x", 400), ("sinceTime=soon", 400)] {
        let (refused, problem) =
            served.call(ANN, &format!("GET /tasks/{id}/logs?{query}"), Value::Null).await;
        assert_eq!(refused, status, "{query}: {problem}");
    }
    for (token, status) in [(BOB, 404), (STRANGER, 404), (ROOT, 200)] {
        assert_eq!(served.call(token, &format!("GET /tasks/{id}/logs"), Value::Null).await.0, status);
    }
}

/// It names the last line of each node, and there may be hundreds.
#[tokio::test]
async fn a_log_of_many_nodes_goes_on_where_it_broke() {
    let served = served().await;
    let id = submit(&served, ANN, "run: x\n").await;
    served.call(ANN, &format!("POST /tasks/{id}/stop"), Value::Null).await;
    let places = |nodes: u32| {
        let place = |node| format!("{node}/task/train-{id}-{node}-x2x7k=2026-11-21T07:00:00.123456789Z+1");
        (0..nodes).map(place).collect::<Vec<_>>().join(",")
    };
    let after = |places: &str| {
        let places: String = form_urlencoded::byte_serialize(places.as_bytes()).collect();
        format!("/api/v1/tasks/{id}/logs?after={places}")
    };
    let ask = async |path: &str, resumed: Option<&str>| {
        let mut request = Request::get(path).header("authorization", format!("Bearer {ANN}"));
        if let Some(places) = resumed {
            request = request.header("last-event-id", places);
        }
        let response = served.send(request.body(Body::empty()).unwrap()).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&body).unwrap_or_default()["causes"][0]["field"].clone())
    };
    // More do not fit in a URL.
    assert_eq!(ask(&after(&places(700)), None).await.0, 200);
    let path = format!("/api/v1/tasks/{id}/logs");
    assert_eq!(ask(&path, Some(&places(1000))).await.0, 200);
    assert_eq!(ask(&after("nonsense"), None).await, (400, json!("after")));
    assert_eq!(ask(&path, Some("nonsense")).await, (400, json!("Last-Event-ID")));
    // What a client sends by itself is newer than what stands in its URL.
    assert_eq!(ask(&after("nonsense"), Some(&places(1))).await.0, 200);
}

#[tokio::test]
async fn what_was_kept_of_an_earlier_run_shows_also_while_the_task_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let kept = KeptLogs::open(folder.path(), 1 << 20).unwrap();
    let served = served_as(|parts| parts.kept_logs = Some(kept.clone())).await;
    let id = submit(&served, ANN, "run: x\n").await;
    let logs =
        async |query: &str| served.call(ANN, &format!("GET /tasks/{id}/logs?{query}"), Value::Null).await;
    let nothing = async |query: &str| {
        let (status, problem) = logs(query).await;
        assert_eq!((status, &problem["code"]), (404, &json!("not-found")), "{query}: {problem}");
        assert!(problem["next"].as_str().unwrap().contains("tasks.logs.keep"), "{problem}");
    };
    nothing("previous=true").await;
    let keep = async |epoch: u32| {
        let line = json!({"cluster": "east", "node": 0, "pod": "p", "container": "task", "line": {"seq": 1, "text": epoch.to_string()}});
        let run = (TaskId::parse(&id).unwrap(), epoch);
        kept.put(run, line.to_string().into_bytes(), Timestamp::UNIX_EPOCH).await.unwrap();
    };
    let shows = async |query: &str, epoch: &str, phase: &str| {
        let path = format!("/api/v1/tasks/{id}/logs?{query}");
        let request = Request::get(path).header("authorization", format!("Bearer {ANN}"));
        let body = served.send(request.body(Body::empty()).unwrap()).await.into_body();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let items: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let lines: Vec<&Value> = items.iter().filter_map(|item| item.get("line")).collect();
        assert_eq!(lines, [&json!(epoch)], "{query}: {text}");
        assert_eq!(items.last().unwrap()["phase"], phase, "{query}: {text}");
    };
    moves(&served, &id, &[dispatch(), Move::Started, Move::ProgramFailed { restart: true }]).await;
    nothing("previous=true").await;
    keep(1).await;
    nothing("previous=true").await;
    moves(&served, &id, &[Move::Withdrawn]).await;
    shows("previous=true&follow=true", "1", "pending").await;
    moves(&served, &id, &[dispatch(), Move::Started]).await;
    shows("previous=true", "1", "running").await;
    moves(&served, &id, &[Move::ProgramFailed { restart: true }]).await;
    keep(2).await;
    moves(&served, &id, &[Move::Withdrawn, dispatch(), Move::Started]).await;
    shows("previous=true", "2", "running").await;
    shows("epoch=1", "1", "running").await;
    nothing("epoch=3").await;
}
