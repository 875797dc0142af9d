//! Lists of thousands of tasks for many callers who read slowly, or follow them: what they take of fedqd's memory while
//! they do.

use std::time::{Duration, Instant};

use axum::body::Body;
use fedq_store::Store;
use flate2::read::GzDecoder;
use futures::future::join_all;
use http::header;
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

use super::{Stage, history::history};

/// The longest page.
const TASKS: u64 = 10_000;
const CALLERS: usize = 50;
/// Each reads a list for so long, however long it is.
const READING: Duration = Duration::from_secs(4);
/// Of a caller's socket: the kernel would take in a whole list for them otherwise.
const SOCKET: usize = 64 << 10;
const SYNCED: &[u8] = b"{\"type\":\"SYNCED\"}\n";
const GOAL: f64 = 50e6;
/// For memory that is not needed any more to be given back, and for what others do at a start to be over.
const REST: Duration = Duration::from_secs(3);

/// As long as scripts get that people keep within the file, and none to speak of.
const SCRIPTS: [usize; 2] = [0, 100 << 10];

pub async fn lists() {
    for script in SCRIPTS {
        of_tasks(script).await;
    }
}

async fn of_tasks(script: usize) {
    let bed = Stage::bed(1).await;
    let store = Store::open(&bed.path("fedq.db")).await.unwrap();
    // One half of them is somebody else's.
    history(&store, 2 * TASKS, script).await;
    store.close().await;
    let stage = Stage::start(bed).await;
    // What is paid once: the pages of the database that SQLite keeps, room for what is being packed.
    let mut sizes = Vec::new();
    for packed in [false, true] {
        sizes.push((packed, read(&stage, packed, usize::MAX).await));
    }
    println!(
        "{CALLERS} callers at once, each reading a list of {TASKS} tasks with scripts of {script} bytes for {READING:?}:"
    );
    for (packed, bytes) in sizes {
        tokio::time::sleep(REST).await;
        callers(&stage, packed, bytes).await;
    }
    tokio::time::sleep(REST).await;
    followers(&stage).await;
}

/// Each follows the list, which tells of the newest tasks, and has been told of all of them.
async fn followers(stage: &Stage) {
    let process = &stage.process;
    process.forget_peak().unwrap();
    let before = process.rss().unwrap();
    let follow = async || {
        let http: Client<_, Body> = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let mut response = http.request(stage.request("GET", "/tasks?watch=true", None)).await.unwrap();
        assert_eq!(response.status(), 200);
        let mut told = Vec::new();
        while !told.ends_with(SYNCED) {
            told.extend(response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap());
        }
        (told.len(), response)
    };
    let followed = join_all((0..CALLERS).map(|_| follow())).await;
    tokio::time::sleep(REST).await;
    println!(
        "{CALLERS} who follow the newest of them, told {} kB each: resident {:.1} MB before, {:.1} MB at most, {:.1} MB then",
        followed[0].0 / 1000,
        before / 1e6,
        process.peak().unwrap() / 1e6,
        process.rss().unwrap() / 1e6,
    );
}

async fn callers(stage: &Stage, packed: bool, bytes: usize) {
    let process = &stage.process;
    process.forget_peak().unwrap();
    let (before, cpu, began) = (process.rss().unwrap(), process.cpu_seconds().unwrap(), Instant::now());
    join_all((0..CALLERS).map(|_| read(stage, packed, bytes))).await;
    let (took, peak) = (began.elapsed(), process.peak().unwrap());
    let cpu = (process.cpu_seconds().unwrap() - cpu) * 1000.0 / CALLERS as f64;
    tokio::time::sleep(REST).await;
    let more = peak - before;
    println!(
        "{:<10} {:>6.0} kB each, within {:>4.1} s, {cpu:>4.0} ms of CPU each; resident {:.1} MB before, {:.1} MB at most, \
         {:.1} MB after: {:.1} MB for all of them, {} the goal of {:.0} MB",
        if packed { "packed" } else { "as it is" },
        bytes as f64 / 1000.0,
        took.as_secs_f64(),
        before / 1e6,
        peak / 1e6,
        process.rss().unwrap() / 1e6,
        more / 1e6,
        if more <= GOAL { "within" } else { "above" },
        GOAL / 1e6,
    );
}

/// Reads a list on a connection of its own, slowly if it is known how long it is; how many bytes it was.
async fn read(stage: &Stage, packed: bool, whole: usize) -> usize {
    let mut connector = HttpConnector::new();
    connector.set_recv_buffer_size(Some(SOCKET));
    let http: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    let mut request = stage.request("GET", &format!("/tasks?limit={TASKS}"), None);
    if packed {
        request.headers_mut().insert(header::ACCEPT_ENCODING, "gzip".parse().unwrap());
    }
    let mut response = http.request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), packed);
    let mut body = Vec::new();
    let began = Instant::now();
    while let Some(frame) = response.body_mut().frame().await {
        body.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
        // Not before its time, so that all are under way at once.
        let share = (body.len() as f64 / whole as f64).min(1.0);
        tokio::time::sleep_until((began + READING.mul_f64(share)).into()).await;
    }
    let list: Value = if packed {
        serde_json::from_reader(GzDecoder::new(&body[..])).unwrap()
    } else {
        serde_json::from_slice(&body).unwrap()
    };
    assert_eq!(list["items"].as_array().unwrap().len() as u64, TASKS);
    body.len()
}
