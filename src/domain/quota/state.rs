//! What the planner remembers between two plans, by number.

use std::collections::{BTreeMap, BTreeSet};

use super::{ClusterInput, HubQueueInput, Touched, hub::QueueFacts, model::Model};
use crate::{
    resource_groups::ResourceGroups,
    resources::{Cell, FlavorResource},
};
use fedq_values::{ids::QueueName, quantity::Amount};

pub(super) type ClusterId = u32;
pub(super) type QueueId = u32;
pub(super) type CellId = u32;

#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// Hub queues whose input or named cells changed.
    pub facts: BTreeSet<QueueId>,
    pub relisted: BTreeSet<ClusterId>,
    pub modelled: BTreeSet<ClusterId>,
    pub filled: BTreeSet<ClusterId>,
    pub shares: BTreeSet<CellId>,
    pub granted: BTreeSet<ClusterId>,
    pub touched: Touched,
}

#[derive(Debug)]
pub(super) struct ClusterState {
    pub input: ClusterInput,
    /// What every cell is called, in the model's order.
    pub names: Vec<(Cell, Option<Amount>)>,
    pub ids: Vec<CellId>,
    pub model: Model,
    /// The terms that are in the hub's sums, by cell.
    pub counted: Vec<i64>,
}

#[derive(Debug)]
pub(super) struct QueueState {
    pub name: QueueName,
    pub input: Option<HubQueueInput>,
    pub facts: QueueFacts,
    pub groups: ResourceGroups,
    pub cells: BTreeMap<FlavorResource, CellId>,
}

#[derive(Debug)]
pub(super) struct HubCell {
    pub queue: QueueId,
    pub at: FlavorResource,
    /// Clusters that have the cell, with its position there.
    pub members: BTreeMap<ClusterId, usize>,
    /// How many claims name it.
    pub named: usize,
    pub sum: i128,
}

impl ClusterState {
    pub fn new(input: ClusterInput) -> Self {
        let (names, ids, counted) = (Vec::new(), Vec::new(), Vec::new());
        Self { input, names, ids, model: Model::default(), counted }
    }
}

impl QueueState {
    pub fn new(name: QueueName) -> Self {
        let (facts, groups) = (QueueFacts::default(), ResourceGroups::default());
        Self { name, input: None, facts, groups, cells: BTreeMap::new() }
    }
}
