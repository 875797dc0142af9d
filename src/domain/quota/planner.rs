//! Keeps the last plan and recomputes what changed.

use std::collections::BTreeSet;

use super::{ClusterInput, ClusterPlan, ClusterReport, HubQueueInput, HubQueuePlan, Plan, Report};
use crate::domain::ids::{ClusterName, QueueName};

/// What a replan changed: whatever is not named here has the same plan as before.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Touched {
    pub clusters: BTreeSet<ClusterName>,
    pub queues: BTreeSet<QueueName>,
}

#[derive(Debug, Default)]
pub struct Planner {}

impl Planner {
    /// Adds or replaces a cluster. Takes effect at the next [`Planner::replan`], as all changes do.
    pub fn set_cluster(&mut self, _cluster: ClusterInput) {
        todo!()
    }

    pub fn remove_cluster(&mut self, _name: &ClusterName) {
        todo!()
    }

    pub fn set_queue(&mut self, _queue: HubQueueInput) {
        todo!()
    }

    pub fn remove_queue(&mut self, _name: &QueueName) {
        todo!()
    }

    pub fn replan(&mut self) -> Touched {
        todo!()
    }

    /// The plan of one cluster as of the last [`Planner::replan`].
    pub fn cluster(&self, _name: &ClusterName) -> Option<(ClusterPlan, ClusterReport)> {
        todo!()
    }

    /// The plan of one hub queue as of the last [`Planner::replan`].
    pub fn queue(&self, _name: &QueueName) -> Option<HubQueuePlan> {
        todo!()
    }

    /// Everything as of the last [`Planner::replan`].
    pub fn whole(&self) -> (Plan, Report) {
        todo!()
    }
}
