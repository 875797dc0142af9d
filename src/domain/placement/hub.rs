//! The hub as Placements see it, indexed once for all of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use jiff::Timestamp;

use super::{selector::LabelSelector, spec::PlacementKey};
use crate::queue::selector::Labels;
use fedq_cel::{Scores, value::Value};
use fedq_values::{ids::ClusterName, quantity::Quantity};

#[derive(Clone, Debug, PartialEq)]
pub struct ManagedCluster {
    pub name: ClusterName,
    pub labels: Labels,
    /// `status.clusterClaims`, of which a name's last one counts.
    pub claims: Labels,
    pub taints: Vec<Taint>,
    pub allocatable: BTreeMap<String, Quantity>,
    pub capacity: BTreeMap<String, Quantity>,
    pub deleting: bool,
    /// The whole object, for expressions.
    pub object: Value,
    /// Amounts that cannot be read and so are left out, in words.
    pub unreadable: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
    pub added: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSet {
    pub name: String,
    pub selection: SetSelection,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SetSelection {
    /// By the label that puts a cluster into one set.
    Exclusive,
    /// None: no cluster at all.
    Labels(Option<LabelSelector>),
    Unknown(String),
}

/// A ManagedClusterSetBinding. It binds the set of its own name, whatever its spec says.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Binding {
    pub namespace: String,
    pub name: String,
}

/// An AddOnPlacementScore; its namespace is the cluster's name.
#[derive(Clone, Debug, PartialEq)]
pub struct AddOnScores {
    pub cluster: String,
    pub resource: String,
    pub scores: Vec<(Arc<str>, i64)>,
    pub valid_until: Option<Timestamp>,
}

/// A PlacementDecision that exists.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub namespace: Arc<str>,
    pub name: String,
    pub labels: Labels,
    pub clusters: Vec<String>,
}

pub const PLACEMENT_LABEL: &str = "cluster.open-cluster-management.io/placement";

/// Everything that decides.
#[derive(Clone, Debug, Default)]
pub struct Hub {
    clusters: Vec<Arc<ManagedCluster>>,
    sets: BTreeMap<String, ClusterSet>,
    bindings: BTreeMap<String, BTreeSet<String>>,
    scores: HashMap<String, HashMap<String, Arc<AddOnScores>>>,
    /// By the Placement that they are labelled with, in order of their names.
    decisions: HashMap<Option<PlacementKey>, Arc<[Decision]>>,
    /// The clusters each Placement has decided on, sorted.
    decided: HashMap<PlacementKey, Arc<[usize]>>,
    /// In how many decisions each cluster is, over all Placements; clusters that are gone among them.
    counts: HashMap<String, i64>,
}

impl Hub {
    pub fn new(clusters: Vec<ManagedCluster>) -> Self {
        let mut clusters: Vec<_> = clusters.into_iter().map(Arc::new).collect();
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        clusters.dedup_by(|a, b| a.name == b.name);
        Self { clusters, ..Self::default() }
    }

    pub fn with_sets(mut self, sets: Vec<ClusterSet>, bindings: Vec<Binding>) -> Self {
        self.set_sets(sets);
        self.set_bindings(bindings);
        self
    }

    pub fn with_scores(mut self, scores: Vec<AddOnScores>) -> Self {
        for scores in scores {
            self.put_scores(scores);
        }
        self
    }

    pub fn with_decisions(mut self, decisions: Vec<Decision>) -> Self {
        let mut by_placement: HashMap<Option<PlacementKey>, Vec<Decision>> = HashMap::new();
        for decision in decisions {
            by_placement.entry(decision.placement()).or_default().push(decision);
        }
        for (placement, decisions) in by_placement {
            self.set_decisions(placement, decisions);
        }
        self
    }

    /// Takes over what is new of these clusters; `None` for one that is gone.
    pub(super) fn set_clusters(&mut self, changed: Vec<(ClusterName, Option<Arc<ManagedCluster>>)>) {
        let mut moved = false;
        for (name, cluster) in changed {
            match (self.clusters.binary_search_by(|known| known.name.cmp(&name)), cluster) {
                (Ok(at), Some(cluster)) => self.clusters[at] = cluster,
                (Ok(at), None) => {
                    self.clusters.remove(at);
                    moved = true;
                }
                (Err(at), Some(cluster)) => {
                    self.clusters.insert(at, cluster);
                    moved = true;
                }
                (Err(_), None) => {}
            }
        }
        if moved {
            let placements: Vec<_> = self.decided.keys().cloned().collect();
            for placement in placements {
                self.place_decided(placement);
            }
        }
    }

    pub(super) fn set_sets(&mut self, sets: Vec<ClusterSet>) {
        self.sets = sets.into_iter().map(|set| (set.name.clone(), set)).collect();
    }

    pub(super) fn set_bindings(&mut self, bindings: Vec<Binding>) {
        self.bindings.clear();
        for binding in bindings {
            self.bindings.entry(binding.namespace).or_default().insert(binding.name);
        }
    }

    pub(super) fn put_scores(&mut self, scores: AddOnScores) {
        let of_cluster = self.scores.entry(scores.cluster.clone()).or_default();
        of_cluster.insert(scores.resource.clone(), Arc::new(scores));
    }

    pub(super) fn remove_scores(&mut self, cluster: &str, resource: &str) {
        if let Some(of_cluster) = self.scores.get_mut(cluster) {
            of_cluster.remove(resource);
            if of_cluster.is_empty() {
                self.scores.remove(cluster);
            }
        }
    }

    /// Replaces all decisions that are labelled with the Placement, or with none.
    pub fn set_decisions(&mut self, placement: Option<PlacementKey>, mut decisions: Vec<Decision>) {
        decisions.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for cluster in decisions.iter().flat_map(|decision| &decision.clusters) {
            *self.counts.entry(cluster.clone()).or_default() += 1;
        }
        let before = if decisions.is_empty() {
            self.decisions.remove(&placement)
        } else {
            self.decisions.insert(placement.clone(), decisions.into())
        };
        for cluster in before.iter().flat_map(|before| before.iter()).flat_map(|decision| &decision.clusters)
        {
            if let Some(count) = self.counts.get_mut(cluster) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(cluster);
                }
            }
        }
        if let Some(placement) = placement {
            self.place_decided(placement);
        }
    }

    fn place_decided(&mut self, placement: PlacementKey) {
        let clusters = self.decisions_of(&placement).flat_map(|decision| &decision.clusters);
        let mut decided: Vec<usize> = clusters.filter_map(|name| self.position(name)).collect();
        decided.sort_unstable();
        decided.dedup();
        if decided.is_empty() && self.decisions_of(&placement).next().is_none() {
            self.decided.remove(&placement);
        } else {
            self.decided.insert(placement, decided.into());
        }
    }

    /// Sorted by name, so that an order of positions is an order of names.
    pub fn clusters(&self) -> &[Arc<ManagedCluster>] {
        &self.clusters
    }

    pub fn cluster(&self, name: &str) -> Option<&Arc<ManagedCluster>> {
        self.position(name).map(|at| &self.clusters[at])
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.clusters.binary_search_by(|cluster| cluster.name.as_str().cmp(name)).ok()
    }

    pub fn set(&self, name: &str) -> Option<&ClusterSet> {
        self.sets.get(name)
    }

    pub fn sets(&self) -> impl Iterator<Item = &ClusterSet> {
        self.sets.values()
    }

    /// Names of bound sets by namespace, whether the sets exist or not.
    pub fn bindings(&self) -> &BTreeMap<String, BTreeSet<String>> {
        &self.bindings
    }

    /// Names of the sets that are bound to the namespace and exist.
    pub fn bound(&self, namespace: &str) -> Vec<&str> {
        let names = self.bindings.get(namespace).into_iter().flatten();
        names.map(String::as_str).filter(|name| self.sets.contains_key(*name)).collect()
    }

    pub fn add_on_scores(&self, cluster: &str, resource: &str) -> Option<&AddOnScores> {
        self.scores.get(cluster)?.get(resource).map(Arc::as_ref)
    }

    /// PlacementDecisions that carry the Placement's label.
    pub fn decisions_of(&self, placement: &PlacementKey) -> impl Iterator<Item = &Decision> {
        self.decisions.get(&Some(placement.clone())).into_iter().flat_map(|decisions| decisions.iter())
    }

    /// The clusters of these, in their order, each once: one that comes to stand in another decision is in both
    /// for a moment.
    pub fn decided_names(&self, placement: &PlacementKey) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let clusters = self.decisions_of(placement).flat_map(|decision| &decision.clusters);
        clusters.filter(|cluster| seen.insert(cluster.as_str())).cloned().collect()
    }

    /// The clusters the Placement has decided on and that still exist, sorted.
    pub fn decided(&self, placement: &PlacementKey) -> &[usize] {
        self.decided.get(placement).map_or(&[], |decided| decided)
    }

    /// In how many decisions of other Placements each cluster is, and the most that any has.
    pub fn counts_without(&self, placement: &PlacementKey) -> (HashMap<&str, i64>, i64) {
        let mut own: HashMap<&str, i64> = HashMap::new();
        for cluster in self.decisions_of(placement).flat_map(|decision| &decision.clusters) {
            *own.entry(cluster).or_default() += 1;
        }
        let others = |(name, count): (&String, &i64)| count - own.get(name.as_str()).copied().unwrap_or(0);
        let max = self.counts.iter().map(others).max().unwrap_or(0);
        (own, max)
    }

    pub fn count(&self, cluster: &str) -> i64 {
        self.counts.get(cluster).copied().unwrap_or(0)
    }
}

impl Decision {
    pub fn placement(&self) -> Option<PlacementKey> {
        let name = self.labels.get(PLACEMENT_LABEL)?;
        Some(PlacementKey { namespace: self.namespace.clone(), name: name.as_str().into() })
    }
}

impl Scores for Hub {
    fn scores(&self, cluster: &str, resource: &str) -> Option<&[(Arc<str>, i64)]> {
        self.add_on_scores(cluster, resource).map(|found| found.scores.as_slice())
    }
}
