//! Runs every `scenarios/placement/*.yaml`: a Placement, clusters, sets, scores and decisions in; what
//! the file expects of the evaluation is compared, nothing else.
//!
//! Most files are the cases of OCM's own tests (`pkg/placement` of open-cluster-management.io/ocm
//! v1.2.0), told as data: `source` is the file under that folder, `case` the name it has there.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use fedq_cel::{Program, value::Value as CelValue};
use fedq_domain::placement::{
    Evaluation, Writer,
    changes::{Change, Desired},
    conditions::Condition,
    evaluate,
    hub::{Decision, Hub, ManagedCluster},
    predicates::{self, Budget},
    spec::Placement,
    writer,
};
use fedq_k8s::{
    read::ocm as read,
    types::{
        meta::{Meta, MetaOnly},
        ocm,
    },
};
use jiff::Timestamp;
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Scenario {
    #[serde(rename = "source")]
    _source: String,
    #[serde(rename = "case")]
    _case: String,
    #[serde(default, rename = "note")]
    _note: String,
    #[serde(default = "new_year")]
    now: Timestamp,
    /// The Placement's name.
    #[serde(default = "placement1")]
    named: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    placement: ocm::PlacementSpec,
    /// Left out: one set that has every cluster.
    sets: Option<BTreeMap<String, ocm::SetSelector>>,
    /// Names of bindings; left out: one for each set.
    bound: Option<Vec<String>>,
    #[serde(default)]
    clusters: BTreeMap<String, Cluster>,
    /// So many more clusters without anything: `cluster1`, `cluster2`…
    #[serde(default)]
    many: usize,
    /// By `cluster/resource`.
    #[serde(default)]
    scores: BTreeMap<String, Scores>,
    #[serde(default)]
    decisions: BTreeMap<String, Decided>,
    #[serde(default)]
    reported: ocm::PlacementStatus,
    #[serde(default)]
    ocm_runs: bool,
    cel: Option<Cel>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Cluster {
    Some(Box<ClusterParts>),
    /// `none`: no object at all.
    Word(String),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterParts {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    set: Option<String>,
    #[serde(default)]
    claims: BTreeMap<String, String>,
    /// `key=value:effect@time`
    #[serde(default)]
    taints: Vec<String>,
    /// `allocatable/capacity`
    cpu: Option<String>,
    memory: Option<String>,
    #[serde(default)]
    deleting: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Scores {
    scores: BTreeMap<String, i64>,
    valid_until: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decided {
    /// The Placement it is labelled with.
    of: Option<String>,
    clusters: Vec<String>,
    group: Option<String>,
    index: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cel {
    expressions: Vec<String>,
    budget: u64,
}

/// `none` stands for nothing where nothing is expected.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expect {
    bound: Option<Vec<String>>,
    sets: Option<Vec<String>>,
    candidates: Option<Vec<String>>,
    /// By filter: the clusters that passed. A filter that is not named is not looked at, none at all
    /// means that none came to run.
    filtered: Option<BTreeMap<String, Vec<String>>>,
    weights: Option<BTreeMap<String, i32>>,
    /// By prioritizer. Those that are not named are not looked at, none at all means that none scored.
    scores: Option<BTreeMap<String, BTreeMap<String, i64>>>,
    totals: Option<BTreeMap<String, i64>>,
    chosen: Option<Vec<String>>,
    unscheduled: Option<i64>,
    /// `plugin:message`
    misconfigured: Option<String>,
    misconfigured_condition: Option<String>,
    satisfied: Option<String>,
    selected: Option<usize>,
    groups: Option<Vec<Group>>,
    reported_groups: Option<Vec<ReportedGroup>>,
    slices: Option<Vec<Slice>>,
    changes: Option<Vec<String>>,
    again: Option<String>,
    warning: Option<String>,
    claims: Option<BTreeMap<String, BTreeMap<String, String>>>,
    writer: Option<String>,
    cel: Option<ExpectCel>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    clusters: Vec<String>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ReportedGroup {
    index: usize,
    name: String,
    decisions: Vec<String>,
    clusters: usize,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Slice {
    name: String,
    group: usize,
    group_name: String,
    clusters: Vec<String>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ExpectCel {
    holds: Option<bool>,
    cost: Option<u64>,
    refused: Option<String>,
}

fn new_year() -> Timestamp {
    "2022-01-01T00:00:00Z".parse().unwrap()
}

fn placement1() -> String {
    "placement1".to_owned()
}

const NAMESPACE: &str = "ns1";
const PREFIX: &str = "cluster.open-cluster-management.io";

pub fn trials() -> Vec<Trial> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios/placement");
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let trial = |path: PathBuf| {
        let name = format!("placement::{}", path.file_stem().unwrap().to_string_lossy());
        Trial::test(name, move || run(&path))
    };
    files.into_iter().map(trial).collect()
}

fn run(path: &Path) -> Result<(), Failed> {
    let scenario: Scenario = serde_saphyr::from_str(&fs::read_to_string(path)?)?;
    let (placement, hub) = (placement(&scenario), hub(&scenario));
    let evaluation = evaluate(&placement, &hub, scenario.now);
    let reported = read::report(&object(&scenario));
    let mut compared = Compared::default();
    compared.stages(&scenario.expect, &evaluation, &hub);
    compared.conditions(&scenario.expect, &evaluation);
    compared.output(&scenario.expect, &placement, &hub, &evaluation);
    if let Some(expected) = &scenario.expect.changes {
        let found: Vec<_> = Desired::of(&placement, &hub, &evaluation)
            .changes(&placement, &hub, &reported, &BTreeMap::new())
            .iter()
            .map(change_text)
            .collect();
        compared.check("changes", expected, &found);
    }
    if let Some(expected) = &scenario.expect.claims {
        let claims =
            |cluster: &std::sync::Arc<ManagedCluster>| (cluster.name.to_string(), cluster.claims.clone());
        compared.check("claims", expected, &hub.clusters().iter().map(claims).collect());
    }
    if let Some(expected) = &scenario.expect.writer {
        let found = match writer(&placement, scenario.ocm_runs, false) {
            Writer::Other => "other",
            Writer::Fedq => "fedq",
            Writer::Ocm => "ocm",
        };
        compared.check("writer", expected, &found.to_owned());
    }
    if let (Some(cel), Some(expected)) = (&scenario.cel, &scenario.expect.cel) {
        compared.check("cel", expected, &evaluate_cel(cel, &hub));
    }
    compared.finish()
}

fn object(scenario: &Scenario) -> ocm::Placement {
    let metadata = Meta {
        name: scenario.named.clone(),
        namespace: Some(NAMESPACE.to_owned()),
        annotations: scenario.annotations.clone(),
        ..Meta::default()
    };
    ocm::Placement { metadata, spec: scenario.placement.clone(), status: scenario.reported.clone() }
}

fn placement(scenario: &Scenario) -> Placement {
    read::placement(&object(scenario))
}

fn hub(scenario: &Scenario) -> Hub {
    let mut clusters: Vec<ManagedCluster> =
        scenario.clusters.iter().map(|(name, cluster)| managed_cluster(name, cluster)).collect();
    let none = Cluster::Some(Box::default());
    clusters.extend((1..=scenario.many).map(|number| managed_cluster(&format!("cluster{number}"), &none)));
    let sets = scenario.sets.clone().unwrap_or_else(every_cluster);
    let set = |(name, selector): (&String, &ocm::SetSelector)| {
        let metadata = Meta { name: name.clone(), ..Meta::default() };
        let spec = ocm::ManagedClusterSetSpec { cluster_selector: selector.clone(), ..Default::default() };
        read::cluster_set(&ocm::ManagedClusterSet { metadata, spec })
    };
    let bound = scenario.bound.clone().unwrap_or_else(|| sets.keys().cloned().collect());
    let binding = |name: &String| {
        let metadata = Meta { name: name.clone(), namespace: Some(NAMESPACE.to_owned()), ..Meta::default() };
        read::binding(&MetaOnly { metadata })
    };
    Hub::new(clusters)
        .with_sets(sets.iter().map(set).collect(), bound.iter().map(binding).collect())
        .with_scores(scenario.scores.iter().map(scores).collect())
        .with_decisions(scenario.decisions.iter().map(decision).collect())
}

fn every_cluster() -> BTreeMap<String, ocm::SetSelector> {
    let selector = json!({"selectorType": "LabelSelector", "labelSelector": {}});
    BTreeMap::from([("all".to_owned(), serde_json::from_value(selector).unwrap())])
}

fn managed_cluster(name: &str, cluster: &Cluster) -> ManagedCluster {
    let empty = ClusterParts::default();
    let (parts, exists) = match cluster {
        Cluster::Some(parts) => (parts.as_ref(), true),
        Cluster::Word(word) => {
            assert_eq!(word, "none");
            (&empty, false)
        }
    };
    let mut labels = parts.labels.clone();
    if let Some(set) = &parts.set {
        labels.insert(format!("{PREFIX}/clusterset"), set.clone());
    }
    let mut object = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": parts.taints.iter().map(|text| taint(text)).collect::<Vec<_>>()},
        "status": {
            "clusterClaims": parts.claims.iter()
                .map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>(),
        },
    });
    if parts.deleting {
        object["metadata"]["deletionTimestamp"] = json!("2021-12-31T00:00:00Z");
    }
    for (resource, amounts) in [("cpu", &parts.cpu), ("memory", &parts.memory)] {
        if let Some((allocatable, capacity)) = amounts.as_ref().map(|text| text.split_once('/').unwrap()) {
            object["status"]["allocatable"][resource] = json!(allocatable);
            object["status"]["capacity"][resource] = json!(capacity);
        }
    }
    let mut cluster = read::managed_cluster(&ocm::ManagedCluster::try_from(object).unwrap()).unwrap();
    if !exists {
        cluster.object = CelValue::from(&json!({}));
    }
    cluster
}

fn taint(text: &str) -> Value {
    let (text, added) = text.split_once('@').map_or((text, None), |(text, added)| (text, Some(added)));
    let (pair, effect) = text.rsplit_once(':').unwrap();
    let (key, value) = pair.split_once('=').unwrap();
    json!({"key": key, "value": value, "effect": effect, "timeAdded": added})
}

fn scores((name, scores): (&String, &Scores)) -> fedq_domain::placement::hub::AddOnScores {
    let (cluster, resource) = name.split_once('/').unwrap();
    let metadata = Meta { name: resource.to_owned(), namespace: Some(cluster.to_owned()), ..Meta::default() };
    let item = |(name, value): (&String, &i64)| ocm::ScoreItem { name: name.clone(), value: *value };
    let status = ocm::AddOnPlacementScoreStatus {
        conditions: Vec::new(),
        scores: scores.scores.iter().map(item).collect(),
        valid_until: scores.valid_until,
    };
    read::scores(&ocm::AddOnPlacementScore { metadata, status })
}

fn decision((name, decided): (&String, &Decided)) -> Decision {
    let labels = [
        (format!("{PREFIX}/placement"), decided.of.clone()),
        (format!("{PREFIX}/decision-group-name"), decided.group.clone()),
        (format!("{PREFIX}/decision-group-index"), decided.index.map(|index| index.to_string())),
    ];
    let metadata = Meta {
        name: name.clone(),
        namespace: Some(NAMESPACE.to_owned()),
        labels: labels.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
        ..Meta::default()
    };
    let decision =
        |cluster: &String| ocm::ClusterDecision { cluster_name: cluster.clone(), reason: String::new() };
    let status = ocm::PlacementDecisionStatus { decisions: decided.clusters.iter().map(decision).collect() };
    read::decision(&ocm::PlacementDecision { metadata, status })
}

fn evaluate_cel(cel: &Cel, hub: &Hub) -> ExpectCel {
    let compiled = cel.expressions.iter().map(|text| Program::compile(text)).collect::<Result<Vec<_>, _>>();
    match compiled {
        Err(error) => ExpectCel { refused: Some(error.to_string()), ..ExpectCel::default() },
        Ok(programs) => {
            let budget = Budget { cost: cel.budget, work: 1_000_000 };
            let found = predicates::evaluate_all(&programs, &hub.clusters()[0], hub, budget);
            ExpectCel { holds: Some(found.holds), cost: Some(found.cost), refused: None }
        }
    }
}

fn change_text(change: &Change) -> String {
    match change {
        Change::Create { name, .. } => format!("create {name}"),
        Change::Label { name, .. } => format!("label {name}"),
        Change::Decide { name, clusters } => format!("decide {name} {}", clusters.len()),
        Change::Delete { name } => format!("delete {name}"),
        Change::Report(_) => "report".to_owned(),
    }
}

#[derive(Default)]
struct Compared {
    looked_at: usize,
    wrong: String,
}

impl Compared {
    fn check<T: std::fmt::Debug + PartialEq>(&mut self, what: &str, expected: &T, found: &T) {
        self.looked_at += 1;
        if expected != found {
            writeln!(self.wrong, "{what}\n  expected {expected:?}\n  found    {found:?}").unwrap();
        }
    }

    fn maybe<T: std::fmt::Debug + PartialEq>(&mut self, what: &str, expected: Option<&T>, found: &T) {
        if let Some(expected) = expected {
            self.check(what, expected, found);
        }
    }

    fn stages(&mut self, expect: &Expect, evaluation: &Evaluation, hub: &Hub) {
        let names = |of: &[usize]| -> Vec<String> {
            of.iter().map(|at| hub.clusters()[*at].name.to_string()).collect()
        };
        self.maybe("bound", expect.bound.as_ref(), &evaluation.candidates.bound);
        self.maybe("sets", expect.sets.as_ref(), &evaluation.candidates.sets);
        self.maybe("candidates", expect.candidates.as_ref(), &names(&evaluation.candidates.clusters));
        if let Some(expected) = &expect.filtered {
            let filtered = evaluation.filtered.iter();
            let wanted = filtered.filter(|step| expected.is_empty() || expected.contains_key(step.filter));
            self.check(
                "filtered",
                expected,
                &wanted.map(|step| (step.filter.to_owned(), names(&step.passed))).collect(),
            );
        }
        let prioritized = &evaluation.prioritized;
        if let Some(expected) = &expect.weights {
            let weights = prioritized.prioritizers.iter().map(|scored| (scored.name.clone(), scored.weight));
            self.check("weights", expected, &weights.collect());
        }
        let clusters = names(&prioritized.clusters);
        if let Some(expected) = &expect.scores {
            let wanted = prioritized
                .prioritizers
                .iter()
                .filter(|scored| expected.is_empty() || expected.contains_key(&scored.name));
            let scores = wanted.map(|scored| {
                let scores = clusters.iter().cloned().zip(&scored.scores);
                (scored.name.clone(), scores.filter_map(|(name, score)| Some((name, (*score)?))).collect())
            });
            self.check("scores", expected, &scores.collect());
        }
        if let Some(expected) = &expect.totals {
            let totals = clusters.into_iter().zip(prioritized.totals.iter().copied());
            self.check("totals", expected, &totals.collect());
        }
        self.maybe("chosen", expect.chosen.as_ref(), &names(&evaluation.chosen));
        self.maybe("unscheduled", expect.unscheduled.as_ref(), &evaluation.unscheduled);
    }

    fn conditions(&mut self, expect: &Expect, evaluation: &Evaluation) {
        let conditions = &evaluation.conditions;
        let none = || "none".to_owned();
        let misconfigured = &conditions.misconfigured;
        let problem = if misconfigured.holds { misconfigured.message.clone() } else { none() };
        self.maybe("misconfigured", expect.misconfigured.as_ref(), &problem);
        let text = |condition: &Condition| {
            let status = if condition.holds { "True" } else { "False" };
            format!("{status} {} {}", condition.reason, condition.message)
        };
        self.maybe("misconfigured", expect.misconfigured_condition.as_ref(), &text(misconfigured));
        if let Some(expected) = &expect.satisfied {
            // The message may be left out.
            let found = text(&conditions.satisfied);
            let length = if expected.matches(' ').count() == 1 { expected.len() } else { found.len() };
            self.check("satisfied", expected, &found[..length.min(found.len())].to_owned());
        }
        let again = evaluation.again_at.map_or_else(none, |at| at.to_string());
        self.maybe("again", expect.again.as_ref(), &again);
        self.maybe("warning", expect.warning.as_ref(), &evaluation.warning.clone().unwrap_or_else(none));
    }

    fn output(&mut self, expect: &Expect, placement: &Placement, hub: &Hub, evaluation: &Evaluation) {
        let name = |at: &usize| hub.clusters()[*at].name.to_string();
        let groups = evaluation.groups.groups.iter().map(|group| Group {
            name: group.name.clone(),
            clusters: group.clusters.iter().map(name).collect(),
        });
        self.maybe("groups", expect.groups.as_ref(), &groups.collect());
        let slices = evaluation.groups.slices(placement, hub).into_iter().map(|slice| Slice {
            name: slice.name,
            group: slice.group,
            group_name: slice.group_name,
            clusters: slice.clusters.iter().map(ToString::to_string).collect(),
        });
        self.maybe("slices", expect.slices.as_ref(), &slices.collect());
        let none = fedq_domain::placement::changes::Report::default();
        let report = Desired::of(placement, hub, evaluation)
            .changes(placement, hub, &none, &BTreeMap::new())
            .into_iter()
            .find_map(|change| match change {
                Change::Report(report) => Some(report),
                Change::Create { .. }
                | Change::Label { .. }
                | Change::Decide { .. }
                | Change::Delete { .. } => None,
            });
        let report = report.unwrap_or_default();
        self.maybe("selected", expect.selected.as_ref(), &report.selected);
        let groups = report.groups.into_iter().map(|group| ReportedGroup {
            index: group.index,
            name: group.name,
            decisions: group.decisions,
            clusters: group.clusters,
        });
        self.maybe("reportedGroups", expect.reported_groups.as_ref(), &groups.collect());
    }

    fn finish(self) -> Result<(), Failed> {
        assert!(0 < self.looked_at, "the file expects nothing");
        if self.wrong.is_empty() { Ok(()) } else { Err(self.wrong.into()) }
    }
}
