//! How long a plan takes, and that one touched cluster costs the same among ten as among a thousand.
//!
//! `cargo bench --bench plan`

#![allow(clippy::unwrap_used, missing_docs, reason = "a benchmark")]

use std::{collections::BTreeMap, hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use fedq_domain::{
    capacity::{Capacity, NodeClass, NodeFacts, NodeTable, ResourceFilter},
    quota::{
        Assignment, ClaimInput, ClusterInput, Dispatch, HubQueueInput, Planner, QuotaPlace, WorkerCell,
        WorkerQueueInput,
    },
    resource_groups::ResourceGroups,
    resources::{FlavorResource, Resources},
};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

const QUEUES: usize = 100;

fn queue(number: usize) -> QueueName {
    QueueName::new(&format!("queue-{number:03}")).unwrap()
}

fn at() -> FlavorResource {
    FlavorResource {
        flavor: FlavorName::new("h100").unwrap(),
        resource: ResourceName::new("nvidia.com/gpu").unwrap(),
    }
}

/// A cluster that gives every queue 8 GPUs, of which its workers have `nominal`.
fn cluster(number: usize, nominal: i64) -> ClusterInput {
    let FlavorResource { flavor, resource } = at();
    let mut input = ClusterInput::new(ClusterName::new(&format!("cluster-{number:04}")).unwrap());
    let total: Resources = [(resource.clone(), Amount::new(1000))].into();
    input.capacity = Some(Capacity {
        classes: vec![NodeClass { flavors: [flavor.clone()].into(), nodes: 125, total: total.clone() }],
        total: total.clone(),
        by_flavor: [(flavor.clone(), total)].into(),
        nodes: 125,
        ..Capacity::default()
    });
    let assignment = |number| Assignment {
        queue: queue(number),
        flavor: flavor.clone(),
        resources: [(resource.clone(), Amount::new(8))].into(),
    };
    let assignments = (0..QUEUES).map(assignment).collect();
    input.claim = Some(ClaimInput { caps: Resources::new(), assignments });
    let cell = WorkerCell { nominal: Amount::new(nominal), ..WorkerCell::default() };
    let worker = |number| WorkerQueueInput {
        name: queue(number),
        ours: true,
        conflict: false,
        cohort: None,
        active: true,
        settled: true,
        cells: [(at(), cell)].into(),
        asked: Vec::new(),
    };
    input.worker_queues = (0..QUEUES).map(worker).collect();
    input
}

fn planner(clusters: usize) -> Planner {
    let mut planner = Planner::default();
    for number in 0..QUEUES {
        let mut groups = ResourceGroups::default();
        groups.extend(&at()).unwrap();
        planner.set_queue(HubQueueInput {
            name: queue(number),
            groups,
            cohort: None,
            managed: BTreeMap::new(),
            dispatch: Dispatch::RunsLocally,
            automated: false,
            quota_place: QuotaPlace::default(),
            still_held: BTreeMap::new(),
            unread: BTreeMap::new(),
        });
    }
    for number in 0..clusters {
        planner.set_cluster(cluster(number, 8));
    }
    planner.replan();
    planner
}

fn plans(criterion: &mut Criterion) {
    let mut all = planner(1000);
    criterion
        .bench_function("plan all of 1000 clusters x 100 queues", |bench| bench.iter(|| all.replan_all()));
    for clusters in [10, 100, 1000] {
        let mut planner = planner(clusters);
        let states = [cluster(5, 7), cluster(5, 8)];
        let mut turn = 0;
        criterion.bench_function(&format!("one touched cluster of {clusters}"), |bench| {
            bench.iter_batched(
                || {
                    turn += 1;
                    states[turn % 2].clone()
                },
                |input| {
                    planner.set_cluster(input);
                    black_box(planner.replan())
                },
                criterion::BatchSize::SmallInput,
            );
        });
    }
}

fn heartbeats(criterion: &mut Criterion) {
    let labels: Vec<(String, String)> =
        (0..30).map(|i| (format!("label.example/{i}"), "value".into())).collect();
    let mut labels: Vec<_> = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    labels.push(("cloud.example/pool", "h100"));
    let facts = NodeFacts {
        name: "gke-training-h100-pool-7d3f-00042",
        labels: &labels,
        allocatable: &[
            ("cpu", "95690m"),
            ("ephemeral-storage", "5600000000000"),
            ("hugepages-1Gi", "0"),
            ("hugepages-2Mi", "0"),
            ("memory", "1056000042Ki"),
            ("nvidia.com/gpu", "8"),
            ("pods", "110"),
        ],
        ready: true,
        ..NodeFacts::default()
    };
    let keys = ["cloud.example/pool".to_owned(), "cloud.example/zone".to_owned()];
    let mut table = NodeTable::new(keys.into(), ResourceFilter::default());
    table.set(&facts);
    criterion.bench_function("a heartbeat that changes nothing", |bench| {
        bench.iter(|| assert!(!table.set(black_box(&facts))));
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(3));
    targets = plans, heartbeats
}
criterion_main!(benches);
