//! The plan against a toy Kueue that admits whatever its quotas allow, at any moment.
//!
//! The hub sees the worker late and writes to it late. At every write that lets queues hold more, all
//! they may come to hold must fit the nodes the hub knew of; and when claims rest and workloads end,
//! every cell must reach what it is to have. Where people change lendingLimits meanwhile, peers may
//! borrow just before a limit falls, so there the quotas themselves are what must fit.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, test_runner::TestCaseError};

use super::{
    hold::{Holder, guaranteed, together},
    properties::{at, cluster, cohort, flavor, queue, resource},
    *,
};
use crate::{
    capacity::{Capacity, NodeClass},
    resource_groups::{Quota, ResourceGroups},
    resources::{Cell, FlavorResource, Resources},
};
use fedq_values::{ids::FlavorName, quantity::Amount};

const FLAVORS: usize = 2;
/// The queues of the hub; one more on the worker is foreign.
const QUEUES: usize = 3;
const FOREIGN: usize = QUEUES;

#[derive(Clone, Debug, Default, PartialEq)]
struct Quotas {
    nominal: i64,
    lending: Option<i64>,
}

/// A ClusterQueue of the worker.
#[derive(Clone, Debug, Default)]
struct Queue {
    cohort: usize,
    cells: BTreeMap<usize, Quotas>,
    reserved: [i64; FLAVORS],
    /// Rises with every write.
    version: u64,
    written_at: u64,
}

/// What the hub last read of all queues' statuses.
#[derive(Clone, Debug, Default)]
struct Status {
    read_at: u64,
    reserved: BTreeMap<usize, [i64; FLAVORS]>,
}

/// A write on its way.
#[derive(Clone, Debug)]
struct Write {
    queue: usize,
    /// What it was made from; a queue changed since refuses it.
    version: Option<u64>,
    cells: BTreeMap<usize, Quotas>,
    /// The most that the hub knew of the nodes since.
    classes: [i64; 3],
}

struct World {
    now: u64,
    queues: BTreeMap<usize, Queue>,
    cohorts: [usize; QUEUES + 1],
    status: Status,
    /// Nodes of the first flavor only, of the second only, of both.
    classes: [i64; 3],
    claim: [[i64; FLAVORS]; QUEUES],
    lending: [[Option<i64>; FLAVORS]; QUEUES],
    lending_changes: bool,
    writes: Vec<Write>,
    /// Sent, and given up for lost: what arrives of them does so later.
    unanswered: Vec<Write>,
    hub: BTreeMap<usize, (ResourceGroups, BTreeMap<FlavorResource, ManagedCell>)>,
}

#[derive(Clone, Debug)]
enum Step {
    Admit {
        queue: usize,
        flavor: usize,
        units: i64,
    },
    Finish {
        queue: usize,
        flavor: usize,
        units: i64,
    },
    ReadStatus,
    Plan,
    /// One of the writes on their way arrives, or is given up.
    Arrive {
        which: usize,
        lost: bool,
    },
    /// One that was given up arrives all the same.
    ArriveLate {
        which: usize,
    },
    Claim {
        queue: usize,
        flavor: usize,
        units: i64,
    },
    Nodes {
        class: usize,
        units: i64,
    },
    Lending {
        queue: usize,
        flavor: usize,
        units: Option<i64>,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = (0..QUEUES, 0..FLAVORS);
    let units = || prop_oneof![1_i64..6, Just(100)];
    let step = prop_oneof![
        6 => (0..=QUEUES, 0..FLAVORS, units()).prop_map(|(queue, flavor, units)| Step::Admit { queue, flavor, units }),
        3 => (0..=QUEUES, 0..FLAVORS, units()).prop_map(|(queue, flavor, units)| Step::Finish { queue, flavor, units }),
        5 => Just(Step::ReadStatus),
        5 => Just(Step::Plan),
        8 => (0..8_usize, prop::bool::weighted(0.1)).prop_map(|(which, lost)| Step::Arrive { which, lost }),
        2 => (0..8_usize).prop_map(|which| Step::ArriveLate { which }),
        3 => (place.clone(), 0_i64..15).prop_map(|((queue, flavor), units)| Step::Claim { queue, flavor, units }),
        1 => (0..3_usize, 0_i64..12).prop_map(|(class, units)| Step::Nodes { class, units }),
        1 => (place, prop::option::of(0_i64..10)).prop_map(|((queue, flavor), units)| Step::Lending { queue, flavor, units }),
    ];
    prop::collection::vec(step, 1..120)
}

impl World {
    fn new(cohorts: [usize; QUEUES + 1], foreign: [i64; FLAVORS]) -> Self {
        let cells = (0..FLAVORS).map(|f| (f, Quotas { nominal: foreign[f], lending: None })).collect();
        let of_foreign = Queue { cohort: cohorts[FOREIGN], cells, ..Queue::default() };
        Self {
            now: 1,
            queues: [(FOREIGN, of_foreign)].into(),
            cohorts,
            status: Status::default(),
            classes: [8, 8, 4],
            claim: [[0; FLAVORS]; QUEUES],
            lending: [[None; FLAVORS]; QUEUES],
            lending_changes: true,
            writes: Vec::new(),
            unanswered: Vec::new(),
            hub: BTreeMap::new(),
        }
    }

    /// A world where people set their lendingLimits before there was any quota, and leave them.
    fn with_lending(
        cohorts: [usize; QUEUES + 1],
        foreign: [i64; FLAVORS],
        lending: [Option<i64>; QUEUES],
    ) -> Self {
        let mut world = Self { lending_changes: false, ..Self::new(cohorts, foreign) };
        for q in (0..QUEUES).filter(|q| cohorts[*q] != 0) {
            world.lending[q] = [lending[q]; FLAVORS];
            let mut groups = ResourceGroups::default();
            let mut managed = BTreeMap::new();
            for f in 0..FLAVORS {
                groups.extend(&at(f, 0)).expect("there is room");
                let written_lending = lending[q].map(|_| Amount::ZERO);
                let quota = Quota { lending: written_lending, ..Quota::default() };
                groups.set_cells(&[(at(f, 0), quota)].into());
                let kept_lending = lending[q].map(Amount::new);
                managed.insert(at(f, 0), ManagedCell { base: Amount::ZERO, kept_lending, written_lending });
            }
            world.hub.insert(q, (groups, managed));
        }
        world
    }

    fn take(&mut self, step: &Step) -> Result<(), TestCaseError> {
        self.now += 1;
        match *step {
            Step::Admit { queue, flavor, units } => self.admit(queue, flavor, units),
            Step::Finish { queue, flavor, units } => {
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.reserved[flavor] = (queue.reserved[flavor] - units).max(0);
                }
            }
            Step::ReadStatus => self.read_status(),
            Step::Plan => {
                self.plan();
            }
            Step::Arrive { which, lost } => {
                if !self.writes.is_empty() {
                    let write = self.writes.remove(which % self.writes.len());
                    if lost {
                        self.unanswered.push(write);
                    } else {
                        self.arrive(write)?;
                    }
                }
            }
            Step::ArriveLate { which } => {
                if !self.unanswered.is_empty() {
                    let write = self.unanswered.remove(which % self.unanswered.len());
                    self.arrive(write)?;
                }
            }
            Step::Claim { queue, flavor, units } => self.claim[queue][flavor] = units,
            Step::Nodes { class, units } => self.classes[class] = units,
            Step::Lending { queue, flavor, units } => {
                // Limits need a cohort.
                if self.cohorts[queue] != 0 && self.lending_changes {
                    self.lending[queue][flavor] = units;
                }
            }
        }
        Ok(())
    }

    fn holder(queue: &Queue, flavor: usize) -> Holder {
        let quotas = queue.cells.get(&flavor).cloned().unwrap_or_default();
        let guaranteed = guaranteed(quotas.nominal, quotas.lending, queue.cohort != 0);
        Holder { nominal: quotas.nominal, reserved: queue.reserved[flavor], guaranteed }
    }

    /// As Kueue counts what is available: the queue's own, and what its cohort has left.
    fn admit(&mut self, name: usize, flavor: usize, units: i64) {
        let Some(queue) = self.queues.get(&name).filter(|queue| queue.cells.contains_key(&flavor)) else {
            return;
        };
        let own = Self::holder(queue, flavor);
        let available = if queue.cohort == 0 {
            own.nominal - own.reserved
        } else {
            let peers = self.queues.values().filter(|peer| peer.cohort == queue.cohort);
            let left = |peer: &Queue| {
                let holder = Self::holder(peer, flavor);
                holder.nominal - holder.guaranteed - (holder.reserved - holder.guaranteed).max(0)
            };
            (own.guaranteed - own.reserved).max(0) + peers.map(left).sum::<i64>()
        };
        let admitted = units.min(available).max(0);
        self.queues.get_mut(&name).expect("found above").reserved[flavor] += admitted;
    }

    fn read_status(&mut self) {
        let reserved = self.queues.iter().map(|(name, queue)| (*name, queue.reserved)).collect();
        self.status = Status { read_at: self.now, reserved };
    }

    fn capacity(&self) -> Capacity {
        let sets: [Vec<usize>; 3] = [vec![0], vec![1], vec![0, 1]];
        let classes = sets.iter().zip(self.classes).map(|(flavors, units)| NodeClass {
            flavors: flavors.iter().map(|f| flavor(*f)).collect(),
            nodes: 1,
            total: [(resource(0), Amount::new(units))].into(),
        });
        let by_flavor = (0..FLAVORS).map(|f| (flavor(f), Resources::new())).collect();
        Capacity { classes: classes.collect(), by_flavor, ..Capacity::default() }
    }

    fn worker_queue(&self, name: usize, of: &Queue) -> WorkerQueueInput {
        let reserved = self.status.reserved.get(&name).copied().unwrap_or_default();
        let cell = |(f, quotas): (&usize, &Quotas)| {
            let (nominal, lending) = (Amount::new(quotas.nominal), quotas.lending.map(Amount::new));
            let reserved = Amount::new(reserved[*f]);
            (at(*f, 0), WorkerCell { nominal, reserved, lending, ..WorkerCell::default() })
        };
        let peers = self.queues.values().filter(|peer| of.cohort != 0 && peer.cohort == of.cohort);
        let written_at = peers.map(|peer| peer.written_at).max().unwrap_or(0).max(of.written_at);
        let on_its_way =
            |write: &Write| write.queue == name || of.cohort != 0 && self.cohorts[write.queue] == of.cohort;
        WorkerQueueInput {
            name: queue(name),
            ours: name != FOREIGN,
            conflict: false,
            cohort: cohort(of.cohort),
            active: true,
            settled: written_at <= self.status.read_at && !self.writes.iter().any(on_its_way),
            cells: of.cells.iter().map(cell).collect(),
            asked: self.asked(name),
        }
    }

    /// Of a version that the queue is past, nothing can come any more.
    fn asked(&self, name: usize) -> Vec<BTreeMap<FlavorResource, AskedCell>> {
        let version = self.queues.get(&name).map(|queue| queue.version);
        let writes = self.unanswered.iter().filter(|write| write.queue == name && write.version == version);
        let asked = |(f, quotas): (&usize, &Quotas)| {
            let (nominal, lending) = (Amount::new(quotas.nominal), quotas.lending.map(Amount::new));
            (at(*f, 0), AskedCell { nominal, lending })
        };
        writes.map(|write| write.cells.iter().map(asked).collect()).collect()
    }

    fn input(&self) -> PlanInput {
        let mut of_cluster = ClusterInput::new(cluster(0));
        of_cluster.capacity = Some(self.capacity());
        of_cluster.worker_queues =
            self.queues.iter().map(|(name, of)| self.worker_queue(*name, of)).collect();
        // Queues that are being created: not seen yet, so given as not settled.
        let unseen = |writes: &[Write]| -> BTreeSet<usize> {
            writes.iter().map(|write| write.queue).filter(|name| !self.queues.contains_key(name)).collect()
        };
        let (created, given_up) = (unseen(&self.writes), unseen(&self.unanswered));
        of_cluster.worker_queues.extend(created.union(&given_up).map(|&name| {
            let of = Queue { cohort: self.cohorts[name], ..Queue::default() };
            WorkerQueueInput { settled: !created.contains(&name), ..self.worker_queue(name, &of) }
        }));
        let assignments = self.claim.iter().enumerate().flat_map(|(q, flavors)| {
            flavors.iter().enumerate().map(move |(f, units)| Assignment {
                queue: queue(q),
                flavor: flavor(f),
                resources: [(resource(0), Amount::new(*units))].into(),
            })
        });
        of_cluster.claim = Some(ClaimInput { caps: Resources::new(), assignments: assignments.collect() });
        let queues = (0..QUEUES).map(|q| {
            let (groups, managed) = self.hub.get(&q).cloned().unwrap_or_default();
            let mut hub = HubQueueInput {
                name: queue(q),
                groups,
                cohort: cohort(self.cohorts[q]),
                managed,
                dispatch: Dispatch::RunsLocally,
                automated: false,
                quota_place: QuotaPlace::Queue,
                still_held: BTreeMap::new(),
                unread: BTreeMap::new(),
            };
            if self.lending_changes {
                self.set_lending(q, &mut hub);
            }
            hub
        });
        let flavors = Some((0..FLAVORS).map(flavor).collect());
        PlanInput { flavors, clusters: vec![of_cluster], queues: queues.collect() }
    }

    /// A person's lendingLimit, as far as the hub's quota lets them write it.
    fn set_lending(&self, q: usize, hub: &mut HubQueueInput) {
        for f in 0..FLAVORS {
            let Some(quota) = hub.groups.cell(&at(f, 0)).cloned() else { continue };
            let nominal = quota.nominal.amount();
            let wanted = self.lending[q][f].map(|units| Amount::new(units).min(nominal));
            let managed = hub.managed.entry(at(f, 0)).or_default();
            if wanted != managed.written_lending {
                let quota = Quota { nominal, borrowing: None, lending: wanted };
                hub.groups.set_cells(&[(at(f, 0), quota)].into());
            }
        }
    }

    /// Plans, writes the hub at once and sends the worker's writes on their way. How many there were.
    fn plan(&mut self) -> usize {
        let (plan, _) = plan(&self.input());
        // What is given beside them counts on the nodes of now.
        for write in &mut self.unanswered {
            for (known, now) in write.classes.iter_mut().zip(self.classes) {
                *known = now.max(*known);
            }
        }
        for (q, name) in (0..QUEUES).map(|q| (q, queue(q))) {
            let hub = &plan.queues[&name];
            self.hub.insert(q, (hub.groups.clone(), hub.managed.clone()));
        }
        let mut sent = 0;
        for q in 0..QUEUES {
            let planned = |f: usize| {
                let cell = Cell { queue: queue(q), flavor: flavor(f), resource: resource(0) };
                let planned = &plan.clusters[&cluster(0)].cells[&cell];
                let nominal = planned.granted.expect("the cluster is live").units();
                Quotas { nominal, lending: planned.lending.map(Amount::units) }
            };
            let cells: BTreeMap<_, _> = (0..FLAVORS).map(|f| (f, planned(f))).collect();
            let seen = self.queues.get(&q);
            let waits = self.writes.iter().any(|write| write.queue == q);
            if !waits && seen.is_none_or(|seen| seen.cells != cells) {
                let version = seen.map(|seen| seen.version);
                self.writes.push(Write { queue: q, version, cells, classes: self.classes });
                sent += 1;
            }
        }
        sent
    }

    fn arrive(&mut self, write: Write) -> Result<(), TestCaseError> {
        if self.queues.get(&write.queue).map(|queue| queue.version) != write.version {
            return Ok(());
        }
        let before: Vec<_> = (0..FLAVORS).map(|f| self.held(f)).collect();
        let mut grows = [false; FLAVORS];
        let cohort = self.cohorts[write.queue];
        let queue = self.queues.entry(write.queue).or_insert_with(|| Queue { cohort, ..Queue::default() });
        for (f, quotas) in &write.cells {
            let seen = queue.cells.get(f).cloned().unwrap_or_default();
            grows[*f] = seen.nominal < quotas.nominal;
        }
        queue.cells = write.cells;
        queue.version += 1;
        queue.written_at = self.now;
        let [first, second, both] = write.classes;
        let after: Vec<_> = (0..FLAVORS).map(|f| self.held(f)).collect();
        for f in 0..FLAVORS {
            if grows[f] || before[f] < after[f] && !self.lending_changes {
                let usable = [first, second][f] + both;
                prop_assert!(after[f] <= i128::from(usable), "flavor {}: {} of {}", f, after[f], usable);
                let (held, all) = (after.iter().sum::<i128>(), i128::from(first + second + both));
                prop_assert!(held <= all, "both flavors: {} of {}", held, all);
            }
        }
        Ok(())
    }

    /// What the worker's queues may come to hold of a flavor, by their true reservations.
    fn held(&self, flavor: usize) -> i128 {
        if self.lending_changes {
            return self.queues.values().map(|queue| i128::from(Self::holder(queue, flavor).nominal)).sum();
        }
        let mut by_cohort: BTreeMap<usize, Vec<Holder>> = BTreeMap::new();
        let mut held = 0;
        for queue in self.queues.values() {
            let holder = Self::holder(queue, flavor);
            match queue.cohort {
                0 => held += i128::from(holder.alone()),
                cohort => by_cohort.entry(cohort).or_default().push(holder),
            }
        }
        held + by_cohort.into_values().map(|holders| together(holders.into_iter())).sum::<i128>()
    }

    /// Workloads end, nothing new is asked for: how long until nothing is left to write?
    fn rest(&mut self) -> Result<(), TestCaseError> {
        for queue in self.queues.values_mut() {
            queue.reserved = [0; FLAVORS];
        }
        for _ in 0..20 {
            while let Some(write) = self.unanswered.pop().or_else(|| self.writes.pop()) {
                self.now += 1;
                self.arrive(write)?;
            }
            self.now += 1;
            self.read_status();
            let before = self.hub.clone();
            if self.plan() == 0 && before == self.hub {
                return Ok(());
            }
        }
        Err(TestCaseError::fail("still writing after 20 rounds"))
    }

    fn check_rest(&self) -> Result<(), TestCaseError> {
        let input = self.input();
        let (plan, report) = plan(&input);
        for (cell, planned) in &plan.clusters[&cluster(0)].cells {
            prop_assert_eq!(Some(planned.effective), planned.granted, "{:?}", cell);
            prop_assert_eq!(planned.effective, planned.term, "{:?}", cell);
            prop_assert!(planned.draining.is_zero());
            let queue =
                self.queues.iter().find(|(name, _)| queue(**name) == cell.queue).expect("it was created");
            let f = (0..FLAVORS).find(|f| flavor(*f) == cell.flavor).expect("a known flavor");
            prop_assert_eq!(queue.1.cells[&f].nominal, planned.effective.units());
            let hub = &plan.queues[&cell.queue];
            let of_hub = hub.cells
                [&FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() }]
                .target;
            prop_assert_eq!(of_hub, planned.effective);
        }
        let foreign = |f: &FlavorName| report.clusters[&cluster(0)].flavors[f][&resource(0)].foreign;
        let over = &report.clusters[&cluster(0)].overcommitted;
        let by_foreign = over.iter().all(|over| over.usable < over.flavors.iter().map(foreign).sum());
        prop_assert!(by_foreign, "only foreign quota can be more than there is: {:?}", over);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn nothing_grows_beyond_the_nodes_and_everything_gets_there(
        steps in steps(),
        cohorts in prop::array::uniform4(0..3_usize),
        foreign in prop::array::uniform2(0_i64..6),
        lending in prop::array::uniform3(prop::option::of(0_i64..10)),
    ) {
        let mut world = World::with_lending(cohorts, foreign, lending);
        for step in &steps {
            world.take(step)?;
        }
        world.rest()?;
        world.check_rest()?;
    }

    #[test]
    fn changing_limits_never_makes_quotas_exceed_the_nodes(
        steps in steps(),
        cohorts in prop::array::uniform4(0..3_usize),
        foreign in prop::array::uniform2(0_i64..6),
    ) {
        let mut world = World::new(cohorts, foreign);
        for step in &steps {
            world.take(step)?;
        }
        world.rest()?;
        world.check_rest()?;
    }
}
