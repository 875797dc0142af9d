//! What programs rely on beside what each path does: parameters, bodies, pages, ETags, compression.

use std::{io::Read, sync::Arc};

use axum::{body::Body, http::Request};
use fedq_domain::{
    placement::{
        spec::{Placement, PlacementKey},
        view::{PlacementRow, PlacementView},
    },
    task::{names::TaskId, phase::Move},
};
use fedq_store::{CapacityRow, ClaimRow, ClusterRow, ClusterSource, PlanCause};
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};
use http_body_util::BodyExt;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    document::{Asked, DOCUMENT, differences},
    server::{ANN, Served, served},
    tasks::{dispatch, moves, submit},
};

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Status, code, and the first cause's field and message.
    fn problem(&self) -> (u16, String, String, String) {
        let problem = self.json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let cause = &problem["causes"][0];
        (self.status, text(&problem["code"]), text(&cause["field"]), text(&cause["message"]))
    }
}

async fn ask(served: &Served, line: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Answer {
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

const JSON: (&str, &str) = ("content-type", "application/json");

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

/// Who checks all that the tests say and are told sees more than bodies.
#[test]
fn what_goes_beside_bodies_is_held_against_the_document() {
    let headers = |pairs: &[(&'static str, &'static str)]| -> http::HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    };
    let told = |line: &str,
                asked: &[(&'static str, &'static str)],
                status: u16,
                answer: &[(&'static str, &'static str)]| {
        let (method, path) = line.split_once(' ').unwrap();
        let (method, path) = (method.parse().unwrap(), format!("/api/v1{path}"));
        let asked = Asked { method, path, headers: headers(asked), body: b"{}".to_vec() };
        differences(&asked, status.try_into().unwrap(), &headers(answer), b"{}").join("\n")
    };
    let sent = |line: &str, body: &[u8]| {
        let (method, path) = line.split_once(' ').unwrap();
        let (method, path) = (method.parse().unwrap(), format!("/api/v1{path}"));
        let asked = Asked { method, path, headers: headers(&[JSON]), body: body.to_vec() };
        differences(&asked, http::StatusCode::OK, &headers(&[JSON]), b"{}").join("\n")
    };
    let json = &[JSON];
    for (told, expected) in [
        (told("GET /claims/Not%20One", &[], 200, json), "claim: \"Not One\""),
        (told("GET /tasks/0123456", &[], 200, json), "task: \"0123456\""),
        (told("PUT /claims/a", json, 200, json), "the header If-Match is missing"),
        (told("PUT /claims/a", &[JSON, ("if-match", "7")], 200, json), "If-Match: \"7\""),
        (told("POST /tasks", &[("content-type", "text/yaml")], 201, json), "media type `text/yaml`"),
        (told("POST /tasks", json, 201, json), "the header Location is missing"),
        (told("GET /clusters", &[], 503, &[("retry-after", "soon")]), "Retry-After: null"),
        (told("GET /clusters?limit=-1", &[], 200, json), "limit: null"),
        (told("GET /clusters", &[], 200, &[JSON, ("etag", "\"a\"")]), "the header etag is not described"),
        (
            told("GET /clusters", &[("if-none-match", "*")], 200, json),
            "the header if-none-match is not described",
        ),
        (
            sent("POST /clusters/east/cordon", b"{\"dryRun\": \"All\"}"),
            "no body is described, and there is one",
        ),
    ] {
        assert!(told.contains(expected), "no {expected} in\n{told}");
    }
    for body in ["", "{}", "null"] {
        assert!(!sent("POST /clusters/east/cordon", body.as_bytes()).contains("no body"), "{body}");
    }
    let told = told("GET /tasks/01234567", &[("if-none-match", "\"a\"")], 304, &[("etag", "\"a\"")]);
    assert!(!told.contains("task: ") && !told.contains("header"), "{told}");
}

/// Clients need not ask whether it is there.
#[test]
fn what_is_always_sent_is_required() {
    let document = fedq_api::openapi();
    for (schema, field) in
        [("Problem", "detail"), ("Done", "dryRun"), ("Task", "kind"), ("TaskDetail", "kind")]
    {
        let required = document["components"]["schemas"][schema]["required"].as_array().unwrap();
        assert!(required.contains(&json!(field)), "{schema}.{field}");
    }
}

/// More than that is taken for that.
#[tokio::test]
async fn lists_say_how_much_a_page_holds() {
    let served = served().await;
    let document = fedq_api::openapi();
    for (path, otherwise, most) in [
        ("/clusters", 500, 1000),
        ("/check", 500, 1000),
        ("/tasks", 100, 10_000),
        ("/audit", 100, 1000),
        ("/claims/{claim}/history", 100, 1000),
    ] {
        let parameters = &document["paths"][format!("/api/v1{path}")]["get"]["parameters"];
        let mut parameters = parameters.as_array().unwrap().iter();
        let limit = parameters.find(|parameter| parameter["name"] == "limit").unwrap();
        let told = limit["description"].as_str().unwrap();
        let words = [format!("{otherwise} where it is left out or 0"), format!("never more than {most},")];
        assert!(words.iter().all(|words| told.contains(words)), "{path}: {told}");
        let path = path.replace("{claim}", "east-resource-claim");
        assert_eq!(
            ask(&served, &format!("GET {path}?limit=4294967295"), &[], "").await.status,
            200,
            "{path}"
        );
    }
}

/// One that says of a join that something was cordoned helps nobody.
#[test]
fn examples_of_what_was_done_tell_of_their_operation() {
    let document = fedq_api::openapi();
    let mut told = std::collections::BTreeSet::new();
    let mut found = 0;
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            for answer in operation["responses"].as_object().unwrap().values() {
                let content = &answer["content"]["application/json"];
                if content["schema"]["$ref"] == "#/components/schemas/Done" {
                    found += 1;
                    told.insert(content["example"]["message"].as_str().unwrap().to_owned());
                }
            }
        }
    }
    assert_eq!((found, told.len()), (7, 7), "{told:?}");
}

/// No schema of a line can say it.
#[test]
fn streams_say_how_they_pause_and_end() {
    let document = fedq_api::openapi();
    let mut found = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let (operation, answer) = (&item["get"], &item["get"]["responses"]["200"]);
        if answer["content"]["text/event-stream"].is_null() {
            continue;
        }
        found += 1;
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let watch = parameters.filter(|parameter| parameter["name"] == "watch");
        for told in watch.chain([answer]) {
            for words in ["20 seconds", "an empty line", "the comment `:`", "after 10 minutes"] {
                let description = told["description"].as_str().unwrap();
                assert!(description.contains(words), "{path}: no {words} in {description}");
            }
        }
    }
    assert!(5 < found, "{found}");
}

/// As the loops of clients begin.
#[tokio::test]
async fn every_list_begins_with_an_empty_continue() {
    let served = served().await;
    let document = fedq_api::openapi();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let schema = &item["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
        if !schema.as_str().is_some_and(|schema| schema.ends_with("List")) {
            continue;
        }
        let parameters: Vec<_> = item["get"]["parameters"].as_array().into_iter().flatten().collect();
        for name in ["limit", "continue"] {
            assert!(parameters.iter().any(|parameter| parameter["name"] == name), "{path} has no {name}");
        }
        let path = path.trim_start_matches("/api/v1").replace("{cluster}", "east");
        let path = path.replace("{claim}", "east-resource-claim").replace("{queue}", "team-a");
        if path.contains('{') {
            continue;
        }
        let answer = ask(&served, &format!("GET {path}?continue="), &[], "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.json());
        found.push(path);
    }
    assert!(8 < found.len(), "{found:?}");
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
async fn every_list_comes_in_pages() {
    let served = served().await;
    for name in ["c", "a", "b"] {
        let body = json!({"name": name, "size": "1Gi"}).to_string();
        let made = ask(&served, "POST /volumes", &[JSON], body).await;
        assert_eq!(made.status, 201);
        let location = made.headers["location"].to_str().unwrap().trim_start_matches("/api/v1").to_owned();
        assert_eq!(ask(&served, &format!("GET {location}"), &[], "").await.json()["name"], name);
    }
    for (path, key, count) in [("/volumes", "id", 3), ("/check", "cluster", 3), ("/clusters", "name", 2)] {
        let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
        let all: Vec<Value> =
            whole["items"].as_array().unwrap().iter().map(|item| item[key].clone()).collect();
        assert_eq!((all.len(), whole.get("continue")), (count, None), "{path}");
        let (mut paged, mut next) = (Vec::new(), String::new());
        loop {
            let page = ask(&served, &format!("GET {path}?limit=1{next}"), &[], "").await.json();
            let items = page["items"].as_array().unwrap();
            assert_eq!(items.len(), 1, "{path}");
            paged.push(items[0][key].clone());
            let Some(more) = page["continue"].as_str() else { break };
            let more: String = form_urlencoded::byte_serialize(more.as_bytes()).collect();
            next = format!("&continue={more}");
        }
        assert_eq!(paged, all, "{path}");
    }
    let wrong = ask(&served, "GET /check?continue=nonsense", &[], "").await;
    assert_eq!(wrong.status, 400);
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

/// Each thing that a request holds, one beyond its bound.
#[tokio::test]
async fn what_is_beyond_a_bound_of_the_document_is_refused_with_its_field() {
    let served = served().await;
    let text = |length: usize| "x".repeat(length);
    let many = |count: usize, value: Value| -> Value {
        (0..count)
            .map(|number| (format!("k{number}"), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let task = |field: &str, value: Value| {
        let mut body = json!({"file": "run: x\n"});
        body[field] = value;
        ("POST /tasks", body)
    };
    let claim = |assignments: Value, nominal: Value| {
        let spec =
            json!({"clusterName": "east", "nominalResources": nominal, "resourceAssignments": assignments});
        ("POST /claims/east-resource-claim/diff", spec)
    };
    let assignment =
        |resources: Value| json!({"clusterQueueName": "team-a", "flavor": "a", "resources": resources});
    let join = |field: &str, value: Value| {
        let mut body = json!({"name": "new", "kubeconfig": "x"});
        body[field] = value;
        ("POST /clusters", body)
    };
    for ((line, body), field) in [
        (task("accelerators", text(257).into()), "accelerators"),
        (task("image", text(1025).into()), "image"),
        (task("name", text(201).into()), "name"),
        (task("name", "".into()), "name"),
        (task("queue", text(254).into()), "queue"),
        (task("numNodes", 1001.into()), "numNodes"),
        (task("numNodes", 0.into()), "numNodes"),
        (task("envs", many(1025, "".into())), "envs"),
        (task("envs", json!({"A": text((128 << 10) + 1)})), "envs.A"),
        (task("envs", json!({(text(254)): ""})), "envs"),
        (task("secrets", many(1025, "".into())), "secrets"),
        (task("secrets", json!({"A": text((128 << 10) + 1)})), "secrets.A"),
        (join("kubeconfig", text((1 << 20) + 1).into()), "kubeconfig"),
        (join("context", text(1025).into()), "context"),
        (("POST /clusters/west/confirm", json!({"uid": text(129)})), "uid"),
        (("POST /clusters/west/confirm", json!({"uid": ""})), "uid"),
        (claim(json!([]), many(65, "1".into())), "nominalResources"),
        (claim(vec![assignment(json!({"cpu": "1"})); 129].into(), json!({})), "resourceAssignments"),
        (claim(json!([assignment(many(17, "1".into()))]), json!({})), "resourceAssignments[0].resources"),
        (
            ("POST /volumes", json!({"name": "a", "size": "1Gi", "accessModes": vec!["ReadWriteOnce"; 5]})),
            "accessModes",
        ),
        (
            ("POST /placements/simulate", json!({"kind": "Placement", "metadata": {"name": text(254)}})),
            "metadata.name",
        ),
    ] {
        let answer = ask(&served, line, &[JSON], body.to_string()).await;
        let (status, code, found, message) = answer.problem();
        assert_eq!((status, code.as_str(), found.as_str()), (422, "invalid", field), "{line}: {message}");
        assert!(message.starts_with("must be "), "{field}: {message}");
        assert!(!message.contains("xxx"), "{field}: {message}");
    }
    for name in ["who", "object"] {
        let answer = ask(&served, &format!("GET /audit?{name}={}", text(4097)), &[], "").await;
        let (status, _, field, message) = answer.problem();
        let expected = "must be text of at most 4096 characters without NUL";
        assert_eq!((status, field.as_str(), message.as_str()), (400, name, expected));
    }
    let written: Vec<_> =
        served.hub.world().requests.iter().filter(|line| !line.starts_with("GET")).cloned().collect();
    assert!(written.iter().all(|line| line.contains("reviews")), "{written:?}");
}

/// A program shows them, and who reads the page copies them.
#[test]
fn every_body_has_an_example_that_fits() {
    let document = fedq_api::openapi();
    let mut found = Vec::new();
    let mut look = |place: String, content: &Value| {
        let content = &content["content"]["application/json"];
        if !content.is_object() {
            return;
        }
        let misfits = DOCUMENT.misfits(&content["schema"], &content["example"]);
        assert!(misfits.is_empty(), "{place}: {misfits:?}\n{:#}", content["example"]);
        found.push(place);
    };
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            look(format!("{id}: body"), &operation["requestBody"]);
            let responses = operation["responses"].as_object().unwrap().iter();
            for (status, response) in responses.filter(|(status, _)| status.starts_with('2')) {
                look(format!("{id}: {status}"), response);
            }
        }
    }
    let bodies = found.iter().filter(|place| place.ends_with(": body")).count();
    assert_eq!((bodies, 35 < found.len()), (10, true), "{found:?}");
}

/// It is read in browsers, next to what people are logged in to.
#[tokio::test]
async fn the_page_for_people_loads_nothing_from_elsewhere() {
    let served = served().await;
    let get = async |path: &str| {
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = tower::ServiceExt::oneshot(served.router.clone(), request).await.unwrap();
        let (parts, body) = response.into_parts();
        assert_eq!(parts.status, 200, "{path} needs no login");
        assert_eq!(parts.headers["x-content-type-options"], "nosniff");
        let policy = parts.headers["content-security-policy"].to_str().unwrap();
        let directives: Vec<&str> = policy.split(';').map(str::trim).collect();
        assert!(
            directives.contains(&"default-src 'none'") && directives.contains(&"frame-ancestors 'none'"),
            "{policy}"
        );
        for unsafe_source in ["unsafe", "*", "http:", "https:", "data:", "blob:"] {
            assert!(!policy.contains(unsafe_source), "{policy}");
        }
        let media = parts.headers["content-type"].to_str().unwrap().to_owned();
        (media, String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    };
    let (media, page) = get("/api/v1/docs").await;
    assert_eq!(media, "text/html; charset=utf-8");
    let loads = |attribute: &str| -> Vec<String> {
        let before = format!(" {attribute}=\"");
        let parts = page.split(&before).skip(1);
        parts.map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
    };
    let mut targets = [loads("src"), loads("href"), loads("action"), loads("srcset")].concat();
    targets.retain(|target| !target.starts_with('#'));
    targets.sort();
    assert_eq!(targets, ["/api/v1/docs/style.css", "/api/v1/openapi.json"]);
    for forbidden in ["<script", "<iframe", "<style", " style=", " onclick="] {
        assert!(!page.contains(forbidden), "the page has {forbidden}");
    }
    for anchor in loads("href").iter().filter_map(|target| target.strip_prefix('#')) {
        assert!(page.contains(&format!("id=\"{anchor}\"")), "#{anchor} leads nowhere");
    }
    let document = fedq_api::openapi();
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(page.contains(&format!("<section id=\"{id}\">")), "{id} is not on the page");
        }
    }
    let (media, style) = get("/api/v1/docs/style.css").await;
    assert_eq!(media, "text/css");
    assert!(style.contains('{') && !style.contains("url(") && !style.contains("@import"), "{style}");
}

/// Goes through a list two at a time; `change` is called behind each page with its number. What all pages held.
async fn pages(
    served: &Served,
    path: &str,
    key: impl Fn(&Value) -> String,
    mut change: impl AsyncFnMut(usize),
) -> Vec<String> {
    let separator = if path.contains('?') { '&' } else { '?' };
    let (mut found, mut next) = (Vec::new(), String::new());
    for number in 0.. {
        let page = ask(served, &format!("GET {path}{separator}limit=2{next}"), &[], "").await;
        assert_eq!(page.status, 200, "{path}: {}", page.json());
        let page = page.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2, "{path}");
        found.extend(items.iter().map(&key));
        let Some(more) = page["continue"].as_str() else { break };
        assert!(number < 50, "{path} has no end");
        let more: String = form_urlencoded::byte_serialize(more.as_bytes()).collect();
        next = format!("&continue={more}");
        change(number).await;
    }
    found
}

/// What was there from beginning to end is told of once, in the order of the whole list; what went or came, at most once.
fn hold_together(path: &str, whole: &[String], gone: &[String], found: &[String]) {
    let mut once = found.to_vec();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), found.len(), "{path} tells of one twice: {found:?}");
    let stayed: Vec<_> = whole.iter().filter(|name| !gone.contains(name)).collect();
    let told: Vec<_> = found.iter().filter(|name| stayed.contains(name)).collect();
    assert_eq!(told, stayed, "{path}: {found:?}");
}

fn text_of(field: &'static str) -> impl Fn(&Value) -> String {
    move |item| item[field].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_list_of_tasks_that_changes_between_pages_holds_together() {
    let served = served().await;
    let mut made = Vec::new();
    for number in 0..8 {
        made.push(submit(&served, ANN, &format!("name: t{number}\nrun: x\n")).await);
    }
    let path = "/tasks?over=false";
    let whole: Vec<String> = made.iter().rev().cloned().collect();
    // One that was told of goes, then the last of a page, behind which the next one begins, then one that was to come.
    let gone = [whole[0].clone(), whole[3].clone(), whole[6].clone()];
    let found = pages(&served, path, text_of("id"), async |number| {
        if let Some(id) = gone.get(number) {
            assert_eq!(ask(&served, &format!("POST /tasks/{id}/stop"), &[], "").await.status, 202);
        }
        submit(&served, ANN, &format!("name: new{number}\nrun: x\n")).await;
    });
    let found = found.await;
    hold_together(path, &whole, &gone, &found);
    assert!(!found.contains(&gone[2]), "it was stopped before its page");
    assert_eq!(found.len(), 7, "new ones stand before those that were told of: {found:?}");
    // What people did is kept: newest first, while each page adds to it.
    let whole = ask(&served, "GET /audit", &[], "").await.json();
    let key = |entry: &Value| format!("{} {}", text_of("verb")(entry), text_of("object")(entry));
    let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key).collect();
    let found = pages(&served, "/audit", key, async |number| {
        submit(&served, ANN, &format!("name: more{number}\nrun: x\n")).await;
    });
    assert_eq!(found.await, whole, "what is added later stands before the first page");
}

#[tokio::test]
async fn a_history_that_grows_between_pages_holds_together() {
    let served = served().await;
    let id = submit(&served, ANN, "run: x\n").await;
    let lost = |number: u32| if number.is_multiple_of(2) { Move::ClusterLost } else { Move::ClusterBack };
    moves(&served, &id, &[dispatch()]).await;
    let mut number = 0;
    let mut step = async || {
        moves(&served, &id, &[lost(number)]).await;
        number += 1;
    };
    for _ in 0..3 {
        step().await;
    }
    let path = format!("/tasks/{id}/events");
    let before =
        ask(&served, &format!("GET {path}"), &[], "").await.json()["items"].as_array().unwrap().len();
    let key = |event: &Value| text_of("phase")(event);
    let found = pages(&served, &path, key, async |number| {
        if number < 2 {
            step().await;
        }
    });
    let found = found.await;
    let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
    let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key).collect();
    assert_eq!(
        (found.len(), &found),
        (before + 2, &whole),
        "what is added later stands behind the last page"
    );
}

#[tokio::test]
async fn a_list_of_volumes_that_changes_between_pages_holds_together() {
    let served = served().await;
    let make = async |name: String| {
        let made =
            ask(&served, "POST /volumes", &[JSON], json!({"name": name, "size": "1Gi"}).to_string()).await;
        assert_eq!(made.status, 201);
    };
    for number in 0..8 {
        make(format!("v{number}")).await;
    }
    let whole = ask(&served, "GET /volumes", &[], "").await.json();
    let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(text_of("id")).collect();
    let gone = [whole[0].clone(), whole[3].clone(), whole[6].clone()];
    let found = pages(&served, "/volumes", text_of("id"), async |number| {
        if let Some(id) = gone.get(number) {
            assert_eq!(ask(&served, &format!("DELETE /volumes/{id}"), &[], "").await.status, 202);
            // As its controller does once the cluster has let it go.
            assert!(served.store.forget_volume(&TaskId::parse(id).unwrap()).await.unwrap());
        }
        make(format!("new{number}")).await;
    });
    hold_together("/volumes", &whole, &gone, &found.await);
}

/// Clusters, and what is made of them: each is read from what the controllers published last.
#[tokio::test]
async fn lists_of_clusters_that_change_between_pages_hold_together() {
    let names = ["a", "c", "e", "g", "i", "k", "m", "o"];
    let of = |names: &[&str]| {
        let mut overview = super::server::overview();
        let like = overview.clusters.first_key_value().unwrap().1.clone();
        overview.clusters =
            names.iter().map(|name| (ClusterName::new(name).unwrap(), Arc::clone(&like))).collect();
        Arc::new(overview)
    };
    // Of each cluster capacity has two rows, of two resources, and checks one; another one is of the hub.
    let key = |path: &'static str| {
        move |item: &Value| match path {
            "/clusters" => text_of("name")(item),
            "/check" => format!("{} {}", text_of("cluster")(item), text_of("name")(item)),
            _ => format!("{} {}", text_of("cluster")(item), text_of("resource")(item)),
        }
    };
    for path in ["/clusters", "/check", "/capacity"] {
        let served = served().await;
        served.overview.send_replace(of(&names));
        let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
        let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key(path)).collect();
        let mut there = names.to_vec();
        let gone = ["a", "c", "k"];
        let came = ["b", "h", "z"];
        let found = pages(&served, path, key(path), async |number| {
            if let (Some(gone), Some(came)) = (gone.get(number), came.get(number)) {
                there.retain(|name| name != gone);
                there.push(came);
                served.overview.send_replace(of(&there));
            }
        });
        let found = found.await;
        let is_of = |row: &String| gone.iter().any(|gone| row.split(' ').next() == Some(gone));
        let of_gone: Vec<String> = whole.iter().filter(|row| is_of(row)).cloned().collect();
        hold_together(path, &whole, &of_gone, &found);
        assert!(found.iter().any(|row| row.starts_with('z')), "{path}: what came behind the page is told of");
    }
}

const NAMES: [&str; 8] = ["a", "c", "e", "g", "i", "k", "m", "o"];

/// Goes through `path`, which holds what `publish` was given last, while after each page one goes and one comes: before
/// what was told of, the one behind which the next page begins, and one that is still to come.
async fn goes_and_comes(served: &Served, path: &str, publish: impl Fn(&[&str])) {
    publish(&NAMES);
    let (gone, came) = (["a", "g", "k"], ["b", "h", "z"]);
    let mut there = NAMES.to_vec();
    let found = pages(served, path, text_of("name"), async |number| {
        if let (Some(gone), Some(came)) = (gone.get(number), came.get(number)) {
            there.retain(|name| name != gone);
            there.push(came);
            publish(&there);
        }
    });
    let (found, owned) =
        (found.await, |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect());
    let (whole, gone): (Vec<String>, Vec<String>) = (owned(&NAMES), owned(&gone));
    hold_together(path, &whole, &gone, &found);
    assert!(!found.contains(&"k".to_owned()), "{path}: it went before its page: {found:?}");
    assert!(found.contains(&"z".to_owned()), "{path}: it came before its page: {found:?}");
}

#[tokio::test]
async fn lists_of_claims_queues_and_placements_that_change_between_pages_hold_together() {
    let served = served().await;
    goes_and_comes(&served, "/claims", |names| {
        let mut overview = super::server::overview();
        let claim = overview.claims.values().next().unwrap().clone();
        overview.claims =
            names.iter().map(|name| (ClaimName::new(name).unwrap(), Arc::clone(&claim))).collect();
        served.overview.send_replace(overview.into());
    })
    .await;
    goes_and_comes(&served, "/queues", |names| {
        let mut overview = super::server::overview();
        let queue = overview.queues.values().next().unwrap().clone();
        overview.queues =
            names.iter().map(|name| (QueueName::new(name).unwrap(), Arc::clone(&queue))).collect();
        served.overview.send_replace(overview.into());
    })
    .await;
    goes_and_comes(&served, "/placements", |names| {
        let view = super::placement::view();
        let like = view.placements.values().next().unwrap();
        let placement = |name: &&str| {
            let key = PlacementKey { namespace: "ns".into(), name: (*name).into() };
            let row = PlacementRow { placement: Arc::new(Placement::new(key.clone())), ..(**like).clone() };
            (key, Arc::new(row))
        };
        let placements = names.iter().map(placement).collect();
        served.placements.send_replace(Arc::new(PlacementView { placements, ..(*view).clone() }));
    })
    .await;
}

/// What was done is told of newest first, so what is added later stands before the first page; what is too old is forgotten
/// meanwhile, from the other end.
#[tokio::test]
async fn histories_that_grow_between_pages_hold_together() {
    let served = served().await;
    let (claim, cluster) =
        (ClaimName::new("east-resource-claim").unwrap(), ClusterName::new("east").unwrap());
    let row = ClusterRow {
        name: cluster.clone(),
        identity: None,
        server: "https://api.example.com".to_owned(),
        source: ClusterSource::Secret,
        connection: "Ready".to_owned(),
        last_seen: None,
        cordoned: false,
        version: None,
        joined: Timestamp::UNIX_EPOCH,
    };
    served.store.put_cluster(&row).await.unwrap();
    let step = async |number: i64| {
        let at = Timestamp::from_second(1_700_000_000 + number).unwrap();
        let spec = super::server::spec(&number.to_string());
        let edit = ClaimRow { name: claim.clone(), generation: number, spec, who: "ann".to_owned(), at };
        assert!(served.store.record_claim(&edit).await.unwrap());
        let gpus = CapacityRow {
            flavor: FlavorName::new("on-demand").unwrap(),
            resource: ResourceName::new("nvidia.com/gpu").unwrap(),
            capacity: Amount::new(number),
            foreign: Amount::ZERO,
            usable: Amount::new(number),
        };
        assert_eq!(served.store.record_capacity(&cluster, &[gpus], at).await.unwrap(), 1);
    };
    for number in 1..=7 {
        step(number).await;
    }
    let mut last = 7;
    for (path, field) in
        [("/claims/east-resource-claim/history", "generation"), ("/capacity/east/history", "capacity")]
    {
        let key = |item: &Value| item[field].to_string();
        let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
        let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key).collect();
        assert!(7 <= whole.len(), "{path}: {whole:?}");
        let found = pages(&served, path, key, async |_| {
            last += 1;
            step(last).await;
        });
        assert_eq!(found.await, whole, "{path}");
    }
}

#[tokio::test]
async fn only_what_was_never_there_has_no_history() {
    let served = served().await;
    let cluster = ClusterName::new("gone").unwrap();
    let at = Timestamp::UNIX_EPOCH;
    let row = ClusterRow {
        name: cluster.clone(),
        identity: None,
        server: "https://api.example.com".to_owned(),
        source: ClusterSource::Secret,
        connection: "Ready".to_owned(),
        last_seen: None,
        cordoned: false,
        version: None,
        joined: at,
    };
    served.store.put_cluster(&row).await.unwrap();
    let gpus = CapacityRow {
        flavor: FlavorName::new("on-demand").unwrap(),
        resource: ResourceName::new("nvidia.com/gpu").unwrap(),
        capacity: Amount::new(1),
        foreign: Amount::ZERO,
        usable: Amount::new(1),
    };
    assert_eq!(served.store.record_capacity(&cluster, &[gpus], at).await.unwrap(), 1);
    let edit = ClaimRow {
        name: ClaimName::new("gone-resource-claim").unwrap(),
        generation: 1,
        spec: super::server::spec("1"),
        who: "ann".to_owned(),
        at,
    };
    assert!(served.store.record_claim(&edit).await.unwrap());
    for (name, status, count) in [("east", 200, 0), ("gone", 200, 1), ("never", 404, 0)] {
        for path in [format!("/capacity/{name}/history"), format!("/claims/{name}-resource-claim/history")] {
            let answer = ask(&served, &format!("GET {path}"), &[], "").await;
            let items = answer.json()["items"].as_array().map_or(0, Vec::len);
            assert_eq!((answer.status, items), (status, count), "{path}: {}", answer.json());
        }
    }
    // Behind the last page there is nothing more, whoever it was.
    let (path, behind) = ("/capacity/gone/history?limit=1", "&continue=1");
    assert_eq!(ask(&served, &format!("GET {path}{behind}"), &[], "").await.status, 200);
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

/// Everything of a request that the document gives a form, in another one: the bodies of examples with one thing changed.
#[tokio::test]
async fn what_is_not_of_the_form_of_the_document_is_refused_with_its_field() {
    let served = served().await;
    served.placements.send_replace(super::placement::view());
    let document = fedq_api::openapi();
    let mut seen = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let content = &operation["requestBody"]["content"]["application/json"];
            if content.is_null() {
                continue;
            }
            let line = format!("{} {}", method.to_uppercase(), path.trim_start_matches("/api/v1"));
            let line = line.replace("{cluster}", "east").replace("{claim}", "east-resource-claim");
            let line = line.replace("{queue}", "team-a");
            let mut wrong = Vec::new();
            misshapen(&content["schema"], &content["example"], "", &mut wrong);
            for (field, body) in wrong {
                if DOCUMENT.misfits(&content["schema"], &body).is_empty() {
                    continue;
                }
                let answer = ask(&served, &line, &[JSON, ("if-match", "*")], body.to_string()).await;
                let problem = answer.json();
                assert_eq!(
                    (answer.status, &problem["code"]),
                    (422, &json!("invalid")),
                    "{line} {field}: {problem}"
                );
                let causes = problem["causes"].as_array().unwrap().iter();
                let fields: Vec<&str> = causes.map(|cause| cause["field"].as_str().unwrap()).collect();
                let of = |found: &&str| {
                    let found = found.trim_start_matches("spec.");
                    !found.is_empty() && (found.starts_with(&field) || field.starts_with(found))
                };
                assert!(fields.iter().any(of), "{line} {field}: {problem}");
                seen.insert(format!("{line} {field}"));
            }
        }
    }
    for expected in [
        "POST /tasks numNodes",
        "POST /tasks strict",
        "POST /tasks nonsense",
        "POST /volumes accessModes[0]",
        "POST /clusters kubeconfig",
        "POST /claims/east-resource-claim/diff resourceAssignments[0].nonsense",
        "POST /placements/simulate spec",
        "POST /tasks queue",
        "POST /tasks name",
        "POST /tasks envs",
        "POST /tasks uploads",
        "PUT /claims/east-resource-claim resourceAssignments[0].clusterQueueName",
        "PUT /claims/east-resource-claim nominalResources",
        "POST /claims/east-resource-claim/assign resources",
        "PUT /queues/team-a/base base",
        "POST /placements/simulate metadata.namespace",
    ] {
        assert!(seen.contains(expected), "{expected} is not among {seen:#?}");
    }
    let world = served.hub.world();
    let reads = |line: &&String| line.contains(" GET ") || line.contains("reviews");
    let written: Vec<_> = world.requests.iter().filter(|line| !reads(line)).collect();
    assert!(written.is_empty(), "{written:?}");
}

/// `example` with one thing in turn that cannot be: text, keys and items of a map of another form, fields of other kinds,
/// those that there are not, and without one that must be there; and the field that it is about.
fn misshapen(schema: &Value, example: &Value, field: &str, wrong: &mut Vec<(String, Value)>) {
    const NONE: [&str; 5] = ["No Such: Thing", "-.", "a\u{0}b", "", " "];
    let schema = whole(schema);
    let below = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    if !field.is_empty() {
        let kinds = [json!(true), json!(7.5), json!([[]]), json!({"no such": {}}), json!(NONE[0])];
        wrong.extend(kinds.map(|value| (field.to_owned(), value)));
    }
    if schema["properties"].is_object() {
        let mut more = example.clone();
        more["nonsense"] = json!(1);
        wrong.push((below("nonsense"), more));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut less = example.clone();
        if less.as_object_mut().and_then(|fields| fields.shift_remove(name)).is_some() {
            wrong.push((below(name), less));
        }
    }
    let mut put = |field: &str, inner: Vec<(String, Value)>, make: &dyn Fn(Value) -> Value| {
        wrong.extend(
            inner
                .into_iter()
                .map(|(at, value)| (if at.is_empty() { field.to_owned() } else { at }, make(value))),
        );
    };
    for (name, part) in schema["properties"].as_object().into_iter().flatten() {
        let mut inner = Vec::new();
        misshapen(part, &example[name], &below(name), &mut inner);
        put(&below(name), inner, &|value| {
            let mut body = example.clone();
            body[name] = value;
            body
        });
    }
    if schema["items"].is_object() {
        let mut inner = Vec::new();
        misshapen(&schema["items"], &example[0], &format!("{field}[0]"), &mut inner);
        put(field, inner, &|value| json!([value]));
    }
    if schema["additionalProperties"].is_object() {
        let key = example
            .as_object()
            .and_then(|map| map.keys().next())
            .cloned()
            .unwrap_or_else(|| "KEY".to_owned());
        let others = NONE.iter().map(|text| json!(text)).chain([json!(true), json!(7), json!([]), json!({})]);
        wrong.extend(others.map(|other| (field.to_owned(), json!({key.clone(): other}))));
        let value =
            example.as_object().and_then(|map| map.values().next()).cloned().unwrap_or_else(|| json!("1"));
        wrong.extend(NONE.map(|text| (field.to_owned(), json!({text: value.clone()}))));
    }
    let kinds = &schema["type"];
    if *kinds == "string" || kinds.as_array().is_some_and(|kinds| kinds.contains(&json!("string"))) {
        wrong.extend(NONE.map(|text| (field.to_owned(), json!(text))));
    }
}

/// What a schema refers to, with what stands beside the reference.
fn whole(schema: &Value) -> Value {
    let pointer = schema["$ref"].as_str().map(|path| path.trim_start_matches('#').to_owned());
    let mut whole =
        pointer.map_or_else(|| json!({}), |pointer| fedq_api::openapi().pointer(&pointer).unwrap().clone());
    merge(&mut whole, schema);
    whole
}

fn merge(into: &mut Value, more: &Value) {
    let (true, Value::Object(more)) = (into.is_object(), more) else {
        *into = more.clone();
        return;
    };
    for (key, value) in more.iter().filter(|(key, _)| *key != "$ref") {
        merge(&mut into[key.as_str()], value);
    }
}

/// The document and the server say the same of each.
#[tokio::test]
async fn quantities_are_taken_as_the_document_says() {
    let served = served().await;
    let document = fedq_api::openapi();
    let schema = |path: &str, method: &str| {
        document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"].clone()
    };
    let (diff, base) =
        (schema("/api/v1/claims/{claim}/diff", "post"), schema("/api/v1/queues/{queue}/base", "put"));
    let digits = "1".repeat(19);
    let texts = [
        "5",
        "+5",
        "-5",
        "-0",
        "007",
        ".5",
        "5.",
        "1.5k",
        "0",
        "1e3",
        "1E+03",
        "1e003",
        "5 ",
        " 5",
        "5\n",
        "5X",
        "Ki",
        "",
        "1.0000000000k",
    ];
    let more = [digits.clone(), format!("1{digits}"), format!("{}Ki", "0".repeat(30)), "0".repeat(64)];
    let (mut fit, mut unfit) = (0, 0);
    for text in texts.iter().map(ToString::to_string).chain(more) {
        let mut spec = super::server::spec("4");
        spec["resourceAssignments"][0]["resources"]["memory"] = json!(text);
        let set = json!({"flavor": "on-demand", "resource": "memory", "base": text});
        for (line, schema, body) in [
            ("POST /claims/east-resource-claim/diff", &diff, spec),
            ("PUT /queues/team-a/base?dryRun=All", &base, set),
        ] {
            let fits = DOCUMENT.misfits(schema, &body).is_empty();
            let answer = ask(&served, line, &[JSON], body.to_string()).await;
            // What the queue there holds is another matter.
            let taken = answer.status != 422;
            assert_eq!(taken, fits, "{line} {text:?}: {}", answer.json());
            if fits { fit += 1 } else { unfit += 1 }
        }
    }
    assert!(10 < fit && 20 < unfit, "{fit} {unfit}");
}
