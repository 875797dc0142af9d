//! What a Placement still needs, as writes.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::MANAGER;
use fedq_domain::{
    placement::{
        changes::{Change as Wanted, Report},
        conditions::Condition,
    },
    queue::{objects, selector::Labels},
};
use fedq_k8s::{
    list_watch::Table,
    read::ocm::KINDS,
    types::ocm::{ClusterDecision, DecisionGroupStatus, Placement, PlacementDecision, StatusCondition},
    write::{Action, Change, Kind, Target},
};

pub(super) struct Rendering<'a> {
    pub hub_id: &'a str,
    pub placement: &'a Placement,
    pub decisions: &'a Table<PlacementDecision>,
    pub now: Timestamp,
}

impl Rendering<'_> {
    /// `None` where another write has to come first.
    pub fn change(&self, wanted: &Wanted) -> Option<Change> {
        let namespace = self.placement.metadata.namespace.clone().unwrap_or_default();
        let plain = |name: &str| Target::namespaced(Kind::PlacementDecision, namespace.clone(), name);
        let status = |name: &str| Target::status_within(Kind::PlacementDecision, namespace.clone(), name);
        let (target, action) = match wanted {
            Wanted::Create { name, labels } => (plain(name), Action::Create(self.decision(name, labels))),
            Wanted::Label { name, labels } => {
                let version = self.existing(name)?.metadata.resource_version.clone();
                let labels = self.labels(labels);
                let patch = json!({"metadata": {"resourceVersion": version, "labels": labels}});
                (plain(name), Action::Merge(patch))
            }
            Wanted::Decide { name, clusters } => {
                let version = self.existing(name)?.metadata.resource_version.clone();
                let decision = |cluster: &fedq_values::ids::ClusterName| ClusterDecision {
                    cluster_name: cluster.to_string(),
                    reason: String::new(),
                };
                let decisions: Vec<_> = clusters.iter().map(decision).collect();
                let patch =
                    json!({"metadata": {"resourceVersion": version}, "status": {"decisions": decisions}});
                (status(name), Action::Merge(patch))
            }
            Wanted::Delete { name } => {
                let found = self.existing(name)?;
                let uid = found.metadata.uid.clone();
                let resource_version = found.metadata.resource_version.clone();
                (plain(name), Action::Delete { uid, resource_version })
            }
            Wanted::Report(report) => {
                let name = &self.placement.metadata.name;
                let target = Target::status_within(Kind::Placement, namespace.clone(), name);
                (target, Action::Merge(self.report(report)))
            }
        };
        Some(Change { target, action, manager: MANAGER })
    }

    fn existing(&self, name: &str) -> Option<std::sync::Arc<PlacementDecision>> {
        self.decisions.get(self.placement.metadata.namespace.as_deref(), name)
    }

    fn labels(&self, labels: &Labels) -> Value {
        let mut all = objects::labels(self.hub_id);
        all.extend(labels.iter().map(|(key, value)| (key.clone(), json!(value))));
        Value::Object(all)
    }

    fn decision(&self, name: &str, labels: &Labels) -> Value {
        let metadata = &self.placement.metadata;
        json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1",
            "kind": "PlacementDecision",
            "metadata": {
                "name": name, "namespace": metadata.namespace, "labels": self.labels(labels),
                "ownerReferences": [{
                    "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
                    "name": metadata.name, "uid": metadata.uid, "controller": true,
                }],
            },
        })
    }

    fn report(&self, report: &Report) -> Value {
        let group = |group: &fedq_domain::placement::changes::GroupReport| DecisionGroupStatus {
            decision_group_index: group.index,
            decision_group_name: group.name.clone(),
            decisions: group.decisions.clone(),
            cluster_count: group.clusters,
        };
        let existing = &self.placement.status.conditions;
        let others = existing.iter().filter(|condition| !KINDS.contains(&condition.type_.as_str()));
        let ours = report.conditions.iter().map(|condition| self.condition(condition));
        let conditions: Vec<_> = others.cloned().chain(ours).collect();
        json!({
            "metadata": {"resourceVersion": self.placement.metadata.resource_version},
            "status": {
                "numberOfSelectedClusters": report.selected,
                "decisionGroups": report.groups.iter().map(group).collect::<Vec<_>>(),
                "conditions": conditions,
            },
        })
    }

    fn condition(&self, condition: &Condition) -> StatusCondition {
        let status = if condition.holds { "True" } else { "False" };
        let existing = &self.placement.status.conditions;
        let before = existing.iter().find(|known| known.type_ == condition.kind && known.status == status);
        StatusCondition {
            type_: condition.kind.to_owned(),
            status: status.to_owned(),
            reason: condition.reason.to_owned(),
            message: condition.message.clone(),
            last_transition_time: before
                .and_then(|known| known.last_transition_time)
                .or(Some(seconds(self.now))),
            observed_generation: before.and_then(|known| known.observed_generation),
        }
    }
}

/// As the API server has times.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
