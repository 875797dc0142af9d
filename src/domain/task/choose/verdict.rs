//! Whether one queue of one cluster can take a task in one of its forms, with the numbers.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    hardware::{self, Terms},
    obstacle::Obstacle,
    view::{CellView, ClusterView, FlavorView, GroupView, QueueView},
};
use crate::{
    capacity::Toleration,
    resources::Resources,
    task::{
        spec::{Candidate, Mount, TaskSpec},
        wrapped::WrappedPods,
    },
};
use fedq_values::{
    ids::{FlavorName, ResourceName},
    quantity::Amount,
};

/// The numbers of one resource that decided.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Number {
    pub resource: ResourceName,
    pub flavor: FlavorName,
    pub needed: Amount,
    pub nominal: Amount,
    pub ceiling: Amount,
    pub reserved: Amount,
    pub in_flight: Amount,
    pub available: Amount,
}

impl Number {
    /// What is missing now.
    pub fn gap(&self) -> Amount {
        self.needed.saturating_sub(self.available)
    }

    /// What is left afterwards, in thousandths of what the queue can hold; negative: what is missing.
    pub fn left(&self) -> i64 {
        permille(i128::from(self.available.units()) - i128::from(self.needed.units()), self.ceiling)
    }

    /// What of it is borrowed, in thousandths of what is needed.
    pub fn borrowed(&self) -> i64 {
        let own = i128::from(self.nominal.saturating_sub(self.reserved).units());
        permille((i128::from(self.needed.units()) - own).max(0), self.needed)
    }
}

fn permille(part: i128, whole: Amount) -> i64 {
    let whole = i128::from(whole.units()).max(1);
    i64::try_from((part * 1000 / whole).clamp(-1000, 1000)).unwrap_or_default()
}

/// A queue that can take the task, now or later.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Offer {
    /// Position in the task's candidates.
    pub candidate: usize,
    pub queue: String,
    pub pending: u32,
    pub active: bool,
    /// One for each resource, by name.
    pub numbers: Vec<Number>,
    /// Of each of its pod sets, from which flavor each resource would come: one set where it is no AppWrapper.
    pub flavors: Vec<BTreeMap<ResourceName, FlavorName>>,
    /// What pods must ask for by label so that they get the flavor's nodes.
    pub terms: Terms,
    /// Labels of nodes that pods must not get.
    pub refused: Terms,
    /// Wishes that no flavor of the queue can tell apart, and so are not asked for.
    pub unmet: Vec<&'static str>,
}

impl Offer {
    pub fn fits_now(&self) -> bool {
        self.active && self.numbers.iter().all(|number| number.gap().is_zero())
    }

    /// The scarcest resource decides.
    pub fn left(&self) -> i64 {
        self.numbers.iter().map(Number::left).min().unwrap_or(1000)
    }

    pub fn borrowed(&self) -> i64 {
        self.numbers.iter().map(Number::borrowed).max().unwrap_or(0)
    }
}

/// What one node of the task asks for in one of its forms.
pub fn per_node(task: &TaskSpec, candidate: &Candidate) -> Resources {
    let constant = |name: &str| ResourceName::new(name).expect("a constant resource name is valid");
    let mut needs = Resources::new();
    needs.extend(candidate.cpu.map(|request| (constant("cpu"), request.amount)));
    needs.extend(candidate.memory.map(|request| (constant("memory"), request.amount)));
    let accelerator = candidate.accelerator.as_ref();
    needs.extend(accelerator.map(|accelerator| {
        (hardware::resource(accelerator.kind.as_deref()), Amount::new(i64::from(accelerator.count)))
    }));
    let devices = task.pod.devices.iter();
    needs.extend(devices.map(|(device, count)| (device.clone(), Amount::new(i64::from(*count)))));
    needs
}

/// Volumes that keep the task from a cluster.
pub fn volume_obstacles(task: &TaskSpec, cluster: &ClusterView) -> Vec<Obstacle> {
    let judge = |mount: &Mount| {
        let volume = || mount.volume.clone();
        let shared = match (&mount.claim, cluster.volumes.get(&mount.volume)) {
            (Some(claim), _) if claim.cluster != cluster.name => {
                return Some(Obstacle::NoVolume { volume: volume(), on: Some(claim.cluster.clone()) });
            }
            (Some(claim), _) => claim.shared,
            (None, Some(volume)) => volume.shared,
            (None, None) => {
                let on = cluster.elsewhere.get(&mount.volume).cloned();
                return Some(Obstacle::NoVolume { volume: volume(), on });
            }
        };
        (!shared && 1 < task.num_nodes && !task.one_machine)
            .then(|| Obstacle::VolumeOfOneNode { volume: volume() })
    };
    task.volumes.iter().filter_map(judge).collect()
}

/// What `queue` offers to one form of the task, or why it never can.
pub fn judge(task: &TaskSpec, index: usize, queue: &QueueView) -> Result<Offer, Vec<Obstacle>> {
    let candidate = &task.candidates[index];
    let sets = pod_sets(task, candidate);
    let mut obstacles = Vec::new();
    let resources: BTreeSet<&ResourceName> = sets.iter().flat_map(|set| set.per_pod.keys()).collect();
    for resource in resources {
        let covered = queue.groups.iter().flat_map(|group| &group.flavors);
        if !covered.clone().any(|flavor| flavor.cells.contains_key(resource)) {
            let queue = queue.local.clone();
            obstacles.push(Obstacle::NotCovered { queue, resource: resource.clone() });
        }
    }
    if !obstacles.is_empty() {
        return Err(obstacles);
    }
    let mut offer = Offer {
        candidate: index,
        queue: queue.local.clone(),
        pending: queue.pending,
        active: queue.active,
        numbers: Vec::new(),
        flavors: Vec::new(),
        terms: Terms::new(),
        refused: refused(candidate, queue),
        unmet: unmet(candidate, queue),
    };
    // By flavor and resource. What a set takes is not there for the next, as Kueue assigns them one after the other.
    let mut taken: BTreeMap<(ResourceName, FlavorName), Number> = BTreeMap::new();
    for set in &sets {
        let mut flavors = BTreeMap::new();
        let before = taken.clone();
        for group in &queue.groups {
            let of_group: Resources = set
                .per_pod
                .iter()
                .filter(|(resource, _)| {
                    group.flavors.iter().any(|flavor| flavor.cells.contains_key(*resource))
                })
                .map(|(resource, amount)| (resource.clone(), *amount))
                .collect();
            if of_group.is_empty() {
                continue;
            }
            let needed = Needed { queue, group, set, candidate, per_node: &of_group, before: &before };
            match needed.best() {
                Ok((numbers, terms)) => {
                    offer.terms.extend(terms);
                    for number in numbers {
                        flavors.insert(number.resource.clone(), number.flavor.clone());
                        taken.insert((number.resource.clone(), number.flavor.clone()), number);
                    }
                }
                Err(found) => obstacles.extend(found),
            }
        }
        offer.flavors.push(flavors);
    }
    offer.numbers.extend(taken.into_values());
    if obstacles.is_empty() { Ok(offer) } else { Err(obstacles) }
}

fn unmet(candidate: &Candidate, queue: &QueueView) -> Vec<&'static str> {
    let instance_type =
        candidate.instance_type.is_some() && !queue.groups.iter().any(hardware::knows_instance_types);
    let spot = candidate.spot && !queue.groups.iter().any(hardware::knows_spot);
    let wishes = [(instance_type, "instance_type"), (spot, "use_spot")];
    wishes.into_iter().filter(|(unmet, _)| *unmet).map(|(_, field)| field).collect()
}

fn refused(candidate: &Candidate, queue: &QueueView) -> Terms {
    if !candidate.on_demand {
        return Terms::new();
    }
    hardware::spot_labels(queue.groups.iter().flat_map(|group| &group.flavors))
}

/// Pods that are alike, as Kueue assigns flavors to them.
struct Pods<'a> {
    count: u32,
    per_pod: Resources,
    /// All of them run on one machine.
    one_machine: bool,
    node_selector: &'a BTreeMap<String, String>,
    tolerations: &'a [serde_json::Value],
}

fn pod_sets<'a>(task: &'a TaskSpec, candidate: &Candidate) -> Vec<Pods<'a>> {
    let Some(wrapped) = &task.wrapped else {
        return vec![Pods {
            count: task.num_nodes,
            per_pod: per_node(task, candidate),
            one_machine: task.one_machine,
            node_selector: &task.pod.node_selector,
            tolerations: &task.pod.tolerations,
        }];
    };
    let of_set = |pods: &'a WrappedPods| Pods {
        count: pods.count,
        per_pod: pods.per_pod(),
        one_machine: false,
        node_selector: &pods.node_selector,
        tolerations: &pods.tolerations,
    };
    wrapped.pod_sets.iter().map(of_set).collect()
}

/// What a pod set needs of one group of resources, all of it from one flavor.
struct Needed<'a> {
    queue: &'a QueueView,
    group: &'a GroupView,
    set: &'a Pods<'a>,
    candidate: &'a Candidate,
    per_node: &'a Resources,
    /// What the sets before it take.
    before: &'a BTreeMap<(ResourceName, FlavorName), Number>,
}

impl Needed<'_> {
    /// The first flavor with room now, as Kueue takes it; else the one that misses least.
    fn best(&self) -> Result<(Vec<Number>, Terms), Vec<Obstacle>> {
        let mut obstacles = Vec::new();
        let mut best: Option<(i64, Vec<Number>, Terms)> = None;
        for flavor in &self.group.flavors {
            let (numbers, terms) = match self.judge(flavor) {
                Ok(found) => found,
                Err(found) => {
                    obstacles.extend(found);
                    continue;
                }
            };
            if numbers.iter().all(|number| number.gap().is_zero()) {
                return Ok((numbers, terms));
            }
            let left = numbers.iter().map(Number::left).min().unwrap_or(0);
            if best.as_ref().is_none_or(|(least, ..)| *least < left) {
                best = Some((left, numbers, terms));
            }
        }
        match best {
            Some((_, numbers, terms)) => Ok((numbers, terms)),
            None => Err(obstacles),
        }
    }

    fn judge(&self, flavor: &FlavorView) -> Result<(Vec<Number>, Terms), Vec<Obstacle>> {
        let terms = self.terms(flavor).map_err(|obstacle| vec![obstacle])?;
        let (mut numbers, mut obstacles) = (Vec::new(), Vec::new());
        for (resource, one) in self.per_node {
            let Some(cell) = flavor.cells.get(resource) else {
                let queue = self.queue.local.clone();
                obstacles.push(Obstacle::NotCovered { queue, resource: resource.clone() });
                continue;
            };
            let of_set = one.units().checked_mul(i64::from(self.set.count)).map_or(Amount::MAX, Amount::new);
            let before = self.before.get(&(resource.clone(), flavor.name.clone()));
            let needed = before.map_or(of_set, |before| before.needed.saturating_add(of_set));
            if cell.ceiling < needed {
                obstacles.push(Obstacle::TooMuch {
                    queue: self.queue.local.clone(),
                    resource: resource.clone(),
                    flavor: flavor.name.clone(),
                    needed,
                    ceiling: cell.ceiling,
                });
            }
            let on_one = if self.set.one_machine { needed } else { *one };
            if let Some(largest) = flavor.largest_node.get(resource).filter(|largest| **largest < on_one) {
                obstacles.push(Obstacle::NodeTooSmall {
                    resource: resource.clone(),
                    flavor: flavor.name.clone(),
                    needed: on_one,
                    one_machine: self.set.one_machine,
                    largest: *largest,
                });
            }
            numbers.push(number(resource, flavor, needed, cell));
        }
        if obstacles.is_empty() { Ok((numbers, terms)) } else { Err(obstacles) }
    }

    /// What pods ask for by label to get this flavor. What no flavor of the queue tells apart, pods do
    /// not ask for.
    fn terms(&self, flavor: &FlavorView) -> Result<Terms, Obstacle> {
        let queue = || self.queue.local.clone();
        let mut terms = Terms::new();
        if let Some(accelerator) = &self.candidate.accelerator
            && let Some(kind) = &accelerator.kind
            && self.per_node.contains_key(&hardware::resource(Some(kind)))
        {
            let found = hardware::accelerator(kind, flavor).ok_or_else(|| Obstacle::NoAccelerator {
                queue: queue(),
                kind: kind.clone(),
                there: hardware::told(self.group),
            })?;
            terms.extend(found);
        }
        if let Some(kind) = &self.candidate.instance_type
            && hardware::knows_instance_types(self.group)
        {
            let found = hardware::instance_type(kind, flavor)
                .ok_or_else(|| Obstacle::NoInstanceType { queue: queue(), kind: kind.clone() })?;
            terms.extend(found);
        }
        if self.candidate.spot && hardware::knows_spot(self.group) {
            terms.extend(hardware::spot(flavor).ok_or_else(|| Obstacle::NoSpot { queue: queue() })?);
        }
        if self.candidate.on_demand && hardware::spot(flavor).is_some() {
            return Err(Obstacle::Spot { queue: queue(), flavor: flavor.name.clone() });
        }
        self.admitted(flavor)?;
        Ok(terms)
    }

    /// What else Kueue looks at before it takes a flavor.
    fn admitted(&self, flavor: &FlavorView) -> Result<(), Obstacle> {
        let queue = || self.queue.local.clone();
        // Keys that no flavor of the group has are between the pod and the scheduler.
        let known = |key: &String| self.group.flavors.iter().any(|other| other.node_labels.contains_key(key));
        let selector = self.set.node_selector.iter();
        for (key, value) in selector.filter(|(key, _)| known(key)) {
            if flavor.node_labels.get(key) != Some(value) {
                return Err(Obstacle::NotSelected { queue: queue(), key: key.clone() });
            }
        }
        let tolerations = tolerations(self.set.tolerations);
        match flavor.taints.iter().find(|taint| !tolerations.iter().any(|one| one.tolerates(taint))) {
            None => Ok(()),
            Some(taint) => {
                let taint = format!("{}:{}", taint.key, taint.effect);
                Err(Obstacle::NotTolerated { queue: queue(), flavor: flavor.name.clone(), taint })
            }
        }
    }
}

fn tolerations(tolerations: &[serde_json::Value]) -> Vec<Toleration> {
    let read = |json: &serde_json::Value| {
        let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
        Toleration {
            key: text("key"),
            operator: text("operator"),
            value: text("value"),
            effect: text("effect"),
        }
    };
    tolerations.iter().map(read).collect()
}

fn number(resource: &ResourceName, flavor: &FlavorView, needed: Amount, cell: &CellView) -> Number {
    Number {
        resource: resource.clone(),
        flavor: flavor.name.clone(),
        needed,
        nominal: cell.nominal,
        ceiling: cell.ceiling,
        reserved: cell.reserved,
        in_flight: cell.in_flight,
        available: cell.available(),
    }
}
