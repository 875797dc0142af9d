//! A server that answers from a script, and a loop that follows it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::{Body as Answer, Bytes},
    extract::Request,
    response::Response,
};
use futures::{StreamExt, stream};
use serde_json::json;

use super::super::*;
use crate::{
    list_watch::{Malformed, Skipped, protobuf as pb},
    testing::Server,
};

pub(super) const WITHIN: Duration = Duration::from_secs(10);

/// What the sink was told, a word or two each; `Alive` is left out unless it is all there is to see.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("no panic")
    }

    pub(super) fn push(&self, line: impl Into<String>) {
        self.lines().push(line.into());
    }

    pub(super) async fn until(&self, line: &str) {
        let found = async {
            while !self.lines().iter().any(|found| found.starts_with(line)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let lines = || self.lines().clone();
        assert!(timeout(WITHIN, found).await.is_ok(), "no `{line}` in {:#?}", lines());
    }

    pub(super) fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|found| found.starts_with(line)).count()
    }
}

pub(super) struct Recorder {
    pub log: Log,
    pub codec: Codec,
}

impl Recorder {
    pub(super) fn name(&self, object: &[u8]) -> Result<String, Malformed> {
        match self.codec {
            Codec::Protobuf => pb::Node::parse(object).map(|node| node.name.to_owned()),
            Codec::Json => json::name(object).ok_or_else(|| Malformed("no name".to_owned())),
        }
    }
}

impl Sink for Recorder {
    fn begin(&mut self) {
        self.log.push("begin");
    }
    fn set(&mut self, object: &[u8]) -> Result<(), Malformed> {
        self.log.push(format!("set {}", self.name(object)?));
        Ok(())
    }
    fn gone(&mut self, object: &[u8]) -> Result<(), Malformed> {
        self.log.push(format!("gone {}", self.name(object)?));
        Ok(())
    }
    fn end(&mut self) {
        self.log.push("end");
    }
    fn at(&mut self, version: u64) {
        self.log.push(format!("at {version}"));
    }
    fn skipped(&mut self, skipped: Skipped) {
        self.log.push(format!("skipped {}", skipped.name.unwrap_or_default()));
    }
    fn link(&mut self, link: Link<'_>) {
        match link {
            Link::Synced => self.log.push("synced"),
            Link::Alive => {}
            Link::Absent => self.log.push("absent"),
            Link::Broken { error, .. } => self.log.push(format!("broken {:?} {error}", error.class)),
        }
    }
}

/// Answers of a server, one for each request: the first whose words are all in the query is used up.
#[derive(Clone, Default)]
pub(super) struct Script(Arc<Mutex<ScriptState>>);

#[derive(Default)]
pub(super) struct ScriptState {
    answers: VecDeque<(&'static str, Response<Answer>)>,
    requests: Vec<String>,
}

impl Script {
    pub(super) fn answer(self, query: &'static str, answer: Response<Answer>) -> Self {
        self.0.lock().expect("no panic").answers.push_back((query, answer));
        self
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.0.lock().expect("no panic").requests.clone()
    }

    pub(super) async fn until(&self, query: &str) {
        let asked = async {
            while !self.requests().iter().any(|asked| asked.contains(query)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(WITHIN, asked).await.is_ok(), "no `{query}` in {:#?}", self.requests());
    }

    pub(super) fn respond(&self, request: &Request) -> Response<Answer> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let answer = {
            let mut state = self.0.lock().expect("no panic");
            state.requests.push(query.clone());
            let fits = |words: &str| words.split(' ').all(|word| query.contains(word));
            let place = state.answers.iter().position(|(words, _)| fits(words));
            place.and_then(|place| state.answers.remove(place))
        };
        match answer {
            Some((_, answer)) => answer,
            // Nothing planned: a quiet server.
            None if query.contains("watch=1") => stream_of(vec![]),
            None => list("1000000", &[]),
        }
    }

    pub(super) fn serve(&self) -> Server {
        let script = self.clone();
        Server::start(Router::new().fallback(async move |request: Request| script.respond(&request)))
    }
}

pub(super) fn answer(status: u16, body: impl Into<Answer>) -> Response<Answer> {
    Response::builder().status(status).body(body.into()).expect("an answer")
}

pub(super) fn object(name: &str, version: u64) -> serde_json::Value {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}})
}

pub(super) fn list(version: &str, names: &[&str]) -> Response<Answer> {
    page(version, names, "")
}

pub(super) fn page(version: &str, names: &[&str], next: &str) -> Response<Answer> {
    let items: Vec<_> = names.iter().map(|name| object(name, 1)).collect();
    let metadata = json!({"resourceVersion": version, "continue": next});
    answer(200, json!({"metadata": metadata, "items": items}).to_string())
}

/// The bytes, then silence without end.
pub(super) fn stream_of(pieces: Vec<Vec<u8>>) -> Response<Answer> {
    let pieces = stream::iter(pieces).map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    answer(200, Answer::from_stream(pieces.chain(stream::pending())))
}

pub(super) fn event(kind: &str, object: &serde_json::Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

pub(super) fn events(events: &[(&str, &str, u64)]) -> Response<Answer> {
    let text: String =
        events.iter().map(|(kind, name, version)| event(kind, &object(name, *version))).collect();
    stream_of(vec![text.into_bytes()])
}

pub(super) fn expired() -> String {
    event("ERROR", &json!({"status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}))
}

pub(super) fn quick() -> Timing {
    let millis = Duration::from_millis;
    Timing {
        request: Duration::from_secs(2),
        absent: millis(50),
        backoff_min: millis(10),
        backoff_max: millis(50),
        ..Timing::default()
    }
}

pub(super) struct Running {
    pub log: Log,
    pub script: Script,
    pub stop: CancellationToken,
    task: tokio::task::JoinHandle<Stopped>,
    _server: Server,
}

impl Running {
    pub(super) async fn stopped(self) -> Stopped {
        timeout(WITHIN, self.task).await.expect("in time").expect("no panic")
    }

    pub(super) async fn stop(self) -> (Log, Vec<String>) {
        let (log, script) = (self.log.clone(), self.script.clone());
        self.stop.cancel();
        assert_eq!(self.stopped().await, Stopped::Cancelled);
        (log, script.requests())
    }
}

pub(super) fn follow(script: Script, codec: Codec, change: impl FnOnce(&mut Follow)) -> Running {
    let server = script.serve();
    let mut follow = Follow::new(server.client().kube(), "/apis/x/v1/things", codec);
    follow.timing = quick();
    change(&mut follow);
    let (log, stop) = (Log::default(), CancellationToken::new());
    let mut sink = Recorder { log: log.clone(), codec };
    let token = stop.clone();
    let task = tokio::spawn(async move { follow.run(&mut sink, token).await });
    Running { log, script, stop, task, _server: server }
}
