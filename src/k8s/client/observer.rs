//! Tells whoever counts them how requests ended and which watches broke, in words that are few.

use std::{fmt, sync::Arc, time::Duration};

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use tokio::time::Instant;
use tower::BoxError;

use super::{ApiError, RetryClass};

/// What is told of one cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told<'a> {
    /// `took`: until its answer began.
    Request {
        verb: &'static str,
        code: &'static str,
        took: Duration,
    },
    /// An object of that kind was created, changed or deleted.
    Write {
        kind: &'a str,
    },
    WatchRestart {
        kind: &'a str,
        reason: &'static str,
    },
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
        UnderWay {
            observer: self.clone(),
            verb: verb(request),
            written: written(request),
            code: "timeout",
            began: Instant::now(),
        }
    }
}

/// A request until its end is told.
pub(super) struct UnderWay {
    observer: Observer,
    verb: &'static str,
    /// The kind, of a request that writes.
    written: Option<String>,
    /// Of HTTP; without an answer a word.
    code: &'static str,
    began: Instant,
}

impl UnderWay {
    pub fn ended<B>(mut self, answer: &Result<Response<B>, BoxError>) {
        self.code = match answer {
            Ok(answer) => of_status(answer.status()),
            Err(error) if error.is::<tower::timeout::error::Elapsed>() => "timeout",
            Err(_) => "unreachable",
        };
        let succeeded = answer.as_ref().is_ok_and(|answer| answer.status().is_success());
        if let Some(kind) = self.written.as_ref().filter(|_| succeeded) {
            self.observer.tell(Told::Write { kind });
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.observer.tell(Told::Request { verb: self.verb, code: self.code, took: self.began.elapsed() });
    }
}

/// The codes that Kubernetes answers with. Others, which a server may invent, are told by their first digit only.
fn of_status(status: StatusCode) -> &'static str {
    macro_rules! codes {
        ($($code:literal)*) => {
            match status.as_u16() {
                $($code => stringify!($code),)*
                100..200 => "1xx",
                200..300 => "2xx",
                300..400 => "3xx",
                400..500 => "4xx",
                _ => "5xx",
            }
        };
    }
    codes!(200 201 202 204 301 302 304 307 308 400 401 403 404 405 406 408 409 410 413 415 422 429 500 501 502 503 504)
}

/// As Kubernetes names it in its rules of RBAC and in its audit log.
fn verb(request: &Request<Body>) -> &'static str {
    match *request.method() {
        Method::POST => "create",
        Method::PUT => "update",
        Method::DELETE => "delete",
        Method::PATCH => "patch",
        _ if is_watch(request) => "watch",
        _ if resource(request.uri().path()).len() == 1 => "list",
        _ => "get",
    }
}

/// The kind that a request writes an object of. Reviews and tokens are created like objects and answered only, and a
/// dry run stores nothing.
fn written(request: &Request<Body>) -> Option<String> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let tries = request.uri().query().is_some_and(|query| query.contains("dryRun="));
    if reads || tries {
        return None;
    }
    match resource(request.uri().path())[..] {
        [] | [_, _, "token"] => None,
        [kind, ..] => (!kind.ends_with("reviews")).then(|| kind.to_owned()),
    }
}

/// What a path has behind its group and version, and its namespace if there is one: the kind, which object, and
/// which part of it.
pub(super) fn resource(path: &str) -> Vec<&str> {
    let parts: Vec<&str> = path.split('/').collect();
    // The last one: a server may be behind the proxy of another, and that behind a path.
    let begins = |at: usize| match parts[at] {
        "api" => parts.get(at + 1).is_some_and(|part| is_version(part)).then_some(at + 2),
        "apis" => parts.get(at + 2).is_some_and(|part| is_version(part)).then_some(at + 3),
        _ => None,
    };
    let path = (0..parts.len()).rev().find_map(begins).map_or(&[][..], |begin| &parts[begin..]);
    match path {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest.to_vec(),
        _ => path.to_vec(),
    }
}

/// As `v1` and `v1beta2`.
fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

fn is_watch(request: &Request<Body>) -> bool {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch=1" | "watch=true"))
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
            (Method::GET, format!("{queues}?limit=500"), "list"),
            (Method::GET, format!("{queues}?watch=1&resourceVersion=3"), "watch"),
            (Method::GET, format!("/proxy/c-1{queues}/team"), "get"),
            (Method::GET, "/api/v1/nodes".to_owned(), "list"),
            (Method::GET, "/api/v1/namespaces/n/services/x/proxy/api/v1/nodes".to_owned(), "list"),
            (Method::GET, "/api/v1/namespaces/api/pods/v1".to_owned(), "get"),
            (Method::GET, "/api/v1/namespaces".to_owned(), "list"),
            (Method::GET, "/api/v1/namespaces/kube-system".to_owned(), "get"),
            (Method::GET, "/api/v1/namespaces/fedq-system/secrets".to_owned(), "list"),
            (Method::GET, "/api/v1/namespaces/team/pods/p/log?follow=true".to_owned(), "get"),
            (Method::GET, "/version".to_owned(), "get"),
            (Method::POST, "/api/v1/namespaces".to_owned(), "create"),
            (Method::PATCH, format!("{queues}/team"), "patch"),
            (Method::DELETE, format!("{queues}/team"), "delete"),
        ] {
            assert_eq!(verb(&request(method, &url)), expected, "{url}");
        }
    }

    #[test]
    fn an_object_that_is_written_is_told_of_by_its_kind() {
        let queues = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues";
        let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let accounts = "/api/v1/namespaces/kueue-system/serviceaccounts";
        for (method, url, expected) in [
            (Method::POST, format!("{queues}?fieldManager=fedq"), Some("clusterqueues")),
            (Method::PATCH, format!("{queues}/team/status"), Some("clusterqueues")),
            (Method::DELETE, "/api/v1/namespaces/team/secrets/s".to_owned(), Some("secrets")),
            (Method::POST, "/api/v1/namespaces/team/services".to_owned(), Some("services")),
            (Method::POST, "/api/v1/namespaces".to_owned(), Some("namespaces")),
            (Method::PATCH, "/api/v1/namespaces/team".to_owned(), Some("namespaces")),
            (Method::PUT, format!("{accounts}/fedq"), Some("serviceaccounts")),
            (Method::POST, format!("{accounts}/fedq/token"), None),
            (Method::POST, format!("{queues}?fieldManager=fedq&dryRun=All"), None),
            (Method::POST, reviews.to_owned(), None),
            (Method::GET, format!("{queues}/team"), None),
        ] {
            assert_eq!(written(&request(method, &url)).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn only_what_succeeded_was_written() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        let observer = Observer::new(move |told| {
            if let Told::Write { kind } = told {
                kept.lock().expect("no panic").push(kind.to_owned());
            }
        });
        let begin = |kind: &str| observer.request(&request(Method::POST, &format!("/api/v1/{kind}")));
        for (kind, status) in [("namespaces", 201), ("nodes", 409), ("secrets", 500), ("services", 200)] {
            begin(kind).ended(&Ok(Response::builder().status(status).body(()).expect("an answer")));
        }
        begin("pods").ended::<()>(&Err("connection refused".into()));
        drop(begin("jobs"));
        assert_eq!(*told.lock().expect("no panic"), ["namespaces", "services"]);
    }

    #[test]
    fn each_request_is_told_of_once_however_it_ends() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&told);
        let observer = Observer::new(move |told| {
            let Told::Request { code, .. } = told else { panic!("{told:?}") };
            kept.lock().expect("no panic").push(code);
        });
        let begin = || observer.request(&request(Method::GET, "/version"));
        for status in [200, 302, 403, 404, 409, 410, 422, 429, 500, 504, 199, 299, 399, 499, 599, 999] {
            let status = StatusCode::from_u16(status).expect("a status");
            begin().ended(&Ok(Response::builder().status(status).body(()).expect("an answer")));
        }
        begin().ended::<()>(&Err("connection refused".into()));
        begin().ended::<()>(&Err(Box::new(tower::timeout::error::Elapsed::new())));
        drop(begin());
        let expected = [
            "200",
            "302",
            "403",
            "404",
            "409",
            "410",
            "422",
            "429",
            "500",
            "504",
            "1xx",
            "2xx",
            "3xx",
            "4xx",
            "5xx",
            "5xx",
            "unreachable",
            "timeout",
            "timeout",
        ];
        assert_eq!(*told.lock().expect("no panic"), expected);
    }
}
