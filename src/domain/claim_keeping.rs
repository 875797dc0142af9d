//! What fedq itself does to claim objects: makes one for a cluster that has none, keeps the keys that
//! are its own equal to capacity, and takes away what it made and nobody uses.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::{
    claim::{CAPACITY_MANAGER, ClaimText, MAX_NOMINAL, Owner, default_name},
    resources::{Aliases, Resources},
};
use fedq_values::{
    ids::{ClaimName, ClusterName, ResourceName},
    quantity::Amount,
};

#[derive(Clone, Debug)]
pub struct KeepingInput<'a> {
    /// Capacity of the clusters that are joined and stay, but those whose claim is as it should be.
    pub capacity: BTreeMap<ClusterName, &'a Resources>,
    /// Every cluster that somebody joined, also one that is not read yet or leaves.
    pub joined: BTreeSet<ClusterName>,
    pub claims: Vec<&'a KeptClaim>,
    /// The clusters whose claim the plan rests on, whether the object is there or not: a claim that was
    /// deleted is made anew only after its removal is believed, or the new one would hide it.
    pub claimed: BTreeSet<ClusterName>,
    /// Whether all claims are known, so that one that is not there is not there.
    pub complete: bool,
    pub aliases: &'a Aliases,
}

/// A claim as it stands on the hub.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeptClaim {
    pub text: ClaimText,
    pub uid: String,
    pub version: String,
    pub created: Option<Timestamp>,
    pub deleting: bool,
    /// Whether `fedq-capacity` owns `spec.clusterName`, which is so for the claims it made.
    pub made_by_fedq: bool,
    /// Keys that the server did not let fedq write, which means that somebody took them.
    pub refused: BTreeSet<String>,
}

/// `nominal` is all that `fedq-capacity` owns afterwards: with server-side apply, a key that is left out
/// is given up, and deleted if nobody else owns it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    Create {
        name: ClaimName,
        cluster: ClusterName,
        nominal: BTreeMap<String, String>,
    },
    Follow {
        name: String,
        uid: String,
        /// Repeated where it is fedq's: left out, it would be given up as well.
        cluster: Option<String>,
        nominal: BTreeMap<String, String>,
    },
    Delete {
        name: String,
        uid: String,
        version: String,
    },
}

impl Step {
    /// The claim it is about.
    pub fn claim(&self) -> &str {
        match self {
            Self::Create { name, .. } => name.as_str(),
            Self::Follow { name, .. } | Self::Delete { name, .. } => name,
        }
    }
}

/// What is to be done now; nothing if all is as it should be.
pub fn keep(input: &KeepingInput<'_>) -> Vec<Step> {
    let mut of_cluster: BTreeMap<&str, &KeptClaim> = BTreeMap::new();
    for &claim in &input.claims {
        let holder = of_cluster.entry(&claim.text.cluster).or_insert(claim);
        if (claim.created, &claim.text.name) < (holder.created, &holder.text.name) {
            *holder = claim;
        }
    }
    let mut steps = Vec::new();
    for (cluster, capacity) in &input.capacity {
        match of_cluster.get(cluster.as_str()) {
            Some(claim) => steps.extend(follow(claim, capacity, input.aliases)),
            None => steps.extend(create(input, cluster, capacity)),
        }
    }
    steps.extend(input.claims.iter().filter(|claim| is_left_over(claim, input)).map(|claim| Step::Delete {
        name: claim.text.name.clone(),
        uid: claim.uid.clone(),
        version: claim.version.clone(),
    }));
    steps
}

/// Clusters that cannot have their claim because its name is taken by a claim for another cluster.
pub fn name_taken<'a>(input: &'a KeepingInput<'_>) -> impl Iterator<Item = (&'a ClusterName, ClaimName)> {
    let claimed: BTreeSet<&str> = input.claims.iter().map(|claim| claim.text.cluster.as_str()).collect();
    let clusters = input.capacity.keys().filter(move |cluster| !claimed.contains(cluster.as_str()));
    clusters
        .map(|cluster| (cluster, default_name(cluster)))
        .filter(|(_, name)| input.claims.iter().any(|claim| claim.text.name == name.as_str()))
}

fn create(input: &KeepingInput<'_>, cluster: &ClusterName, capacity: &Resources) -> Option<Step> {
    let name = default_name(cluster);
    let taken = input.claims.iter().any(|claim| claim.text.name == name.as_str());
    if !input.complete || taken || input.claimed.contains(cluster) {
        return None;
    }
    let nominal = wanted(&KeptClaim::default(), capacity, input.aliases);
    Some(Step::Create { name, cluster: cluster.clone(), nominal })
}

fn follow(claim: &KeptClaim, capacity: &Resources, aliases: &Aliases) -> Option<Step> {
    if claim.deleting {
        return None;
    }
    let nominal = wanted(claim, capacity, aliases);
    let owned = claim.text.nominal.iter().filter(|(key, _)| claim.owns(key) && !claim.refused.contains(*key));
    if owned.eq(&nominal) {
        return None;
    }
    Some(Step::Follow {
        name: claim.text.name.clone(),
        uid: claim.uid.clone(),
        cluster: claim.made_by_fedq.then(|| claim.text.cluster.clone()),
        nominal,
    })
}

/// Empty, fedq's own work, and of a cluster that is gone.
fn is_left_over(claim: &KeptClaim, input: &KeepingInput<'_>) -> bool {
    let text = &claim.text;
    input.complete
        && claim.made_by_fedq
        && !claim.deleting
        && text.assignments.is_empty()
        && text.nominal.keys().all(|key| claim.follows(key))
        && !input.joined.contains(text.cluster.as_str())
}

impl KeptClaim {
    /// Whether fedq is among the owners of the key.
    pub fn owns(&self, key: &str) -> bool {
        self.text.owners.managers(key).any(|manager| manager == CAPACITY_MANAGER)
    }

    /// Whether the key is fedq's alone.
    fn follows(&self, key: &str) -> bool {
        self.text.owners.owner(key) == Owner::Followed && !self.refused.contains(key)
    }

    fn assigns(&self, resource: &ResourceName, aliases: &Aliases) -> bool {
        let mut keys = self.text.assignments.iter().flat_map(|assignment| assignment.resources.keys());
        keys.any(|key| aliases.resolve(key).is_ok_and(|named| named == *resource))
    }
}

/// The keys and texts that fedq should own on the claim.
fn wanted(claim: &KeptClaim, capacity: &Resources, aliases: &Aliases) -> BTreeMap<String, String> {
    let mut wanted = BTreeMap::new();
    let mut caps: BTreeSet<ResourceName> = BTreeSet::new();
    let mut followed: BTreeMap<ResourceName, BTreeMap<&str, &str>> = BTreeMap::new();
    for (key, text) in &claim.text.nominal {
        let resource = aliases.resolve(key);
        if claim.follows(key) {
            if let Ok(resource) = resource {
                followed.entry(resource).or_default().insert(key, text);
            }
            continue;
        }
        caps.extend(resource);
        // Owned together with a person: repeated as it is, so that it becomes fedq's again when they
        // let go of it.
        if claim.owns(key) && !claim.refused.contains(key) {
            wanted.insert(key.clone(), text.clone());
        }
    }
    caps.extend(claim.refused.iter().filter_map(|key| aliases.resolve(key).ok()));
    let mut others = claim.text.nominal.keys().filter(|key| !claim.follows(key) && !claim.owns(key)).count();
    others += claim.refused.iter().filter(|key| claim.owns(key)).count();

    // Resources of Kubernetes itself come first, should there be more than the schema allows.
    let mut offers: Vec<(&ResourceName, Amount)> = capacity
        .iter()
        .map(|(resource, amount)| (resource, *amount))
        .chain(followed.keys().filter(|key| !capacity.contains_key(*key)).map(|key| (key, Amount::ZERO)))
        .filter(|(resource, _)| !caps.contains(*resource))
        // What the cluster no longer has is shown as 0 only to those who still ask for it.
        .filter(|(resource, amount)| !amount.is_zero() || claim.assigns(resource, aliases))
        .collect();
    offers.sort_by_key(|(resource, _)| (resource.as_str().contains('/'), *resource));
    for (resource, amount) in offers {
        if MAX_NOMINAL <= wanted.len() + others {
            break;
        }
        let key = aliases.short(resource);
        let text = followed.get(resource).and_then(|texts| texts.get(key)).copied();
        // Another text for the same value would be a new generation for nothing.
        let same = text.filter(|text| Amount::exact(text, resource) == Ok(amount));
        wanted.insert(key.to_owned(), same.map_or_else(|| amount.text(resource), str::to_owned));
    }
    wanted
}

#[cfg(test)]
mod tests;
