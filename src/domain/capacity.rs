//! From nodes to capacity: what each set of flavors may use of a cluster.
//!
//! Nodes are kept as small records that share what they have in common, so that a table of a million
//! nodes stays in memory and capacity costs as much as there are kinds of node.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    ids::{FlavorName, ResourceName},
    quantity::Amount,
    resources::Resources,
};

/// What one Node object says, borrowed from its bytes.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "three independent facts about one object")]
pub struct NodeFacts<'a> {
    pub name: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
    pub taints: &'a [TaintFacts<'a>],
    pub allocatable: &'a [(&'a str, &'a str)],
    pub unschedulable: bool,
    pub ready: bool,
    pub deleting: bool,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TaintFacts<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub effect: &'a str,
}

#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Taint {
    pub key: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
}

/// A toleration as Kubernetes has it: an empty operator is `Equal`, an empty key with `Exists` means
/// every key, an empty effect every effect.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
}

/// A ResourceFlavor: which nodes it stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flavor {
    pub name: FlavorName,
    pub node_labels: BTreeMap<String, String>,
    pub node_taints: Vec<Taint>,
    pub tolerations: Vec<Toleration>,
}

/// Capacity that is never assigned.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headroom {
    /// Percent of every resource, at most 100.
    pub percent: u8,
    /// Percent of single resources, instead of `percent`.
    pub percent_of: BTreeMap<ResourceName, u8>,
    /// Amounts a cluster, which the plan takes off (`ClusterInput::headroom`).
    pub absolute: Resources,
}

/// Nodes that the same flavors match.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeClass {
    pub flavors: BTreeSet<FlavorName>,
    pub nodes: usize,
    /// Σ allocatable less the percentage of headroom.
    pub total: Resources,
}

/// What the usable nodes of a cluster offer.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Capacity {
    /// By their flavors; nodes that no flavor matches are left out.
    pub classes: Vec<NodeClass>,
    /// Σ allocatable of all usable nodes, whether a flavor matches them or not.
    pub total: Resources,
    /// Σ allocatable of the usable nodes each flavor matches. Every known flavor is a key.
    pub by_flavor: BTreeMap<FlavorName, Resources>,
    /// Usable nodes.
    pub nodes: usize,
}

/// One node as the store keeps it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeRow {
    pub name: String,
    #[serde(flatten)]
    pub shape: NodeShape,
}

/// All of a node that capacity depends on.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeShape {
    /// Ready, schedulable and not being deleted.
    pub usable: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// In units ([`Amount::units`]).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub allocatable: BTreeMap<ResourceName, i64>,
}

/// Which resources count. By default cpu, memory, hugepages and every extended resource.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ResourceFilter {
    /// Counted besides the default ones.
    pub also: BTreeSet<ResourceName>,
    pub never: BTreeSet<ResourceName>,
}

/// An allocatable quantity that could not be read and counts as zero.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct BadQuantity {
    pub node: String,
    pub resource: String,
    pub text: String,
}

/// The nodes of one cluster.
#[derive(Debug, Default)]
pub struct NodeTable {}

impl NodeTable {
    /// `label_keys`: the keys of all flavors' nodeLabels. Other labels are not kept.
    pub fn new(_label_keys: BTreeSet<String>, _filter: ResourceFilter) -> Self {
        todo!()
    }

    /// Whether these flavors can be told apart with the labels that are kept. If not, list the nodes
    /// into a new table, and keep using this one until it is complete.
    pub fn covers(&self, _flavors: &[Flavor]) -> bool {
        todo!()
    }

    /// Whether anything changed that capacity depends on.
    pub fn set(&mut self, _node: &NodeFacts<'_>) -> bool {
        todo!()
    }

    /// Whether there was such a node.
    pub fn remove(&mut self, _name: &str) -> bool {
        todo!()
    }

    /// A full list begins: nodes not set again until [`NodeTable::end_list`] are gone by then, and
    /// count until then, so that a relist never lowers capacity on its way.
    pub fn begin_list(&mut self) {
        todo!()
    }

    /// The names of the nodes that the list did not have.
    pub fn end_list(&mut self) -> Vec<String> {
        todo!()
    }

    pub fn row(&self, _name: &str) -> Option<NodeRow> {
        todo!()
    }

    pub fn restore(&mut self, _row: &NodeRow) {
        todo!()
    }

    pub fn len(&self) -> usize {
        todo!()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Quantities that could not be read, of at most a hundred nodes.
    pub fn bad_quantities(&self) -> impl Iterator<Item = &BadQuantity> {
        [].iter()
    }

    pub fn capacity(&self, _flavors: &[Flavor], _headroom: &Headroom) -> Capacity {
        todo!()
    }
}

/// The largest amount that is ever assigned: Kueue takes larger ones for unlimited.
pub const MAX_QUOTA: Amount = Amount::new(i64::MAX / 1000 * 1000 - 1);
