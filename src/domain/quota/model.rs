//! One cluster in the form that is planned with: numbers in rows, names only at the edges.
//!
//! Cells are ordered by resource, queue and flavor names, so that a resource is a range of cells and
//! every tie is broken by name. Built when the cluster's input or a fact of a hub queue it uses
//! changes; planning again costs only the arithmetic.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use super::{
    ClusterInput, Mode, WorkerQueueInput,
    constraints::{self, Constraint},
    hold::{Holder, guaranteed},
};
use crate::resources::{Cell, FlavorResource};
use fedq_values::{
    ids::{CohortName, FlavorName, ResourceName},
    quantity::Amount,
};

/// What a cluster must know of one hub cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct HubFacts<'a> {
    pub verdict: Verdict,
    pub automated: bool,
    /// The hub dispatches this queue's workloads to this cluster.
    pub dispatched: bool,
    pub runs_locally: bool,
    pub cohort: Option<&'a CohortName>,
}

/// Whether the hub has, or may be given, the cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Possible,
    MissingQueue,
    MissingFlavor,
    Forbidden,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub rooms: Vec<Room>,
    pub cells: Vec<CellModel>,
}

/// One resource of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub resource: ResourceName,
    /// The flavors that any cell of the resource has, by name.
    pub flavors: Vec<FlavorName>,
    pub all: Box<[u16]>,
    pub constraints: Vec<Constraint>,
    /// Constraints with a queue whose reservations are not to be relied on yet; all, where the nodes are not.
    pub blocked: Vec<bool>,
    pub unchecked: Vec<u16>,
    pub cap: Option<i64>,
    /// Its cells.
    pub range: Range<usize>,
    /// Σ nominal of foreign cells, by flavor.
    pub foreign: Vec<i128>,
    /// Σ of what foreign cells outside cohorts hold, by flavor.
    pub foreign_held: Vec<i128>,
    pub groups: Vec<Group>,
}

/// The cells of one flavor and one cohort: they lend to each other, so they count together.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub flavor: u16,
    pub foreign: Vec<Holder>,
    /// Positions of our cells.
    pub ours: Vec<usize>,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one cell")]
pub(super) struct CellModel {
    pub flavor: u16,
    /// Position in the room's groups, if the queue is in a cohort.
    pub group: Option<u32>,
    pub assigned: bool,
    pub flavor_known: bool,
    /// The worker's capacity was counted for the flavor.
    pub has_nodes: bool,
    pub conflict: bool,
    pub exists: bool,
    pub active: bool,
    pub automated: bool,
    pub dispatched: bool,
    pub runs_locally: bool,
    pub verdict: Verdict,
    pub requested: i64,
    pub nominal: i64,
    pub reserved: i64,
    pub direct: i64,
    pub last_term: i64,
    pub lending: Option<i64>,
    /// The most that unanswered writes may have made of `nominal`, and of the part that is not lent.
    pub asked: (i64, i64),
    /// Its shares of the hub cell's limits.
    pub lending_share: Option<i64>,
    pub borrowing_share: Option<i64>,
    pub outcome: Outcome,
}

/// What the plan decided for a cell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Outcome {
    pub effective: i64,
    /// The limit that stopped it, as a position in the room's constraints; their number is the cap.
    pub stopped_by: Option<u16>,
    pub granted: Option<i64>,
    pub lending: Option<i64>,
    pub borrowing: Option<i64>,
    pub term: i64,
}

impl CellModel {
    /// Whether the assignment can have any effect.
    pub fn is_resolved(&self) -> bool {
        self.assigned && self.flavor_known && !self.conflict && self.verdict == Verdict::Possible
    }

    /// An assignment that waits makes nothing on the worker.
    pub fn is_writable(&self) -> bool {
        !self.conflict && (self.exists || self.is_resolved())
    }

    /// What it holds as last seen.
    pub fn holder(&self) -> Holder {
        let guaranteed = guaranteed(self.nominal, self.lending, self.group.is_some());
        Holder { nominal: self.nominal, reserved: self.reserved, guaranteed }
    }

    /// What it holds at most, whatever became of writes that were not answered.
    pub fn holder_at_most(&self) -> Holder {
        let seen = self.holder();
        let (nominal, guaranteed) = self.asked;
        Holder { nominal: seen.nominal.max(nominal), guaranteed: seen.guaranteed.max(guaranteed), ..seen }
    }
}

/// Every cell the cluster has to do with, by resource, queue and flavor; `None`: not assigned.
pub(super) fn list_cells(input: &ClusterInput) -> Vec<(Cell, Option<Amount>)> {
    let mut cells: BTreeMap<Cell, Option<Amount>> = BTreeMap::new();
    for assignment in input.claim.iter().flat_map(|claim| &claim.assignments) {
        for (resource, amount) in &assignment.resources {
            let (queue, flavor) = (assignment.queue.clone(), assignment.flavor.clone());
            let requested = cells.entry(Cell { queue, flavor, resource: resource.clone() }).or_default();
            *requested = Some(requested.unwrap_or_default().saturating_add(*amount));
        }
    }
    for queue in input.worker_queues.iter().filter(|queue| queue.ours) {
        let asked = queue.asked.iter().flat_map(BTreeMap::keys);
        for FlavorResource { flavor, resource } in queue.cells.keys().chain(asked).cloned() {
            cells.entry(Cell { queue: queue.name.clone(), flavor, resource }).or_default();
        }
    }
    if input.treated_as() == Mode::Frozen {
        for cell in input.last_terms.iter().flat_map(BTreeMap::keys) {
            cells.entry(cell.clone()).or_default();
        }
    }
    let mut cells: Vec<_> = cells.into_iter().collect();
    cells.sort_by(|(a, _), (b, _)| a.resource.cmp(&b.resource).then_with(|| a.cmp(b)));
    cells
}

impl Model {
    /// `facts` are those of the cells' hub cells, in the order of `cells`.
    pub fn build(input: &ClusterInput, cells: &[(Cell, Option<Amount>)], facts: &[HubFacts<'_>]) -> Self {
        let mut model = Self::default();
        let queues: BTreeMap<_, _> = input.worker_queues.iter().map(|queue| (&queue.name, queue)).collect();
        let mut start = 0;
        for of_resource in cells.chunk_by(|(a, _), (b, _)| a.resource == b.resource) {
            let range = start..start + of_resource.len();
            start = range.end;
            let mut room = Room::build(input, &of_resource[0].0.resource, of_resource);
            room.range = range.clone();
            let mut groups = BTreeMap::new();
            for ((cell, requested), facts) in of_resource.iter().zip(&facts[range]) {
                let queue = queues.get(&cell.queue).copied();
                let position = model.cells.len();
                let mut of_cell = CellModel::build(input, cell, *requested, *facts, queue);
                of_cell.flavor = room.position(&cell.flavor);
                let cohort =
                    if of_cell.exists { queue.and_then(|q| q.cohort.as_ref()) } else { facts.cohort };
                if let Some(cohort) = cohort.filter(|_| !of_cell.conflict) {
                    let group = room.group(&mut groups, of_cell.flavor, cohort);
                    room.groups[group].ours.push(position);
                    of_cell.group = u32::try_from(group).ok();
                }
                of_cell.asked = asked(queue, cell, of_cell.group.is_some());
                model.cells.push(of_cell);
            }
            room.add_foreign(input, &mut groups);
            model.rooms.push(room);
        }
        model
    }

    /// What the nodes of a cell's flavor offer.
    pub fn usable(&self, position: usize) -> i64 {
        let flavor = self.cells[position].flavor;
        let room = self.rooms.iter().find(|room| room.range.contains(&position));
        let single = room.and_then(|room| room.constraints.iter().find(|c| *c.flavors == [flavor]));
        single.map_or(0, |constraint| constraint.usable)
    }
}

impl Room {
    fn build(input: &ClusterInput, resource: &ResourceName, cells: &[(Cell, Option<Amount>)]) -> Self {
        let counted = input.worker_queues.iter().filter(|queue| queue.ours || input.count_foreign);
        let keys = counted.clone().flat_map(|queue| queue.cells.keys());
        let of_queues = keys.filter(|cell| cell.resource == *resource).map(|cell| &cell.flavor);
        let flavors: BTreeSet<_> = cells.iter().map(|(cell, _)| &cell.flavor).chain(of_queues).collect();
        let flavors: Vec<FlavorName> = flavors.into_iter().cloned().collect();
        let capacity = input.capacity.clone().unwrap_or_default();
        let mut built = constraints::build(&capacity, &input.headroom, resource, &flavors);
        if input.nodes_are_old {
            // What was stored may be from before nodes came, on which quota was given since.
            let held = held(counted.clone(), resource, &flavors);
            for constraint in &mut built.list {
                let held: i64 = constraint.flavors.iter().map(|flavor| held[usize::from(*flavor)]).sum();
                constraint.usable = constraint.usable.max(held);
            }
        }
        let unsettled: BTreeMap<_, _> =
            counted.filter(|queue| !queue.settled).map(|queue| (&queue.name, queue)).collect();
        let of_seen = unsettled.values().flat_map(|queue| queue.cells.keys());
        let of_seen = of_seen.filter(|cell| cell.resource == *resource).map(|cell| &cell.flavor);
        // A cell that is assigned may be on its way to the queue already.
        let on_its_way = cells.iter().filter(|(cell, _)| unsettled.contains_key(&cell.queue));
        let on_its_way = on_its_way.map(|(cell, _)| &cell.flavor);
        let unsettled: BTreeSet<_> =
            of_seen.chain(on_its_way).filter_map(|flavor| flavors.binary_search(flavor).ok()).collect();
        let is_blocked = |c: &Constraint| {
            input.nodes_are_old || c.flavors.iter().any(|f| unsettled.contains(&usize::from(*f)))
        };
        let cap = input.claim.as_ref().and_then(|claim| claim.caps.get(resource));
        Self {
            resource: resource.clone(),
            all: (0..u16::try_from(flavors.len()).expect("fewer than 2^16 flavors")).collect(),
            blocked: built.list.iter().map(is_blocked).collect(),
            constraints: built.list,
            unchecked: built.unchecked,
            cap: cap.map(|cap| cap.units()),
            range: 0..0,
            foreign: vec![0; flavors.len()],
            foreign_held: vec![0; flavors.len()],
            groups: Vec::new(),
            flavors,
        }
    }

    fn position(&self, flavor: &FlavorName) -> u16 {
        let position =
            self.flavors.binary_search(flavor).expect("the flavors of a room are those of its cells");
        u16::try_from(position).expect("fewer than 2^16 flavors")
    }

    fn group<'a>(
        &mut self,
        groups: &mut BTreeMap<(u16, &'a CohortName), usize>,
        flavor: u16,
        cohort: &'a CohortName,
    ) -> usize {
        *groups.entry((flavor, cohort)).or_insert_with(|| {
            self.groups.push(Group { flavor, foreign: Vec::new(), ours: Vec::new() });
            self.groups.len() - 1
        })
    }

    fn add_foreign<'a>(
        &mut self,
        input: &'a ClusterInput,
        groups: &mut BTreeMap<(u16, &'a CohortName), usize>,
    ) {
        let foreign = input.worker_queues.iter().filter(|queue| !queue.ours && input.count_foreign);
        for queue in foreign {
            for (cell, quota) in &queue.cells {
                if cell.resource != self.resource {
                    continue;
                }
                let flavor = self.position(&cell.flavor);
                let lending = quota.lending.map(Amount::units);
                let holder = Holder {
                    nominal: quota.nominal.units(),
                    reserved: quota.reserved.units(),
                    guaranteed: guaranteed(quota.nominal.units(), lending, queue.cohort.is_some()),
                };
                self.foreign[usize::from(flavor)] += i128::from(holder.nominal);
                if let Some(cohort) = &queue.cohort {
                    let group = self.group(groups, flavor, cohort);
                    self.groups[group].foreign.push(holder);
                } else {
                    self.foreign_held[usize::from(flavor)] += i128::from(holder.alone());
                }
            }
        }
    }
}

/// The most that unanswered writes give a cell: quota, and how much of it is not lent.
fn asked(queue: Option<&WorkerQueueInput>, cell: &Cell, in_cohort: bool) -> (i64, i64) {
    let writes = queue.filter(|queue| queue.ours).map_or(&[][..], |queue| &queue.asked);
    if writes.is_empty() {
        return (0, 0);
    }
    let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
    writes.iter().filter_map(|write| write.get(&at)).fold((0, 0), |(most, kept), asked| {
        let nominal = asked.nominal.units();
        (most.max(nominal), kept.max(guaranteed(nominal, asked.lending.map(Amount::units), in_cohort)))
    })
}

/// What queues hold now, by position of the flavor.
fn held<'a>(
    queues: impl Iterator<Item = &'a WorkerQueueInput>,
    resource: &ResourceName,
    flavors: &[FlavorName],
) -> Vec<i64> {
    let mut held = vec![0_i64; flavors.len()];
    for (cell, quota) in queues.flat_map(|queue| &queue.cells) {
        if cell.resource == *resource
            && let Ok(at) = flavors.binary_search(&cell.flavor)
        {
            held[at] = held[at].saturating_add(quota.nominal.units());
        }
    }
    held
}

impl CellModel {
    fn build(
        input: &ClusterInput,
        cell: &Cell,
        requested: Option<Amount>,
        hub: HubFacts<'_>,
        queue: Option<&WorkerQueueInput>,
    ) -> Self {
        let ours = queue.filter(|queue| queue.ours);
        let seen = ours.and_then(|queue| {
            let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
            queue.cells.get(&at)
        });
        let last_term = input.last_terms.as_ref().and_then(|terms| terms.get(cell));
        let known = input.capacity.as_ref().map(|capacity| capacity.by_flavor.contains_key(&cell.flavor));
        let quota = seen.copied().unwrap_or_default();
        Self {
            flavor: 0,
            group: None,
            assigned: requested.is_some(),
            // Without capacity nothing is known of the cluster's flavors: not a name to wait for.
            flavor_known: known.unwrap_or(true),
            has_nodes: known == Some(true),
            conflict: queue.is_some_and(|queue| !queue.ours),
            exists: seen.is_some(),
            active: ours.is_some_and(|queue| queue.active),
            automated: hub.automated,
            dispatched: hub.dispatched,
            runs_locally: hub.runs_locally,
            verdict: hub.verdict,
            requested: requested.unwrap_or_default().units().max(0),
            nominal: quota.nominal.units(),
            reserved: quota.reserved.units(),
            direct: quota.direct.units(),
            last_term: last_term.map_or(0, |term| term.units()),
            lending: quota.lending.map(Amount::units),
            asked: (0, 0),
            lending_share: None,
            borrowing_share: None,
            outcome: Outcome::default(),
        }
    }
}
