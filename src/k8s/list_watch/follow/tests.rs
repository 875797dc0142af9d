use std::{
    collections::VecDeque,
    io::Write,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::{Body as Answer, Bytes},
    extract::Request,
    response::Response,
};
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::k8s::{
    client::ClientLimits,
    list_watch::{
        Malformed, Skipped, State, Table,
        protobuf::{self as pb, tests as encode},
    },
    testing::{Server, client_of, kubeconfig_of},
};

const WITHIN: Duration = Duration::from_secs(10);

/// What the sink was told, a word or two each; `Alive` is left out unless it is all there is to see.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("no panic")
    }

    fn push(&self, line: impl Into<String>) {
        self.lines().push(line.into());
    }

    async fn until(&self, line: &str) {
        let found = async {
            while !self.lines().iter().any(|found| found.starts_with(line)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let lines = || self.lines().clone();
        assert!(timeout(WITHIN, found).await.is_ok(), "no `{line}` in {:#?}", lines());
    }

    fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|found| found.starts_with(line)).count()
    }
}

struct Recorder {
    log: Log,
    codec: Codec,
}

impl Recorder {
    fn name(&self, object: &[u8]) -> Result<String, Malformed> {
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
struct Script(Arc<Mutex<ScriptState>>);

#[derive(Default)]
struct ScriptState {
    answers: VecDeque<(&'static str, Response<Answer>)>,
    requests: Vec<String>,
}

impl Script {
    fn answer(self, query: &'static str, answer: Response<Answer>) -> Self {
        self.0.lock().expect("no panic").answers.push_back((query, answer));
        self
    }

    fn requests(&self) -> Vec<String> {
        self.0.lock().expect("no panic").requests.clone()
    }

    async fn until(&self, query: &str) {
        let asked = async {
            while !self.requests().iter().any(|asked| asked.contains(query)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(WITHIN, asked).await.is_ok(), "no `{query}` in {:#?}", self.requests());
    }

    fn respond(&self, request: &Request) -> Response<Answer> {
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

    fn serve(&self) -> Server {
        let script = self.clone();
        Server::start(Router::new().fallback(async move |request: Request| script.respond(&request)))
    }
}

fn answer(status: u16, body: impl Into<Answer>) -> Response<Answer> {
    Response::builder().status(status).body(body.into()).expect("an answer")
}

fn object(name: &str, version: u64) -> serde_json::Value {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}})
}

fn list(version: &str, names: &[&str]) -> Response<Answer> {
    page(version, names, "")
}

fn page(version: &str, names: &[&str], next: &str) -> Response<Answer> {
    let items: Vec<_> = names.iter().map(|name| object(name, 1)).collect();
    let metadata = json!({"resourceVersion": version, "continue": next});
    answer(200, json!({"metadata": metadata, "items": items}).to_string())
}

/// The bytes, then silence without end.
fn stream_of(pieces: Vec<Vec<u8>>) -> Response<Answer> {
    let pieces = stream::iter(pieces).map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
    answer(200, Answer::from_stream(pieces.chain(stream::pending())))
}

fn event(kind: &str, object: &serde_json::Value) -> String {
    format!("{}\n", json!({"type": kind, "object": object}))
}

fn events(events: &[(&str, &str, u64)]) -> Response<Answer> {
    let text: String =
        events.iter().map(|(kind, name, version)| event(kind, &object(name, *version))).collect();
    stream_of(vec![text.into_bytes()])
}

fn expired() -> String {
    event("ERROR", &json!({"status": "Failure", "reason": "Expired", "code": 410, "message": "too old"}))
}

fn quick() -> Timing {
    let millis = Duration::from_millis;
    Timing {
        request: Duration::from_secs(2),
        absent: millis(50),
        backoff_min: millis(10),
        backoff_max: millis(50),
        ..Timing::default()
    }
}

struct Running {
    log: Log,
    script: Script,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Stopped>,
    _server: Server,
}

impl Running {
    async fn stopped(self) -> Stopped {
        timeout(WITHIN, self.task).await.expect("in time").expect("no panic")
    }

    async fn stop(self) -> (Log, Vec<String>) {
        let (log, script) = (self.log.clone(), self.script.clone());
        self.stop.cancel();
        assert_eq!(self.stopped().await, Stopped::Cancelled);
        (log, script.requests())
    }
}

fn follow(script: Script, codec: Codec, change: impl FnOnce(&mut Follow)) -> Running {
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

#[tokio::test]
async fn a_kind_is_listed_then_watched() {
    let script = Script::default().answer("limit=500", list("5", &["a", "b"])).answer(
        "watch=1 resourceVersion=5",
        events(&[("MODIFIED", "b", 6), ("DELETED", "a", 7), ("BOOKMARK", "", 9)]),
    );
    let running = follow(script, Codec::Json, |follow| {
        follow.selector.labels = Some("fedq.dev/hub=a, x!=y".to_owned());
    });
    running.log.until("at 9").await;
    let (log, requests) = running.stop().await;
    let told =
        ["begin", "set a", "set b", "end", "at 5", "synced", "set b", "at 6", "gone a", "at 7", "at 9"];
    assert_eq!(*log.lines(), told);
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(requests[0].ends_with("&labelSelector=fedq.dev%2Fhub%3Da%2C%20x%21%3Dy"), "{requests:?}");
    assert!(requests[1].contains("allowWatchBookmarks=true"), "{requests:?}");
}

#[tokio::test]
async fn nodes_travel_as_gzipped_protobuf() {
    let nodes: Vec<_> = ["a", "b"].iter().map(|name| encode::node_bytes(name, 3, 9000)).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&encode::list_bytes(5, &nodes)).expect("packed");
    let packed: Vec<_> = encoder
        .finish()
        .expect("packed")
        .chunks(100)
        .map(|piece| Ok::<_, std::io::Error>(piece.to_vec()))
        .collect();
    let mut listed = answer(200, Answer::from_stream(stream::iter(packed)));
    listed.headers_mut().insert("content-encoding", "gzip".parse().expect("a header"));
    let watched = [
        encode::event_bytes("MODIFIED", &encode::node_bytes("b", 8, 5000)),
        encode::event_bytes("DELETED", &encode::node_bytes("a", 9, 5000)),
    ]
    .concat();
    let pieces = watched.chunks(777).map(<[u8]>::to_vec).collect();
    let script = Script::default().answer("watch=1", stream_of(pieces)).answer("", listed);
    let running = follow(script, Codec::Protobuf, |_| {});
    running.log.until("at 9").await;
    let (log, _) = running.stop().await;
    assert_eq!(
        *log.lines(),
        ["begin", "set a", "set b", "end", "at 5", "synced", "set b", "at 8", "gone a", "at 9"]
    );
}

#[tokio::test]
async fn a_stored_version_is_resumed_without_a_list() {
    let script = Script::default()
        .answer("limit=1", list("50", &["a"]))
        .answer("watch=1 resourceVersion=40", events(&[("ADDED", "c", 45)]));
    let running = follow(script, Codec::Json, |follow| follow.start = Some(40));
    running.log.until("synced").await;
    let (log, requests) = running.stop().await;
    assert_eq!(*log.lines(), ["set c", "at 45", "synced"]);
    assert_eq!(requests.len(), 2, "{requests:?}");
}

#[tokio::test]
async fn a_server_older_than_the_store_is_not_followed() {
    let script = Script::default().answer("limit=1", list("30", &["a"]));
    let running = follow(script, Codec::Json, |follow| follow.start = Some(40));
    let log = running.log.clone();
    assert_eq!(running.stopped().await, Stopped::VersionsWentBack { stored: 40, found: 30 });
    assert!(log.lines().is_empty(), "{:?}", log.lines());
}

#[tokio::test]
async fn a_backup_restored_while_following_is_noticed_before_a_row_is_touched() {
    let script = Script::default()
        .answer("limit=500", list("50", &["a"]))
        .answer("watch=1", answer(200, event("ADDED", &object("b", 60))))
        .answer("limit=1", list("20", &[]));
    let running = follow(script, Codec::Json, |_| {});
    let log = running.log.clone();
    assert_eq!(running.stopped().await, Stopped::VersionsWentBack { stored: 60, found: 20 });
    assert_eq!(log.count("begin"), 1);
}

#[tokio::test]
async fn an_expired_version_is_listed_again() {
    let gone = json!({"kind": "Status", "reason": "Expired", "code": 410, "message": "too old"});
    for refusal in [answer(200, expired()), answer(410, gone.to_string())] {
        let script = Script::default()
            .answer("limit=1", list("50", &[]))
            .answer("watch=1 resourceVersion=40", refusal)
            .answer("limit=500", list("60", &["a"]));
        let running = follow(script, Codec::Json, |follow| follow.start = Some(40));
        running.script.until("resourceVersion=60").await;
        let (log, _) = running.stop().await;
        assert_eq!(*log.lines(), ["begin", "set a", "end", "at 60", "synced"]);
    }
}

#[tokio::test]
async fn pages_that_expire_on_the_way_are_begun_again() {
    let gone = json!({"kind": "Status", "reason": "Expired", "code": 410, "message": "token too old"});
    let script = Script::default()
        .answer("continue=next%3D", answer(410, gone.to_string()))
        .answer("limit=500", page("5", &["a"], "next="))
        .answer("limit=500", page("7", &["a"], "more"))
        .answer("continue=more", page("7", &["b"], ""));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("synced").await;
    let (log, _) = running.stop().await;
    assert_eq!(*log.lines(), ["begin", "set a", "begin", "set a", "set b", "end", "at 7", "synced"]);
}

#[tokio::test]
async fn what_was_sent_before_has_no_effect() {
    let sent = [
        ("ADDED", "b", 6),
        ("ADDED", "b", 6),
        ("DELETED", "a", 4),
        ("BOOKMARK", "", 5),
        ("MODIFIED", "c", 8),
    ];
    let script = Script::default().answer("limit=500", list("5", &["a"])).answer("watch=1", events(&sent));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("at 8").await;
    let (log, _) = running.stop().await;
    assert_eq!(log.lines()[5..], ["set b", "at 6", "set c", "at 8"]);
}

#[tokio::test]
async fn objects_that_cannot_be_read_are_skipped_and_the_cluster_is_kept() {
    let large = json!({"metadata": {"name": "large", "resourceVersion": "6"}, "x": "x".repeat(5000)});
    let items =
        json!({"metadata": {"resourceVersion": "5"}, "items": [object("a", 1), {"metadata": {}}, large]});
    let watched = [event("ADDED", &large), event("ADDED", &object("b", 7))].concat();
    let script = Script::default()
        .answer("limit=500", answer(200, items.to_string()))
        .answer("watch=1", stream_of(vec![watched.into_bytes()]));
    let running = follow(script, Codec::Json, |follow| follow.caps.object = 1000);
    running.log.until("at 7").await;
    let (log, _) = running.stop().await;
    assert_eq!(
        *log.lines(),
        [
            "begin",
            "set a",
            "skipped ",
            "skipped large",
            "end",
            "at 5",
            "synced",
            "skipped large",
            "set b",
            "at 7"
        ]
    );
}

#[tokio::test]
async fn a_kind_that_is_not_installed_is_looked_for() {
    let script = Script::default()
        .answer("limit=500", answer(404, "404 page not found"))
        .answer("limit=500", answer(404, "404 page not found"))
        .answer("limit=500", list("9", &["a"]));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("synced").await;
    let (log, _) = running.stop().await;
    let told = ["begin", "absent", "begin", "absent", "begin", "set a", "end", "at 9", "synced"];
    assert_eq!(*log.lines(), told);
}

#[tokio::test]
async fn failures_are_told_and_tried_again_from_where_it_was() {
    let mut busy = answer(429, "Too many requests");
    busy.headers_mut().insert("retry-after", "0".parse().expect("a header"));
    let pieces = [Ok(Bytes::from(event("ADDED", &object("b", 6)))), Err(std::io::Error::other("cut"))];
    // A moment between the two, or the error overtakes the data.
    let broken = stream::iter(pieces).then(async |piece| {
        tokio::time::sleep(Duration::from_millis(50)).await;
        piece
    });
    let script = Script::default()
        .answer("limit=500", answer(503, "no leader"))
        .answer("limit=500", busy)
        .answer("limit=500", answer(403, r#"{"kind":"Status","message":"things is forbidden"}"#))
        .answer("limit=500", list("5", &["a"]))
        .answer("watch=1 resourceVersion=5", answer(200, Answer::from_stream(broken)))
        .answer("limit=1", list("9", &[]))
        .answer("watch=1 resourceVersion=6", events(&[("ADDED", "c", 7)]));
    let running = follow(script, Codec::Json, |_| {});
    running.log.until("at 7").await;
    tokio::time::sleep(2 * SETTLED).await;
    let (log, _) = running.stop().await;
    let lines = log.lines().clone();
    let broken: Vec<_> = lines.iter().filter(|line| line.starts_with("broken")).collect();
    assert_eq!(broken.len(), 4, "{lines:#?}");
    assert!(broken[0].starts_with("broken Unreachable no leader"), "{lines:#?}");
    assert!(broken[1].starts_with("broken Throttled"), "{lines:#?}");
    assert!(broken[2].starts_with("broken Forbidden things is forbidden"), "{lines:#?}");
    assert!(broken[3].starts_with("broken Unreachable the answer broke off"), "{lines:#?}");
    let tail = lines.iter().rev().take(3).rev().collect::<Vec<_>>();
    assert_eq!(tail, ["set c", "at 7", "synced"]);
    assert_eq!(log.count("end"), 1);
}

#[tokio::test]
async fn a_list_that_trickles_or_is_cut_short_never_ends() {
    let whole = encode::list_bytes(5, &[encode::node_bytes("a", 1, 100)]);
    let cut = whole[..whole.len() - 50].to_vec();
    let script = Script::default()
        .answer("watch=1", stream_of(vec![]))
        .answer("", answer(200, cut))
        .answer("", stream_of(vec![whole[..20].to_vec()]))
        .answer("", answer(200, whole));
    let running = follow(script, Codec::Protobuf, |follow| follow.timing.list = Duration::from_millis(300));
    running.log.until("synced").await;
    let (log, _) = running.stop().await;
    let lines = log.lines().clone();
    assert_eq!(log.count("end"), 1, "{lines:#?}");
    assert!(lines[1].starts_with("broken Unreachable the answer was cut short"), "{lines:#?}");
    assert!(lines[3].starts_with("broken Timeout"), "{lines:#?}");
}

#[tokio::test]
async fn a_list_larger_than_allowed_is_refused() {
    let nodes: Vec<_> = (0..50).map(|i| encode::node_bytes(&format!("n-{i}"), 1, 1000)).collect();
    let script = Script::default().answer("", answer(200, encode::list_bytes(5, &nodes)));
    let running = follow(script, Codec::Protobuf, |follow| follow.caps.list = 20_000);
    running.log.until("broken Invalid the answer is larger than allowed").await;
    running.stop().await;
}

#[tokio::test]
async fn a_silent_watch_is_renewed() {
    let script = Script::default()
        .answer("limit=500", list("5", &["a"]))
        .answer("watch=1", stream_of(vec![]))
        .answer("limit=1", list("9", &[]))
        .answer("watch=1 resourceVersion=5", events(&[("ADDED", "b", 6)]));
    let running = follow(script, Codec::Json, |follow| follow.timing.silent = Duration::from_millis(100));
    running.log.until("at 6").await;
    let (log, _) = running.stop().await;
    assert_eq!(log.count("broken"), 0, "{:?}", log.lines());
    assert_eq!(log.count("begin"), 1);
}

#[tokio::test]
async fn a_lost_delete_is_found_by_the_consistency_list() {
    let script = Script::default()
        .answer("limit=500", list("5", &["a", "b"]))
        .answer("limit=1&", list("9", &[]))
        .answer("limit=500", list("9", &["b"]));
    let running =
        follow(script, Codec::Json, |follow| follow.timing.consistency = Duration::from_millis(200));
    running.log.until("at 9").await;
    let (log, _) = running.stop().await;
    assert_eq!(log.lines()[6..10], ["begin", "set b", "end", "at 9"]);
    assert_eq!(log.count("broken"), 0);
}

#[tokio::test]
async fn a_frozen_connection_is_noticed_by_its_pings() {
    let script = Script::default().answer("limit=500", list("5", &["a"]));
    let server = script.serve();
    // Between client and server: forwards until told to freeze, then keeps both sides open in silence.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let kubeconfig =
        kubeconfig_of(&format!("https://{}", listener.local_addr().expect("an address")), &server.ca_pem);
    let freeze = CancellationToken::new();
    let frozen = freeze.clone();
    let to = server.address;
    let forwarder = tokio::spawn(async move {
        let (mut from, _) = listener.accept().await.expect("a connection");
        let mut onward = tokio::net::TcpStream::connect(to).await.expect("connected");
        let (mut up, mut down) = ([0; 4096], [0; 4096]);
        loop {
            tokio::select! {
                () = frozen.cancelled() => return std::future::pending().await,
                read = from.read(&mut up) => onward.write_all(&up[..read.expect("read")]).await.expect("written"),
                read = onward.read(&mut down) => from.write_all(&down[..read.expect("read")]).await.expect("written"),
            }
        }
    });
    let pings = ClientLimits {
        ping_every: Duration::from_millis(200),
        ping_timeout: Duration::from_millis(200),
        dial: Duration::from_millis(500),
        ..ClientLimits::default()
    };
    let mut follow = Follow::new(client_of(&kubeconfig, &pings).kube(), "/apis/x/v1/things", Codec::Json);
    follow.timing = quick();
    let (log, stop) = (Log::default(), CancellationToken::new());
    let mut sink = Recorder { log: log.clone(), codec: Codec::Json };
    let token = stop.clone();
    let task = tokio::spawn(async move { follow.run(&mut sink, token).await });
    log.until("synced").await;
    let started = std::time::Instant::now();
    freeze.cancel();
    log.until("broken").await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    stop.cancel();
    task.await.expect("no panic");
    let forwarding: tokio::task::JoinHandle<()> = forwarder;
    forwarding.abort();
}

#[tokio::test]
async fn a_table_holds_what_is_followed() {
    use k8s_openapi::api::core::v1::ConfigMap;
    let script = Script::default()
        .answer("limit=500", list("5", &["a", "b"]))
        .answer("watch=1", events(&[("MODIFIED", "b", 6), ("DELETED", "a", 7)]));
    let server = script.serve();
    let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
    follow.timing = quick();
    let table: Table<ConfigMap> = Table::new();
    assert_eq!(table.state(), State::Waiting);
    let (mut sink, mut changed, stop) = (table.sink(), table.changed(), CancellationToken::new());
    let token = stop.clone();
    let task = tokio::spawn(async move { follow.run(&mut sink, token).await });
    let settled = async {
        while !(table.synced() && table.all().len() == 1) {
            changed.changed().await.expect("a table");
        }
    };
    timeout(WITHIN, settled).await.expect("in time");
    let row = table.get(None, "b").expect("a row");
    assert_eq!(row.metadata.resource_version.as_deref(), Some("6"));
    stop.cancel();
    task.await.expect("no panic");
}

#[tokio::test]
async fn what_broke_does_not_wait_while_the_server_answers_others() {
    let busy = || Response::builder().status(429).header("retry-after", "50").body(Answer::empty());
    for (refusal, waits) in [(answer(500, "{}"), false), (busy().expect("an answer"), true)] {
        let script = Script::default().answer("limit=500", refusal).answer("limit=500", list("5", &["a"]));
        let answers = Arc::<Notify>::default();
        let running = follow(script, Codec::Json, |follow| {
            follow.timing.backoff_min = Duration::from_mins(10);
            follow.timing.backoff_max = Duration::from_mins(10);
            follow.answers = Arc::clone(&answers);
        });
        running.log.until("broken").await;
        // It begins to wait right after it said so.
        for _ in 0..20 {
            answers.notify_waiters();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if !waits {
            running.log.until("synced").await;
        }
        let (log, _) = running.stop().await;
        assert_eq!(log.count("synced"), usize::from(!waits), "{:?}", log.lines());
    }
}

#[tokio::test]
async fn a_table_goes_on_from_what_was_known_of_it() {
    use k8s_openapi::api::core::v1::ConfigMap;
    let first = Script::default()
        .answer("limit=500", list("5", &["a", "b"]))
        .answer("watch=1", events(&[("MODIFIED", "b", 6)]));
    let second = Script::default()
        .answer("limit=1", list("9", &[]))
        .answer("watch=1", events(&[("DELETED", "a", 7), ("ADDED", "c", 8)]));
    let mut known = None;
    for (script, until, names) in
        [(first, "resourceVersion=5", ["a", "b"]), (second, "resourceVersion=6", ["b", "c"])]
    {
        let server = script.serve();
        let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
        follow.timing = quick();
        let table: Table<ConfigMap> = Table::new();
        if let Some(text) = known.take() {
            let text: String = text;
            table.restore(serde_json::from_str(&text).expect("as it was written"));
            assert!(!table.synced(), "what was known is not what is");
        }
        let stop = CancellationToken::new();
        let (kept, token) = (table.clone(), stop.clone());
        let task = tokio::spawn(async move { follow.run_into(&kept, token).await });
        script.until(until).await;
        let settled = async {
            let mut changed = table.changed();
            let names_now =
                || table.all().iter().filter_map(|one| one.metadata.name.clone()).collect::<Vec<_>>();
            while !table.synced() || names_now() != names || table.version() < Some(6) {
                changed.changed().await.expect("a table");
            }
        };
        timeout(WITHIN, settled).await.expect("in time");
        known = Some(serde_json::to_string(&table.known()).expect("JSON"));
        stop.cancel();
        task.await.expect("no panic");
        let lists = script.requests().iter().filter(|query| query.contains("limit=500")).count();
        assert_eq!(lists, usize::from(until == "resourceVersion=5"));
    }
}

#[tokio::test]
async fn a_table_outlives_a_restored_backup() {
    use k8s_openapi::api::core::v1::ConfigMap;
    let script = Script::default()
        .answer("limit=500", list("50", &["a", "b"]))
        .answer("watch=1", answer(200, ""))
        .answer("limit=1", list("20", &[]))
        .answer("limit=500", list("20", &["b"]));
    let server = script.serve();
    let mut follow = Follow::new(server.client().kube(), "/api/v1/configmaps", Codec::Json);
    follow.timing = quick();
    let table: Table<ConfigMap> = Table::new();
    let stop = CancellationToken::new();
    let (kept, token) = (table.clone(), stop.clone());
    let task = tokio::spawn(async move { follow.run_into(&kept, token).await });
    script.until("resourceVersion=20").await;
    assert_eq!(table.all().len(), 1);
    stop.cancel();
    task.await.expect("no panic");
}
