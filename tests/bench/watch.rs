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
    time::Duration,
};

use axum::body::{Body as Answer, Bytes};
use fedq::{
    domain::capacity::{NodeTable, ResourceFilter},
    k8s::list_watch::{Codec, Follow, Link, Malformed, Sink, Skipped, protobuf},
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
const LISTED: usize = 1_000_000;

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
    let (protobuf, json) = (node_protobuf(1, 1).len(), node_json(1, 1).len());
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
    // Made beforehand where CPU is measured, on the way where memory is.
    let prepared = 0 < events;
    let server = Server { nodes, events, prepared };
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
        if version <= LISTED as u64 {
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
    let keys = BTreeSet::from(["pool".to_owned()]);
    let mut sink = Counted {
        table: NodeTable::new(keys, ResourceFilter::default()),
        events_left: server.events,
        marks: Vec::new(),
        rss: 0.0,
        done: done.clone(),
    };
    let nodes = server.nodes;
    Follow::new(server.client(), "/api/v1/nodes", Codec::Protobuf).run(&mut sink, done).await;
    assert_eq!(sink.table.len(), nodes);
    let marks = &sink.marks;
    Costs { list: marks[1] - marks[0], events: marks[3] - marks[2], rss: sink.rss }
}

async fn reflected(server: Server) -> Costs {
    let (store, writer) = reflector::store::<Node>();
    let (nodes, events) = (server.nodes, server.events);
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
#[derive(Clone, Copy)]
struct Server {
    nodes: usize,
    events: usize,
    prepared: bool,
}

impl Server {
    fn client(self) -> Client {
        type Pieces = Vec<Bytes>;
        let (mut prepared_list, mut prepared_watch): (Option<Pieces>, Option<Pieces>) = (None, None);
        if self.prepared {
            prepared_list = Some(frames(self.list_protobuf()).collect());
            prepared_watch = Some(frames(self.watch_protobuf()).collect());
        }
        let mut pages: std::collections::BTreeMap<usize, Pieces> = std::collections::BTreeMap::new();
        let mut watch_json: Option<Pieces> = None;
        if self.prepared {
            pages.extend((0..self.nodes).step_by(500).map(|from| (from, frames(self.page(from)).collect())));
            watch_json = Some(frames(self.watch_json()).collect());
        }
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let accept = request.headers().get("accept").map(|accept| accept.to_str().unwrap().to_owned());
            let protobuf = accept.is_some_and(|accept| accept.contains("protobuf"));
            let from = query.split('&').find_map(|pair| pair.strip_prefix("continue="));
            let from: usize = from.map_or(0, |from| from.parse().unwrap());
            let body = match (query.contains("watch="), protobuf) {
                (true, true) => endless(prepared_watch.take(), || self.watch_protobuf()),
                (true, false) => endless(watch_json.take(), || self.watch_json()),
                (false, true) => finite(prepared_list.take(), || self.list_protobuf()),
                (false, false) => finite(pages.remove(&from), || self.page(from)),
            };
            async move { Ok::<_, std::convert::Infallible>(Response::new(body)) }
        });
        Client::new(service, "default")
    }

    fn list_protobuf(self) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
        let metadata = Message::default().text(2, &LISTED.to_string());
        let head = Message::default().bytes(1, &metadata.0).0;
        let item = |i: usize| Message::default().bytes(2, &node_protobuf(i, 1)).0;
        let length = head.len() + self.nodes * item(0).len();
        let mut start = b"k8s\0".to_vec();
        start.push(0x12);
        start.extend(Message::default().varint(length).0);
        start.extend(head);
        std::iter::once(start).chain((0..self.nodes).map(item))
    }

    fn watch_protobuf(self) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
        (0..self.events).map(move |i| {
            let node = node_protobuf(i % self.nodes, LISTED + 1 + i);
            let unknown = [b"k8s\0", &Message::default().bytes(2, &node).0[..]].concat();
            let object = Message::default().bytes(1, &unknown);
            let event = Message::default().text(1, "MODIFIED").bytes(2, &object.0).0;
            [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
        })
    }

    fn page(self, from: usize) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
        let to = self.nodes.min(from + 500);
        let next = if to < self.nodes { to.to_string() } else { String::new() };
        let head = format!(
            r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{{"resourceVersion":"{LISTED}","continue":"{next}"}},"items":["#
        );
        let item = move |i: usize| {
            let comma = if i == from { "" } else { "," };
            format!("{comma}{}", node_json(i, 1)).into_bytes()
        };
        std::iter::once(head.into_bytes()).chain((from..to).map(item)).chain([b"]}".to_vec()])
    }

    fn watch_json(self) -> impl Iterator<Item = Vec<u8>> + Send + 'static {
        (0..self.events).map(move |i| {
            let node = node_json(i % self.nodes, LISTED + 1 + i);
            format!("{{\"type\":\"MODIFIED\",\"object\":{node}}}\n").into_bytes()
        })
    }
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

/// A protobuf writer.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, mut value: usize) -> Self {
        while 127 < value {
            self.0.push(u8::try_from(value & 127).unwrap() | 128);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).unwrap());
        self
    }

    fn bytes(self, number: usize, bytes: &[u8]) -> Self {
        let mut message = self.varint(number << 3 | 2).varint(bytes.len());
        message.0.extend_from_slice(bytes);
        message
    }

    fn text(self, number: usize, text: &str) -> Self {
        self.bytes(number, text.as_bytes())
    }

    fn pair(self, number: usize, key: &str, value: &str) -> Self {
        self.bytes(number, &Self::default().text(1, key).text(2, value).0)
    }
}

/// The parts of a node of a large GPU cluster that make it large.
const LABELS: usize = 25;
const IMAGES: usize = 50;
const CONDITIONS: [&str; 12] = [
    "MemoryPressure",
    "DiskPressure",
    "PIDPressure",
    "KernelDeadlock",
    "ReadonlyFilesystem",
    "CorruptDockerOverlay2",
    "FrequentUnregisterNetDevice",
    "FrequentKubeletRestart",
    "FrequentDockerRestart",
    "FrequentContainerdRestart",
    "NetworkUnavailable",
    "Ready",
];
const RESOURCES: [(&str, &str); 6] = [
    ("cpu", "127500m"),
    ("memory", "1056763908Ki"),
    ("nvidia.com/gpu", "8"),
    ("ephemeral-storage", "3519648Mi"),
    ("pods", "110"),
    ("hugepages-2Mi", "0"),
];

fn labels() -> impl Iterator<Item = (String, String)> {
    let pool = ("pool".to_owned(), "gpu-a".to_owned());
    std::iter::once(pool)
        .chain((0..LABELS).map(|i| (format!("feature.node.kubernetes.io/cpu-flag-{i}"), "true".to_owned())))
}

fn image(i: usize) -> [String; 2] {
    let name = format!("registry.example.com/team/images/trainer-{i:03}");
    [format!("{name}@sha256:{:064x}", i * 7919), format!("{name}:v1.{i}.0")]
}

fn managed_fields() -> String {
    json!({ "f:status": { "f:conditions": CONDITIONS.map(|kind| format!("k:{{\"type\":\"{kind}\"}}")) } })
        .to_string()
}

fn node_protobuf(i: usize, version: usize) -> Vec<u8> {
    let mut metadata = Message::default()
        .text(1, &format!("node-{i:06}"))
        .text(5, "5f2b7c1e-0000-4000-8000-000000000000")
        .text(6, &format!("{version:07}"));
    for (key, value) in labels() {
        metadata = metadata.pair(11, &key, &value);
    }
    let fields = Message::default().text(1, "kubelet").text(2, "Update").text(7, &managed_fields());
    let metadata =
        metadata.pair(12, "csi.volume.kubernetes.io/nodeid", &"x".repeat(200)).bytes(17, &fields.0);
    let spec = Message::default().text(1, "10.0.0.0/24").text(3, "cloud:///node");
    let mut status = Message::default();
    for number in [1, 2] {
        for (name, quantity) in RESOURCES {
            let entry = Message::default().text(1, name).bytes(2, &Message::default().text(1, quantity).0);
            status = status.bytes(number, &entry.0);
        }
    }
    for kind in CONDITIONS {
        let ready = if kind == "Ready" { "True" } else { "False" };
        let condition = Message::default().text(1, kind).text(2, ready);
        let condition = condition.text(5, &format!("Node{kind}")).text(6, &format!("about {kind}, as usual"));
        status = status.bytes(4, &condition.0);
    }
    for image in (0..IMAGES).map(image) {
        let image = image.iter().fold(Message::default(), |message, name| message.text(1, name));
        status = status.bytes(8, &image.0);
    }
    Message::default().bytes(1, &metadata.0).bytes(2, &spec.0).bytes(3, &status.0).0
}

fn node_json(i: usize, version: usize) -> String {
    let resources: Value = RESOURCES.iter().map(|(name, text)| ((*name).to_owned(), json!(text))).collect();
    let labels: Value = labels().map(|(key, value)| (key, json!(value))).collect();
    let conditions = CONDITIONS.map(|kind| {
        json!({ "type": kind, "status": if kind == "Ready" { "True" } else { "False" },
            "lastHeartbeatTime": "2026-11-21T10:00:00Z", "lastTransitionTime": "2026-11-20T10:00:00Z",
            "reason": format!("Node{kind}"), "message": format!("about {kind}, as usual") })
    });
    let images: Vec<_> =
        (0..IMAGES).map(|i| json!({ "names": image(i), "sizeBytes": 12_345_678_901_u64 })).collect();
    json!({
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {
            "name": format!("node-{i:06}"),
            "uid": "5f2b7c1e-0000-4000-8000-000000000000",
            "resourceVersion": format!("{version:07}"),
            "creationTimestamp": "2026-11-20T10:00:00Z",
            "labels": labels,
            "annotations": { "csi.volume.kubernetes.io/nodeid": "x".repeat(200) },
            "managedFields": [{ "manager": "kubelet", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": { "f:status": { "f:conditions": managed_fields() } } }],
        },
        "spec": { "podCIDR": "10.0.0.0/24", "providerID": "cloud:///node" },
        "status": { "capacity": resources, "allocatable": resources, "conditions": conditions, "images": images },
    })
    .to_string()
}
