//! The tree of cohorts and ClusterQueues, and how much of each flavor's resource one may still use.
//!
//! The arithmetic is that of `pkg/cache/scheduler/resource_node.go`: a node's quota beyond its lending
//! limit stays with it, the rest is its parent's to lend; usage beyond what stays local counts in the
//! parent as well.

use std::collections::BTreeMap;

/// One resource of one flavor: the unit of quota.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Cell {
    pub flavor: String,
    pub resource: String,
}

pub(super) type Usage = BTreeMap<Cell, i64>;

/// Quota that has no limit; sums with it have none either (`pkg/resources/amount.go`).
const UNLIMITED: i64 = i64::MAX;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quota {
    pub nominal: i64,
    pub borrowing: Option<i64>,
    pub lending: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub name: String,
    pub parent: Option<usize>,
    pub cohorts: Vec<usize>,
    pub queues: Vec<usize>,
    pub quotas: BTreeMap<Cell, Quota>,
    pub subtree: Usage,
    pub usage: Usage,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub nodes: Vec<Node>,
}

pub(super) fn plus(a: i64, b: i64) -> i64 {
    if a == UNLIMITED || b == UNLIMITED { UNLIMITED } else { a.saturating_add(b) }
}

pub(super) fn minus(a: i64, b: i64) -> i64 {
    match (a == UNLIMITED, b == UNLIMITED) {
        (true, true) => 0,
        (true, false) => UNLIMITED,
        (false, true) => i64::MIN,
        (false, false) => a.saturating_sub(b),
    }
}

impl Tree {
    pub(super) fn quota(&self, node: usize, cell: &Cell) -> Quota {
        self.nodes[node].quotas.get(cell).copied().unwrap_or_default()
    }

    pub(super) fn used(&self, node: usize, cell: &Cell) -> i64 {
        self.nodes[node].usage.get(cell).copied().unwrap_or(0)
    }

    fn subtree(&self, node: usize, cell: &Cell) -> i64 {
        self.nodes[node].subtree.get(cell).copied().unwrap_or(0)
    }

    /// What never leaves this node.
    fn local(&self, node: usize, cell: &Cell) -> i64 {
        self.quota(node, cell).lending.map_or(0, |lending| minus(self.subtree(node, cell), lending).max(0))
    }

    pub(super) fn local_available(&self, node: usize, cell: &Cell) -> i64 {
        minus(self.local(node, cell), self.used(node, cell)).max(0)
    }

    /// What is free for this node, below zero when more is used than there is.
    pub(super) fn available(&self, node: usize, cell: &Cell) -> i64 {
        let Some(parent) = self.nodes[node].parent else {
            return minus(self.subtree(node, cell), self.used(node, cell));
        };
        let mut from_parent = self.available(parent, cell);
        if let Some(limit) = self.quota(node, cell).borrowing {
            let local = self.local(node, cell);
            let stored = minus(self.subtree(node, cell), local);
            let used = minus(self.used(node, cell), local).max(0);
            from_parent = from_parent.min(plus(minus(stored, used), limit));
        }
        plus(self.local_available(node, cell), from_parent)
    }

    /// What would be free were nothing used.
    pub(super) fn potential(&self, node: usize, cell: &Cell) -> i64 {
        let Some(parent) = self.nodes[node].parent else {
            return self.subtree(node, cell);
        };
        let most = plus(self.local(node, cell), self.potential(parent, cell));
        match self.quota(node, cell).borrowing {
            Some(limit) => most.min(plus(self.subtree(node, cell), limit)),
            None => most,
        }
    }

    pub(super) fn add(&mut self, node: usize, cell: &Cell, amount: i64) {
        let local = self.local_available(node, cell);
        let used = self.nodes[node].usage.entry(cell.clone()).or_default();
        *used = plus(*used, amount);
        if let Some(parent) = self.nodes[node].parent
            && local < amount
        {
            self.add(parent, cell, minus(amount, local));
        }
    }

    pub(super) fn remove(&mut self, node: usize, cell: &Cell, amount: i64) {
        let in_parent = minus(self.used(node, cell), self.local(node, cell));
        let used = self.nodes[node].usage.entry(cell.clone()).or_default();
        *used = minus(*used, amount);
        if let Some(parent) = self.nodes[node].parent
            && 0 < in_parent
        {
            self.remove(parent, cell, amount.min(in_parent));
        }
    }

    pub(super) fn add_all(&mut self, node: usize, usage: &Usage) {
        for (cell, amount) in usage {
            self.add(node, cell, *amount);
        }
    }

    pub(super) fn remove_all(&mut self, node: usize, usage: &Usage) {
        for (cell, amount) in usage {
            self.remove(node, cell, *amount);
        }
    }

    pub(super) fn fits(&self, node: usize, usage: &Usage) -> bool {
        usage.iter().all(|(cell, amount)| *amount <= self.available(node, cell).max(0))
    }

    /// Whether `amount` more would take a ClusterQueue beyond its nominal quota, or a cohort beyond
    /// what its members bring.
    pub(super) fn borrows(&self, node: usize, cell: &Cell, amount: i64) -> bool {
        let own =
            if self.is_cohort(node) { self.subtree(node, cell) } else { self.quota(node, cell).nominal };
        own < plus(self.used(node, cell), amount)
    }

    fn is_cohort(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        !node.cohorts.is_empty() || !node.queues.is_empty()
    }

    /// Whether a node uses no more than it brings, in each of `cells`.
    pub(super) fn within(&self, node: usize, cells: &[Cell]) -> bool {
        cells.iter().all(|cell| self.used(node, cell) <= self.subtree(node, cell))
    }

    /// Whether `requests` fit in what this node brings, and what of them its parent would have to give.
    pub(super) fn fits_in_quota(&self, node: usize, requests: &Usage) -> (bool, Usage) {
        let fits = requests
            .iter()
            .all(|(cell, amount)| plus(self.used(node, cell), *amount) <= self.subtree(node, cell));
        let rest = requests
            .iter()
            .map(|(cell, amount)| (cell.clone(), minus(*amount, self.local_available(node, cell)).max(0)));
        (fits, rest.collect())
    }

    /// The cohorts above a node, the nearest first.
    pub(super) fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.nodes[node].parent, |node| self.nodes[*node].parent)
    }

    fn height(&self, node: usize) -> usize {
        let node = &self.nodes[node];
        let own = usize::from(!node.cohorts.is_empty() || !node.queues.is_empty());
        node.cohorts.iter().map(|cohort| self.height(*cohort) + 1).fold(own, usize::max)
    }

    /// How far up `amount` has to be borrowed from, 0 for not at all; and whether that leaves a part of
    /// the tree beyond.
    pub(super) fn borrowing_height(&self, queue: usize, cell: &Cell, amount: i64) -> (usize, bool) {
        if self.nodes[queue].parent.is_none() || !self.borrows(queue, cell, amount) {
            return (0, self.nodes[queue].parent.is_some());
        }
        let mut rest = minus(amount, self.local_available(queue, cell));
        let mut top = queue;
        for node in self.ancestors(queue) {
            if !self.borrows(node, cell, rest) {
                return (self.height(node), self.nodes[node].parent.is_some());
            }
            rest = minus(rest, self.local_available(node, cell));
            top = node;
        }
        (self.height(top), false)
    }

    /// Sums up what each node brings. Call once the nodes are linked.
    pub(super) fn sum_up(&mut self) {
        for root in
            (0..self.nodes.len()).filter(|node| self.nodes[*node].parent.is_none()).collect::<Vec<_>>()
        {
            self.sum_up_from(root);
        }
    }

    fn sum_up_from(&mut self, node: usize) {
        let own = self.nodes[node].quotas.iter().map(|(cell, quota)| (cell.clone(), quota.nominal));
        self.nodes[node].subtree = own.collect();
        let children = [self.nodes[node].cohorts.clone(), self.nodes[node].queues.clone()].concat();
        for child in children {
            self.sum_up_from(child);
            for (cell, amount) in self.nodes[child].subtree.clone() {
                let lent = minus(amount, self.local(child, &cell));
                let sum = self.nodes[node].subtree.entry(cell).or_default();
                *sum = plus(*sum, lent);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        Cell { flavor: "default".to_owned(), resource: "cpu".to_owned() }
    }

    /// A cohort of two queues with 10 each, the first with `borrowing` and the second with `lending`.
    fn pair(borrowing: Option<i64>, lending: Option<i64>) -> Tree {
        let queue = |name: &str, borrowing, lending| Node {
            name: name.to_owned(),
            parent: Some(0),
            quotas: BTreeMap::from([(cell(), Quota { nominal: 10, borrowing, lending })]),
            ..Node::default()
        };
        let cohort = Node { name: "all".to_owned(), queues: vec![1, 2], ..Node::default() };
        let mut tree = Tree { nodes: vec![cohort, queue("a", borrowing, None), queue("b", None, lending)] };
        tree.sum_up();
        tree
    }

    /// `pkg/cache/scheduler/resource_test.go`, TestAvailable, "lending and borrowing limits respected".
    #[test]
    fn a_borrowing_limit_bounds_what_is_available() {
        assert_eq!(pair(None, None).available(1, &cell()), 20);
        assert_eq!(pair(Some(3), None).available(1, &cell()), 13);
        assert_eq!(pair(Some(3), None).potential(1, &cell()), 13);
    }

    /// `pkg/cache/scheduler/resource_test.go`, TestAvailable, "lending and borrowing limits respected".
    #[test]
    fn a_lending_limit_keeps_quota_at_home() {
        let mut tree = pair(None, Some(4));
        assert_eq!(tree.available(1, &cell()), 14);
        tree.add(2, &cell(), 8);
        assert_eq!(tree.available(1, &cell()), 12, "6 of the 8 come from what is never lent");
        tree.remove(2, &cell(), 8);
        assert_eq!(tree.available(1, &cell()), 14);
    }

    /// `pkg/cache/scheduler/resource_test.go`, TestAvailable, "cq oversubscription spills into cohort".
    #[test]
    fn more_use_than_quota_leaves_less_than_nothing() {
        let mut tree = pair(None, None);
        tree.add(1, &cell(), 25);
        assert_eq!(tree.available(2, &cell()), -5);
        assert!(!tree.fits(2, &Usage::from([(cell(), 1)])));
    }

    #[test]
    fn unlimited_quota_stays_unlimited() {
        assert_eq!(plus(UNLIMITED, 5), UNLIMITED);
        assert_eq!(minus(UNLIMITED, 5), UNLIMITED);
        assert_eq!(minus(UNLIMITED, UNLIMITED), 0);
    }
}
