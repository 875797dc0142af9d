use super::*;
use crate::placement::{
    Evaluation, evaluate,
    hub::{PLACEMENT_LABEL, SetSelection, Taint},
    selector::LabelSelector,
    spec::{AddOnScore, Coordinate, Predicate, PrioritizerConfig},
};
use fedq_cel::value::Value;
use fedq_values::quantity::Quantity;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

fn name(text: &str) -> ClusterName {
    ClusterName::new(text).expect("a name")
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn cluster(text: &str, pairs: &[(&str, &str)]) -> ManagedCluster {
    ManagedCluster {
        name: name(text),
        labels: labels(pairs),
        claims: Labels::new(),
        taints: Vec::new(),
        allocatable: BTreeMap::new(),
        capacity: BTreeMap::new(),
        deleting: false,
        object: Value::from(&serde_json::json!({})),
        unreadable: Vec::new(),
    }
}

fn key(namespace: &str, name: &str) -> PlacementKey {
    PlacementKey { namespace: namespace.into(), name: name.into() }
}

fn add_on(resource: &str, score: &str) -> PrioritizerConfig {
    let add_on = AddOnScore { resource: resource.into(), score: score.into() };
    let coordinate = Coordinate { kind: "AddOn".to_owned(), built_in: String::new(), add_on: Some(add_on) };
    PrioritizerConfig { coordinate: Some(coordinate), weight: 1 }
}

fn scores(cluster: &str, values: &[(&str, i64)]) -> AddOnScores {
    AddOnScores {
        cluster: cluster.to_owned(),
        resource: "usage".to_owned(),
        scores: values.iter().map(|(name, value)| ((*name).into(), *value)).collect(),
        valid_until: None,
    }
}

/// Two clusters in set `all` which is bound in `ns`, and Placements: `plain` takes any, `labelled` looks at
/// `zone`, `scored` at a score, `allocatable` at amounts, `expressed` at anything; `elsewhere` has no set.
fn board() -> Board {
    let mut board = Board::default();
    board.set_sets(vec![ClusterSet {
        name: "all".to_owned(),
        selection: SetSelection::Labels(Some(LabelSelector::default())),
    }]);
    board.set_bindings(vec![Binding { namespace: "ns".to_owned(), name: "all".to_owned() }]);
    board.set_clusters(vec![
        (name("one"), Some(cluster("one", &[("zone", "a")]))),
        (name("two"), Some(cluster("two", &[("zone", "b")]))),
    ]);
    let mut put = |namespace: &str, name: &str, change: fn(&mut Placement)| {
        let mut placement = Placement::new(key(namespace, name));
        placement.prioritizer_mode = "Exact".to_owned();
        change(&mut placement);
        board.set_placement(placement.key.clone(), Some(placement));
    };
    put("ns", "plain", |_| {});
    put("ns", "labelled", |placement| {
        let labels = LabelSelector { match_labels: labels(&[("zone", "a")]), ..LabelSelector::default() };
        placement.predicates = vec![Predicate { labels, ..Predicate::default() }];
    });
    put("ns", "scored", |placement| placement.prioritizers = vec![add_on("usage", "gpu")]);
    put("ns", "allocatable", |placement| {
        let built_in = "ResourceAllocatableCPU".to_owned();
        let coordinate = Coordinate { kind: "BuiltIn".to_owned(), built_in, add_on: None };
        placement.prioritizers = vec![PrioritizerConfig { coordinate: Some(coordinate), weight: 1 }];
    });
    put("ns", "expressed", |placement| {
        let cel = vec!["managedCluster.scores('usage').exists(s, s.name == 'gpu')".to_owned()];
        placement.predicates = vec![Predicate { cel, ..Predicate::default() }];
    });
    put("elsewhere", "elsewhere", |placement| placement.prioritizers = vec![add_on("usage", "gpu")]);
    settle(&mut board);
    board
}

fn settle(board: &mut Board) -> Vec<String> {
    let touched = board.take_touched(now()).evaluate;
    for key in &touched {
        evaluate_one(board, key);
    }
    touched.into_iter().map(|key| key.name.to_string()).collect()
}

fn evaluate_one(board: &mut Board, key: &PlacementKey) -> Evaluation {
    let evaluation = evaluate(board.placement(key).expect("it is there"), board.hub(), now());
    board.evaluated(key, evaluation.again_at);
    evaluation
}

fn chosen(board: &mut Board, name: &str) -> Vec<String> {
    let evaluation = evaluate_one(board, &key("ns", name));
    evaluation.decisions(board.hub()).map(ToString::to_string).collect()
}

#[test]
fn a_label_touches_those_who_look_at_it() {
    let mut board = board();
    assert_eq!(settle(&mut board), [""; 0], "nothing changed");
    board.set_clusters(vec![(name("two"), Some(cluster("two", &[("zone", "b"), ("team", "x")])))]);
    assert_eq!(settle(&mut board), ["expressed"]);
    board.set_clusters(vec![(name("two"), Some(cluster("two", &[("zone", "a")])))]);
    assert_eq!(settle(&mut board), ["expressed", "labelled"]);
    assert_eq!(chosen(&mut board, "labelled"), ["one", "two"]);
}

#[test]
fn a_score_touches_those_who_name_it_and_expressions_that_ask_for_scores() {
    let mut board = board();
    let put = |board: &mut Board, values: &[(&str, i64)]| {
        board.set_scores(vec![(("two".to_owned(), "usage".to_owned()), Some(scores("two", values)))]);
    };
    put(&mut board, &[("gpu", 5)]);
    assert_eq!(settle(&mut board), ["expressed", "scored"]);
    assert_eq!(chosen(&mut board, "scored"), ["two", "one"]);
    put(&mut board, &[("gpu", 5), ("cpu", 7)]);
    assert_eq!(settle(&mut board), ["expressed"], "another score of the same object");
    put(&mut board, &[("gpu", 5), ("cpu", 7)]);
    assert_eq!(settle(&mut board), [""; 0], "the same again");
    board.set_scores(vec![(("two".to_owned(), "usage".to_owned()), None)]);
    assert_eq!(settle(&mut board), ["expressed", "scored"]);
}

#[test]
fn amounts_taints_and_clusters_that_come_and_go_touch_what_they_must() {
    let mut board = board();
    let mut larger = cluster("one", &[("zone", "a")]);
    larger.allocatable.insert("cpu".to_owned(), Quantity::from_nanos(1));
    larger.capacity.clone_from(&larger.allocatable);
    board.set_clusters(vec![(name("one"), Some(larger.clone()))]);
    assert_eq!(settle(&mut board), ["allocatable", "expressed"]);
    let taint = Taint {
        key: "k".to_owned(),
        value: String::new(),
        effect: "NoSelect".to_owned(),
        added: Some(now()),
    };
    larger.taints.push(taint);
    board.set_clusters(vec![(name("one"), Some(larger))]);
    let all = ["allocatable", "expressed", "labelled", "plain", "scored"];
    assert_eq!(settle(&mut board), all);
    assert_eq!(chosen(&mut board, "plain"), ["two"]);
    board.set_clusters(vec![(name("one"), None)]);
    assert_eq!(settle(&mut board), all);
    board.set_clusters(vec![(name("three"), Some(cluster("three", &[])))]);
    assert_eq!(settle(&mut board), all);
    assert_eq!(chosen(&mut board, "plain"), ["three", "two"]);
}

#[test]
fn a_placement_that_says_the_same_is_only_compared() {
    let mut board = board();
    let same = Placement::clone(board.placement(&key("ns", "scored")).expect("it is there"));
    board.set_placement(key("ns", "scored"), Some(same.clone()));
    let touched = board.take_touched(now());
    assert_eq!(touched.compare, BTreeSet::from([key("ns", "scored")]));
    assert!(touched.evaluate.is_empty());
    board.set_placement(key("ns", "scored"), Some(Placement { number_of_clusters: Some(1), ..same }));
    assert_eq!(settle(&mut board), ["scored"]);
}

#[test]
fn sets_and_bindings_touch_the_namespaces_that_are_bound() {
    let mut board = board();
    let binding = |namespace: &str| Binding { namespace: namespace.to_owned(), name: "all".to_owned() };
    board.set_bindings(vec![binding("ns"), binding("elsewhere")]);
    assert_eq!(settle(&mut board), ["elsewhere"]);
    board.set_sets(vec![ClusterSet { name: "all".to_owned(), selection: SetSelection::Labels(None) }]);
    assert_eq!(settle(&mut board).len(), 6);
    assert_eq!(chosen(&mut board, "plain"), [""; 0]);
}

#[test]
fn decisions_touch_their_own_placement_and_positions_follow_clusters() {
    let mut board = board();
    let decision = Decision {
        namespace: "ns".into(),
        name: "plain-decision-1".to_owned(),
        labels: labels(&[(PLACEMENT_LABEL, "plain")]),
        clusters: vec!["two".to_owned(), "gone".to_owned()],
    };
    board.set_decisions(vec![(decision.placement(), vec![decision.clone()])]);
    assert_eq!(settle(&mut board), ["plain"]);
    assert_eq!(board.hub().decided(&key("ns", "plain")), [1]);
    assert_eq!((board.hub().count("two"), board.hub().count("gone")), (1, 1));
    let shared = Arc::clone(board.hub());
    board.set_clusters(vec![(name("gone"), Some(cluster("gone", &[])))]);
    assert_eq!(board.hub().decided(&key("ns", "plain")), [0, 2]);
    assert_eq!(shared.decided(&key("ns", "plain")), [1], "what was shared stays as it was");
    board.set_decisions(vec![(decision.placement(), Vec::new())]);
    assert_eq!(board.hub().count("two"), 0);
    assert_eq!(board.hub().decided(&key("ns", "plain")), [0_usize; 0]);
}

#[test]
fn a_placement_is_due_when_a_toleration_ends() {
    let mut board = board();
    let mut placement = Placement::new(key("ns", "plain"));
    placement.tolerations = vec![crate::placement::spec::Toleration {
        key: "k".to_owned(),
        operator: "Exists".to_owned(),
        seconds: Some(30),
        ..Default::default()
    }];
    let mut tainted = cluster("one", &[]);
    tainted.taints = vec![Taint {
        key: "k".to_owned(),
        value: String::new(),
        effect: "NoSelect".to_owned(),
        added: Some(now()),
    }];
    board.set_placement(key("ns", "plain"), Some(placement));
    board.set_clusters(vec![(name("one"), Some(tainted))]);
    let decision = Decision {
        namespace: "ns".into(),
        name: "plain-decision-1".to_owned(),
        labels: labels(&[(PLACEMENT_LABEL, "plain")]),
        clusters: vec!["one".to_owned()],
    };
    board.set_decisions(vec![(decision.placement(), vec![decision])]);
    settle(&mut board);
    let end = now() + jiff::SignedDuration::from_secs(30);
    assert_eq!(board.next_at(), Some(end));
    assert_eq!(board.take_touched(now()), Touched::default());
    assert_eq!(board.take_touched(end).evaluate.len(), 1);
}
