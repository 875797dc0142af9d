//! From a cluster's queues as Kueue reports them to what a task can be chosen by.
//!
//! What a queue may borrow follows Kueue's `resource_node.go`: a queue keeps what its lendingLimit does
//! not lend, the rest of all queues is the cohort's. Cohorts under one root count as one, which may promise more than
//! Kueue gives; Kueue decides in the end, and never less is promised than it gives.

use std::collections::BTreeMap;

use super::view::{CellView, CohortCell, FlavorView, GroupView, QueueView};
use crate::{
    capacity::Flavor,
    resource_groups::{ResourceGroups, ResourceQuota, Written},
    resources::{Cell, FlavorResource, Resources},
};
use fedq_values::{
    ids::{CohortName, FlavorName, QueueName},
    quantity::Amount,
};

/// A ClusterQueue as it was last seen.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct QueueFacts {
    pub groups: ResourceGroups,
    /// `status.flavorsReservation`
    pub reserved: BTreeMap<FlavorResource, Amount>,
    /// The root of the tree of cohorts it is in.
    pub cohort: Option<CohortName>,
    pub active: bool,
    pub pending: u32,
}

/// A LocalQueue that the task's tenant may use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalQueueFacts {
    pub name: String,
    pub queue: QueueName,
    pub active: bool,
}

/// All of one cluster.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClusterFacts {
    pub queues: BTreeMap<QueueName, QueueFacts>,
    /// Quota of cohorts themselves, under the name of their root.
    pub cohorts: BTreeMap<CohortName, BTreeMap<FlavorResource, Amount>>,
    pub flavors: BTreeMap<FlavorName, Flavor>,
    pub largest_nodes: BTreeMap<FlavorName, Resources>,
    /// What our tasks will take that `reserved` does not have yet.
    pub in_flight: BTreeMap<Cell, Amount>,
}

/// A queue that Kueue has no ClusterQueue for admits nothing, and is left out.
pub fn queue_views(cluster: &ClusterFacts, local: &[LocalQueueFacts]) -> Vec<QueueView> {
    let cohorts = cohort_cells(cluster);
    let view = |local: &LocalQueueFacts| {
        let queue = cluster.queues.get(&local.queue)?;
        let of_cohort = queue.cohort.as_ref().map(|name| cohorts.get(name).unwrap_or(&NONE));
        let groups = queue.groups.0.iter().map(|group| GroupView {
            flavors: group
                .flavors
                .iter()
                .map(|flavor| {
                    let quotas = flavor.resources.iter();
                    let cells = quotas
                        .map(|quota| {
                            let at =
                                FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
                            let cell = cell(queue, quota, &at, of_cohort);
                            let in_flight = cluster.in_flight.get(&Cell {
                                queue: local.queue.clone(),
                                flavor: at.flavor,
                                resource: at.resource,
                            });
                            let in_flight = in_flight.copied().unwrap_or_default();
                            (quota.name.clone(), cell.with_in_flight(in_flight))
                        })
                        .collect();
                    let known = cluster.flavors.get(&flavor.name);
                    FlavorView {
                        name: flavor.name.clone(),
                        node_labels: known.map(|known| known.node_labels.clone()).unwrap_or_default(),
                        taints: known.map(Flavor::open_taints).unwrap_or_default(),
                        cells,
                        largest_node: cluster.largest_nodes.get(&flavor.name).cloned().unwrap_or_default(),
                    }
                })
                .collect(),
        });
        Some(QueueView {
            local: local.name.clone(),
            queue: local.queue.clone(),
            active: local.active && queue.active,
            pending: queue.pending,
            groups: groups.collect(),
        })
    };
    local.iter().filter_map(view).collect()
}

type CohortCells = BTreeMap<FlavorResource, CohortCell>;
static NONE: CohortCells = BTreeMap::new();

fn cell(
    queue: &QueueFacts,
    quota: &ResourceQuota,
    at: &FlavorResource,
    cohort: Option<&CohortCells>,
) -> CellView {
    CellView::new(
        quota.nominal.amount(),
        quota.borrowing.as_ref().map(Written::amount),
        quota.lending.as_ref().map(Written::amount),
        queue.reserved.get(at).copied().unwrap_or_default(),
        cohort.map(|cells| cells.get(at).copied().unwrap_or_default()),
    )
}

/// What the members of each cohort lend, and how much of it is taken.
fn cohort_cells(cluster: &ClusterFacts) -> BTreeMap<CohortName, CohortCells> {
    let mut cohorts: BTreeMap<CohortName, CohortCells> = BTreeMap::new();
    for (name, quotas) in &cluster.cohorts {
        let cells = cohorts.entry(name.clone()).or_default();
        for (at, nominal) in quotas {
            cells.entry(at.clone()).or_default().lent = *nominal;
        }
    }
    for queue in cluster.queues.values() {
        let Some(cohort) = &queue.cohort else { continue };
        let cells = cohorts.entry(cohort.clone()).or_default();
        let flavors = queue.groups.0.iter().flat_map(|group| &group.flavors);
        for (flavor, quota) in
            flavors.flat_map(|flavor| flavor.resources.iter().map(move |quota| (flavor, quota)))
        {
            let at = FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
            let reserved = queue.reserved.get(&at).copied().unwrap_or_default();
            let nominal = quota.nominal.amount();
            let kept = CellView::kept(nominal, quota.lending.as_ref().map(Written::amount));
            let cell = cells.entry(at).or_default();
            cell.lent = cell.lent.saturating_add(nominal.saturating_sub(kept));
            cell.taken = cell.taken.saturating_add(reserved.saturating_sub(kept));
        }
    }
    cohorts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource_groups::{FlavorQuotas, ResourceGroup};
    use fedq_values::ids::ResourceName;

    fn gpu() -> ResourceName {
        ResourceName::new("nvidia.com/gpu").expect("a name")
    }

    fn flavor() -> FlavorName {
        FlavorName::new("h100").expect("a name")
    }

    fn queue_name(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    fn at() -> FlavorResource {
        FlavorResource { flavor: flavor(), resource: gpu() }
    }

    fn queue(nominal: i64, lending: Option<i64>, borrowing: Option<i64>, reserved: i64) -> QueueFacts {
        let written = |units: i64| Written::of(Amount::new(units), &gpu());
        let quota = ResourceQuota {
            name: gpu(),
            nominal: written(nominal),
            borrowing: borrowing.map(written),
            lending: lending.map(written),
        };
        let flavors = vec![FlavorQuotas { name: flavor(), resources: vec![quota] }];
        QueueFacts {
            groups: ResourceGroups(vec![ResourceGroup { covered: vec![gpu()], flavors }]),
            reserved: [(at(), Amount::new(reserved))].into(),
            cohort: Some(CohortName::new("all").expect("a name")),
            active: true,
            pending: 3,
        }
    }

    fn local(queue: &str) -> LocalQueueFacts {
        LocalQueueFacts { name: format!("local-{queue}"), queue: queue_name(queue), active: true }
    }

    fn numbers(cluster: &ClusterFacts, queue: &str) -> (i64, i64) {
        let views = queue_views(cluster, &[local(queue)]);
        let cell = &views[0].groups[0].flavors[0].cells[&gpu()];
        (cell.ceiling.units(), cell.available().units())
    }

    #[test]
    fn queues_borrow_what_others_lend_and_do_not_use() {
        let queues = [
            ("a", queue(10, None, None, 4)),
            // Keeps 6 of its 10, and has borrowed nothing.
            ("b", queue(10, Some(4), None, 2)),
            ("c", queue(10, None, Some(1), 10)),
        ];
        let mut cluster = ClusterFacts {
            queues: queues.into_iter().map(|(name, queue)| (queue_name(name), queue)).collect(),
            ..ClusterFacts::default()
        };
        // Lent: 10 + 4 + 10; taken of it: 4 + 0 + 10.
        assert_eq!(numbers(&cluster, "a"), (24, 10));
        assert_eq!(numbers(&cluster, "b"), (30, 14));
        assert_eq!(numbers(&cluster, "c"), (11, 1));
        let own = [(at(), Amount::new(5))].into();
        cluster.cohorts = [(CohortName::new("all").expect("a name"), own)].into();
        assert_eq!(numbers(&cluster, "a"), (29, 15));
        let cell = Cell { queue: queue_name("a"), flavor: flavor(), resource: gpu() };
        cluster.in_flight = [(cell, Amount::new(7))].into();
        assert_eq!(numbers(&cluster, "a"), (29, 8));
    }

    #[test]
    fn alone_a_queue_has_its_own() {
        let mut alone = queue(10, None, None, 12);
        alone.cohort = None;
        let cluster = ClusterFacts { queues: [(queue_name("a"), alone)].into(), ..ClusterFacts::default() };
        assert_eq!(numbers(&cluster, "a"), (10, 0));
    }

    #[test]
    fn a_local_queue_without_a_queue_is_left_out() {
        let cluster = ClusterFacts::default();
        assert!(queue_views(&cluster, &[local("a")]).is_empty());
        let held = QueueFacts { active: false, ..queue(1, None, None, 0) };
        let cluster = ClusterFacts { queues: [(queue_name("a"), held)].into(), ..ClusterFacts::default() };
        let views = queue_views(&cluster, &[local("a")]);
        assert_eq!((views[0].active, views[0].pending, views[0].local.as_str()), (false, 3, "local-a"));
    }
}
