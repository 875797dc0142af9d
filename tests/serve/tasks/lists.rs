//! Lists of tasks: in pages, filtered, followed.

use super::*;

/// A long page is read and sent in parts; it is one page all the same.
#[tokio::test]
async fn a_long_list_is_one_page() {
    let served = served_as(|parts| parts.max_live = Live { tasks: 1000, bytes: 16 << 20 }).await;
    for number in 0..205 {
        submit(&served, ANN, &format!("name: t{number}\nrun: x\n")).await;
    }
    let names = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|task| task["name"].as_str().unwrap().to_owned()).collect()
    };
    let all: Vec<String> = (0..205).rev().map(|number| format!("t{number}")).collect();
    for limit in [100, 120, 200, 204, 205, 5000] {
        let (status, page) = served.call(ANN, &format!("GET /tasks?limit={limit}"), Value::Null).await;
        assert_eq!((status, names(&page)), (200, all[..205.min(limit)].to_vec()));
        let Some(next) = page["continue"].as_str() else {
            assert!(205 <= limit, "the page of {limit} leads nowhere");
            continue;
        };
        let path = format!("GET /tasks?limit=5000&continue={next}");
        let (_, rest) = served.call(ANN, &path, Value::Null).await;
        assert_eq!((names(&rest), rest.get("continue")), (all[limit..].to_vec(), None));
    }
    for limit in [100, 5000] {
        let request = Request::get(format!("/api/v1/tasks?limit={limit}")).header("accept-encoding", "gzip");
        let request = request.header("authorization", format!("Bearer {ANN}")).body(Body::empty()).unwrap();
        let response = served.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let packed = response.into_body().collect().await.unwrap().to_bytes();
        let page = serde_json::from_reader(flate2::read::GzDecoder::new(packed.as_ref())).unwrap();
        assert_eq!(names(&page), all[..205.min(limit)]);
    }
    let (_, none) = served.call(BOB, "GET /tasks", Value::Null).await;
    assert_eq!(none, json!({"items": []}));
}

#[tokio::test]
async fn lists_are_paged_and_filtered() {
    let served = served().await;
    for number in 0..5 {
        submit(&served, ANN, &format!("name: t{number}\nrun: x\n")).await;
    }
    let (_, first) = served.call(ANN, "GET /tasks?limit=2", Value::Null).await;
    let names = |page: &Value| {
        page["items"].as_array().unwrap().iter().map(|task| task["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["t4", "t3"]);
    let next = first["continue"].as_str().unwrap();
    let (_, second) = served.call(ANN, &format!("GET /tasks?limit=2&continue={next}"), Value::Null).await;
    assert_eq!(names(&second), ["t2", "t1"]);
    assert_eq!(served.call(ANN, "GET /tasks?continue=x", Value::Null).await.0, 400);
    served.call(ANN, "POST /tasks/stop", Value::Null).await;
    assert_eq!(list(&served, ANN, "?over=true").await.len(), 5);
    assert!(list(&served, ANN, "?over=false").await.is_empty());
}

#[tokio::test]
async fn a_list_can_be_followed() {
    let served = served().await;
    let id = submit(&served, ANN, "name: one\nrun: x\n").await;
    let request = Request::get("/api/v1/tasks?watch=1").header("authorization", format!("Bearer {ANN}"));
    let request = request.header("accept", "text/event-stream").body(Body::empty()).unwrap();
    let response = served.send(request).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let mut next = async || {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(frame.to_vec()).unwrap()
    };
    let begin = next().await;
    assert!(begin.starts_with("data: {\"type\":\"ADDED\"") && begin.contains("SYNCED"), "{begin}");
    moves(&served, &id, &[dispatch()]).await;
    served.task_views.send_replace(Arc::default());
    let change = next().await;
    assert!(change.contains("MODIFIED") && change.contains("\"phase\":\"dispatching\""), "{change}");
}

/// A stream tells of so many. What newer ones push out is there all the same, so it is not told to be gone.
#[tokio::test]
async fn what_newer_tasks_push_out_of_a_stream_is_not_told_to_be_gone() {
    let served = served_as(|parts| parts.max_live = Live { tasks: 1000, bytes: 16 << 20 }).await;
    let oldest = submit(&served, ANN, "name: oldest\nrun: x\n").await;
    for number in 0..498 {
        submit(&served, ANN, &format!("name: t{number}\nrun: x\n")).await;
    }
    let newest = submit(&served, ANN, "name: newest\nrun: x\n").await;
    let request = Request::get("/api/v1/tasks?watch=true&over=false");
    let request = request.header("authorization", format!("Bearer {ANN}")).body(Body::empty()).unwrap();
    let mut body = served.send(request).await.into_body();
    let mut next = async || {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(frame.to_vec()).unwrap()
    };
    let begin = next().await;
    assert!(begin.lines().count() == 501 && begin.contains(&oldest), "{} lines", begin.lines().count());
    let id = submit(&served, ANN, "name: one-more\nrun: x\n").await;
    served.call(ANN, &format!("POST /tasks/{newest}/stop"), Value::Null).await;
    submit(&served, ANN, "name: and-another\nrun: x\n").await;
    served.task_views.send_replace(Arc::default());
    let change = next().await;
    let told = |kind: &str, id: &str| {
        change.lines().any(|line| line.contains(&format!("\"type\":\"{kind}\"")) && line.contains(id))
    };
    assert!(told("ADDED", &id) && told("DELETED", &newest), "{change}");
    assert!(!change.contains(&oldest), "{change}");
}

/// Scripts are most of what a task is, and no list shows them.
#[tokio::test]
async fn lists_do_not_read_scripts() {
    let served = served().await;
    let id = submit(&served, ANN, "name: one\nsetup: s\nrun: script\nenvs: {A: b}\n").await;
    let page = served.store.tasks(&TaskFilter::default(), &PageRequest::default()).await.unwrap();
    let spec = &page.items[0].spec;
    assert_eq!((spec.run.as_str(), spec.setup.as_deref(), spec.envs.len()), ("", None, 0));
    let (_, task) = served.call(ANN, &format!("GET /tasks/{id}"), Value::Null).await;
    assert_eq!(task["run"], "script");
}
