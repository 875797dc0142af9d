//! What nodes cost: a list, an event that changes nothing, and a node kept; beside kube's reflector on
//! the same nodes in the same run. `cargo bench --bench watch`; numbers go to target/bench/watch.json.
//!
//! Everything but the network is in it: bodies arrive in frames, are taken apart, read and kept. Each
//! measurement is a process of its own, so that none inherits another's memory.
#![allow(clippy::print_stdout, reason = "a benchmark talks to the terminal")]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot measure fails")]

use std::{
    collections::BTreeSet,
    process::{Command, ExitCode},
    sync::Arc,
    time::Duration,
};

use axum::body::{Body as Answer, Bytes};
use fedq_domain::capacity::{NodeTable, ResourceFilter};
use fedq_k8s::list_watch::{Codec, Follow, Link, Malformed, Sink, Skipped, protobuf};
use fedq_sim::{
    nodes::{Encoding, Event, Herd, List, Template},
    protobuf::ListMeta,
};
use futures::{StreamExt, stream};
use http::{Request, Response};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    client::Body,
    runtime::{WatchStreamExt, reflector, watcher},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

const NODES: usize = 5_000;
const EVENTS: usize = 5_000;
/// As HTTP/2 delivers bodies.
const FRAME: usize = 16 << 10;
/// Events come behind the list.
const LISTED: u64 = 1_000_000;
/// As kube asks for.
const PAGE: usize = 500;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == "--measure") {
        let number = |at: usize| arguments[place + at].parse().unwrap();
        let measured = measure(&arguments[place + 1], number(2), number(3));
        println!("{measured}");
        return ExitCode::SUCCESS;
    }
    let ours = Measured::of("ours", 30_000);
    let kube = Measured::of("kube", 6_000);
    let one = herd(1);
    let (protobuf, json) = (one.body_protobuf(0, LISTED).len(), one.body_json(0, LISTED).len());
    println!("a node: {json} bytes in JSON, {protobuf} in protobuf; {NODES} nodes, {EVENTS} events\n");
    println!("{:<34}{:>12}{:>12}{:>9}", "", "fedq", "kube", "ratio");
    for (what, ours, kube) in [
        ("list, CPU µs a node", ours.list, kube.list),
        ("event without change, CPU µs", ours.event, kube.event),
        ("kept, bytes a node (RSS)", ours.bytes, kube.bytes),
    ] {
        println!("{what:<34}{ours:>12.1}{kube:>12.1}{:>8.1}×", kube / ours);
    }
    let side = |side: &Measured| json!({ "listMicrosPerNode": side.list, "eventMicros": side.event, "bytesPerNode": side.bytes });
    let result = json!({
        "nodeBytes": { "json": json, "protobuf": protobuf },
        "nodes": NODES,
        "events": EVENTS,
        "fedq": side(&ours),
        "kube": side(&kube),
    });
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/target/bench");
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(format!("{folder}/watch.json"), format!("{result:#}\n")).unwrap();
    ExitCode::SUCCESS
}

struct Measured {
    list: f64,
    event: f64,
    bytes: f64,
}

impl Measured {
    /// Memory is a slope between two sizes: what a process needs anyhow drops out.
    fn of(side: &str, many: usize) -> Self {
        let few = many / 3;
        let run = |nodes: usize, events: usize| {
            let exe = std::env::current_exe().unwrap();
            let arguments = ["--measure".to_owned(), side.to_owned(), nodes.to_string(), events.to_string()];
            let output = Command::new(exe).args(arguments).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{side} with {nodes} nodes: {errors}");
            serde_json::from_str::<Value>(&text).unwrap()
        };
        let cost = run(NODES, EVENTS);
        let rss = |nodes: usize| run(nodes, 0)["rss"].as_f64().unwrap();
        let bytes = (rss(many) - rss(few)) / f64::from(u32::try_from(many - few).unwrap());
        Self { list: cost["list"].as_f64().unwrap(), event: cost["event"].as_f64().unwrap(), bytes }
    }
}

fn measure(side: &str, nodes: usize, events: usize) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::new(nodes, events);
    let costs = runtime.block_on(async {
        match side {
            "ours" => ours(server).await,
            _ => reflected(server).await,
        }
    });
    let per = |micros: f64, count: usize| micros / f64::from(u32::try_from(count.max(1)).unwrap());
    json!({ "list": per(costs.list, nodes), "event": per(costs.events, events), "rss": costs.rss })
}

struct Costs {
    list: f64,
    events: f64,
    rss: f64,
}

/// CPU of this thread, which does everything, in µs.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos: u64 = text.split_whitespace().next().unwrap().parse().unwrap();
    Duration::from_nanos(nanos).as_secs_f64() * 1e6
}

/// Resident bytes of this process.
fn rss() -> f64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find(|line| line.starts_with("Rss:")).unwrap();
    let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024.0
}

struct Counted {
    table: NodeTable,
    events_left: usize,
    marks: Vec<f64>,
    rss: f64,
    done: CancellationToken,
}

impl Sink for Counted {
    fn begin(&mut self) {
        self.marks.push(cpu());
        self.table.begin_list();
    }
    fn set(&mut self, object: &[u8]) -> Result<(), Malformed> {
        self.table.set(&protobuf::Node::parse(object)?.facts());
        Ok(())
    }
    fn gone(&mut self, object: &[u8]) -> Result<(), Malformed> {
        self.table.remove(protobuf::name(object)?);
        Ok(())
    }
    fn end(&mut self) {
        self.table.end_list();
        self.marks.push(cpu());
        self.rss = rss();
    }
    fn at(&mut self, version: u64) {
        if version <= LISTED {
            self.marks.push(cpu());
        } else {
            self.events_left -= 1;
        }
        if self.events_left == 0 {
            self.marks.push(cpu());
            self.done.cancel();
        }
    }
    fn skipped(&mut self, skipped: Skipped) {
        unreachable!("every node can be read: {skipped:?}");
    }
    fn link(&mut self, link: Link<'_>) {
        assert!(!matches!(link, Link::Broken { .. }), "{link:?}");
    }
}

async fn ours(server: Server) -> Costs {
    let done = CancellationToken::new();
    let keys = BTreeSet::from(["cloud.google.com/gke-nodepool".to_owned()]);
    let mut sink = Counted {
        table: NodeTable::new(keys, ResourceFilter::default()),
        events_left: server.events,
        marks: Vec::new(),
        rss: 0.0,
        done: done.clone(),
    };
    let nodes = server.herd.len();
    Follow::new(server.client(), "/api/v1/nodes", Codec::Protobuf).run(&mut sink, done).await;
    assert_eq!(sink.table.len(), nodes);
    let marks = &sink.marks;
    Costs { list: marks[1] - marks[0], events: marks[3] - marks[2], rss: sink.rss }
}

async fn reflected(server: Server) -> Costs {
    let (store, writer) = reflector::store::<Node>();
    let (nodes, events) = (server.herd.len(), server.events);
    let api: Api<Node> = Api::all(server.client());
    let stream = watcher(api, watcher::Config::default()).reflect(writer);
    futures::pin_mut!(stream);
    let (mut first, mut listed, mut resident, mut seen) = (None, 0.0, 0.0, 0);
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            watcher::Event::Init => first = Some(cpu()),
            watcher::Event::InitApply(_) | watcher::Event::Delete(_) => {}
            watcher::Event::InitDone => {
                (listed, resident) = (cpu(), rss());
                assert_eq!(store.len(), nodes);
            }
            watcher::Event::Apply(_) => seen += 1,
        }
        if resident != 0.0 && seen == events {
            break;
        }
    }
    Costs { list: listed - first.unwrap(), events: cpu() - listed, rss: resident }
}

/// An API server without a network.
#[derive(Clone)]
struct Server {
    herd: Arc<Herd>,
    events: usize,
    prepared: bool,
}

impl Server {
    fn new(nodes: usize, events: usize) -> Self {
        // Made beforehand where CPU is measured, on the way where memory is.
        Self { herd: Arc::new(herd(nodes)), events, prepared: 0 < events }
    }

    fn client(self) -> Client {
        type Pieces = Vec<Bytes>;
        let (mut prepared_list, mut prepared_watch): (Option<Pieces>, Option<Pieces>) = (None, None);
        let mut pages: std::collections::BTreeMap<usize, Pieces> = std::collections::BTreeMap::new();
        let mut watch_json: Option<Pieces> = None;
        if self.prepared {
            prepared_list = Some(frames(self.list_protobuf()).collect());
            prepared_watch = Some(frames(self.watch(Encoding::Protobuf)).collect());
            let starts = (0..self.herd.len()).step_by(PAGE);
            pages.extend(starts.map(|from| (from, frames(self.page(from)).collect())));
            watch_json = Some(frames(self.watch(Encoding::Json)).collect());
        }
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let accept = request.headers().get("accept").map(|accept| accept.to_str().unwrap().to_owned());
            let protobuf = accept.is_some_and(|accept| accept.contains("protobuf"));
            let from = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
            let from: usize = from.map_or(0, |from| from.parse().unwrap());
            let body = match (query.contains("watch="), protobuf) {
                (true, true) => endless(prepared_watch.take(), || self.watch(Encoding::Protobuf)),
                (true, false) => endless(watch_json.take(), || self.watch(Encoding::Json)),
                (false, true) => finite(prepared_list.take(), || self.list_protobuf()),
                (false, false) => finite(pages.remove(&from), || self.page(from)),
            };
            async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
        });
        Client::new(service, "default")
    }

    fn list_protobuf(&self) -> List {
        let version = LISTED.to_string();
        let meta = ListMeta { resource_version: &version, ..ListMeta::default() };
        self.herd.nodes().list(Encoding::Protobuf, meta)
    }

    fn page(&self, from: usize) -> List {
        let mut nodes = self.herd.nodes();
        if let Some(last) = from.checked_sub(1) {
            nodes.after(&self.herd.name(last));
        }
        let left = nodes.truncate(PAGE);
        let next = (left != 0).then(|| (from + PAGE).to_string());
        let remaining = next.as_ref().and_then(|_| i64::try_from(left).ok());
        let version = LISTED.to_string();
        let meta = ListMeta { resource_version: &version, next: next.as_deref(), remaining };
        nodes.list(Encoding::Json, meta)
    }

    fn watch(&self, encoding: Encoding) -> impl Iterator<Item = Vec<u8>> + Send + use<> {
        let (herd, versions) = (self.herd.clone(), LISTED + 1..);
        (0..self.events)
            .zip(versions)
            .map(move |(i, version)| herd.event(encoding, i % herd.len(), Event::Modified, version))
    }
}

/// Nodes of 16.5 kB in JSON.
fn herd(nodes: usize) -> Herd {
    let now = "2026-11-21T10:00:00Z".parse().unwrap();
    Herd::new(Template::large().into(), 1, nodes, 1, now)
}

fn frames(pieces: impl Iterator<Item = Vec<u8>>) -> impl Iterator<Item = Bytes> {
    pieces.flat_map(|piece| {
        let piece = Bytes::from(piece);
        (0..piece.len()).step_by(FRAME).map(move |at| piece.slice(at..piece.len().min(at + FRAME)))
    })
}

fn finite<I>(prepared: Option<Vec<Bytes>>, make: impl FnOnce() -> I) -> Answer
where
    I: Iterator<Item = Vec<u8>> + Send + 'static,
{
    match prepared {
        Some(pieces) => Answer::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>))),
        None => Answer::from_stream(stream::iter(frames(make()).map(Ok::<_, std::io::Error>))),
    }
}

fn endless<I>(prepared: Option<Vec<Bytes>>, make: impl FnOnce() -> I) -> Answer
where
    I: Iterator<Item = Vec<u8>> + Send + 'static,
{
    let body = finite(prepared, make).into_data_stream();
    Answer::from_stream(body.chain(stream::pending()))
}
