use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Json, Router,
    body::Bytes as AxumBytes,
    http::{HeaderMap as Headers, Uri},
    response::IntoResponse,
    routing::any,
};
use serde_json::{Value, json};

use super::*;
use crate::testing::Server;

/// An API server on which `ann` may do all, `denied` nothing, and fedqd not delete. It counts reviews.
#[derive(Clone, Default)]
struct Fake {
    reviews: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<Value>>>,
    seen: Arc<Mutex<Vec<(String, Headers)>>>,
    refuses_reviews: bool,
}

fn status(code: u16, reason: &str, message: &str) -> axum::response::Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message});
    (StatusCode::from_u16(code).expect("a status"), Json(body)).into_response()
}

impl Fake {
    fn serve(&self) -> Server {
        let fake = self.clone();
        Server::start(Router::new().fallback(any(
            move |method: Method, uri: Uri, headers: Headers, body: AxumBytes| {
                let fake = fake.clone();
                async move { fake.answer(&method, &uri, headers, &body) }
            },
        )))
    }

    fn answer(&self, method: &Method, uri: &Uri, headers: Headers, body: &[u8]) -> axum::response::Response {
        if uri.path().ends_with("/subjectaccessreviews") {
            self.reviews.fetch_add(1, Ordering::Relaxed);
            if self.refuses_reviews {
                return status(
                    403,
                    "Forbidden",
                    "User \"fedqd\" cannot create resource \"subjectaccessreviews\"",
                );
            }
            let mut review: Value = serde_json::from_slice(body).expect("a review");
            self.asked.lock().expect("unpoisoned").push(review["spec"].clone());
            review["status"] = json!({"allowed": review["spec"]["user"] != "denied"});
            return Json(review).into_response();
        }
        self.seen.lock().expect("unpoisoned").push((format!("{method} {uri}"), headers));
        match uri.path() {
            path if path.ends_with("/denied-by-webhook") => {
                status(403, "Forbidden", "admission webhook \"q.kb.io\" denied the request: no")
            }
            _ if method == Method::DELETE => status(403, "Forbidden", "User \"fedqd\" cannot delete"),
            path if path.ends_with("/elsewhere") => {
                (StatusCode::FOUND, [("location", "https://example.com/")]).into_response()
            }
            path if path.ends_with("/stranger") => status(401, "Unauthorized", "Unauthorized"),
            _ => (
                [("set-cookie", "secret"), ("warning", "299 - \"old\""), ("audit-id", "1")],
                Json(json!({"kind": "ok"})),
            )
                .into_response(),
        }
    }
}

const QUEUES: &str = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";

async fn forward(proxy: &Proxy, user: &str, line: &str) -> Result<Answer, ProxyError> {
    let caller = Caller { user: user.to_owned(), ..Caller::default() };
    forward_for(proxy, &caller, line).await
}

async fn forward_for(proxy: &Proxy, caller: &Caller, line: &str) -> Result<Answer, ProxyError> {
    let (method, path) = line.split_once(' ').expect("a method and a path");
    let method: Method = method.parse().expect("a method");
    let wanted = Wanted::read(&method, path, None).expect("wanted");
    let held = everywhere().take(&caller.user).await?;
    proxy.forward(caller, Asked { method, wanted, content: Content::default() }, held).await
}

#[tokio::test]
async fn an_answer_comes_back_without_what_is_about_its_way() {
    let fake = Fake::default();
    let server = fake.serve();
    let proxy = Proxy::new(&server.client());
    let answer = forward(&proxy, "ann", &format!("GET {QUEUES}")).await.expect("an answer");
    let names: Vec<&str> = answer.headers().keys().map(header::HeaderName::as_str).collect();
    assert_eq!(names, ["warning", "content-type", "x-content-type-options"]);
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(body, r#"{"kind":"ok"}"#);
    let (line, headers) = fake.seen.lock().expect("unpoisoned")[0].clone();
    assert_eq!(line, format!("GET https://{}{QUEUES}", server.address));
    assert!(headers.keys().all(|name| !name.as_str().starts_with("impersonate")), "{headers:?}");
}

#[tokio::test]
async fn the_cluster_itself_is_asked_once_about_each_right() {
    let fake = Fake::default();
    let server = fake.serve();
    let proxy = Proxy::new(&server.client());
    let get = format!("GET {QUEUES}/a");
    for _ in 0..3 {
        assert!(matches!(forward(&proxy, "denied", &get).await, Err(ProxyError::Denied { .. })));
        forward(&proxy, "ann", &get).await.expect("an answer");
    }
    assert_eq!(fake.reviews.load(Ordering::Relaxed), 2);
    assert_eq!(fake.seen.lock().expect("unpoisoned").len(), 3, "what is denied is not forwarded");
    forward(&proxy, "ann", &format!("GET {QUEUES}/b")).await.expect("an answer");
    assert_eq!(fake.reviews.load(Ordering::Relaxed), 3, "another name is another right");
    let asked = fake.asked.lock().expect("unpoisoned")[1]["resourceAttributes"].clone();
    let wanted = json!({"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": "clusterqueues", "verb": "get", "name": "a"});
    assert_eq!(asked, wanted);
}

#[tokio::test]
async fn what_fedqd_may_not_do_itself_is_told_apart() {
    let fake = Fake { refuses_reviews: true, ..Fake::default() };
    let server = fake.serve();
    let refused = forward(&Proxy::new(&server.client()), "ann", &format!("GET {QUEUES}")).await;
    assert!(matches!(refused, Err(ProxyError::ReviewsNotAllowed(_))));
    assert!(fake.seen.lock().expect("unpoisoned").is_empty());

    let server = Fake::default().serve();
    let proxy = Proxy::new(&server.client());
    let refused = forward(&proxy, "ann", &format!("DELETE {QUEUES}/a")).await;
    assert!(matches!(refused, Err(ProxyError::FedqdNotAllowed(_))));
    let denied =
        forward(&proxy, "ann", &format!("PATCH {QUEUES}/denied-by-webhook")).await.expect("its answer");
    assert_eq!(denied.status(), StatusCode::FORBIDDEN);
    let refused = forward(&proxy, "ann", &format!("GET {QUEUES}/stranger")).await;
    assert!(matches!(refused, Err(ProxyError::Api(error)) if error.class == RetryClass::Unauthorized));
    let refused = forward(&proxy, "ann", &format!("GET {QUEUES}/elsewhere")).await;
    assert!(matches!(refused, Err(ProxyError::Api(error)) if error.class == RetryClass::Invalid));
}

#[tokio::test]
async fn who_changes_something_is_asked_about_anew() {
    let fake = Fake::default();
    let server = fake.serve();
    let proxy = Proxy::new(&server.client());
    for _ in 0..2 {
        forward(&proxy, "ann", &format!("PATCH {QUEUES}/a")).await.expect("an answer");
    }
    assert_eq!(fake.reviews.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn who_administers_the_hub_is_nobody_elsewhere() {
    let fake = Fake::default();
    let server = fake.serve();
    let proxy = Proxy::new(&server.client());
    let groups = ["system:masters", "system:authenticated", "hub:system:serviceaccounts", "research"];
    let caller = Caller {
        user: "ann".to_owned(),
        uid: Some("of-the-hub".to_owned()),
        groups: groups.map(str::to_owned).to_vec(),
        extra: [
            ("authentication.kubernetes.io/pod-name".to_owned(), vec!["p".to_owned()]),
            ("scope".to_owned(), vec![]),
        ]
        .into(),
    };
    forward_for(&proxy, &caller, &format!("GET {QUEUES}")).await.expect("an answer");
    let asked = fake.asked.lock().expect("unpoisoned")[0].clone();
    assert_eq!((&asked["user"], &asked["groups"]), (&json!("ann"), &json!(["research"])));
    assert_eq!((&asked["uid"], &asked["extra"]), (&Value::Null, &json!({"scope": []})));
    // Which kinds there are is for all who are known.
    forward_for(&proxy, &caller, "GET /apis").await.expect("an answer");
    let asked = fake.asked.lock().expect("unpoisoned")[1].clone();
    assert_eq!(asked["groups"], json!(["research", "system:authenticated"]));
    for user in ["system:kube-controller-manager", "system:anonymous", "hub:system:serviceaccount:team:ann"] {
        let refused = forward(&proxy, user, &format!("GET {QUEUES}")).await;
        assert!(matches!(refused, Err(ProxyError::Denied { .. })), "{user}");
    }
}

#[tokio::test]
async fn an_account_of_the_hub_is_not_the_one_of_that_name_elsewhere() {
    let fake = Fake::default();
    let server = fake.serve();
    let proxy = Proxy::new(&server.client());
    let groups = ["system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated"];
    let caller = Caller {
        user: "system:serviceaccount:team:ann".to_owned(),
        groups: groups.map(str::to_owned).to_vec(),
        ..Caller::default()
    };
    forward_for(&proxy, &caller, &format!("GET {QUEUES}")).await.expect("an answer");
    let asked = fake.asked.lock().expect("unpoisoned")[0].clone();
    assert_eq!(asked["user"], "hub:system:serviceaccount:team:ann");
    assert_eq!(asked["groups"], json!(["hub:system:serviceaccounts", "hub:system:serviceaccounts:team"]));
}

const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_mins(10);

async fn are_given_back(dropped: &AtomicUsize, places: usize) {
    let given = async {
        while dropped.load(Ordering::Relaxed) < places {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), given).await.expect("the place is given back");
}

/// Says when it is dropped.
struct Held(Arc<AtomicUsize>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_watch_that_nobody_reads_gives_its_place_back() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let endless = stream::iter(std::iter::repeat_with(|| {
        Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"{}\n")))
    }));
    let body = StreamBody::new(endless);
    let unread = passed(Response::new(body), true, SOON, Held(Arc::clone(&dropped)));
    are_given_back(&dropped, 1).await;
    let rest = unread.into_body().collect().await.expect("a watch may end at any moment");
    assert_eq!(rest.to_bytes(), "{}\n", "no more than one piece was kept");

    let silent = StreamBody::new(stream::pending::<Result<Frame<Bytes>, std::io::Error>>());
    drop(passed(Response::new(silent), true, LONG, Held(Arc::clone(&dropped))));
    // Whoever asked has gone.
    are_given_back(&dropped, 2).await;
}

#[tokio::test]
async fn half_an_answer_is_no_answer() {
    let beginning = stream::iter([Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"{")))]);
    let body = StreamBody::new(beginning.chain(stream::pending()));
    let answer = passed(Response::new(body), false, SOON, ());
    assert!(answer.into_body().collect().await.is_err());
}

#[test]
fn what_a_browser_would_show_goes_on_as_bytes() {
    for (media, goes_on_as) in [
        ("application/json", "application/json"),
        ("application/json;stream=watch", "application/json;stream=watch"),
        ("text/html", "application/octet-stream"),
        ("application/javascript", "application/octet-stream"),
    ] {
        let all = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(media))]);
        assert_eq!(headers(&all)[header::CONTENT_TYPE], goes_on_as);
    }
}

#[tokio::test]
async fn one_person_leaves_places_to_others() {
    let server = Fake::default().serve();
    let proxy = Proxy::new(&server.client());
    let line = format!("GET {QUEUES}");
    let mut held = Vec::new();
    for _ in 0..OF_ONE {
        held.push(forward(&proxy, "ann", &line).await.expect("an answer"));
    }
    assert!(matches!(forward(&proxy, "ann", &line).await, Err(ProxyError::Busy)));
    forward(&proxy, "bob", &line).await.expect("an answer");
    held.pop();
    forward(&proxy, "ann", &line).await.expect("a place that was given back");
}

/// Who packs an answer asks once more behind its end.
#[tokio::test]
async fn behind_the_end_of_an_answer_is_nothing() {
    let mut answer =
        passed(Response::new(http_body_util::Full::new(Bytes::from_static(b"{}"))), false, LONG, ());
    let data = answer.body_mut().frame().await.expect("a piece").expect("it is whole").into_data();
    assert_eq!(data.expect("data"), "{}");
    for _ in 0..2 {
        assert!(answer.body_mut().frame().await.is_none());
    }
}
