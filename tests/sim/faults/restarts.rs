//! What was in force before a restart is in force after it, whatever stands in between.

use std::time::Duration;

use fedq_sim::cluster::Cluster;
use serde_json::json;

use super::super::bed::wait;
use super::preload::Preload;
use super::stage::{FLAVOR, GPU, Stage, assignments, claim_name, condition_of, gpus, merged, wrong};

/// Starts fedqd again after a kill; returns when it knows both workers and has nothing left to write.
async fn started(stage: &mut Stage) {
    stage.start();
    for name in ["one", "two"] {
        stage.bed.logs(&format!("Connected to `{name}`"), 2).await;
    }
    stage.claim_says(stage.two(), "CapacityKnown", "Observed").await;
    stage.rests().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_cannot_be_read_does_not_hold_up_what_others_lose() {
    let mut stage = Stage::set_with("lostTimeout: 6s", "").await;
    stage.rests().await;
    stage.kill();
    wrong(stage.one(), "localqueues: forbidden");
    stage.may_fall = true;
    stage.start();
    stage.give(stage.two(), [2, 1]).await;
    stage.has(stage.two(), [2, 1]).await;
    // It answers, so it is not lost, and what it was counted with stands.
    stage.has(stage.hub(), [8, 5]).await;
    assert_eq!(gpus(stage.one()), [Some(6), Some(4)]);
    wrong(stage.one(), "");
    stage.ends_with([[6, 4], [2, 1]]).await;
}

fn accepted(hub: &Cluster, claim: &str) -> serde_json::Value {
    let claim = hub.get("ClusterResourceClaim", "", claim);
    claim.map_or(serde_json::Value::Null, |claim| condition_of(&claim, "Accepted")["reason"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_claim_that_was_turned_down_is_so_after_a_restart() {
    let mut stage = Stage::set().await;
    let assignment = json!({"clusterQueueName": "team", "flavor": FLAVOR, "resources": {"gpu": "1"}});
    let second = json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
        "metadata": {"name": "z-second"},
        "spec": {"clusterName": "one", "resourceAssignments": [assignment]},
    });
    stage.hub().put(second).await.unwrap();
    let turned_down = || accepted(stage.hub(), "z-second") == "ClusterAlreadyClaimed";
    wait("the second claim to be turned down", stage.hub(), turned_down).await;
    stage.rests().await;
    stage.kill();
    started(&mut stage).await;
    assert_eq!(gpus(stage.one()), [Some(6), Some(4)]);
    assert_eq!(accepted(stage.hub(), "z-second"), "ClusterAlreadyClaimed");
    // Nothing fell in between.
    stage.mark();
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    stage.hub().remove("ClusterResourceClaim", "z-second").await.unwrap();
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_edit_leaves_the_last_valid_text_in_force_also_after_a_restart() {
    let mut stage = Stage::set().await;
    stage.rests().await;
    let invalid = json!({"clusterQueueName": "team", "flavor": FLAVOR, "resources": {"gpu": "1e99"}});
    let name = claim_name(stage.one());
    let patch = json!({"spec": {"resourceAssignments": [invalid]}});
    merged(stage.hub(), "ClusterResourceClaim", &name, patch).await;
    let rejected = || accepted(stage.hub(), &name) == "InvalidQuantity";
    wait("the edit to be rejected", stage.hub(), rejected).await;
    stage.rests().await;
    for store_is_lost in [false, true] {
        stage.kill();
        for file in ["fedq.db", "fedq.db-wal", "fedq.db-shm"].iter().filter(|_| store_is_lost) {
            let _ = std::fs::remove_file(stage.bed.path(file));
        }
        let again = stage.log().matches("Connected to `one`").count();
        stage.start();
        stage.bed.logs("Connected to `one`", again + 1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.rests().await;
        assert_eq!(gpus(stage.one()), [Some(6), Some(4)]);
        assert_eq!(gpus(stage.hub()), [Some(9), Some(9)]);
        assert_eq!(accepted(stage.hub(), &name), "InvalidQuantity");
    }
    stage.mark();
    stage.give(stage.one(), [7, 4]).await;
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_came_into_force_on_a_full_disk_is_not_taken_back_by_an_invalid_edit_and_a_restart() {
    let mut stage = Stage::set().await;
    stage.may_fall = true;
    let preload = Preload::build(&stage.bed.path("preload"));
    stage.restarted_with(preload.environment(&stage.bed.path("fedq.db"))).await;
    stage.holds([[6, 4], [3, 5]]).await;
    stage.rests().await;
    preload.set_disk("full");
    stage.give(stage.one(), [7, 3]).await;
    stage.holds([[7, 3], [3, 5]]).await;
    let invalid = json!({"clusterQueueName": "team", "flavor": FLAVOR, "resources": {"gpu": "1e99"}});
    let name = claim_name(stage.one());
    let patch = json!({"spec": {"resourceAssignments": [invalid]}});
    merged(stage.hub(), "ClusterResourceClaim", &name, patch).await;
    wait("the edit to be rejected", stage.hub(), || accepted(stage.hub(), &name) == "InvalidQuantity").await;
    // The store has an older text, and the second start must not believe it either.
    for again in [3, 4] {
        stage.kill();
        preload.set_disk("");
        stage.start();
        stage.bed.logs("Connected to `one`", again).await;
        stage.bed.logs("Connected to `two`", again).await;
        stage.claim_says(stage.two(), "CapacityKnown", "Observed").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        stage.rests().await;
        assert_eq!(gpus(stage.one()), [Some(7), Some(3)]);
        assert_eq!(gpus(stage.hub()), [Some(10), Some(8)]);
        assert_eq!(accepted(stage.hub(), &name), "InvalidQuantity");
    }
    stage.give(stage.one(), [6, 5]).await;
    stage.ends_with([[6, 5], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_grows_on_nodes_of_the_store_before_they_were_read_again() {
    let mut stage = Stage::set().await;
    stage.rests().await;
    stage.kill();
    stage.one().remove("Node", "b").await.unwrap();
    stage.mark_anew();
    wrong(stage.one(), "nodes: hang");
    stage.give(stage.one(), [8, 6]).await;
    stage.give(stage.two(), [4, 5]).await;
    stage.start();
    stage.has(stage.two(), [4, 5]).await;
    stage.bed.logs("Connected to `one`", 2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(gpus(stage.one()), [Some(6), Some(4)], "half of its nodes are gone");
    stage.may_fall = true;
    stage.give(stage.one(), [3, 2]).await;
    wrong(stage.one(), "");
    // The claim's own keys follow what was read then.
    let claim = claim_name(stage.one());
    let follows = || {
        let claim = stage.hub().get("ClusterResourceClaim", "", &claim).unwrap();
        claim["spec"]["nominalResources"]["gpu"] == "8"
    };
    wait("the claim to follow the nodes", stage.hub(), follows).await;
    stage.ends_with([[3, 2], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_does_not_serve_kueue_at_a_start_lowers_no_quota() {
    let mut stage = Stage::set().await;
    stage.rests().await;
    stage.kill();
    stage.hub().state.uninstall("kueue.x-k8s.io");
    stage.start();
    for name in ["one", "two"] {
        stage.bed.logs(&format!("Connected to `{name}`"), 2).await;
    }
    let writes = |cluster: &Cluster| cluster.state.counts.writes();
    let before = writes(stage.one()) + writes(stage.two());
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.rests().await;
    assert_eq!(gpus(stage.one()), [Some(6), Some(4)]);
    assert_eq!(gpus(stage.two()), [Some(3), Some(5)]);
    stage.claim_says(stage.one(), "QuotaSynced", "HubWithoutKueue").await;
    assert_eq!(writes(stage.one()) + writes(stage.two()), before);
}

/// It serves one kind after the other. Without the configs of MultiKueue its queues would be ones that reach no cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_serves_a_part_of_kueue_at_a_start_lowers_no_quota() {
    let mut stage = Stage::set().await;
    for (round, kind) in
        ["admissionchecks", "multikueueconfigs", "multikueueclusters"].into_iter().enumerate()
    {
        stage.rests().await;
        stage.kill();
        stage.hub().state.withhold(kind);
        stage.start();
        for name in ["one", "two"] {
            stage.bed.logs(&format!("Connected to `{name}`"), round + 2).await;
        }
        stage.claim_says(stage.one(), "QuotaSynced", "HubWithoutKueue").await;
        stage.rests().await;
        stage.hub().state.install(kind);
    }
    stage.kill();
    stage.start();
    stage.ends_with([[6, 4], [3, 5]]).await;
}

/// As a machine that is up before its network: nobody listened while fedqd was stopped, so nobody knows of a silence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_answer_that_fails_after_a_long_stop_makes_no_cluster_lost() {
    let mut stage = Stage::set_with("lostTimeout: 6s", "").await;
    stage.rests().await;
    stage.kill();
    tokio::time::sleep(Duration::from_secs(7)).await;
    wrong(stage.one(), "server-errors");
    let asked = |stage: &Stage| stage.one().state.counts.requests().values().sum::<u64>();
    let before = asked(&stage);
    stage.start();
    let began = std::time::Instant::now();
    while asked(&stage) == before {
        assert!(began.elapsed() < super::super::bed::WITHIN, "it is not asked");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    wrong(stage.one(), "");
    // That the hub's quota never fell meanwhile is looked for in its history.
    stage.give(stage.one(), [7, 4]).await;
    stage.ends_with([[7, 4], [3, 5]]).await;
}

/// Rows of nodes are stored with the labels that flavors went by then: with another one they say nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_stored_without_a_new_label_of_a_flavor_do_not_read_as_no_capacity() {
    let mut stage = Stage::set().await;
    for worker in [stage.one(), stage.two()] {
        for node in ["a", "b"] {
            merged(worker, "Node", node, json!({"metadata": {"labels": {"tier": "gold"}}})).await;
        }
    }
    stage.rests().await;
    stage.kill();
    let patch = json!({"spec": {"nodeLabels": {"tier": "gold"}}});
    merged(stage.hub(), "ResourceFlavor", FLAVOR, patch.clone()).await;
    merged(stage.one(), "ResourceFlavor", FLAVOR, patch).await;
    // They are not read anew either.
    wrong(stage.one(), "list nodes: forbidden; watch nodes: forbidden");
    stage.mark();
    stage.start();
    stage.bed.logs("Connected to `one`", 2).await;
    // In the server's words, whatever notation they came in.
    stage.bed.logs(": nodes is forbidden: the right to list it was taken away", 1).await;
    stage.rests().await;
    assert_eq!(gpus(stage.one()), [Some(6), Some(4)]);
    stage.has(stage.hub(), [9, 9]).await;
    wrong(stage.one(), "");
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_left_and_came_back_keeps_its_share_when_it_falls_silent_and_over_a_restart() {
    let mut stage = Stage::set_with("lostTimeout: 15m", "").await;
    stage.may_fall = true;
    stage.leave("fedq-cluster-one").await;
    stage.has(stage.hub(), [3, 5]).await;
    stage.bed.join_unseen(stage.one()).await;
    stage.holds([[6, 4], [3, 5]]).await;
    stage.rests().await;
    // From here on nothing may fall.
    stage.mark();
    stage.may_fall = false;
    wrong(stage.one(), "hang");
    stage.one().state.faults.break_connections();
    stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.hub(), [10, 10]).await;
    stage.rests().await;
    stage.kill();
    stage.start();
    stage.bed.logs("Connected to `two`", 2).await;
    stage.give(stage.two(), [4, 7]).await;
    stage.has(stage.hub(), [10, 11]).await;
    stage.rests().await;
    assert_eq!(gpus(stage.hub()), [Some(10), Some(11)]);
    wrong(stage.one(), "");
    stage.ends_with([[6, 4], [4, 7]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cluster_that_only_reports_is_counted_with_stands_until_its_report_is_read_again() {
    const FAR: &str = "far-resource-claim";
    let mut stage = Stage::set().await;
    let labels = json!({"accelerator": "h100"});
    let node = json!({"name": "a", "labels": labels, "allocatableResources": {GPU: "4", "cpu": "64"}});
    let report = json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterMetrics", "metadata": {"name": "far"},
        "status": {"nodes": [node]},
    });
    stage.hub().put(report).await.unwrap();
    wait("its claim", stage.hub(), || stage.hub().get("ClusterResourceClaim", "", FAR).is_some()).await;
    let gives = async |stage: &Stage, amounts| {
        let patch = json!({"spec": {"resourceAssignments": assignments(amounts)}});
        merged(stage.hub(), "ClusterResourceClaim", FAR, patch).await;
    };
    gives(&stage, [2, 1]).await;
    stage.beside = [2, 1];
    stage.has(stage.hub(), [11, 10]).await;
    stage.rests().await;
    stage.mark();
    let plans = ["list clustermetrics: latency 1500ms", "list clustermetrics: hang"];
    for ((again, batch), plan) in (2..).zip(6..).zip(plans) {
        stage.kill();
        wrong(stage.hub(), plan);
        stage.start();
        stage.bed.logs("\"message\":\"Started\"", again).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(gpus(stage.hub()), [Some(11), Some(batch + 4)]);
        wrong(stage.hub(), "");
        stage.hub().state.faults.break_connections();
        stage.give(stage.two(), [3, batch]).await;
        stage.has(stage.hub(), [11, batch + 5]).await;
        stage.rests().await;
        // Nothing fell.
        stage.mark();
    }
    stage.may_fall = true;
    gives(&stage, [0, 0]).await;
    stage.has(stage.hub(), [9, 11]).await;
    stage.hub().remove("ClusterMetrics", "far").await.unwrap();
    stage.logs("`far` left").await;
    stage.hub().remove("ClusterResourceClaim", FAR).await.unwrap();
    let gone = || stage.hub().get("ClusterResourceClaim", "", FAR).is_none();
    wait("its claim to be gone", stage.hub(), gone).await;
    stage.ends_with([[6, 4], [3, 7]]).await;
}
