//! Lists come in pages that hold together, whatever changes between them.

use std::sync::Arc;

use fedq_domain::{
    placement::{
        spec::{Placement, PlacementKey},
        view::{PlacementRow, PlacementView},
    },
    task::{names::TaskId, phase::Move},
};
use fedq_store::{CapacityRow, ClaimRow, ClusterRow, ClusterSource};
use fedq_values::{
    ids::{ClaimName, ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    contract::{JSON, ask},
    server::{ANN, Served, served},
    tasks::{dispatch, moves, submit},
};

/// As the loops of clients begin.
#[tokio::test]
async fn every_list_begins_with_an_empty_continue() {
    let served = served().await;
    let document = fedq_api::openapi();
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let schema = &item["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
        if !schema.as_str().is_some_and(|schema| schema.ends_with("List")) {
            continue;
        }
        let parameters: Vec<_> = item["get"]["parameters"].as_array().into_iter().flatten().collect();
        for name in ["limit", "continue"] {
            assert!(parameters.iter().any(|parameter| parameter["name"] == name), "{path} has no {name}");
        }
        let path = path.trim_start_matches("/api/v1").replace("{cluster}", "east");
        let path = path.replace("{claim}", "east-resource-claim").replace("{queue}", "team-a");
        if path.contains('{') {
            continue;
        }
        let answer = ask(&served, &format!("GET {path}?continue="), &[], "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.json());
        found.push(path);
    }
    assert!(8 < found.len(), "{found:?}");
}

#[tokio::test]
async fn every_list_comes_in_pages() {
    let served = served().await;
    for name in ["c", "a", "b"] {
        let body = json!({"name": name, "size": "1Gi"}).to_string();
        let made = ask(&served, "POST /volumes", &[JSON], body).await;
        assert_eq!(made.status, 201);
        let location = made.headers["location"].to_str().unwrap().trim_start_matches("/api/v1").to_owned();
        assert_eq!(ask(&served, &format!("GET {location}"), &[], "").await.json()["name"], name);
    }
    for (path, key, count) in [("/volumes", "id", 3), ("/check", "cluster", 3), ("/clusters", "name", 2)] {
        let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
        let all: Vec<Value> =
            whole["items"].as_array().unwrap().iter().map(|item| item[key].clone()).collect();
        assert_eq!((all.len(), whole.get("continue")), (count, None), "{path}");
        let (mut paged, mut next) = (Vec::new(), String::new());
        loop {
            let page = ask(&served, &format!("GET {path}?limit=1{next}"), &[], "").await.json();
            let items = page["items"].as_array().unwrap();
            assert_eq!(items.len(), 1, "{path}");
            paged.push(items[0][key].clone());
            let Some(more) = page["continue"].as_str() else { break };
            let more: String = form_urlencoded::byte_serialize(more.as_bytes()).collect();
            next = format!("&continue={more}");
        }
        assert_eq!(paged, all, "{path}");
    }
    let wrong = ask(&served, "GET /check?continue=nonsense", &[], "").await;
    assert_eq!(wrong.status, 400);
}

/// Goes through a list two at a time; `change` is called behind each page with its number. What all pages held.
async fn pages(
    served: &Served,
    path: &str,
    key: impl Fn(&Value) -> String,
    mut change: impl AsyncFnMut(usize),
) -> Vec<String> {
    let separator = if path.contains('?') { '&' } else { '?' };
    let (mut found, mut next) = (Vec::new(), String::new());
    for number in 0.. {
        let page = ask(served, &format!("GET {path}{separator}limit=2{next}"), &[], "").await;
        assert_eq!(page.status, 200, "{path}: {}", page.json());
        let page = page.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2, "{path}");
        found.extend(items.iter().map(&key));
        let Some(more) = page["continue"].as_str() else { break };
        assert!(number < 50, "{path} has no end");
        let more: String = form_urlencoded::byte_serialize(more.as_bytes()).collect();
        next = format!("&continue={more}");
        change(number).await;
    }
    found
}

/// What was there from beginning to end is told of once, in the order of the whole list; what went or came, at most once.
fn hold_together(path: &str, whole: &[String], gone: &[String], found: &[String]) {
    let mut once = found.to_vec();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), found.len(), "{path} tells of one twice: {found:?}");
    let stayed: Vec<_> = whole.iter().filter(|name| !gone.contains(name)).collect();
    let told: Vec<_> = found.iter().filter(|name| stayed.contains(name)).collect();
    assert_eq!(told, stayed, "{path}: {found:?}");
}

fn text_of(field: &'static str) -> impl Fn(&Value) -> String {
    move |item| item[field].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_list_of_tasks_that_changes_between_pages_holds_together() {
    let served = served().await;
    let mut made = Vec::new();
    for number in 0..8 {
        made.push(submit(&served, ANN, &format!("name: t{number}\nrun: x\n")).await);
    }
    let path = "/tasks?over=false";
    let whole: Vec<String> = made.iter().rev().cloned().collect();
    // One that was told of goes, then the last of a page, behind which the next one begins, then one that was to come.
    let gone = [whole[0].clone(), whole[3].clone(), whole[6].clone()];
    let found = pages(&served, path, text_of("id"), async |number| {
        if let Some(id) = gone.get(number) {
            assert_eq!(ask(&served, &format!("POST /tasks/{id}/stop"), &[], "").await.status, 202);
        }
        submit(&served, ANN, &format!("name: new{number}\nrun: x\n")).await;
    });
    let found = found.await;
    hold_together(path, &whole, &gone, &found);
    assert!(!found.contains(&gone[2]), "it was stopped before its page");
    assert_eq!(found.len(), 7, "new ones stand before those that were told of: {found:?}");
    // What people did is kept: newest first, while each page adds to it.
    let whole = ask(&served, "GET /audit", &[], "").await.json();
    let key = |entry: &Value| format!("{} {}", text_of("verb")(entry), text_of("object")(entry));
    let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key).collect();
    let found = pages(&served, "/audit", key, async |number| {
        submit(&served, ANN, &format!("name: more{number}\nrun: x\n")).await;
    });
    assert_eq!(found.await, whole, "what is added later stands before the first page");
}

#[tokio::test]
async fn a_history_that_grows_between_pages_holds_together() {
    let served = served().await;
    let id = submit(&served, ANN, "run: x\n").await;
    let lost = |number: u32| if number.is_multiple_of(2) { Move::ClusterLost } else { Move::ClusterBack };
    moves(&served, &id, &[dispatch()]).await;
    let mut number = 0;
    let mut step = async || {
        moves(&served, &id, &[lost(number)]).await;
        number += 1;
    };
    for _ in 0..3 {
        step().await;
    }
    let path = format!("/tasks/{id}/events");
    let before =
        ask(&served, &format!("GET {path}"), &[], "").await.json()["items"].as_array().unwrap().len();
    let key = |event: &Value| text_of("phase")(event);
    let found = pages(&served, &path, key, async |number| {
        if number < 2 {
            step().await;
        }
    });
    let found = found.await;
    let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
    let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key).collect();
    assert_eq!(
        (found.len(), &found),
        (before + 2, &whole),
        "what is added later stands behind the last page"
    );
}

#[tokio::test]
async fn a_list_of_volumes_that_changes_between_pages_holds_together() {
    let served = served().await;
    let make = async |name: String| {
        let made =
            ask(&served, "POST /volumes", &[JSON], json!({"name": name, "size": "1Gi"}).to_string()).await;
        assert_eq!(made.status, 201);
    };
    for number in 0..8 {
        make(format!("v{number}")).await;
    }
    let whole = ask(&served, "GET /volumes", &[], "").await.json();
    let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(text_of("id")).collect();
    let gone = [whole[0].clone(), whole[3].clone(), whole[6].clone()];
    let found = pages(&served, "/volumes", text_of("id"), async |number| {
        if let Some(id) = gone.get(number) {
            assert_eq!(ask(&served, &format!("DELETE /volumes/{id}"), &[], "").await.status, 202);
            // As its controller does once the cluster has let it go.
            assert!(served.store.forget_volume(&TaskId::parse(id).unwrap()).await.unwrap());
        }
        make(format!("new{number}")).await;
    });
    hold_together("/volumes", &whole, &gone, &found.await);
}

/// Clusters, and what is made of them: each is read from what the controllers published last.
#[tokio::test]
async fn lists_of_clusters_that_change_between_pages_hold_together() {
    let names = ["a", "c", "e", "g", "i", "k", "m", "o"];
    let of = |names: &[&str]| {
        let mut overview = super::server::overview();
        let like = overview.clusters.first_key_value().unwrap().1.clone();
        overview.clusters =
            names.iter().map(|name| (ClusterName::new(name).unwrap(), Arc::clone(&like))).collect();
        Arc::new(overview)
    };
    // Of each cluster capacity has two rows, of two resources, and checks one; another one is of the hub.
    let key = |path: &'static str| {
        move |item: &Value| match path {
            "/clusters" => text_of("name")(item),
            "/check" => format!("{} {}", text_of("cluster")(item), text_of("name")(item)),
            _ => format!("{} {}", text_of("cluster")(item), text_of("resource")(item)),
        }
    };
    for path in ["/clusters", "/check", "/capacity"] {
        let served = served().await;
        served.overview.send_replace(of(&names));
        let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
        let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key(path)).collect();
        let mut there = names.to_vec();
        let gone = ["a", "c", "k"];
        let came = ["b", "h", "z"];
        let found = pages(&served, path, key(path), async |number| {
            if let (Some(gone), Some(came)) = (gone.get(number), came.get(number)) {
                there.retain(|name| name != gone);
                there.push(came);
                served.overview.send_replace(of(&there));
            }
        });
        let found = found.await;
        let is_of = |row: &String| gone.iter().any(|gone| row.split(' ').next() == Some(gone));
        let of_gone: Vec<String> = whole.iter().filter(|row| is_of(row)).cloned().collect();
        hold_together(path, &whole, &of_gone, &found);
        assert!(found.iter().any(|row| row.starts_with('z')), "{path}: what came behind the page is told of");
    }
}

const NAMES: [&str; 8] = ["a", "c", "e", "g", "i", "k", "m", "o"];

/// Goes through `path`, which holds what `publish` was given last, while after each page one goes and one comes: before
/// what was told of, the one behind which the next page begins, and one that is still to come.
async fn goes_and_comes(served: &Served, path: &str, publish: impl Fn(&[&str])) {
    publish(&NAMES);
    let (gone, came) = (["a", "g", "k"], ["b", "h", "z"]);
    let mut there = NAMES.to_vec();
    let found = pages(served, path, text_of("name"), async |number| {
        if let (Some(gone), Some(came)) = (gone.get(number), came.get(number)) {
            there.retain(|name| name != gone);
            there.push(came);
            publish(&there);
        }
    });
    let (found, owned) =
        (found.await, |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect());
    let (whole, gone): (Vec<String>, Vec<String>) = (owned(&NAMES), owned(&gone));
    hold_together(path, &whole, &gone, &found);
    assert!(!found.contains(&"k".to_owned()), "{path}: it went before its page: {found:?}");
    assert!(found.contains(&"z".to_owned()), "{path}: it came before its page: {found:?}");
}

#[tokio::test]
async fn lists_of_claims_queues_and_placements_that_change_between_pages_hold_together() {
    let served = served().await;
    goes_and_comes(&served, "/claims", |names| {
        let mut overview = super::server::overview();
        let claim = overview.claims.values().next().unwrap().clone();
        overview.claims =
            names.iter().map(|name| (ClaimName::new(name).unwrap(), Arc::clone(&claim))).collect();
        served.overview.send_replace(overview.into());
    })
    .await;
    goes_and_comes(&served, "/queues", |names| {
        let mut overview = super::server::overview();
        let queue = overview.queues.values().next().unwrap().clone();
        overview.queues =
            names.iter().map(|name| (QueueName::new(name).unwrap(), Arc::clone(&queue))).collect();
        served.overview.send_replace(overview.into());
    })
    .await;
    goes_and_comes(&served, "/placements", |names| {
        let view = super::placement::view();
        let like = view.placements.values().next().unwrap();
        let placement = |name: &&str| {
            let key = PlacementKey { namespace: "ns".into(), name: (*name).into() };
            let row = PlacementRow { placement: Arc::new(Placement::new(key.clone())), ..(**like).clone() };
            (key, Arc::new(row))
        };
        let placements = names.iter().map(placement).collect();
        served.placements.send_replace(Arc::new(PlacementView { placements, ..(*view).clone() }));
    })
    .await;
}

async fn joins(served: &Served, name: &str) {
    let row = ClusterRow {
        name: ClusterName::new(name).unwrap(),
        identity: None,
        server: "https://api.example.com".to_owned(),
        source: ClusterSource::Secret,
        connection: "Ready".to_owned(),
        last_seen: None,
        cordoned: false,
        version: None,
        joined: Timestamp::UNIX_EPOCH,
    };
    served.store.put_cluster(&row).await.unwrap();
}

/// An edit of the cluster's claim, and a change of its capacity.
async fn remembers(served: &Served, cluster: &str, number: i64) {
    let at = Timestamp::from_second(1_700_000_000 + number).unwrap();
    let name = ClaimName::new(&format!("{cluster}-resource-claim")).unwrap();
    let spec = super::server::spec(&number.to_string());
    let edit = ClaimRow { name, generation: number, spec, who: "ann".to_owned(), at };
    assert!(served.store.record_claim(&edit).await.unwrap());
    let gpus = CapacityRow {
        flavor: FlavorName::new("on-demand").unwrap(),
        resource: ResourceName::new("nvidia.com/gpu").unwrap(),
        capacity: Amount::new(number),
        foreign: Amount::ZERO,
        usable: Amount::new(number),
    };
    let cluster = ClusterName::new(cluster).unwrap();
    assert_eq!(served.store.record_capacity(&cluster, &[gpus], at).await.unwrap(), 1);
}

/// What was done is told of newest first, so what is added later stands before the first page; what is too old is forgotten
/// meanwhile, from the other end.
#[tokio::test]
async fn histories_that_grow_between_pages_hold_together() {
    let served = served().await;
    joins(&served, "east").await;
    let step = async |number: i64| remembers(&served, "east", number).await;
    for number in 1..=7 {
        step(number).await;
    }
    let mut last = 7;
    for (path, field) in
        [("/claims/east-resource-claim/history", "generation"), ("/capacity/east/history", "capacity")]
    {
        let key = |item: &Value| item[field].to_string();
        let whole = ask(&served, &format!("GET {path}"), &[], "").await.json();
        let whole: Vec<String> = whole["items"].as_array().unwrap().iter().map(key).collect();
        assert!(7 <= whole.len(), "{path}: {whole:?}");
        let found = pages(&served, path, key, async |_| {
            last += 1;
            step(last).await;
        });
        assert_eq!(found.await, whole, "{path}");
    }
}

#[tokio::test]
async fn only_what_was_never_there_has_no_history() {
    let served = served().await;
    joins(&served, "gone").await;
    remembers(&served, "gone", 1).await;
    for (name, status, count) in [("east", 200, 0), ("gone", 200, 1), ("never", 404, 0)] {
        for path in [format!("/capacity/{name}/history"), format!("/claims/{name}-resource-claim/history")] {
            let answer = ask(&served, &format!("GET {path}"), &[], "").await;
            let items = answer.json()["items"].as_array().map_or(0, Vec::len);
            assert_eq!((answer.status, items), (status, count), "{path}: {}", answer.json());
        }
    }
    // Behind the last page there is nothing more, whoever it was.
    let (path, behind) = ("/capacity/gone/history?limit=1", "&continue=1");
    assert_eq!(ask(&served, &format!("GET {path}{behind}"), &[], "").await.status, 200);
}
