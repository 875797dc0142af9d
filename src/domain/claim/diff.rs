//! What each queue gains and loses when one claim replaces another.

use std::collections::BTreeMap;

use super::ValidClaim;
use crate::resources::Cell;
use fedq_values::quantity::Amount;

/// What a cell was assigned and is assigned now. The two differ.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Change {
    pub before: Amount,
    pub after: Amount,
}

impl Change {
    pub fn gain(self) -> Amount {
        self.after.saturating_sub(self.before)
    }

    pub fn loss(self) -> Amount {
        self.before.saturating_sub(self.after)
    }
}

/// The cells whose assignment changes, in order of queue, flavor, resource. No old claim means that
/// everything is gained, no new one that everything is lost.
pub fn diff(old: Option<&ValidClaim>, new: Option<&ValidClaim>) -> BTreeMap<Cell, Change> {
    let mut changes: BTreeMap<Cell, Change> = BTreeMap::new();
    for (cell, amount) in old.into_iter().flat_map(cells) {
        changes.entry(cell).or_default().before = amount;
    }
    for (cell, amount) in new.into_iter().flat_map(cells) {
        changes.entry(cell).or_default().after = amount;
    }
    changes.retain(|_, change| change.before != change.after);
    changes
}

/// What a claim asks for, cell by cell.
pub fn cells(claim: &ValidClaim) -> impl Iterator<Item = (Cell, Amount)> {
    claim.assignments().iter().flat_map(|assignment| {
        assignment.resources.iter().map(|(resource, amount)| {
            let (queue, flavor) = (assignment.queue.clone(), assignment.flavor.clone());
            (Cell { queue, flavor, resource: resource.clone() }, *amount)
        })
    })
}
