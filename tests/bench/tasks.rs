//! What tasks cost a real `fedqd` on simulated clusters: requests, CPU and memory of a dispatch, and how fast logs come.
//!
//! `cargo bench --bench tasks -- --help`

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a benchmark")]
#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
#![allow(dead_code, reason = "the tests use more of the bed")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use axum::body::Body;
use clap::{Parser, ValueEnum};
use fedq_domain::task::names::TaskId;
use fedq_sim::cluster::Cluster;
use futures::{StreamExt, future::join_all, stream};
use http::Request;
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};

#[path = "../sim/bed.rs"]
mod bed;
#[path = "../support/checked.rs"]
mod checked;
#[path = "../support/document.rs"]
mod document;
mod history;
#[path = "tasks/lists.rs"]
mod lists;
#[path = "fleet/process.rs"]
mod process;

use bed::{Bed, gpu_node};
use process::Process;

const TOKEN: &str = "0123456789abcdef-bench";
/// People who follow logs: one has 200 streams at most.
const READERS: usize = 20;
const WITHIN: Duration = Duration::from_mins(5);
const GPUS: u32 = 100_000;
/// Requests of people under way at a time.
const CLIENTS: usize = 32;

#[derive(Parser)]
struct Args {
    /// All of them, unless some are named
    measures: Vec<Measure>,
    #[arg(long, value_delimiter = ',', default_values_t = [3, 20, 200])]
    clusters: Vec<usize>,
    /// Dispatched at each size
    #[arg(long, default_value_t = 500)]
    tasks: usize,
    /// That follow one log at a time
    #[arg(long, default_value_t = 1000)]
    streams: usize,
    /// Given by cargo
    #[arg(long, hide = true)]
    bench: bool,
    #[arg(long, hide = true)]
    test: bool,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Measure {
    Dispatch,
    Lists,
    Logs,
}

struct Stage {
    bed: Bed,
    process: Process,
    url: String,
    http: Client<HttpConnector, Body>,
}

impl Stage {
    /// Clusters that would each take any task.
    async fn set(clusters: usize) -> Self {
        Self::start(Self::bed(clusters).await).await
    }

    /// All but `fedqd`.
    async fn bed(clusters: usize) -> Bed {
        let names: Vec<String> = (0..clusters).map(|number| format!("c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bed = Bed::without_daemon(&names).await;
        let tokens = bed.path("tokens");
        let readers =
            (0..READERS).map(|number| format!("{TOKEN}-{number},reader-{number},,\"system:masters\"\n"));
        let readers: String = readers.collect();
        fs::write(&tokens, format!("{TOKEN},ann,u-1,\"system:masters\"\n{readers}")).unwrap();
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600)).unwrap();
        bed.configure("tasks: {tenants: [{namespace: team, users: ['*'], queue: queue}]}\n");
        let config = fs::read_to_string(bed.path("fedqd.yaml")).unwrap();
        let api = format!("api: {{address: 127.0.0.1:0, tokenFile: {}}}", tokens.display());
        fs::write(bed.path("fedqd.yaml"), config.replace("api: {address: 127.0.0.1:0}", &api)).unwrap();
        for worker in &bed.workers {
            worker.put(gpu_node("large", GPUS)).await.unwrap();
        }
        bed
    }

    async fn start(mut bed: Bed) -> Self {
        bed.start_daemon();
        let process = Process(bed.pid().unwrap());
        join_all(bed.workers.iter().map(|worker| bed.join_unseen(worker))).await;
        for worker in &bed.workers {
            bed.has_claim(worker).await;
            bed.assign(worker, &GPUS.to_string()).await;
        }
        let url = format!("http://{}/api/v1", address(&bed).await);
        let http = Client::builder(TokioExecutor::new()).build_http();
        let stage = Self { bed, process, url, http };
        let clusters = stage.bed.workers.len();
        let ready = async || {
            let told = stage.call("POST", "/tasks?dryRun=All", Some(task(1))).await;
            let fits = |cluster: &&Value| cluster["verdict"] == "fits";
            told["clusters"].as_array().is_some_and(|all| all.iter().filter(fits).count() == clusters)
        };
        until("every cluster takes tasks", ready).await;
        stage
    }

    fn request(&self, method: &str, path: &str, body: Option<Value>) -> Request<Body> {
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("authorization", format!("Bearer {TOKEN}"));
        let body = body.map_or(Body::empty(), |body| Body::from(body.to_string()));
        request.header("content-type", "application/json").body(body).unwrap()
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let response = self.http.request(self.request(method, path, body)).await.unwrap();
        serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap_or_default()
    }

    async fn submit(&self, count: usize, seconds: u32) -> Vec<String> {
        let one = async |_| {
            let mut task = task(seconds);
            // As the command line does: an answer that was lost is asked for again.
            task["id"] = TaskId::draw(fastrand::u64(..)).to_string().into();
            loop {
                let told = self.call("POST", "/tasks", Some(task.clone())).await;
                if let Some(id) = told["id"].as_str() {
                    return id.to_owned();
                }
                assert_eq!(told["status"], 504, "{told}");
            }
        };
        stream::iter(0..count).map(one).buffer_unordered(CLIENTS).collect().await
    }

    fn pods(&self) -> usize {
        self.bed.workers.iter().map(|worker| worker.list("Pod").len()).sum()
    }

    /// What was asked of the clusters and of the hub so far.
    fn requests(&self) -> BTreeMap<(&'static str, String), u64> {
        let mut all = BTreeMap::new();
        for cluster in self.bed.workers.iter().chain([&self.bed.hub]) {
            for (key, count) in cluster.state.counts.requests() {
                *all.entry(key).or_default() += count;
            }
        }
        all
    }
}

/// Where fedqd listens, once it does.
async fn address(bed: &Bed) -> String {
    let log = bed.path("fedqd.log");
    let told = || fs::read_to_string(&log).unwrap_or_default();
    let marker = "The API listens on ";
    until("fedqd listens", async || told().contains(marker)).await;
    let text = told();
    text.split(marker).nth(1).unwrap().split('"').next().unwrap().to_owned()
}

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < WITHIN, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn task(seconds: u32) -> Value {
    let annotations = json!({"sim.fedq.dev/seconds": seconds.to_string(), "sim.fedq.dev/log": ""});
    let config = json!({"kubernetes": {"custom_metadata": {"annotations": annotations}}});
    json!({"file": json!({"run": "x", "resources": {"accelerators": 1}, "config": config}).to_string()})
}

/// Each task is on a cluster and runs; none ends meanwhile.
async fn dispatch(clusters: usize, tasks: usize) {
    let stage = Stage::set(clusters).await;
    // What is paid once: connections, tables, room for answers. Memory is of what comes on top.
    stage.submit(tasks, 3600).await;
    until("the first ones run", async || stage.pods() == tasks).await;
    tokio::time::sleep(Duration::from_secs(3)).await;

    let (requests, cpu, memory) =
        (stage.requests(), stage.process.cpu_seconds().unwrap(), stage.process.rss().unwrap());
    let began = Instant::now();
    stage.submit(tasks, 3600).await;
    let submitted = began.elapsed();
    until("all run", async || stage.pods() == 2 * tasks).await;
    let took = began.elapsed();
    tokio::time::sleep(Duration::from_secs(2)).await;

    let all = tasks as f64;
    let cpu = (stage.process.cpu_seconds().unwrap() - cpu) * 1000.0 / all;
    let memory = (stage.process.rss().unwrap() - memory) / all;
    let mut told = Vec::new();
    let mut sum = 0.0;
    for ((verb, what), count) in stage.requests() {
        let more = (count - requests.get(&(verb, what.clone())).copied().unwrap_or_default()) as f64 / all;
        // Watches and probes go on in any case, and are no matter of a task.
        if matches!(verb, "create" | "update" | "patch" | "delete") {
            sum += more;
            told.push(format!("{verb} {what} {more:.2}"));
        }
    }
    println!(
        "{clusters:>4} clusters: {sum:.2} writes a task, {:.0} tasks a second ({:.0} submitted), {cpu:.2} ms of fedqd's CPU \
         and {:.1} kB resident a task    {}",
        all / took.as_secs_f64(),
        all / submitted.as_secs_f64(),
        memory / 1000.0,
        told.join(", "),
    );
}

async fn logs(streams: usize) {
    const LINES: usize = 200;
    let stage = Stage::set(1).await;
    let id = stage.submit(1, 3600).await.remove(0);
    let worker = &stage.bed.workers[0];
    until("it runs", async || {
        worker.list("Pod").first().is_some_and(|pod| pod["status"]["phase"] == "Running")
    })
    .await;
    let pod = worker.list("Pod")[0]["metadata"]["name"].as_str().unwrap().to_owned();

    let mut follower = follow(&stage, &id, 0).await;
    let mut took = Vec::new();
    for number in 0..LINES {
        let began = write(worker, &pod, number);
        hear(&mut follower, number).await;
        took.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tell("a line to who follows alone", took);

    let (cpu, memory) = (stage.process.cpu_seconds().unwrap(), stage.process.rss().unwrap());
    let mut followers = Vec::new();
    for number in 0..streams {
        followers.push(follow(&stage, &id, number % READERS).await);
    }
    // Each begins with all that was written before.
    let open = join_all(followers.iter_mut().map(|one| hear(one, LINES - 1)));
    tokio::time::timeout(WITHIN, open).await.expect("all streams");
    let memory = (stage.process.rss().unwrap() - memory) / streams as f64;
    println!(
        "{streams} streams through the API: {:.1} ms of CPU each to begin, {:.0} kB resident each",
        (stage.process.cpu_seconds().unwrap() - cpu) * 1000.0 / streams as f64,
        memory / 1000.0,
    );
    let began = write(worker, &pod, LINES);
    let heard = join_all(followers.iter_mut().map(async |one| {
        hear(one, LINES).await;
        began.elapsed()
    }));
    tell(
        &format!("one line to {streams} at once"),
        tokio::time::timeout(WITHIN, heard).await.expect("all of them"),
    );
}

fn write(worker: &Cluster, pod: &str, number: usize) -> Instant {
    let log = ("team".to_owned(), pod.to_owned(), "task".to_owned());
    let began = Instant::now();
    worker.state.logs.write(&log, worker.state.now(), format!("line {number}."));
    began
}

async fn follow(stage: &Stage, id: &str, reader: usize) -> Body {
    let mut request = stage.request("GET", &format!("/tasks/{id}/logs?follow=true"), None);
    let token = format!("Bearer {TOKEN}-{reader}").parse().unwrap();
    request.headers_mut().insert("authorization", token);
    let response = stage.http.request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    Body::new(response.into_body())
}

/// Until that line came.
async fn hear(body: &mut Body, number: usize) {
    let wanted = format!("line {number}.");
    loop {
        let frame = body.frame().await.expect("it goes on").unwrap();
        if frame.data_ref().is_some_and(|data| std::str::from_utf8(data).unwrap().contains(&wanted)) {
            return;
        }
    }
}

fn tell(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    println!(
        "{what:<44} {:>8} × {:>8.2} ms p50 {:>8.2} ms p99 {:>8.2} ms at most",
        took.len(),
        at(50),
        at(99),
        at(100)
    );
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    // Where `cargo bench` asks for tests.
    if args.test {
        return;
    }
    let wanted = |measure| args.measures.is_empty() || args.measures.contains(&measure);
    if wanted(Measure::Dispatch) {
        for clusters in &args.clusters {
            dispatch(*clusters, args.tasks).await;
        }
    }
    if wanted(Measure::Lists) {
        lists::lists().await;
    }
    if wanted(Measure::Logs) {
        logs(args.streams).await;
    }
}
