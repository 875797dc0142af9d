//! Who is admitted, with which flavor, and what the others are told.

use super::*;

/// `pkg/scheduler/scheduler_test.go`, "workload fits in single clusterQueue, with check state ready".
#[test]
fn a_workload_that_fits_is_admitted() {
    let mut world = World::simple("5");
    world.workload("a", "lq", "2", 0);
    world.settle();
    assert_eq!(
        world.says("Workload", "a", "QuotaReserved"),
        "True QuotaReserved: Quota reserved in ClusterQueue cq"
    );
    assert_eq!(world.says("Workload", "a", "Admitted"), "True Admitted: The workload is admitted");
    assert_eq!(
        world.get("Workload", "a")["status"]["admission"],
        json!({
            "clusterQueue": "cq",
            "podSetAssignments": [
                {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "2"}, "count": 1},
            ],
        })
    );
}

/// `pkg/scheduler/scheduler_test.go`, "workload exceeds lending limit when borrow in cohort" for the
/// message's form.
#[test]
fn a_workload_that_does_not_fit_is_told_why() {
    let mut world = World::simple("5");
    world.workload("a", "lq", "4", 0);
    world.workload("b", "lq", "2", 0);
    world.workload("c", "lq", "6", 0);
    world.settle();
    assert_eq!(
        world.says("Workload", "b", "QuotaReserved"),
        "False Pending: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
    );
    assert_eq!(
        world.says("Workload", "c", "QuotaReserved"),
        "False Pending: couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, previously considered podsets requests (0) + current podset request (6) > maximum capacity (5)"
    );
    assert_eq!(
        world.get("Workload", "b")["status"]["resourceRequests"],
        json!([{"name": "main", "resources": {"cpu": "2"}}])
    );
    assert_eq!(world.says("Workload", "b", "Admitted"), "");
}

/// `pkg/cache/queue/cluster_queue_test.go`, "TestFIFOClusterQueue": priority, then age.
#[test]
fn higher_priority_goes_first_and_then_the_older() {
    let mut world = World::simple("2");
    for (name, priority) in [("old", 0), ("older-high", 5), ("high", 5)] {
        world.workload(name, "lq", "1", priority);
    }
    world.settle();
    assert_eq!(world.admitted(), ["high", "older-high"]);
}

/// `test/integration/singlecluster/scheduler/scheduler_test.go`, "Should schedule workloads by their
/// priority strictly in StrictFIFO" and "… BestEffortFIFO".
#[test]
fn a_strict_queue_waits_for_its_head() {
    for (strategy, admitted) in [("StrictFIFO", vec!["a"]), ("BestEffortFIFO", vec!["a", "c"])] {
        let mut world = World::new();
        world.flavor("default");
        world.queue("cq", "3", &json!({"queueingStrategy": strategy}));
        for (name, cpu) in [("a", "2"), ("b", "2"), ("c", "1")] {
            world.workload(name, "lq", cpu, 0);
        }
        world.settle();
        assert_eq!(world.admitted(), admitted, "{strategy}");
    }
}

/// `pkg/scheduler/flavorassigner/flavorassigner_test.go`, "multiple flavors, fits while skipping …".
#[test]
fn flavors_are_tried_in_order() {
    let mut world = World::new();
    world.flavor("default");
    world.flavor("spot");
    let flavor =
        |name: &str, cpu: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]});
    let group =
        json!({"coveredResources": ["cpu"], "flavors": [flavor("default", "1"), flavor("spot", "4")]});
    world.queue("cq", "0", &json!({"resourceGroups": [group]}));
    world.workload("a", "lq", "1", 0);
    world.workload("b", "lq", "1", 0);
    world.settle();
    let mut flavor =
        |name| world.get("Workload", name)["status"]["admission"]["podSetAssignments"][0]["flavors"].clone();
    assert_eq!(flavor("a"), json!({"cpu": "default"}));
    assert_eq!(flavor("b"), json!({"cpu": "spot"}));
}

/// `pkg/scheduler/scheduler_test.go`, "assign to different cohorts" and "can borrow if cohort was
/// assigned"; `pkg/cache/scheduler/snapshot_test.go` for lending limits.
#[test]
fn a_cohort_lends_within_its_limits() {
    let limits = |borrowing: &str, lending: &str| {
        let mut world = World::new();
        world.flavor("default");
        let group = |limit: Value| {
            let mut resource = json!({"name": "cpu", "nominalQuota": "5"});
            merge(&mut resource, &limit);
            json!({"cohortName": "all", "resourceGroups": [
                {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [resource]}]},
            ]})
        };
        let limit = |field: &str, value: &str| {
            if value.is_empty() { json!({}) } else { json!({field: value}) }
        };
        world.queue("a", "0", &group(limit("borrowingLimit", borrowing)));
        world.queue("b", "0", &group(limit("lendingLimit", lending)));
        for at in 0..12 {
            world.workload(&format!("w{at:02}"), "a", "1", 0);
        }
        world.settle();
        world.admitted().len()
    };
    assert_eq!(limits("", ""), 10);
    assert_eq!(limits("2", ""), 7);
    assert_eq!(limits("", "3"), 8);
    assert_eq!(limits("1", "3"), 6);
    assert_eq!(limits("0", ""), 5);
}

/// `pkg/cache/scheduler/snapshot_test.go`, hierarchical cohorts: a Cohort's own quota is its members'
/// to borrow, and its borrowing limit binds the subtree.
#[test]
fn cohorts_nest() {
    let mut world = World::new();
    world.flavor("default");
    world.queue("a", "1", &json!({"cohortName": "left"}));
    world.queue("b", "4", &json!({"cohortName": "right"}));
    let own = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1", "borrowingLimit": "2"}]},
    ]}]);
    let spec = json!({"parentName": "root", "resourceGroups": own});
    world.add("Cohort", json!({"metadata": {"name": "left"}, "spec": spec}));
    world.add("Cohort", json!({"metadata": {"name": "right"}, "spec": {"parentName": "root"}}));
    for at in 0..6 {
        world.workload(&format!("w{at}"), "a", "1", 0);
    }
    world.settle();
    assert_eq!(world.admitted().len(), 4, "1 of its own, 1 of the cohort's, 2 borrowed");
}

/// `test/integration/singlecluster/scheduler/scheduler_test.go`, cohort cycles.
#[test]
fn cohorts_in_a_ring_admit_nothing() {
    let mut world = World::new();
    world.flavor("default");
    world.queue("a", "1", &json!({"cohortName": "x"}));
    for (name, parent) in [("x", "y"), ("y", "x")] {
        world.add("Cohort", json!({"metadata": {"name": name}, "spec": {"parentName": parent}}));
    }
    world.workload("w", "a", "1", 0);
    world.settle();
    assert!(world.admitted().is_empty());
}

/// `pkg/scheduler/scheduler_test.go`, "workload should not fit in clusterQueue because namespace
/// selector mismatch".
#[test]
fn the_namespace_has_to_be_selected() {
    let mut world = World::new();
    world.flavor("default");
    world.queue("cq", "5", &json!({"namespaceSelector": {"matchLabels": {"dep": "sales"}}}));
    world.workload("a", "lq", "1", 0);
    world.settle();
    assert_eq!(
        world.says("Workload", "a", "QuotaReserved"),
        "False Pending: workload namespace doesn't match ClusterQueue selector"
    );
    world.edit("Namespace", "team", |namespace| {
        merge(namespace, &json!({"metadata": {"labels": {"dep": "sales"}}}));
    });
    world.settle();
    assert!(world.is("a", "Admitted"));
}

/// `pkg/workload/admissionchecks_test.go`, "check lost" and "reservation …": two phases.
#[test]
fn admission_waits_for_the_checks() {
    let mut world = World::new();
    world.flavor("default");
    let active = json!({"conditions": [{"type": "Active", "status": "True"}]});
    world.add(
        "AdmissionCheck",
        json!({"metadata": {"name": "budget"}, "spec": {"controllerName": "c"}, "status": active}),
    );
    let checks = json!({"admissionChecks": [{"name": "budget"}]});
    world.queue("cq", "5", &json!({"admissionChecksStrategy": checks}));
    world.workload("a", "lq", "1", 0);
    world.settle();
    assert!(world.is("a", "QuotaReserved") && !world.is("a", "Admitted"));
    let check = world.get("Workload", "a")["status"]["admissionChecks"][0].clone();
    assert_eq!((&check["name"], &check["state"]), (&json!("budget"), &json!("Pending")));
    world
        .edit("Workload", "a", |workload| workload["status"]["admissionChecks"][0]["state"] = json!("Ready"));
    world.settle();
    assert!(world.is("a", "Admitted"));
}

/// `pkg/workload/resources_test.go` and `pkg/controller/core/workload_controller_test.go`: queues that
/// are not there.
#[test]
fn what_waits_in_no_queue_is_told() {
    let mut world = World::simple("5");
    world.workload("a", "nowhere", "1", 0);
    world.add(
        "LocalQueue",
        json!({
            "metadata": {"namespace": "team", "name": "loose"}, "spec": {"clusterQueue": "gone"},
        }),
    );
    world.workload("b", "loose", "1", 0);
    world.settle();
    assert_eq!(
        world.says("Workload", "a", "QuotaReserved"),
        "False Inadmissible: LocalQueue nowhere doesn't exist"
    );
    assert_eq!(
        world.says("Workload", "b", "QuotaReserved"),
        "False Inadmissible: ClusterQueue gone doesn't exist"
    );
}
