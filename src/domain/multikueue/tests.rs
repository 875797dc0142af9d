use proptest::prelude::*;

use super::*;

#[derive(Default)]
struct Bed {
    checks: Vec<Check>,
    placements: BTreeMap<String, Decided>,
    naming: Naming,
    sources: BTreeMap<ClusterName, Source>,
    unready: BTreeMap<ClusterName, String>,
    configs: BTreeMap<String, Existing<Vec<String>>>,
    clusters: BTreeMap<String, Existing<Link>>,
    running: BTreeSet<Use>,
    failed: BTreeMap<String, String>,
    unwritten: BTreeMap<String, String>,
}

fn name(text: &str) -> ClusterName {
    ClusterName::new(text).expect("a cluster name")
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn check(name: &str, placement: &str) -> Check {
    let parameters =
        Parameters { group: GROUP.to_owned(), kind: KIND.to_owned(), name: placement.to_owned() };
    Check { name: name.to_owned(), generation: 3, parameters: Some(parameters), deleting: false }
}

impl Bed {
    /// One check `check` on Placement `gpu` that decided on the clusters, all of them joined.
    fn new(decided: &[&str]) -> Self {
        let mut bed = Self { checks: vec![check("check", "gpu")], ..Self::default() };
        bed.decide("gpu", decided);
        for cluster in decided {
            bed.join(cluster);
        }
        bed
    }

    fn decide(&mut self, placement: &str, clusters: &[&str]) {
        let clusters = clusters.iter().map(|cluster| name(cluster)).collect();
        self.placements.insert(placement.to_owned(), Decided { clusters, ..Decided::default() });
    }

    fn join(&mut self, cluster: &str) {
        self.sources.insert(name(cluster), Source::Secret(format!("multikueue-{cluster}")));
    }

    fn run(&mut self, config: &str, cluster: &str) {
        self.running.insert((config.to_owned(), cluster.to_owned()));
    }

    fn input(&self) -> Input<'_> {
        Input {
            checks: &self.checks,
            placements: &self.placements,
            naming: self.naming,
            sources: &self.sources,
            unready: &self.unready,
            configs: &self.configs,
            clusters: &self.clusters,
            running: &self.running,
            failed: &self.failed,
            unwritten: &self.unwritten,
        }
    }

    fn plan(&self) -> Plan {
        plan(&self.input())
    }

    /// Makes everything as planned.
    fn apply(&mut self) -> Plan {
        let plan = self.plan();
        let ours =
            |(name, clusters): (&String, &Vec<String>)| (name.clone(), Existing::Ours(clusters.clone()));
        self.configs.retain(|_, found| *found == Existing::Foreign);
        self.configs.extend(plan.configs.iter().map(ours));
        self.clusters.retain(|_, found| *found == Existing::Foreign);
        let link = |(name, source): (&String, &Source)| {
            let cluster =
                self.sources.iter().find(|(_, known)| *known == source).map(|(name, _)| name.clone());
            (name.clone(), Existing::Ours(Link { source: source.clone(), cluster }))
        };
        let links: Vec<_> = plan.clusters.iter().map(link).collect();
        self.clusters.extend(links);
        plan
    }

    fn active(&self) -> Active {
        self.plan().checks["check"].clone()
    }
}

#[test]
fn the_config_is_named_as_the_placement_and_lists_clusters_best_first() {
    let bed = Bed::new(&["cluster3", "cluster2"]);
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"], ["gpu-cluster3", "gpu-cluster2"]);
    assert_eq!(plan.clusters["gpu-cluster2"], Source::Secret("multikueue-cluster2".to_owned()));
    let message = "MultiKueueConfig gpu is generated successfully".to_owned();
    let active = Active { holds: true, reason: Reason::Active, message, observed_generation: 3 };
    assert_eq!(plan.checks["check"], active);
}

#[test]
fn one_name_a_cluster_is_shared_by_placements() {
    let mut bed = Bed::new(&["cluster1", "cluster2"]);
    bed.naming = Naming::Cluster;
    bed.checks.push(check("other", "cpu"));
    bed.decide("cpu", &["cluster2"]);
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"], ["cluster1", "cluster2"]);
    assert_eq!(plan.configs["cpu"], ["cluster2"]);
    assert_eq!(plan.clusters.len(), 2);
}

/// Placement `gpu` on `eu-west`, Placement `gpu-eu` on `west`: both are `gpu-eu-west`.
fn ambiguous() -> Bed {
    let mut bed = Bed::new(&["eu-west"]);
    bed.checks.push(check("other", "gpu-eu"));
    bed.decide("gpu-eu", &["west", "east"]);
    bed.join("west");
    bed.join("east");
    bed
}

#[test]
fn a_name_that_two_clusters_have_leads_to_the_first_and_the_other_is_told() {
    let mut bed = ambiguous();
    let plan = bed.apply();
    let eu_west = Source::Secret("multikueue-eu-west".to_owned());
    assert_eq!(plan.clusters["gpu-eu-west"], eu_west);
    assert_eq!(plan.configs["gpu"], ["gpu-eu-west"]);
    assert_eq!(plan.configs["gpu-eu"], ["gpu-eu-east"]);
    let told = "; of one name with another cluster: west (gpu-eu-west leads to eu-west)";
    assert!(plan.checks["other"].message.ends_with(told), "{}", plan.checks["other"].message);
    assert_eq!(bed.plan(), plan);
    // Also while it only drains.
    bed.run("gpu", "gpu-eu-west");
    bed.decide("gpu", &[]);
    let plan = bed.plan();
    assert_eq!((&plan.clusters["gpu-eu-west"], plan.configs["gpu-eu"].len()), (&eu_west, 1));
    bed.running.clear();
    bed.apply();
    let plan = bed.apply();
    assert_eq!(plan.configs["gpu-eu"], ["gpu-eu-west", "gpu-eu-east"], "it is free now");
    assert_eq!(plan.clusters["gpu-eu-west"], Source::Secret("multikueue-west".to_owned()));
    assert_eq!(bed.plan(), plan);
}

#[test]
fn a_name_that_two_clusters_have_stays_with_the_one_that_has_it() {
    let mut bed = ambiguous();
    let first = bed.checks.remove(0);
    bed.apply();
    bed.checks.insert(0, first);
    let plan = bed.plan();
    assert_eq!(plan.clusters["gpu-eu-west"], Source::Secret("multikueue-west".to_owned()));
    assert_eq!(plan.checks["check"].reason, Reason::NoClustersAvailable);
    assert!(plan.checks["check"].message.contains("eu-west (gpu-eu-west leads to west)"));
}

#[test]
fn clusters_that_no_placement_decided_on_take_no_name() {
    let mut bed = ambiguous();
    bed.decide("gpu-eu", &["east"]);
    assert_eq!(bed.plan().clusters["gpu-eu-west"], Source::Secret("multikueue-eu-west".to_owned()));
}

#[test]
fn two_checks_on_one_placement_share_its_config_until_both_are_gone() {
    let mut bed = Bed::new(&["cluster1"]);
    bed.checks.push(check("second", "gpu"));
    bed.apply();
    bed.checks[0].deleting = true;
    let plan = bed.apply();
    assert_eq!(plan.configs["gpu"], ["gpu-cluster1"]);
    assert!(!plan.checks.contains_key("check"));
    bed.checks[1].deleting = true;
    let plan = bed.plan();
    assert_eq!(plan.configs_to_delete(&bed.configs).collect::<Vec<_>>(), ["gpu"]);
    assert_eq!(plan.clusters_to_delete(&bed.clusters).collect::<Vec<_>>(), ["gpu-cluster1"]);
}

#[test]
fn a_cluster_that_leaves_stays_last_while_work_runs_there() {
    let mut bed = Bed::new(&["cluster1", "cluster2"]);
    bed.apply();
    bed.run("gpu", "gpu-cluster1");
    bed.decide("gpu", &["cluster3", "cluster2"]);
    bed.join("cluster3");
    let plan = bed.apply();
    assert_eq!(plan.configs["gpu"], ["gpu-cluster3", "gpu-cluster2", "gpu-cluster1"]);
    assert!(plan.clusters.contains_key("gpu-cluster1"));
    assert!(plan.checks["check"].message.ends_with("; draining: gpu-cluster1"));
    bed.running.clear();
    assert_eq!(bed.plan().configs["gpu"], ["gpu-cluster3", "gpu-cluster2"]);
}

#[test]
fn work_of_one_placement_holds_no_cluster_of_another() {
    let mut bed = Bed::new(&["east", "west"]);
    bed.naming = Naming::Cluster;
    bed.checks.push(check("other", "cpu"));
    bed.decide("cpu", &["east"]);
    bed.apply();
    bed.run("cpu", "east");
    bed.decide("gpu", &["west"]);
    assert_eq!(bed.plan().configs["gpu"], ["west"], "the other config has the cluster still");
    bed.decide("gpu", &[]);
    assert!(!bed.plan().configs.contains_key("gpu"), "nothing of its own runs");
    bed.decide("cpu", &["west"]);
    assert_eq!(bed.plan().configs["cpu"], ["west", "east"]);
    bed.checks.clear();
    let plan = bed.plan();
    assert_eq!(plan.configs.into_iter().collect::<Vec<_>>(), [("cpu".to_owned(), texts(&["east"]))]);
}

#[test]
fn the_last_good_config_stays_while_work_runs_and_the_check_says_why() {
    let mut bed = Bed::new(&["cluster1", "cluster2"]);
    bed.apply();
    bed.run("gpu", "gpu-cluster2");
    let expect = |bed: &Bed, reason: Reason| {
        let plan = bed.plan();
        assert_eq!(plan.configs["gpu"], ["gpu-cluster1", "gpu-cluster2"], "{reason:?}");
        assert_eq!((plan.checks["check"].holds, plan.checks["check"].reason), (false, reason));
    };
    bed.decide("gpu", &[]);
    expect(&bed, Reason::NoClustersAvailable);
    bed.placements.get_mut("gpu").expect("it is there").misconfigured = Some(":wrong".to_owned());
    expect(&bed, Reason::PlacementError);
    assert_eq!(bed.active().message, "Placement gpu is misconfigured: :wrong");
    bed.placements.clear();
    expect(&bed, Reason::PlacementNotFound);
    bed.running.clear();
    assert!(bed.plan().configs.is_empty());
}

#[test]
fn a_config_without_checks_stays_while_work_runs() {
    let mut bed = Bed::new(&["cluster1", "cluster2"]);
    bed.apply();
    bed.checks.clear();
    bed.run("gpu", "gpu-cluster2");
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"], ["gpu-cluster2"]);
    assert_eq!(plan.clusters.len(), 1);
}

#[test]
fn more_than_twenty_are_capped_and_told() {
    let names: Vec<String> = (0..25).map(|number| format!("c{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bed = Bed::new(&names);
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"].len(), MAX_CLUSTERS);
    assert_eq!(plan.clusters.len(), MAX_CLUSTERS);
    let told = "; left out, since it takes 20: gpu-c20, gpu-c21, gpu-c22, gpu-c23, gpu-c24";
    assert!(plan.checks["check"].message.ends_with(told), "{}", plan.checks["check"].message);
    // Work runs on one beyond the limit: it stays, and another waits.
    bed.run("gpu", "gpu-c24");
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"].len(), MAX_CLUSTERS);
    assert_eq!(plan.configs["gpu"].last().map(String::as_str), Some("gpu-c24"));
    assert!(!plan.configs["gpu"].contains(&"gpu-c19".to_owned()));
    // It is not among the best: nothing new is for it.
    let drains = ("gpu".to_owned(), "gpu-c24".to_owned());
    assert_eq!(plan.draining, BTreeSet::from([drains.clone()]));
    let preferred = preferred(&bed.input());
    assert!(preferred.len() == MAX_CLUSTERS && !preferred.contains(&drains));
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let mut bed = Bed::new(&["cluster1", "cluster2"]);
    bed.clusters.insert("gpu-cluster1".to_owned(), Existing::Foreign);
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"], ["gpu-cluster2"]);
    assert!(!plan.clusters.contains_key("gpu-cluster1"));
    assert!(plan.checks["check"].message.ends_with("; of that name, but not fedq's: gpu-cluster1"));
    bed.configs.insert("gpu".to_owned(), Existing::Foreign);
    let plan = bed.plan();
    assert!(plan.configs.is_empty() && plan.clusters.is_empty());
    assert_eq!(plan.checks["check"].reason, Reason::MultiKueueConfigError);
    assert_eq!(plan.configs_to_delete(&bed.configs).count(), 0);
}

#[test]
fn what_is_handed_over_is_taken_where_it_is_planned_and_never_deleted() {
    let mut bed = Bed::new(&["cluster1"]);
    let link = |name: &str| Link { source: Source::Secret(name.to_owned()), cluster: None };
    for (config, cluster) in [("gpu", "gpu-cluster1"), ("other", "other-cluster1")] {
        bed.configs.insert(config.to_owned(), Existing::Offered(texts(&[cluster])));
        bed.clusters.insert(cluster.to_owned(), Existing::Offered(link("theirs")));
        bed.run(config, cluster);
    }
    let plan = bed.plan();
    assert_eq!(plan.configs.into_iter().collect::<Vec<_>>(), [("gpu".to_owned(), texts(&["gpu-cluster1"]))]);
    let ours = Source::Secret("multikueue-cluster1".to_owned());
    assert_eq!(plan.clusters.into_iter().collect::<Vec<_>>(), [("gpu-cluster1".to_owned(), ours)]);
    bed.checks.clear();
    bed.running.clear();
    let plan = bed.plan();
    assert_eq!(plan.configs_to_delete(&bed.configs).count(), 0);
    assert_eq!(plan.clusters_to_delete(&bed.clusters).count(), 0);
    bed.configs.insert("gpu".to_owned(), Existing::Ours(texts(&["gpu-cluster1"])));
    assert_eq!(plan.configs_to_delete(&bed.configs).collect::<Vec<_>>(), ["gpu"], "once it is labelled");
}

#[test]
fn clusters_that_are_not_joined_are_told() {
    let mut bed = Bed::new(&["cluster1", "cluster2"]);
    bed.sources.remove("cluster1");
    assert_eq!(bed.plan().configs["gpu"], ["gpu-cluster2"]);
    assert!(bed.active().message.ends_with("; not joined: cluster1"));
    bed.sources.clear();
    let active = bed.active();
    assert_eq!(active.reason, Reason::NoClustersAvailable);
    assert_eq!(active.message, "none of the clusters can be used: not joined: cluster1, cluster2");
}

#[test]
fn a_cluster_that_cannot_be_written_is_left_out_and_told_and_tried_again() {
    let mut bed = Bed::new(&["cluster1", "cluster2"]);
    bed.unwritten.insert("gpu-cluster1".to_owned(), "gpu-cluster1 cannot be written: no".to_owned());
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"], ["gpu-cluster2"]);
    assert!(plan.clusters.contains_key("gpu-cluster1"), "it is still to be written");
    let active = &plan.checks["check"];
    assert!(active.holds && active.message.ends_with("; not there yet: gpu-cluster1 cannot be written: no"));
    // One that is there works as it is.
    bed.apply();
    let plan = bed.plan();
    assert_eq!(plan.configs["gpu"], ["gpu-cluster1", "gpu-cluster2"]);
    assert!(plan.checks["check"].holds);
}

#[test]
fn bad_parameters_become_a_condition() {
    let mut bed = Bed::new(&["cluster1"]);
    bed.checks[0].parameters = None;
    let message =
        "spec.parameters is missing: it must name a Placement of cluster.open-cluster-management.io";
    assert_eq!((bed.active().reason, bed.active().message.as_str()), (Reason::PlacementError, message));
    for (group, kind) in [("kueue.x-k8s.io", "Placement"), (GROUP, "MultiKueueConfig")] {
        let name = "gpu".to_owned();
        bed.checks[0].parameters = Some(Parameters { group: group.to_owned(), kind: kind.to_owned(), name });
        let active = bed.active();
        assert_eq!(active.reason, Reason::PlacementError);
        assert!(active.message.contains(&format!("names a {kind} of {group}")), "{}", active.message);
    }
    assert!(bed.plan().configs.is_empty());
}

#[test]
fn a_name_that_is_too_long_becomes_a_condition() {
    let placement = "p".repeat(250);
    let mut bed = Bed::new(&["cluster1"]);
    bed.checks = vec![check("check", &placement)];
    bed.decide(&placement, &["cluster1"]);
    let active = bed.active();
    assert_eq!(active.reason, Reason::MultiKueueConfigError);
    assert!(active.message.ends_with("has more than 253 characters, which no MultiKueueCluster may"));
    bed.naming = Naming::Cluster;
    assert!(bed.active().holds);
}

#[test]
fn a_cluster_whose_name_cannot_be_joined_is_told_of_and_the_others_are_used() {
    let mut bed = Bed::new(&["cluster1"]);
    bed.decide("gpu", &["cluster1"]);
    let long = "a name of 70 characters";
    bed.placements.get_mut("gpu").expect("decided").unnameable.push(long.to_owned());
    let active = bed.active();
    assert!(active.holds && active.message.contains(&format!("not joined: {long}")), "{}", active.message);
    bed.placements.get_mut("gpu").expect("decided").clusters.clear();
    let active = bed.active();
    assert_eq!((active.holds, active.reason), (false, Reason::NoClustersAvailable));
    assert!(active.message.contains(&format!("none of the clusters can be used: not joined: {long}")));
}

#[test]
fn the_state_in_a_workload_is_set_ready_again_after_an_eviction() {
    use CheckState::{Pending, Ready, Rejected, Retry};
    assert!(wants_ready(Pending, true, true));
    for (state, reserves, usable) in [
        (Ready, true, true),
        (Retry, true, true),
        (Rejected, true, true),
        (Pending, false, true),
        (Pending, true, false),
    ] {
        assert!(!wants_ready(state, reserves, usable), "{state:?} {reserves} {usable}");
    }
}

#[test]
fn long_lists_of_names_are_counted() {
    assert_eq!(condition::some_of(&texts(&["a", "b"])), "a, b");
    let many: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    assert!(condition::some_of(&many).ends_with(", 9 and 2 more"));
}

fn clusters() -> impl Strategy<Value = Vec<String>> {
    let numbers = prop::collection::vec(0..40_usize, 0..40);
    numbers.prop_map(|numbers| {
        let mut seen = BTreeSet::new();
        numbers.into_iter().filter(|number| seen.insert(*number)).map(|number| format!("c{number}")).collect()
    })
}

proptest! {
    /// However decisions move: a config keeps to the API's limits, work that runs is never evicted unless
    /// more clusters have work than a config takes, and what is planned is planned again.
    #[test]
    fn moving_decisions_evict_nothing(
        steps in prop::collection::vec((clusters(), prop::collection::vec(0..20_usize, 0..6)), 1..6)
    ) {
        let mut bed = Bed::new(&[]);
        for number in 0..40 {
            bed.join(&format!("c{number}"));
        }
        for (decided, runs) in steps {
            let decided: Vec<&str> = decided.iter().map(String::as_str).collect();
            bed.decide("gpu", &decided);
            let plan = bed.apply();
            if let Some(config) = plan.configs.get("gpu") {
                prop_assert!((1..=MAX_CLUSTERS).contains(&config.len()));
                prop_assert_eq!(config.iter().collect::<BTreeSet<_>>().len(), config.len());
                prop_assert!(config.iter().all(|name| plan.clusters.contains_key(name)));
            }
            let config = plan.configs.get("gpu").cloned().unwrap_or_default();
            for (_, name) in &bed.running {
                prop_assert!(config.contains(name), "{} left while work ran there", name);
            }
            prop_assert_eq!(&bed.plan(), &plan);
            let runs = runs.iter().filter_map(|at| config.get(*at)).cloned();
            bed.running = runs.map(|name| ("gpu".to_owned(), name)).collect();
        }
    }
}
