//! Preemption, stops, deactivation.

use super::*;

/// `pkg/scheduler/preemption/preemption_test.go`, "preempt lowest priority".
#[test]
fn a_higher_priority_takes_the_quota_of_a_lower() {
    let mut world = World::new();
    world.flavor("default");
    world.node("n");
    world.queue("cq", "4", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    for (name, value) in [("low", 1), ("mid", 2), ("high", 3)] {
        world.add("WorkloadPriorityClass", json!({"metadata": {"name": name}, "value": value}));
    }
    for (name, cpu) in [("low", "2"), ("mid", "2"), ("high", "2")] {
        world.job(name, "lq", cpu, 1);
        let label = json!({"metadata": {
            "labels": {"kueue.x-k8s.io/priority-class": name}, "annotations": {"sim.fedq.dev/seconds": "600"},
        }});
        world.edit("Job", name, |job| merge(job, &label));
        world.run();
    }
    assert!(world.is("job-high", "Admitted") && world.is("job-mid", "Admitted"));
    let (uid, job_uid) = {
        let preemptor = &world.get("Workload", "job-high")["metadata"];
        (preemptor["uid"].clone(), preemptor["labels"]["kueue.x-k8s.io/job-uid"].clone())
    };
    assert_eq!(
        world.says("Workload", "job-low", "Preempted"),
        format!(
            "True InClusterQueue: Preempted to accommodate a workload (UID: {}, JobUID: {}) due to prioritization in the ClusterQueue; preemptor path: /cq; preemptee path: /cq",
            uid.as_str().unwrap(),
            job_uid.as_str().unwrap(),
        )
    );
    assert!(
        world.says("Workload", "job-low", "Evicted").starts_with("True Preempted: Preempted to accommodate")
    );
    assert!(world.says("Workload", "job-low", "Requeued").starts_with("True Preempted: "));
    assert!(!world.is("job-low", "QuotaReserved"));
    assert_eq!(world.get("Job", "low")["spec"]["suspend"], true);
}

/// `pkg/scheduler/preemption/preemption_test.go`, "no preemption for low priority" and "not enough low
/// priority workloads".
#[test]
fn without_a_policy_nobody_is_preempted() {
    let mut world = World::simple("2");
    world.workload("low", "lq", "2", 0);
    world.settle();
    world.workload("high", "lq", "2", 9);
    world.settle();
    assert_eq!(world.admitted(), ["low"]);
    assert_eq!(world.says("Workload", "low", "Evicted"), "");
}

/// `pkg/scheduler/preemption/preemption_test.go`, "reclaim quota from borrower".
#[test]
fn a_queue_reclaims_what_it_lent() {
    let mut world = World::new();
    world.flavor("default");
    let reclaim = json!({"reclaimWithinCohort": "Any"});
    world.queue("a", "2", &json!({"cohortName": "all", "preemption": reclaim}));
    world.queue("b", "2", &json!({"cohortName": "all"}));
    for name in ["b1", "b2", "b3", "b4"] {
        world.workload(name, "b", "1", 100);
    }
    world.settle();
    assert_eq!(world.admitted().len(), 4);
    world.workload("a1", "a", "1", 0);
    world.settle();
    let evicted: Vec<_> =
        ["b1", "b2", "b3", "b4"].into_iter().filter(|name| world.is(name, "Evicted")).collect();
    assert_eq!(evicted.len(), 1, "one is enough: {evicted:?}");
    let said = world.says("Workload", evicted[0], "Preempted");
    assert!(
        said.contains("InCohortReclamation")
            && said.contains("preemptor path: /all/a; preemptee path: /all/b"),
        "{said}"
    );
    assert_eq!(
        world.says("Workload", "a1", "QuotaReserved"),
        "False Pending: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed. Pending the preemption of 1 workload(s)"
    );
}

/// `test/integration/singlecluster/controller/core/workload_controller_test.go`, stop policies:
/// Hold lets run what runs, HoldAndDrain evicts.
#[test]
fn a_stopped_cluster_queue_holds_or_drains() {
    let mut world = World::simple("2");
    world.node("n");
    world.job("a", "lq", "1", 1);
    world.edit("Job", "a", |job| {
        merge(job, &json!({"metadata": {"annotations": {"sim.fedq.dev/seconds": "600"}}}));
    });
    world.run();
    let stop = |world: &mut World, policy: &str| {
        world.edit("ClusterQueue", "cq", |queue| queue["spec"]["stopPolicy"] = json!(policy));
        world.run();
    };
    stop(&mut world, "Hold");
    world.workload("b", "lq", "1", 0);
    world.run();
    assert!(world.is("job-a", "Admitted") && !world.is("b", "QuotaReserved"));
    assert_eq!(
        world.says("ClusterQueue", "cq", "Active"),
        "False Stopped: Can't admit new workloads: is stopped."
    );
    assert_eq!(
        world.says("Workload", "b", "QuotaReserved"),
        "False Inadmissible: ClusterQueue cq is inactive"
    );
    stop(&mut world, "HoldAndDrain");
    assert_eq!(
        world.says("Workload", "job-a", "Evicted"),
        "True ClusterQueueStopped: The ClusterQueue is stopped"
    );
    assert_eq!(
        world.says("Workload", "job-a", "Requeued"),
        "False ClusterQueueStopped: The ClusterQueue is stopped"
    );
    assert!(!world.is("job-a", "QuotaReserved"));
    assert!(world.pods.is_empty(), "its pods are gone");
    stop(&mut world, "None");
    assert_eq!(
        world.says("Workload", "job-a", "Requeued"),
        "True ClusterQueueRestarted: The ClusterQueue was restarted after being stopped"
    );
    assert!(world.is("job-a", "Admitted") && world.is("b", "Admitted"));
    assert!(world.says("Workload", "job-a", "Evicted").starts_with("False QuotaReserved: Previously: "));
}

/// `test/integration/singlecluster/controller/core/localqueue_controller_test.go`, stop policies.
#[test]
fn a_stopped_local_queue_holds_or_drains() {
    let mut world = World::simple("2");
    world.job("a", "lq", "1", 1);
    world.edit("Job", "a", |job| {
        merge(job, &json!({"metadata": {"annotations": {"sim.fedq.dev/seconds": "600"}}}));
    });
    world.run();
    world.edit("LocalQueue", "lq", |queue| queue["spec"]["stopPolicy"] = json!("HoldAndDrain"));
    world.run();
    assert_eq!(
        world.says("Workload", "job-a", "Evicted"),
        "True LocalQueueStopped: The LocalQueue is stopped"
    );
    assert_eq!(world.says("LocalQueue", "lq", "Active"), "False Stopped: LocalQueue is stopped");
    assert!(!world.is("job-a", "QuotaReserved"));
    world.edit("LocalQueue", "lq", |queue| queue["spec"]["stopPolicy"] = json!("None"));
    world.run();
    assert!(world.is("job-a", "Admitted"));
}

/// `pkg/controller/core/workload_controller_test.go`, "should set the Evicted condition with
/// Deactivated reason …".
#[test]
fn a_deactivated_workload_gives_its_quota_back() {
    let mut world = World::simple("1");
    world.job("a", "lq", "1", 1);
    world.run();
    world.workload("b", "lq", "1", 0);
    world.run();
    assert!(!world.is("b", "QuotaReserved"));
    let name = world.get("Workload", "job-a")["metadata"]["name"].as_str().unwrap().to_owned();
    world.edit("Workload", &name, |workload| workload["spec"]["active"] = json!(false));
    world.run();
    assert_eq!(world.says("Workload", "job-a", "Evicted"), "True Deactivated: The workload is deactivated");
    assert!(!world.is("job-a", "QuotaReserved") && world.is("b", "Admitted"));
    world.edit("Workload", &name, |workload| workload["spec"]["active"] = json!(true));
    world.run();
    assert_eq!(world.says("Workload", "job-a", "Requeued"), "True Reactivated: The workload was reactivated");
}

/// `pkg/controller/core/workload_controller_test.go`, "admission check retry" and "rejected".
#[test]
fn a_check_may_send_back_or_reject() {
    for (state, evicted) in [
        ("Retry", "True AdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"budget\" (full)"),
        (
            "Rejected",
            "True DeactivatedDueToAdmissionCheck: The workload is deactivated due to AdmissionCheck in Rejected state: \"budget\" (full)",
        ),
    ] {
        let mut world = World::new();
        world.flavor("default");
        let active = json!({"conditions": [{"type": "Active", "status": "True"}]});
        world.add(
            "AdmissionCheck",
            json!({"metadata": {"name": "budget"}, "spec": {"controllerName": "c"}, "status": active}),
        );
        world.queue(
            "cq",
            "5",
            &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}),
        );
        world.workload("a", "lq", "1", 0);
        world.settle();
        world.edit("Workload", "a", |workload| {
            merge(&mut workload["status"]["admissionChecks"][0], &json!({"state": state, "message": "full"}));
        });
        world.settle();
        assert_eq!(world.says("Workload", "a", "Evicted"), evicted);
        let check = &world.get("Workload", "a")["status"]["admissionChecks"][0];
        assert_eq!(check["message"], json!(format!("Reset to Pending after eviction. Previously: {state}")));
    }
}

/// `pkg/controller/core/workload_controller_test.go`, "should evict … maximum execution time".
#[test]
fn a_workload_runs_no_longer_than_it_may() {
    let mut world = World::simple("5");
    world.workload("a", "lq", "1", 0);
    world.edit("Workload", "a", |workload| workload["spec"]["maximumExecutionTimeSeconds"] = json!(30));
    world.settle();
    world.wait(31);
    world.settle();
    assert_eq!(
        world.says("Workload", "a", "Evicted"),
        "True DeactivatedDueToMaximumExecutionTimeExceeded: The workload is deactivated due to exceeding the maximum execution time"
    );
    assert_eq!(world.get("Workload", "a")["spec"]["active"], false);
}
