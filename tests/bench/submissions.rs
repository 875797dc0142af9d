//! How many submissions a second are acknowledged, on the disk, and what a list costs with a long history.
//!
//! `cargo bench --bench submissions`

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a benchmark")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{Request, Response},
};
use fedq_api::{
    Authenticator, Callers, Diagnose, Parts, State, TokenFile, UnprovenNames, UploadBounds, router,
};
use fedq_base::clock::Clock;
use fedq_domain::{
    check::Finding,
    resources::Aliases,
    task::{
        limits::Limits,
        render::Tenant,
        tenant::{ANYONE, PodRules, Rule, Tenants},
    },
};
use fedq_k8s::{
    client::{Caller, ConnectError},
    kubeconfig::Rules,
    session::{Access, Sessions},
};
use fedq_store::{Live, Store};
use fedq_values::ids::ClusterName;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use http_body_util::BodyExt;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;
use tower_http::compression::CompressionLayer;

mod history;

use history::{TASK, history};

const TOKEN: &str = "0123456789abcdef-bench";
const CLIENTS: usize = 64;
const SECONDS: u64 = 10;
const HISTORY: u64 = 100_000;
const LISTS: usize = 200;

/// A hub that allows everything.
struct Hub;

impl Access for Hub {
    fn own(&self) -> kube::Client {
        let service = tower::service_fn(async |_: Request<kube::client::Body>| {
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": {},
                "status": {"allowed": true},
            });
            Ok::<_, std::io::Error>(Response::new(Body::from(review.to_string())))
        });
        kube::Client::new(service, "default")
    }

    fn acting_as(&self, _: &Caller) -> Result<kube::Client, ConnectError> {
        Ok(self.own())
    }

    fn apart(&self) -> Result<Arc<dyn Access>, ConnectError> {
        Ok(Arc::new(Self))
    }
}

struct Nobody;

impl Diagnose for Nobody {
    fn diagnose<'a>(&'a self, _: Option<&'a ClusterName>) -> BoxFuture<'a, Vec<Finding>> {
        async { Vec::new() }.boxed()
    }
}

fn api(store: &Store) -> Router {
    let everybody = Rule {
        users: vec![ANYONE.to_owned()],
        groups: Vec::new(),
        tenant: Tenant { namespace: "default".to_owned(), service_account: None },
        queue: Some("main".to_owned()),
        pods: PodRules::default(),
        limits: Limits::default(),
    };
    router(State::new(Parts {
        overview: watch::channel(Arc::default()).1,
        store: store.clone(),
        hub: Sessions::new(Arc::new(Hub), "fedq-system"),
        authenticator: Authenticator::token_file(TokenFile::parse(&format!("{TOKEN},ann\n")).unwrap()),
        aliases: Aliases::default(),
        kubeconfig_rules: Rules::default(),
        diagnose: Arc::new(Nobody),
        forwarded: fedq_k8s::proxy::everywhere(),
        joined: watch::channel(Arc::default()).1,
        task_views: watch::channel(Arc::default()).1,
        volume_views: watch::channel(Arc::default()).1,
        task_signal: Arc::default(),
        placements: watch::channel(Arc::default()).1,
        tenants: Tenants(vec![everybody]),
        kept_logs: None,
        unwrap_jobs: true,
        max_live: Live { tasks: u32::MAX, bytes: u64::MAX },
        uploads: UploadBounds { one_task: 0, one_person: 0 },
        unproven_names: UnprovenNames::Refused,
        callers: Callers::default(),
        clock: Clock::system(),
        page: false,
    }))
}

fn request(method: &str, uri: &str, body: String) -> Request<Body> {
    let request =
        Request::builder().method(method).uri(uri).header("authorization", format!("Bearer {TOKEN}"));
    request.header("content-type", "application/json").body(Body::from(body)).unwrap()
}

/// Acknowledged, and the times each took.
async fn submissions(store: &Store) -> Vec<Duration> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/api/v1/tasks", listener.local_addr().unwrap());
    let serving = tokio::spawn(axum::serve(listener, api(store).into_make_service()).into_future());
    let body = json!({"file": TASK}).to_string();
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let client = async || {
        let http: Client<HttpConnector, Body> = Client::builder(TokioExecutor::new()).build_http();
        let mut took = Vec::new();
        while Instant::now() < until {
            let began = Instant::now();
            let response = http.request(request("POST", &url, body.clone())).await.unwrap();
            assert_eq!(response.status(), 201);
            response.into_body().collect().await.unwrap();
            took.push(began.elapsed());
        }
        took
    };
    let clients: FuturesUnordered<_> = (0..CLIENTS).map(|_| client()).collect();
    let took = clients.concat().await;
    serving.abort();
    took
}

/// `fedq task list` as a process, from its start to its end.
async fn processes(store: &Store) -> Vec<Duration> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn(axum::serve(listener, api(store).into_make_service()).into_future());
    let mut took = Vec::new();
    for _ in 0..LISTS {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_fedq"));
        command.args(["task", "list"]).env_clear().env("FEDQ_SERVER", &url).env("FEDQ_TOKEN", TOKEN);
        command.env("FEDQ_CONFIG", "/nowhere/config.yaml");
        let began = Instant::now();
        let output = command.output().await.unwrap();
        took.push(began.elapsed());
        assert!(output.status.success() && 50 <= output.stdout.split(|byte| *byte == b'\n').count());
    }
    serving.abort();
    took
}

/// How long a request took, and its answer.
async fn asked(router: &Router, path: &str) -> (Duration, Bytes) {
    let began = Instant::now();
    let response = router.clone().oneshot(request("GET", path, String::new())).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (began.elapsed(), body)
}

/// What the layer that packs answers costs those who do not ask for it: the API as it is, and with the layer once more,
/// in turns. What a second one costs, the first one does. How far the API is from itself tells the noise.
async fn packing(store: &Store) {
    let (as_it_is, again) = (api(store), api(store));
    let twice = api(store).layer(CompressionLayer::new().gzip(true));
    for (path, rounds) in
        [("/api/v1/version", 4000), ("/api/v1/tasks?limit=50", 1000), ("/api/v1/tasks?limit=10000", 25)]
    {
        let mut took = [const { Vec::new() }; 3];
        for _ in 0..rounds {
            for (took, router) in took.iter_mut().zip([&as_it_is, &again, &twice]) {
                took.push(asked(router, path).await.0);
            }
        }
        let [median, again, twice] = took.map(|mut took| {
            took.sort();
            took[took.len() / 2].as_secs_f64()
        });
        println!(
            "{path:<28} {rounds:>6} × {:>9.3} ms; with the layer that packs twice {:.3}×, by noise {:.3}×",
            median * 1000.0,
            twice / median,
            again / median
        );
    }
}

async fn lists(store: &Store, query: &str) -> Vec<Duration> {
    let router = api(store);
    let mut took = Vec::new();
    for _ in 0..LISTS {
        let (one, body) = asked(&router, &format!("/api/v1/tasks?{query}")).await;
        took.push(one);
        let list: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(list["items"].as_array().unwrap().len(), 50, "{query}");
    }
    took
}

fn tell(what: &str, mut took: Vec<Duration>) {
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_secs_f64() * 1000.0;
    println!("{what:<44} {:>8} × {:>8.2} ms p50 {:>8.2} ms p99", took.len(), at(50), at(99));
}

#[tokio::main]
async fn main() {
    // Where `cargo bench` asks for tests.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(&folder.path().join("fedq.db")).await.unwrap();
    let took = submissions(&store).await;
    let rate = took.len() as u64 / SECONDS;
    println!("{CLIENTS} clients over HTTP, each submission on the disk (synchronous=FULL): {rate} a second");
    tell("one submission", took);
    history(&store, HISTORY, 0).await;
    for query in ["limit=50", "limit=50&allUsers=true", "limit=50&over=true"] {
        tell(&format!("list with {HISTORY} in history, {query}"), lists(&store, query).await);
    }
    packing(&store).await;
    tell("fedq task list, a process", processes(&store).await);
    store.close().await;
}
