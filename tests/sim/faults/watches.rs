//! Watches and lists that tell too little, too much, or in the wrong order.

use std::time::Duration;

use super::super::bed::gpu_node;
use super::stage::{Stage, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_breaks_after_every_event_loses_nothing() {
    let stage = Stage::set().await;
    let clusters = [stage.hub(), stage.one(), stage.two()];
    for cluster in clusters {
        wrong(cluster, "drop-watch-after 1");
    }
    stage.one().put(gpu_node("c", 4)).await.unwrap();
    stage.give(stage.one(), [9, 8]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    stage.give(stage.two(), [4, 6]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    // What broke is tried again after a pause that grows, so it is not all through by now.
    for cluster in clusters {
        wrong(cluster, "");
    }
    stage.ends_with([[9, 8], [4, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_falls_silent_is_begun_anew() {
    let stage = Stage::set_with("watchTimeout: 2s", "").await;
    wrong(stage.one(), "silent-watch");
    stage.one().put(gpu_node("c", 4)).await.unwrap();
    stage.give(stage.one(), [9, 8]).await;
    // Long enough for each open watch to have been told and to have said nothing.
    tokio::time::sleep(Duration::from_millis(300)).await;
    wrong(stage.one(), "");
    stage.holds([[9, 8], [3, 5]]).await;
    wrong(stage.hub(), "silent-watch");
    stage.give(stage.two(), [4, 5]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    wrong(stage.hub(), "");
    stage.ends_with([[9, 8], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_come_twice_and_in_disorder_change_nothing() {
    let stage = Stage::set_with("consistencyInterval: 3s", "").await;
    let clusters = [stage.hub(), stage.one(), stage.two()];
    for cluster in clusters {
        wrong(cluster, "duplicate-events 50%; reorder-events 30%");
    }
    for number in 1..=6_i64 {
        stage.one().put(gpu_node(&format!("c{number}"), 1)).await.unwrap();
        stage.give(stage.one(), [6 + number, 4]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stage.holds([[12, 4], [3, 5]]).await;
    for cluster in clusters {
        wrong(cluster, "");
    }
    stage.ends_with([[12, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_event_is_found_by_the_next_list() {
    let mut stage = Stage::set_with("consistencyInterval: 3s", "").await;
    stage.may_fall = true;
    wrong(stage.one(), "watch nodes: lose-events");
    wrong(stage.hub(), "lose-events");
    stage.one().remove("Node", "b").await.unwrap();
    stage.give(stage.two(), [4, 5]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    wrong(stage.one(), "");
    wrong(stage.hub(), "");
    // One node of 8 is left, 2 are the worker's own: 6 for 10.
    stage.has(stage.two(), [4, 5]).await;
    stage.has(stage.one(), [4, 2]).await;
    stage.one().put(gpu_node("b", 8)).await.unwrap();
    stage.ends_with([[6, 4], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_that_expired_are_listed_anew_without_a_dip() {
    let mut stage = Stage::set().await;
    for round in 1..=2 {
        if round == 2 {
            stage.kill();
        }
        for cluster in [stage.hub(), stage.one(), stage.two()] {
            wrong(cluster, "hang");
        }
        stage.one().put(gpu_node(&format!("c{round}"), 2)).await.unwrap();
        stage.give(stage.one(), [6 + round, 5]).await;
        stage.mark();
        for cluster in [stage.hub(), stage.one(), stage.two()] {
            cluster.state.store.compact();
        }
        // While nothing is answered fedqd writes nothing that this could leave out.
        stage.mark_anew();
        for cluster in [stage.hub(), stage.one(), stage.two()] {
            cluster.state.faults.break_connections();
            wrong(cluster, "");
        }
        if round == 2 {
            stage.start();
        }
        stage.holds([[6 + round, 5], [3, 5]]).await;
    }
    stage.ends_with([[8, 5], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_expires_on_the_way_holds_up_its_own_cluster_only() {
    let mut stage = Stage::set().await;
    stage.kill();
    wrong(stage.one(), "gone-mid-page");
    stage.start();
    stage.give(stage.one(), [7, 4]).await;
    stage.give(stage.two(), [3, 6]).await;
    stage.has(stage.two(), [3, 6]).await;
    stage.has(stage.hub(), [9, 10]).await;
    wrong(stage.one(), "");
    stage.holds([[7, 4], [3, 6]]).await;
    stage.kill();
    wrong(stage.hub(), "gone-mid-page");
    stage.start();
    stage.give(stage.one(), [8, 4]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    wrong(stage.hub(), "");
    stage.ends_with([[8, 4], [3, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_restart_are_followed_on() {
    let mut stage = Stage::set().await;
    for round in 1..=3 {
        stage.hub().power_off().await;
        stage.one().power_off().await;
        stage.one().put(gpu_node(&format!("c{round}"), 2)).await.unwrap();
        stage.give(stage.one(), [6 + round, 4]).await;
        stage.one().power_on().await.unwrap();
        stage.hub().power_on().await.unwrap();
        stage.holds([[6 + round, 4], [3, 5]]).await;
        stage.mark();
    }
    stage.ends_with([[9, 4], [3, 5]]).await;
}

/// What may have arrived counts as if it had: the same GPUs are not given a second time beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_nobody_answered_and_nobody_saw_counts_as_done() {
    let mut stage = Stage::set().await;
    wrong(stage.one(), "patch clusterqueues: lose-answers 100%; watch clusterqueues: lose-events 100%");
    // Of 16 GPUs 2 are the worker's own, so that 1 is left.
    stage.give(stage.one(), [9, 4]).await;
    stage.has(stage.one(), [9, 4]).await;
    stage.logs("Could not write clusterqueues team on `one`").await;
    // As fedqd sees it, 4 are left: of these it gave 3 to `team`.
    stage.give(stage.one(), [6, 7]).await;
    stage.has(stage.one(), [9, 5]).await;
    stage.may_fall = true;
    wrong(stage.one(), "");
    stage.one().state.faults.break_connections();
    stage.ends_with([[6, 7], [3, 5]]).await;
}
