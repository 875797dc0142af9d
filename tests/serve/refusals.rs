//! Bad input to every operation that the document has: each is told by a code and a field, and nothing is a 5xx.

use axum::{body::Body, http::Request};
use http_body_util::BodyExt;
use serde_json::Value;

use super::server::{ANN, Served, served};

const DIGEST: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

struct Operation {
    method: String,
    /// With names that can be, below `/api/v1`.
    path: String,
    query: Vec<String>,
    body: Option<Value>,
    /// JSON or not.
    takes_body: bool,
    closed: bool,
}

fn operations() -> Vec<Operation> {
    let document = fedq_api::openapi();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let named = [
            ("{cluster}", "east"),
            ("{claim}", "east-resource-claim"),
            ("{queue}", "team-a"),
            ("{task}", "0a1b2c3d"),
            ("{volume}", "0a1b2c3d"),
            ("{namespace}", "default"),
            ("{name}", "one"),
            ("{digest}", DIGEST),
        ];
        let path = named.iter().fold(path.clone(), |path, (parameter, name)| path.replace(parameter, name));
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|parameter| parameter["in"] == "query");
            operations.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                query: query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect(),
                // An archive is no JSON: `uploads.rs` has what may be wrong with one.
                body: operation
                    .get("requestBody")
                    .filter(|body| body["content"].get("application/json").is_some())
                    .map(|body| schema(&document, body)),
                takes_body: operation.get("requestBody").is_some(),
                closed: operation.get("security").is_none(),
            });
        }
    }
    assert!(30 < operations.len());
    operations
}

fn schema(document: &Value, body: &Value) -> Value {
    let schema = &body["content"]["application/json"]["schema"];
    let named = schema["$ref"].as_str().map(|path| document.pointer(path.trim_start_matches('#')).unwrap());
    named.unwrap_or(schema).clone()
}

impl Operation {
    /// Status, code, and the causes.
    async fn sends(
        &self,
        served: &Served,
        query: &str,
        body: &[u8],
        media: Option<&str>,
    ) -> (u16, String, Vec<Value>) {
        let mut request = Request::builder()
            .method(self.method.as_str())
            .uri(format!("{}{query}", self.path))
            .header("authorization", format!("Bearer {ANN}"))
            .header("if-match", "*");
        if let Some(media) = media {
            request = request.header("content-type", media);
        }
        let response = served.send(request.body(Body::from(body.to_vec())).unwrap()).await;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
        let causes = problem["causes"].as_array().cloned().unwrap_or_default();
        (status, problem["code"].as_str().unwrap_or_default().to_owned(), causes)
    }
}

#[tokio::test]
async fn every_operation_names_the_parameter_that_is_wrong() {
    let served = served().await;
    for operation in operations() {
        let mut wrong = vec![("nonsense".to_owned(), "?nonsense=1".to_owned())];
        for name in &operation.query {
            let other = if name.to_lowercase() == *name { name.to_uppercase() } else { name.to_lowercase() };
            wrong.push((other.clone(), format!("?{other}=1")));
            wrong.push((name.clone(), format!("?{name}=%00")));
            // The words of a command are several.
            if name != "command" {
                wrong.push((name.clone(), format!("?{name}=true&{name}=true")));
            }
        }
        for (field, query) in wrong {
            let (status, code, causes) =
                operation.sends(&served, &query, b"{}", Some("application/json")).await;
            let said = format!("{} {}{query}: {causes:?}", operation.method, operation.path);
            assert_eq!((status, code.as_str()), (400, "bad-request"), "{said}");
            assert!(causes.iter().any(|cause| cause["field"] == field), "{said}");
        }
    }
}

/// What belongs into the query must not be left out because it stands in a body that nobody reads.
#[tokio::test]
async fn a_body_where_none_is_taken_is_refused() {
    let served = served().await;
    let large = "x".repeat(1 << 20);
    let (mut without, json) = (0, Some("application/json"));
    for operation in operations().into_iter().filter(|operation| !operation.takes_body) {
        without += 1;
        for body in [r#"{"dryRun": "All"}"#, "[]", "0", "x", &large] {
            let (status, code, causes) = operation.sends(&served, "", body.as_bytes(), json).await;
            let said = format!("{} {}: {causes:?}", operation.method, operation.path);
            assert_eq!((status, code.as_str()), (400, "bad-request"), "{said}");
            assert_eq!(causes[0]["field"], "body", "{said}");
        }
        for token in [None, Some("Bearer made-up")].into_iter().filter(|_| operation.closed) {
            let mut request = Request::builder().method(operation.method.as_str()).uri(&operation.path);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let response = served.send(request.body(Body::from("[]")).unwrap()).await;
            assert_eq!(response.status(), 401, "{} {} {token:?}", operation.method, operation.path);
        }
    }
    assert!(20 < without, "{without}");
    let written = served.hub.world().requests.iter().filter(|line| !line.contains("reviews")).count();
    assert_eq!(written, 0);
    let cordon = operations().into_iter().find(|operation| operation.path.ends_with("/east/cordon")).unwrap();
    for body in ["", " {} \n", "null"] {
        let (_, code, causes) = cordon.sends(&served, "?dryRun=All", body.as_bytes(), json).await;
        assert!(causes.iter().all(|cause| cause["field"] != "body"), "{body}: {code} {causes:?}");
    }
}

/// Who is not logged in learns that, and nothing of what else is wrong.
#[tokio::test]
async fn without_a_token_nothing_else_is_looked_at() {
    let served = served().await;
    for operation in operations().into_iter().filter(|operation| operation.closed) {
        for token in [None, Some("Bearer made-up"), Some("Basic YTpi")] {
            let uri = format!("{}?nonsense=1", operation.path);
            let mut request = Request::builder().method(operation.method.as_str()).uri(&uri);
            if let Some(token) = token {
                request = request.header("authorization", token);
            }
            let response = served.send(request.body(Body::from("{")).unwrap()).await;
            assert_eq!(response.status(), 401, "{} {uri} {token:?}", operation.method);
        }
    }
}

#[tokio::test]
async fn every_body_that_is_wrong_is_told_by_code_and_field() {
    let served = served().await;
    let mut bodies = 0;
    for operation in operations() {
        let Some(schema) = &operation.body else { continue };
        bodies += 1;
        let field = schema["properties"].as_object().and_then(|fields| fields.keys().next());
        let field = field.map_or("spec", String::as_str);
        let deep = format!("{{\"{field}\": {}", "[".repeat(100_000));
        let large = format!("{{\"{field}\": \"{}\"}}", "x".repeat(10 << 20));
        let twice = format!("{{\"{field}\": \"a\", \"{field}\": \"a\"}}");
        let cases: [(&str, &[u8], u16, &str, bool); 11] = [
            ("nothing", b"", 400, "bad-request", false),
            ("no JSON", b"a: b", 400, "bad-request", false),
            ("two objects", b"{}{}", 400, "bad-request", false),
            ("invalid UTF-8", b"{\"\xff\": 1}", 400, "bad-request", false),
            ("NUL", b"{\"a\0\": 1}", 400, "bad-request", false),
            ("deep nesting", deep.as_bytes(), 400, "bad-request", false),
            ("10 MB", large.as_bytes(), 413, "too-large", false),
            ("a list", b"[1]", 422, "invalid", false),
            ("a key twice", twice.as_bytes(), 422, "invalid", true),
            ("an unknown field", b"{\"nonsense\": 1}", 422, "invalid", true),
            ("a wrong type", &[], 422, "invalid", true),
        ];
        for (what, body, status, code, named) in cases {
            let wrong = format!("{{\"{field}\": [[true]]}}");
            let body = if what == "a wrong type" { wrong.as_bytes() } else { body };
            let (found, found_code, causes) =
                operation.sends(&served, "", body, Some("application/json")).await;
            let said = format!("{} {} with {what}: {causes:?}", operation.method, operation.path);
            assert_eq!((found, found_code.as_str()), (status, code), "{said}");
            let names = |cause: &Value| {
                let field = cause["field"].as_str().unwrap_or_default();
                let message = cause["message"].as_str().unwrap_or_default();
                !field.is_empty() || message.contains('`')
            };
            assert!(!named || causes.iter().any(names), "{said}");
        }
        for required in schema["required"].as_array().into_iter().flatten() {
            let (status, code, causes) = operation.sends(&served, "", b"{}", Some("application/json")).await;
            assert_eq!((status, code.as_str()), (422, "invalid"), "{}: {causes:?}", operation.path);
            assert!(!causes.is_empty(), "{}: {required} is missing, and nothing is named", operation.path);
        }
        for media in [None, Some("text/yaml"), Some("application/x-www-form-urlencoded")] {
            let (status, code, _) = operation.sends(&served, "", b"{}", media).await;
            assert_eq!((status, code.as_str()), (415, "unsupported-media-type"), "{}", operation.path);
        }
    }
    assert!(8 < bodies, "{bodies}");
}
