//! The nodes of one cluster, as small as they can be kept.
//!
//! A node is its name and three numbers: the id of its shape (labels of interest, taints, usable or
//! not), the id of its resources and, on its own, its memory: that is what differs between machines
//! of one kind. Capacity is summed over (shape, resources) pairs, never over nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap, btree_map, hash_map};

use super::{
    BadQuantity, Capacity, Flavor, Headroom, NodeClass, NodeFacts, NodeRow, NodeShape, ResourceFilter, Sums,
    Taint,
    coming::{Coming, coming},
    intern::Pool,
};
use crate::resources::Resources;
use fedq_values::{
    ids::{FlavorName, ResourceName},
    quantity::{Amount, Quantity},
};

/// Nodes whose bad quantities are kept to be reported.
const MAX_REPORTED: usize = 100;
const MAX_REPORTED_OF_ONE: usize = 20;
/// Taints by which the cluster autoscaler and Karpenter say that they take a node away.
const GOING: [&str; 3] =
    ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"];
/// A row's place in the maps.
const ROW: usize = 128;

/// The nodes of one cluster.
#[derive(Debug, Default)]
pub struct NodeTable {
    label_keys: BTreeSet<String>,
    filter: ResourceFilter,
    /// Resource names seen, with whether they count. Positions are ids. At most [`MAX_RESOURCES`].
    resources: Vec<(ResourceName, bool)>,
    nodes: HashMap<Box<str>, Node>,
    /// What they take, roughly.
    bytes: usize,
    shapes: Pool<Shape>,
    amounts: Pool<Amounts>,
    groups: HashMap<(u32, u32), Group>,
    bad: BTreeMap<String, Vec<BadQuantity>>,
    list: u32,
    scratch: Vec<(u16, i64)>,
}

/// A cluster that invents resource names must not fill our memory with them.
const MAX_RESOURCES: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct Node {
    shape: u32,
    amounts: u32,
    /// The list that last named it.
    list: u32,
    /// What it takes, with all that it may share with others.
    bytes: u32,
    memory: i64,
}

/// Amounts of everything but memory, by resource id.
type Amounts = Box<[(u16, i64)]>;

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Shape {
    usable: bool,
    /// Somebody deletes it.
    deleting: bool,
    labels: Box<[(Box<str>, Box<str>)]>,
    taints: Box<[Taint]>,
    /// The fewest taints that it had while it was usable; `None` if it never was.
    usual: Option<Box<[Taint]>>,
}

#[derive(Debug, Default)]
struct Group {
    nodes: usize,
    memory: i128,
}

impl NodeTable {
    /// `label_keys`: the keys of all flavors' nodeLabels. Other labels are not kept.
    pub fn new(label_keys: BTreeSet<String>, filter: ResourceFilter) -> Self {
        Self { label_keys, filter, ..Self::default() }
    }

    /// Whether these flavors can be told apart with the labels that are kept. If not, list the nodes
    /// into a new table, and keep using this one until it is complete.
    pub fn covers(&self, flavors: &[Flavor]) -> bool {
        flavors.iter().flat_map(|flavor| flavor.node_labels.keys()).all(|key| self.label_keys.contains(key))
    }

    /// Whether anything changed that capacity depends on.
    pub fn set(&mut self, facts: &NodeFacts<'_>) -> bool {
        let memory = self.read_amounts(facts);
        let list = self.list;
        if let Some(node) = self.nodes.get_mut(facts.name) {
            node.list = list;
            if node.memory == memory
                && **self.amounts.get(node.amounts) == *self.scratch
                && self.shapes.get(node.shape).is_of(facts, &self.label_keys)
            {
                return false;
            }
        }
        let mut shape = Shape::of(facts, &self.label_keys);
        if let Some(before) = self.nodes.get(facts.name) {
            shape.remember(self.shapes.get(before.shape));
        }
        let amounts = self.scratch.as_slice().into();
        self.put(facts.name, shape, amounts, memory);
        true
    }

    /// Whether there was such a node.
    pub fn remove(&mut self, name: &str) -> bool {
        self.bad.remove(name);
        let Some(node) = self.nodes.remove(name) else { return false };
        self.bytes -= node.bytes as usize;
        self.release(node);
        true
    }

    /// A full list begins: nodes not set again until [`NodeTable::end_list`] are gone by then, and
    /// count until then, so that a relist never lowers capacity on its way.
    pub fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    /// The names of the nodes that the list did not have, which are removed.
    pub fn end_list(&mut self) -> Vec<String> {
        let unlisted = self.nodes.iter().filter(|(_, node)| node.list != self.list);
        let mut gone: Vec<_> = unlisted.map(|(name, _)| name.to_string()).collect();
        gone.sort_unstable();
        for name in &gone {
            self.remove(name);
        }
        gone
    }

    /// All nodes, in no order.
    pub fn rows(&self) -> impl Iterator<Item = NodeRow> + '_ {
        self.nodes.keys().filter_map(|name| self.row(name))
    }

    pub fn row(&self, name: &str) -> Option<NodeRow> {
        let node = self.nodes.get(name)?;
        let shape = self.shapes.get(node.shape);
        let others =
            self.amounts.get(node.amounts).iter().map(|(id, units)| (self.resource(*id).clone(), *units));
        let memory = (node.memory != 0).then(|| (memory(), node.memory));
        // Mostly those that it has.
        let usual = shape.usual.as_ref().filter(|usual| !shape.usable || **usual != shape.taints);
        let shape = NodeShape {
            usable: shape.usable,
            deleting: shape.deleting,
            labels: shape.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            taints: shape.taints.to_vec(),
            usual: usual.map(|taints| taints.to_vec()),
            allocatable: others.chain(memory).collect(),
        };
        Some(NodeRow { name: name.to_owned(), shape })
    }

    /// Takes a node back from the store. Labels and resources that are no longer of interest are left
    /// out.
    pub fn restore(&mut self, row: &NodeRow) {
        let NodeShape { usable, deleting, labels, taints, usual, allocatable } = &row.shape;
        let labels = labels.iter().filter(|(key, _)| self.label_keys.contains(*key));
        let labels = labels.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
        self.scratch.clear();
        let mut of_memory = 0;
        for (resource, units) in allocatable {
            let units = (*units).max(0);
            match self.resource_id(resource.as_str()) {
                Some(_) if resource.as_str() == "memory" => of_memory = units,
                Some(id) if units != 0 => self.scratch.push((id, units)),
                _ => {}
            }
        }
        self.scratch.sort_unstable();
        let amounts = self.scratch.as_slice().into();
        // An earlier fedqd did not keep it.
        let usual = usual.as_ref().or(usable.then_some(taints));
        let usual = usual.map(|taints| taints.as_slice().into());
        let taints = taints.as_slice().into();
        let shape = Shape { usable: *usable, deleting: *deleting, labels, taints, usual };
        self.put(&row.name, shape, amounts, of_memory);
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What the nodes take in memory, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Quantities that could not be read and count as zero, of at most a hundred nodes.
    pub fn bad_quantities(&self) -> impl Iterator<Item = &BadQuantity> {
        self.bad.values().flatten()
    }

    pub fn capacity(&self, flavors: &[Flavor], headroom: &Headroom) -> Capacity {
        let mut classes: BTreeMap<BTreeSet<FlavorName>, (usize, Sums)> = BTreeMap::new();
        let mut by_flavor: BTreeMap<FlavorName, Sums> =
            flavors.iter().map(|flavor| (flavor.name.clone(), Sums::default())).collect();
        let (mut total, mut all) = (Sums::default(), Sums::default());
        let mut largest = Resources::new();
        let mut largest_of: BTreeMap<FlavorName, Resources> = BTreeMap::new();
        // What counts towards the maximum of flavors that have one.
        let mut held: BTreeMap<&FlavorName, Sums> = BTreeMap::new();
        let mut nodes = 0;
        for ((shape, amounts), group) in &self.groups {
            let shape = self.shapes.get(*shape);
            self.add_group(group, *amounts, &mut all);
            let matching = flavors.iter().filter(|flavor| flavor.matches(&shape.labels, &shape.taints));
            let matching: BTreeSet<_> = matching.map(|flavor| flavor.name.clone()).collect();
            for flavor in &matching {
                self.raise_to(*amounts, largest_of.entry(flavor.clone()).or_default());
            }
            for flavor in flavors.iter().filter(|flavor| !flavor.max_capacity.amounts.is_empty()) {
                let counts = shape.usable && matching.contains(&flavor.name);
                // One that was never usable is starting: it is one of those that come. One whose pool has a taint that keeps
                // the flavor's pods off is none of its.
                let was_usable = || {
                    let usual = shape.usual.as_deref();
                    usual.is_some_and(|taints| flavor.matches(&shape.labels, taints))
                };
                if counts || !shape.is_going() && was_usable() {
                    self.add_group(group, *amounts, held.entry(&flavor.name).or_default());
                }
            }
            if !shape.usable {
                continue;
            }
            nodes += group.nodes;
            self.raise_to_one_of(group, *amounts, &mut largest);
            self.add_group(group, *amounts, &mut total);
            for flavor in &matching {
                if let Some(sums) = by_flavor.get_mut(flavor) {
                    self.add_group(group, *amounts, sums);
                }
            }
            if !matching.is_empty() {
                let (count, sums) = classes.entry(matching).or_default();
                *count += group.nodes;
                self.add_group(group, *amounts, sums);
            }
        }
        let (mut coming_of, mut to_come): (BTreeMap<FlavorName, Sums>, _) =
            (BTreeMap::new(), Sums::default());
        let held = |flavor: &FlavorName, resource: &ResourceName| {
            let sum = held.get(flavor).and_then(|sums| sums.0.get(resource)).copied().unwrap_or_default();
            i64::try_from(sum).unwrap_or(i64::MAX)
        };
        for Coming { flavors, resource, units } in coming(flavors, held, |name| self.filter.counts(name)) {
            for flavor in &flavors {
                // How large nodes are that are not there is not known.
                largest_of.remove(flavor);
                coming_of.entry(flavor.clone()).or_default().add(&resource, i128::from(units));
            }
            to_come.add(&resource, i128::from(units));
            classes.entry(flavors).or_default().1.add(&resource, i128::from(units));
        }
        let raw = |sums: Sums| sums.into_resources(|_, sum| sum);
        let usable =
            |sums: Sums| -> Resources { sums.into_resources(|name, sum| headroom.less_percent(name, sum)) };
        let class = |(flavors, (nodes, sums))| NodeClass { flavors, nodes, total: usable(sums) };
        Capacity {
            classes: classes.into_iter().map(class).collect(),
            total: raw(total),
            by_flavor: by_flavor.into_iter().map(|(flavor, sums)| (flavor, raw(sums))).collect(),
            coming: coming_of.into_iter().map(|(flavor, sums)| (flavor, raw(sums))).collect(),
            to_come: raw(to_come),
            nodes,
            all: raw(all),
            largest,
            largest_of,
        }
    }

    /// Makes each amount at least what a node of the group has.
    fn raise_to_one_of(&self, group: &Group, amounts: u32, largest: &mut Resources) {
        if group.memory != 0 {
            let nodes = i128::try_from(group.nodes.max(1)).unwrap_or(i128::MAX);
            raise(largest, memory(), i64::try_from(group.memory / nodes).unwrap_or(i64::MAX));
        }
        self.raise_to(amounts, largest);
    }

    fn raise_to(&self, amounts: u32, largest: &mut Resources) {
        for (id, units) in self.amounts.get(amounts) {
            raise(largest, self.resource(*id).clone(), *units);
        }
    }

    fn add_group(&self, group: &Group, amounts: u32, sums: &mut Sums) {
        if group.memory != 0 {
            sums.add(&memory(), group.memory);
        }
        let nodes = i128::try_from(group.nodes).unwrap_or(i128::MAX);
        for (id, units) in self.amounts.get(amounts) {
            sums.add(self.resource(*id), i128::from(*units).saturating_mul(nodes));
        }
    }

    /// Puts what counts of `allocatable`, by resource id, into the scratch space, and returns memory.
    fn read_amounts(&mut self, facts: &NodeFacts<'_>) -> i64 {
        self.scratch.clear();
        let mut of_memory = 0;
        let mut bad = Vec::new();
        for (name, text) in facts.allocatable {
            let Some(id) = self.resource_id(name) else { continue };
            let Some(units) = units(text, self.resource(id)) else {
                if MAX_REPORTED_OF_ONE <= bad.len() {
                    continue;
                }
                let (node, resource) = (facts.name.to_owned(), (*name).to_owned());
                bad.push(BadQuantity { node, resource, text: text.chars().take(80).collect() });
                continue;
            };
            if *name == "memory" {
                of_memory = units;
            } else if units != 0 {
                self.scratch.push((id, units));
            }
        }
        self.scratch.sort_unstable();
        self.scratch.dedup_by_key(|(id, _)| *id);
        self.report_bad(facts.name, bad);
        of_memory
    }

    fn report_bad(&mut self, node: &str, bad: Vec<BadQuantity>) {
        let room = self.bad.len() < MAX_REPORTED;
        if bad.is_empty() {
            if !self.bad.is_empty() {
                self.bad.remove(node);
            }
        } else {
            match self.bad.entry(node.to_owned()) {
                btree_map::Entry::Occupied(mut found) => *found.get_mut() = bad,
                btree_map::Entry::Vacant(entry) if room => drop(entry.insert(bad)),
                btree_map::Entry::Vacant(_) => {}
            }
        }
    }

    /// The id of a resource that counts.
    fn resource_id(&mut self, name: &str) -> Option<u16> {
        if let Some(known) = self.resources.iter().position(|(resource, _)| resource.as_str() == name) {
            return if self.resources[known].1 { u16::try_from(known).ok() } else { None };
        }
        let resource = ResourceName::new(name).ok()?;
        if MAX_RESOURCES <= self.resources.len() {
            return None;
        }
        let counts = self.filter.counts(&resource);
        self.resources.push((resource, counts));
        if counts { u16::try_from(self.resources.len() - 1).ok() } else { None }
    }

    fn resource(&self, id: u16) -> &ResourceName {
        &self.resources[usize::from(id)].0
    }

    fn put(&mut self, name: &str, shape: Shape, amounts: Amounts, memory: i64) {
        let bytes = ROW + name.len() + shape.bytes() + size_of_val(&*amounts);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let shape = self.shapes.hold(shape);
        let amounts = self.amounts.hold(amounts);
        let group = self.groups.entry((shape, amounts)).or_default();
        group.nodes += 1;
        group.memory += i128::from(memory);
        let node = Node { shape, amounts, list: self.list, bytes, memory };
        self.bytes += bytes as usize;
        let before = match self.nodes.get_mut(name) {
            Some(found) => Some(std::mem::replace(found, node)),
            None => self.nodes.insert(name.into(), node),
        };
        if let Some(before) = before {
            self.bytes -= before.bytes as usize;
            self.release(before);
        }
    }

    fn release(&mut self, node: Node) {
        if let hash_map::Entry::Occupied(mut group) = self.groups.entry((node.shape, node.amounts)) {
            group.get_mut().nodes -= 1;
            group.get_mut().memory -= i128::from(node.memory);
            if group.get().nodes == 0 {
                group.remove();
            }
        }
        self.shapes.release(node.shape);
        self.amounts.release(node.amounts);
    }
}

impl Shape {
    fn bytes(&self) -> usize {
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len());
        let taints = self.taints.iter().chain(self.usual.iter().flatten());
        let taints =
            taints.map(|taint| size_of::<Taint>() + taint.key.len() + taint.value.len() + taint.effect.len());
        let texts: usize = labels.chain(taints).sum();
        size_of::<Self>() + size_of_val(&*self.labels) + texts
    }

    fn of(facts: &NodeFacts<'_>, label_keys: &BTreeSet<String>) -> Self {
        let labels = label_keys.iter().filter_map(|key| {
            let value = label(facts, key)?;
            Some((key.as_str().into(), value.into()))
        });
        let taints = repelling(facts).map(|taint| Taint {
            key: taint.key.to_owned(),
            value: taint.value.to_owned(),
            effect: taint.effect.to_owned(),
        });
        let mut taints: Vec<_> = taints.collect();
        taints.sort_unstable();
        taints.dedup();
        let (usable, deleting) = (is_usable(facts), facts.deleting);
        let taints: Box<[Taint]> = taints.into();
        let usual = usable.then(|| taints.clone());
        Self { usable, deleting, labels: labels.collect(), taints, usual }
    }

    /// What it was like before. Taints of a start, or of somebody who works on it, come and go; those of its pool stay.
    fn remember(&mut self, before: &Self) {
        if let Some(usual) = &before.usual
            && self.usual.as_ref().is_none_or(|now| usual.len() < now.len())
        {
            self.usual = Some(usual.clone());
        }
    }

    /// Whether it goes, so that an autoscaler may bring another in its place.
    fn is_going(&self) -> bool {
        self.deleting || self.taints.iter().any(|taint| GOING.contains(&taint.key.as_str()))
    }

    /// Whether [`Shape::of`] these facts would be this shape, found without allocating.
    fn is_of(&self, facts: &NodeFacts<'_>, label_keys: &BTreeSet<String>) -> bool {
        let labels = label_keys.iter().filter_map(|key| Some((key.as_str(), label(facts, key)?)));
        let same = |taint: &Taint, found: &super::TaintFacts<'_>| {
            taint.key == found.key && taint.value == found.value && taint.effect == found.effect
        };
        self.usable == is_usable(facts)
            && self.deleting == facts.deleting
            && labels.eq(self.labels.iter().map(|(key, value)| (&**key, &**value)))
            && repelling(facts).all(|found| self.taints.iter().any(|taint| same(taint, found)))
            && self.taints.iter().all(|taint| repelling(facts).any(|found| same(taint, found)))
    }
}

fn raise(largest: &mut Resources, resource: ResourceName, units: i64) {
    let known = largest.entry(resource).or_default();
    *known = (*known).max(Amount::new(units));
}

fn memory() -> ResourceName {
    ResourceName::new("memory").expect("a constant resource name is valid")
}

fn is_usable(facts: &NodeFacts<'_>) -> bool {
    facts.ready && !facts.unschedulable && !facts.deleting
}

fn label<'a>(facts: &NodeFacts<'a>, key: &str) -> Option<&'a str> {
    facts.labels.iter().find(|(found, _)| *found == key).map(|(_, value)| *value)
}

/// The taints that keep pods away; `PreferNoSchedule` does not.
fn repelling<'a, 'b>(facts: &'b NodeFacts<'a>) -> impl Iterator<Item = &'b super::TaintFacts<'a>> {
    facts.taints.iter().filter(|taint| matches!(taint.effect, "NoSchedule" | "NoExecute"))
}

/// Units of a resource in an allocatable quantity: plain numbers, which nearly all are, without the
/// allocation of the full grammar.
fn units(text: &str, resource: &ResourceName) -> Option<i64> {
    let quantity = match plain(text) {
        Some(nanos) => Quantity::from_nanos(nanos),
        None => match Quantity::parse(text) {
            Ok(quantity) => quantity,
            // More than can be counted: as much as can be.
            Err(fedq_values::quantity::QuantityError::TooLarge(_)) => Quantity::from_nanos(i128::MAX),
            Err(_) => return None,
        },
    };
    Some(Amount::offered(quantity, resource).units())
}

/// Nano-units of up to 18 digits with a common suffix.
fn plain(text: &str) -> Option<i128> {
    const NANO: i128 = 1_000_000_000;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 || 18 < digits {
        return None;
    }
    let scale = match &text[digits..] {
        "" => NANO,
        "m" => NANO / 1000,
        "Ki" => NANO << 10,
        "Mi" => NANO << 20,
        "Gi" => NANO << 30,
        _ => return None,
    };
    let value =
        text.as_bytes()[..digits].iter().fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    Some(value * scale)
}

#[cfg(test)]
#[path = "nodes_tests.rs"]
mod tests;
