//! Remembers what the annotation `fedq.dev/cells` said, for the day somebody replaces a queue from a
//! manifest that does not have it. Without this, the sum fedq wrote would be taken for what was there
//! before fedq, and every share would count twice.

use std::collections::BTreeMap;

use crate::domain::{
    ids::QueueName,
    quantity::Amount,
    quota::{HubQueueInput, ManagedCell},
    resources::{Cell, FlavorResource},
};

#[derive(Default)]
pub(super) struct Bases {
    queues: BTreeMap<QueueName, Remembered>,
}

struct Remembered {
    /// Of the object: a queue made anew starts anew.
    uid: String,
    managed: BTreeMap<FlavorResource, ManagedCell>,
}

impl Bases {
    /// Puts back the cells that the annotation lost. `terms`: what clusters were last counted with, which
    /// is all that is known of a queue this process sees for the first time.
    pub fn restore(
        &mut self,
        uid: &str,
        queue: &mut HubQueueInput,
        terms: impl FnOnce() -> BTreeMap<Cell, Amount>,
    ) {
        match self.queues.get(&queue.name) {
            Some(remembered) if remembered.uid == uid => {
                for (at, cell) in &remembered.managed {
                    queue.managed.entry(at.clone()).or_insert(*cell);
                }
            }
            // Made anew: what it holds is a person's.
            Some(_) => {}
            None => rebuild(queue, &terms()),
        }
        let same = |remembered: &Remembered| remembered.uid == uid && remembered.managed == queue.managed;
        if !self.queues.get(&queue.name).is_some_and(same) {
            let remembered = Remembered { uid: uid.to_owned(), managed: queue.managed.clone() };
            self.queues.insert(queue.name.clone(), remembered);
        }
    }

    pub fn forget_others(&mut self, queues: &BTreeMap<QueueName, HubQueueInput>) {
        self.queues.retain(|name, _| queues.contains_key(name));
    }
}

/// What is left of each cell when the clusters' terms are taken off it.
fn rebuild(queue: &mut HubQueueInput, terms: &BTreeMap<Cell, Amount>) {
    for flavor in queue.groups.0.iter().flat_map(|group| &group.flavors) {
        for quota in &flavor.resources {
            let at = FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
            let cell =
                Cell { queue: queue.name.clone(), flavor: at.flavor.clone(), resource: at.resource.clone() };
            if let Some(terms) = terms.get(&cell).filter(|terms| !terms.is_zero()) {
                let base = quota.nominal.amount().saturating_sub(*terms);
                queue.managed.entry(at).or_insert(ManagedCell { base, ..ManagedCell::default() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        quota::Dispatch,
        resource_groups::{FlavorQuotas, ResourceGroup, ResourceGroups, ResourceQuota, Written},
    };

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
        }
    }

    fn terms(amount: i64) -> BTreeMap<Cell, Amount> {
        let FlavorResource { flavor, resource } = at();
        BTreeMap::from([(
            Cell { queue: "q".parse().expect("a name"), flavor, resource },
            Amount::new(amount),
        )])
    }

    fn base(queue: &HubQueueInput) -> Option<i64> {
        queue.managed.get(&at()).map(|cell| cell.base.units())
    }

    #[test]
    fn a_lost_annotation_is_remembered_whatever_the_queue_says_now() {
        let mut bases = Bases::default();
        bases.restore("u", &mut queue(16, Some(4)), || terms(12));
        let mut replaced = queue(4, None);
        bases.restore("u", &mut replaced, || terms(12));
        assert_eq!(base(&replaced), Some(4));
        // The word of a person stands.
        let mut changed = queue(16, Some(7));
        bases.restore("u", &mut changed, || terms(12));
        assert_eq!(base(&changed), Some(7));
    }

    #[test]
    fn after_a_restart_the_stored_terms_tell() {
        let mut lost = queue(16, None);
        Bases::default().restore("u", &mut lost, || terms(12));
        assert_eq!(base(&lost), Some(4));
        let mut fresh = queue(16, None);
        Bases::default().restore("u", &mut fresh, BTreeMap::new);
        assert_eq!(base(&fresh), None);
    }

    #[test]
    fn a_queue_made_anew_starts_anew() {
        let mut bases = Bases::default();
        bases.restore("u", &mut queue(16, Some(4)), || terms(12));
        let mut anew = queue(0, None);
        bases.restore("v", &mut anew, || terms(12));
        assert_eq!(base(&anew), None);
    }
}
