//! What Placements cost: one over a thousand clusters, a thousand of them after one score changed, and a hundred new ones
//! in a real daemon.
//!
//! `cargo bench --bench placement`

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, missing_docs, reason = "a benchmark")]

#[path = "placement/daemon.rs"]
mod daemon;

use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group};
use fedq_domain::placement::{
    board::Board,
    changes::{Desired, Report},
    evaluate,
    hub::{AddOnScores, Binding, ClusterSet, ManagedCluster, SetSelection},
    selector::{Expression, LabelSelector},
    spec::{AddOnScore, Coordinate, Placement, PlacementKey, Predicate, PrioritizerConfig, Toleration},
};
use fedq_k8s::{read, types::ocm};
use fedq_values::ids::ClusterName;
use jiff::Timestamp;
use serde_json::json;

const CLUSTERS: usize = 1000;
const PLACEMENTS: usize = 1000;
const SCORE: &str = "resource-usage-score";

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

fn cluster(number: usize) -> ManagedCluster {
    let object = json!({
        "metadata": {"name": format!("cluster-{number:04}"), "labels": {
            "cluster.open-cluster-management.io/clusterset": "default",
            "region": format!("r{}", number % 10), "vendor": "any", "accelerator": "h100",
        }},
        "spec": {"hubAcceptsClient": true},
        "status": {
            "allocatable": {"cpu": format!("{}", 64 + number), "memory": format!("{}Gi", 256 + number)},
            "capacity": {"cpu": "2048", "memory": "8Ti"},
            "clusterClaims": [{"name": "id.k8s.io", "value": format!("id-{number}")}, {"name": "tier", "value": "gpu"}],
        },
    });
    read::ocm::managed_cluster(&ocm::ManagedCluster::try_from(object).unwrap()).unwrap()
}

fn scores(number: usize, gpus: i64) -> AddOnScores {
    AddOnScores {
        cluster: format!("cluster-{number:04}"),
        resource: SCORE.to_owned(),
        scores: vec![("gpuClusterAvailable".into(), gpus), ("cpuClusterAvailable".into(), 3)],
        valid_until: None,
    }
}

/// Labels, claims and three prioritizers; the best ten. Every other one names a score.
fn placement(number: usize) -> Placement {
    let key = PlacementKey { namespace: "ns".into(), name: format!("placement-{number:04}").as_str().into() };
    let built_in =
        |name: &str| Coordinate { kind: "BuiltIn".to_owned(), built_in: name.to_owned(), add_on: None };
    let add_on = Coordinate {
        kind: "AddOn".to_owned(),
        built_in: String::new(),
        add_on: Some(AddOnScore { resource: SCORE.into(), score: "gpuClusterAvailable".into() }),
    };
    let third = if number.is_multiple_of(2) { add_on } else { built_in("ResourceAllocatableMemory") };
    let weighted = |coordinate| PrioritizerConfig { coordinate: Some(coordinate), weight: 2 };
    let among = |key: &str, values: &[&str]| Expression {
        key: key.to_owned(),
        operator: "In".to_owned(),
        values: values.iter().map(|&value| value.to_owned()).collect(),
    };
    let mut placement = Placement::new(key);
    placement.number_of_clusters = Some(10);
    "Exact".clone_into(&mut placement.prioritizer_mode);
    placement.prioritizers =
        vec![weighted(built_in("Steady")), weighted(built_in("ResourceAllocatableCPU")), weighted(third)];
    placement.predicates = vec![Predicate {
        labels: LabelSelector {
            match_labels: BTreeMap::from([("accelerator".to_owned(), "h100".to_owned())]),
            match_expressions: vec![among("region", &["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"])],
        },
        claims: LabelSelector {
            match_expressions: vec![among("tier", &["gpu"])],
            ..LabelSelector::default()
        },
        cel: Vec::new(),
    }];
    placement.tolerations =
        vec![Toleration { key: "k".to_owned(), operator: "Exists".to_owned(), ..Toleration::default() }];
    placement
}

fn board(placements: usize) -> Board {
    let mut board = Board::default();
    board.set_sets(vec![ClusterSet { name: "default".to_owned(), selection: SetSelection::Exclusive }]);
    board.set_bindings(vec![Binding { namespace: "ns".to_owned(), name: "default".to_owned() }]);
    let clusters = (0..CLUSTERS).map(cluster).map(|one| (one.name.clone(), Some(one)));
    board.set_clusters(clusters.collect::<Vec<(ClusterName, _)>>());
    let all = (0..CLUSTERS).map(|number| {
        let scores = scores(number, i64::try_from(number % 200).unwrap() - 100);
        ((scores.cluster.clone(), SCORE.to_owned()), Some(scores))
    });
    board.set_scores(all.collect());
    for number in 0..placements {
        let placement = placement(number);
        board.set_placement(placement.key.clone(), Some(placement));
    }
    assert_eq!(settle(&mut board), placements);
    board
}

/// Evaluates what was touched, with all that would have to be written; how many there were.
fn settle(board: &mut Board) -> usize {
    let touched = board.take_touched(now()).evaluate;
    for key in &touched {
        let placement = board.placement(key).unwrap();
        let evaluation = evaluate(placement, board.hub(), now());
        black_box(Desired::of(placement, board.hub(), &evaluation).changes(
            placement,
            board.hub(),
            &Report::default(),
            &BTreeMap::new(),
        ));
        board.evaluated(key, evaluation.again_at);
    }
    touched.len()
}

fn one(criterion: &mut Criterion) {
    let board = board(1);
    let placement = placement(0);
    criterion.bench_function("one Placement over 1000 clusters", |bench| {
        bench.iter(|| black_box(evaluate(&placement, board.hub(), now())));
    });
}

fn touched(criterion: &mut Criterion) {
    let mut board = board(PLACEMENTS);
    let mut turn = 0;
    let mut change = |board: &mut Board| {
        turn += 1;
        let scores = scores(7, 40 + turn % 2);
        board.set_scores(vec![((scores.cluster.clone(), SCORE.to_owned()), Some(scores))]);
    };
    criterion.bench_function("1000 Placements x 1000 clusters after one score", |bench| {
        bench.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for _ in 0..rounds {
                let begun = Instant::now();
                change(&mut board);
                assert_eq!(settle(&mut board), PLACEMENTS / 2, "only those that name the score");
                took += begun.elapsed();
            }
            took
        });
    });
    criterion.bench_function("a label that no Placement names", |bench| {
        bench.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for round in 0..rounds {
                let mut other = cluster(7);
                other.labels.insert("note".to_owned(), round.to_string());
                let begun = Instant::now();
                board.set_clusters(vec![(other.name.clone(), Some(other))]);
                assert_eq!(settle(&mut board), 0);
                took += begun.elapsed();
            }
            took
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).measurement_time(Duration::from_secs(3));
    targets = one, touched
}

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    daemon::measure();
}
