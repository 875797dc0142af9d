//! What queues say, and what holds on to what.

use super::*;

/// `pkg/cache/scheduler/cache_test.go`, "TestClusterQueueUsage", "cluster queue uses resources in
/// cohort / borrows".
#[test]
fn usage_says_what_is_borrowed() {
    let mut world = World::new();
    world.flavor("default");
    world.queue("a", "2", &json!({"cohortName": "all"}));
    world.queue("b", "2", &json!({"cohortName": "all"}));
    for name in ["w1", "w2", "w3", "w4", "w5"] {
        world.workload(name, "a", "1", 0);
    }
    world.settle();
    let used = json!([{"name": "default", "resources": [{"name": "cpu", "total": "4", "borrowed": "2"}]}]);
    let status = &world.get("ClusterQueue", "a")["status"];
    assert_eq!((&status["flavorsReservation"], &status["flavorsUsage"]), (&used, &used));
    assert_eq!(
        (&status["pendingWorkloads"], &status["reservingWorkloads"], &status["admittedWorkloads"]),
        (&json!(1), &json!(4), &json!(4))
    );
    let status = &world.get("LocalQueue", "a")["status"];
    assert_eq!(
        status["flavorsUsage"],
        json!([{"name": "default", "resources": [{"name": "cpu", "total": "4"}]}])
    );
    assert_eq!(status["pendingWorkloads"], 1);
    assert_eq!(world.says("LocalQueue", "a", "Active"), "True Ready: Can submit new workloads to localQueue");
    let free = json!([{"name": "default", "resources": [{"name": "cpu", "total": "0", "borrowed": "0"}]}]);
    assert_eq!(world.get("ClusterQueue", "b")["status"]["flavorsUsage"], free);
}

/// `pkg/cache/scheduler/clusterqueue_test.go`, "TestClusterQueueUpdateWithFlavors" and
/// "TestClusterQueueReadinessWithAdmissionChecks…".
#[test]
fn a_queue_says_why_it_is_inactive() {
    let mut world = World::new();
    world.queue(
        "cq",
        "5",
        &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "x"}, {"name": "y"}]}}),
    );
    world.add("AdmissionCheck", json!({"metadata": {"name": "y"}, "spec": {"controllerName": "c"}}));
    world.settle();
    assert_eq!(
        world.says("ClusterQueue", "cq", "Active"),
        "False FlavorNotFound: Can't admit new workloads: references missing ResourceFlavor(s): default, references missing AdmissionCheck(s): x, references inactive AdmissionCheck(s): y."
    );
    assert_eq!(
        world.says("LocalQueue", "lq", "Active"),
        "False ClusterQueueIsInactive: Can't submit new workloads to clusterQueue"
    );
    world.flavor("default");
    world.edit("ClusterQueue", "cq", |queue| {
        merge(queue, &json!({"spec": {"admissionChecksStrategy": null}}));
    });
    world.settle();
    assert_eq!(world.says("ClusterQueue", "cq", "Active"), "True Ready: Can admit new workloads");
    world.delete("LocalQueue", &("team".to_owned(), "lq".to_owned()));
    world.add(
        "LocalQueue",
        json!({"metadata": {"namespace": "team", "name": "l"}, "spec": {"clusterQueue": "gone"}}),
    );
    world.settle();
    assert_eq!(
        world.says("LocalQueue", "l", "Active"),
        "False ClusterQueueDoesNotExist: Can't submit new workloads to clusterQueue"
    );
}

/// `test/integration/singlecluster/controller/core/clusterqueue_controller_test.go` and
/// `resourceflavor_controller_test.go`, deletion while in use.
#[test]
fn what_is_in_use_is_not_deleted() {
    let mut world = World::simple("2");
    world.workload("a", "lq", "1", 0);
    world.settle();
    let (queue, flavor) = ((String::new(), "cq".to_owned()), (String::new(), "default".to_owned()));
    world.delete("ResourceFlavor", &flavor);
    world.delete("ClusterQueue", &queue);
    world.settle();
    assert_eq!(
        world.says("ClusterQueue", "cq", "Active"),
        "False Terminating: Can't admit new workloads; clusterQueue is terminating"
    );
    assert!(world.view.flavors.contains_key(&flavor));
    world.delete("Workload", &("team".to_owned(), "a".to_owned()));
    world.settle();
    assert!(!world.view.cluster_queues.contains_key(&queue));
    assert!(!world.view.flavors.contains_key(&flavor));
}

/// Kueue's #5176: quota that shrinks below what is used evicts nobody.
#[test]
fn shrinking_quota_evicts_nobody() {
    let mut world = World::simple("4");
    for name in ["a", "b", "c"] {
        world.workload(name, "lq", "1", 0);
    }
    world.settle();
    world.edit("ClusterQueue", "cq", |queue| {
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = json!("1");
    });
    world.workload("d", "lq", "1", 0);
    world.settle();
    assert_eq!(world.admitted(), ["a", "b", "c"]);
}
