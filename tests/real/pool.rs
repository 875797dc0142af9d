//! Who may use which fleet: cases that may share one use the first together, a serial case has one to itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::cases::Turn;
use crate::support::fleet::Fleet;

pub struct Pool {
    fleets: Vec<Arc<Fleet>>,
    uses: Mutex<Vec<Use>>,
    freed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Shared(usize),
    Alone,
}

impl Use {
    const FREE: Self = Self::Shared(0);
}

/// A fleet for one case; given back when it is dropped.
pub struct Borrowed<'p> {
    pool: &'p Pool,
    index: usize,
}

impl Pool {
    pub fn new(fleets: Vec<Arc<Fleet>>) -> Self {
        let uses = Mutex::new(vec![Use::FREE; fleets.len()]);
        Self { fleets, uses, freed: Condvar::new() }
    }

    pub fn fleets(&self) -> &[Arc<Fleet>] {
        &self.fleets
    }

    /// Waits for a fleet. Cases that may share come first in the list of all cases, so no serial case makes them wait.
    pub fn wait_for(&self, turn: Turn) -> Borrowed<'_> {
        let mut uses = self.uses();
        loop {
            let found = match turn {
                Turn::Parallel => uses.iter().position(|one| *one != Use::Alone),
                // From the other end than those that share.
                Turn::Serial => uses.iter().rposition(|one| *one == Use::FREE),
            };
            if let Some(index) = found {
                uses[index] = match (turn, uses[index]) {
                    (Turn::Parallel, Use::Shared(count)) => Use::Shared(count + 1),
                    (Turn::Parallel | Turn::Serial, _) => Use::Alone,
                };
                return Borrowed { pool: self, index };
            }
            uses = self.freed.wait(uses).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn uses(&self) -> MutexGuard<'_, Vec<Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Borrowed<'_> {
    pub fn fleet(&self) -> &Arc<Fleet> {
        &self.pool.fleets[self.index]
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        let mut uses = self.pool.uses();
        uses[self.index] = match uses[self.index] {
            Use::Shared(count) => Use::Shared(count.saturating_sub(1)),
            Use::Alone => Use::FREE,
        };
        self.pool.freed.notify_all();
    }
}
