//! What a client of a simulated cluster sees of each fault.

use std::time::{Duration, Instant};

use fedq_k8s::client::{ApiError, ClientLimits, ClusterClient, RetryClass, call, connect};
use fedq_k8s::kubeconfig::{Rules, check};
use fedq_sim::cluster::{Cluster, Options};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

const CLASSES: &str = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses";
/// For what never comes.
const NEVER: Duration = Duration::from_millis(400);
const SOON: Duration = Duration::from_secs(20);

async fn cluster() -> Cluster {
    let cluster = Cluster::start(Options { controllers: false, ..Options::named("wrong") }).await.unwrap();
    for name in ["a", "b", "c"] {
        cluster.put(class(name)).await.unwrap();
    }
    cluster
}

fn class(name: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": name}, "value": 1,
    })
}

fn client(cluster: &Cluster) -> ClusterClient {
    let kubeconfig = cluster.kubeconfig("admin", &["system:masters"]);
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let checked = check(kubeconfig.as_bytes(), None, &rules).unwrap();
    connect(&checked, &ClientLimits::default()).unwrap()
}

fn get(path: &str) -> Request<Vec<u8>> {
    Request::get(path).body(Vec::new()).unwrap()
}

async fn list(client: &ClusterClient) -> Result<Value, ApiError> {
    call(SOON, client.kube().request::<Value>(get(CLASSES))).await
}

/// A server that becomes another one ends its connections, and a request may still go out on one of those.
async fn once_connected<T>(mut ask: impl AsyncFnMut() -> Result<T, ApiError>) -> T {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(error) if error.class == RetryClass::Unreachable && began.elapsed() < SOON => {}
            answer => return answer.unwrap(),
        }
    }
}

fn wrong(cluster: &Cluster, plan: &str) {
    cluster.set_faults(plan.parse().unwrap());
}

#[tokio::test]
async fn answers_fail_late_or_never() {
    let cluster = cluster().await;
    let client = client(&cluster);
    assert_eq!(list(&client).await.unwrap()["items"].as_array().unwrap().len(), 3);
    wrong(&cluster, "latency 1ms; server-errors");
    assert!(list(&client).await.unwrap_err().is_transient());
    wrong(&cluster, "too-many-requests 7s");
    let error = list(&client).await.unwrap_err();
    assert_eq!(error.class, RetryClass::Throttled { retry_after: Some(Duration::from_secs(7)) });
    wrong(&cluster, "redirect https://127.0.0.2:6443/");
    let error = list(&client).await.unwrap_err();
    assert!(error.to_string().contains("redirect"), "{error}");
    wrong(&cluster, "list workloadpriorityclasses: hang");
    assert!(tokio::time::timeout(NEVER, list(&client)).await.is_err());
    client.identity(SOON).await.expect("a fault of lists of classes is no other's");
    wrong(&cluster, "endless-body");
    let mut body = client.kube().send(get(CLASSES).map(Body::from)).await.unwrap().into_body();
    let mut read = 0;
    while read < 1 << 20 {
        read += body.frame().await.unwrap().unwrap().into_data().unwrap().len();
    }
    drop(body);
    wrong(&cluster, "");
    assert_eq!(list(&client).await.unwrap()["items"].as_array().unwrap().len(), 3);
    let counted = cluster.state.counts.requests()[&("list", "workloadpriorityclasses".to_owned())];
    assert_eq!(counted, 7, "those that went wrong were asked for too");
}

#[tokio::test]
async fn what_was_asked_is_done_though_the_answer_is_lost() {
    let cluster = cluster().await;
    let client = client(&cluster);
    wrong(&cluster, "create: lose-answers");
    let body = class("d").to_string().into_bytes();
    let request = Request::post(CLASSES).header("content-type", "application/json").body(body).unwrap();
    assert!(tokio::time::timeout(NEVER, client.kube().request::<Value>(request)).await.is_err());
    assert!(cluster.get("WorkloadPriorityClass", "", "d").is_some());
}

#[tokio::test]
async fn a_list_expires_after_its_first_page() {
    let cluster = cluster().await;
    let client = client(&cluster);
    wrong(&cluster, "gone-mid-page");
    let page = get(&format!("{CLASSES}?limit=500"));
    let page: Value = call(SOON, client.kube().request(page)).await.unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let next = get(&format!("{CLASSES}?limit=500&continue={token}"));
    let error = call(SOON, client.kube().request::<Value>(next)).await.unwrap_err();
    assert_eq!(error.class, RetryClass::Gone);
}

#[tokio::test]
async fn connections_fall_silent_break_and_meet_strangers() {
    let cluster = cluster().await;
    let old = client(&cluster);
    list(&old).await.unwrap();
    wrong(&cluster, "half-open");
    assert!(tokio::time::timeout(NEVER, list(&old)).await.is_err());
    let new = client(&cluster);
    list(&new).await.expect("new connections are served");
    wrong(&cluster, "wrong-certificate");
    let began = Instant::now();
    loop {
        let error = list(&new).await.unwrap_err();
        if error.to_string().contains("certificate") {
            break;
        }
        // The connection that was there ends first.
        assert!(error.class == RetryClass::Unreachable && began.elapsed() < SOON, "{error}");
    }
    wrong(&cluster, "refuse-connections");
    assert_eq!(list(&new).await.unwrap_err().class, RetryClass::Unreachable);
    wrong(&cluster, "");
    list(&new).await.unwrap();
}

#[tokio::test]
async fn a_backup_is_older_and_another_cluster_is_another() {
    let cluster = cluster().await;
    let client = client(&cluster);
    let version =
        |list: &Value| list["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    cluster.take_backup();
    let then = version(&list(&client).await.unwrap());
    cluster.put(class("d")).await.unwrap();
    assert!(then < version(&list(&client).await.unwrap()));
    wrong(&cluster, "restored-etcd");
    assert_eq!(version(&once_connected(async || list(&client).await).await), then);
    let before = once_connected(async || client.identity(SOON).await).await;
    wrong(&cluster, "new-identity");
    let after = once_connected(async || client.identity(SOON).await).await;
    assert_ne!(before.kube_system_uid, after.kube_system_uid);
}

async fn watch(client: &ClusterClient, cluster: &Cluster) -> Response<Body> {
    let path = format!("{CLASSES}?watch=1&resourceVersion={}", cluster.state.store.version());
    client.kube().send(get(&path).map(Body::from)).await.unwrap()
}

/// The names in the next events, until something else than an event comes, or nothing.
async fn events(watch: &mut Response<Body>) -> (Vec<String>, &'static str) {
    let mut names = Vec::new();
    let mut text = String::new();
    let end = loop {
        match tokio::time::timeout(NEVER, watch.body_mut().frame()).await {
            Err(_) => break "silence",
            Ok(None) => break "end",
            Ok(Some(Err(_))) => break "broken",
            Ok(Some(Ok(frame))) => text.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap())),
        }
    };
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        names.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
    }
    (names, end)
}

#[tokio::test]
async fn events_are_lost_doubled_and_late_on_watches_that_are_open() {
    let cluster = cluster().await;
    let client = client(&cluster);
    for (plan, seen, end) in [
        ("", vec!["x", "y", "z"], "silence"),
        ("duplicate-events", vec!["x", "x", "y", "y", "z", "z"], "silence"),
        ("lose-events", vec![], "silence"),
        ("watch workloadpriorityclasses: drop-watch-after 2", vec!["x", "y"], "broken"),
        ("silent-watch", vec![], "silence"),
        ("watch nodes: silent-watch", vec!["x", "y", "z"], "silence"),
    ] {
        let mut open = watch(&client, &cluster).await;
        wrong(&cluster, plan);
        for name in ["x", "y", "z"] {
            cluster.put(class(name)).await.unwrap();
        }
        assert_eq!(events(&mut open).await, (seen.into_iter().map(str::to_owned).collect(), end), "{plan}");
        wrong(&cluster, "");
        for name in ["x", "y", "z"] {
            cluster.remove("WorkloadPriorityClass", name).await.unwrap();
        }
    }
    let mut open = watch(&client, &cluster).await;
    wrong(&cluster, "reorder-events");
    cluster.put(class("x")).await.unwrap();
    assert_eq!(events(&mut open).await, (vec![], "silence"), "it waits for the next");
    wrong(&cluster, "");
    cluster.put(class("y")).await.unwrap();
    assert_eq!(events(&mut open).await, (vec!["y".to_owned(), "x".to_owned()], "silence"));
}
