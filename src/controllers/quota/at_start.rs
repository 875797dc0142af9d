//! What hub queues had when fedqd started, and how much of that belongs to clusters that were not read since.
//!
//! The stored terms may lag behind the hub, which was written beside them. What the hub had, less its base and
//! less what each cluster that was read had then, is what the others had: so the hub follows the clusters that
//! answer, and nothing is made of a stored term that the hub never knew.

use std::collections::{BTreeMap, BTreeSet};

use fedq_domain::{
    quota::HubQueueInput,
    resources::{Cell, FlavorResource},
};
use fedq_values::{
    ids::{ClusterName, QueueName},
    quantity::Amount,
};

type Cells<T> = BTreeMap<FlavorResource, T>;

#[derive(Default)]
pub(super) struct AtStart {
    /// What each queue had beyond its base, less what the clusters that were read had.
    unread: BTreeMap<QueueName, Cells<i128>>,
    /// Those that were read. Each is taken off once: one that was given up since, and comes back, is no more
    /// than what is known of it.
    read: BTreeSet<ClusterName>,
    /// What of those is in queues that are not read yet.
    read_early: BTreeMap<QueueName, Cells<i128>>,
    /// Every cluster was read.
    over: bool,
}

impl AtStart {
    /// Whether a cluster has not been read since.
    pub fn awaits(&self, cluster: &ClusterName) -> bool {
        !self.over && !self.read.contains(cluster)
    }

    /// Takes down what each queue had when it was first read, and tells the plan what of it is not accounted for.
    pub fn tell(&mut self, queues: &mut BTreeMap<QueueName, HubQueueInput>) {
        if self.over {
            return;
        }
        self.unread.retain(|name, _| queues.contains_key(name));
        for (name, queue) in queues {
            if !self.unread.contains_key(name) {
                let read = self.read_early.remove(name).unwrap_or_default();
                let had = queue.managed.iter().map(|(at, cell)| {
                    let seen = queue.groups.cell(at).map(|quota| quota.nominal.amount()).unwrap_or_default();
                    (at.clone(), units(seen) - units(cell.base) - read.get(at).copied().unwrap_or_default())
                });
                self.unread.insert(name.clone(), had.collect());
            }
            let unread = self.unread[name].iter().filter(|(_, units)| 0 < **units);
            let amount = |units: i128| Amount::new(i64::try_from(units).unwrap_or(i64::MAX));
            queue.unread = unread.map(|(at, units)| (at.clone(), amount(*units))).collect();
        }
    }

    /// A cluster was read, or is not waited for: `had` is what it had then. Whether that is news.
    pub fn read<'a>(
        &mut self,
        cluster: &ClusterName,
        had: impl IntoIterator<Item = (&'a Cell, Amount)>,
    ) -> bool {
        if self.over || !self.read.insert(cluster.clone()) {
            return false;
        }
        for (cell, term) in had {
            let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
            match self.unread.get_mut(&cell.queue) {
                // A cell that was not managed at the start had nothing of any cluster.
                Some(unread) => unread.entry(at).and_modify(|had| *had -= units(term)).or_default(),
                None => {
                    let early = self.read_early.entry(cell.queue.clone()).or_default().entry(at).or_default();
                    *early += units(term);
                    early
                }
            };
        }
        true
    }

    /// Once no cluster of then is left to be read, nothing is left of the hub to account for.
    pub fn end(&mut self) {
        *self = Self { over: true, ..Self::default() };
    }
}

fn units(amount: Amount) -> i128 {
    amount.units().into()
}

#[cfg(test)]
mod tests {
    use fedq_domain::{
        quota::{Dispatch, ManagedCell},
        resource_groups::{Quota, ResourceGroups},
    };
    use fedq_values::ids::{FlavorName, ResourceName};

    use super::*;

    fn cell() -> Cell {
        Cell {
            queue: "team".parse().expect("a name"),
            flavor: FlavorName::new("spot").expect("a name"),
            resource: ResourceName::new("cpu").expect("a name"),
        }
    }

    fn at() -> FlavorResource {
        FlavorResource { flavor: cell().flavor, resource: cell().resource }
    }

    fn queues(base: Option<i64>, nominal: i64) -> BTreeMap<QueueName, HubQueueInput> {
        let mut groups = ResourceGroups::default();
        groups.extend_all([at()].into_iter());
        let quota = Quota { nominal: Amount::new(nominal), lending: None, borrowing: None };
        groups.set_cells(&[(at(), quota)].into());
        let managed =
            base.map(|base| (at(), ManagedCell { base: Amount::new(base), ..ManagedCell::default() }));
        let queue = HubQueueInput {
            name: cell().queue,
            groups,
            cohort: None,
            managed: managed.into_iter().collect(),
            dispatch: Dispatch::RunsLocally,
            automated: false,
            still_held: BTreeMap::new(),
            unread: BTreeMap::new(),
        };
        [(cell().queue, queue)].into()
    }

    fn cluster(name: &str) -> ClusterName {
        ClusterName::new(name).expect("a name")
    }

    fn unread(at_start: &mut AtStart, base: Option<i64>, nominal: i64) -> Option<i64> {
        let mut queues = queues(base, nominal);
        at_start.tell(&mut queues);
        queues[&cell().queue].unread.get(&at()).map(|units| units.units())
    }

    fn read(at_start: &mut AtStart, name: &str, units: i64) -> bool {
        at_start.read(&cluster(name), [(&cell(), Amount::new(units))])
    }

    #[test]
    fn what_is_not_the_bases_and_not_of_clusters_that_were_read_is_unread() {
        let mut started = AtStart::default();
        assert_eq!(unread(&mut started, Some(2), 12), Some(10));
        assert!(read(&mut started, "east", 4));
        assert_eq!(unread(&mut started, Some(2), 14), Some(6), "what is written since is not of the start");
        assert!(!read(&mut started, "east", 1), "each is taken off once");
        assert!(started.awaits(&cluster("west")) && !started.awaits(&cluster("east")));
        read(&mut started, "west", 7);
        assert_eq!(unread(&mut started, Some(2), 14), None);
        started.end();
        assert!(!started.awaits(&cluster("new")));
        assert_eq!(unread(&mut started, Some(2), 14), None);
    }

    #[test]
    fn a_queue_may_be_read_after_the_clusters_that_have_a_share_of_it() {
        let mut started = AtStart::default();
        read(&mut started, "east", 4);
        read(&mut started, "west", 3);
        assert_eq!(unread(&mut started, Some(0), 9), Some(2));
    }

    #[test]
    fn what_became_managed_since_the_start_was_nobodys_then() {
        let mut started = AtStart::default();
        assert_eq!(unread(&mut started, None, 5), None);
        read(&mut started, "east", 3);
        assert_eq!(unread(&mut started, Some(5), 8), None);
    }

    #[test]
    fn a_queue_that_was_deleted_is_another_when_it_is_back() {
        let mut started = AtStart::default();
        assert_eq!(unread(&mut started, Some(0), 9), Some(9));
        started.tell(&mut BTreeMap::new());
        assert_eq!(unread(&mut started, Some(0), 0), None);
    }
}
