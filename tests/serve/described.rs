//! What the document says beside forms: headers, examples, how much a page holds, how streams end; and its page for people.

use axum::{body::Body, http::Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{
    contract::{JSON, ask},
    document::{Asked, DOCUMENT, differences},
    server::served,
};

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
    assert_eq!((bodies, 35 < found.len()), (11, true), "{found:?}");
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
