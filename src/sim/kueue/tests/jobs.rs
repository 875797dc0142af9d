//! Jobs, from creation to end.

use super::*;

/// `pkg/controller/jobs/job/job_controller_test.go`, "when job with queue name is created / admitted".
#[test]
fn a_job_gets_a_workload_runs_and_frees_its_quota() {
    let mut world = World::simple("2");
    world.node("n");
    world.job("a", "lq", "1", 2);
    world.job("b", "lq", "1", 1);
    world.run();
    let workload = world.get("Workload", "job-a").clone();
    assert_eq!(workload["metadata"]["ownerReferences"][0]["name"], "a");
    assert_eq!(workload["metadata"]["finalizers"], json!(["kueue.x-k8s.io/resource-in-use"]));
    assert_eq!(workload["spec"]["podSets"][0]["count"], 2);
    assert_eq!(workload["spec"]["queueName"], "lq");
    let job = world.get("Job", "a").clone();
    assert_eq!(job["spec"]["suspend"], false);
    assert_eq!(job["spec"]["template"]["spec"]["nodeSelector"], json!({"pool": "default"}));
    assert_eq!(
        job["spec"]["template"]["metadata"]["labels"],
        json!({
            "kueue.x-k8s.io/cluster-queue-name": "cq", "kueue.x-k8s.io/local-queue-name": "lq",
            "kueue.x-k8s.io/podset": "main",
        })
    );
    assert_eq!(job["status"]["active"], 2);
    assert_eq!(world.get("Job", "b")["spec"]["suspend"], true);
    world.wait(5);
    world.run();
    assert_eq!(
        world.says("Job", "a", "Complete"),
        "True CompletionsReached: Reached expected number of succeeded pods"
    );
    assert_eq!(
        world.says("Workload", "job-a", "Finished"),
        "True Succeeded: Reached expected number of succeeded pods"
    );
    assert!(world.get("Workload", "job-a")["metadata"]["finalizers"].is_null());
    assert!(world.is("job-b", "Admitted"), "the quota is free again");
    assert_eq!(world.get("ClusterQueue", "cq")["status"]["reservingWorkloads"], 1);
}

/// `pkg/controller/jobs/job/job_controller_test.go`, failed jobs.
#[test]
fn a_job_whose_pods_fail_fails() {
    let mut world = World::simple("2");
    world.node("n");
    world.job("a", "lq", "1", 1);
    let fails = json!({"metadata": {"annotations": {"sim.fedq.dev/exit": "3"}}, "spec": {"backoffLimit": 1}});
    world.edit("Job", "a", |job| merge(job, &fails));
    for _ in 0..3 {
        world.run();
        world.wait(5);
    }
    assert_eq!(
        world.says("Workload", "job-a", "Finished"),
        "True Failed: Job has reached the specified backoff limit"
    );
    let exit = &world.pods.values().next().unwrap()["status"]["containerStatuses"][0]["state"]["terminated"]
        ["exitCode"];
    assert_eq!(*exit, json!(3));
}

/// `pkg/controller/jobs/job/job_controller_test.go`, "suspended job with matching admitted workload …"
/// and the template's restoration.
#[test]
fn an_evicted_job_gets_its_template_back() {
    let mut world = World::simple("2");
    world.node("n");
    world.job("a", "lq", "1", 1);
    let before = world.get("Job", "a")["spec"]["template"].clone();
    world.run();
    world.edit("ClusterQueue", "cq", |queue| queue["spec"]["stopPolicy"] = json!("HoldAndDrain"));
    world.run();
    let job = world.get("Job", "a").clone();
    assert_eq!(job["spec"]["suspend"], true);
    assert_eq!(job["spec"]["template"]["spec"], before["spec"]);
    assert!(job["status"]["startTime"].is_null());
    assert_eq!(world.says("Job", "a", "Suspended"), "True JobSuspended: Job suspended");
}

/// `pkg/controller/jobframework/reconciler_test.go`, "workload is updated to match the job" and
/// "non-matching workload is deleted".
#[test]
fn a_workload_follows_its_job_while_it_waits_and_is_replaced_after() {
    let mut world = World::simple("2");
    world.job("a", "lq", "3", 1);
    world.run();
    world.edit("Job", "a", |job| job["spec"]["template"] = template("1"));
    world.run();
    assert!(world.is("job-a", "Admitted"));
    world.edit("Job", "a", |job| {
        merge(job, &json!({"spec": {"parallelism": 2, "completions": 2}}));
    });
    world.run();
    assert_eq!(world.get("Workload", "job-a")["spec"]["podSets"][0]["count"], 2);
    assert_eq!(world.view.workloads.len(), 1);
}

/// `pkg/controller/jobframework/reconciler_test.go`, finalization of orphans.
#[test]
fn a_deleted_job_frees_its_quota() {
    let mut world = World::simple("1");
    world.job("a", "lq", "1", 1);
    world.run();
    world.delete("Job", &("team".to_owned(), "a".to_owned()));
    world.run();
    assert_eq!(
        world.says("Workload", "job-a", "Finished"),
        "True OwnerNotFound: The workload's owner no longer exists"
    );
    assert!(world.get("Workload", "job-a")["metadata"]["finalizers"].is_null());
    assert_eq!(world.get("ClusterQueue", "cq")["status"]["reservingWorkloads"], 0);
}

/// `pkg/controller/jobs/job/job_controller_test.go`, "TestReclaimablePods".
#[test]
fn pods_that_ended_give_quota_back_early() {
    let mut world = World::simple("2");
    world.job("a", "lq", "1", 2);
    world.run();
    world.edit("Job", "a", |job| merge(job, &json!({"status": {"active": 1, "succeeded": 1}})));
    world.settle();
    let usage = &world.get("ClusterQueue", "cq")["status"]["flavorsReservation"][0]["resources"][0];
    assert_eq!(usage["total"], "1");
}

#[test]
fn pods_of_a_lost_node_run_elsewhere() {
    let mut world = World::simple("2");
    world.node("n1");
    world.job("a", "lq", "1", 1);
    world.run();
    world.delete("Node", &(String::new(), "n1".to_owned()));
    world.run();
    assert_eq!(world.pods.values().next().unwrap()["status"]["phase"], "Pending");
    assert_eq!(world.get("Job", "a")["status"]["failed"], 1);
    world.node("n2");
    world.run();
    let pod = world.pods.values().next().unwrap();
    assert_eq!((&pod["spec"]["nodeName"], &pod["status"]["phase"]), (&json!("n2"), &json!("Running")));
    assert_eq!(world.get("Job", "a")["status"]["failed"], 1, "it stays counted");
}

/// `pkg/controller/job/job_controller_test.go` of Kubernetes, pod failure policies.
#[test]
fn a_job_that_is_to_fail_with_an_evicted_pod_says_so_when_the_pod_is_gone() {
    let mut world = World::simple("2");
    world.node("n");
    world.job("a", "lq", "1", 2);
    let policy = json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "Else", "status": "True"}]},
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]});
    world.edit("Job", "a", |job| merge(job, &json!({"spec": {"podFailurePolicy": policy}})));
    world.run();
    let key = world.pods.keys().next().unwrap().clone();
    let evicted = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    world.edit("Pod", &key.1, |pod| merge(pod, &evicted));
    world.run();
    assert!(world.pods.is_empty(), "the other one went with its Job");
    assert_eq!(
        world.says("Job", "a", "Failed"),
        format!(
            "True PodFailurePolicy: Pod team/{} has condition DisruptionTarget matching FailJob rule at index 1",
            key.1
        )
    );
    assert!(world.is("job-a", "Finished"));
}

#[test]
fn a_job_without_a_queue_just_runs() {
    let mut world = World::new();
    world.node("n");
    world.add(
        "Job",
        json!({"metadata": {"namespace": "team", "name": "free"}, "spec": {"template": template("1")}}),
    );
    world.run();
    assert!(world.view.workloads.is_empty());
    assert_eq!(world.get("Job", "free")["status"]["active"], 1);
    let view =
        JobsView { jobs: world.view.jobs.clone(), pods: world.pods.clone(), nodes: world.nodes.clone() };
    assert_eq!(super::super::next_end(&view), Some(world.now + SignedDuration::from_secs(5)));
}

/// `pkg/controller/jobframework/reconciler.go`, ensureOneWorkload with a prebuilt workload.
#[test]
fn a_job_with_a_workload_made_for_it_takes_that_one() {
    let mut world = World::simple("2");
    world.node("n");
    let labels = json!({"metadata": {"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "made"}}});
    world.job("a", "lq", "1", 1);
    world.run();
    let spec = world.get("Workload", "job-a")["spec"].clone();
    world.job("b", "lq", "1", 1);
    world.edit("Job", "b", |job| merge(job, &labels));
    world.run();
    assert_eq!(world.get("Job", "b")["spec"]["suspend"], true, "its workload is not there yet");
    assert_eq!(world.table("Workload").len(), 1, "and none is made");
    let made = json!({"metadata": {"namespace": "team", "name": "made"}, "spec": spec});
    world.add("Workload", made);
    world.run();
    assert_eq!(world.get("Workload", "made")["metadata"]["ownerReferences"][0]["name"], "b");
    assert_eq!(world.get("Job", "b")["spec"]["suspend"], false);
    // Somebody else's is not taken, and one that says something else is of no use.
    world.job("c", "lq", "1", 1);
    world.edit("Job", "c", |job| merge(job, &labels));
    world.run();
    assert_eq!(world.get("Job", "c")["spec"]["suspend"], true);
    world.edit("Job", "b", |job| merge(job, &json!({"spec": {"parallelism": 2, "completions": 2}})));
    world.run();
    assert_eq!(
        world.says("Workload", "made", "Finished"),
        "True OutOfSync: The prebuilt workload is out of sync with its user job"
    );
    assert_eq!(world.get("Job", "b")["spec"]["suspend"], true);
}
