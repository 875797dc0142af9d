//! How much queues may come to hold, and growing no further than is free.
//!
//! Kueue never evicts when a quota shrinks, and admits at once into what a quota leaves free. So what
//! a queue may come to hold is the greater of its quota and what it has reserved, and a cohort, whose
//! queues lend to each other, counts as one. A quota may grow only where all of that together, the
//! growth included, stays within the nodes.

use super::model::{CellModel, Group, Room};

/// One queue's part in what a flavor's nodes may come to hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Holder {
    pub nominal: i64,
    pub reserved: i64,
    /// The part of `nominal` that the queue never lends to its cohort.
    pub guaranteed: i64,
}

impl Holder {
    /// What a queue without a cohort may come to hold.
    pub fn alone(self) -> i64 {
        self.nominal.max(self.reserved)
    }
}

/// Without a lendingLimit, a queue lends all it has to its cohort.
pub(super) fn guaranteed(nominal: i64, lending: Option<i64>, in_cohort: bool) -> i64 {
    match (in_cohort, lending) {
        (false, _) => nominal,
        (true, None) => 0,
        (true, Some(lending)) => nominal - lending.min(nominal),
    }
}

/// What the queues of a cohort may come to hold together: each its guaranteed part or what it has
/// reserved, and of what they lend as much as is not reserved yet.
pub(super) fn together(holders: impl Iterator<Item = Holder>) -> i128 {
    let (mut own, mut lent, mut used) = (0, 0, 0);
    for holder in holders {
        let Holder { nominal, reserved, guaranteed } = holder;
        own += i128::from(reserved.max(guaranteed));
        lent += i128::from(nominal - guaranteed);
        used += i128::from((reserved - guaranteed).max(0));
    }
    own + (lent - used).max(0)
}

/// Decides how far each cell of a room grows, in their order.
pub(super) struct Growth<'a> {
    room: &'a Room,
    /// The room's cells.
    cells: &'a mut [CellModel],
    /// The most each cell may have to be counted with until the worker confirms: the greatest of what
    /// was seen, what was written without an answer, and what is written now.
    counted: Vec<Holder>,
    /// Σ of what may come to be held, by constraint.
    held: Vec<i128>,
}

impl<'a> Growth<'a> {
    pub fn new(room: &'a Room, cells: &'a mut [CellModel]) -> Self {
        let counted: Vec<_> = cells.iter().map(CellModel::holder_at_most).collect();
        let mut growth = Self { room, cells, counted, held: Vec::new() };
        let by_flavor = growth.held_by_flavor();
        let of = |flavors: &[u16]| flavors.iter().map(|flavor| by_flavor[usize::from(*flavor)]).sum();
        growth.held = room.constraints.iter().map(|constraint| of(&constraint.flavors)).collect();
        growth
    }

    /// What may come to be held of each constraint once everything granted is written.
    pub fn held_after(room: &'a Room, cells: &'a mut [CellModel]) -> Vec<i128> {
        let mut growth = Self { room, counted: Vec::new(), cells, held: Vec::new() };
        let after = |cell: &CellModel| {
            let granted = cell.outcome.granted;
            let (nominal, lending) =
                granted.map_or((cell.nominal, cell.lending), |n| (n, cell.outcome.lending));
            let guaranteed = guaranteed(nominal, lending, cell.group.is_some());
            Holder { nominal, reserved: cell.reserved, guaranteed }
        };
        growth.counted = growth.cells.iter().map(after).collect();
        let by_flavor = growth.held_by_flavor();
        let of = |flavors: &[u16]| flavors.iter().map(|flavor| by_flavor[usize::from(*flavor)]).sum();
        room.constraints.iter().map(|constraint| of(&constraint.flavors)).collect()
    }

    pub fn grant_all(mut self) {
        for i in 0..self.cells.len() {
            if self.cells[i].is_writable() {
                self.grant(i);
            } else {
                let outcome = &mut self.cells[i].outcome;
                (outcome.granted, outcome.lending, outcome.borrowing) = (None, None, None);
            }
        }
    }

    fn held_by_flavor(&self) -> Vec<i128> {
        let mut held = self.room.foreign_held.clone();
        for group in &self.room.groups {
            held[usize::from(group.flavor)] += self.group_held(group, None);
        }
        let alone = self.cells.iter().zip(&self.counted).filter(|(cell, _)| cell.group.is_none());
        for (cell, holder) in alone {
            held[usize::from(cell.flavor)] += i128::from(holder.alone());
        }
        held
    }

    /// `instead`: a cell counted otherwise.
    fn group_held(&self, group: &Group, instead: Option<(usize, Holder)>) -> i128 {
        let ours = group.ours.iter().map(|position| {
            let i = position - self.room.range.start;
            instead.filter(|(cell, _)| *cell == i).map_or(self.counted[i], |(_, holder)| holder)
        });
        together(group.foreign.iter().copied().chain(ours))
    }

    /// Writes what is granted now: all of a shrink, and of growth what is free.
    ///
    /// Growth relies on a bound: what queues come to hold between being seen and being written is
    /// within the new quotas if these allow all that the old ones did. So a growing cell never lends
    /// less than before; lending less comes as a write of its own.
    fn grant(&mut self, i: usize) {
        let cell = &self.cells[i];
        let (target, seen) = (cell.outcome.effective, cell.nominal);
        let (granted, lending) = if seen < target {
            let lent = seen - cell.holder().guaranteed;
            let share = cell.lending_share;
            let lending = |nominal: i64| share.map(|share| share.min(nominal).max(lent));
            let granted = self.grow(i, seen, target, &lending);
            (granted, lending(granted))
        } else {
            (target, self.lending_of_shrink(i, target))
        };
        self.count(i, granted, lending);
        let cell = &mut self.cells[i];
        cell.outcome.granted = Some(granted);
        cell.outcome.lending = lending;
        cell.outcome.borrowing = cell.borrowing_share;
    }

    /// The share of the limit, unless peers have borrowed what the queue would no longer lend: with
    /// that, more could be held than there is. (A peer may still borrow it between being seen and this
    /// write: no order of writes can rule that out but taking quota from the queue first, which would
    /// let its workloads be preempted. Σ nominal stays within capacity all the same.)
    fn lending_of_shrink(&self, i: usize, target: i64) -> Option<i64> {
        let cell = &self.cells[i];
        let share = cell.lending_share.map(|share| share.min(target));
        let seen = cell.holder().guaranteed;
        if guaranteed(target, share, cell.group.is_some()) <= seen || self.fits(i, target, share) {
            return share;
        }
        let guaranteed = seen;
        cell.lending.map(|_| target - guaranteed.min(target))
    }

    /// The most between `from` and `to` that fits.
    fn grow(&self, i: usize, from: i64, to: i64, lending: &dyn Fn(i64) -> Option<i64>) -> i64 {
        if self.fits(i, to, lending(to)) {
            return to;
        }
        let (mut fits, mut not) = (from, to);
        while 1 < not - fits {
            let middle = fits + (not - fits) / 2;
            if self.fits(i, middle, lending(middle)) {
                fits = middle;
            } else {
                not = middle;
            }
        }
        fits
    }

    fn counted(&self, i: usize, nominal: i64, lending: Option<i64>) -> Holder {
        let before = self.counted[i];
        let guaranteed = guaranteed(nominal, lending, self.cells[i].group.is_some());
        Holder {
            nominal: before.nominal.max(nominal),
            reserved: before.reserved,
            guaranteed: before.guaranteed.max(guaranteed),
        }
    }

    /// How much more may come to be held with this cell at `nominal`.
    fn more(&self, i: usize, nominal: i64, lending: Option<i64>) -> i128 {
        let holder = self.counted(i, nominal, lending);
        match self.cells[i].group {
            None => i128::from(holder.alone()) - i128::from(self.counted[i].alone()),
            Some(group) => {
                let group = &self.room.groups[group as usize];
                self.group_held(group, Some((i, holder))) - self.group_held(group, None)
            }
        }
    }

    fn fits(&self, i: usize, nominal: i64, lending: Option<i64>) -> bool {
        let more = self.more(i, nominal, lending);
        let flavor = self.cells[i].flavor;
        let constraints = self.room.constraints.iter().zip(&self.room.blocked).zip(&self.held);
        constraints
            .filter(|((constraint, _), _)| constraint.flavors.binary_search(&flavor).is_ok())
            .all(|((constraint, blocked), held)| !blocked && held + more <= i128::from(constraint.usable))
    }

    fn count(&mut self, i: usize, nominal: i64, lending: Option<i64>) {
        let more = self.more(i, nominal, lending);
        self.counted[i] = self.counted(i, nominal, lending);
        let flavor = self.cells[i].flavor;
        for (constraint, held) in self.room.constraints.iter().zip(&mut self.held) {
            if constraint.flavors.binary_search(&flavor).is_ok() {
                *held += more;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(nominal: i64, reserved: i64, lending: Option<i64>) -> Holder {
        Holder { nominal, reserved, guaranteed: guaranteed(nominal, lending, true) }
    }

    #[test]
    fn a_cohort_holds_what_its_queues_have_together() {
        let of = |holders: &[Holder]| together(holders.iter().copied());
        assert_eq!(of(&[holder(10, 0, None), holder(0, 10, None)]), 10, "borrowed, not added");
        assert_eq!(
            of(&[holder(4, 0, None), holder(0, 10, None)]),
            10,
            "more is reserved than there is quota"
        );
        assert_eq!(of(&[holder(10, 4, None), holder(6, 1, None)]), 16);
    }

    #[test]
    fn what_a_queue_does_not_lend_adds_to_what_others_borrowed() {
        let of = |holders: &[Holder]| together(holders.iter().copied());
        // The second has borrowed all 10, then the first stops lending: it may still admit its 10.
        assert_eq!(of(&[holder(10, 0, Some(0)), holder(0, 10, None)]), 20);
        assert_eq!(of(&[holder(10, 0, Some(4)), holder(0, 10, None)]), 16);
        assert_eq!(of(&[holder(10, 10, Some(0)), holder(0, 0, None)]), 10);
    }
}
