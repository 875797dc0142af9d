//! What hub queues had when fedqd started, and how much of that is of clusters that were not read since.
//!
//! The stored terms may lag behind the hub, which was written beside them. What a queue had, less its base and less
//! what the clusters that were read can have had of it, is what the others had. So growth of clusters that answer
//! reaches the hub, and no stored term raises it that the hub never knew. Where a cluster changed while fedqd did not
//! run, less is left than the others had, and the hub then grows once they are read.

use std::collections::{BTreeMap, BTreeSet};

use fedq_domain::{
    quota::HubQueueInput,
    resources::{Cell, FlavorResource},
};
use fedq_values::{
    ids::{ClusterName, QueueName},
    quantity::Amount,
};

pub(super) type Terms = BTreeMap<Cell, Amount>;

#[derive(Default)]
pub(super) struct AtStart {
    /// The terms that each cluster was stored with.
    stored: BTreeMap<ClusterName, Terms>,
    /// What each queue had beyond its base, less what was taken off.
    unread: BTreeMap<QueueName, BTreeMap<FlavorResource, i128>>,
    taken: BTreeMap<ClusterName, Taken>,
    over: bool,
}

/// What of the hub's queues is accounted for by one cluster.
struct Taken {
    terms: Terms,
    for_good: bool,
}

impl AtStart {
    pub fn new(stored: BTreeMap<ClusterName, Terms>) -> Self {
        Self { stored, ..Self::default() }
    }

    /// Takes down what each queue had when it was first read, and says what of it is not accounted for. Those of which
    /// that is news.
    pub fn tell(&mut self, queues: &mut BTreeMap<QueueName, HubQueueInput>) -> Vec<QueueName> {
        if self.over {
            return Vec::new();
        }
        // One that is made anew is another one, and had nothing at the start.
        self.unread
            .iter_mut()
            .filter(|(name, _)| !queues.contains_key(*name))
            .for_each(|(_, had)| had.clear());
        let mut news = Vec::new();
        for (name, queue) in queues {
            let unread = self.unread.entry(name.clone()).or_insert_with(|| first_seen(queue, &self.taken));
            let amount = |units: &i128| Amount::new(i64::try_from(*units).unwrap_or(i64::MAX));
            let some = unread.iter().filter(|(_, units)| 0 < **units);
            let some = some.map(|(at, units)| (at.clone(), amount(units))).collect();
            if queue.unread != some {
                queue.unread = some;
                news.push(name.clone());
            }
        }
        news
    }

    /// Clusters of which nothing was taken off for good.
    pub fn awaited<'a>(&'a self, joined: impl Iterator<Item = &'a ClusterName>) -> BTreeSet<ClusterName> {
        if self.over {
            return BTreeSet::new();
        }
        let settled = |name: &ClusterName| self.taken.get(name).is_some_and(|taken| taken.for_good);
        self.stored.keys().chain(joined).filter(|name| !settled(name)).cloned().collect()
    }

    /// A cluster was read, and has `now`. What it had at the start may be what is stored of it, or that.
    pub fn read(&mut self, cluster: &ClusterName, now: impl Iterator<Item = (Cell, Amount)>) {
        let mut terms = self.stored.get(cluster).cloned().unwrap_or_default();
        for (cell, units) in now {
            let had = terms.entry(cell).or_default();
            *had = units.max(*had);
        }
        self.take(cluster, Taken { terms, for_good: true });
    }

    /// A cluster is not waited for: what is stored of it stands, and is waited for again should it connect.
    pub fn given_up(&mut self, cluster: &ClusterName) {
        if !self.taken.contains_key(cluster) {
            let terms = self.stored.get(cluster).cloned().unwrap_or_default();
            self.take(cluster, Taken { terms, for_good: false });
        }
    }

    /// A cluster is waited for, perhaps again.
    pub fn waited_for(&mut self, cluster: &ClusterName) {
        if let Some(taken) = self.taken.remove(cluster) {
            self.add(&taken.terms, 1);
        }
    }

    /// A cluster that is gone has nothing on the hub any more.
    pub fn gone(&mut self, cluster: &ClusterName) {
        self.read(cluster, std::iter::empty());
    }

    /// Once no cluster of then is left to be read, nothing is left of the hub to account for.
    pub fn end(&mut self) {
        *self = Self { over: true, ..Self::default() };
    }

    fn take(&mut self, cluster: &ClusterName, taken: Taken) {
        self.waited_for(cluster);
        self.add(&taken.terms, -1);
        self.taken.insert(cluster.clone(), taken);
    }

    /// A cell that was not managed at the start had nothing of any cluster.
    fn add(&mut self, terms: &Terms, times: i128) {
        for (cell, term) in terms {
            let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
            if let Some(had) = self.unread.get_mut(&cell.queue).and_then(|had| had.get_mut(&at)) {
                *had += times * units(*term);
            }
        }
    }
}

fn first_seen(queue: &HubQueueInput, taken: &BTreeMap<ClusterName, Taken>) -> BTreeMap<FlavorResource, i128> {
    let had = queue.managed.iter().map(|(at, cell)| {
        let seen = queue.groups.cell(at).map(|quota| quota.nominal.amount()).unwrap_or_default();
        let cell_of_all =
            Cell { queue: queue.name.clone(), flavor: at.flavor.clone(), resource: at.resource.clone() };
        let taken = taken.values().filter_map(|taken| taken.terms.get(&cell_of_all));
        (at.clone(), units(seen) - units(cell.base) - taken.map(|term| units(*term)).sum::<i128>())
    });
    had.collect()
}

fn units(amount: Amount) -> i128 {
    amount.units().into()
}

#[cfg(test)]
mod tests {
    use fedq_domain::{
        quota::{Dispatch, ManagedCell, QuotaPlace},
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
            quota_place: QuotaPlace::Queue,
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

    fn started(stored: &[(&str, i64)]) -> AtStart {
        let terms = |(name, units): &(&str, i64)| (cluster(name), [(cell(), Amount::new(*units))].into());
        AtStart::new(stored.iter().map(terms).collect())
    }

    fn read(at_start: &mut AtStart, name: &str, units: i64) {
        at_start.read(&cluster(name), [(cell(), Amount::new(units))].into_iter());
    }

    fn awaits(at_start: &AtStart, name: &str) -> bool {
        at_start.awaited([cluster(name)].iter()).contains(&cluster(name))
    }

    #[test]
    fn what_is_not_the_bases_and_not_of_clusters_that_were_read_is_unread() {
        let mut started = AtStart::default();
        assert_eq!(unread(&mut started, Some(2), 12), Some(10));
        read(&mut started, "east", 4);
        assert_eq!(unread(&mut started, Some(2), 14), Some(6), "what is written since is not of the start");
        assert!(awaits(&started, "west") && !awaits(&started, "east"));
        read(&mut started, "west", 7);
        assert_eq!(unread(&mut started, Some(2), 14), None);
        started.end();
        assert!(!awaits(&started, "new"));
        assert_eq!(unread(&mut started, Some(2), 14), None);
    }

    #[test]
    fn a_claim_that_was_lowered_while_fedqd_did_not_run_leaves_nothing_for_others() {
        let mut started = started(&[("east", 5), ("west", 8)]);
        assert_eq!(unread(&mut started, Some(0), 10), Some(10));
        read(&mut started, "east", 0);
        assert_eq!(unread(&mut started, Some(0), 10), Some(5), "5 of the hub's were its own");
    }

    #[test]
    fn a_cluster_that_left_while_fedqd_did_not_run_leaves_nothing_for_others() {
        let mut started = started(&[("gone", 5)]);
        assert_eq!(unread(&mut started, Some(0), 10), Some(10));
        assert!(awaits(&started, "gone"));
        started.gone(&cluster("gone"));
        assert_eq!(unread(&mut started, Some(0), 10), Some(5));
        assert_eq!(started.awaited([].iter()), BTreeSet::new());
    }

    #[test]
    fn one_that_was_not_waited_for_is_unread_again_once_it_connects() {
        let mut started = started(&[("east", 5)]);
        assert_eq!(unread(&mut started, Some(0), 10), Some(10));
        started.given_up(&cluster("east"));
        assert_eq!(unread(&mut started, Some(0), 10), Some(5));
        started.waited_for(&cluster("east"));
        assert_eq!(unread(&mut started, Some(0), 10), Some(10));
        read(&mut started, "east", 6);
        started.given_up(&cluster("east"));
        assert_eq!(unread(&mut started, Some(0), 10), Some(4));
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
    fn a_queue_that_is_made_anew_had_nothing_at_the_start() {
        let mut started = AtStart::default();
        assert_eq!(unread(&mut started, Some(0), 9), Some(9));
        started.tell(&mut BTreeMap::new());
        assert_eq!(unread(&mut started, Some(0), 9), None);
    }
}
