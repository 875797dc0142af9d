//! Remembers what the annotation `fedq.dev/cells` said, for the day somebody replaces a queue from a
//! manifest that does not have it. Without this, the sum fedq wrote would be taken for what was there
//! before fedq, and every share would count twice. The store keeps it for a replacement while no daemon runs; only what
//! the hub's queue itself once said is remembered, since the hub may never have had what clusters were counted with.

use std::collections::{BTreeMap, BTreeSet};

use fedq_domain::{
    quota::{HubQueueInput, ManagedCell},
    resources::FlavorResource,
};
use fedq_k8s::read;
use fedq_store::HubCells;
use fedq_values::ids::QueueName;

#[derive(Default)]
pub(super) struct Bases {
    queues: BTreeMap<QueueName, Remembered>,
}

#[derive(PartialEq)]
struct Remembered {
    /// Of the object: a queue made anew starts anew.
    uid: String,
    managed: BTreeMap<FlavorResource, ManagedCell>,
}

impl Bases {
    /// As the store has them.
    pub fn new(stored: BTreeMap<QueueName, HubCells>) -> Self {
        let remembered = |(name, HubCells { uid, cells }): (QueueName, HubCells)| {
            // Written by `restore`; an older fedqd's that cannot be read is as good as none.
            let managed = read::cells_of(&cells).ok()?;
            Some((name, Remembered { uid, managed }))
        };
        Self { queues: stored.into_iter().filter_map(remembered).collect() }
    }

    /// Puts back the cells that the annotation lost; what is to be stored of it, if that is new.
    pub fn restore(&mut self, uid: &str, queue: &mut HubQueueInput) -> Option<HubCells> {
        // One that was made anew, or was never seen, holds what a person gave it.
        let known = self.queues.get(&queue.name).filter(|remembered| remembered.uid == uid);
        let has = |at: &FlavorResource| queue.groups.cell(at).is_some();
        // A cell that somebody took out of the queue is no longer fedq's: it may come back as a person's.
        let lost = known.into_iter().flat_map(|remembered| &remembered.managed).filter(|(at, _)| has(at));
        for (at, cell) in lost {
            queue.managed.entry(at.clone()).or_insert(*cell);
        }
        let managed = queue.managed.iter().filter(|(at, _)| has(at)).map(|(at, cell)| (at.clone(), *cell));
        let now = Remembered { uid: uid.to_owned(), managed: managed.collect() };
        if known == Some(&now) {
            return None;
        }
        let stored = HubCells { uid: uid.to_owned(), cells: read::render_cells(&now.managed) };
        self.queues.insert(queue.name.clone(), now);
        Some(stored)
    }

    /// Forgets the queues that are not on the hub any more; their names.
    pub fn forget_others(&mut self, there: &BTreeSet<QueueName>) -> Vec<QueueName> {
        let gone: Vec<QueueName> =
            self.queues.keys().filter(|name| !there.contains(*name)).cloned().collect();
        for name in &gone {
            self.queues.remove(name);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::{
        quota::{Dispatch, QuotaPlace},
        resource_groups::{FlavorQuotas, ResourceGroup, ResourceGroups, ResourceQuota, Written},
    };
    use fedq_values::quantity::Amount;

    fn at() -> FlavorResource {
        FlavorResource { flavor: "f".parse().expect("a name"), resource: "cpu".parse().expect("a name") }
    }

    fn queue(nominal: i64, base: Option<i64>) -> HubQueueInput {
        let resource = at().resource;
        let quota = ResourceQuota {
            nominal: Written::of(Amount::new(nominal), &resource),
            name: resource.clone(),
            borrowing: None,
            lending: None,
        };
        let flavors = vec![FlavorQuotas { name: at().flavor, resources: vec![quota] }];
        let cell = |base| (at(), ManagedCell { base: Amount::new(base), ..ManagedCell::default() });
        HubQueueInput {
            name: "q".parse().expect("a name"),
            groups: ResourceGroups(vec![ResourceGroup { covered: vec![resource], flavors }]),
            cohort: None,
            managed: base.map(cell).into_iter().collect(),
            dispatch: Dispatch::RunsLocally,
            automated: false,
            quota_place: QuotaPlace::Queue,
            still_held: BTreeMap::new(),
            unread: BTreeMap::new(),
        }
    }

    fn base(queue: &HubQueueInput) -> Option<i64> {
        queue.managed.get(&at()).map(|cell| cell.base.units())
    }

    #[test]
    fn a_lost_annotation_is_remembered_whatever_the_queue_says_now() {
        let mut bases = Bases::default();
        bases.restore("u", &mut queue(16, Some(4)));
        let mut replaced = queue(4, None);
        assert_eq!(bases.restore("u", &mut replaced), None, "nothing new");
        assert_eq!(base(&replaced), Some(4));
        // The word of a person stands.
        let mut changed = queue(16, Some(7));
        bases.restore("u", &mut changed);
        assert_eq!(base(&changed), Some(7));
    }

    #[test]
    fn after_a_restart_the_store_tells_what_the_queue_once_said() {
        let stored = Bases::default().restore("u", &mut queue(16, Some(4))).expect("new");
        let after = |uid: &str, queue: &mut HubQueueInput| {
            let mut bases = Bases::new([(queue.name.clone(), stored.clone())].into());
            bases.restore(uid, queue);
            base(queue)
        };
        assert_eq!(after("u", &mut queue(16, None)), Some(4));
        assert_eq!(after("u", &mut queue(4, None)), Some(4), "a manifest from before fedq");
        assert_eq!(after("v", &mut queue(16, None)), None, "made anew meanwhile");
    }

    #[test]
    fn a_queue_that_fedq_could_not_write_keeps_what_it_has_as_its_base() {
        let stored = Bases::default().restore("u", &mut queue(4, None)).expect("new");
        let mut again = queue(4, None);
        Bases::new([(again.name.clone(), stored)].into()).restore("u", &mut again);
        assert_eq!(base(&again), None);
    }

    #[test]
    fn a_queue_made_anew_starts_anew() {
        let mut bases = Bases::default();
        bases.restore("u", &mut queue(16, Some(4)));
        let mut anew = queue(0, None);
        bases.restore("v", &mut anew);
        assert_eq!(base(&anew), None);
        assert_eq!(bases.forget_others(&BTreeSet::new()).len(), 1);
        let mut again = queue(16, None);
        bases.restore("w", &mut again);
        assert_eq!(base(&again), None, "also where it was gone for a while");
    }

    #[test]
    fn a_cell_that_was_taken_out_and_comes_back_is_a_persons() {
        let mut bases = Bases::default();
        bases.restore("u", &mut queue(16, Some(4)));
        let mut without = HubQueueInput { groups: ResourceGroups::default(), ..queue(0, Some(4)) };
        bases.restore("u", &mut without);
        assert_eq!(base(&without), Some(4), "what the annotation says is the plan's to judge");
        let mut back = queue(7, None);
        bases.restore("u", &mut back);
        assert_eq!(base(&back), None);
    }
}
