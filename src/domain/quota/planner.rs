//! Keeps the last plan and recomputes what changed.
//!
//! Names become numbers once. A cluster is modelled again when its input or a hub queue's facts
//! change; then its cells are filled, limits shared, grants decided and the hub's sums corrected by
//! the difference. Everything it looks at belongs to that cluster, but for shared limits, which touch
//! the clusters that share them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    ClusterInput, ClusterPlan, ClusterReport, HubQueueInput, HubQueuePlan, Mode, Plan, Report,
    hub::{self, CellTerms, QueueFacts},
    model::{HubFacts, Model, list_cells},
    report::Planned,
    solve,
    state::{CellId, ClusterId, ClusterState, Dirty, HubCell, QueueId, QueueState},
};
use crate::{
    resource_groups::Rule,
    resources::{Cell, FlavorResource},
    shares::share,
};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName},
    quantity::Amount,
};

/// What a replan changed: whatever is not named here has the same plan as before.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Touched {
    pub clusters: BTreeSet<ClusterName>,
    pub queues: BTreeSet<QueueName>,
}

#[derive(Debug, Default)]
pub struct Planner {
    clusters: BTreeMap<ClusterId, ClusterState>,
    cluster_ids: BTreeMap<ClusterName, ClusterId>,
    next_cluster: ClusterId,
    queues: Vec<QueueState>,
    queue_ids: BTreeMap<QueueName, QueueId>,
    cells: Vec<HubCell>,
    cell_ids: HashMap<Cell, CellId>,
    flavors: Option<BTreeSet<FlavorName>>,
    /// Frozen clusters whose last terms are not known, or may lag.
    unknown: BTreeMap<ClusterId, Unknown>,
    dirty: Dirty,
}

/// What of a frozen cluster's terms is not known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Unknown {
    /// Any cell may be one of its.
    has_any: bool,
    /// [`ClusterInput::terms_may_lag`]
    lags: bool,
}

impl Touched {
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty() && self.queues.is_empty()
    }
}

impl Planner {
    /// The hub's ResourceFlavors ([`super::PlanInput::flavors`]).
    pub fn set_flavors(&mut self, flavors: Option<BTreeSet<FlavorName>>) {
        if self.flavors != flavors {
            self.flavors = flavors;
            self.dirty.facts.extend(self.queue_ids.values());
        }
    }

    /// Adds or replaces a cluster. Takes effect at the next [`Planner::replan`], as all changes do.
    pub fn set_cluster(&mut self, cluster: ClusterInput) {
        let id = self.cluster_ids.get(&cluster.name).copied().unwrap_or_else(|| {
            self.next_cluster += 1;
            self.cluster_ids.insert(cluster.name.clone(), self.next_cluster);
            self.next_cluster
        });
        if self.clusters.get(&id).is_some_and(|state| state.input == cluster) {
            return;
        }
        let is_unknown =
            cluster.treated_as() == Mode::Frozen && (cluster.last_terms.is_none() || cluster.terms_may_lag);
        let unknown = Unknown {
            has_any: cluster.last_terms.is_none() && cluster.claim.is_none(),
            lags: cluster.terms_may_lag,
        };
        self.set_unknown(id, is_unknown.then_some(unknown));
        match self.clusters.get_mut(&id) {
            Some(state) => state.input = cluster,
            None => drop(self.clusters.insert(id, ClusterState::new(cluster))),
        }
        self.dirty.relisted.insert(id);
    }

    pub fn remove_cluster(&mut self, name: &ClusterName) {
        let Some(id) = self.cluster_ids.remove(name) else { return };
        self.set_unknown(id, None);
        if let Some(state) = self.clusters.remove(&id) {
            self.unlink(id, &state);
        }
        for dirty in [&mut self.dirty.relisted, &mut self.dirty.modelled] {
            dirty.remove(&id);
        }
        self.dirty.touched.clusters.insert(name.clone());
    }

    pub fn set_queue(&mut self, queue: HubQueueInput) {
        let id = self.queue_id(&queue.name);
        let state = &mut self.queues[id as usize];
        if state.input.as_ref() != Some(&queue) {
            state.input = Some(queue);
            self.dirty.facts.insert(id);
        }
    }

    pub fn remove_queue(&mut self, name: &QueueName) {
        if let Some(id) = self.queue_ids.get(name) {
            self.queues[*id as usize].input = None;
            self.dirty.facts.insert(*id);
        }
    }

    /// Brings the plan up to date with everything set and removed since the last time.
    pub fn replan(&mut self) -> Touched {
        for id in std::mem::take(&mut self.dirty.relisted) {
            self.relist(id);
        }
        for id in std::mem::take(&mut self.dirty.facts) {
            self.refresh_queue(id);
        }
        for id in std::mem::take(&mut self.dirty.modelled) {
            self.remodel(id);
        }
        // Together, while the cluster is at hand: those whose share of a limit then changes, which are
        // few, are granted once more.
        for id in std::mem::take(&mut self.dirty.filled) {
            self.fill(id);
            self.grant(id);
        }
        for id in std::mem::take(&mut self.dirty.shares) {
            self.share_limits(id);
        }
        for id in std::mem::take(&mut self.dirty.granted) {
            self.grant(id);
        }
        std::mem::take(&mut self.dirty.touched)
    }

    /// Plans every cluster again, as a check on itself: with nothing changed, nothing is touched.
    pub fn replan_all(&mut self) -> Touched {
        self.dirty.filled.extend(self.clusters.keys());
        self.replan()
    }

    /// The plan of one cluster as of the last [`Planner::replan`].
    pub fn cluster(&self, name: &ClusterName) -> Option<(ClusterPlan, ClusterReport)> {
        let state = self.clusters.get(self.cluster_ids.get(name)?)?;
        let planned = Planned {
            input: &state.input,
            model: &state.model,
            names: &state.names,
            forbidden: &|cell| self.forbidden(cell),
            groups: &|queue| Some(&self.queues[*self.queue_ids.get(queue)? as usize].groups),
        };
        Some((planned.plan(), planned.report()))
    }

    /// The plan of one hub queue as of the last [`Planner::replan`].
    pub fn queue(&self, name: &QueueName) -> Option<HubQueuePlan> {
        let state = &self.queues[*self.queue_ids.get(name)? as usize];
        let input = state.input.as_ref()?;
        let reached = |id: &ClusterId| {
            self.clusters.get(id).is_some_and(|cluster| input.dispatch.reaches(&cluster.input.name))
        };
        let unknown: Vec<_> = self.unknown.iter().filter(|(id, _)| reached(id)).collect();
        let held = unknown.iter().any(|(_, unknown)| unknown.has_any);
        let by_cell = state.cells.iter().map(|(at, id)| {
            let members = &self.cells[*id as usize].members;
            let held = held || unknown.iter().any(|(cluster, _)| members.contains_key(*cluster));
            let terms = self.terms(*id);
            let lagging = unknown.iter().filter(|(_, unknown)| unknown.lags);
            let unsure = lagging
                .filter_map(|(cluster, _)| self.clusters.get(cluster)?.counted.get(*members.get(*cluster)?));
            let sure = terms.sum - unsure.map(|units| i128::from(*units)).sum::<i128>();
            (at.clone(), CellTerms { sure, held, ..terms })
        });
        Some(hub::plan(input, &state.groups, by_cell.collect(), held))
    }

    /// The clusters that have a cell, as of the last [`Planner::replan`].
    pub fn clusters_of(&self, cell: &Cell) -> impl Iterator<Item = &ClusterName> {
        let members = self.cell_ids.get(cell).map(|id| &self.cells[*id as usize].members);
        let ids = members.into_iter().flat_map(|members| members.keys());
        ids.filter_map(|id| Some(&self.clusters.get(id)?.input.name))
    }

    /// Everything as of the last [`Planner::replan`].
    pub fn whole(&self) -> (Plan, Report) {
        let (mut plan, mut report) = (Plan::default(), Report::default());
        for name in self.cluster_ids.keys() {
            if let Some((of_cluster, why)) = self.cluster(name) {
                plan.clusters.insert(name.clone(), of_cluster);
                report.clusters.insert(name.clone(), why);
            }
        }
        let queues = self.queue_ids.keys().filter_map(|name| Some((name.clone(), self.queue(name)?)));
        plan.queues = queues.collect();
        (plan, report)
    }

    fn terms(&self, id: CellId) -> CellTerms {
        let cell = &self.cells[id as usize];
        let terms = cell.members.iter().filter_map(|(cluster, position)| {
            let state = self.clusters.get(cluster)?;
            let units = *state.counted.get(*position)?;
            (units != 0).then(|| (state.input.name.clone(), Amount::new(units)))
        });
        CellTerms {
            named: 0 < cell.named,
            sum: cell.sum,
            sure: cell.sum,
            terms: terms.collect(),
            held: false,
        }
    }

    fn forbidden(&self, cell: &Cell) -> Option<Rule> {
        let queue = &self.queues[*self.queue_ids.get(&cell.queue)? as usize];
        let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
        queue.facts.forbidden.get(&at).cloned()
    }

    fn set_unknown(&mut self, id: ClusterId, unknown: Option<Unknown>) {
        let before = match unknown {
            Some(unknown) => self.unknown.insert(id, unknown),
            None => self.unknown.remove(&id),
        };
        if before != unknown {
            self.dirty.touched.queues.extend(self.queue_ids.keys().cloned());
        }
    }

    fn queue_id(&mut self, name: &QueueName) -> QueueId {
        if let Some(id) = self.queue_ids.get(name) {
            return *id;
        }
        let id = QueueId::try_from(self.queues.len()).expect("fewer than 2^32 queues");
        self.queues.push(QueueState::new(name.clone()));
        self.queue_ids.insert(name.clone(), id);
        id
    }

    fn cell_id(&mut self, cell: &Cell) -> CellId {
        if let Some(id) = self.cell_ids.get(cell) {
            return *id;
        }
        let queue = self.queue_id(&cell.queue);
        let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
        let id = CellId::try_from(self.cells.len()).expect("fewer than 2^32 cells");
        self.cells.push(HubCell { queue, at: at.clone(), members: BTreeMap::new(), named: 0, sum: 0 });
        self.queues[queue as usize].cells.insert(at, id);
        self.cell_ids.insert(cell.clone(), id);
        id
    }

    /// Lists the cells of a cluster anew.
    fn relist(&mut self, id: ClusterId) {
        let Some(mut state) = self.clusters.remove(&id) else { return };
        let names = list_cells(&state.input);
        let key = |(cell, requested): &(Cell, Option<Amount>)| (cell.clone(), requested.is_some());
        if !names.iter().map(key).eq(state.names.iter().map(key)) {
            self.unlink(id, &state);
            state.ids = names.iter().map(|(cell, _)| self.cell_id(cell)).collect();
            state.counted = vec![0; names.len()];
            self.link(id, &state.ids, &names);
        }
        state.names = names;
        self.clusters.insert(id, state);
        self.dirty.modelled.insert(id);
    }

    fn link(&mut self, id: ClusterId, ids: &[CellId], names: &[(Cell, Option<Amount>)]) {
        for (position, (cell_id, (_, requested))) in ids.iter().zip(names).enumerate() {
            let cell = &mut self.cells[*cell_id as usize];
            cell.members.insert(id, position);
            cell.named += usize::from(requested.is_some());
            self.dirty.facts.insert(cell.queue);
            self.dirty.shares.insert(*cell_id);
        }
    }

    fn unlink(&mut self, id: ClusterId, state: &ClusterState) {
        for ((cell_id, (_, requested)), counted) in state.ids.iter().zip(&state.names).zip(&state.counted) {
            let cell = &mut self.cells[*cell_id as usize];
            cell.members.remove(&id);
            cell.named -= usize::from(requested.is_some());
            cell.sum -= i128::from(*counted);
            self.dirty.facts.insert(cell.queue);
            self.dirty.shares.insert(*cell_id);
        }
    }

    fn refresh_queue(&mut self, id: QueueId) {
        let state = &self.queues[id as usize];
        let cells = &self.cells;
        let named = state.cells.values().map(|cell| &cells[*cell as usize]).filter(|cell| 0 < cell.named);
        let (facts, groups) =
            QueueFacts::of(state.input.as_ref(), self.flavors.as_ref(), named.map(|cell| cell.at.clone()));
        if facts != state.facts {
            for cell in state.cells.values() {
                self.dirty.shares.insert(*cell);
                self.dirty.modelled.extend(cells[*cell as usize].members.keys());
            }
        }
        let state = &mut self.queues[id as usize];
        (state.facts, state.groups) = (facts, groups);
        self.dirty.touched.queues.insert(state.name.clone());
    }

    fn remodel(&mut self, id: ClusterId) {
        let Some(state) = self.clusters.get_mut(&id) else { return };
        let (cells, queues) = (&self.cells, &self.queues);
        let facts = |cell: &CellId| -> HubFacts<'_> {
            let cell = &cells[*cell as usize];
            queues[cell.queue as usize].facts.for_cluster(&cell.at, &state.input.name)
        };
        let facts: Vec<_> = state.ids.iter().map(facts).collect();
        state.model = Model::build(&state.input, &state.names, &facts);
        let is_limited = |cell: &&CellId| {
            let cell = &cells[**cell as usize];
            queues[cell.queue as usize].facts.limits.contains_key(&cell.at)
        };
        self.dirty.shares.extend(state.ids.iter().filter(is_limited));
        self.dirty.filled.insert(id);
        self.dirty.touched.clusters.insert(state.input.name.clone());
    }

    fn fill(&mut self, id: ClusterId) {
        let Some(state) = self.clusters.get_mut(&id) else { return };
        let before: Vec<_> = state.model.cells.iter().map(|cell| cell.outcome.effective).collect();
        solve::effective(&state.input, &mut state.model);
        for ((cell, before), id) in state.model.cells.iter().zip(before).zip(&state.ids) {
            if cell.outcome.effective != before {
                self.dirty.shares.insert(*id);
            }
        }
    }

    /// Shares a hub cell's limits among its clusters: by what they get or, where all get nothing, by
    /// what they have.
    fn share_limits(&mut self, id: CellId) {
        let cell = &self.cells[id as usize];
        let Some(limits) = self.queues[cell.queue as usize].facts.limits.get(&cell.at).copied() else {
            return;
        };
        let mut members: Vec<_> = cell
            .members
            .iter()
            .filter_map(|(cluster, position)| {
                let state = self.clusters.get(cluster)?;
                let counts =
                    state.model.cells[*position].is_resolved() && state.input.treated_as() != Mode::Lost;
                counts.then_some((&state.input.name, *cluster, *position, &state.model))
            })
            .collect();
        members.sort_unstable_by_key(|(name, ..)| *name);
        let effective =
            |(.., position, model): &(_, _, usize, &Model)| model.cells[*position].outcome.effective;
        let mut weights: Vec<i64> = members.iter().map(effective).collect();
        if weights.iter().all(|weight| *weight == 0) {
            weights = members.iter().map(|(.., position, model)| model.usable(*position)).collect();
        }
        let places: Vec<_> = members.iter().map(|(_, cluster, position, _)| (*cluster, *position)).collect();
        let lending = limits.lending.map(|limit| share(limit, &weights));
        let borrowing = limits.borrowing.map(|limit| share(limit, &weights));
        for (i, (cluster, position)) in places.into_iter().enumerate() {
            let Some(state) = self.clusters.get_mut(&cluster) else { continue };
            let cell = &mut state.model.cells[position];
            let shares = (lending.as_ref().map(|of| of[i]), borrowing.as_ref().map(|of| of[i]));
            if (cell.lending_share, cell.borrowing_share) != shares {
                (cell.lending_share, cell.borrowing_share) = shares;
                self.dirty.granted.insert(cluster);
            }
        }
    }

    fn grant(&mut self, id: ClusterId) {
        let Some(state) = self.clusters.get_mut(&id) else { return };
        let before: Vec<_> = state.model.cells.iter().map(|cell| cell.outcome).collect();
        solve::grants_and_terms(&state.input, &mut state.model);
        let mut changed = false;
        let cells = state.model.cells.iter().zip(before).zip(&state.ids).zip(&mut state.counted);
        for (((cell, before), id), counted) in cells {
            changed |= cell.outcome != before;
            if cell.outcome.term != *counted {
                let hub = &mut self.cells[*id as usize];
                hub.sum += i128::from(cell.outcome.term) - i128::from(*counted);
                *counted = cell.outcome.term;
                self.dirty.touched.queues.insert(self.queues[hub.queue as usize].name.clone());
            }
        }
        if changed {
            self.dirty.touched.clusters.insert(state.input.name.clone());
        }
    }
}
