//! What must hold of every plan, tried on random clusters and queues.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, sample::subsequence};

use super::*;
use crate::{
    capacity::{Capacity, NodeClass},
    resource_groups::{FlavorQuotas, Quota, ResourceGroup, ResourceGroups, ResourceQuota},
    resources::{Cell, FlavorResource, Resources},
};
use fedq_values::{
    ids::{ClusterName, CohortName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

pub(super) fn resource(i: usize) -> ResourceName {
    ResourceName::new(["cpu", "x/gpu"][i]).expect("a resource name")
}

pub(super) fn flavor(i: usize) -> FlavorName {
    FlavorName::new(&format!("flavor-{i}")).expect("a flavor name")
}

pub(super) fn queue(i: usize) -> QueueName {
    QueueName::new(&format!("queue-{i}")).expect("a queue name")
}

pub(super) fn cluster(i: usize) -> ClusterName {
    ClusterName::new(&format!("cluster-{i}")).expect("a cluster name")
}

pub(super) fn cohort(i: usize) -> Option<CohortName> {
    (i != 0).then(|| CohortName::new(&format!("cohort-{i}")).expect("a cohort name"))
}

pub(super) fn at(flavor_number: usize, resource_number: usize) -> FlavorResource {
    FlavorResource { flavor: flavor(flavor_number), resource: resource(resource_number) }
}

const FLAVORS: usize = 3;
const QUEUES: usize = 3;
const CLUSTERS: usize = 3;

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![8 => 0_i64..20, 1 => Just(i64::MAX)].prop_map(Amount::new)
}

fn small() -> impl Strategy<Value = Amount> {
    (0_i64..20).prop_map(Amount::new)
}

fn resources() -> impl Strategy<Value = Resources> {
    (prop::option::of(amount()), prop::option::of(amount())).prop_map(|(cpu, gpu)| {
        [cpu, gpu].into_iter().enumerate().filter_map(|(i, units)| Some((resource(i), units?))).collect()
    })
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let class = (subsequence(vec![0, 1, 2], 1..=3), resources());
    (subsequence(vec![0, 1, 2], 0..=3), prop::collection::vec(class, 0..4)).prop_map(|(known, classes)| {
        let class = |(flavors, total): (Vec<usize>, Resources)| NodeClass {
            flavors: flavors.into_iter().map(flavor).collect(),
            nodes: 1,
            total,
        };
        Capacity {
            classes: classes.into_iter().map(class).collect(),
            by_flavor: known.into_iter().map(|i| (flavor(i), Resources::new())).collect(),
            ..Capacity::default()
        }
    })
}

fn claim() -> impl Strategy<Value = ClaimInput> {
    let assignments = prop::collection::btree_map((0..QUEUES, 0..FLAVORS), resources(), 0..6);
    (prop_oneof![Just(Resources::new()), resources()], assignments).prop_map(|(caps, assignments)| {
        let assignment = |((q, f), resources)| Assignment { queue: queue(q), flavor: flavor(f), resources };
        ClaimInput { caps, assignments: assignments.into_iter().map(assignment).collect() }
    })
}

fn worker_queue(i: usize) -> impl Strategy<Value = WorkerQueueInput> {
    let cell = (small(), small(), prop::option::of(small()), small()).prop_map(
        |(nominal, reserved, lending, direct)| WorkerCell {
            nominal,
            reserved,
            lending,
            borrowing: None,
            direct,
        },
    );
    let cells = prop::collection::btree_map((0..FLAVORS, 0..2_usize), cell, 0..5);
    (any::<[bool; 2]>(), prop::bool::weighted(0.8), 0..3_usize, cells).prop_map(
        move |([ours, active], settled, of_cohort, cells)| WorkerQueueInput {
            name: queue(i),
            ours,
            conflict: !ours,
            cohort: cohort(of_cohort),
            active,
            settled,
            cells: cells.into_iter().map(|((f, r), cell)| (at(f, r), cell)).collect(),
            asked: Vec::new(),
        },
    )
}

fn worker_queues() -> impl Strategy<Value = Vec<WorkerQueueInput>> {
    (0..=QUEUES).prop_flat_map(|count| (0..count).map(worker_queue).collect::<Vec<_>>())
}

fn last_terms() -> impl Strategy<Value = BTreeMap<Cell, Amount>> {
    prop::collection::btree_map((0..QUEUES, 0..FLAVORS, 0..2_usize), small(), 0..4).prop_map(|terms| {
        let cell = |(q, f, r)| Cell { queue: queue(q), flavor: flavor(f), resource: resource(r) };
        terms.into_iter().map(|(at, units)| (cell(at), units)).collect()
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![4 => Just(Mode::Live), 1 => Just(Mode::Frozen), 1 => Just(Mode::Lost), 1 => Just(Mode::Unreached)]
}

fn cluster_input() -> impl Strategy<Value = ClusterInput> {
    let flags = (prop::bool::weighted(0.1), any::<bool>(), prop::bool::weighted(0.2));
    let policy = (mode(), flags, resources());
    let seen = (prop::option::weighted(0.9, capacity()), worker_queues(), prop::option::of(last_terms()));
    (0..CLUSTERS, policy, seen, prop::option::weighted(0.9, claim())).prop_map(
        |(i, (mode, flags, headroom), (capacity, worker_queues, last_terms), claim)| {
            let mut input = ClusterInput::new(cluster(i));
            input.headroom =
                headroom.into_iter().map(|(name, units)| (name, units.min(Amount::new(3)))).collect();
            (input.cordoned, input.count_foreign, input.terms_may_lag) = flags;
            input.mode = mode;
            (input.capacity, input.worker_queues, input.claim) = (capacity, worker_queues, claim);
            input.last_terms = last_terms;
            input
        },
    )
}

fn groups() -> impl Strategy<Value = ResourceGroups> {
    let cell = (small(), prop::option::of(small()));
    let split = (any::<bool>(), prop::collection::vec(cell, FLAVORS * 2), subsequence(vec![0, 1, 2], 0..=3));
    split.prop_map(|(one_group, quotas, flavors)| {
        let group = |resources: &[usize], flavors: &[usize]| {
            let quotas_of = |f: &usize| FlavorQuotas {
                name: flavor(*f),
                resources: resources.iter().map(|r| ResourceQuota::zero(resource(*r))).collect(),
            };
            let covered = resources.iter().map(|r| resource(*r)).collect();
            ResourceGroup { covered, flavors: flavors.iter().map(quotas_of).collect() }
        };
        let mut groups = match flavors.split_first() {
            None => ResourceGroups::default(),
            Some((first, rest)) if !one_group && !rest.is_empty() => {
                ResourceGroups(vec![group(&[0], &[*first]), group(&[1], rest)])
            }
            Some(_) => ResourceGroups(vec![group(&[0, 1], &flavors)]),
        };
        let cells = (0..FLAVORS).flat_map(|f| [at(f, 0), at(f, 1)]);
        let quota = |(nominal, lending): (Amount, Option<Amount>)| Quota {
            nominal,
            borrowing: lending,
            lending: lending.map(|lending| lending.min(nominal)),
        };
        groups.set_cells(&cells.zip(quotas.into_iter().map(quota)).collect());
        groups
    })
}

fn without_limits(mut groups: ResourceGroups) -> ResourceGroups {
    for quota in groups.0.iter_mut().flat_map(|g| &mut g.flavors).flat_map(|f| &mut f.resources) {
        (quota.borrowing, quota.lending) = (None, None);
    }
    groups
}

fn hub_queue() -> impl Strategy<Value = HubQueueInput> {
    let dispatch = prop_oneof![
        Just(Dispatch::RunsLocally),
        subsequence(vec![0, 1, 2], 0..=3)
            .prop_map(|some| Dispatch::MultiKueue { clusters: some.into_iter().map(cluster).collect() }),
    ];
    let managed =
        prop::collection::btree_map((0..FLAVORS, 0..2_usize), (small(), prop::option::of(small())), 0..4);
    let unread = prop::collection::btree_map((0..FLAVORS, 0..2_usize), small(), 0..3);
    let kept = (managed, unread);
    let quota_place = prop_oneof![
        4 => Just(QuotaPlace::Queue),
        1 => Just(QuotaPlace::Cohort { problem: None }),
        1 => Just(QuotaPlace::Cohort { problem: Some(CohortProblem::NameTooLong) }),
    ];
    let dispatch = (dispatch, quota_place);
    (0..QUEUES, groups(), 0..3_usize, kept, dispatch, prop::bool::weighted(0.1)).prop_map(
        |(i, groups, of_cohort, (managed, unread), (dispatch, quota_place), automated)| HubQueueInput {
            name: queue(i),
            groups: if of_cohort == 0 { without_limits(groups) } else { groups },
            cohort: cohort(of_cohort),
            managed: managed
                .into_iter()
                .map(|((f, r), (base, kept_lending))| {
                    (at(f, r), ManagedCell { base, kept_lending, written_lending: kept_lending })
                })
                .collect(),
            dispatch,
            automated,
            quota_place,
            still_held: BTreeMap::new(),
            unread: unread.into_iter().map(|((f, r), units)| (at(f, r), units)).collect(),
        },
    )
}

#[derive(Clone, Debug)]
enum Step {
    Cluster(Box<ClusterInput>),
    NoCluster(usize),
    Queue(Box<HubQueueInput>),
    Flavors(Option<Vec<usize>>),
    NoQueue(usize),
    Replan,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => cluster_input().prop_map(|input| Step::Cluster(Box::new(input))),
        1 => (0..CLUSTERS).prop_map(Step::NoCluster),
        4 => hub_queue().prop_map(|input| Step::Queue(Box::new(input))),
        1 => (0..QUEUES).prop_map(Step::NoQueue),
        1 => prop::option::of(subsequence(vec![0, 1, 2], 0..=3)).prop_map(Step::Flavors),
        4 => Just(Step::Replan),
    ];
    prop::collection::vec(step, 1..24)
}

#[derive(Default)]
struct History {
    clusters: BTreeMap<ClusterName, ClusterInput>,
    queues: BTreeMap<QueueName, HubQueueInput>,
    flavors: Option<BTreeSet<FlavorName>>,
    planner: Planner,
}

impl History {
    fn take(&mut self, step: Step) {
        match step {
            Step::Cluster(input) => {
                self.planner.set_cluster((*input).clone());
                self.clusters.insert(input.name.clone(), *input);
            }
            Step::NoCluster(i) => {
                self.planner.remove_cluster(&cluster(i));
                self.clusters.remove(&cluster(i));
            }
            Step::Queue(input) => {
                self.planner.set_queue((*input).clone());
                self.queues.insert(input.name.clone(), *input);
            }
            Step::Flavors(some) => {
                self.flavors = some.map(|some| some.into_iter().map(flavor).collect());
                self.planner.set_flavors(self.flavors.clone());
            }
            Step::NoQueue(i) => {
                self.planner.remove_queue(&queue(i));
                self.queues.remove(&queue(i));
            }
            Step::Replan => {}
        }
    }

    fn input(&self) -> PlanInput {
        PlanInput {
            flavors: self.flavors.clone(),
            clusters: self.clusters.values().cloned().collect(),
            queues: self.queues.values().cloned().collect(),
        }
    }
}

/// Names whose plan or report differs.
fn differing(a: &(Plan, Report), b: &(Plan, Report)) -> Touched {
    let clusters = a.0.clusters.keys().chain(b.0.clusters.keys()).filter(|name| {
        a.0.clusters.get(*name) != b.0.clusters.get(*name)
            || a.1.clusters.get(*name) != b.1.clusters.get(*name)
    });
    let queues = a.0.queues.keys().chain(b.0.queues.keys());
    let queues = queues.filter(|name| a.0.queues.get(*name) != b.0.queues.get(*name));
    Touched { clusters: clusters.cloned().collect(), queues: queues.cloned().collect() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn planning_step_by_step_is_planning_at_once(steps in steps()) {
        let mut history = History::default();
        let mut before = history.planner.whole();
        for step in steps.into_iter().chain([Step::Replan]) {
            let replans = matches!(step, Step::Replan);
            history.take(step);
            if replans {
                let touched = history.planner.replan();
                let after = history.planner.whole();
                prop_assert_eq!(&after, &plan(&history.input()));
                let differing = differing(&before, &after);
                prop_assert!(differing.clusters.is_subset(&touched.clusters), "{:?} not in {:?}", differing, touched);
                prop_assert!(differing.queues.is_subset(&touched.queues), "{:?} not in {:?}", differing, touched);
                prop_assert_eq!(history.planner.replan(), Touched::default());
                prop_assert_eq!(history.planner.replan_all(), Touched::default());
                before = after;
            }
        }
    }

    #[test]
    fn the_order_of_the_input_is_of_no_consequence(steps in steps(), seed in any::<u64>()) {
        let mut history = History::default();
        for step in steps {
            history.take(step);
        }
        let input = history.input();
        let mut shuffled = input.clone();
        let by = |text: &str| text.bytes().fold(seed, |hash, byte| hash.rotate_left(7).wrapping_mul(31) ^ u64::from(byte));
        shuffled.clusters.sort_by_key(|cluster| by(cluster.name.as_str()));
        shuffled.queues.sort_by_key(|queue| by(queue.name.as_str()));
        for cluster in &mut shuffled.clusters {
            cluster.worker_queues.sort_by_key(|queue| by(queue.name.as_str()));
            if let Some(claim) = &mut cluster.claim {
                claim.assignments.sort_by_key(|a| by(&format!("{}{}", a.queue, a.flavor)));
            }
        }
        prop_assert_eq!(plan(&input), plan(&shuffled));
    }

    #[test]
    fn no_set_of_flavors_gets_more_than_its_nodes_have(input in cluster_input(), queues in prop::collection::vec(hub_queue(), 0..4)) {
        let input_of_plan = PlanInput { flavors: None, clusters: vec![input.clone()], queues };
        let (plan, _) = plan(&input_of_plan);
        let Some(capacity) = &input.capacity else { return Ok(()) };
        for r in 0..2 {
            for bits in 1_u32..8 {
                let set: BTreeSet<_> = (0..FLAVORS).filter(|f| bits & (1 << f) != 0).map(flavor).collect();
                let effective = plan.clusters[&input.name].cells.iter()
                    .filter(|(cell, _)| cell.resource == resource(r) && set.contains(&cell.flavor))
                    .map(|(_, cell)| i128::from(cell.effective.units())).sum::<i128>();
                let of_set = capacity.classes.iter().filter(|class| !class.flavors.is_disjoint(&set));
                let nodes = of_set.filter_map(|class| class.total.get(&resource(r))).map(|units| i128::from(units.units())).sum::<i128>();
                prop_assert!(effective <= nodes, "{set:?}: {effective} of {nodes}");
            }
            let of_resource = plan.clusters[&input.name].cells.iter().filter(|(cell, _)| cell.resource == resource(r));
            let sum = of_resource.map(|(_, cell)| i128::from(cell.effective.units())).sum::<i128>();
            let cap = input.claim.as_ref().and_then(|claim| claim.caps.get(&resource(r)));
            prop_assert!(cap.is_none_or(|cap| sum <= i128::from(cap.units())));
        }
        for cell in plan.clusters[&input.name].cells.values() {
            prop_assert!(cell.effective <= cell.requested);
            prop_assert!(cell.granted.is_none_or(|granted| granted <= cell.effective));
        }
    }

    #[test]
    fn what_is_planned_is_what_kueue_takes(steps in steps()) {
        let mut history = History::default();
        for step in steps {
            history.take(step);
        }
        let (plan, _) = plan(&history.input());
        for (name, queue) in &plan.queues {
            let has_cohort = history.queues[name].cohort.is_some();
            prop_assert_eq!(queue.groups.validate(has_cohort), Ok(()));
            let observed = &history.queues[name];
            for (at, cell) in &queue.cells {
                let terms: Amount = cell.terms.values().copied().sum();
                let sum = cell.base.saturating_add(terms).min(crate::capacity::MAX_QUOTA);
                // What may lag raises the hub by no more than what it is known to have had.
                let lags = |cluster: &ClusterName| {
                    let input = &history.clusters[cluster];
                    input.terms_may_lag && input.treated_as() == Mode::Frozen
                };
                let sure: Amount = cell.terms.iter().filter(|(cluster, _)| !lags(cluster)).map(|(_, units)| *units).sum();
                let unread = observed.unread.get(at).copied().unwrap_or_default();
                let sure = cell.base.saturating_add(sure).saturating_add(unread).min(crate::capacity::MAX_QUOTA);
                let seen = observed.groups.cell(at).map(|q| q.nominal.amount()).unwrap_or_default();
                let as_summed = cell.target == sum.min(sure.max(seen));
                prop_assert!(if cell.held { sum < cell.target } else { as_summed }, "{at:?} {cell:?}");
                prop_assert!(!cell.held || Some(cell.target) == observed.groups.cell(at).map(|q| q.nominal.amount()));
            }
            for of_cluster in plan.clusters.values() {
                let cells = of_cluster.cells.iter().filter(|(cell, _)| cell.queue == *name);
                let quota = |cell: &CellPlan| Quota {
                    nominal: cell.granted.unwrap_or_default(), lending: cell.lending, borrowing: cell.borrowing
                };
                let cells = cells.filter(|(_, planned)| planned.granted.is_some()).map(|(cell, planned)| {
                    (FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() }, quota(planned))
                });
                let worker = queue.groups.for_worker(&cells.collect());
                prop_assert_eq!(worker.validate(has_cohort), Ok(()));
            }
        }
    }
}
