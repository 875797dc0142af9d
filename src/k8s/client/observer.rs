//! Tells whoever counts them how requests ended and which watches broke, in words that are few.

use std::{fmt, sync::Arc};

use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use kube::client::Body;
use tower::BoxError;

use super::{ApiError, RetryClass};

/// What is told of one cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told<'a> {
    Request { verb: &'static str, outcome: &'static str },
    WatchRestart { kind: &'a str, reason: &'static str },
}

/// Called on the way of every request, so it must not wait.
#[derive(Clone, Default)]
pub struct Observer(Option<Arc<OnTold>>);

type OnTold = dyn Fn(Told<'_>) + Send + Sync;

impl fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Observer")
    }
}

impl Observer {
    pub fn new(on: impl Fn(Told<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(on)))
    }

    pub fn tell(&self, told: Told<'_>) {
        if let Some(on) = &self.0 {
            on(told);
        }
    }

    /// A request that begins now. What is dropped without an answer ran out of its caller's time.
    pub(super) fn request(&self, request: &Request<Body>) -> UnderWay {
        UnderWay { observer: self.clone(), verb: verb(request), outcome: "Timeout" }
    }
}

/// A request until its end is told.
pub(super) struct UnderWay {
    observer: Observer,
    verb: &'static str,
    outcome: &'static str,
}

impl UnderWay {
    pub fn ended<B>(mut self, answer: &Result<Response<B>, BoxError>) {
        self.outcome = match answer {
            Ok(answer) => of_status(answer.status()),
            Err(error) if error.is::<tower::timeout::error::Elapsed>() => "Timeout",
            Err(_) => "Unreachable",
        };
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.observer.tell(Told::Request { verb: self.verb, outcome: self.outcome });
    }
}

fn of_status(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "Denied",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "Throttled",
        408 | 504 => "Timeout",
        500.. => "ServerError",
        300.. => "Invalid",
        _ => "Ok",
    }
}

fn verb(request: &Request<Body>) -> &'static str {
    match *request.method() {
        Method::POST => "Create",
        Method::PUT => "Update",
        Method::DELETE => "Delete",
        Method::PATCH => {
            let form = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |form| form.as_bytes());
            if form.starts_with(b"application/apply-patch") { "Apply" } else { "Patch" }
        }
        _ if is_watch(request) => "Watch",
        _ if is_collection(request.uri().path()) => "List",
        _ => "Get",
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch=1" | "watch=true"))
}

/// Whether the path ends with a kind: behind its group and version, and its namespace if there is one.
fn is_collection(path: &str) -> bool {
    let mut path = path.split('/').skip_while(|part| !matches!(*part, "api" | "apis"));
    let group = if path.next() == Some("apis") { 2 } else { 1 };
    let path: Vec<&str> = path.skip(group).collect();
    matches!(path[..], [_] | ["namespaces", _, _])
}

/// Why a watch that failed is begun anew.
pub fn restart_reason(error: &ApiError) -> &'static str {
    match error.class {
        RetryClass::Gone => "Expired",
        RetryClass::Unreachable | RetryClass::Timeout => "Disconnected",
        RetryClass::Invalid => "Garbled",
        RetryClass::Conflict
        | RetryClass::AlreadyExists
        | RetryClass::NotFound
        | RetryClass::Forbidden
        | RetryClass::DeniedByWebhook(_)
        | RetryClass::WebhookDown
        | RetryClass::Unauthorized
        | RetryClass::Throttled { .. } => "Refused",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn request(method: Method, url: &str) -> Request<Body> {
        Request::builder().method(method).uri(url).body(Body::empty()).expect("a request")
    }

    #[test]
    fn requests_have_the_verbs_of_kubernetes() {
        let queues = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
        for (method, url, expected) in [
            (Method::GET, format!("{queues}?limit=500"), "List"),
            (Method::GET, format!("{queues}?watch=1&resourceVersion=3"), "Watch"),
            (Method::GET, format!("/proxy/c-1{queues}/team"), "Get"),
            (Method::GET, "/api/v1/nodes".to_owned(), "List"),
            (Method::GET, "/api/v1/namespaces".to_owned(), "List"),
            (Method::GET, "/api/v1/namespaces/kube-system".to_owned(), "Get"),
            (Method::GET, "/api/v1/namespaces/fedq-system/secrets".to_owned(), "List"),
            (Method::GET, "/api/v1/namespaces/team/pods/p/log?follow=true".to_owned(), "Get"),
            (Method::GET, "/version".to_owned(), "Get"),
            (Method::POST, "/api/v1/namespaces".to_owned(), "Create"),
            (Method::PATCH, format!("{queues}/team"), "Patch"),
            (Method::DELETE, format!("{queues}/team"), "Delete"),
        ] {
            assert_eq!(verb(&request(method, &url)), expected, "{url}");
        }
        let mut apply = request(Method::PATCH, queues);
        let form = http::HeaderValue::from_static("application/apply-patch+yaml");
        apply.headers_mut().insert(CONTENT_TYPE, form);
        assert_eq!(verb(&apply), "Apply");
    }

    #[test]
    fn each_request_is_told_of_once_however_it_ends() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        let observer = Observer::new(move |told| {
            let Told::Request { outcome, .. } = told else { panic!("{told:?}") };
            kept.lock().expect("no panic").push(outcome);
        });
        let begin = || observer.request(&request(Method::GET, "/version"));
        for status in [200, 302, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504] {
            let status = StatusCode::from_u16(status).expect("a status");
            begin().ended(&Ok(Response::builder().status(status).body(()).expect("an answer")));
        }
        begin().ended::<()>(&Err("connection refused".into()));
        begin().ended::<()>(&Err(Box::new(tower::timeout::error::Elapsed::new())));
        drop(begin());
        let expected = [
            "Ok",
            "Invalid",
            "Denied",
            "Denied",
            "NotFound",
            "Conflict",
            "Expired",
            "Invalid",
            "Throttled",
            "ServerError",
            "ServerError",
            "Timeout",
            "Unreachable",
            "Timeout",
            "Timeout",
        ];
        assert_eq!(*told.lock().expect("no panic"), expected);
    }
}
