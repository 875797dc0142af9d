//! What the hub's objects of one cluster still lack, as writes.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{MANAGER, Sources};
use fedq_domain::{
    inventory::{self, Availability, Status},
    placement::hub::Taint,
    queue::objects,
    resources::Resources,
};
use fedq_k8s::{
    types::{
        meta::{Meta, QuantityText},
        ocm::{
            AVAILABLE, AddOnPlacementScore, ClientConfig, ClusterClaim, ClusterTaint, GROUP, ManagedCluster,
            ScoreItem, StatusCondition,
        },
    },
    write::{Action, Change, Kind, Target},
};
use fedq_values::ids::ClusterName;

const ACCEPTED: &str = "HubAcceptedManagedCluster";
const JOINED: &str = "ManagedClusterJoined";
/// OCM puts a cluster that is in no set into this one.
const SET_LABEL: &str = "cluster.open-cluster-management.io/clusterset";
const ID_CLAIM: &str = "id.k8s.io";
const VERSION_CLAIM: &str = "kubeversion.open-cluster-management.io";

pub(super) struct Rendering<'a> {
    pub hub_id: &'a str,
    pub name: &'a ClusterName,
    pub now: Timestamp,
}

impl Rendering<'_> {
    /// The object, then its spec, then its status.
    pub fn cluster(&self, seen: &Sources) -> Vec<Change> {
        let Some(object) = &seen.cluster else { return vec![self.new_cluster(seen)] };
        if !object.metadata.is_labelled(self.hub_id) || object.metadata.deletion_timestamp.is_some() {
            return Vec::new();
        }
        let availability = inventory::availability(&seen.connection);
        [self.spec(object, seen, availability.as_ref()), self.status(object, seen, availability.as_ref())]
            .into_iter()
            .flatten()
            .collect()
    }

    fn new_cluster(&self, seen: &Sources) -> Change {
        let mut labels = objects::labels(self.hub_id);
        labels.insert(SET_LABEL.to_owned(), json!("default"));
        // As in OCM, a cluster nothing is known of yet is unreachable.
        let taints = inventory::taints(&[], Status::Unknown, seconds(self.now));
        let body = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ManagedCluster",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {
                "hubAcceptsClient": true,
                "managedClusterClientConfigs": configs(seen),
                "taints": taints.into_iter().map(taint).collect::<Vec<_>>(),
            },
        });
        change(Target::cluster_scoped(Kind::ManagedCluster, self.name.as_str()), Action::Create(body))
    }

    fn spec(&self, object: &ManagedCluster, seen: &Sources, said: Option<&Availability>) -> Option<Change> {
        let existing: Vec<Taint> = object.spec.taints.iter().map(read_taint).collect();
        let taints = said
            .map_or(existing.clone(), |said| inventory::taints(&existing, said.status, seconds(self.now)));
        let configs = configs(seen);
        let moved = !configs.is_empty() && object.spec.managed_cluster_client_configs != configs;
        let mut spec = Map::new();
        if taints != existing {
            let taints: Vec<_> = taints.into_iter().map(taint).collect();
            spec.insert("taints".to_owned(), json!(taints));
        }
        if moved {
            spec.insert("managedClusterClientConfigs".to_owned(), json!(configs));
        }
        if spec.is_empty() {
            return None;
        }
        let patch = json!({"metadata": {"resourceVersion": object.metadata.resource_version}, "spec": spec});
        Some(change(Target::cluster_scoped(Kind::ManagedCluster, self.name.as_str()), Action::Merge(patch)))
    }

    fn status(&self, object: &ManagedCluster, seen: &Sources, said: Option<&Availability>) -> Option<Change> {
        let found = &object.status;
        let mut status = Map::new();
        if let Some(capacity) = &seen.capacity {
            for (field, found, wanted) in [
                ("capacity", &found.capacity, &capacity.capacity.all),
                ("allocatable", &found.allocatable, &capacity.capacity.total),
            ] {
                status.extend(amounts(found, wanted).map(|amounts| (field.to_owned(), amounts)));
            }
        }
        if let Some(version) = seen.version.as_ref().filter(|version| **version != found.version.kubernetes) {
            status.insert("version".to_owned(), json!({"kubernetes": version}));
        }
        let claims = claims(&found.cluster_claims, seen);
        if claims != found.cluster_claims {
            status.insert("clusterClaims".to_owned(), json!(claims));
        }
        let conditions = self.conditions(&found.conditions, said);
        if conditions != found.conditions {
            status.insert("conditions".to_owned(), json!(conditions));
        }
        if status.is_empty() {
            return None;
        }
        let patch =
            json!({"metadata": {"resourceVersion": object.metadata.resource_version}, "status": status});
        Some(change(Target::status(Kind::ManagedCluster, self.name.as_str()), Action::Merge(patch)))
    }

    fn conditions(&self, found: &[StatusCondition], said: Option<&Availability>) -> Vec<StatusCondition> {
        let accepted = Availability {
            status: Status::True,
            reason: "HubClusterAdminAccepted",
            message: "Accepted by fedq, which an administrator joined it to".to_owned(),
        };
        let joined = Availability {
            status: Status::True,
            reason: "ManagedClusterJoined",
            message: "Managed cluster joined".to_owned(),
        };
        let mut conditions = found.to_vec();
        let wanted = [(ACCEPTED, Some(&accepted)), (JOINED, Some(&joined)), (AVAILABLE, said)];
        for (kind, said) in wanted.into_iter().filter_map(|(kind, said)| Some((kind, said?))) {
            let known = conditions.iter_mut().find(|condition| condition.type_ == kind);
            let since = known.as_ref().filter(|known| known.status == said.status.word());
            let condition = StatusCondition {
                type_: kind.to_owned(),
                status: said.status.word().to_owned(),
                reason: said.reason.to_owned(),
                message: said.message.clone(),
                last_transition_time: since
                    .and_then(|known| known.last_transition_time)
                    .or_else(|| Some(seconds(self.now))),
                observed_generation: since.and_then(|known| known.observed_generation),
            };
            match known {
                Some(known) => *known = condition,
                None => conditions.push(condition),
            }
        }
        conditions
    }

    /// OCM gives each cluster a namespace of its name; scores are there.
    pub fn namespace(&self) -> Change {
        let mut labels = objects::labels(self.hub_id);
        labels.insert("open-cluster-management.io/cluster-name".to_owned(), json!(self.name));
        let body = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": labels},
        });
        change(Target::cluster_scoped(Kind::Namespace, self.name.as_str()), Action::Create(body))
    }

    /// The write, and when the scores have to be said again.
    pub fn scores(
        &self,
        resource: &str,
        scores: &[(String, i64)],
        found: Option<&AddOnPlacementScore>,
        valid_for: Duration,
    ) -> (Option<Change>, Option<Timestamp>) {
        let Some(object) = found else {
            let body = json!({
                "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "AddOnPlacementScore",
                "metadata": {
                    "name": resource, "namespace": self.name, "labels": objects::labels(self.hub_id),
                },
            });
            let target = Target::namespaced(Kind::AddOnPlacementScore, self.name.as_str(), resource);
            return (Some(change(target, Action::Create(body))), None);
        };
        if !self.is_ours(&object.metadata) {
            return (None, None);
        }
        let until = inventory::valid_until(object.status.valid_until, valid_for, self.now);
        let again_at = until.and_then(|until| until.checked_sub(valid_for / 2).ok());
        let items: Vec<ScoreItem> =
            scores.iter().map(|(name, value)| ScoreItem { name: name.clone(), value: *value }).collect();
        if object.status.scores == items && object.status.valid_until == until {
            return (None, again_at);
        }
        let patch = json!({
            "metadata": {"resourceVersion": object.metadata.resource_version},
            "status": {"scores": items, "validUntil": until},
        });
        let target = Target::status_within(Kind::AddOnPlacementScore, self.name.as_str(), resource);
        (Some(change(target, Action::Merge(patch))), again_at)
    }

    /// Made by fedq, and not taken over by an addon since.
    fn is_ours(&self, metadata: &Meta) -> bool {
        let status =
            |manager: &&fedq_k8s::types::meta::Manager| manager.subresource.as_deref() == Some("status");
        let others = metadata.managed_fields.iter().filter(status).any(|by| by.manager != MANAGER);
        metadata.is_labelled(self.hub_id) && !others
    }
}

fn change(target: Target, action: Action) -> Change {
    Change { target, action, manager: MANAGER }
}

/// The set of that name, as OCM makes it.
pub(super) fn set(hub_id: &str, name: &str) -> Change {
    let selector = if name == "global" {
        json!({"selectorType": "LabelSelector", "labelSelector": {}})
    } else {
        json!({"selectorType": "ExclusiveClusterSetLabel"})
    };
    let body = json!({
        "apiVersion": format!("{GROUP}/v1beta2"), "kind": "ManagedClusterSet",
        "metadata": {"name": name, "labels": objects::labels(hub_id)},
        "spec": {"clusterSelector": selector},
    });
    let target = Target::cluster_scoped(Kind::ManagedClusterSet, name);
    change(target, Action::Create(body))
}

pub(super) fn delete(target: Target, metadata: &Meta) -> Change {
    let (uid, resource_version) = (metadata.uid.clone(), metadata.resource_version.clone());
    change(target, Action::Delete { uid, resource_version })
}

fn configs(seen: &Sources) -> Vec<ClientConfig> {
    seen.server.iter().map(|url| ClientConfig { url: url.clone(), ca_bundle: None }).collect()
}

fn read_taint(taint: &ClusterTaint) -> Taint {
    let ClusterTaint { key, value, effect, time_added } = taint.clone();
    Taint { key, value, effect, added: time_added }
}

fn taint(taint: Taint) -> ClusterTaint {
    let Taint { key, value, effect, added } = taint;
    ClusterTaint { key, value, effect, time_added: added }
}

/// A merge patch from what the object has to what is; `None`, where it is so.
fn amounts(found: &BTreeMap<String, QuantityText>, wanted: &Resources) -> Option<Value> {
    let mut patch: Map<String, Value> = found
        .keys()
        .filter(|resource| !wanted.keys().any(|known| known.as_str() == *resource))
        .map(|resource| (resource.clone(), Value::Null))
        .collect();
    for (resource, amount) in wanted {
        let text = amount.text(resource);
        if found.get(resource.as_str()).is_none_or(|found| found.0 != text) {
            patch.insert(resource.to_string(), json!(text));
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// What the cluster says of itself; claims that somebody else put there stay.
fn claims(found: &[ClusterClaim], seen: &Sources) -> Vec<ClusterClaim> {
    let id = seen.worker.as_ref().map(|(worker, _)| worker.uid.clone());
    let mut claims = found.to_vec();
    for (name, value) in [(ID_CLAIM, id), (VERSION_CLAIM, seen.version.clone())] {
        let Some(value) = value else { continue };
        match claims.iter_mut().find(|claim| claim.name == name) {
            Some(claim) => claim.value = value,
            None => claims.push(ClusterClaim { name: name.to_owned(), value }),
        }
    }
    claims
}

/// As the API server has times.
fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
