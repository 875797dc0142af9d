//! Claims as the loop that owns them reads and writes them.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Resource;
use serde_json::{Value, json};

use crate::{
    types::claim::ClusterResourceClaim,
    write::{Action, Change, Kind, Target},
};
use fedq_domain::{
    claim::{CAPACITY_MANAGER, ClaimText},
    claim_keeping::{KeptClaim, Step},
};

/// Set by whoever writes a claim for somebody else.
/// On a claim: the person for whom the API wrote it last.
pub const EDITED_BY: &str = "fedq.dev/edited-by";
const NOMINAL: &str = ".spec.nominalResources.";

pub fn kept_claim(claim: &ClusterResourceClaim, refused: BTreeSet<String>) -> KeptClaim {
    let meta = &claim.metadata;
    KeptClaim {
        text: ClaimText::from(claim),
        uid: meta.uid.clone().unwrap_or_default(),
        version: meta.resource_version.clone().unwrap_or_default(),
        created: meta.creation_timestamp.as_ref().map(|time| time.0),
        deleting: meta.deletion_timestamp.is_some(),
        made_by_fedq: managers(claim).any(|entry| is_ours(entry) && owns_cluster_name(entry)),
        refused,
    }
}

/// Who wrote the spec last: the person for whom fedq wrote it, else the field manager.
pub fn last_editor(claim: &ClusterResourceClaim) -> String {
    // Of several in the same second, a person's is the one to name.
    let newest = managers(claim).filter(|entry| owns_spec(entry)).max_by_key(|entry| {
        let time = entry.time.as_ref().map(|time| time.0);
        (time, !is_ours(entry))
    });
    let Some(manager) = newest.and_then(|entry| entry.manager.clone()) else { return "unknown".to_owned() };
    let person = claim.metadata.annotations.as_ref().and_then(|all| all.get(EDITED_BY));
    match person {
        Some(person) if manager == fedq_domain::claim::EDIT_MANAGER => person.clone(),
        _ => manager,
    }
}

fn managers(claim: &ClusterResourceClaim) -> impl Iterator<Item = &ManagedFieldsEntry> {
    let entries = claim.metadata.managed_fields.iter().flatten();
    entries.filter(|entry| entry.subresource.as_deref().is_none_or(str::is_empty))
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(CAPACITY_MANAGER)
}

fn owns_spec(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:spec").is_some())
}

fn owns_cluster_name(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref();
    fields.and_then(|fields| fields.0.get("f:spec")?.get("f:clusterName")).is_some()
}

pub fn change(step: &Step) -> Change {
    let (name, action) = match step {
        Step::Create { name, cluster, nominal } => {
            let spec = json!({"clusterName": cluster, "nominalResources": nominal});
            (name.to_string(), Action::Apply(body(&json!({"name": name}), &spec).into()))
        }
        Step::Follow { name, uid, cluster, nominal } => {
            let mut spec = json!({"nominalResources": nominal});
            if let Some(cluster) = cluster {
                spec["clusterName"] = json!(cluster);
            }
            // The uid keeps an apply from making a claim that was deleted meanwhile.
            (name.clone(), Action::Apply(body(&json!({"name": name, "uid": uid}), &spec).into()))
        }
        Step::Delete { name, uid, version } => {
            (name.clone(), Action::Delete { uid: uid.clone(), resource_version: version.clone() })
        }
    };
    Change { target: Target::cluster_scoped(Kind::Claim, name), action, manager: CAPACITY_MANAGER }
}

fn body(metadata: &Value, spec: &Value) -> Value {
    json!({
        "apiVersion": ClusterResourceClaim::api_version(&()),
        "kind": ClusterResourceClaim::kind(&()),
        "metadata": metadata,
        "spec": spec,
    })
}

/// The key of `nominalResources` that a conflict is about.
pub fn conflicting_key(field: &str) -> Option<&str> {
    field.strip_prefix(NOMINAL)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use fedq_values::ids::{ClaimName, ClusterName};

    fn claim(managers: &Value, annotations: &Value) -> ClusterResourceClaim {
        serde_json::from_value(json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1",
            "kind": "ClusterResourceClaim",
            "metadata": {"name": "c", "uid": "u", "resourceVersion": "5", "managedFields": managers,
                "annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"clusterName": "cluster2", "nominalResources": {"cpu": "4"}},
        }))
        .unwrap()
    }

    fn manager(name: &str, second: u32, fields: &Value) -> Value {
        json!({"manager": name, "operation": "Apply", "time": format!("2026-01-01T00:00:{second:02}Z"),
            "fieldsV1": {"f:spec": fields}})
    }

    #[test]
    fn whoever_wrote_the_spec_last_is_named() {
        let cpu = json!({"f:nominalResources": {"f:cpu": {}}});
        let ours = manager("fedq-capacity", 5, &cpu);
        let status = json!({"manager": "fedq-status", "subresource": "status", "time": "2026-01-01T01:00:00Z",
            "fieldsV1": {"f:status": {}}});
        let none = json!({});
        let editor = |managers: Value| last_editor(&claim(&managers, &none));
        assert_eq!(editor(json!([])), "unknown");
        assert_eq!(editor(json!([ours.clone(), status])), "fedq-capacity");
        let person = |second| manager("kubectl-edit", second, &json!({"f:resourceAssignments": {}}));
        assert_eq!(editor(json!([person(4), ours.clone()])), "fedq-capacity");
        assert_eq!(editor(json!([person(5), ours.clone()])), "kubectl-edit");
        let edited = manager("fedq-edit", 9, &json!({"f:resourceAssignments": {}}));
        assert_eq!(editor(json!([ours.clone(), edited.clone()])), "fedq-edit");
        let by = json!({"fedq.dev/edited-by": "ann@example.com"});
        assert_eq!(last_editor(&claim(&json!([ours, edited]), &by)), "ann@example.com");
    }

    #[test]
    fn a_claim_that_fedq_made_is_known_by_its_cluster_name() {
        let made = |name: &str| {
            let managers = json!([manager(name, 1, &json!({"f:clusterName": {}}))]);
            kept_claim(&claim(&managers, &json!({})), BTreeSet::new()).made_by_fedq
        };
        assert!(made("fedq-capacity"));
        assert!(!made("kubectl-create"));
    }

    #[test]
    fn steps_become_applies_that_revive_nothing() {
        let nominal = BTreeMap::from([("cpu".to_owned(), "4".to_owned())]);
        let create = Step::Create {
            name: ClaimName::new("cluster2-resource-claim").unwrap(),
            cluster: ClusterName::new("cluster2").unwrap(),
            nominal: nominal.clone(),
        };
        let Action::Apply(body) = change(&create).action else { panic!("an apply") };
        let spec = json!({"clusterName": "cluster2", "nominalResources": {"cpu": "4"}});
        assert_eq!(body["spec"], spec);
        let mut follow = Step::Follow { name: "c".to_owned(), uid: "u".to_owned(), cluster: None, nominal };
        let Action::Apply(body) = change(&follow).action else { panic!("an apply") };
        assert_eq!(body["metadata"], json!({"name": "c", "uid": "u"}));
        assert_eq!(body["spec"], json!({"nominalResources": {"cpu": "4"}}));
        if let Step::Follow { cluster, .. } = &mut follow {
            *cluster = Some("cluster2".to_owned());
        }
        let Action::Apply(body) = change(&follow).action else { panic!("an apply") };
        assert_eq!(body["spec"]["clusterName"], "cluster2");
        let delete = Step::Delete { name: "c".to_owned(), uid: "u".to_owned(), version: "5".to_owned() };
        let expected = Action::Delete { uid: "u".to_owned(), resource_version: "5".to_owned() };
        assert_eq!(change(&delete).action, expected);
        assert_eq!(conflicting_key(".spec.nominalResources.nvidia.com/gpu"), Some("nvidia.com/gpu"));
        assert_eq!(conflicting_key(".spec.clusterName"), None);
    }
}
