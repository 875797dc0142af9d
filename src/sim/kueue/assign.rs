//! Which flavor each resource of a workload gets (`pkg/scheduler/flavorassigner`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Objects, pods,
    preempt::{self, Need},
    quota::{Cell, Usage, minus, plus},
    read::{items, quantity},
    snapshot::{Group, Info, PodSet, Snapshot},
};

/// How well a flavor suits, from worst to best.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Mode {
    NoFit,
    /// It would fit if others went, but none may be evicted.
    NoCandidates,
    Preempt,
    Reclaim,
    Fit,
}

impl Mode {
    pub(super) fn needs_preemption(self) -> bool {
        matches!(self, Self::NoCandidates | Self::Preempt | Self::Reclaim)
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Grade {
    mode: Mode,
    /// How far up it borrows; 0 is not at all.
    borrowing: usize,
}

const BEST: Grade = Grade { mode: Mode::Fit, borrowing: 0 };
const WORST: Grade = Grade { mode: Mode::NoFit, borrowing: usize::MAX };

#[derive(Clone, Debug)]
pub(super) struct Assigned {
    pub flavor: String,
    pub mode: Mode,
    borrowing: usize,
}

#[derive(Clone, Debug)]
pub(super) struct SetAssignment {
    pub name: String,
    pub count: i64,
    pub requests: pods::Requests,
    pub flavors: BTreeMap<String, Assigned>,
    reasons: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Assignment {
    pub sets: Vec<SetAssignment>,
    pub usage: Usage,
    pub borrowing: usize,
}

impl SetAssignment {
    fn mode(&self) -> Mode {
        if self.reasons.is_empty() {
            return Mode::Fit;
        }
        self.flavors.values().map(|assigned| assigned.mode).min().unwrap_or(Mode::NoFit)
    }
}

impl Assignment {
    /// The worst of its pod sets.
    pub(super) fn mode(&self) -> Mode {
        self.sets.iter().map(SetAssignment::mode).min().unwrap_or(Mode::NoFit)
    }

    pub(super) fn message(&self) -> String {
        let problems = self.sets.iter().filter(|set| !set.reasons.is_empty()).map(|set| {
            let mut reasons = set.reasons.clone();
            reasons.sort();
            format!("couldn't assign flavors to pod set {}: {}", set.name, reasons.join(", "))
        });
        problems.collect::<Vec<_>>().join("; ")
    }

    pub(super) fn cells_to_preempt(&self) -> Vec<Cell> {
        let all = self.sets.iter().flat_map(|set| &set.flavors);
        let cells = all.filter(|(_, assigned)| assigned.mode.needs_preemption());
        let mut cells: Vec<Cell> = cells
            .map(|(resource, assigned)| Cell { flavor: assigned.flavor.clone(), resource: resource.clone() })
            .collect();
        cells.sort();
        cells.dedup();
        cells
    }
}

pub(super) struct Assigner<'a> {
    pub snapshot: &'a mut Snapshot,
    pub flavors: &'a Objects,
    pub info: &'a Info,
    pub workload: &'a Value,
}

impl Assigner<'_> {
    pub(super) fn assign(mut self) -> Assignment {
        let mut assignment = Assignment::default();
        for (at, set) in self.info.pod_sets.iter().enumerate() {
            let template = items(self.workload, &["spec", "podSets"])[at]["template"].clone();
            let mut requests = set.requests.clone();
            if self.group_of("pods").is_some() {
                requests.insert("pods".to_owned(), set.count);
            }
            let found = self.assign_set(set, &template, requests, &assignment.usage);
            let failed = found.flavors.is_empty() && !found.requests.is_empty();
            for (resource, assigned) in &found.flavors {
                let cell = Cell { flavor: assigned.flavor.clone(), resource: resource.clone() };
                let sum = assignment.usage.entry(cell).or_default();
                *sum = sum.saturating_add(found.requests[resource]);
                assignment.borrowing = assignment.borrowing.max(assigned.borrowing);
            }
            assignment.sets.push(found);
            if failed {
                break;
            }
        }
        assignment
    }

    fn group_of(&self, resource: &str) -> Option<usize> {
        let groups = &self.snapshot.queues[&self.info.queue].groups;
        groups.iter().position(|group| group.resources.contains(resource))
    }

    fn assign_set(
        &mut self,
        set: &PodSet,
        template: &Value,
        requests: pods::Requests,
        used: &Usage,
    ) -> SetAssignment {
        let (name, count) = (set.name.clone(), set.count);
        let mut found =
            SetAssignment { name, count, requests, flavors: BTreeMap::new(), reasons: Vec::new() };
        for (resource, amount) in &found.requests.clone() {
            if found.flavors.contains_key(resource) {
                continue;
            }
            let Some(group) = self.group_of(resource) else {
                if *amount == 0 {
                    continue;
                }
                found.reasons = vec![format!("resource {resource} unavailable in ClusterQueue")];
                found.flavors.clear();
                return found;
            };
            let (flavors, reasons) = self.best_flavor(group, template, &found.requests, used);
            if flavors.is_empty() {
                found.reasons = reasons;
                found.flavors.clear();
                return found;
            }
            found.flavors.extend(flavors);
            found.reasons.extend(reasons);
        }
        found
    }

    /// The flavor of a group for all its resources at once, and why it does not fit as it is.
    fn best_flavor(
        &mut self,
        group: usize,
        template: &Value,
        requests: &pods::Requests,
        used: &Usage,
    ) -> (BTreeMap<String, Assigned>, Vec<String>) {
        let Group { resources, flavors } = &self.snapshot.queues[&self.info.queue].groups[group];
        let wanted = requests.iter().filter(|(resource, _)| resources.contains(*resource));
        let requests: pods::Requests = wanted.map(|(resource, amount)| (resource.clone(), *amount)).collect();
        let (mut best, mut best_grade) = (BTreeMap::new(), WORST);
        let mut reasons = Vec::new();
        for flavor in flavors.clone() {
            let problem = match self.flavors.get(&(String::new(), flavor.clone())) {
                None => Some(format!("flavor {flavor} not found")),
                Some(object) => pods::mismatch(template, object),
            };
            if let Some(problem) = problem {
                reasons.push(problem);
                continue;
            }
            let (assigned, grade) = self.try_flavor(&flavor, &requests, used, &mut reasons);
            let last_word = !self.tries_next(grade);
            if last_word || self.prefers(grade, best_grade) {
                (best, best_grade) = (assigned, grade);
            }
            if last_word {
                break;
            }
        }
        if best_grade.mode == Mode::Fit {
            reasons.clear();
        }
        (best, reasons)
    }

    fn try_flavor(
        &mut self,
        flavor: &str,
        requests: &pods::Requests,
        used: &Usage,
        reasons: &mut Vec<String>,
    ) -> (BTreeMap<String, Assigned>, Grade) {
        let (mut assigned, mut worst) = (BTreeMap::new(), BEST);
        for (resource, amount) in requests {
            let cell = Cell { flavor: flavor.to_owned(), resource: resource.clone() };
            let before = used.get(&cell).copied().unwrap_or(0);
            let grade = self.fit(&cell, before, *amount, reasons);
            if self.prefers(worst, grade) {
                worst = grade;
            }
            if worst.mode == Mode::NoFit {
                return (BTreeMap::new(), worst);
            }
            let Grade { mode, borrowing } = grade;
            assigned.insert(resource.clone(), Assigned { flavor: flavor.to_owned(), mode, borrowing });
        }
        (assigned, worst)
    }

    fn fit(&mut self, cell: &Cell, before: i64, amount: i64, reasons: &mut Vec<String>) -> Grade {
        let queue = &self.snapshot.queues[&self.info.queue];
        let (tree, node) = (&self.snapshot.tree, queue.node);
        let Cell { flavor, resource } = cell;
        let wanted = plus(before, amount);
        let most = tree.potential(node, cell);
        if most < wanted {
            reasons.push(format!(
                "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({}) + current podset request ({}) > maximum capacity ({})",
                quantity(resource, before), quantity(resource, amount), quantity(resource, most),
            ));
            return Grade { mode: Mode::NoFit, borrowing: 0 };
        }
        let (borrowing, may_reclaim) = tree.borrowing_height(node, cell, wanted);
        let available = tree.available(node, cell).max(0);
        if wanted <= available {
            return Grade { mode: Mode::Fit, borrowing };
        }
        let more = quantity(resource, minus(wanted, available));
        reasons
            .push(format!("insufficient unused quota for {resource} in flavor {flavor}, {more} more needed"));
        let within = wanted <= tree.quota(node, cell).nominal;
        if within || may_reclaim || preempt::borrowing_threshold(queue).is_some() {
            return self.simulate_preemption(cell, wanted);
        }
        Grade { mode: Mode::NoFit, borrowing }
    }

    fn simulate_preemption(&mut self, cell: &Cell, wanted: i64) -> Grade {
        let usage = Usage::from([(cell.clone(), wanted)]);
        let need = Need { info: self.info, cells: vec![cell.clone()], usage };
        let targets = preempt::targets(self.snapshot, &need);
        for target in &targets {
            self.snapshot.take(&target.info.queue, &target.info.key);
        }
        let node = self.snapshot.queues[&self.info.queue].node;
        let (borrowing, _) = self.snapshot.tree.borrowing_height(node, cell, wanted);
        for target in &targets {
            self.snapshot.insert(target.info.clone());
        }
        let mode = if targets.is_empty() {
            Mode::NoCandidates
        } else if targets.iter().any(|target| target.info.queue == self.info.queue) {
            Mode::Preempt
        } else {
            Mode::Reclaim
        };
        Grade { mode, borrowing }
    }

    fn fungibility(&self, field: &str) -> Option<&str> {
        self.snapshot.queues[&self.info.queue].spec["flavorFungibility"][field].as_str()
    }

    fn tries_next(&self, grade: Grade) -> bool {
        let next = |field, default| self.fungibility(field).unwrap_or(default) == "TryNextFlavor";
        match grade.mode {
            Mode::NoFit | Mode::NoCandidates => true,
            Mode::Preempt | Mode::Reclaim if next("whenCanPreempt", "TryNextFlavor") => true,
            Mode::Preempt | Mode::Reclaim | Mode::Fit => {
                0 < grade.borrowing && next("whenCanBorrow", "MayStopSearch")
            }
        }
    }

    fn prefers(&self, a: Grade, b: Grade) -> bool {
        if a.mode == Mode::NoFit || b.mode == Mode::NoFit {
            return a.mode != Mode::NoFit;
        }
        let helpless = |grade: Grade| grade.mode == Mode::NoCandidates;
        if helpless(a) != helpless(b) {
            return helpless(b);
        }
        if self.fungibility("preference") == Some("PreemptionOverBorrowing") {
            return (b.borrowing, a.mode) > (a.borrowing, b.mode);
        }
        (a.mode, b.borrowing) > (b.mode, a.borrowing)
    }
}
