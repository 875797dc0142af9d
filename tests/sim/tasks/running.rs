//! Where tasks run, and when they move.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::bed::{WITHIN, gpu_node, wait};
use super::stage::{Stage, of_task, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_and_four_nodes_run_where_there_is_room_to_their_end() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let one = stage.submit(3600, "name: train\nrun: python train.py\nresources: {accelerators: 6}\n").await;
    let running = stage.reaches(&one, "running").await;
    assert_eq!(running["cluster"], "one", "only there it fits");
    assert!(running["pendingReason"].is_null(), "{running:#}");
    let four = stage.submit(1, "run: x\nnum_nodes: 4\nresources: {accelerators: 1}\n").await;
    let ended = stage.reaches(&four, "succeeded").await;
    assert_eq!(ended["cluster"], "two", "the other one is full");
    assert_eq!(ended["nodes"]["succeeded"], 4);
    assert_eq!(of_task(stage.worker("two"), "Job", &four).len(), 1, "one Job stands for all four nodes");
    assert_eq!(of_task(stage.worker("two"), "Workload", &four).len(), 1);
    assert_eq!(stage.status(&one).await["phase"], "running");
    stage.fedq(&["task", "stop", &one, "--yes"], "").await.unwrap();
    let told = ["Submitted", "Chosen", "Created"];
    assert_eq!(stage.reasons(&one).await[..3], told);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_with_a_device_for_its_network_goes_where_a_queue_has_some_and_its_pods_have_it() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let task = |spec: Value| {
        let annotations = json!({"sim.fedq.dev/seconds": "600"});
        let config = json!({"kubernetes": {"custom_metadata": {"annotations": annotations}, "pod_config": {"spec": spec}}});
        json!({"run": "x", "num_nodes": 2, "resources": {"accelerators": 1}, "config": config}).to_string()
    };
    let submit = ["task", "submit", "-", "-o", "json"];
    let fast = task(json!({"containers": [{
        "resources": {"limits": {"rdma/hca": 1}}, "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    }]}));
    let refused = stage.fedq(&submit, &fast).await.unwrap_err();
    assert!(refused.contains("rdma/hca"), "no queue has any: {refused}");
    let refused = stage.fedq(&submit, &task(json!({"hostNetwork": true}))).await.unwrap_err();
    for part in [
        "config.kubernetes.pod_config.spec.hostNetwork",
        "line 1, column",
        "tasks.tenants[].podConfig.hostNetwork",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }

    let two = stage.worker("two");
    let mut node = gpu_node("fast", 4);
    for amounts in ["capacity", "allocatable"] {
        node["status"][amounts]["rdma/hca"] = json!("4");
    }
    two.put(node).await.unwrap();
    let resources = json!({"gpu": "4", "rdma/hca": "4"});
    let assignment = json!({"clusterQueueName": "team", "flavor": "gpus", "resources": resources});
    let patch = json!({"spec": {"resourceAssignments": [assignment]}});
    stage.bed.hub.merge("ClusterResourceClaim", "two-resource-claim", patch).await.unwrap();
    wait("a queue with devices", two, || {
        let queue = two.get("ClusterQueue", "", "team").expect("the queue");
        let resources = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"].as_array();
        let mut resources = resources.into_iter().flatten();
        resources.any(|one| one["name"] == "rdma/hca" && one["nominalQuota"] == "4")
    })
    .await;
    let began = Instant::now();
    let id = loop {
        match stage.fedq(&submit, &fast).await {
            Ok(told) => {
                break serde_json::from_str::<Value>(&told).unwrap()["id"].as_str().unwrap().to_owned();
            }
            Err(error) => assert!(began.elapsed() < WITHIN, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(stage.reaches(&id, "running").await["cluster"], "two");
    let pods = of_task(two, "Pod", &id);
    assert_eq!(pods.len(), 2);
    for pod in pods {
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"]["rdma/hca"], "1");
        assert_eq!(container["securityContext"], json!({"capabilities": {"add": ["IPC_LOCK"]}}));
    }
    let admitted = &of_task(two, "Workload", &id)[0]["status"]["admission"]["podSetAssignments"][0];
    assert_eq!(
        (&admitted["resourceUsage"]["rdma/hca"], &admitted["flavors"]["rdma/hca"]),
        (&json!("2"), &json!("gpus")),
        "Kueue counts it: {admitted:#}"
    );
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fits_nowhere_is_refused_with_each_clusters_reason() {
    let stage = Stage::set(&[("one", 8), ("two", 4)]).await;
    let refused = stage.try_submit(1, "run: x\nresources: {accelerators: 9}\n", &[]).await.unwrap_err();
    for reason in ["one", "at most 8", "two", "at most 4", "needs 9"] {
        assert!(refused.contains(reason), "{reason}: {refused}");
    }
    let told = stage.fedq(&["task", "list", "-o", "json"], "").await.unwrap();
    assert!(!told.contains("\"phase\""), "nothing was accepted: {told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_moves_to_a_cluster_that_gets_room_and_is_never_on_both() {
    let stage = Stage::set_with(&[("one", 8), ("two", 1)], "", ", spillAfter: 2s").await;
    let first = stage.submit(3600, "run: x\nresources: {accelerators: 8}\n").await;
    stage.reaches(&first, "running").await;
    let second = stage.submit(1, "run: x\nnum_nodes: 2\nresources: {accelerators: 4}\n").await;
    let queued = stage.reaches(&second, "queued").await;
    assert_eq!(queued["cluster"], "one", "the other can never hold it");
    stage.waits_because(&second, "waits for quota on one: ").await;

    stage.bed.assign(stage.worker("two"), "8").await;
    let ended = stage.reaches(&second, "succeeded").await;
    assert_eq!((&ended["cluster"], &ended["epoch"]), (&json!("two"), &json!(2)));
    let reasons = stage.reasons(&second).await;
    let position = |reason: &str| reasons.iter().position(|one| one == reason).unwrap();
    assert!(position("Spilled") < position("Withdrawn"), "{reasons:?}");
    assert_eq!(stage.ever(&second, "Pod").len(), 2, "it ran once, and there only");
    assert!(of_task(stage.worker("one"), "Job", &second).is_empty());
    stage.fedq(&["task", "stop", &first, "--yes"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preempted_task_is_shown_as_queued_again_and_runs_again() {
    let stage = Stage::set(&[("one", 8)]).await;
    let class = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
        "metadata": {"name": "urgent"}, "value": 1000,
    });
    stage.bed.hub.put(class).await.unwrap();
    let preemption = json!({"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}});
    while let Err(refusal) = stage.bed.hub.merge("ClusterQueue", "team", preemption.clone()).await {
        assert_eq!(refusal.reason, "Conflict", "{}", refusal.message);
    }
    let worker = stage.worker("one");
    wait("the policy and the class on the worker", worker, || {
        let queue = worker.get("ClusterQueue", "", "team");
        let preempts =
            queue.is_some_and(|queue| queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority");
        preempts && worker.get("WorkloadPriorityClass", "", "urgent").is_some()
    })
    .await;
    let low = stage.submit(3600, "run: x\nresources: {accelerators: 8}\n").await;
    stage.reaches(&low, "running").await;
    let high = stage.submit(3600, "run: x\nresources: {accelerators: 8, priority_class: urgent}\n").await;
    stage.reaches(&high, "running").await;
    stage.reaches(&low, "queued").await;
    stage.fedq(&["task", "stop", &high, "--yes"], "").await.unwrap();
    stage.reaches(&low, "running").await;
    let reasons = stage.reasons(&low).await;
    assert!(reasons.iter().any(|reason| reason == "Evicted"), "{reasons:?}");
    assert!(!reasons.iter().any(|reason| reason == "Failed"), "{reasons:?}");
    assert_eq!(stage.status(&low).await["restarts"], 0);
    stage.fedq(&["task", "stop", &low, "--yes"], "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_finished_task_leaves_goes_after_a_while_and_foreign_objects_stay() {
    let stage = Stage::set_with(&[("one", 8)], "", ", keepObjects: 1s").await;
    let worker = stage.worker("one");
    // It looks like ours in all but the label of the hub.
    let foreign = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "foreign", "namespace": "team", "labels": {"skypilot-task": "true", "task-id": "zzzzzzzz"},
        },
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
        }}},
    });
    worker.put(foreign).await.unwrap();
    let id = stage.submit(1, "run: x\nnum_nodes: 2\nresources: {accelerators: 1}\n").await;
    stage.reaches(&id, "succeeded").await;
    stage.is_gone(&id).await;
    assert_eq!(stage.status(&id).await["phase"], "succeeded", "its history stays");
    assert!(worker.get("Job", "team", "foreign").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_on_the_worker_while_it_runs_and_nowhere_afterwards() {
    let stage = Stage::set_with(&[("one", 8)], "", ", keepObjects: 1s").await;
    let id =
        stage.submit(3600, "run: x\nsecrets: {TOKEN: hush-hush-42}\nresources: {accelerators: 1}\n").await;
    stage.reaches(&id, "running").await;
    let of_worker = |kind: &str| of_task(stage.worker("one"), kind, &id);
    assert_eq!(of_worker("Secret").len(), 1);
    let pod = of_worker("Pod")[0].to_string();
    assert!(pod.contains("secretKeyRef") && !pod.contains("hush-hush-42"), "{pod}");
    stage.fedq(&["task", "stop", &id, "--yes"], "").await.unwrap();
    stage.reaches(&id, "stopped").await;
    stage.is_gone(&id).await;
    let worker = stage.worker("one");
    wait("its Secret to go with its Job", worker, || of_task(worker, "Secret", &id).is_empty()).await;
    let hub = &stage.bed.hub;
    wait("the hub's to go too", hub, || of_task(hub, "Secret", &id).is_empty()).await;
    for file in ["fedq.db", "fedq.db-wal", "fedqd.log"] {
        let text =
            String::from_utf8_lossy(&std::fs::read(stage.bed.path(file)).unwrap_or_default()).into_owned();
        assert!(!text.contains("hush-hush-42"), "{file} has the value");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_answers_nonsense_is_tried_on_and_makes_nothing_twice() {
    let stage = Stage::set(&[("one", 8)]).await;
    wrong(stage.worker("one"), "create jobs: endless-body");
    let id = stage.submit(1, "run: x\nresources: {accelerators: 1}\n").await;
    stage.waits_because(&id, "its objects are being created on one: ").await;
    wrong(stage.worker("one"), "");
    stage.reaches(&id, "succeeded").await;
    assert_eq!(stage.ever(&id, "Job").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_larger_than_every_node_is_refused_though_the_quota_would_do() {
    let stage = Stage::set(&[("one", 16)]).await;
    // A node has 8.
    let refused = stage.try_submit(1, "run: x\nresources: {accelerators: 12}\n", &[]).await.unwrap_err();
    let reason = "the largest node of flavor gpus has 8 nvidia.com/gpu, one node of the task needs 12";
    assert!(refused.contains(reason), "{refused}");
    let id = stage.submit(1, "run: x\nnum_nodes: 2\nresources: {accelerators: 6}\n").await;
    stage.reaches(&id, "succeeded").await;
}
