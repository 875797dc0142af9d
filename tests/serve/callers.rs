//! What one caller may take, and for how long: attacks by somebody with a token.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use fedq_api::{Authenticator, Diagnose};
use fedq_domain::check::Finding;
use fedq_store::{AuditFilter, PageRequest};
use fedq_values::ids::ClusterName;
use futures::{FutureExt, future::BoxFuture};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};
use tower::ServiceExt;

use super::server::{ANN, ROOT, Served, VIEWER, served, served_as, served_with, spec};

const TOKEN: &str = "a-token-of-the-hub-for-ann";
/// Looks are 5 s apart, and answers remembered for 10.
const WITHIN: Duration = Duration::from_secs(25);

/// Streams of lists and logs, k8s-cli's among them, with their first piece read.
async fn followed(served: &Served, task: &str) -> Vec<(String, Body)> {
    let mut streams = Vec::new();
    for path in [
        "/api/v1/clusters?watch=1".to_owned(),
        "/api/v1/placements?watch=1".to_owned(),
        "/api/v1/tasks?watch=1".to_owned(),
        format!("/api/v1/tasks/{task}/logs?follow=1"),
        format!("/tasks/{task}/logs"),
    ] {
        let request = Request::get(&path).header("authorization", format!("Bearer {TOKEN}"));
        let request = request.header("x-user", "ann").body(Body::empty()).unwrap();
        // As it comes, since k8s-cli's log ends with its task only.
        let response = served.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        streams.push((path, response.into_body()));
    }
    streams
}

async fn ends(mut body: Body) -> bool {
    timeout(WITHIN, async { while body.frame().await.is_some() {} }).await.is_ok()
}

/// Streams that end after `withdraw`, of those that are open.
async fn ended_after(withdraw: impl FnOnce(&Served)) -> (usize, Vec<String>) {
    let served = served_with(Authenticator::token_review("fedq")).await;
    served.hub.world().tokens.insert(TOKEN.to_owned(), ("ann".to_owned(), "fedq".to_owned()));
    let (status, submitted) = served.call(TOKEN, "POST /tasks", json!({"file": "run: x"})).await;
    assert_eq!(status, 201, "{submitted}");
    let streams = followed(&served, submitted["id"].as_str().unwrap()).await;
    let open = streams.len();
    withdraw(&served);
    let ending = streams.into_iter().map(async |(path, body)| (path, ends(body).await));
    let ended = futures::future::join_all(ending).await;
    (open, ended.into_iter().filter(|(_, ended)| *ended).map(|(path, _)| path).collect())
}

#[tokio::test]
async fn no_stream_outlives_the_token_it_was_opened_with() {
    let (open, ended) = ended_after(|served| served.hub.world().tokens.clear()).await;
    assert_eq!(ended.len(), open, "{ended:?}");
}

#[tokio::test]
async fn no_stream_outlives_the_right_to_read_it() {
    let (open, ended) = ended_after(|served| {
        served.hub.world().strangers.insert("ann".to_owned());
    })
    .await;
    assert_eq!(ended.len(), open, "{ended:?}");
}

#[tokio::test]
async fn streams_go_on_while_nothing_is_withdrawn_or_the_hub_is_away() {
    let (_, ended) = ended_after(|served| served.hub.world().down = true).await;
    assert!(ended.is_empty(), "{ended:?}");
}

async fn follow(served: &Served, token: &str) -> (StatusCode, Body) {
    let request = Request::get("/api/v1/clusters?watch=1").header("authorization", format!("Bearer {token}"));
    let response = served.send(request.body(Body::empty()).unwrap()).await;
    (response.status(), response.into_body())
}

#[tokio::test]
async fn one_person_has_so_many_streams_and_keeps_nobody_else_out() {
    let served = served().await;
    let mut open = Vec::new();
    for _ in 0..200 {
        let (status, body) = follow(&served, ANN).await;
        assert_eq!(status, StatusCode::OK);
        open.push(body);
    }
    assert_eq!(follow(&served, ANN).await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(follow(&served, VIEWER).await.0, StatusCode::OK);
    open.pop();
    assert_eq!(follow(&served, ANN).await.0, StatusCode::OK, "the place of one that ended");
}

/// Never done with a look.
struct Endless(Arc<Semaphore>);

impl Diagnose for Endless {
    fn diagnose<'a>(&'a self, _: Option<&'a ClusterName>) -> BoxFuture<'a, Vec<Finding>> {
        self.0.add_permits(1);
        std::future::pending().boxed()
    }
}

#[tokio::test]
async fn one_person_has_so_many_checks_under_way_and_keeps_nobody_else_out() {
    let begun = Arc::new(Semaphore::new(0));
    let doctor = Arc::new(Endless(Arc::clone(&begun)));
    let served = Arc::new(served_as(|parts| parts.diagnose = doctor).await);
    let check = |token: &'static str| {
        let served = Arc::clone(&served);
        tokio::spawn(async move { served.call(token, "GET /clusters/east/check", Value::Null).await.0 })
    };
    let mut under_way: Vec<_> = (0..4).map(|_| check(ANN)).collect();
    begun.acquire_many(4).await.unwrap().forget();
    assert_eq!(check(ANN).await.unwrap(), 429);
    let manifest = json!({"kind": "Placement", "metadata": {"name": "p"}, "spec": {}});
    let (status, _) = served.call(ANN, "POST /placements/simulate", manifest).await;
    assert_eq!(status, 429, "simulations are bounded with them");
    under_way.push(check(VIEWER));
    timeout(WITHIN, begun.acquire()).await.expect("somebody else's check begins").unwrap().forget();
    under_way.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn whoever_is_refused_without_end_does_not_fill_the_audit_log() {
    let served = served().await;
    let edit = async |token: &str| {
        let put = "PUT /claims/east-resource-claim";
        served.call_with(token, put, spec("6"), Some("*")).await.0
    };
    assert_eq!(edit(ANN).await, 200);
    for _ in 0..100 {
        assert_eq!(edit(VIEWER).await, 403);
    }
    let page = PageRequest::first(1000);
    let entries = served.store.audit(&AuditFilter::default(), &page).await.unwrap().items;
    let refusals = entries.iter().filter(|entry| entry.refused).count();
    assert_eq!(refusals, 30, "of a hundred");
    let done: Vec<_> =
        entries.iter().filter(|entry| !entry.refused).map(|entry| entry.who.as_str()).collect();
    assert_eq!(done, ["ann"]);
}

#[tokio::test]
async fn the_audit_log_names_who_acts_as_somebody_else() {
    let served = served().await;
    let request = Request::post("/tasks/submit").header("authorization", format!("Bearer {ROOT}"));
    let request = request.header("x-user", "ann").header("content-type", "application/json");
    let response = served.send(request.body(Body::from(r#"{"run": "x"}"#)).unwrap()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let (_, audit) = served.call(ANN, "GET /audit", Value::Null).await;
    let entry = &audit["items"][0];
    assert_eq!((&entry["who"], &entry["through"]), (&json!("ann"), &json!("root")), "{audit}");
    served.call(ANN, "POST /tasks", json!({"file": "run: x"})).await;
    let (_, audit) = served.call(ANN, "GET /audit", Value::Null).await;
    assert!(audit["items"][0]["through"].is_null(), "{audit}");
}
