//! The text that each cluster's quota rests on, kept in the store: what stands on the hub may be an edit that is
//! not valid or a second claim, and must not come into force because fedqd was started again.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use tracing::warn;

use fedq_domain::{
    claim::{self, ClaimText, ValidClaim},
    resources::{Aliases, Resources},
};
use fedq_k8s::types::claim::ClusterResourceClaim;
use fedq_store::{ClaimInForce, Store, StoreError};
use fedq_values::ids::{ClusterName, QueueName};

use super::{QuotaController, gather::same, record::Record};

pub(super) type InForce = BTreeMap<ClusterName, Arc<ValidClaim>>;

/// The claims as they were last in force, which is what a claim that vanished or is not valid is judged by.
pub(super) async fn known_claims(store: &Store, aliases: &Aliases) -> Result<InForce, StoreError> {
    let rows = store.claims_in_force().await?;
    let known = rows.iter().filter_map(|row| claim_of_row(row, aliases));
    Ok(known.map(|claim| (claim.cluster().clone(), Arc::new(claim))).collect())
}

/// Every value of `nominalResources` counts as a person's: those that follow capacity are not stored.
pub(super) fn claim_of_row(row: &ClaimInForce, aliases: &Aliases) -> Option<ValidClaim> {
    let spec = serde_json::from_value(row.spec.clone());
    let object = spec.map(|spec| ClusterResourceClaim::new(row.name.as_str(), spec));
    let claim = object.map(|object| claim::validate(&ClaimText::from(&object), aliases));
    match claim {
        Ok(Ok(claim)) => return Some(claim),
        Ok(Err(problems)) => {
            let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
            warn!(claim = %row.name, "Claim `{}` as it was in force is not valid any more: {}", row.name, problems.join("; "));
        }
        Err(error) => {
            warn!(claim = %row.name, "Claim `{}` as it was in force cannot be read: {error}", row.name);
        }
    }
    None
}

pub(super) fn row_of(claim: &ValidClaim) -> ClaimInForce {
    let text = |resources: &Resources| -> BTreeMap<String, String> {
        resources.iter().map(|(resource, amount)| (resource.to_string(), amount.text(resource))).collect()
    };
    let assignment = |one: &claim::Assignment| -> Value {
        let (queue, flavor): (&QueueName, _) = (&one.queue, &one.flavor);
        json!({"clusterQueueName": queue, "flavor": flavor, "resources": text(&one.resources)})
    };
    let assignments: Vec<Value> = claim.assignments().iter().map(assignment).collect();
    let spec = json!({
        "clusterName": claim.cluster(), "nominalResources": text(&claim.caps()), "resourceAssignments": assignments,
    });
    ClaimInForce { name: claim.name().clone(), spec }
}

impl QuotaController {
    /// Stores what of the claims in force is not as it was.
    pub(super) fn keep_in_force(&mut self, in_force: &Arc<InForce>) {
        let before = std::mem::replace(&mut self.stored_in_force, Arc::clone(in_force));
        let is_kept = |cluster: &ClusterName, claim: &Arc<ValidClaim>| {
            before.get(cluster).is_some_and(|known| {
                same(Some(known), Some(claim))
                    || known.name() == claim.name()
                        && known.assignments() == claim.assignments()
                        && known.caps() == claim.caps()
            })
        };
        for (cluster, claim) in in_force.iter().filter(|(cluster, claim)| !is_kept(cluster, claim)) {
            self.store_later(Record::InForce(cluster.clone(), Some(row_of(claim))));
        }
        for cluster in before.keys().filter(|cluster| !in_force.contains_key(*cluster)) {
            self.store_later(Record::InForce(cluster.clone(), None));
        }
    }
}
