//! The hub's objects as they are now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use tokio::time::Instant;

use fedq_domain::multikueue::{Check, Decided, Existing, Link, Use};
use fedq_k8s::{
    hub::Hub,
    multikueue::{secret_cluster, secret_name},
    read::multikueue::{self as read, Dispatched, dispatching_checks, refused},
    types::kueue::Workload,
};
use fedq_values::ids::ClusterName;

const SETTLED_AFTER: Duration = Duration::from_secs(30);

#[cfg_attr(test, derive(Default))]
pub(super) struct Gathered {
    pub checks: Vec<Check>,
    pub placements: BTreeMap<String, Decided>,
    pub configs: BTreeMap<String, Existing<Vec<String>>>,
    pub clusters: BTreeMap<String, Existing<Link>>,
    /// Ours for Kueue, by the cluster that they are for.
    pub secrets: BTreeMap<ClusterName, Arc<Secret>>,
    /// Clusters that Kueue can reach by a ClusterProfile of its namespace.
    pub profiles: BTreeSet<ClusterName>,
    /// Clusters that Kueue cannot connect to with what it was given.
    pub refused: BTreeSet<ClusterName>,
    /// The configs and clusters that unfinished Workloads run by.
    pub running: BTreeSet<Use>,
}

impl Gathered {
    pub fn gather(hub: &Hub, hub_id: &str, kueue_namespace: &str) -> Self {
        let mut configs = read::configs(&hub.multikueue_configs, hub_id);
        // What fedq had made before the addon took the check is the addon's to change.
        for placement in read::addons_checks(&hub.checks).into_values() {
            configs.entry(placement).and_modify(|found| *found = Existing::Foreign);
        }
        let by_check = dispatching_checks(&hub.checks);
        Self {
            checks: read::checks(&hub.checks),
            placements: read::placements(hub, kueue_namespace),
            clusters: read::clusters(&hub.multikueue_clusters, hub_id),
            secrets: secrets(hub),
            profiles: profiles(hub),
            refused: refused(&hub.multikueue_clusters),
            running: running(&hub.workloads.all(), &by_check, &configs),
            configs,
        }
    }
}

/// `by_check`: the configs of MultiKueue's checks.
fn running(
    workloads: &[Arc<Workload>],
    by_check: &BTreeMap<String, String>,
    configs: &BTreeMap<String, Existing<Vec<String>>>,
) -> BTreeSet<Use> {
    let mut running = BTreeSet::new();
    for workload in workloads {
        let dispatched = Dispatched::new(workload);
        let cluster = dispatched.runs_on().map(str::to_owned);
        running.extend(uses(&dispatched, cluster.as_slice(), by_check, configs));
    }
    running
}

/// The configs that a Workload has these clusters by: its check's, or any that names one where that check is gone.
fn uses(
    dispatched: &Dispatched,
    clusters: &[String],
    by_check: &BTreeMap<String, String>,
    configs: &BTreeMap<String, Existing<Vec<String>>>,
) -> Vec<Use> {
    let mut uses = Vec::new();
    for cluster in clusters {
        let names =
            |found: &Existing<Vec<String>>| found.usable().is_some_and(|names| names.contains(cluster));
        let mut by: Vec<&str> = dispatched.configs(by_check).collect();
        if by.is_empty() {
            by.extend(configs.iter().filter(|(_, found)| names(found)).map(|(config, _)| config.as_str()));
        }
        uses.extend(by.into_iter().map(|config| (config.to_owned(), cluster.clone())));
    }
    uses
}

fn profiles(hub: &Hub) -> BTreeSet<ClusterName> {
    let live = hub.cluster_profiles.all().into_iter();
    let live = live.filter(|profile| profile.metadata.deletion_timestamp.is_none());
    live.filter_map(|profile| ClusterName::new(&profile.metadata.name).ok()).collect()
}

fn secrets(hub: &Hub) -> BTreeMap<ClusterName, Arc<Secret>> {
    let cluster = |secret: &Secret| {
        let cluster = secret_cluster(secret)?;
        (secret.metadata.name.as_deref() == Some(secret_name(&cluster).as_str())).then_some(cluster)
    };
    let all = hub.kueue_secrets.all().into_iter();
    all.filter_map(|secret| Some((cluster(&secret)?, secret))).collect()
}

impl Gathered {
    /// What was nominated may be taken up any moment, and is cleared away only while the config names the cluster.
    ///
    /// Where Kueue's own dispatcher nominates all clusters at once, a Workload that waits would keep them for ever:
    /// then those count that are `preferred` now. When one of them no longer is, it stays long enough for the hub to
    /// hear that the Workload had begun there: often the Workload itself moved the score that moved the decision.
    /// `None`: fedq takes nominations back itself.
    pub fn count_nominated(
        &mut self,
        workloads: &[Arc<Workload>],
        by_check: &BTreeMap<String, String>,
        preferred: Option<&BTreeSet<Use>>,
    ) {
        for workload in workloads {
            let dispatched = Dispatched::new(workload);
            let nominated = uses(&dispatched, dispatched.nominated(), by_check, &self.configs);
            let counts = |one: &Use| preferred.is_none_or(|preferred| preferred.contains(one));
            self.running.extend(nominated.into_iter().filter(counts));
        }
    }
}

/// The MultiKueueClusters that Workloads need or needed a moment ago: Kueue clears up on a cluster after a Workload
/// has finished, and only while the config names the cluster.
#[derive(Default)]
pub(super) struct Needed {
    until: BTreeMap<Use, Instant>,
    begun: bool,
}

impl Needed {
    /// All that are needed at `now`, and when that changes by time alone.
    pub fn now(&mut self, seen: &Gathered, now: Instant) -> (BTreeSet<Use>, Option<Instant>) {
        // Nobody knows what went on before the start.
        let unknown = if std::mem::replace(&mut self.begun, true) { None } else { Some(&seen.configs) };
        let before = unknown.into_iter().flatten().flat_map(|(config, found)| {
            let clusters = found.usable().into_iter().flatten();
            clusters.map(|cluster| (config.clone(), cluster.clone()))
        });
        for one in before.chain(seen.running.iter().cloned()) {
            self.until.insert(one, now + SETTLED_AFTER);
        }
        self.until.retain(|_, until| now < *until);
        let next = self.until.iter().filter(|(one, _)| !seen.running.contains(*one)).map(|(_, until)| *until);
        (self.until.keys().cloned().collect(), next.min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::multikueue::{GROUP, Input, KIND, Naming, Parameters, Source, plan, preferred};

    fn seen(running: &[&str], configs: &[&str]) -> Gathered {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Gathered {
            checks: Vec::new(),
            placements: BTreeMap::new(),
            configs: BTreeMap::from([("gpu".to_owned(), Existing::Ours(texts(configs)))]),
            clusters: BTreeMap::new(),
            secrets: BTreeMap::new(),
            profiles: BTreeSet::new(),
            refused: BTreeSet::new(),
            running: texts(running).into_iter().map(|name| ("gpu".to_owned(), name)).collect(),
        }
    }

    fn names(needed: &BTreeSet<Use>) -> Vec<&str> {
        needed.iter().map(|(_, name)| name.as_str()).collect()
    }

    fn workload(status: &serde_json::Value) -> Arc<Workload> {
        let metadata = serde_json::json!({"name": "w", "uid": "u", "resourceVersion": "1"});
        let object = serde_json::json!({"metadata": metadata, "status": status});
        Arc::new(serde_json::from_value(object).expect("a Workload"))
    }

    #[test]
    fn a_job_that_runs_uses_the_config_of_its_own_check_only() {
        let ours = |clusters: &[&str]| Existing::Ours(clusters.iter().map(|one| (*one).to_owned()).collect());
        let configs = BTreeMap::from([
            ("cpu".to_owned(), ours(&["east"])),
            ("gpu".to_owned(), ours(&["east", "west"])),
            ("theirs".to_owned(), Existing::Foreign),
        ]);
        let by_check = BTreeMap::from([("mk-gpu".to_owned(), "gpu".to_owned())]);
        let runs = |check: &str, finished: &str| {
            let status = serde_json::json!({
                "clusterName": "east", "admissionChecks": [{"name": check, "state": "Ready"}],
                "conditions": [{"type": "Finished", "status": finished}],
            });
            running(&[workload(&status)], &by_check, &configs)
        };
        let east = |config: &str| (config.to_owned(), "east".to_owned());
        assert_eq!(runs("mk-gpu", "False"), BTreeSet::from([east("gpu")]));
        assert_eq!(runs("gone", "False"), BTreeSet::from([east("cpu"), east("gpu")]), "it may be either's");
        assert_eq!(runs("mk-gpu", "True"), BTreeSet::new());
    }

    #[test]
    fn a_cluster_is_needed_until_kueue_has_cleared_up_there() {
        let (mut needed, start) = (Needed::default(), Instant::now());
        needed.now(&seen(&[], &[]), start);
        let (now, next) = needed.now(&seen(&["east"], &["east", "west"]), start);
        assert_eq!((names(&now), next), (vec!["east"], None));
        let late = start + SETTLED_AFTER;
        needed.now(&seen(&["east"], &["east"]), late);
        let (now, next) = needed.now(&seen(&[], &["east"]), late + SETTLED_AFTER / 2);
        assert_eq!((names(&now), next), (vec!["east"], Some(late + SETTLED_AFTER)));
        assert_eq!(names(&needed.now(&seen(&[], &["east"]), late + SETTLED_AFTER).0), [""; 0]);
    }

    #[test]
    fn what_was_nominated_holds_a_cluster_for_a_while_after_it_is_no_longer_preferred() {
        let workloads = [workload(&serde_json::json!({
            "nominatedClusterNames": ["gpu-east", "gpu-west"],
            "admissionChecks": [{"name": "mk", "state": "Pending"}],
        }))];
        let by_check = BTreeMap::from([("mk".to_owned(), "gpu".to_owned())]);
        let east = BTreeSet::from([("gpu".to_owned(), "gpu-east".to_owned())]);
        let seen = |preferred: Option<&BTreeSet<Use>>| {
            let mut seen = seen(&[], &[]);
            seen.count_nominated(&workloads, &by_check, preferred);
            seen
        };
        assert_eq!(names(&seen(None).running), ["gpu-east", "gpu-west"], "fedq nominates no more");

        let (mut needed, start) = (Needed::default(), Instant::now());
        let (now, _) = needed.now(&seen(Some(&east)), start);
        assert_eq!(names(&now), ["gpu-east"], "the other would stay while anything waits");
        let none = BTreeSet::new();
        let (now, next) = needed.now(&seen(Some(&none)), start + SETTLED_AFTER / 2);
        assert_eq!((names(&now), next), (vec!["gpu-east"], Some(start + SETTLED_AFTER)));
        assert_eq!(names(&needed.now(&seen(Some(&none)), start + SETTLED_AFTER).0), [""; 0]);
    }

    #[test]
    fn a_workload_that_waits_does_not_freeze_a_config_that_more_clusters_are_decided_for_than_it_takes() {
        let clusters: Vec<ClusterName> =
            (0..21).map(|number| format!("c{number:02}").parse().expect("a name")).collect();
        let sources = clusters.iter().map(|cluster| (cluster.clone(), Source::Secret(cluster.to_string())));
        let sources = sources.collect();
        let (unready, none) = (BTreeMap::new(), BTreeMap::new());
        let input = |seen: &Gathered, running: &BTreeSet<Use>, then: &dyn Fn(&Input)| {
            then(&Input {
                checks: &seen.checks,
                placements: &seen.placements,
                naming: Naming::Cluster,
                sources: &sources,
                unready: &unready,
                configs: &seen.configs,
                clusters: &seen.clusters,
                running,
                failed: &none,
                unwritten: &none,
            });
        };
        let parameters =
            Parameters { group: GROUP.to_owned(), kind: KIND.to_owned(), name: "gpu".to_owned() };
        let check =
            Check { name: "c".to_owned(), generation: 1, parameters: Some(parameters), deleting: false };
        let (mut needed, start) = (Needed::default(), Instant::now());
        let by_check = BTreeMap::from([("mk".to_owned(), "gpu".to_owned())]);
        let config = std::cell::RefCell::new(Vec::new());
        let mut pass = |best: &[ClusterName], now: Instant| {
            let before: Vec<String> = config.borrow().clone();
            let workloads = [workload(&serde_json::json!({
                "nominatedClusterNames": before, "admissionChecks": [{"name": "mk", "state": "Pending"}],
            }))];
            let decided = Decided { clusters: best.to_vec(), ..Decided::default() };
            let mut seen = Gathered {
                checks: vec![check.clone()],
                placements: BTreeMap::from([("gpu".to_owned(), decided)]),
                configs: BTreeMap::from([("gpu".to_owned(), Existing::Ours(before))]),
                ..seen(&[], &[])
            };
            let best = std::cell::RefCell::new(BTreeSet::new());
            input(&seen, &BTreeSet::new(), &|input| *best.borrow_mut() = preferred(input));
            seen.count_nominated(&workloads, &by_check, Some(&best.into_inner()));
            let (running, _) = needed.now(&seen, now);
            input(&seen, &running, &|input| *config.borrow_mut() = plan(input).configs["gpu"].clone());
            config.borrow().last().cloned().expect("clusters")
        };
        let reversed: Vec<ClusterName> = clusters.iter().rev().cloned().collect();
        assert_eq!(pass(&clusters, start), "c19");
        assert_eq!(pass(&clusters, start + SETTLED_AFTER), "c19");
        assert_eq!(pass(&reversed, start + SETTLED_AFTER * 3 / 2), "c00", "it drains");
        assert_eq!(pass(&reversed, start + SETTLED_AFTER * 2), "c01");
        assert_eq!(config.borrow().len(), 20);
    }

    #[test]
    fn after_a_start_what_is_configured_counts_as_needed() {
        let (mut needed, start) = (Needed::default(), Instant::now());
        let (now, next) = needed.now(&seen(&[], &["east"]), start);
        assert_eq!((names(&now), next), (vec!["east"], Some(start + SETTLED_AFTER)));
        assert!(needed.now(&seen(&[], &["east", "west"]), start + SETTLED_AFTER).0.is_empty());
    }
}
