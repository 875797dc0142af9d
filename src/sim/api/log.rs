//! Logs of pods, as a kubelet gives them through its API server.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use futures::{StreamExt, stream};
use http::{Response, StatusCode, header, header::HeaderValue};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::cluster::State;
use super::super::kind::Kind;
use super::super::logs::{Container, Line, Place};
use super::super::status::Refusal;
use super::super::store::Object;
use super::Call;
use super::route::Resource;

/// What a pod is to have written, a line each.
const WRITTEN: &str = "sim.fedq.dev/log";

pub(super) fn is_asked(resource: &Resource) -> bool {
    resource.kind.kind == "Pod" && resource.part.as_deref() == Some("log")
}

pub(super) async fn log(call: &Call<'_>, resource: &Resource) -> Result<Response<Body>, Refusal> {
    let pod = call.state.store.get(resource.kind, &resource.key());
    let pod = pod.ok_or_else(|| Refusal::not_found(resource.kind, &resource.name))?;
    let container = container(call, &pod)?;
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        let mut nothing = Response::new(Body::empty());
        *nothing.status_mut() = StatusCode::NO_CONTENT;
        return Ok(nothing);
    }
    let shape = Shape::of(call)?;
    let key = (resource.namespace.clone(), resource.name.clone(), container);
    if call.query.flag("previous") {
        let Key { pod, container, .. } = key_of(&key);
        let none = || {
            Refusal::bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{pod}\" not found"
            ))
        };
        let lines = call.state.logs.previous(&key).ok_or_else(none)?;
        return Ok(text(Body::from(shape.clone().render(&lines))));
    }
    started(&pod, &key)?;
    let tail = call.query.number("tailLines")?.map(|lines| usize::try_from(lines).unwrap_or(usize::MAX));
    let (lines, place) = call.state.logs.begin(&key, tail, || written(&pod));
    let mut follow = Follow {
        state: Arc::clone(call.state),
        kind: resource.kind,
        key,
        shape,
        place,
        over: !call.query.flag("follow"),
    };
    let begun = Bytes::from(follow.shape.render(&lines));
    if follow.over {
        return Ok(text(Body::from(begun)));
    }
    // A kubelet sends its headers with the first line.
    let first = if begun.is_empty() { follow.next().await } else { Some(begun) };
    let rest = stream::unfold(follow, |mut follow| async move {
        let bytes = follow.next().await?;
        Some((bytes, follow))
    });
    Ok(text(Body::from_stream(stream::iter(first).chain(rest).map(Ok::<_, Infallible>))))
}

fn text(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

struct Key<'a> {
    pod: &'a str,
    container: &'a str,
}

fn key_of((_, pod, container): &Container) -> Key<'_> {
    Key { pod, container }
}

/// The one that is asked for, or the only one.
fn container(call: &Call<'_>, pod: &Value) -> Result<String, Refusal> {
    let name = &pod["metadata"]["name"].as_str().unwrap_or_default();
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let names: Vec<&str> = containers.filter_map(|container| container["name"].as_str()).collect();
    match (call.query.get("container").filter(|wanted| !wanted.is_empty()), names.as_slice()) {
        (Some(wanted), names) if names.contains(&wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => {
            Err(Refusal::bad_request(format!("container {wanted} is not valid for pod {name}")))
        }
        (None, [only]) => Ok((*only).to_owned()),
        (None, names) => Err(Refusal::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            names.join(" ")
        ))),
    }
}

fn started(pod: &Value, key: &Container) -> Result<(), Refusal> {
    let Key { pod: name, container } = key_of(key);
    let statuses = pod["status"]["containerStatuses"].as_array();
    let status = statuses.into_iter().flatten().find(|status| status["name"] == container);
    let Some(status) = status else {
        let why = format!("container \"{container}\" in pod \"{name}\" is not available");
        return Err(Refusal::bad_request(why));
    };
    match &status["state"]["waiting"] {
        Value::Object(waiting) if status["restartCount"].as_u64().unwrap_or_default() == 0 => {
            let why = waiting.get("reason").and_then(Value::as_str).unwrap_or_default();
            Err(Refusal::bad_request(format!(
                "container \"{container}\" in pod \"{name}\" is waiting to start: {why}"
            )))
        }
        _ => Ok(()),
    }
}

fn written(pod: &Value) -> Vec<Line> {
    let text = pod["metadata"]["annotations"][WRITTEN].as_str().map(str::to_owned);
    let of_a_job = pod["metadata"]["ownerReferences"].is_array();
    let greeting = || format!("hello from {}", pod["metadata"]["name"].as_str().unwrap_or_default());
    let text = text.or_else(|| of_a_job.then(greeting)).unwrap_or_default();
    let ts = pod["status"]["startTime"].as_str().and_then(|time| time.parse().ok());
    text.lines().map(|line| Line { ts: ts.unwrap_or(Timestamp::UNIX_EPOCH), text: line.into() }).collect()
}

/// Which lines, and how they look.
#[derive(Clone)]
struct Shape {
    timestamps: bool,
    since: Option<Timestamp>,
    left: Option<usize>,
}

impl Shape {
    fn of(call: &Call<'_>) -> Result<Self, Refusal> {
        let query = &call.query;
        let invalid = |text: &str| Refusal::bad_request(format!("sinceTime: Invalid value: \"{text}\""));
        let since = match (query.get("sinceTime"), query.number("sinceSeconds")?) {
            (Some(text), _) => {
                let time: Timestamp = text.parse().map_err(|_| invalid(text))?;
                // On the way to the kubelet, fractions of a second are lost.
                Some(Timestamp::from_second(time.as_second()).map_err(|_| invalid(text))?)
            }
            (None, Some(seconds)) => {
                let ago = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
                call.state.now().checked_sub(ago).ok()
            }
            (None, None) => None,
        };
        let left = query.number("limitBytes")?.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(Self { timestamps: query.flag("timestamps"), since, left })
    }

    fn render(&mut self, lines: &[Line]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines.iter().filter(|line| self.since.is_none_or(|since| since <= line.ts)) {
            if self.timestamps {
                bytes.extend(format!("{:.9} ", line.ts).bytes());
            }
            bytes.extend_from_slice(&line.text);
            bytes.push(b'\n');
        }
        if let Some(left) = &mut self.left {
            bytes.truncate(*left);
            *left -= bytes.len();
        }
        bytes
    }
}

struct Follow {
    state: Arc<State>,
    kind: &'static Kind,
    key: Container,
    shape: Shape,
    place: Place,
    over: bool,
}

impl Follow {
    /// Until there is more; `None` when the run is over and everything was sent.
    async fn next(&mut self) -> Option<Bytes> {
        let (mut written, mut moved) = (self.state.logs.changed(&self.key), self.state.store.moved());
        while !self.over && self.shape.left != Some(0) {
            written.mark_unchanged();
            moved.mark_unchanged();
            self.over = !self.runs();
            let lines = self.state.logs.since(&self.key, &mut self.place);
            self.over |= lines.is_none();
            let bytes = self.shape.render(&lines.unwrap_or_default());
            if !bytes.is_empty() {
                return Some(Bytes::from(bytes));
            }
            if self.over {
                break;
            }
            tokio::select! {
                changed = written.changed() => changed.ok()?,
                changed = moved.changed() => changed.ok()?,
            }
        }
        None
    }

    fn runs(&self) -> bool {
        let (namespace, pod, _) = &self.key;
        let pod: Option<Object> = self.state.store.get(self.kind, &(namespace.clone(), pod.clone()));
        pod.is_some_and(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")))
    }
}
