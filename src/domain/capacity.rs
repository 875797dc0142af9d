//! From nodes to capacity: what each set of flavors may use of a cluster.
//!
//! Nodes are kept as small records that share what they have in common, so that a table of a million
//! nodes stays in memory and capacity costs as much as there are kinds of node.

mod coming;
mod intern;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};

pub use coming::{MAX_CAPACITY, MaxCapacity, bound};
pub use nodes::NodeTable;

use serde::{Deserialize, Serialize};

use super::{resources::Resources, shares::share};
use fedq_values::{
    ids::{FlavorName, ResourceName},
    quantity::Amount,
};

/// The largest amount that is ever assigned: Kueue takes larger ones for unlimited.
pub const MAX_QUOTA: Amount = Amount::new(i64::MAX / 1000 * 1000 - 1);

/// What one Node object says, borrowed from its bytes.
#[derive(Clone, Copy, Debug, Default)]
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
    /// With what an autoscaler would bring.
    pub max_capacity: MaxCapacity,
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
    /// Σ allocatable, with what may come, less the percentage of headroom.
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
    /// What an autoscaler would bring of nodes that each flavor matches, beyond `by_flavor`; flavors for which none would
    /// come are left out.
    pub coming: BTreeMap<FlavorName, Resources>,
    /// The same of the whole cluster, where what comes for several flavors counts once.
    pub to_come: Resources,
    /// Usable nodes.
    pub nodes: usize,
    /// Σ allocatable of all nodes, usable or not.
    pub all: Resources,
    /// The most that one usable node has; of memory, what nodes alike in all else have on average.
    pub largest: Resources,
    /// The most that one node of each flavor has, usable at this moment or not. Without memory, of which only
    /// averages are known, and without what an autoscaler may bring larger nodes of.
    pub largest_of: BTreeMap<FlavorName, Resources>,
}

impl Capacity {
    /// Cuts it to what the whole cluster may count for at most: sets of nodes in proportion to what they have, and
    /// flavors to what their sets are left with.
    pub fn limit(&mut self, limits: &Resources) {
        for (resource, limit) in limits {
            let classes =
                self.classes.iter().map(|class| class.total.get(resource).copied().unwrap_or_default());
            let weights: Vec<i64> = classes.map(Amount::units).collect();
            let is_cut = i128::from(limit.units()) < weights.iter().map(|units| i128::from(*units)).sum();
            if is_cut {
                let shares = share(limit.units(), &weights).into_iter().map(Amount::new);
                for (class, share) in self.classes.iter_mut().zip(shares) {
                    class.total.entry(resource.clone()).and_modify(|amount| *amount = share);
                }
            }
            for (flavor, amounts) in &mut self.by_flavor {
                let Some(amount) = amounts.get_mut(resource) else { continue };
                let of_flavor = self.classes.iter().filter(|class| is_cut && class.flavors.contains(flavor));
                let left = of_flavor.filter_map(|class| class.total.get(resource));
                let left = left.fold(Amount::ZERO, |sum, amount| sum.saturating_add(*amount));
                *amount = (*amount).min(if is_cut { left } else { *limit });
                let present = *amount;
                let coming = self.coming.get_mut(flavor).and_then(|amounts| amounts.get_mut(resource));
                if let Some(coming) = coming.filter(|_| is_cut) {
                    *coming = (*coming).min(left.saturating_sub(present));
                }
            }
            if let Some(amount) = self.total.get_mut(resource) {
                *amount = (*amount).min(*limit);
            }
            let present = self.total.get(resource).copied().unwrap_or_default();
            if let Some(to_come) = self.to_come.get_mut(resource) {
                *to_come = (*to_come).min(limit.saturating_sub(present));
            }
        }
    }
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
    /// The fewest taints that it had while it was usable; `None` if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual: Option<Vec<Taint>>,
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

impl Toleration {
    /// As the scheduler decides: `k8s.io/api/core/v1/toleration.go`. Operators other than `Equal` and
    /// `Exists` tolerate nothing.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key == taint.key || self.key.is_empty() && self.operator == "Exists";
        effect
            && key
            && match self.operator.as_str() {
                "Exists" => true,
                "" | "Equal" => self.value == taint.value,
                _ => false,
            }
    }
}

impl Flavor {
    /// What keeps pods off its nodes that do not tolerate it themselves.
    pub fn open_taints(&self) -> Vec<Taint> {
        let keeps_off = |taint: &&Taint| {
            matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
                && !self.tolerations.iter().any(|toleration| toleration.tolerates(taint))
        };
        self.node_taints.iter().filter(keeps_off).cloned().collect()
    }

    fn matches(&self, labels: &[(Box<str>, Box<str>)], taints: &[Taint]) -> bool {
        self.is_labelled(labels) && taints.iter().all(|taint| self.admits(taint))
    }

    fn is_labelled(&self, labels: &[(Box<str>, Box<str>)]) -> bool {
        self.node_labels.iter().all(|(key, value)| {
            labels.iter().any(|(found_key, found)| **found_key == **key && **found == **value)
        })
    }

    fn admits(&self, taint: &Taint) -> bool {
        self.node_taints.contains(taint) || self.tolerations.iter().any(|one| one.tolerates(taint))
    }
}

impl Headroom {
    /// What is left of `total` when the percentage is kept free; what is kept free is rounded up.
    fn less_percent(&self, resource: &ResourceName, total: i128) -> i128 {
        let percent = self.percent_of.get(resource).unwrap_or(&self.percent);
        total.saturating_mul(100 - i128::from(*percent).min(100)) / 100
    }
}

impl ResourceFilter {
    fn counts(&self, resource: &ResourceName) -> bool {
        let name = resource.as_str();
        let default =
            matches!(name, "cpu" | "memory") || name.contains('/') || name.starts_with("hugepages-");
        (default || self.also.contains(resource)) && !self.never.contains(resource)
    }
}

/// Exact sums on their way to amounts.
#[derive(Default)]
struct Sums(BTreeMap<ResourceName, i128>);

impl Sums {
    fn add(&mut self, resource: &ResourceName, units: i128) {
        let sum = self.0.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(units);
    }

    fn into_resources(self, less: impl Fn(&ResourceName, i128) -> i128) -> Resources {
        let amount = |(resource, sum)| {
            let units = i64::try_from(less(&resource, sum)).unwrap_or(i64::MAX);
            (resource, Amount::new(units).min(MAX_QUOTA))
        };
        self.0.into_iter().map(amount).collect()
    }
}
