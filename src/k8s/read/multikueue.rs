//! AdmissionChecks, Placements with their decisions, and MultiKueue's objects into what
//! [`fedq_domain::multikueue`] decides on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    hub::Hub,
    list_watch::Table,
    multikueue::{FOR_CLUSTER, source_cluster},
    types::{
        kueue::{AdmissionCheck, ClusterSource, Condition, MultiKueueCluster, MultiKueueConfig, Workload},
        meta::Meta,
        ocm::{Placement, PlacementDecision},
    },
};
use fedq_domain::{
    multikueue::{CONTROLLER, Check, CheckState, Decided, Existing, Link, Parameters, Source},
    placement::conditions::MISCONFIGURED,
    resources::Resources,
};
use fedq_values::{
    ids::{ClusterName, ResourceName},
    quantity::{Amount, Quantity},
};

const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// OCM's labels on a PlacementDecision.
const PLACEMENT: &str = "cluster.open-cluster-management.io/placement";
const GROUP_INDEX: &str = "cluster.open-cluster-management.io/decision-group-index";

/// By which OCM's kueue-addon marks the AdmissionChecks that it answers.
const ADDON_FINALIZER: &str = "kueue-addon.open-cluster-management.io/admissioncheck-cleanup";

/// The AdmissionChecks that are fedq's to answer.
pub fn checks(table: &Table<AdmissionCheck>) -> Vec<Check> {
    let ours = table.all().into_iter().filter(|check| check.spec.controller_name == CONTROLLER);
    let ours = ours.filter(|check| !is_addons(check));
    ours.map(|check| Check {
        name: check.metadata.name.clone(),
        generation: check.metadata.generation,
        parameters: check.spec.parameters.as_ref().map(|parameters| Parameters {
            group: parameters.api_group.clone(),
            kind: parameters.kind.clone(),
            name: parameters.name.clone(),
        }),
        deleting: check.metadata.deletion_timestamp.is_some(),
    })
    .collect()
}

/// Those that OCM's kueue-addon answers, with the Placements that they name: there must not be two writers of one.
pub fn addons_checks(table: &Table<AdmissionCheck>) -> BTreeMap<String, String> {
    let theirs = table.all().into_iter().filter(|check| check.spec.controller_name == CONTROLLER);
    let named = |check: Arc<AdmissionCheck>| {
        let placement = check.spec.parameters.as_ref().map(|parameters| parameters.name.clone());
        (check.metadata.name.clone(), placement.unwrap_or_default())
    };
    theirs.filter(|check| is_addons(check)).map(named).collect()
}

fn is_addons(check: &AdmissionCheck) -> bool {
    check.metadata.finalizers.iter().any(|finalizer| finalizer == ADDON_FINALIZER)
}

/// Each Placement of Kueue's namespace by name, with the clusters of its decisions in the order of groups.
pub fn placements(hub: &Hub, kueue_namespace: &str) -> BTreeMap<String, Decided> {
    let there = |meta: &Meta| meta.namespace.as_deref() == Some(kueue_namespace);
    let mut by_placement: BTreeMap<String, Vec<Arc<PlacementDecision>>> = BTreeMap::new();
    for decision in hub.ocm.decisions.all().into_iter().filter(|decision| there(&decision.metadata)) {
        if let Some(placement) = decision.metadata.labels.get(PLACEMENT) {
            by_placement.entry(placement.clone()).or_default().push(decision);
        }
    }
    let read = |placement: &Arc<Placement>| {
        let name = placement.metadata.name.clone();
        let decisions = by_placement.get(&name).map(Vec::as_slice).unwrap_or_default();
        (name, decided(placement, decisions))
    };
    let all = hub.ocm.placements.all();
    let live = all
        .iter()
        .filter(|placement| there(&placement.metadata) && placement.metadata.deletion_timestamp.is_none());
    live.map(read).collect()
}

fn decided(placement: &Placement, decisions: &[Arc<PlacementDecision>]) -> Decided {
    let mut slices: Vec<_> = decisions.iter().map(|decision| (place(&decision.metadata), decision)).collect();
    slices.sort_by_key(|(place, _)| *place);
    let named = slices.iter().flat_map(|(_, decision)| &decision.status.decisions);
    let mut clusters: Vec<ClusterName> = Vec::new();
    let mut unnameable: Vec<String> = Vec::new();
    for decision in named {
        match ClusterName::new(&decision.cluster_name) {
            Ok(cluster) if !clusters.contains(&cluster) => clusters.push(cluster),
            Ok(_) => {}
            Err(error) => unnameable.push(error.to_string()),
        }
    }
    let bad = placement.status.conditions.iter().find(|condition| condition.type_ == MISCONFIGURED);
    let bad = bad.filter(|condition| condition.status == "True");
    Decided { clusters, unnameable, misconfigured: bad.map(|condition| condition.message.clone()) }
}

/// By group, then by the number at the end of the name; what says neither comes last.
fn place(meta: &Meta) -> (u64, u64) {
    let group = meta.labels.get(GROUP_INDEX).and_then(|index| index.parse().ok());
    let slice = meta.name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
    (group.unwrap_or(u64::MAX), slice.unwrap_or(u64::MAX))
}

/// The clusters that Kueue says it cannot connect to, by the Secrets of ours that it connects with.
pub fn refused(table: &Table<MultiKueueCluster>) -> BTreeSet<ClusterName> {
    let fails = |one: &MultiKueueCluster| {
        let mut conditions = one.status.conditions.iter();
        conditions.any(|one| {
            one.type_ == "Active" && one.status == "False" && one.reason == "ClientConnectionFailed"
        })
    };
    let all = table.all();
    let failing = all.iter().filter(|one| fails(one));
    failing
        .filter_map(|one| {
            let location = one.spec.cluster_source.kube_config.as_ref()?.location.clone();
            source_cluster(&Source::Secret(location))
        })
        .collect()
}

pub fn configs(table: &Table<MultiKueueConfig>, hub_id: &str) -> BTreeMap<String, Existing<Vec<String>>> {
    let read =
        |config: &MultiKueueConfig| existing(&config.metadata, hub_id, || config.spec.clusters.clone());
    table.all().iter().map(|config| (config.metadata.name.clone(), read(config))).collect()
}

pub fn clusters(table: &Table<MultiKueueCluster>, hub_id: &str) -> BTreeMap<String, Existing<Link>> {
    let read = |one: &MultiKueueCluster| {
        existing(&one.metadata, hub_id, || {
            let ClusterSource { kube_config, cluster_profile_ref } = &one.spec.cluster_source;
            let secret = kube_config.as_ref().map(|kubeconfig| kubeconfig.location.clone());
            let source = match cluster_profile_ref {
                Some(profile) => Source::ClusterProfile(profile.name.clone()),
                None => Source::Secret(secret.unwrap_or_default()),
            };
            let labelled = one.metadata.labels.get(FOR_CLUSTER).and_then(|name| ClusterName::new(name).ok());
            Link { cluster: labelled.or_else(|| source_cluster(&source)), source }
        })
    };
    table.all().iter().map(|one| (one.metadata.name.clone(), read(one))).collect()
}

fn existing<T>(meta: &Meta, hub_id: &str, read: impl FnOnce() -> T) -> Existing<T> {
    if meta.is_labelled(hub_id) {
        Existing::Ours(read())
    } else if meta.is_handed_over() {
        Existing::Offered(read())
    } else {
        Existing::Foreign
    }
}

/// What a Workload of the hub says of where it runs.
pub struct Dispatched<'a> {
    workload: &'a Workload,
}

impl<'a> Dispatched<'a> {
    pub fn new(workload: &'a Workload) -> Self {
        Self { workload }
    }

    pub fn reserves_quota(&self) -> bool {
        self.is("QuotaReserved") && !self.is("Evicted") && !self.is("Finished")
    }

    /// The MultiKueueCluster that it runs on.
    pub fn runs_on(&self) -> Option<&'a str> {
        let name = self.workload.status.cluster_name.as_deref()?;
        (!name.is_empty() && !self.is("Finished")).then_some(name)
    }

    /// Clusters that it was nominated for and that may take it any moment.
    pub fn nominated(&self) -> &'a [String] {
        if self.is("Finished") { &[] } else { &self.workload.status.nominated_cluster_names }
    }

    /// The config by which it is to be dispatched now: it has reserved quota, runs nowhere yet, and all its checks
    /// but MultiKueue's have passed. `configs`: by MultiKueue's checks.
    pub fn config<'c>(&self, configs: &'c BTreeMap<String, String>) -> Option<&'c str> {
        let unplaced = self.workload.status.cluster_name.as_deref().is_none_or(str::is_empty);
        if !self.reserves_quota() || !unplaced {
            return None;
        }
        let mut config = None;
        for check in &self.workload.status.admission_checks {
            let state = check["state"].as_str().and_then(CheckState::parse)?;
            match check["name"].as_str().and_then(|name| configs.get(name)) {
                Some(found) if state == CheckState::Pending => config = Some(found.as_str()),
                None if state == CheckState::Ready => {}
                Some(_) | None => return None,
            }
        }
        config
    }

    /// The configs by which it is or was dispatched. `configs`: by MultiKueue's checks.
    pub fn configs<'c>(
        &self,
        configs: &'c BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'c str> + use<'a, 'c> {
        let checks = self.workload.status.admission_checks.iter();
        checks.filter_map(|check| configs.get(check["name"].as_str()?)).map(String::as_str)
    }

    /// What it asks for, whatever flavor the hub gave it: workers have their own.
    pub fn needs(&self) -> Resources {
        let mut needs = Resources::new();
        let admission = self.workload.status.admission.iter();
        for (name, usage) in
            admission.flat_map(|one| &one.pod_set_assignments).flat_map(|one| &one.resource_usage)
        {
            let Ok(resource) = ResourceName::new(name) else { continue };
            let Ok(quantity) = Quantity::parse(&usage.0) else { continue };
            let held = Amount::held(quantity, &resource);
            let sum = needs.entry(resource).or_default();
            *sum = sum.saturating_add(held);
        }
        needs
    }

    /// The state of a check in it.
    pub fn check(&self, name: &str) -> Option<CheckState> {
        let mut checks = self.workload.status.admission_checks.iter();
        CheckState::parse(checks.find(|check| check["name"] == name)?["state"].as_str()?)
    }

    fn is(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }

    fn condition(&self, kind: &str) -> Option<&'a Condition> {
        self.workload.status.conditions.iter().find(|condition| condition.type_ == kind)
    }
}

/// The config of each of MultiKueue's own checks.
pub fn dispatching_checks(table: &Table<AdmissionCheck>) -> BTreeMap<String, String> {
    let all = table.all().into_iter().filter(|check| check.spec.controller_name == MULTIKUEUE);
    all.filter_map(|check| Some((check.metadata.name.clone(), check.spec.parameters.as_ref()?.name.clone())))
        .collect()
}

/// The joined cluster behind a MultiKueueCluster.
pub fn joined_cluster(hub: &Hub, name: &str) -> Option<ClusterName> {
    let object = hub.multikueue_clusters.get(None, name);
    let labelled = object.as_ref().and_then(|object| object.metadata.labels.get(FOR_CLUSTER));
    ClusterName::new(labelled.map_or(name, String::as_str)).ok()
}

/// The joined clusters behind the MultiKueueClusters that a config names. Those of fedq's say it by their label;
/// others are taken to be called as the cluster.
pub fn config_clusters(hub: &Hub, config: &MultiKueueConfig) -> BTreeSet<ClusterName> {
    config.spec.clusters.iter().filter_map(|name| joined_cluster(hub, name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn decision(name: &str, group: &str, clusters: &[&str]) -> Arc<PlacementDecision> {
        let decisions: Vec<Value> = clusters.iter().map(|name| json!({"clusterName": name})).collect();
        let object = json!({
            "metadata": {"name": name, "labels": {PLACEMENT: "gpu", GROUP_INDEX: group}},
            "status": {"decisions": decisions},
        });
        Arc::new(serde_json::from_value(object).expect("a PlacementDecision"))
    }

    fn placement(conditions: &Value) -> Placement {
        let object = json!({"metadata": {"name": "gpu"}, "status": {"conditions": conditions}});
        serde_json::from_value(object).expect("a Placement")
    }

    #[test]
    fn slices_are_read_by_number_and_groups_in_their_order() {
        let decisions = [
            decision("gpu-decision-10", "1", &["d"]),
            decision("gpu-decision-2", "0", &["c", "b"]),
            decision("gpu-decision-1", "0", &["a", "c"]),
        ];
        let decided = decided(&placement(&json!([])), &decisions);
        let names: Vec<_> = decided.clusters.iter().map(ClusterName::as_str).collect();
        assert_eq!(names, ["a", "c", "b", "d"]);
        assert_eq!(decided.misconfigured, None);
    }

    #[test]
    fn a_misconfigured_placement_says_why() {
        let condition = |status: &str| json!([{"type": MISCONFIGURED, "status": status, "message": "no"}]);
        let read = |status: &str| decided(&placement(&condition(status)), &[]).misconfigured;
        assert_eq!(read("True"), Some("no".to_owned()));
        assert_eq!(read("False"), None);
    }

    #[test]
    fn a_workload_is_dispatched_once_every_other_check_has_passed() {
        let configs = BTreeMap::from([("mk".to_owned(), "gpu".to_owned())]);
        let config = |mk: &str, other: &str, cluster: Option<&str>| {
            let object = json!({"metadata": {"name": "w"}, "status": {
                "conditions": [{"type": "QuotaReserved", "status": "True"}], "clusterName": cluster,
                "admissionChecks": [{"name": "mk", "state": mk}, {"name": "other", "state": other}],
            }});
            let workload: Workload = serde_json::from_value(object).expect("a Workload");
            Dispatched::new(&workload).config(&configs).map(str::to_owned)
        };
        assert_eq!(config("Pending", "Ready", None), Some("gpu".to_owned()));
        assert_eq!(config("Pending", "Pending", None), None);
        assert_eq!(config("Ready", "Ready", None), None);
        assert_eq!(config("Pending", "Ready", Some("gpu-east")), None);
    }

    #[test]
    fn checks_that_the_addon_answers_are_not_fedqs() {
        let table = Table::new();
        for (name, finalizers) in [("ours", json!([])), ("theirs", json!(["other", ADDON_FINALIZER]))] {
            let object = json!({
                "metadata": {"name": name, "resourceVersion": "1", "finalizers": finalizers},
                "spec": {"controllerName": CONTROLLER, "parameters": {"name": "gpu"}},
            });
            table.absorb(serde_json::from_value(object).expect("an AdmissionCheck"));
        }
        let ours: Vec<String> = checks(&table).into_iter().map(|check| check.name).collect();
        assert_eq!(ours, ["ours"]);
        let theirs = BTreeMap::from([("theirs".to_owned(), "gpu".to_owned())]);
        assert_eq!(addons_checks(&table), theirs);
    }

    #[test]
    fn only_what_is_labelled_is_ours() {
        let found = |metadata: &Value| {
            let mut metadata = metadata.clone();
            metadata["name"] = json!("gpu");
            existing(&serde_json::from_value(metadata).expect("metadata"), "hub", || ())
        };
        assert_eq!(found(&json!({"labels": {"fedq.dev/hub": "hub"}})), Existing::Ours(()));
        assert_eq!(found(&json!({"annotations": {"fedq.dev/adopt": "true"}})), Existing::Offered(()));
        assert_eq!(found(&json!({})), Existing::Foreign);
        let anothers =
            json!({"labels": {"fedq.dev/hub": "another"}, "annotations": {"fedq.dev/adopt": "true"}});
        assert_eq!(found(&anothers), Existing::Foreign);
    }

    fn workload(conditions: &Value) -> Workload {
        let object = json!({
            "metadata": {"name": "w"},
            "status": {
                "conditions": conditions, "clusterName": "gpu-east",
                "admissionChecks": [{"name": "other", "state": "Ready"}, {"name": "gpu", "state": "Pending"}],
            },
        });
        serde_json::from_value(object).expect("a Workload")
    }

    #[test]
    fn a_workload_needs_its_cluster_until_it_has_finished() {
        let runs = |conditions: Value| Dispatched::new(&workload(&conditions)).runs_on().is_some();
        assert!(runs(json!([])));
        assert!(runs(json!([{"type": "Finished", "status": "False"}])));
        assert!(!runs(json!([{"type": "Finished", "status": "True"}])));
    }

    #[test]
    fn a_check_waits_while_quota_is_reserved_and_nothing_evicts() {
        let waits = |conditions: Value| Dispatched::new(&workload(&conditions)).reserves_quota();
        let reserved = json!({"type": "QuotaReserved", "status": "True"});
        assert!(waits(json!([reserved])));
        assert!(!waits(json!([reserved, {"type": "Evicted", "status": "True"}])));
        assert!(waits(json!([reserved, {"type": "Evicted", "status": "False"}])));
        assert!(!waits(json!([reserved, {"type": "Finished", "status": "True"}])));
        let workload = workload(&json!([]));
        assert_eq!(Dispatched::new(&workload).check("gpu"), Some(CheckState::Pending));
        assert_eq!(Dispatched::new(&workload).check("none"), None);
    }
}
