//! What must hold of every Placement, tried on random hubs.

use std::{collections::BTreeMap, sync::Arc};

use proptest::{prelude::*, sample::select as one_of};

use super::{
    changes::{self, Change, Desired, Report},
    explain::{Outcome, explain},
    groups::MAX_DECISIONS,
    hub::{AddOnScores, Binding, ClusterSet, Decision, ManagedCluster, PLACEMENT_LABEL, SetSelection, Taint},
    round::{Unwritten, decide},
    selector::LabelSelector,
    spec::{
        AddOnScore, Coordinate, DecisionGroup, GroupSize, PlacementKey, Predicate, PrioritizerConfig,
        SpreadTerm, Toleration,
    },
    *,
};
use crate::queue::selector::Labels;
use fedq_cel::value::Value;
use fedq_values::quantity::Quantity;

const CLUSTERS: usize = 12;

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

/// The parts of a hub, so that they can be given in another order.
#[derive(Clone, Debug)]
struct Parts {
    clusters: Vec<ManagedCluster>,
    scores: Vec<AddOnScores>,
    decisions: Vec<Decision>,
}

impl Parts {
    fn hub(&self) -> Hub {
        let every = SetSelection::Labels(Some(LabelSelector::default()));
        let set = ClusterSet { name: "all".to_owned(), selection: every };
        let binding = Binding { namespace: "ns".to_owned(), name: "all".to_owned() };
        Hub::new(self.clusters.clone())
            .with_sets(vec![set], vec![binding])
            .with_scores(self.scores.clone())
            .with_decisions(self.decisions.clone())
    }

    fn reversed(&self) -> Self {
        let mut parts = self.clone();
        parts.clusters.reverse();
        parts.scores.reverse();
        parts.decisions.reverse();
        parts
    }
}

fn key(name: &str) -> PlacementKey {
    PlacementKey { namespace: "ns".into(), name: name.into() }
}

fn labels() -> impl Strategy<Value = Labels> {
    prop::collection::btree_map(one_of(vec!["env", "zone"]), one_of(vec!["a", "b", "c"]), 0..3).prop_map(
        |labels| labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    )
}

fn taints() -> impl Strategy<Value = Vec<Taint>> {
    let effect = one_of(vec!["NoSelect", "NoSelectIfNew", "PreferNoSelect"]);
    prop::collection::vec((one_of(vec!["k", "l"]), effect), 0..2).prop_map(|taints| {
        let taint = |(key, effect): (&str, &str)| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: effect.to_owned(),
            added: Some(now()),
        };
        taints.into_iter().map(taint).collect()
    })
}

fn managed_cluster(number: usize) -> impl Strategy<Value = ManagedCluster> {
    (labels(), taints(), prop::option::of(0..1000_i128), prop::bool::weighted(0.1)).prop_map(
        move |(labels, taints, cpu, deleting)| {
            let cpu = cpu.map(|cpu| ("cpu".to_owned(), Quantity::from_nanos(cpu * 1_000_000)));
            let json = serde_json::json!({"metadata": {"name": format!("c{number:02}"), "labels": labels}});
            ManagedCluster {
                name: ClusterName::new(&format!("c{number:02}")).expect("a cluster name"),
                labels,
                claims: Labels::new(),
                taints,
                allocatable: cpu.clone().into_iter().collect(),
                capacity: cpu.into_iter().collect(),
                deleting,
                object: Value::from(&json),
                unreadable: Vec::new(),
            }
        },
    )
}

fn decision(of: &'static str, number: usize) -> impl Strategy<Value = Decision> {
    prop::collection::btree_set(0..CLUSTERS, 0..6).prop_map(move |clusters| Decision {
        namespace: "ns".into(),
        name: format!("{of}-decision-{number}"),
        labels: Labels::from([(PLACEMENT_LABEL.to_owned(), of.to_owned())]),
        clusters: clusters.into_iter().map(|number| format!("c{number:02}")).collect(),
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    let clusters: Vec<_> = (0..CLUSTERS).map(|number| managed_cluster(number).boxed()).collect();
    let score = |number: usize| {
        (-100..=100_i64, prop::bool::weighted(0.2)).prop_map(move |(value, expired)| AddOnScores {
            cluster: format!("c{number:02}"),
            resource: "s".to_owned(),
            scores: vec![("v".into(), value)],
            valid_until: expired.then_some(Timestamp::MIN),
        })
    };
    let scores: Vec<_> = (0..CLUSTERS).step_by(2).map(|number| score(number).boxed()).collect();
    (clusters, scores, decision("p", 1), decision("q", 1), decision("q", 2))
        .prop_map(|(clusters, scores, a, b, c)| Parts { clusters, scores, decisions: vec![a, b, c] })
}

fn selector() -> impl Strategy<Value = LabelSelector> {
    labels().prop_map(|match_labels| LabelSelector { match_labels, match_expressions: Vec::new() })
}

fn prioritizer() -> impl Strategy<Value = PrioritizerConfig> {
    let built_in = one_of(vec!["Balance", "Steady", "ResourceAllocatableCPU", "ResourceAllocatableMemory"]);
    let built_in = built_in.prop_map(|name| Coordinate {
        kind: "BuiltIn".to_owned(),
        built_in: name.to_owned(),
        add_on: None,
    });
    let add_on = Just(Coordinate {
        kind: "AddOn".to_owned(),
        built_in: String::new(),
        add_on: Some(AddOnScore { resource: "s".into(), score: "v".into() }),
    });
    (prop_oneof![built_in, add_on], 0..=10_i32)
        .prop_map(|(coordinate, weight)| PrioritizerConfig { coordinate: Some(coordinate), weight })
}

/// A `decisionStrategy`.
fn strategy() -> impl Strategy<Value = (GroupSize, Vec<DecisionGroup>)> {
    let size = prop_oneof![
        (-1..5_i64).prop_map(GroupSize::Number),
        one_of(vec!["1%", "30%", "100%"]).prop_map(|text| GroupSize::Text(text.to_owned()))
    ];
    let group = selector().prop_map(|labels| DecisionGroup {
        name: "group".to_owned(),
        labels,
        claims: LabelSelector::default(),
    });
    (size, prop::collection::vec(group, 0..3))
}

fn placement() -> impl Strategy<Value = Placement> {
    let cel = one_of(vec![
        "managedCluster.metadata.labels.env == \"a\"",
        "has(managedCluster.metadata.labels.zone)",
        "managedCluster.scores(\"s\").exists(s, s.value > 0)",
        "[1,2,3].map(x, x)",
    ]);
    let predicate = (selector(), prop::collection::vec(cel, 0..2)).prop_map(|(labels, cel)| Predicate {
        labels,
        claims: LabelSelector::default(),
        cel: cel.into_iter().map(str::to_owned).collect(),
    });
    let toleration = one_of(vec!["k", "l"]).prop_map(|key| Toleration {
        key: key.to_owned(),
        operator: "Exists".to_owned(),
        ..Toleration::default()
    });
    let spread = any::<bool>().prop_map(|strict| SpreadTerm {
        key: "zone".to_owned(),
        is_claim: false,
        max_skew: 1,
        strict,
    });
    let options = (prop::option::of(0..50_u8), any::<bool>(), any::<bool>());
    (
        prop::option::of(0..14_i32),
        prop::collection::vec(predicate, 0..3),
        prop::collection::vec(toleration, 0..2),
        (one_of(vec!["Exact", "Additive", ""]), prop::collection::vec(prioritizer(), 0..4)),
        strategy(),
        (prop::collection::vec(spread, 0..2), options),
    )
        .prop_map(
            |(number, predicates, tolerations, (mode, prioritizers), (size, groups), (spread, options))| {
                let (hysteresis, spread_on, expiring) = options;
                let mut annotations = BTreeMap::new();
                if let Some(points) = hysteresis {
                    annotations.insert(options::HYSTERESIS.to_owned(), points.to_string());
                }
                annotations.insert(options::SPREAD.to_owned(), spread_on.to_string());
                annotations.insert(options::EXPIRING_SCORES.to_owned(), expiring.to_string());
                Placement {
                    annotations,
                    number_of_clusters: number,
                    predicates,
                    tolerations,
                    prioritizer_mode: mode.to_owned(),
                    prioritizers,
                    spread,
                    group_size: size,
                    groups,
                    ..Placement::new(key("p"))
                }
            },
        )
}

/// The hub once the decisions are written.
fn written(parts: &Parts, placement: &Placement, evaluation: &Evaluation, hub: &Hub) -> Parts {
    let mut parts = parts.clone();
    parts.decisions.retain(|decision| decision.placement() != Some(placement.key.clone()));
    for slice in evaluation.groups.slices(placement, hub) {
        parts.decisions.push(Decision {
            namespace: placement.key.namespace.clone(),
            labels: changes::labels(placement, &slice),
            name: slice.name,
            clusters: slice.clusters.iter().map(ToString::to_string).collect(),
        });
    }
    parts
}

/// What the API server has once this one write went through; `None` where another one has to come first.
fn apply(parts: &Parts, placement: &Placement, change: &Change) -> Option<Parts> {
    let mut parts = parts.clone();
    let found = |name: &String| parts.decisions.iter().position(|decision| decision.name == *name);
    match change {
        Change::Create { name, labels } => parts.decisions.push(Decision {
            namespace: placement.key.namespace.clone(),
            name: name.clone(),
            labels: labels.clone(),
            clusters: Vec::new(),
        }),
        Change::Label { name, labels } => {
            let at = found(name)?;
            parts.decisions[at].labels.extend(labels.clone());
        }
        Change::Decide { name, clusters } => {
            let at = found(name)?;
            parts.decisions[at].clusters = clusters.iter().map(ToString::to_string).collect();
        }
        Change::Delete { name } => {
            let at = found(name)?;
            parts.decisions.remove(at);
        }
        Change::Report(_) => return None,
    }
    Some(parts)
}

/// Writes until the Placement rests; `None` where it never does.
fn settled(parts: Parts, placement: &Placement) -> Option<(Parts, Vec<ClusterName>)> {
    let mut parts = parts;
    let mut last = None;
    for _ in 0..=CLUSTERS {
        let hub = parts.hub();
        let evaluation = evaluate(placement, &hub, now());
        let mut chosen: Vec<_> = evaluation.decisions(&hub).cloned().collect();
        parts = written(&parts, placement, &evaluation, &hub);
        chosen.sort();
        if last.as_ref() == Some(&chosen) {
            return Some((parts, chosen));
        }
        last = Some(chosen);
    }
    None
}

fn report(changes: Vec<Change>) -> Option<Report> {
    changes.into_iter().find_map(|change| match change {
        Change::Report(report) => Some(report),
        Change::Create { .. } | Change::Label { .. } | Change::Decide { .. } | Change::Delete { .. } => None,
    })
}

proptest! {
    #[test]
    fn the_order_of_the_input_is_irrelevant(parts in parts(), placement in placement()) {
        let evaluation = evaluate(&placement, &parts.hub(), now());
        prop_assert_eq!(&evaluation, &evaluate(&placement, &parts.reversed().hub(), now()));
    }

    #[test]
    fn never_more_clusters_than_wanted_and_only_those_that_passed(parts in parts(), placement in placement()) {
        let hub = parts.hub();
        let evaluation = evaluate(&placement, &hub, now());
        let chosen = &evaluation.chosen;
        if let Some(wanted) = placement.number_of_clusters {
            prop_assert!(chosen.len() <= usize::try_from(wanted).expect("not negative"));
            prop_assert_eq!(evaluation.unscheduled, i64::from(wanted) - i64::try_from(chosen.len()).expect("few"));
        }
        let passed = &evaluation.filtered.last().expect("the filters ran").passed;
        prop_assert!(chosen.iter().all(|at| passed.contains(at)));
        prop_assert!(chosen.iter().all(|at| !hub.clusters()[*at].deleting));
    }

    #[test]
    fn slices_are_the_decisions_once_each(parts in parts(), placement in placement()) {
        let hub = parts.hub();
        let evaluation = evaluate(&placement, &hub, now());
        let slices = evaluation.groups.slices(&placement, &hub);
        let mut sliced: Vec<_> = slices.iter().flat_map(|slice| slice.clusters.clone()).collect();
        let mut decided: Vec<_> = evaluation.decisions(&hub).cloned().collect();
        sliced.sort();
        decided.sort();
        prop_assert_eq!(sliced, decided);
        prop_assert!(!slices.is_empty());
        prop_assert!(slices.iter().all(|slice| slice.clusters.len() <= MAX_DECISIONS));
        // Readers of the decisions stop at a gap in the indices.
        let indices: Vec<_> = slices.iter().map(|slice| slice.group).collect();
        prop_assert!(indices[0] == 0 && indices.windows(2).all(|pair| pair[1] - pair[0] <= 1));
    }

    #[test]
    fn once_written_nothing_is_left_to_write(parts in parts(), placement in placement()) {
        let hub = parts.hub();
        let evaluation = evaluate(&placement, &hub, now());
        let reported = report(Desired::of(&placement, &hub, &evaluation).changes(&placement, &hub, &Report::default(), &Labels::new()))
            .expect("a first report");
        let hub = written(&parts, &placement, &evaluation, &hub).hub();
        prop_assert_eq!(Desired::of(&placement, &hub, &evaluation).changes(&placement, &hub, &reported, &Labels::new()), Vec::new());
    }

    #[test]
    fn with_steady_decisions_come_to_rest(parts in parts(), placement in placement()) {
        let mut placement = placement;
        placement.prioritizer_mode = "Additive".to_owned();
        placement.prioritizers.retain(|config| {
            config.coordinate.as_ref().is_none_or(|coordinate| coordinate.built_in != "Steady")
        });
        // Spreading is by place first: the cluster of a place may give way to one that evens it out.
        placement.spread.clear();
        let mut hub = parts.hub();
        let mut last = evaluate(&placement, &hub, now());
        // A cluster that was tolerated for having been decided on goes for good once it is not, and takes along
        // what others are scored against: no more often than there are clusters.
        for _ in 0..=CLUSTERS {
            hub = written(&parts, &placement, &last, &hub).hub();
            let next = evaluate(&placement, &hub, now());
            if next.chosen == last.chosen {
                return Ok(());
            }
            last = next;
        }
        prop_assert!(false, "it goes on for ever: {:?}", last.chosen);
    }

    /// Whatever is written first, and wherever the daemon is killed in between.
    #[test]
    fn regrouping_alone_keeps_the_chosen_clusters(
        parts in parts(),
        placement in placement(),
        (group_size, groups) in strategy(),
        picks in prop::collection::vec((any::<prop::sample::Index>(), prop::bool::weighted(0.2)), 100),
    ) {
        let Some((mut parts, chosen)) = settled(parts, &placement) else { return Ok(()) };
        let placement = Arc::new(Placement { group_size, groups, ..placement });
        let mut unwritten = Unwritten::default();
        for (pick, is_killed) in picks {
            let hub = Arc::new(parts.hub());
            let input = unwritten.over(&hub);
            let decided = decide(&[Arc::clone(&placement)], &input, now()).remove(0);
            let mut best = decided.best.to_vec();
            best.sort();
            prop_assert_eq!(&best, &chosen);
            let changes = decided.desired.changes(&placement, &hub, &Report::default(), &Labels::new());
            unwritten.set(&placement.key, decided.desired.decisions(&placement));
            let due = changes::due(changes);
            let possible: Vec<_> = due.iter().filter_map(|change| apply(&parts, &placement, change)).collect();
            if possible.is_empty() {
                prop_assert!(matches!(due[..], [Change::Report(_)]), "{:?} is left to write", due);
                return Ok(());
            }
            parts = possible[pick.index(possible.len())].clone();
            let decided = parts.hub().decided_names(&placement.key);
            for cluster in &chosen {
                prop_assert!(decided.iter().any(|name| name == cluster.as_str()), "{} is in no decision", cluster);
            }
            if is_killed {
                unwritten = Unwritten::default();
            }
        }
        prop_assert!(false, "it goes on writing");
    }

    /// By the controller, by whoever simulates or explains, and of Placements that balance against it.
    #[test]
    fn what_is_half_written_is_evaluated_as_if_it_were_written(
        parts in parts(),
        (placement, other) in (placement(), placement()),
        of_itself in any::<bool>(),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let hub = Arc::new(parts.hub());
        let decided = decide(&[Arc::new(placement.clone())], &hub, now()).remove(0);
        let whole = written(&parts, &placement, &evaluate(&placement, &hub, now()), &hub).hub();
        let mut partly = parts;
        for pick in picks {
            let changes = decided.desired.changes(&placement, &partly.hub(), &Report::default(), &Labels::new());
            let possible: Vec<_> = changes.iter().filter_map(|change| apply(&partly, &placement, change)).collect();
            if !possible.is_empty() {
                partly = possible[pick.index(possible.len())].clone();
            }
        }
        let mut unwritten = Unwritten::default();
        unwritten.set(&placement.key, decided.desired.decisions(&placement));
        let input = unwritten.over(&Arc::new(partly.hub()));
        let name = if of_itself { "p" } else { "q" };
        let asked = Arc::new(Placement { key: key(name), ..other });
        let simulated = evaluate(&asked, &input, now());
        prop_assert_eq!(&simulated, &evaluate(&asked, &whole, now()));
        let by_controller = decide(&[Arc::clone(&asked)], &input, now()).remove(0);
        prop_assert_eq!(by_controller.best.to_vec(), simulated.decisions(&input).cloned().collect::<Vec<_>>());
        prop_assert_eq!(by_controller.desired, Desired::of(&asked, &input, &simulated));
    }

    #[test]
    fn every_cluster_is_explained(parts in parts(), placement in placement()) {
        let hub = parts.hub();
        let evaluation = evaluate(&placement, &hub, now());
        let explained = explain(&hub, &evaluation);
        prop_assert_eq!(explained.clusters.len(), CLUSTERS);
        let chosen = explained.clusters.iter().take_while(|row| matches!(row.outcome, Outcome::Chosen { .. }));
        let names: Vec<_> = chosen.map(|row| row.cluster.clone()).collect();
        prop_assert_eq!(names, evaluation.decisions(&hub).cloned().collect::<Vec<_>>());
        for row in &explained.clusters {
            if let Some(total) = row.total {
                let sum: i64 = row.scores.iter().zip(&explained.prioritizers)
                    .map(|(score, prioritizer)| score.unwrap_or(0) * i64::from(prioritizer.weight)).sum();
                prop_assert_eq!(total, sum);
            }
        }
    }
}

#[test]
fn hostile_expressions_cost_a_placement_a_bounded_amount() {
    let cluster = |number: usize| ManagedCluster {
        name: ClusterName::new(&format!("c{number}")).expect("a cluster name"),
        labels: Labels::new(),
        claims: Labels::new(),
        taints: Vec::new(),
        allocatable: BTreeMap::new(),
        capacity: BTreeMap::new(),
        deleting: false,
        object: Value::from(&serde_json::json!({})),
        unreadable: Vec::new(),
    };
    let parts =
        Parts { clusters: (0..300).map(cluster).collect(), scores: Vec::new(), decisions: Vec::new() };
    let list = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = |inner: &str, depth: usize| {
        (0..depth).fold(inner.to_owned(), |inner, at| format!("{list}.all(v{at},{inner})"))
    };
    let predicate = Predicate { cel: vec![nested("true", 8)], ..Predicate::default() };
    let placement = Placement { predicates: vec![predicate], ..Placement::new(key("p")) };
    let evaluation = evaluate(&placement, &parts.hub(), now());
    let misconfigured = evaluation.conditions.misconfigured;
    assert!(
        misconfigured.holds && misconfigured.message.contains("CEL expressions take more than"),
        "{misconfigured:?}"
    );
    assert_eq!(evaluation.chosen, Vec::<usize>::new());
}
