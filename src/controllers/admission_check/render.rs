//! What is planned into writes, with the versions that it was decided from.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use fedq_domain::multikueue::{Active, Existing, Plan, Source};
use fedq_k8s::{
    hub::Hub,
    multikueue::{FOR_CLUSTER, source_cluster},
    types::{
        kueue::{AdmissionCheck, ClusterProfileRef, ClusterSource, KubeConfig},
        meta::{HUB_LABEL, MANAGED_BY, MANAGED_BY_FEDQ, Meta},
    },
    write::{Action, Change, Kind, Target},
};
use fedq_values::ids::ClusterName;

use super::{MANAGER, gather::Gathered, is_written};

const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
const ACTIVE: &str = "Active";

pub(super) struct Render {
    hub_id: String,
    /// When a write was first decided on, by object and the version it rests on: the same decision is the same
    /// write, however often it is made.
    times: BTreeMap<(Target, String), Timestamp>,
    used: BTreeSet<(Target, String)>,
}

impl Render {
    pub fn new(hub_id: String) -> Self {
        Self { hub_id, times: BTreeMap::new(), used: BTreeSet::new() }
    }

    /// MultiKueueConfigs and MultiKueueClusters. A cluster goes once no config names it.
    pub fn objects(&self, hub: &Hub, seen: &Gathered, plan: &Plan) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, clusters) in &plan.configs {
            let same = seen.configs.get(name).and_then(Existing::usable) == Some(clusters);
            let found = hub.multikueue_configs.get(None, name);
            let meta = found.as_ref().map(|config| &config.metadata);
            let target = Target::cluster_scoped(Kind::MultiKueueConfig, name);
            changes.extend(write(target, meta, &self.labels(None), same, &json!({"clusters": clusters})));
        }
        for (name, source) in &plan.clusters {
            let existing = seen.clusters.get(name).and_then(Existing::usable);
            let same = existing.is_some_and(|link| link.source == *source);
            let found = hub.multikueue_clusters.get(None, name);
            let meta = found.as_ref().map(|cluster| &cluster.metadata);
            let target = Target::cluster_scoped(Kind::MultiKueueCluster, name);
            let spec = json!({"clusterSource": cluster_source(source)});
            let labels = self.labels(source_cluster(source).as_ref());
            changes.extend(write(target, meta, &labels, same, &spec));
        }
        changes.extend(deletions(hub, seen, plan));
        changes
    }

    fn labels(&self, cluster: Option<&ClusterName>) -> Labels {
        let labels = [(HUB_LABEL, self.hub_id.as_str()), (MANAGED_BY, MANAGED_BY_FEDQ)];
        let all = labels.into_iter().chain(cluster.map(|cluster| (FOR_CLUSTER, cluster.as_str())));
        all.map(|(key, value)| (key, value.to_owned())).collect()
    }

    /// The condition of each check. That all is well is said once the config is there.
    pub fn checks(&mut self, hub: &Hub, seen: &Gathered, plan: &Plan, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, active) in &plan.checks {
            let Some(check) = hub.checks.get(None, name) else { continue };
            let placement = check.spec.parameters.as_ref().map_or("", |parameters| &parameters.name);
            if active.holds && !is_written(seen, plan, placement) {
                continue;
            }
            let target = Target::status(Kind::AdmissionCheck, name);
            let now = self.since(&target, &check.metadata, now);
            if let Some(conditions) = conditions(&check, active, now) {
                let version = &check.metadata.resource_version;
                let patch = json!({
                    "metadata": {"resourceVersion": version}, "status": {"conditions": conditions},
                });
                changes.push(Change { target, action: Action::Merge(patch), manager: MANAGER });
            }
        }
        changes
    }

    /// When the write to this version of the object was first decided on, in whole seconds as Kubernetes has it.
    pub fn since(&mut self, target: &Target, meta: &Meta, now: Timestamp) -> Timestamp {
        let key = (target.clone(), meta.resource_version.clone());
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        self.used.insert(key.clone());
        *self.times.entry(key).or_insert(now)
    }

    pub fn forget_old(&mut self) {
        let used = std::mem::take(&mut self.used);
        self.times.retain(|key, _| used.contains(key));
    }
}

type Labels = BTreeMap<&'static str, String>;

fn write(target: Target, found: Option<&Meta>, labels: &Labels, same: bool, spec: &Value) -> Option<Change> {
    let action = match found {
        None => {
            let kind =
                if target.kind == Kind::MultiKueueConfig { "MultiKueueConfig" } else { "MultiKueueCluster" };
            Action::Create(json!({
                "apiVersion": API_VERSION, "kind": kind,
                "metadata": {"name": target.name, "labels": labels}, "spec": spec,
            }))
        }
        Some(found) => {
            let labelled = labels.iter().all(|(key, value)| found.labels.get(*key) == Some(value));
            if (same && labelled) || found.deletion_timestamp.is_some() {
                return None;
            }
            let metadata = json!({"resourceVersion": found.resource_version, "labels": labels});
            Action::Merge(json!({"metadata": metadata, "spec": spec}))
        }
    };
    Some(Change { target, action, manager: MANAGER })
}

fn cluster_source(source: &Source) -> ClusterSource {
    match source {
        Source::Secret(name) => ClusterSource {
            kube_config: Some(KubeConfig { location: name.clone(), location_type: "Secret".to_owned() }),
            cluster_profile_ref: None,
        },
        Source::ClusterProfile(name) => ClusterSource {
            kube_config: None,
            cluster_profile_ref: Some(ClusterProfileRef { name: name.clone() }),
        },
    }
}

fn deletions(hub: &Hub, seen: &Gathered, plan: &Plan) -> Vec<Change> {
    let gone =
        plan.configs_to_delete(&seen.configs).filter_map(|name| hub.multikueue_configs.get(None, name));
    let mut changes: Vec<Change> =
        gone.filter_map(|config| delete(Kind::MultiKueueConfig, &config.metadata)).collect();
    let configs = hub.multikueue_configs.all();
    let named: BTreeSet<&str> =
        configs.iter().flat_map(|config| &config.spec.clusters).map(String::as_str).collect();
    let gone = plan.clusters_to_delete(&seen.clusters).filter(|name| !named.contains(name));
    let gone = gone.filter_map(|name| hub.multikueue_clusters.get(None, name));
    changes.extend(gone.filter_map(|cluster| delete(Kind::MultiKueueCluster, &cluster.metadata)));
    changes
}

fn delete(kind: Kind, meta: &Meta) -> Option<Change> {
    let action = Action::Delete { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
    let target = Target::cluster_scoped(kind, &meta.name);
    meta.deletion_timestamp.is_none().then_some(Change { target, action, manager: MANAGER })
}

/// All conditions with ours as it should be; `None` if it is so already.
fn conditions(check: &AdmissionCheck, active: &Active, now: Timestamp) -> Option<Vec<Value>> {
    let status = if active.holds { "True" } else { "False" };
    let mut conditions = check.status.conditions.clone();
    let found = conditions.iter().position(|condition| condition["type"] == ACTIVE);
    let before = found.map(|at| conditions[at].clone()).unwrap_or_default();
    let since = if before["status"] == status { before["lastTransitionTime"].clone() } else { json!(now) };
    let wanted = json!({
        "type": ACTIVE, "status": status, "reason": active.reason.word(), "message": active.message,
        "observedGeneration": active.observed_generation, "lastTransitionTime": since,
    });
    match found {
        Some(_) if before == wanted => return None,
        Some(at) => conditions[at] = wanted,
        None => conditions.push(wanted),
    }
    Some(conditions)
}
