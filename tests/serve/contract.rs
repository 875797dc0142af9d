//! What programs rely on beside what each path does: parameters, bodies, ETags, compression.

use std::{io::Read, sync::Arc};

use axum::{body::Body, http::Request};
use fedq_store::PlanCause;
use fedq_values::ids::ClusterName;
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    server::{ANN, Served, served},
    tasks::submit,
};

pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Status, code, and the first cause's field and message.
    pub fn problem(&self) -> (u16, String, String, String) {
        let problem = self.json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cause = &problem["causes"][0];
        (self.status, text(&problem["code"]), text(&cause["field"]), text(&cause["message"]))
    }
}

pub async fn ask(served: &Served, line: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/api/v1{path}"))
        .header("authorization", format!("Bearer {ANN}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (parts, body) = served.send(request.body(body.into()).unwrap()).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

pub const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn a_misspelt_dry_run_is_not_carried_out() {
    let served = served().await;
    for (query, field, message) in [
        ("dryrun=All", "dryrun", "there is no such parameter: `dryRun` is the one meant"),
        ("dry_run=All", "dry_run", "there is no such parameter: `dryRun` is the one meant"),
        ("force=1", "force", "there is no such parameter: this request takes dryRun"),
        ("dryRun=all", "dryRun", "must be All"),
        ("dryRun=All&dryRun=All", "dryRun", "must be given once"),
    ] {
        let answer = ask(&served, &format!("POST /clusters/west/cordon?{query}"), &[], "").await;
        let expected = (400, "bad-request".to_owned(), field.to_owned(), message.to_owned());
        assert_eq!(answer.problem(), expected, "{query}");
    }
    let world = served.hub.world();
    let written: Vec<_> = world.requests.iter().filter(|line| line.contains("PATCH")).collect();
    assert!(written.is_empty(), "{written:?}");
}

#[tokio::test]
async fn a_wrong_parameter_is_named_on_reads_too() {
    let served = served().await;
    for (line, field, message) in [
        ("GET /clusters?limit=-1", "limit", "must be a whole number from 0 to 4294967295"),
        ("GET /clusters?limit=99999999999", "limit", "must be a whole number from 0 to 4294967295"),
        ("GET /clusters?watch=yes", "watch", "must be true or false"),
        ("GET /audit?since=yesterday", "since", "must be a time such as 2026-08-01T09:30:00Z"),
        ("GET /tasks?kind=foo", "kind", "must be task or appWrapper"),
        (
            "GET /claims/east-resource-claim/history?watch=1",
            "watch",
            "there is no such parameter: this request takes limit, continue",
        ),
        ("GET /version?a=b", "a", "there is no such parameter: this request takes none"),
    ] {
        let answer = ask(&served, line, &[], "").await;
        let expected = (400, "bad-request".to_owned(), field.to_owned(), message.to_owned());
        assert_eq!(answer.problem(), expected, "{line}");
    }
    let answer = ask(&served, "GET /clusters/Not%20One", &[], "").await;
    let (status, _, _, message) = answer.problem();
    assert!(status == 400 && message.starts_with("cluster name `Not One` is not valid"), "{message}");
}

#[tokio::test]
async fn a_bad_body_is_told_by_field_and_place() {
    let served = served().await;
    let deep = format!("{{\"file\": {}", "[".repeat(100_000));
    let large = format!("{{\"file\": \"{}\"}}", "x".repeat(10 << 20));
    let cases: [(&str, Vec<u8>, u16, &str, &str); 13] = [
        ("/tasks", b"file: x".to_vec(), 400, "bad-request", ""),
        ("/tasks", b"".to_vec(), 400, "bad-request", ""),
        ("/tasks", b"{\"file\": \"\xff\"}".to_vec(), 400, "bad-request", "file"),
        ("/tasks", deep.into_bytes(), 400, "bad-request", "file"),
        ("/tasks", large.into_bytes(), 413, "too-large", ""),
        ("/tasks", br#"{"file": 7}"#.to_vec(), 422, "invalid", "file"),
        ("/tasks", br#"{"file": "run: a", "fil": ""}"#.to_vec(), 422, "invalid", "fil"),
        ("/tasks", br#"{"file": "run: a", "file": "run: b"}"#.to_vec(), 422, "invalid", "file"),
        ("/tasks", br#"{"file": "run: a", "id": "A"}"#.to_vec(), 422, "invalid", "id"),
        ("/clusters", br#"{"name": "new"}"#.to_vec(), 422, "invalid", "kubeconfig"),
        ("/clusters", br#"{"name": "a b", "kubeconfig": "x"}"#.to_vec(), 422, "invalid", "name"),
        // Its items are not taken for fields.
        ("/volumes", br#"["data", "1Gi"]"#.to_vec(), 422, "invalid", ""),
        ("/volumes", b"{\"name\": \"a\\u0000\", \"size\": \"1Gi\"}".to_vec(), 422, "invalid", "name"),
    ];
    for (path, body, status, code, field) in cases {
        let said = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let answer = ask(&served, &format!("POST {path}"), &[JSON], body).await;
        let (found, found_code, found_field, message) = answer.problem();
        let first = found_field.split(['.', '[']).next().unwrap_or_default();
        assert_eq!((found, found_code.as_str(), first), (status, code, field), "{said}: {}", answer.json());
        assert!(status == 413 || !message.is_empty(), "{said}");
    }
    let answer = ask(&served, "POST /tasks", &[JSON], "{\n  \"file\": 7\n}").await;
    let cause = &answer.json()["causes"][0];
    assert_eq!((&cause["line"], &cause["column"]), (&json!(2), &json!(11)), "{cause}");
    for headers in [&[][..], &[("content-type", "text/yaml")]] {
        let answer = ask(&served, "POST /tasks", headers, "{}").await;
        assert_eq!(answer.problem().1, "unsupported-media-type");
    }
}

#[tokio::test]
async fn single_objects_are_sent_once() {
    let served = served().await;
    served.placements.send_replace(super::placement::view());
    let task = submit(&served, ANN, "run: x\n").await;
    let volume = ask(&served, "POST /volumes", &[JSON], r#"{"name": "data", "size": "1Gi"}"#).await.json();
    let paths = [
        "/clusters/east".to_owned(),
        "/claims/east-resource-claim".to_owned(),
        "/queues/team-a".to_owned(),
        "/version".to_owned(),
        "/whoami".to_owned(),
        format!("/tasks/{task}"),
        format!("/tasks/{task}/explain"),
        format!("/uploads/{}", "5f".repeat(32)),
        format!("/volumes/{}", volume["id"].as_str().unwrap()),
        "/placements/ns/gpus".to_owned(),
        "/placements/ns/gpus/explanation".to_owned(),
    ];
    let document = fedq_api::openapi();
    let items = document["paths"].as_object().unwrap().values();
    let objects = items.filter(|item| item["get"]["responses"]["304"].is_object()).count();
    assert_eq!(paths.len(), objects, "an object is missing here");
    for path in paths {
        let first = ask(&served, &format!("GET {path}"), &[], "").await;
        let tag = first.headers["etag"].to_str().unwrap().to_owned();
        for known in [tag.as_str(), "*", &format!("\"other\", W/{tag}")] {
            let again = ask(&served, &format!("GET {path}"), &[("if-none-match", known)], "").await;
            assert_eq!((again.status, again.body.len()), (304, 0), "{path} {known}");
            assert_eq!(again.headers["etag"], *tag);
        }
        let other = ask(&served, &format!("GET {path}"), &[("if-none-match", "\"other\"")], "").await;
        assert_eq!((other.status, other.body), (200, first.body), "{path}");
    }
}

/// A strong ETag stands for bytes, and packed they are others. Clients that have answers packed without a word edit all
/// the same.
#[tokio::test]
async fn what_is_packed_has_an_etag_of_its_own() {
    let served = served().await;
    let mut overview = super::server::overview();
    let claim = Arc::make_mut(overview.claims.values_mut().next().unwrap());
    claim.notes[0].2 = "long ".repeat(400);
    served.overview.send_replace(overview.into());
    let path = "/claims/east-resource-claim";
    let get = async |known: Option<&str>| {
        let mut request = Request::get(format!("/api/v1{path}"))
            .header("authorization", format!("Bearer {ANN}"))
            .header("accept-encoding", "gzip");
        if let Some(known) = known {
            request = request.header("if-none-match", known);
        }
        let request = request.body(Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(served.router.clone(), request).await.unwrap();
        let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
        (answer.status().as_u16(), answer.headers().contains_key("content-encoding"), tag)
    };
    let plain = ask(&served, &format!("GET {path}"), &[], "").await;
    let plain = plain.headers["etag"].to_str().unwrap();
    let (status, is_packed, packed) = get(None).await;
    assert_eq!((status, is_packed), (200, true));
    assert_eq!(packed, format!("{}-gzip\"", plain.trim_end_matches('"')));
    for known in [plain, &packed] {
        assert_eq!(get(Some(known)).await, (304, false, known.to_owned()));
        let spec = super::server::spec("6").to_string();
        let edit = ask(&served, &format!("PUT {path}?dryRun=All"), &[JSON, ("if-match", known)], spec).await;
        assert_eq!(edit.status, 200, "{known}: {}", edit.json());
    }
}

/// It is seen every other second, and who asks for it as often is sent nothing all the same.
#[tokio::test]
async fn that_a_cluster_was_seen_is_no_other_cluster() {
    let served = served().await;
    let seen = |milliseconds: i64, cordoned: bool| {
        let mut overview = super::server::overview();
        let east = overview.clusters.values_mut().next().unwrap();
        east.last_seen.set(Timestamp::from_millisecond(milliseconds).unwrap());
        Arc::make_mut(east).cordoned = cordoned;
        served.overview.send_replace(overview.into());
    };
    seen(1_700_000_000_000, false);
    let first = ask(&served, "GET /clusters/east", &[], "").await;
    assert!(first.json()["lastSeen"].is_string());
    let known = first.headers["etag"].to_str().unwrap();
    assert!(known.starts_with("W/\""), "{known} goes by less than the bytes");
    seen(1_700_000_002_000, false);
    let again = ask(&served, "GET /clusters/east", &[("if-none-match", known)], "").await;
    assert_eq!(again.status, 304);
    seen(1_700_000_004_000, true);
    let changed = ask(&served, "GET /clusters/east", &[("if-none-match", known)], "").await;
    assert_eq!(changed.status, 200, "it is cordoned");
}

/// Who asks for the head alone asks for the same.
#[tokio::test]
async fn a_head_takes_the_parameters_of_a_get() {
    let served = served().await;
    for (path, status) in [("/clusters?limit=2", 200), ("/clusters?limits=2", 400), ("/version?a=1", 400)] {
        let request =
            Request::head(format!("/api/v1{path}")).header("authorization", format!("Bearer {ANN}"));
        let request = request.body(Body::empty()).unwrap();
        let answer = tower::ServiceExt::oneshot(served.router.clone(), request).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
}

/// What the ETag of a claim tells of changes whenever the hub's numbers do; an edit is compared with the claim alone.
#[tokio::test]
async fn an_edit_takes_the_etag_that_was_read() {
    let served = served().await;
    let read = ask(&served, "GET /claims/east-resource-claim", &[], "").await;
    let tag = read.headers["etag"].to_str().unwrap().to_owned();
    let mut overview = super::server::overview();
    overview.queues.clear();
    served.overview.send_replace(overview.into());
    let changed = ask(&served, "GET /claims/east-resource-claim", &[("if-none-match", &tag)], "").await;
    assert_eq!(changed.status, 200, "what is shown of it changed");
    let put = "PUT /claims/east-resource-claim?dryRun=All";
    let spec = super::server::spec("6").to_string();
    let edit = ask(&served, put, &[JSON, ("if-match", &tag)], spec.clone()).await;
    assert_eq!(edit.status, 200, "{}", edit.json());
    let stale = ask(&served, put, &[JSON, ("if-match", "\"0.0\"")], spec).await;
    assert_eq!(stale.status, 412);
}

#[tokio::test]
async fn large_answers_are_compressed_where_that_is_asked_for() {
    let served = served().await;
    let plain = ask(&served, "GET /openapi.json", &[], "").await;
    assert!(
        1400 < plain.body.len() && !plain.headers.contains_key("content-encoding"),
        "{}",
        plain.body.len()
    );
    let request = Request::builder().uri("/api/v1/openapi.json").header("accept-encoding", "gzip");
    let router = served.router.clone();
    let response = tower::ServiceExt::oneshot(router, request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let packed = response.into_body().collect().await.unwrap().to_bytes();
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(packed.as_ref()).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain.body);
    assert!(5 * packed.len() < plain.body.len(), "{} of {}", packed.len(), plain.body.len());
    let page = Request::builder().uri("/api/v1/docs").header("accept-encoding", "gzip");
    let page = tower::ServiceExt::oneshot(served.router.clone(), page.body(Body::empty()).unwrap());
    assert_eq!(page.await.unwrap().headers()["content-encoding"], "gzip");
}

/// A cluster that answers is seen all the time.
#[tokio::test]
async fn that_a_cluster_was_seen_is_no_event() {
    let served = served().await;
    let request =
        Request::builder().uri("/api/v1/clusters?watch=1").header("authorization", format!("Bearer {ANN}"));
    let mut body = served.send(request.body(Body::empty()).unwrap()).await.into_body();
    let mut chunk = async || {
        let frame = body.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    assert!(chunk().await.ends_with("{\"type\":\"SYNCED\"}\n"));
    let change = |seen: i64, cordoned: bool| {
        let mut overview = super::server::overview();
        let east = overview.clusters.first_entry().unwrap().into_mut();
        let east = Arc::get_mut(east).unwrap();
        east.last_seen.set(Timestamp::from_millisecond(seen).unwrap());
        east.cordoned = cordoned;
        served.overview.send_replace(overview.into());
    };
    change(1_700_000_000_123, false);
    let first = chunk().await;
    assert!(
        first.contains("\"lastSeen\":\"2023-11-14T22:13:20.123Z\""),
        "what was never seen is now: {first}"
    );
    change(1_700_000_002_123, false);
    let quiet = tokio::time::timeout(std::time::Duration::from_millis(1500), chunk()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    change(1_700_000_004_000, true);
    let line = chunk().await;
    assert!(line.contains("\"cordoned\":true") && line.contains(":24.000Z\""), "{line}");
}

/// A plan is stored under Kubernetes' names of resources, and told of by those that queues and claims are told of by.
#[tokio::test]
async fn plans_name_what_their_queue_names() {
    let served = served().await;
    let cell = json!({
        "queue": "team-a", "flavor": "on-demand", "resource": "nvidia.com/gpu", "requested": "8", "effective": "6",
        "draining": "2", "term": "4", "reason": "Draining",
    });
    let cause = PlanCause { other: Some("a node went".to_owned()), ..PlanCause::default() };
    let (cluster, report) = (ClusterName::new("east").unwrap(), json!({"cells": [cell]}));
    served.store.record_plan(&cluster, &cause, &report, Timestamp::UNIX_EPOCH).await.unwrap();
    let told = ask(&served, "GET /queues/team-a", &[], "").await.json();
    let planned = &told["plans"][0]["report"]["cells"][0];
    assert_eq!((&planned["queue"], &planned["resource"]), (&told["queue"]["name"], &json!("gpu")), "{told}");
    assert_eq!((&planned["draining"], &planned["reason"]), (&json!("2"), &json!("Draining")));
}
