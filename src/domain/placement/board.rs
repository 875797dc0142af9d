//! All Placements of a hub with all that decides them: what changes goes in, and only the Placements
//! that it touches are evaluated again.
//!
//! As in OCM, decisions of other Placements touch none, though Balance counts them: two that
//! balance against each other would otherwise never come to rest. Its own do: Steady and tolerations that end
//! count them. Beyond OCM, users of scores in
//! expressions are touched by scores, and a label that no selector of a Placement names touches it not.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    candidates,
    hub::{AddOnScores, Binding, ClusterSet, Decision, Hub, ManagedCluster},
    spec::{Placement, PlacementKey},
    uses::Uses,
};
use crate::queue::selector::Labels;
use fedq_values::ids::ClusterName;

#[derive(Debug, Default)]
pub struct Board {
    hub: Arc<Hub>,
    placements: BTreeMap<PlacementKey, Entry>,
    touched: Touched,
}

/// Placements that are not as they were.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Touched {
    /// Something that decides them changed.
    pub evaluate: BTreeSet<PlacementKey>,
    /// Only the status of the Placement itself did.
    pub compare: BTreeSet<PlacementKey>,
}

#[derive(Debug)]
struct Entry {
    placement: Arc<Placement>,
    uses: Uses,
    /// When the answer may differ with nothing else changed.
    again_at: Option<Timestamp>,
}

/// What a change of a cluster may mean to Placements.
struct Delta<'a> {
    /// Sets that had the cluster, and sets that have it.
    before: BTreeSet<&'a str>,
    after: BTreeSet<&'a str>,
    labels: BTreeSet<&'a str>,
    claims: BTreeSet<&'a str>,
    /// Taints, deletion or amounts that cannot be read, which count for every Placement.
    always: bool,
    amounts: bool,
}

impl Board {
    /// Shared with whoever explains a decision; a later change leaves what was shared as it was.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    pub fn placement(&self, key: &PlacementKey) -> Option<&Arc<Placement>> {
        self.placements.get(key).map(|entry| &entry.placement)
    }

    pub fn placements(&self) -> impl Iterator<Item = &Arc<Placement>> {
        self.placements.values().map(|entry| &entry.placement)
    }

    /// `None` for a Placement that is gone.
    pub fn set_placement(&mut self, key: PlacementKey, placement: Option<Placement>) {
        let Some(placement) = placement else {
            self.placements.remove(&key);
            self.touched.evaluate.remove(&key);
            self.touched.compare.remove(&key);
            return;
        };
        if self.placements.get(&key).is_some_and(|entry| *entry.placement == placement) {
            self.touched.compare.insert(key);
            return;
        }
        let uses = Uses::of(&placement);
        let entry = Entry { placement: Arc::new(placement), uses, again_at: None };
        self.placements.insert(key.clone(), entry);
        self.touched.evaluate.insert(key);
    }

    /// What is new of these clusters; `None` for one that is gone.
    pub fn set_clusters(&mut self, changed: Vec<(ClusterName, Option<ManagedCluster>)>) {
        let changed: Vec<_> =
            changed.into_iter().map(|(name, cluster)| (name, cluster.map(Arc::new))).collect();
        for (name, cluster) in &changed {
            let before = self.hub.cluster(name.as_str()).map(Arc::as_ref);
            let touched = self.touched_by(before, cluster.as_deref());
            self.touched.evaluate.extend(touched);
        }
        if !changed.is_empty() {
            Arc::make_mut(&mut self.hub).set_clusters(changed);
        }
    }

    fn touched_by(
        &self,
        before: Option<&ManagedCluster>,
        after: Option<&ManagedCluster>,
    ) -> Vec<PlacementKey> {
        let delta = Delta {
            before: before.map(|cluster| self.sets_of(&cluster.labels)).unwrap_or_default(),
            after: after.map(|cluster| self.sets_of(&cluster.labels)).unwrap_or_default(),
            labels: differing(before.map(|cluster| &cluster.labels), after.map(|cluster| &cluster.labels)),
            claims: differing(before.map(|cluster| &cluster.claims), after.map(|cluster| &cluster.claims)),
            always: before.map(|cluster| (&cluster.taints, cluster.deleting, &cluster.unreadable))
                != after.map(|cluster| (&cluster.taints, cluster.deleting, &cluster.unreadable)),
            amounts: before.map(|cluster| (&cluster.allocatable, &cluster.capacity))
                != after.map(|cluster| (&cluster.allocatable, &cluster.capacity)),
        };
        let touched = self.placements.iter().filter(|(key, entry)| {
            let member_of =
                |sets: &BTreeSet<&str>| sets.iter().any(|set| self.asks(key, &entry.placement, set));
            match [member_of(&delta.before), member_of(&delta.after)] {
                [false, false] => false,
                [true, true] => entry.uses.sees(&delta.labels, &delta.claims, delta.amounts) || delta.always,
                [true, false] | [false, true] => true,
            }
        });
        touched.map(|(key, _)| key.clone()).collect()
    }

    fn asks(&self, key: &PlacementKey, placement: &Placement, set: &str) -> bool {
        let bound = self.hub.bindings().get(&*key.namespace).is_some_and(|bound| bound.contains(set));
        bound
            && (placement.cluster_sets.is_empty() || placement.cluster_sets.iter().any(|asked| asked == set))
    }

    fn sets_of(&self, labels: &Labels) -> BTreeSet<&str> {
        let holds = |set: &&ClusterSet| candidates::holds(set, labels);
        self.hub.sets().filter(holds).map(|set| set.name.as_str()).collect()
    }

    /// All sets as they are now.
    pub fn set_sets(&mut self, sets: Vec<ClusterSet>) {
        let before: BTreeMap<&str, &ClusterSet> =
            self.hub.sets().map(|set| (set.name.as_str(), set)).collect();
        let after: BTreeMap<&str, &ClusterSet> = sets.iter().map(|set| (set.name.as_str(), set)).collect();
        let names: BTreeSet<&str> = before.keys().chain(after.keys()).copied().collect();
        let changed: Vec<&str> =
            names.into_iter().filter(|name| before.get(name) != after.get(name)).collect();
        if changed.is_empty() {
            return;
        }
        let touched: Vec<_> = self
            .placements
            .iter()
            .filter(|(key, entry)| changed.iter().any(|set| self.asks(key, &entry.placement, set)))
            .map(|(key, _)| key.clone())
            .collect();
        self.touched.evaluate.extend(touched);
        Arc::make_mut(&mut self.hub).set_sets(sets);
    }

    /// All bindings as they are now.
    pub fn set_bindings(&mut self, bindings: Vec<Binding>) {
        let mut after: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for binding in &bindings {
            after.entry(&binding.namespace).or_default().insert(&binding.name);
        }
        let changed = |namespace: &str| {
            let before = self.hub.bindings().get(namespace).into_iter().flatten().map(String::as_str);
            !before.eq(after.get(namespace).into_iter().flatten().copied())
        };
        let touched: Vec<_> = self.placements.keys().filter(|key| changed(&key.namespace)).cloned().collect();
        self.touched.evaluate.extend(touched);
        Arc::make_mut(&mut self.hub).set_bindings(bindings);
    }

    /// What is new of these scores, by cluster and resource; `None` for those that are gone.
    pub fn set_scores(&mut self, changed: Vec<((String, String), Option<AddOnScores>)>) {
        for ((cluster, resource), after) in &changed {
            let before = self.hub.add_on_scores(cluster, resource);
            let touched = self
                .placements
                .iter()
                .filter(|(_, entry)| entry.uses.scores_differ(resource, before, after.as_ref()))
                .filter(|(key, entry)| {
                    self.hub.cluster(cluster).is_none_or(|cluster| {
                        self.sets_of(&cluster.labels).iter().any(|set| self.asks(key, &entry.placement, set))
                    })
                })
                .map(|(key, _)| key.clone())
                .collect::<Vec<_>>();
            self.touched.evaluate.extend(touched);
        }
        if changed.is_empty() {
            return;
        }
        let hub = Arc::make_mut(&mut self.hub);
        for ((cluster, resource), scores) in changed {
            match scores {
                Some(scores) => hub.put_scores(scores),
                None => hub.remove_scores(&cluster, &resource),
            }
        }
    }

    /// The decisions that carry a Placement's label, or none, as they are now.
    pub fn set_decisions(&mut self, changed: Vec<(Option<PlacementKey>, Vec<Decision>)>) {
        if changed.is_empty() {
            return;
        }
        let hub = Arc::make_mut(&mut self.hub);
        for (key, decisions) in changed {
            self.touched.evaluate.extend(key.clone().filter(|key| self.placements.contains_key(key)));
            hub.set_decisions(key, decisions);
        }
    }

    pub fn touch_all(&mut self) {
        self.touched.evaluate.extend(self.placements.keys().cloned());
    }

    /// Placements that something touched, and those whose time has come.
    pub fn take_touched(&mut self, now: Timestamp) -> Touched {
        let mut touched = std::mem::take(&mut self.touched);
        let due = |entry: &Entry| entry.again_at.is_some_and(|at| at <= now);
        let due = self.placements.iter().filter(|(_, entry)| due(entry)).map(|(key, _)| key.clone());
        touched.evaluate.extend(due);
        touched.compare.retain(|key| !touched.evaluate.contains(key));
        touched
    }

    /// A Placement was evaluated; when it has to be again though nothing changes.
    pub fn evaluated(&mut self, key: &PlacementKey, again_at: Option<Timestamp>) {
        if let Some(entry) = self.placements.get_mut(key) {
            entry.again_at = again_at;
        }
    }

    /// The Placement is decided elsewhere: no time of its own touches it.
    pub fn leave(&mut self, key: &PlacementKey) {
        self.evaluated(key, None);
    }

    /// When the next Placement has to be evaluated though nothing changes.
    pub fn next_at(&self) -> Option<Timestamp> {
        self.placements.values().filter_map(|entry| entry.again_at).min()
    }
}

/// Keys whose values differ.
fn differing<'a>(before: Option<&'a Labels>, after: Option<&'a Labels>) -> BTreeSet<&'a str> {
    let value = |labels: Option<&'a Labels>, key: &str| labels.and_then(|labels| labels.get(key));
    let keys = before.into_iter().chain(after).flat_map(BTreeMap::keys);
    keys.filter(|key| value(before, key) != value(after, key)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests;
