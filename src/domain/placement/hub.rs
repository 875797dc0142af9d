//! The hub as Placements see it, indexed once for all of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use jiff::Timestamp;

use super::{selector::LabelSelector, spec::PlacementKey};
use crate::domain::{
    cel::{Scores, value::Value},
    ids::ClusterName,
    quantity::Quantity,
    queue::selector::Labels,
};

#[derive(Clone, Debug)]
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
    clusters: Vec<ManagedCluster>,
    sets: BTreeMap<String, ClusterSet>,
    bindings: BTreeMap<String, BTreeSet<String>>,
    scores: HashMap<String, HashMap<String, AddOnScores>>,
    decisions: Vec<Decision>,
    by_placement: HashMap<PlacementKey, Vec<usize>>,
    /// The clusters each Placement has decided on, sorted.
    decided: HashMap<PlacementKey, Vec<usize>>,
    /// In how many decisions each cluster is, over all Placements; clusters that are gone among them.
    counts: HashMap<String, i64>,
}

impl Hub {
    pub fn new(mut clusters: Vec<ManagedCluster>) -> Self {
        clusters.sort_by(|a, b| a.name.cmp(&b.name));
        clusters.dedup_by(|a, b| a.name == b.name);
        Self { clusters, ..Self::default() }
    }

    pub fn with_sets(mut self, sets: Vec<ClusterSet>, bindings: Vec<Binding>) -> Self {
        self.sets = sets.into_iter().map(|set| (set.name.clone(), set)).collect();
        for binding in bindings {
            self.bindings.entry(binding.namespace).or_default().insert(binding.name);
        }
        self
    }

    pub fn with_scores(mut self, scores: Vec<AddOnScores>) -> Self {
        for scores in scores {
            let of_cluster = self.scores.entry(scores.cluster.clone()).or_default();
            of_cluster.insert(scores.resource.clone(), scores);
        }
        self
    }

    pub fn with_decisions(mut self, mut decisions: Vec<Decision>) -> Self {
        decisions.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for (at, decision) in decisions.iter().enumerate() {
            for cluster in &decision.clusters {
                *self.counts.entry(cluster.clone()).or_default() += 1;
            }
            let Some(placement) = decision.placement() else { continue };
            let known: Vec<_> = decision.clusters.iter().filter_map(|name| self.position(name)).collect();
            self.decided.entry(placement.clone()).or_default().extend(known);
            self.by_placement.entry(placement).or_default().push(at);
        }
        for decided in self.decided.values_mut() {
            decided.sort_unstable();
            decided.dedup();
        }
        self.decisions = decisions;
        self
    }

    /// Sorted by name, so that an order of positions is an order of names.
    pub fn clusters(&self) -> &[ManagedCluster] {
        &self.clusters
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.clusters.binary_search_by(|cluster| cluster.name.as_str().cmp(name)).ok()
    }

    pub fn set(&self, name: &str) -> Option<&ClusterSet> {
        self.sets.get(name)
    }

    /// Names of the sets that are bound to the namespace and exist.
    pub fn bound(&self, namespace: &str) -> Vec<&str> {
        let names = self.bindings.get(namespace).into_iter().flatten();
        names.map(String::as_str).filter(|name| self.sets.contains_key(*name)).collect()
    }

    pub fn add_on_scores(&self, cluster: &str, resource: &str) -> Option<&AddOnScores> {
        self.scores.get(cluster)?.get(resource)
    }

    /// PlacementDecisions that carry the Placement's label.
    pub fn decisions_of(&self, placement: &PlacementKey) -> impl Iterator<Item = &Decision> {
        self.by_placement.get(placement).into_iter().flatten().map(|at| &self.decisions[*at])
    }

    /// The clusters the Placement has decided on and that still exist, sorted.
    pub fn decided(&self, placement: &PlacementKey) -> &[usize] {
        self.decided.get(placement).map_or(&[], Vec::as_slice)
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
