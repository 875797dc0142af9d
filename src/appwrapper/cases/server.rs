//! An API server of a few answers, in the place of the network.

use std::convert::Infallible;

use axum::http::{Method, Request, Response};
use futures::future::BoxFuture;
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// What is asked of it.
pub(crate) struct Asked {
    pub method: Method,
    pub path: String,
    pub watches: bool,
    pub body: Value,
}

/// A client of a server that gives these answers: a status code and an object, or none for ever.
pub(crate) fn client(
    answer: impl Fn(Asked) -> Option<(u16, Value)> + Clone + Send + Sync + 'static,
) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| -> BoxFuture<'static, _> {
        let answer = answer.clone();
        Box::pin(async move {
            let (code, object) = match answer(read(request).await) {
                Some(answer) => answer,
                None => std::future::pending().await,
            };
            let body = Body::from(object.to_string().into_bytes());
            Ok::<_, Infallible>(Response::builder().status(code).body(body).expect("an answer"))
        })
    });
    Client::new(service, "default")
}

async fn read(request: Request<Body>) -> Asked {
    let (parts, body) = request.into_parts();
    let body = body.collect_bytes().await.expect("a body");
    Asked {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        watches: parts.uri.query().is_some_and(|query| query.contains("watch=true")),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    }
}

/// A list of objects of one kind.
pub(crate) fn list(items: &[Value]) -> (u16, Value) {
    (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
}

pub(crate) fn failure(code: u16, message: &str) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "" };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message});
    (code, status)
}
