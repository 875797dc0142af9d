//! The text that each cluster's quota rests on, kept in the store: what stands on the hub may be an edit that is
//! not valid or a second claim, and must not come into force because fedqd was started again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};
use tracing::warn;

use fedq_domain::{
    claim::{self, ClaimText, ValidClaim},
    claim_status::Verdict,
    resources::{Aliases, Resources},
};
use fedq_k8s::{
    claims::{ReadClaim, ReadClaims},
    types::claim::ClusterResourceClaim,
};
use fedq_store::{ClaimGeneration, ClaimInForce, Store, StoreError};
use fedq_values::ids::{ClusterName, QueueName};

use super::{QuotaController, gather::same, record::Record};

pub(super) type InForce = BTreeMap<ClusterName, Arc<ValidClaim>>;

/// The claims in force as the store has them, or is about to.
#[derive(Default)]
pub(super) struct Stored {
    claims: Arc<InForce>,
    /// As of which generation.
    seen: BTreeMap<ClusterName, ClaimGeneration>,
    /// Clusters whose text may be older than what was put to work: storing waits for nobody, and a disk may be full. All
    /// that were stored are judged by the claims that are read first.
    behind: BTreeSet<ClusterName>,
}

impl Stored {
    /// The claims as they were last in force, which is what a claim that vanished or is not valid is judged by.
    pub async fn load(store: &Store, aliases: &Aliases) -> Result<Self, StoreError> {
        let mut stored = Self::default();
        let mut claims = InForce::new();
        for row in store.claims_in_force().await? {
            let Some(claim) = claim_of_row(&row, aliases) else { continue };
            let cluster = claim.cluster().clone();
            stored.seen.extend(row.seen.map(|seen| (cluster.clone(), seen)));
            stored.behind.insert(cluster.clone());
            claims.insert(cluster, Arc::new(claim));
        }
        stored.claims = Arc::new(claims);
        Ok(stored)
    }

    pub fn claims(&self) -> impl Iterator<Item = &Arc<ValidClaim>> {
        self.claims.values()
    }

    /// Clusters whose claim is not valid, where a text may have been in force that is newer than the stored one: what they
    /// have, they keep until it is mended.
    pub fn behind(&self) -> &BTreeSet<ClusterName> {
        &self.behind
    }

    fn judge(&mut self, read: &ReadClaims) {
        let (claims, seen) = (&self.claims, &self.seen);
        self.behind.retain(|cluster| {
            let claim = claims.get(cluster).and_then(|claim| read.get(claim.name()));
            claim.zip(seen.get(cluster)).is_some_and(|(claim, seen)| tells_of_later(claim, seen))
        });
    }

    fn has(&self, cluster: &ClusterName, claim: &Arc<ValidClaim>) -> bool {
        self.claims.get(cluster).is_some_and(|known| {
            same(Some(known), Some(claim))
                || known.name() == claim.name()
                    && known.assignments() == claim.assignments()
                    && known.caps() == claim.caps()
        })
    }
}

/// Whether fedqd has said something of a later generation than that. One that is valid says itself what is in force.
fn tells_of_later(claim: &ReadClaim, seen: &ClaimGeneration) -> bool {
    let metadata = &claim.object.metadata;
    let told = claim.object.status.as_ref().and_then(|status| status.observed_generation);
    let is_other = metadata.uid.as_ref() != Some(&seen.uid);
    matches!(claim.verdict, Verdict::Rejected(_))
        && told.is_some_and(|told| is_other || seen.generation < told)
}

fn generation_of(claim: &ReadClaim) -> Option<ClaimGeneration> {
    let metadata = &claim.object.metadata;
    Some(ClaimGeneration { uid: metadata.uid.clone()?, generation: metadata.generation? })
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

pub(super) fn row_of(claim: &ValidClaim, seen: Option<ClaimGeneration>) -> ClaimInForce {
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
    ClaimInForce { name: claim.name().clone(), spec, seen }
}

impl QuotaController {
    /// Stores what of the claims in force is not as it was, and as of which generation they are.
    pub(super) fn keep_in_force(&mut self, in_force: &Arc<InForce>, read: &ReadClaims) {
        self.stored.judge(read);
        let mut records = Vec::new();
        for (cluster, claim) in in_force.iter() {
            // What is behind must be found so by the next start, too.
            let is_behind = self.stored.behind.contains(cluster);
            let now = read.get(claim.name()).filter(|_| !is_behind).and_then(|claim| generation_of(claim));
            let before = self.stored.seen.get(cluster);
            let is_seen = now.is_none() || now.as_ref() == before;
            if is_seen && self.stored.has(cluster, claim) {
                continue;
            }
            let seen = now.or_else(|| before.cloned());
            self.stored.seen.extend(seen.clone().map(|seen| (cluster.clone(), seen)));
            records.push(Record::InForce(cluster.clone(), Some(row_of(claim, seen))));
        }
        let before = std::mem::replace(&mut self.stored.claims, Arc::clone(in_force));
        for cluster in before.keys().filter(|cluster| !in_force.contains_key(*cluster)) {
            self.stored.seen.remove(cluster);
            records.push(Record::InForce(cluster.clone(), None));
        }
        for record in records {
            self.store_later(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use fedq_k8s::claims::read_claim;

    use super::*;

    /// A claim at generation 7, of which fedqd last said something at `told`.
    fn claim(uid: &str, told: Option<i64>, gpus: &str) -> ReadClaim {
        let assignment =
            json!({"clusterQueueName": "q", "flavor": "f", "resources": {"nvidia.com/gpu": gpus}});
        let status = told.map(|told| json!({"observedGeneration": told}));
        let object = json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {"name": "east-resource-claim", "uid": uid, "generation": 7},
            "spec": {"clusterName": "east", "resourceAssignments": [assignment]}, "status": status,
        });
        read_claim(&Arc::new(serde_json::from_value(object).expect("a claim")), &Aliases::default())
    }

    #[test]
    fn a_stored_text_is_behind_where_the_status_tells_of_a_later_generation() {
        let (valid, invalid) = ("1", "1e99");
        let seen = ClaimGeneration { uid: "u".to_owned(), generation: 5 };
        for (uid, told, gpus, behind) in [
            ("u", Some(6), invalid, true),
            ("u", Some(7), invalid, true),
            ("u", Some(5), invalid, false),
            ("u", None, invalid, false),
            ("u", Some(7), valid, false),
            // Another object of that name, of which something was said.
            ("v", Some(1), invalid, true),
            ("v", None, invalid, false),
        ] {
            assert_eq!(tells_of_later(&claim(uid, told, gpus), &seen), behind, "{uid} {told:?} {gpus}");
        }
    }
}
