use std::time::Duration;

use super::*;
use crate::nodes::Gpus;
use fedq_k8s::client::{ClientLimits, connect};
use fedq_k8s::kubeconfig::{self, Rules};
use http::Request;
use kube::Client;
use serde_json::Value;

async fn fleet(clusters: usize, nodes: usize) -> Fleet {
    let options = FleetOptions { clusters, nodes, template: Template::small().into(), queues: 2 };
    Fleet::start(&options).await.unwrap()
}

fn client(cluster: &Cluster) -> Client {
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let config = cluster.kubeconfig("test", &["system:masters"]);
    let config = kubeconfig::check(config.as_bytes(), None, &rules).unwrap();
    connect(&config, &ClientLimits::default()).unwrap().kube()
}

async fn get(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request(Request::get(path).body(Vec::new()).unwrap()).await
}

#[tokio::test]
async fn each_cluster_has_its_own_address_authority_and_credentials() {
    let fleet = fleet(3, 1).await;
    let [first, second] = [&fleet.workers[0], &fleet.workers[1]];
    assert_ne!(first.address.ip(), second.address.ip());
    let stranger: Value = serde_json::from_str(&first.kubeconfig("a", &["system:masters"])).unwrap();
    let mut mixed: Value = serde_json::from_str(&second.kubeconfig("a", &["system:masters"])).unwrap();
    mixed["users"] = stranger["users"].clone();
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let of = |config: &Value| {
        let checked = kubeconfig::check(config.to_string().as_bytes(), None, &rules).unwrap();
        connect(&checked, &ClientLimits::default()).unwrap().kube()
    };
    let refused = get(&of(&mixed), "/api/v1/nodes").await.unwrap_err();
    assert!(refused.to_string().contains("Unauthorized"), "{refused}");
    mixed["clusters"][0]["cluster"]["certificate-authority-data"] =
        stranger["clusters"][0]["cluster"]["certificate-authority-data"].clone();
    let untrusted = get(&of(&mixed), "/api/v1/nodes").await.unwrap_err();
    assert!(!untrusted.to_string().contains("Unauthorized"), "{untrusted}");
}

#[tokio::test]
async fn nodes_are_listed_in_pages_and_shown_one_by_one() {
    let fleet = fleet(1, 25).await;
    let client = client(&fleet.workers[0]);
    let (mut names, mut next) = (Vec::new(), String::new());
    loop {
        let page = get(&client, &format!("/api/v1/nodes?limit=10&continue={next}")).await.unwrap();
        names.extend(page["items"].as_array().unwrap().iter().map(|node| node["metadata"]["name"].clone()));
        match page["metadata"]["continue"].as_str() {
            Some(token) => token.clone_into(&mut next),
            None => break,
        }
    }
    assert_eq!(names.len(), 25);
    let name = names[7].as_str().unwrap();
    let one = get(&client, &format!("/api/v1/nodes/{name}")).await.unwrap();
    assert_eq!(one["status"]["allocatable"][GPU], "8");
    let chosen = get(&client, &format!("/api/v1/nodes?fieldSelector=metadata.name%3D{name}")).await.unwrap();
    assert_eq!(chosen["items"].as_array().unwrap().len(), 1);
    let versions = Request::get("/api/v1/nodes?limit=1")
        .header("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    let versions: Value = client.request(versions.body(Vec::new()).unwrap()).await.unwrap();
    assert_eq!(versions["metadata"]["remainingItemCount"], 24);
    assert!(versions["items"][0]["status"].is_null(), "only metadata was asked for");
    for wrong in
        ["/api/v1/nodes?continue=x", "/api/v1/nodes?continue=7.x", "/api/v1/nodes/gke-0000-a3-000099"]
    {
        assert!(get(&client, wrong).await.is_err(), "{wrong}");
    }
    let delete = Request::delete(format!("/api/v1/nodes/{name}")).body(Vec::new()).unwrap();
    client.request::<Value>(delete).await.unwrap();
    let left = get(&client, "/api/v1/nodes").await.unwrap();
    assert_eq!(left["items"].as_array().unwrap().len(), 24);
    // Whoever was written to is not the herd's any more.
    assert_eq!(fleet.change(0, [(7, Change::Heartbeat), (7, Change::Restore)]), 0);
}

#[tokio::test]
async fn a_watch_tells_what_happened_since_a_version_until_that_is_forgotten() {
    let fleet = fleet(1, 3).await;
    let client = client(&fleet.workers[0]);
    let list = get(&client, "/api/v1/nodes").await.unwrap();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let changes =
        [(0, Change::Heartbeat), (1, Change::Gpus(Gpus::Half)), (2, Change::Delete), (2, Change::Delete)];
    assert_eq!(fleet.change(0, changes), 3, "what is gone cannot be deleted");
    assert_eq!(fleet.gpus(0), 8 + 4);
    let path = format!("/api/v1/nodes?watch=1&timeoutSeconds=1&resourceVersion={version}");
    let events = watch(&client, &path).await;
    let told: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(told, ["MODIFIED", "MODIFIED", "DELETED"]);
    assert_eq!(events[1]["object"]["status"]["allocatable"][GPU], "4");
    fleet.workers[0].state.store.compact();
    let events = watch(&client, &path).await;
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&"ERROR".into(), &410.into()));
}

async fn watch(client: &Client, path: &str) -> Vec<Value> {
    let text = client.request_text(Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn what_is_asked_and_sent_is_counted_by_verb_and_kind() {
    let fleet = fleet(2, 30).await;
    let before = fleet.totals();
    let text = client(&fleet.workers[1])
        .request_text(Request::get("/api/v1/nodes").body(Vec::new()).unwrap())
        .await
        .unwrap();
    let counted = fleet.totals().since(&before);
    assert_eq!(counted.requests_of("list", "nodes"), 1);
    assert_eq!((counted.all_bytes(), counted.writes), (counted.bytes_of("list", "nodes"), 0));
    assert!(counted.all_bytes() <= text.len() as u64);
    assert_eq!(counted.connections_ever, 1);
}

#[tokio::test]
async fn a_fleet_beats_at_the_rate_asked_for_until_it_is_stopped() {
    let fleet = fleet(2, 100).await;
    let before = fleet.workers[0].state.store.version();
    // Each node four times a second.
    let beating = fleet.beat(1200.0);
    while beating.count() < 100 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(beating);
    let after = fleet.workers[0].state.store.version();
    assert!(before < after);
    tokio::time::sleep(Duration::from_millis(120)).await;
    assert_eq!(fleet.workers[0].state.store.version(), after, "none comes after the end");
}
