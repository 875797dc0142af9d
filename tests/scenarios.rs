//! Runs every `scenarios/*.yaml`: nodes, claims and queues in, the plan and its report out.
//! `placement` runs those of its folder.
//!
//! `UPDATE_EXPECT=1 cargo test --test scenarios` rewrites what the files expect.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use fedq_domain::{
    capacity::{Flavor, Headroom, MaxCapacity, NodeFacts, NodeTable, ResourceFilter, TaintFacts},
    quota::{
        Assignment, ClaimInput, ClusterInput, ClusterPlan, ClusterReport, Dispatch, HubQueueInput,
        HubQueuePlan, ManagedCell, Mode, PlanInput, QuotaPlace, WorkerCell, WorkerQueueInput, plan,
    },
    resource_groups::{FlavorQuotas, Quota, ResourceGroup, ResourceGroups, ResourceQuota, Written},
    resources::{Aliases, Cell, FlavorResource, Resources},
};
use fedq_values::{
    ids::{ClusterName, CohortName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;

#[path = "scenarios/placement.rs"]
mod placement;

const EXPECT: &str = "\nexpect: |\n";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Scenario {
    /// What the scenario shows; for the reader.
    #[serde(rename = "why")]
    _why: String,
    /// Labels of each flavor's nodes.
    flavors: BTreeMap<FlavorName, BTreeMap<String, String>>,
    /// What each may have in all, as the annotation has it.
    #[serde(default)]
    max_capacity: BTreeMap<FlavorName, String>,
    clusters: BTreeMap<ClusterName, Cluster>,
    #[serde(default)]
    queues: BTreeMap<QueueName, Queue>,
    #[serde(default)]
    expect: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Cluster {
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    cordoned: bool,
    nodes: Option<Vec<Nodes>>,
    /// As they were last known.
    #[serde(default)]
    nodes_are_old: bool,
    #[serde(default)]
    headroom: Quantities,
    #[serde(default)]
    headroom_percent: u8,
    #[serde(default)]
    ignore_foreign: bool,
    #[serde(default)]
    caps: Quantities,
    #[serde(default)]
    claim: Vec<Claimed>,
    #[serde(default)]
    queues: BTreeMap<QueueName, WorkerQueue>,
    /// `queue/flavor/resource: amount`; left out: nothing yet; `unknown` as a key: not remembered; `mayLag` as
    /// a key: from before a restart.
    #[serde(default)]
    last_terms: Quantities,
}

type Quantities = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// `key=value:effect`
    #[serde(default)]
    taint: Option<String>,
    #[serde(default)]
    unusable: bool,
    count: usize,
    has: Quantities,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claimed {
    queue: QueueName,
    flavor: FlavorName,
    gets: Quantities,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WorkerQueue {
    #[serde(default)]
    foreign: bool,
    #[serde(default)]
    inactive: bool,
    #[serde(default)]
    unsettled: bool,
    #[serde(default)]
    cohort: Option<CohortName>,
    /// `flavor/resource: "nominal"` and further words: `reserved=`, `lending=`, `borrowing=`, `direct=`.
    #[serde(default)]
    cells: Quantities,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Queue {
    #[serde(default)]
    groups: Vec<Group>,
    #[serde(default)]
    cohort: Option<CohortName>,
    /// `flavor/resource: "base"` and further words: `kept=`, `written=`.
    #[serde(default)]
    managed: Quantities,
    /// `flavor/resource`: what the hub runs of a stopped queue.
    #[serde(default)]
    still_held: Quantities,
    /// `flavor/resource`: what it had, when fedqd started, of clusters that were not read since.
    #[serde(default)]
    unread: Quantities,
    /// Left out: the hub runs the queue's workloads itself.
    clusters: Option<BTreeSet<ClusterName>>,
    #[serde(default)]
    automated: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    covers: Vec<ResourceName>,
    flavors: Vec<FlavorName>,
    /// `flavor/resource: "nominal"` and further words: `lending=`, `borrowing=`.
    #[serde(default)]
    cells: Quantities,
}

fn main() {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let trial = |path: std::path::PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Trial::test(name, move || run(&path))
    };
    let trials = files.into_iter().map(trial).chain(placement::trials()).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn run(path: &Path) -> Result<(), Failed> {
    let text = fs::read_to_string(path)?;
    let scenario: Scenario = serde_saphyr::from_str(&text)?;
    let (plan, report) = plan(&input(&scenario));
    let mut found = String::new();
    for (name, cluster) in &plan.clusters {
        print_cluster(&mut found, name, cluster, &report.clusters[name]);
    }
    for (name, queue) in &plan.queues {
        print_queue(&mut found, name, queue);
    }
    if found == scenario.expect {
        return Ok(());
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let input = text.split(EXPECT).next().unwrap().trim_end();
        let indented: String = found.lines().flat_map(|line| ["  ", line, "\n"]).collect();
        fs::write(path, format!("{input}\n{EXPECT}{indented}"))?;
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(&scenario.expect, &found);
    Err(diff.unified_diff().header("expected", "found").to_string().into())
}

fn amount(text: &str, resource: &ResourceName) -> Amount {
    Written::parse(text, resource).unwrap_or_else(|error| panic!("{error}")).amount()
}

fn resources(quantities: &Quantities) -> Resources {
    let one = |(name, text): (&String, &String)| {
        let name = Aliases::default().resolve(name).unwrap();
        (name.clone(), amount(text, &name))
    };
    quantities.iter().map(one).collect()
}

/// A `flavor/resource` with its first amount and the named ones after it.
fn cell<'a>(key: &str, text: &'a str) -> (FlavorResource, Amount, BTreeMap<&'a str, Amount>) {
    let (flavor, resource) = key.split_once('/').unwrap();
    let resource = Aliases::default().resolve(resource).unwrap();
    let mut words = text.split_whitespace();
    let first = amount(words.next().unwrap(), &resource);
    let named = words.map(|word| {
        let (name, text) = word.split_once('=').unwrap();
        (name, amount(text, &resource))
    });
    let named = named.collect();
    (FlavorResource { flavor: FlavorName::new(flavor).unwrap(), resource }, first, named)
}

fn input(scenario: &Scenario) -> PlanInput {
    let flavors: Vec<_> = scenario
        .flavors
        .iter()
        .map(|(name, labels)| Flavor {
            name: name.clone(),
            node_labels: labels.clone(),
            node_taints: vec![],
            tolerations: vec![],
            max_capacity: scenario
                .max_capacity
                .get(name)
                .map(|text| MaxCapacity::parse(text))
                .unwrap_or_default(),
        })
        .collect();
    let clusters = scenario.clusters.iter().map(|(name, cluster)| cluster_input(name, cluster, &flavors));
    let queues = scenario.queues.iter().map(|(name, queue)| queue_input(name, queue));
    let flavors = Some(scenario.flavors.keys().cloned().collect());
    PlanInput { flavors, clusters: clusters.collect(), queues: queues.collect() }
}

fn cluster_input(name: &ClusterName, cluster: &Cluster, flavors: &[Flavor]) -> ClusterInput {
    let mut input = ClusterInput::new(name.clone());
    input.mode = match cluster.mode.as_deref() {
        None => Mode::Live,
        Some("frozen") => Mode::Frozen,
        Some("lost") => Mode::Lost,
        Some("unreached") => Mode::Unreached,
        Some(other) => panic!("no mode `{other}`"),
    };
    input.cordoned = cluster.cordoned;
    input.nodes_are_old = cluster.nodes_are_old;
    input.count_foreign = !cluster.ignore_foreign;
    input.headroom = resources(&cluster.headroom);
    if let Some(nodes) = &cluster.nodes {
        let headroom = Headroom { percent: cluster.headroom_percent, ..Headroom::default() };
        input.capacity = Some(table(nodes, flavors).capacity(flavors, &headroom));
    }
    let assignments = cluster.claim.iter().map(|claimed| Assignment {
        queue: claimed.queue.clone(),
        flavor: claimed.flavor.clone(),
        resources: resources(&claimed.gets),
    });
    input.claim = Some(ClaimInput { caps: resources(&cluster.caps), assignments: assignments.collect() });
    input.worker_queues = cluster.queues.iter().map(|(name, queue)| worker_queue(name, queue)).collect();
    let term = |(key, text): (&String, &String)| {
        let (queue, at) = key.split_once('/').unwrap();
        let (at, units, _) = cell(at, text);
        (Cell { queue: QueueName::new(queue).unwrap(), flavor: at.flavor, resource: at.resource }, units)
    };
    let is_known = !cluster.last_terms.contains_key("unknown");
    let terms = cluster.last_terms.iter().filter(|(key, _)| *key != "mayLag");
    input.last_terms = is_known.then(|| terms.map(term).collect());
    input.terms_may_lag = cluster.last_terms.contains_key("mayLag");
    input
}

fn table(nodes: &[Nodes], flavors: &[Flavor]) -> NodeTable {
    let keys = flavors.iter().flat_map(|flavor| flavor.node_labels.keys().cloned()).collect();
    let mut table = NodeTable::new(keys, ResourceFilter::default());
    for (kind, nodes) in nodes.iter().enumerate() {
        let labels: Vec<_> = nodes.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let has: Vec<_> = nodes
            .has
            .iter()
            .map(|(name, text)| (if name == "gpu" { "nvidia.com/gpu" } else { name }, text.as_str()))
            .collect();
        let taints = nodes.taint.iter().map(|taint| {
            let (taint, effect) = taint.split_once(':').unwrap();
            let (key, value) = taint.split_once('=').unwrap();
            TaintFacts { key, value, effect }
        });
        let taints = taints.collect::<Vec<_>>();
        for number in 0..nodes.count {
            table.set(&NodeFacts {
                name: &format!("node-{kind}-{number}"),
                labels: &labels,
                taints: &taints,
                allocatable: &has,
                ready: !nodes.unusable,
                ..NodeFacts::default()
            });
        }
    }
    table
}

fn worker_queue(name: &QueueName, queue: &WorkerQueue) -> WorkerQueueInput {
    let one = |(key, text): (&String, &String)| {
        let (at, nominal, named) = cell(key, text);
        let of = |name: &str| named.get(name).copied();
        let cell = WorkerCell {
            nominal,
            reserved: of("reserved").unwrap_or_default(),
            lending: of("lending"),
            borrowing: of("borrowing"),
            direct: of("direct").unwrap_or_default(),
        };
        (at, cell)
    };
    WorkerQueueInput {
        name: name.clone(),
        ours: !queue.foreign,
        conflict: queue.foreign,
        cohort: queue.cohort.clone(),
        active: !queue.inactive,
        settled: !queue.unsettled,
        cells: queue.cells.iter().map(one).collect(),
        asked: Vec::new(),
    }
}

fn queue_input(name: &QueueName, queue: &Queue) -> HubQueueInput {
    let group = |group: &Group| ResourceGroup {
        covered: group.covers.clone(),
        flavors: group
            .flavors
            .iter()
            .map(|flavor| FlavorQuotas {
                name: flavor.clone(),
                resources: group.covers.iter().map(|name| ResourceQuota::zero(name.clone())).collect(),
            })
            .collect(),
    };
    let mut groups = ResourceGroups(queue.groups.iter().map(group).collect());
    for (key, text) in queue.groups.iter().flat_map(|group| &group.cells) {
        let (at, nominal, named) = cell(key, text);
        let quota = Quota {
            nominal,
            lending: named.get("lending").copied(),
            borrowing: named.get("borrowing").copied(),
        };
        groups.set_cells(&[(at, quota)].into());
    }
    let managed = queue.managed.iter().map(|(key, text)| {
        let (at, base, named) = cell(key, text);
        let (kept_lending, written_lending) = (named.get("kept").copied(), named.get("written").copied());
        (at, ManagedCell { base, kept_lending, written_lending })
    });
    HubQueueInput {
        name: name.clone(),
        groups,
        cohort: queue.cohort.clone(),
        managed: managed.collect(),
        dispatch: queue
            .clusters
            .clone()
            .map_or(Dispatch::RunsLocally, |clusters| Dispatch::MultiKueue { clusters }),
        automated: queue.automated,
        quota_place: QuotaPlace::Queue,
        still_held: amounts(&queue.still_held),
        unread: amounts(&queue.unread),
    }
}

fn amounts(of: &Quantities) -> BTreeMap<FlavorResource, Amount> {
    of.iter().map(|(key, text)| (cell(key, text).0, cell(key, text).1)).collect()
}

fn print_cluster(out: &mut String, name: &ClusterName, plan: &ClusterPlan, report: &ClusterReport) {
    for (cell, planned) in &plan.cells {
        let text = |amount: Amount| amount.text(&cell.resource);
        let granted = planned.granted.map_or("nothing".to_owned(), text);
        let mut line = format!(
            "{name} {}/{}/{}: asks {}, gets {}, write {granted}",
            cell.queue,
            cell.flavor,
            cell.resource,
            text(planned.requested),
            text(planned.effective),
        );
        for (word, limit) in [("lending", planned.lending), ("borrowing", planned.borrowing)] {
            if let Some(limit) = limit {
                write!(line, " {word} {}", text(limit)).unwrap();
            }
        }
        if !planned.draining.is_zero() {
            write!(line, ", draining {}", text(planned.draining)).unwrap();
        }
        writeln!(out, "{line}, hub +{}: {:?}", text(planned.term), planned.reason).unwrap();
    }
    for (flavor, resources) in &report.flavors {
        for (resource, of) in resources {
            let [capacity, assigned, unassigned, foreign] =
                [of.capacity, of.assigned, of.unassigned, of.foreign].map(|amount| amount.text(resource));
            let coming = if of.coming.is_zero() {
                String::new()
            } else {
                format!(" +{} to come", of.coming.text(resource))
            };
            writeln!(out, "{name} {flavor} {resource}: {capacity}{coming}, assigned {assigned}, unassigned {unassigned}, foreign {foreign}").unwrap();
        }
    }
    for over in &report.overcommitted {
        let [held, usable] = [over.held, over.usable].map(|amount| amount.text(&over.resource));
        writeln!(out, "{name} overcommitted {} of {:?}: {held} of {usable}", over.resource, over.flavors)
            .unwrap();
    }
    for unresolved in &report.unresolved {
        writeln!(out, "{name} unresolved {unresolved:?}").unwrap();
    }
    for cell in &report.incomplete {
        writeln!(out, "{name} incomplete: {} of {} has no {}", cell.flavor, cell.queue, cell.resource)
            .unwrap();
    }
    for (queue, resources) in &report.uncovered {
        let resources: Vec<_> = resources.iter().map(ResourceName::as_str).collect();
        writeln!(out, "{name} uncovered in {queue}: {}", resources.join(", ")).unwrap();
    }
    for queue in &report.runs_locally {
        writeln!(out, "{name} {queue}: the hub runs it locally").unwrap();
    }
}

fn print_queue(out: &mut String, name: &QueueName, plan: &HubQueuePlan) {
    if let Some(untouched) = &plan.untouched {
        writeln!(out, "hub {name}: untouched, {untouched:?}").unwrap();
    }
    for (at, cell) in &plan.cells {
        let text = |amount: Amount| amount.text(&at.resource);
        let mut line = format!("hub {name}/{}/{}: base {}", at.flavor, at.resource, text(cell.base));
        for (cluster, term) in &cell.terms {
            write!(line, " + {cluster} {}", text(*term)).unwrap();
        }
        write!(line, " = {}, was {}", text(cell.target), cell.observed.map_or("absent".to_owned(), text))
            .unwrap();
        if let Some(lending) = cell.lending {
            let kept = plan.managed[at].kept_lending.map_or("none".to_owned(), text);
            write!(line, ", lending {} of {kept}", text(lending)).unwrap();
        }
        writeln!(out, "{line}{}", if cell.held { ", held" } else { "" }).unwrap();
    }
    for group in &plan.groups.0 {
        let covered: Vec<_> = group.covered.iter().map(ResourceName::as_str).collect();
        let flavors: Vec<_> = group.flavors.iter().map(|flavor| flavor.name.as_str()).collect();
        writeln!(out, "hub {name} covers {} with {}", covered.join(", "), flavors.join(", ")).unwrap();
    }
}
