//! What holds for any cluster.

use proptest::prelude::*;

use super::{super::quota::Cell, *};

#[derive(Clone, Debug)]
struct Queue {
    nominal: i64,
    borrowing: Option<i64>,
    lending: Option<i64>,
    cohort: Option<u8>,
    strict: bool,
    within: usize,
    reclaim: usize,
}

fn queues() -> impl Strategy<Value = Vec<Queue>> {
    let limit = || proptest::option::of(0_i64..6);
    let queue =
        (0_i64..8, limit(), limit(), proptest::option::of(0_u8..2), any::<bool>(), 0_usize..3, 0_usize..3);
    let queue = queue.prop_map(|(nominal, borrowing, lending, cohort, strict, within, reclaim)| Queue {
        nominal,
        borrowing,
        lending,
        cohort,
        strict,
        within,
        reclaim,
    });
    proptest::collection::vec(queue, 1..5)
}

fn world(queues: &[Queue], workloads: &[(usize, i64, i64)]) -> World {
    let mut world = World::new();
    world.flavor("default");
    for (at, queue) in queues.iter().enumerate() {
        let mut resource = json!({"name": "cpu", "nominalQuota": queue.nominal});
        let mut spec = json!({
            "queueingStrategy": if queue.strict { "StrictFIFO" } else { "BestEffortFIFO" },
            "preemption": {
                "withinClusterQueue": (["Never", "LowerPriority", "LowerOrNewerEqualPriority"][queue.within]),
                "reclaimWithinCohort": (["Never", "LowerPriority", "Any"][queue.reclaim]),
            },
        });
        if let Some(cohort) = queue.cohort {
            spec["cohortName"] = json!(format!("c{cohort}"));
            if let Some(limit) = queue.borrowing {
                resource["borrowingLimit"] = json!(limit);
            }
            if let Some(limit) = queue.lending {
                resource["lendingLimit"] = json!(limit.min(queue.nominal));
            }
        }
        spec["resourceGroups"] = json!([
            {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [resource]}]},
        ]);
        world.queue(&format!("q{at}"), "0", &spec);
    }
    for (at, (queue, cpu, priority)) in workloads.iter().enumerate() {
        let name = format!("w{at}");
        world.job(&name, &format!("q{}", queue % queues.len()), &cpu.to_string(), 1);
        let class = format!("p{priority}");
        world.add("WorkloadPriorityClass", json!({"metadata": {"name": class}, "value": priority}));
        let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": class}}});
        world.edit("Job", &name, |job| merge(job, &label));
    }
    world
}

/// By cohort, or by queue where there is none: what is reserved and what there is.
fn sums(world: &World, queues: &[Queue]) -> Vec<(i64, i64)> {
    let snapshot = super::super::snapshot::Snapshot::of(&world.view, world.now);
    let cell = Cell { flavor: "default".to_owned(), resource: "cpu".to_owned() };
    let used = |at: usize| -> i64 {
        let workloads = snapshot.queues[&format!("q{at}")].workloads.values();
        workloads.map(|info| info.usage().get(&cell).copied().unwrap_or(0)).sum()
    };
    let mut sums = Vec::new();
    for cohort in [Some(0), Some(1)] {
        let members = || queues.iter().enumerate().filter(|(_, queue)| queue.cohort == cohort);
        sums.push((members().map(|(at, _)| used(at)).sum(), members().map(|(_, q)| q.nominal * 1000).sum()));
    }
    for (at, queue) in queues.iter().enumerate().filter(|(_, queue)| queue.cohort.is_none()) {
        sums.push((used(at), queue.nominal * 1000));
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn no_more_is_reserved_than_there_is_and_all_comes_to_rest(
        queues in queues(),
        workloads in proptest::collection::vec((0_usize..5, 1_i64..5, 0_i64..3), 0..12),
    ) {
        let mut world = world(&queues, &workloads);
        world.node("n");
        for _ in 0..6 {
            world.run();
            for (reserved, nominal) in sums(&world, &queues) {
                prop_assert!(reserved <= nominal, "{reserved} of {nominal}");
            }
            for (at, queue) in queues.iter().enumerate().filter(|(_, queue)| queue.cohort.is_some()) {
                let status = &world.get("ClusterQueue", &format!("q{at}"))["status"];
                let borrowed = &status["flavorsReservation"][0]["resources"][0]["borrowed"];
                let borrowed = super::super::read::units("cpu", borrowed);
                prop_assert!(borrowed <= queue.borrowing.unwrap_or(i64::MAX / 1000) * 1000);
            }
            world.wait(5);
        }
    }

    #[test]
    fn whatever_fits_alone_has_run_in_the_end(
        queues in queues(),
        workloads in proptest::collection::vec((0_usize..5, 1_i64..5), 0..8),
    ) {
        // Of equal priority, and so that nobody can be preempted for ever.
        let workloads: Vec<_> = workloads.into_iter().map(|(queue, cpu)| (queue, cpu, 0)).collect();
        let queues: Vec<_> =
            queues.into_iter().map(|queue| Queue { strict: false, reclaim: 0, ..queue }).collect();
        let mut world = world(&queues, &workloads);
        world.node("n");
        for _ in 0..2 * workloads.len() + 2 {
            world.run();
            world.wait(5);
        }
        for (at, (queue, cpu, _)) in workloads.iter().enumerate() {
            if *cpu <= queues[queue % queues.len()].nominal {
                prop_assert!(world.is(&format!("job-w{at}-"), "Finished"), "w{at}");
            }
        }
        for (reserved, _) in sums(&world, &queues) {
            prop_assert_eq!(reserved, 0, "finished workloads free their quota");
        }
    }
}
