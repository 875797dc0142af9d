//! What people edit on the hub while all goes well: flavors, their order, cohorts, queues made anew, and limits of the
//! configuration.

use std::time::Duration;

use fedq_sim::cluster::Cluster;
use serde_json::{Value, json};

use super::super::bed::{Bed, KUEUE, gpu_node, wait};
use super::stage::{FLAVOR, GPU, Stage, assignments, claim_name, condition_of, gpus, merged, queue_objects};
use super::workloads::{Workload, reserved};

const OTHER: &str = "others";

/// A worker `one` with 16 GPUs of `gpus` and 8 of another flavor, both given to the hub's `team`.
async fn with_two_flavors(more: &str, asked: [i64; 2]) -> Bed {
    let mut bed = Bed::without_daemon(&["one"]).await;
    let flavor = json!({
        "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": OTHER},
        "spec": {"nodeLabels": {"accelerator": "a100"}},
    });
    bed.hub.put(flavor).await.unwrap();
    let mut node = gpu_node("c", 8);
    node["metadata"]["labels"]["accelerator"] = json!("a100");
    bed.workers[0].put(node).await.unwrap();
    let quota = json!([{"name": GPU, "nominalQuota": "0"}]);
    let flavors = [FLAVOR, OTHER].map(|flavor| json!({"name": flavor, "resources": quota}));
    let groups = json!([{"coveredResources": [GPU], "flavors": flavors}]);
    merged(&bed.hub, "ClusterQueue", "team", json!({"spec": {"resourceGroups": groups}})).await;
    bed.configure(more);
    bed.start_daemon();
    let worker = &bed.workers[0];
    bed.join(worker).await;
    let assignments = [FLAVOR, OTHER].iter().zip(asked).map(|(flavor, gpus)| {
        json!({"clusterQueueName": "team", "flavor": flavor, "resources": {"gpu": gpus.to_string()}})
    });
    let patch = json!({"spec": {"resourceAssignments": assignments.collect::<Vec<_>>()}});
    merged(&bed.hub, "ClusterResourceClaim", &claim_name(worker), patch).await;
    bed
}

/// Each flavor of `team` and its quota, in the queue's order.
fn flavors_of(cluster: &Cluster) -> Vec<(String, String)> {
    let queue = cluster.get("ClusterQueue", "", "team");
    let groups = queue.map_or(Value::Null, |queue| queue["spec"]["resourceGroups"].clone());
    let flavors = groups[0]["flavors"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    flavors.map(|flavor| (text(&flavor["name"]), text(&flavor["resources"][0]["nominalQuota"]))).collect()
}

async fn has_flavors(cluster: &Cluster, flavors: [(&str, &str); 2]) {
    let flavors = flavors.map(|(name, quota)| (name.to_owned(), quota.to_owned()));
    let what = format!("{flavors:?} on {}", cluster.state.name);
    wait(&what, cluster, || flavors_of(cluster) == flavors).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_order_of_the_hubs_flavors_reaches_queues_that_are_there() {
    let bed = with_two_flavors("", [3, 2]).await;
    let clusters = [&bed.hub, &bed.workers[0]];
    for cluster in clusters {
        has_flavors(cluster, [(FLAVOR, "3"), (OTHER, "2")]).await;
    }
    let mut groups = bed.hub.get("ClusterQueue", "", "team").unwrap()["spec"]["resourceGroups"].clone();
    groups[0]["flavors"].as_array_mut().unwrap().reverse();
    merged(&bed.hub, "ClusterQueue", "team", json!({"spec": {"resourceGroups": groups}})).await;
    for cluster in clusters {
        has_flavors(cluster, [(OTHER, "2"), (FLAVOR, "3")]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_cuts_all_flavors_alike_and_is_what_the_claim_tells() {
    let bed = with_two_flavors("capacity: {limits: {one: {nvidia.com/gpu: \"12\"}}}\n", [16, 8]).await;
    has_flavors(&bed.workers[0], [(FLAVOR, "8"), (OTHER, "4")]).await;
    let claim = || bed.hub.get("ClusterResourceClaim", "", "one-resource-claim").unwrap();
    wait("the claim to tell of what is left of each flavor", &bed.hub, || {
        let claim = claim();
        let flavors = claim["status"]["flavors"].as_array().into_iter().flatten();
        let told: Vec<_> = flavors.map(|flavor| (&flavor["name"], &flavor["capacity"]["gpu"])).collect();
        told == [(&json!(FLAVOR), &json!("8")), (&json!(OTHER), &json!("4"))]
    })
    .await;
    wait("the claim to tell of the limit", &bed.hub, || {
        let claim = claim();
        claim["status"]["capacity"]["gpu"] == "12" && claim["spec"]["nominalResources"]["gpu"] == "12"
    })
    .await;
}

/// Nodes are read anew for a label that they were trimmed without, and until then count as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flavor_that_goes_by_another_label_lowers_no_quota_on_its_way() {
    let stage = Stage::set().await;
    for worker in [stage.one(), stage.two()] {
        for node in ["a", "b"] {
            merged(worker, "Node", node, json!({"metadata": {"labels": {"tier": "gold"}}})).await;
        }
    }
    stage.rests().await;
    for labels in [
        json!({"tier": "gold"}),
        json!({"tier": "gold", "accelerator": null}),
        json!({"tier": null, "accelerator": "h100"}),
    ] {
        merged(stage.hub(), "ResourceFlavor", FLAVOR, json!({"spec": {"nodeLabels": labels}})).await;
        for worker in [stage.one(), stage.two()] {
            let labels = |cluster: &Cluster| {
                let flavor = cluster.get("ResourceFlavor", "", FLAVOR);
                flavor.map(|flavor| flavor["spec"]["nodeLabels"].clone())
            };
            let follows = || labels(worker) == labels(stage.hub());
            wait("the worker's flavor to follow", worker, follows).await;
        }
        stage.rests().await;
        stage.claim_says(stage.one(), "Satisfied", "Satisfied").await;
    }
    // Nothing fell, which the end looks for in the servers' histories.
    stage.ends_with([[6, 4], [3, 5]]).await;
}

/// One cohort lends to its sibling what workloads hold there already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quota_moves_between_sibling_cohorts_while_workloads_hold_it() {
    let mut stage = Stage::set().await;
    stage.may_fall = true;
    let one = stage.one();
    for name in ["left", "right"] {
        let cohort = json!({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": {"parentName": "all"}});
        one.put(cohort).await.unwrap();
    }
    for (queue, cohort) in [("team", "left"), ("batch", "right")] {
        merged(stage.hub(), "ClusterQueue", queue, json!({"spec": {"cohortName": cohort}})).await;
    }
    stage.give(one, [10, 4]).await;
    stage.holds([[10, 4], [3, 5]]).await;
    let work = Workload { name: "work".to_owned(), queue: 0, gpus: 10 };
    work.submit(one).await;
    wait("the workload to hold what team has", one, || reserved(one) == [10, 0]).await;
    stage.give(one, [4, 10]).await;
    stage.holds([[4, 10], [3, 5]]).await;
    stage.claim_says(one, "Satisfied", "Satisfied").await;
    let claim = stage.hub().get("ClusterResourceClaim", "", &claim_name(one)).unwrap();
    assert_ne!(condition_of(&claim, "Overcommitted")["status"], "True", "{claim:#}");
    assert_eq!(reserved(one), [10, 0], "it runs on");
    work.end(one).await;
    for queue in ["team", "batch"] {
        merged(stage.hub(), "ClusterQueue", queue, json!({"spec": {"cohortName": null}})).await;
    }
    // The end gives one more.
    stage.give(stage.one(), [4, 9]).await;
    stage.ends_with([[4, 9], [3, 5]]).await;
}

/// What a new queue has is what a person wants there, and none of what workers added to the one before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_queue_that_is_made_anew_between_two_rounds_keeps_what_its_maker_gave_it() {
    let mut stage = Stage::set().await;
    stage.may_fall = true;
    stage.beside = [3, 0];
    for base in [3, 0] {
        stage.rests().await;
        let pid = rustix::process::Pid::from_raw(i32::try_from(stage.bed.pid().unwrap()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        stage.hub().remove("ClusterQueue", "team").await.unwrap();
        wait("the queue to be gone", stage.hub(), || stage.hub().get("ClusterQueue", "", "team").is_none())
            .await;
        let made = queue_objects("team", base, None).remove(0);
        let mut unreadable = made.clone();
        unreadable["metadata"]["annotations"] = json!({"fedq.dev/cells": "{"});
        // One whose maker first gave it what cannot be read is another one all the same.
        let reads = base == 0;
        stage.hub().put(if reads { made.clone() } else { unreadable }).await.unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
        if !reads {
            // Nobody is told by an object that it cannot be read, since what it holds stands.
            tokio::time::sleep(Duration::from_secs(1)).await;
            stage.rests().await;
            let readable = json!({"metadata": {"annotations": {"fedq.dev/cells": null}}});
            merged(stage.hub(), "ClusterQueue", "team", readable).await;
        }
        stage.has(stage.hub(), [base + 9, 9]).await;
        stage.rests().await;
        assert_eq!(gpus(stage.hub()), [Some(base + 9), Some(9)]);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stage.ends_with([[6, 4], [3, 5]]).await;
}

/// A cell that a person took out of the queue is theirs, and so is what they put there before a claim names it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cell_that_was_given_up_counts_with_what_a_person_put_there_since() {
    let mut stage = Stage::set().await;
    stage.may_fall = true;
    stage.beside = [0, 7];
    let mut before = 0;
    for base in [7, 0] {
        for (worker, team) in [(stage.one(), 6), (stage.two(), 3)] {
            let only_team = &assignments([team, 0])[..1];
            let patch = json!({"spec": {"resourceAssignments": only_team}});
            merged(stage.hub(), "ClusterResourceClaim", &claim_name(worker), patch).await;
        }
        stage.has(stage.hub(), [9, before]).await;
        stage.rests().await;
        for (flavor, gpus) in [("theirs", 0), (FLAVOR, base)] {
            let quota = json!([{"name": GPU, "nominalQuota": gpus.to_string()}]);
            let flavors = json!([{"name": flavor, "resources": quota}]);
            let groups = json!([{"coveredResources": [GPU], "flavors": flavors}]);
            merged(stage.hub(), "ClusterQueue", "batch", json!({"spec": {"resourceGroups": groups}})).await;
            stage.rests().await;
        }
        assert_eq!(gpus(stage.hub()), [Some(9), Some(base)], "nobody takes that back");
        for (worker, amounts) in [(stage.one(), [6, 4]), (stage.two(), [3, 5])] {
            stage.give(worker, amounts).await;
        }
        stage.has(stage.hub(), [9, base + 9]).await;
        stage.rests().await;
        assert_eq!(gpus(stage.hub()), [Some(9), Some(base + 9)]);
        before = base;
    }
    stage.ends_with([[6, 4], [3, 5]]).await;
}
