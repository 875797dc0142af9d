//! One request for a container's log, and what a refusal of it means.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use kube::{Client, client::Body};
use tokio::time::timeout;

use crate::client::{ApiError, RetryClass, Streamed, escape};

/// What is asked for; times always come with the lines.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Query {
    pub follow: bool,
    pub previous: bool,
    pub tail: Option<u64>,
    /// A whole second.
    pub since: Option<Timestamp>,
    pub since_seconds: Option<u64>,
}

/// Why there is no log.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// The container has not started; the server's word for what it waits for.
    Waiting(String),
    /// There is no such pod.
    Gone,
    /// There was no run before.
    NoPrevious,
    Failed(ApiError),
}

impl Query {
    pub(super) fn url(&self, namespace: &str, pod: &str, container: &str) -> String {
        let (namespace, pod, container) = (escape(namespace), escape(pod), escape(container));
        let mut url =
            format!("/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&timestamps=true");
        for (name, wanted) in [("follow", self.follow), ("previous", self.previous)] {
            if wanted {
                url = format!("{url}&{name}=true");
            }
        }
        if let Some(lines) = self.tail {
            url = format!("{url}&tailLines={lines}");
        }
        match (self.since, self.since_seconds) {
            (Some(since), _) => format!("{url}&sinceTime={}", escape(&format!("{since:.0}"))),
            (None, Some(seconds)) => format!("{url}&sinceSeconds={}", seconds.max(1)),
            (None, None) => url,
        }
    }
}

/// Until the headers of the log. A kubelet sends them with the first line, so this may take as long as a log
/// is quiet; the caller has the deadline.
pub(super) async fn open(client: &Client, url: &str) -> Result<Response<Body>, Refusal> {
    /// As long as the body of an error may take, and be.
    const ERROR_WITHIN: Duration = Duration::from_secs(10);
    const ERROR_BYTES: usize = 64 << 10;
    let request = Request::get(url).extension(Streamed).body(Body::empty());
    let request = request.map_err(|_| failed(RetryClass::Invalid, "the name of the pod makes no path"))?;
    let answer = client.send(request).await.map_err(|error| Refusal::Failed(error.into()))?;
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(answer);
    }
    if status == StatusCode::NO_CONTENT {
        return Err(Refusal::Waiting("no node was found for it yet".to_owned()));
    }
    let body = timeout(ERROR_WITHIN, Limited::new(answer.into_body(), ERROR_BYTES).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Err(refusal(ApiError::from_answer(status.as_u16(), &body)))
}

fn failed(class: RetryClass, message: &str) -> Refusal {
    Refusal::Failed(ApiError::new(class, message))
}

/// The words are the API server's and the kubelet's: there is no code for any of this.
fn refusal(error: ApiError) -> Refusal {
    let message = error.message.as_str();
    if error.class == RetryClass::NotFound && message.starts_with("pods \"") {
        return Refusal::Gone;
    }
    if message.starts_with("previous terminated container ") && message.ends_with(" not found") {
        return Refusal::NoPrevious;
    }
    if let Some((_, why)) = message.split_once(" is waiting to start") {
        let why = why.trim_start_matches([':', ' ', '-']);
        return Refusal::Waiting(if why.is_empty() { "it starts".to_owned() } else { why.to_owned() });
    }
    // The kubelet has not heard of the pod, or of its container, yet.
    let unheard = message.contains("\" in pod \"") && message.ends_with("\" is not available")
        || message.ends_with("cannot be found - no logs available");
    if unheard {
        return Refusal::Waiting("its node has not begun with it".to_owned());
    }
    Refusal::Failed(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_asks_for_times_and_whole_seconds() {
        let query = Query { follow: true, tail: Some(10), since_seconds: Some(0), ..Query::default() };
        assert_eq!(
            query.url("team", "a.b-0", "main"),
            "/api/v1/namespaces/team/pods/a.b-0/log?container=main&timestamps=true&follow=true&tailLines=10&sinceSeconds=1"
        );
        let since = Some("2026-11-21T07:00:04Z".parse().expect("a time"));
        let query = Query { previous: true, since, since_seconds: Some(7), ..Query::default() };
        assert!(
            query.url("t", "p", "../x?").ends_with(
                "container=..%2Fx%3F&timestamps=true&previous=true&sinceTime=2026-11-21T07%3A00%3A04Z"
            ),
            "{}",
            query.url("t", "p", "../x?")
        );
    }

    #[test]
    fn what_servers_say_is_understood() {
        let of = |code: u16, reason: &str, message: &str| {
            let body =
                serde_json::json!({"kind": "Status", "code": code, "reason": reason, "message": message});
            refusal(ApiError::from_answer(code, body.to_string().as_bytes()))
        };
        for (message, expected) in [
            (r#"container "c" in pod "p" is waiting to start: ContainerCreating"#, "ContainerCreating"),
            (
                r#"container "c" in pod "p" is waiting to start: image can't be pulled"#,
                "image can't be pulled",
            ),
            (r#"container "c" in pod "p" is waiting to start - no logs yet"#, "no logs yet"),
            (r#"container "c" in pod "p" is not available"#, "its node has not begun with it"),
            (r#"pod "p" cannot be found - no logs available"#, "its node has not begun with it"),
        ] {
            let of = of(400, "BadRequest", message);
            assert!(matches!(&of, Refusal::Waiting(why) if why == expected), "{of:?}");
        }
        assert!(matches!(of(404, "NotFound", r#"pods "p" not found"#), Refusal::Gone));
        let none = r#"previous terminated container "c" in pod "p" not found"#;
        assert!(matches!(of(400, "BadRequest", none), Refusal::NoPrevious));
        for (code, reason, message, class) in [
            (
                403,
                "Forbidden",
                r#"pods "p" is forbidden: User "u" cannot get resource "pods/log""#,
                RetryClass::Forbidden,
            ),
            (404, "NotFound", "the server could not find the requested resource", RetryClass::NotFound),
            (400, "BadRequest", "container none is not valid for pod p", RetryClass::Invalid),
            (
                500,
                "InternalError",
                "dial tcp 10.0.0.1:10250: connect: connection refused",
                RetryClass::Unreachable,
            ),
        ] {
            assert!(
                matches!(of(code, reason, message), Refusal::Failed(error) if error.class == class && error.message == message),
                "{message}"
            );
        }
    }
}
