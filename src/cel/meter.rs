//! What an evaluation may spend. Two counts, since cel-go's own does not bound what it makes: it charges
//! one step for `text.replace(a, b)` however long the answer is.

use super::Fault;

/// cel-go's cost a call; Kubernetes sets it so in `apis/cel/config.go`.
pub const CALL_COST: u64 = 1_000_000;
/// Bytes and steps of one call: some tens of milliseconds.
pub const CALL_WORK: u64 = 4_000_000;

#[derive(Clone, Copy, Debug)]
pub struct Meter {
    cost: u64,
    work: u64,
    work_limit: u64,
}

impl Meter {
    pub fn new(work_limit: u64) -> Self {
        Self { cost: 0, work: 0, work_limit: work_limit.min(CALL_WORK) }
    }

    pub fn cost(&self) -> u64 {
        self.cost
    }

    pub fn work(&self) -> u64 {
        self.work
    }

    /// What cel-go counts.
    pub fn charge(&mut self, cost: u64) -> Result<(), Fault> {
        self.cost = self.cost.saturating_add(cost);
        if CALL_COST < self.cost { Err(Fault::OverBudget) } else { Ok(()) }
    }

    /// What it really takes: steps, and bytes read or made.
    pub fn spend(&mut self, work: u64) -> Result<(), Fault> {
        let total = self.work.saturating_add(work);
        self.work = total.min(self.work_limit);
        if self.work_limit < total { Err(Fault::OverBudget) } else { Ok(()) }
    }

    pub fn refund(&mut self, cost: u64) {
        self.cost = self.cost.saturating_sub(cost);
    }

    /// A tenth a character, rounded up, as cel-go charges for traversing texts.
    pub fn charge_traversal(&mut self, size: u64) -> Result<(), Fault> {
        self.charge(size.div_ceil(10))
    }
}
