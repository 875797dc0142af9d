//! From numbers back to names: the plan and the report of one cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CellPlan, ClusterInput, ClusterPlan, ClusterReport, FlavorUse, Mode, Overcommit, Reason, Unresolved,
    constraints,
    hold::Growth,
    model::{CellModel, Model, Room, Verdict},
};
use crate::{
    resource_groups::{Quota, ResourceGroups, Rule},
    resources::{Cell, FlavorResource, Resources},
};
use fedq_values::{
    ids::{FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

/// A planned cluster, with the names of its cells in the order of the model's.
pub(super) struct Planned<'a> {
    pub input: &'a ClusterInput,
    pub model: &'a Model,
    pub names: &'a [(Cell, Option<Amount>)],
    /// The rule that forbids a cell.
    pub forbidden: &'a dyn Fn(&Cell) -> Option<Rule>,
    /// A hub queue's groups.
    pub groups: &'a dyn Fn(&QueueName) -> Option<&'a ResourceGroups>,
}

impl Planned<'_> {
    pub fn plan(&self) -> ClusterPlan {
        let mut cells = BTreeMap::new();
        for room in &self.model.rooms {
            for position in room.range.clone() {
                let (cell, name) = (&self.model.cells[position], &self.names[position].0);
                if cell.assigned || cell.exists {
                    cells.insert(name.clone(), self.cell(room, cell, name));
                }
            }
        }
        ClusterPlan { cells }
    }

    fn cell(&self, room: &Room, cell: &CellModel, name: &Cell) -> CellPlan {
        let outcome = cell.outcome;
        let waiting = outcome.granted.map_or(0, |granted| (outcome.effective - granted).max(0));
        CellPlan {
            requested: Amount::new(cell.requested),
            effective: Amount::new(outcome.effective),
            granted: outcome.granted.map(Amount::new),
            draining: Amount::new(waiting),
            term: Amount::new(outcome.term),
            lending: outcome.lending.map(Amount::new),
            borrowing: outcome.borrowing.map(Amount::new),
            reason: self.reason(room, cell, name),
        }
    }

    fn reason(&self, room: &Room, cell: &CellModel, name: &Cell) -> Reason {
        let outcome = cell.outcome;
        if !cell.assigned {
            return Reason::Unassigned;
        }
        match cell.verdict {
            Verdict::MissingQueue => return Reason::MissingQueue,
            Verdict::MissingFlavor => return Reason::MissingFlavor,
            Verdict::Forbidden => {
                return (self.forbidden)(name).map_or(Reason::MissingQueue, Reason::CannotExtend);
            }
            Verdict::Possible => {}
        }
        let mode = self.input.treated_as();
        let live = mode == Mode::Live;
        let confirmed = !live || outcome.effective <= cell.nominal && cell.exists;
        let conditions = [
            (!cell.flavor_known, Reason::MissingFlavor),
            (cell.conflict, Reason::Conflict),
            (mode == Mode::Lost, Reason::Lost),
            (self.input.capacity.is_none(), Reason::CapacityUnknown),
            (mode == Mode::Frozen, Reason::Frozen),
            (self.input.cordoned, Reason::Cordoned),
        ];
        if let Some((_, reason)) = conditions.into_iter().find(|(holds, _)| *holds) {
            return reason;
        }
        if let Some(limit) = outcome.stopped_by {
            return match room.constraints.get(usize::from(limit)) {
                Some(constraint) => Reason::Capacity(names(room, &constraint.flavors)),
                None => Reason::Cap,
            };
        }
        let waits = outcome.granted.is_some_and(|granted| granted < outcome.effective);
        let conditions = [
            (waits && self.input.nodes_are_old, Reason::CapacityUnknown),
            (waits, Reason::Draining),
            (!cell.dispatched, Reason::NotDispatched),
            (live && cell.exists && !cell.active, Reason::QueueInactive),
            (!confirmed, Reason::Unconfirmed),
            (live && outcome.term < outcome.effective, Reason::Direct),
            (cell.automated, Reason::Automated),
        ];
        conditions.into_iter().find(|(holds, _)| *holds).map_or(Reason::Satisfied, |(_, reason)| reason)
    }

    pub fn report(&self) -> ClusterReport {
        let mut report = ClusterReport { flavors: self.flavors(), ..ClusterReport::default() };
        for room in &self.model.rooms {
            self.overcommitted(room, &mut report.overcommitted);
            report.unchecked.extend(names(room, &room.unchecked));
        }
        for ((name, _), cell) in self.names.iter().zip(&self.model.cells).filter(|(_, cell)| cell.assigned) {
            if let Some(unresolved) = unresolved(name, cell, self.forbidden) {
                report.unresolved.insert(unresolved);
            }
            if cell.runs_locally {
                report.runs_locally.insert(name.queue.clone());
            }
        }
        self.coverage(&mut report);
        report
    }

    /// Sets of flavors that may come to hold more than their nodes have. A set that contains one
    /// already listed says nothing new.
    fn overcommitted(&self, room: &Room, found: &mut Vec<Overcommit>) {
        let mut cells = self.model.cells[room.range.clone()].to_vec();
        let held = Growth::held_after(room, &mut cells);
        let mut listed: Vec<&[u16]> = Vec::new();
        for (constraint, held) in room.constraints.iter().zip(held) {
            let known = |set: &&[u16]| set.iter().all(|flavor| constraint.flavors.contains(flavor));
            if self.input.capacity.is_none()
                || held <= i128::from(constraint.usable)
                || listed.iter().any(known)
            {
                continue;
            }
            listed.push(&constraint.flavors);
            found.push(Overcommit {
                flavors: names(room, &constraint.flavors),
                resource: room.resource.clone(),
                usable: Amount::new(constraint.usable),
                held: clamp(held),
            });
        }
    }

    /// What every flavor has of every resource, gives and could still give.
    fn flavors(&self) -> BTreeMap<FlavorName, BTreeMap<ResourceName, FlavorUse>> {
        let Some(capacity) = &self.input.capacity else { return BTreeMap::new() };
        let all = capacity.by_flavor.values().chain(capacity.coming.values());
        let resources: BTreeSet<_> = all.flat_map(BTreeMap::keys).collect();
        let resources: BTreeSet<_> =
            resources.into_iter().chain(self.model.rooms.iter().map(|r| &r.resource)).collect();
        let mut by_flavor: BTreeMap<FlavorName, BTreeMap<ResourceName, FlavorUse>> = BTreeMap::new();
        for resource in resources {
            let room = self.model.rooms.iter().find(|room| room.resource == *resource);
            for (flavor, of_flavor) in self.flavors_of(resource, room) {
                by_flavor.entry(flavor).or_default().insert(resource.clone(), of_flavor);
            }
        }
        by_flavor
    }

    fn flavors_of(&self, resource: &ResourceName, room: Option<&Room>) -> Vec<(FlavorName, FlavorUse)> {
        let capacity = self.input.capacity.clone().unwrap_or_default();
        let of_room = room.iter().flat_map(|room| &room.flavors);
        let flavors: BTreeSet<_> = capacity.by_flavor.keys().chain(of_room).cloned().collect();
        let flavors: Vec<_> = flavors.into_iter().collect();
        let assigned: Vec<i128> = flavors.iter().map(|flavor| self.assigned(room, flavor)).collect();
        let foreign: Vec<i128> = flavors.iter().map(|flavor| self.foreign(resource, flavor)).collect();
        let counted = |f: usize| assigned[f] + if self.input.count_foreign { foreign[f] } else { 0 };
        let built = constraints::build(&capacity, &self.input.headroom, resource, &flavors);
        let left = |f: usize| {
            let of_flavor = built.list.iter().filter(|c| c.flavors.iter().any(|at| usize::from(*at) == f));
            let sum = |c: &constraints::Constraint| {
                c.flavors.iter().map(|at| counted(usize::from(*at))).sum::<i128>()
            };
            let by_nodes = of_flavor.map(|c| i128::from(c.usable) - sum(c)).min().unwrap_or(0);
            let cap = self.input.claim.as_ref().and_then(|claim| claim.caps.get(resource));
            cap.map_or(by_nodes, |cap| by_nodes.min(i128::from(cap.units()) - assigned.iter().sum::<i128>()))
        };
        let of = |all: &BTreeMap<FlavorName, Resources>, flavor: &FlavorName| {
            all.get(flavor).and_then(|of| of.get(resource)).copied().unwrap_or_default()
        };
        let of_flavor = |f: usize| FlavorUse {
            capacity: of(&capacity.by_flavor, &flavors[f]),
            coming: of(&capacity.coming, &flavors[f]),
            assigned: clamp(assigned[f]),
            unassigned: clamp(left(f)),
            foreign: clamp(foreign[f]),
        };
        (0..flavors.len()).map(|f| (flavors[f].clone(), of_flavor(f))).collect()
    }

    fn assigned(&self, room: Option<&Room>, flavor: &FlavorName) -> i128 {
        let Some((room, at)) = room.and_then(|room| Some((room, room.flavors.binary_search(flavor).ok()?)))
        else {
            return 0;
        };
        let cells = self.model.cells[room.range.clone()].iter().filter(|cell| usize::from(cell.flavor) == at);
        cells.map(|cell| i128::from(cell.outcome.effective)).sum()
    }

    fn foreign(&self, resource: &ResourceName, flavor: &FlavorName) -> i128 {
        let at = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
        let queues = self.input.worker_queues.iter().filter(|queue| !queue.ours);
        queues.filter_map(|queue| queue.cells.get(&at)).map(|cell| i128::from(cell.nominal.units())).sum()
    }

    /// What the worker's queues lack: resources of the group that a flavor was given nothing of, and
    /// resources of the cluster that a queue does not cover at all.
    fn coverage(&self, report: &mut ClusterReport) {
        let mut by_queue: BTreeMap<&QueueName, BTreeMap<FlavorResource, Quota>> = BTreeMap::new();
        for ((name, _), cell) in
            self.names.iter().zip(&self.model.cells).filter(|(_, cell)| cell.is_resolved())
        {
            let at = FlavorResource { flavor: name.flavor.clone(), resource: name.resource.clone() };
            let quota = Quota { nominal: Amount::new(cell.requested), ..Quota::default() };
            by_queue.entry(&name.queue).or_default().insert(at, quota);
        }
        let has: BTreeSet<_> =
            self.input.capacity.iter().flat_map(|capacity| capacity.total.keys()).collect();
        for (queue, cells) in by_queue {
            let worker = (self.groups)(queue).map(|groups| groups.for_worker(&cells)).unwrap_or_default();
            for (flavor, quota) in worker.cells().filter(|(_, quota)| quota.nominal.amount().is_zero()) {
                let (queue, flavor, resource) = (queue.clone(), flavor.clone(), quota.name.clone());
                report.incomplete.insert(Cell { queue, flavor, resource });
            }
            let covered: BTreeSet<_> = worker.0.iter().flat_map(|group| &group.covered).collect();
            let uncovered: BTreeSet<_> =
                has.difference(&covered).map(|resource| (*resource).clone()).collect();
            if !uncovered.is_empty() {
                report.uncovered.insert(queue.clone(), uncovered);
            }
        }
    }
}

fn names(room: &Room, flavors: &[u16]) -> BTreeSet<FlavorName> {
    flavors.iter().map(|flavor| room.flavors[usize::from(*flavor)].clone()).collect()
}

fn unresolved(
    name: &Cell,
    cell: &CellModel,
    forbidden: &dyn Fn(&Cell) -> Option<Rule>,
) -> Option<Unresolved> {
    match cell.verdict {
        Verdict::MissingQueue => Some(Unresolved::Queue(name.queue.clone())),
        Verdict::MissingFlavor if cell.has_nodes => Some(Unresolved::HubFlavor(name.flavor.clone())),
        Verdict::MissingFlavor => Some(Unresolved::Flavor(name.flavor.clone())),
        Verdict::Forbidden => {
            let (queue, flavor) = (name.queue.clone(), name.flavor.clone());
            forbidden(name).map(|rule| Unresolved::Rule { queue, flavor, rule })
        }
        Verdict::Possible => (!cell.flavor_known).then(|| Unresolved::Flavor(name.flavor.clone())),
    }
}

fn clamp(units: i128) -> Amount {
    Amount::new(i64::try_from(units.max(0)).unwrap_or(i64::MAX))
}
