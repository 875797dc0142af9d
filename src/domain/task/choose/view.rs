//! What is known of clusters when one is chosen: facts, already parsed, of one moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::{capacity::Taint, resources::Resources};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

/// Their order is of no consequence.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct View {
    pub clusters: Vec<ClusterView>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClusterView {
    pub name: ClusterName,
    pub access: Access,
    /// Queues that the task's tenant may use there.
    pub queues: Vec<QueueView>,
    /// Names of queues that are being made there.
    pub promised: BTreeSet<String>,
    /// Volumes of the task's tenant that are there, or can be made there, by the name its tasks give them.
    pub volumes: BTreeMap<String, VolumeView>,
    /// Where the others of them are.
    pub elsewhere: BTreeMap<String, ClusterName>,
}

/// Whether anything can be dispatched to a cluster now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    Ready,
    Cordoned,
    /// It was lost, and what tasks left there that others took over is being taken off first.
    Tidied,
    /// It does not answer, so that what is known of it may be old.
    Silent,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VolumeView {
    /// The PersistentVolumeClaim.
    pub claim: String,
    /// Whether pods on different nodes can mount it at once.
    pub shared: bool,
    /// Whether tasks only read it.
    pub read_only: bool,
}

/// A LocalQueue with what its ClusterQueue has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueueView {
    pub local: String,
    pub queue: QueueName,
    /// Whether it admits anything now: not stopped, all it names is there.
    pub active: bool,
    /// Workloads that wait in it.
    pub pending: u32,
    pub groups: Vec<GroupView>,
}

/// Resources that are taken from one flavor together.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupView {
    /// In the queue's order, in which Kueue tries them.
    pub flavors: Vec<FlavorView>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlavorView {
    pub name: FlavorName,
    pub node_labels: BTreeMap<String, String>,
    /// Its pods must tolerate these themselves.
    pub taints: Vec<Taint>,
    pub cells: BTreeMap<ResourceName, CellView>,
    /// The most that one node has, by resource; what is not named is not known.
    pub largest_node: Resources,
}

/// The quota of one resource of a flavor.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CellView {
    pub nominal: Amount,
    /// The most that the queue can ever hold, borrowing all it may.
    pub ceiling: Amount,
    /// What its admitted workloads hold.
    pub reserved: Amount,
    /// What it could take now, borrowing included.
    pub free: Amount,
    /// What our tasks will take that Kueue does not count yet.
    pub in_flight: Amount,
}

/// What a cohort's members lend each other of one resource of a flavor.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CohortCell {
    pub lent: Amount,
    /// What of it somebody holds, the lender included.
    pub taken: Amount,
}

impl CellView {
    /// From what Kueue reports. `cohort`: of all its members, this queue included.
    pub fn new(
        nominal: Amount,
        borrowing: Option<Amount>,
        lending: Option<Amount>,
        reserved: Amount,
        cohort: Option<CohortCell>,
    ) -> Self {
        let Some(cohort) = cohort else {
            let free = nominal.saturating_sub(reserved);
            return Self { nominal, ceiling: nominal, reserved, free, in_flight: Amount::ZERO };
        };
        let kept = Self::kept(nominal, lending);
        let most = match borrowing {
            Some(limit) => nominal.saturating_sub(kept).saturating_add(limit).min(cohort.lent),
            None => cohort.lent,
        };
        let ceiling = kept.saturating_add(most);
        let from_cohort = cohort.lent.saturating_sub(cohort.taken);
        let from_cohort = from_cohort.min(most.saturating_sub(reserved.saturating_sub(kept)));
        let free = kept.saturating_sub(reserved).saturating_add(from_cohort);
        Self { nominal, ceiling, reserved, free, in_flight: Amount::ZERO }
    }

    /// The part of its nominal quota that a queue in a cohort never lends.
    pub fn kept(nominal: Amount, lending: Option<Amount>) -> Amount {
        lending.map_or(Amount::ZERO, |lending| nominal.saturating_sub(lending))
    }

    pub fn with_in_flight(self, in_flight: Amount) -> Self {
        Self { in_flight, ..self }
    }

    /// What a task could take now.
    pub fn available(&self) -> Amount {
        self.free.saturating_sub(self.in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(units: i64) -> Amount {
        Amount::new(units)
    }

    #[test]
    fn a_queue_takes_what_its_cohort_has_free_within_its_limits() {
        let cell = |borrowing: Option<i64>, lending: Option<i64>, cohort| {
            let cell =
                CellView::new(amount(10), borrowing.map(amount), lending.map(amount), amount(4), cohort);
            (cell.ceiling.units(), cell.free.units())
        };
        assert_eq!(cell(None, None, None), (10, 6));
        let cohort = Some(CohortCell { lent: amount(30), taken: amount(12) });
        assert_eq!(cell(None, None, cohort), (30, 18));
        assert_eq!(cell(Some(5), None, cohort), (15, 11));
        assert_eq!(cell(Some(0), None, cohort), (10, 6));
        // It keeps 7, of which 3 are free, whatever the others do.
        assert_eq!(cell(None, Some(3), cohort), (37, 21));
        let all_taken = Some(CohortCell { lent: amount(30), taken: amount(31) });
        assert_eq!(cell(None, None, all_taken), (30, 0));
        assert_eq!(cell(None, Some(3), all_taken), (37, 3));
    }

    #[test]
    fn tasks_on_their_way_come_off_what_is_free() {
        let cell = CellView::new(amount(10), None, None, amount(4), None);
        assert_eq!(cell.with_in_flight(amount(2)).available(), amount(4));
        assert_eq!(cell.with_in_flight(amount(20)).available(), Amount::ZERO);
    }
}
