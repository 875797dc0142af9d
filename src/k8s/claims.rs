//! ClusterResourceClaims: read once, and their status rendered once.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::{
    api::resource::Quantity,
    apis::meta::v1::{Condition as KubeCondition, Time},
};
use kube::Resource;
use serde_json::json;

use crate::domain::{
    claim_status::{ClaimStatus, Condition, ConditionKind, Truth},
    resources::{Aliases, Resources},
};

use super::{
    types::claim::{
        AssignmentStatus, ClusterResourceClaim, ClusterResourceClaimStatus, FlavorStatus, QuantityText,
    },
    write::{Action, Change, Kind, Target},
};

/// Field manager of the status.
pub const STATUS_MANAGER: &str = "fedq-status";

/// The conditions that the claim has now; ones that are not fedq's are left out, and alone.
pub fn conditions(claim: &ClusterResourceClaim) -> Vec<Condition> {
    let condition = |condition: &KubeCondition| {
        Some(Condition {
            kind: ConditionKind::from_word(&condition.type_)?,
            status: Truth::from_word(&condition.status)?,
            reason: condition.reason.clone(),
            message: condition.message.clone(),
            observed_generation: condition.observed_generation.unwrap_or_default(),
            last_transition: condition.last_transition_time.0,
        })
    };
    claim.status.iter().flat_map(|status| &status.conditions).filter_map(condition).collect()
}

pub fn render_status(status: &ClaimStatus, aliases: &Aliases) -> ClusterResourceClaimStatus {
    let short = |resources: &Resources| short(resources, aliases);
    let flavor = |(name, flavor): (&_, &crate::domain::claim_status::FlavorStatus)| FlavorStatus {
        name: ToString::to_string(name),
        capacity: short(&flavor.capacity),
        assigned: short(&flavor.assigned),
        unassigned: short(&flavor.unassigned),
    };
    let assignment = |assignment: &crate::domain::claim_status::AssignmentStatus| AssignmentStatus {
        cluster_queue_name: assignment.queue.to_string(),
        flavor: assignment.flavor.to_string(),
        requested: short(&assignment.requested),
        effective: short(&assignment.effective),
        reason: assignment.reason.to_owned(),
    };
    let condition = |condition: &Condition| KubeCondition {
        type_: condition.kind.word().to_owned(),
        status: condition.status.word().to_owned(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        observed_generation: Some(condition.observed_generation),
        last_transition_time: Time(to_the_second(condition.last_transition)),
    };
    ClusterResourceClaimStatus {
        observed_generation: Some(status.observed_generation),
        capacity: short(&status.capacity),
        foreign: short(&status.foreign),
        flavors: status.flavors.iter().map(flavor).collect(),
        assignments: status.assignments.iter().map(assignment).collect(),
        short: status.short.clone(),
        last_observed_time: status.last_observed.map(|at| Time(to_the_second(at))),
        conditions: status.conditions.iter().map(condition).collect(),
    }
}

/// The write that the claim needs to say `status`; `None` when only the time of observation differs.
pub fn status_change(
    claim: &ClusterResourceClaim,
    status: &ClaimStatus,
    aliases: &Aliases,
) -> Option<Change> {
    let wanted = render_status(status, aliases);
    if claim.status.as_ref().is_some_and(|found| says_the_same(found, &wanted)) {
        return None;
    }
    let name = claim.metadata.name.clone()?;
    let body = json!({
        "apiVersion": ClusterResourceClaim::api_version(&()),
        "kind": ClusterResourceClaim::kind(&()),
        // The very object that was looked at: one made anew meanwhile gets a status of its own.
        "metadata": {"name": name, "uid": claim.metadata.uid},
        "status": wanted,
    });
    Some(Change {
        target: Target::status(Kind::Claim, name),
        action: Action::Apply(body),
        manager: STATUS_MANAGER,
    })
}

/// Whether nothing but the time of observation differs, in whatever order the server keeps lists.
fn says_the_same(found: &ClusterResourceClaimStatus, wanted: &ClusterResourceClaimStatus) -> bool {
    let plain = |status: &ClusterResourceClaimStatus| {
        let mut status = status.clone();
        status.last_observed_time = None;
        // Other people's conditions are theirs.
        status.conditions.retain(|condition| ConditionKind::from_word(&condition.type_).is_some());
        status.conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        status.flavors.sort_by(|a, b| a.name.cmp(&b.name));
        let key = |assignment: &AssignmentStatus| {
            (assignment.cluster_queue_name.clone(), assignment.flavor.clone())
        };
        status.assignments.sort_by_key(key);
        status
    };
    plain(found) == plain(wanted)
}

fn short(resources: &Resources, aliases: &Aliases) -> BTreeMap<String, QuantityText> {
    let text = |(resource, amount): (&_, &crate::domain::quantity::Amount)| {
        (aliases.short(resource).to_owned(), QuantityText(Quantity(amount.text(resource))))
    };
    resources.iter().map(text).collect()
}

/// Kubernetes keeps no finer time in these fields, and what differs by less is no change.
fn to_the_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::domain::{ids::ResourceName, quantity::Amount};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status(observed: Timestamp) -> ClaimStatus {
        let gpu = ResourceName::new("nvidia.com/gpu").unwrap();
        ClaimStatus {
            observed_generation: 3,
            capacity: Resources::from([(gpu, Amount::new(8))]),
            last_observed: Some(observed),
            conditions: vec![Condition {
                kind: ConditionKind::Ready,
                status: Truth::True,
                reason: "Ready".to_owned(),
                message: String::new(),
                observed_generation: 3,
                last_transition: observed,
            }],
            ..ClaimStatus::default()
        }
    }

    fn claim(status: Option<&Value>) -> ClusterResourceClaim {
        serde_json::from_value(json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1",
            "kind": "ClusterResourceClaim",
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "5", "generation": 3},
            "spec": {"clusterName": "cluster2"},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_status_is_written_with_short_names_and_once() {
        let aliases = Aliases::default();
        let change = status_change(&claim(None), &status(at(100)), &aliases).expect("a write");
        let Action::Apply(body) = &change.action else { panic!("{change:?}") };
        assert_eq!(body["status"]["capacity"], json!({"gpu": "8"}));
        assert_eq!(body["metadata"], json!({"name": "c", "uid": "u"}));
        assert_eq!(change.manager, "fedq-status");

        let mut written = body["status"].clone();
        let theirs = json!({"type": "Approved", "status": "True", "reason": "ByHand", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        written["conditions"].as_array_mut().unwrap().insert(0, theirs);
        let found = claim(Some(&written));
        assert_eq!(conditions(&found), status(at(100)).conditions);
        assert_eq!(status_change(&found, &status(at(100)), &aliases), None);

        let mut later = status(at(100));
        later.last_observed = Some(at(900));
        assert_eq!(status_change(&found, &later, &aliases), None, "only the time differs");
        later.observed_generation = 4;
        let change = status_change(&found, &later, &aliases).expect("a write");
        let Action::Apply(body) = change.action else { panic!("an apply") };
        assert_eq!(body["status"]["lastObservedTime"], "1970-01-01T00:15:00Z");
    }
}
