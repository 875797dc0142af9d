//! The web page in a browser, of a fleet larger than most: a thousand clusters and a hundred thousand tasks. What is shown is
//! what others wrote, so some of it is markup.

use std::sync::Arc;

use fedq_base::clock::Clock;
use fedq_domain::{overview::Overview, task::names::TaskId};
use fedq_store::AuditEntry;
use fedq_values::ids::{ClaimName, ClusterName};
use serde_json::json;

use super::{
    browser::browse,
    server::{ANN, Served, overview, served_as},
    tasks::submit,
};

const CLUSTERS: usize = 1000;
const TASKS: usize = 100_000;
const MARKUP: &str = "<img src=x onerror=alert(1)><script>alert(2)</script><b data-x>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_a_large_fleet_is_light_and_smooth() {
    let served = served_as(|parts| parts.clock = Clock::system()).await;
    served.overview.send_replace(Arc::new(fleet()));
    fill_tasks(&served).await;
    fill_audit(&served).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    let router = served.router.clone();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    browse("large.mjs", &[("FEDQ_SERVER", &server), ("FEDQ_TOKEN", ANN)], async |_| String::new()).await;
    serving.abort();
}

/// Each with its claim, most of them well.
fn fleet() -> Overview {
    let mut all = overview();
    let names = |text: String| ClusterName::new(&text).unwrap();
    let (east, west) = (all.clusters[&names("east".to_owned())].clone(), names("west".to_owned()));
    let lost = all.clusters[&west].clone();
    let (name, claim) = all.claims.pop_first().unwrap();
    let mut hostile = (*claim).clone();
    MARKUP.clone_into(&mut hostile.ready.2);
    MARKUP.clone_into(&mut hostile.assignments[0].message);
    all.claims.insert(name, Arc::new(hostile));
    all.clusters.retain(|name, _| name.as_str() == "east");
    for number in 1..CLUSTERS {
        let cluster = names(format!("cluster-{number:04}"));
        let of = ClaimName::new(&format!("{cluster}-resource-claim")).unwrap();
        let mut one = if number % 100 == 7 { (*lost).clone() } else { (*east).clone() };
        one.claim = Some(of.clone());
        one.server = Some(format!("https://api.{cluster}.example.com:6443"));
        one.nodes.total += u32::try_from(number % 17).unwrap();
        all.clusters.insert(cluster.clone(), Arc::new(one));
        let mut its = (*claim).clone();
        its.cluster = cluster;
        its.ready =
            ("True".to_owned(), "Ready".to_owned(), "every queue gets what it is assigned".to_owned());
        all.claims.insert(of, Arc::new(its));
    }
    let (name, queue) = all.queues.pop_first().unwrap();
    let mut queue = (*queue).clone();
    MARKUP.clone_into(&mut queue.problems[0].2);
    all.queues.insert(name, Arc::new(queue));
    all
}

async fn fill_tasks(served: &Served) {
    let task = format!("name: '{MARKUP}'\nrun: x\n");
    let id = submit(served, ANN, &task).await;
    let row = served.store.task(&TaskId::parse(&id).unwrap()).await.unwrap().unwrap();
    for part in 0..TASKS / 5000 {
        let rows: Vec<_> = (0..5000)
            .map(|number| {
                let mut row = row.clone();
                row.id = TaskId::parse(&format!("a{:07}", part * 5000 + number)).unwrap();
                row
            })
            .collect();
        assert!(served.store.insert_tasks(&rows).await.unwrap());
    }
}

async fn fill_audit(served: &Served) {
    let entry = AuditEntry {
        id: 0,
        at: Clock::system().now(),
        who: MARKUP.to_owned(),
        verb: "edit".to_owned(),
        object: format!("claims/{MARKUP}"),
        detail: Some(json!({"why": MARKUP, "changes": MARKUP})),
        outcome: MARKUP.to_owned(),
        through: Some(MARKUP.to_owned()),
        refused: false,
    };
    served.store.record_audit(&entry).await.unwrap();
}
