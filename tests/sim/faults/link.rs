//! What goes wrong between fedqd and a cluster, and is over at some time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fedq_sim::cluster::Cluster;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::super::bed::{WITHIN, gpu_node, wait};
use super::stage::{Stage, wrong};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_fault_everything_holds() {
    let stage = Stage::set().await;
    stage.give(stage.one(), [8, 4]).await;
    stage.ends_with([[8, 4], [3, 5]]).await;
}

/// While `one` does not answer its share stands, and `two` goes on as if nothing were.
async fn silent(plan: &str) {
    let stage = Stage::set().await;
    wrong(stage.one(), plan);
    stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.two(), [4, 6]).await;
    stage.has(stage.hub(), [10, 10]).await;
    stage.give(stage.one(), [7, 5]).await;
    wrong(stage.one(), "");
    stage.ends_with([[7, 5], [4, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_hangs_keeps_its_share_and_holds_up_no_other() {
    silent("hang").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_refuses_connections_keeps_its_share_and_holds_up_no_other() {
    silent("refuse-connections").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_another_certificate_keeps_its_share_and_holds_up_no_other() {
    silent("wrong-certificate").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silence_is_told_with_the_reason_that_it_has_now() {
    let stage = Stage::set().await;
    for (plan, told) in [
        ("refuse-connections", "reset"),
        ("wrong-certificate", "certificate"),
        ("refuse-connections", "reset"),
    ] {
        wrong(stage.one(), plan);
        stage.one().state.faults.break_connections();
        stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
        stage.claim_tells(stage.one(), "CapacityKnown", told).await;
    }
    wrong(stage.one(), "");
    stage.ends_with([[6, 4], [3, 5]]).await;
}

/// One that is wrong from the moment it is joined, which holds up no other.
async fn joined_while(plan: &str) -> Stage {
    joined_within("", plan).await
}

async fn joined_within(clusters: &str, plan: &str) -> Stage {
    let stage = Stage::unjoined(clusters, "").await;
    wrong(stage.one(), plan);
    stage.bed.join_unseen(stage.one()).await;
    stage.bed.join(stage.two()).await;
    stage.give(stage.two(), [3, 5]).await;
    stage.has(stage.two(), [3, 5]).await;
    stage.has(stage.hub(), [3, 5]).await;
    stage
}

async fn gets_well(stage: Stage) {
    wrong(stage.one(), "");
    // An answer that has begun goes on otherwise, until it is as long as a list may be.
    stage.one().state.faults.break_connections();
    stage.bed.has_claim(stage.one()).await;
    stage.give(stage.one(), [6, 4]).await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_answer_costs_bounded_memory_and_no_other_cluster() {
    let mut stage = joined_within("maxObjects: 20000", "list: endless-body").await;
    stage.logs("`one` is refused: it has more than the 20000 objects").await;
    let most = stage.peak_mib();
    assert!(most < 200, "fedqd took {most} MiB");
    // It is not asked again, and a restart does not begin anew either.
    stage.one().state.faults.break_connections();
    let before = lists_of(stage.one());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(lists_of(stage.one()), before);
    stage.restarted_with(Vec::new()).await;
    stage.has(stage.hub(), [3, 5]).await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.hub(), [4, 6]).await;
    assert_eq!(lists_of(stage.one()), before, "what was refused is remembered");
    // Until somebody changes what joins it.
    wrong(stage.one(), "");
    stage
        .change_secret(
            stage.one(),
            json!({"metadata": {"annotations": {"fedq.dev/confirm-identity": uid_of(stage.one())}}}),
        )
        .await;
    stage.bed.has_claim(stage.one()).await;
    stage.give(stage.one(), [6, 4]).await;
    stage.ends_with([[6, 4], [4, 6]]).await;
}

fn uid_of(cluster: &Cluster) -> Value {
    cluster.get("Namespace", "", "kube-system").unwrap()["metadata"]["uid"].clone()
}

fn lists_of(cluster: &Cluster) -> u64 {
    let requests = cluster.state.counts.requests();
    requests.iter().filter(|((verb, _), _)| *verb == "list").map(|(_, count)| *count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_answers_a_byte_at_a_time_keeps_its_share_and_holds_up_no_other() {
    silent("trickle").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_comes_a_byte_at_a_time_is_given_up_and_holds_up_no_other() {
    let mut stage = joined_while("list: trickle").await;
    let lists = || stage.one().state.counts.requests()[&("list", "clusterqueues".to_owned())];
    let began = Instant::now();
    while lists() < 2 {
        // Twelve times the time of a request.
        assert!(began.elapsed() < WITHIN, "the list is waited for after 24 s");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(stage.one().state.counts.connections().0, 1);
    let most = stage.peak_mib();
    assert!(most < 200, "fedqd took {most} MiB");
    gets_well(stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_event_never_ends_is_told_of_and_begun_anew() {
    let stage = Stage::set().await;
    wrong(stage.one(), "watch: trickle");
    stage.one().state.faults.break_connections();
    stage.logs("an event did not arrive within 6s").await;
    stage.claim_says(stage.one(), "CapacityKnown", "NotObserved").await;
    stage.one().put(gpu_node("c", 4)).await.unwrap();
    stage.give(stage.one(), [9, 5]).await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.two(), [4, 6]).await;
    stage.has(stage.hub(), [10, 10]).await;
    assert_eq!(stage.one().state.counts.connections().0, 1);
    wrong(stage.one(), "");
    stage.ends_with([[9, 5], [4, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_not_followed_and_its_target_hears_nothing() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = format!("redirect https://{}/", elsewhere.local_addr().unwrap());
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heard);
    let listening = tokio::spawn(async move {
        while elsewhere.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    silent(&to).await;
    assert_eq!(heard.load(Ordering::Relaxed), 0);
    listening.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_connection_is_found_and_made_anew() {
    let stage = Stage::set().await;
    wrong(stage.one(), "half-open");
    stage.one().put(gpu_node("c", 8)).await.unwrap();
    stage.give(stage.one(), [12, 8]).await;
    stage.holds([[12, 8], [3, 5]]).await;
    wrong(stage.hub(), "half-open");
    stage.give(stage.two(), [4, 5]).await;
    stage.ends_with([[12, 8], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_stays_away_loses_its_share_until_it_is_back() {
    let mut stage = Stage::set_with("lostTimeout: 9s", "").await;
    stage.may_fall = true;
    stage.one().power_off().await;
    stage.claim_says(stage.one(), "CapacityKnown", "Lost").await;
    stage.has(stage.hub(), [3, 5]).await;
    stage.give(stage.two(), [3, 8]).await;
    stage.has(stage.hub(), [3, 8]).await;
    stage.one().power_on().await.unwrap();
    stage.ends_with([[6, 4], [3, 8]]).await;
}

/// While a cluster only says no, it is asked less and less.
async fn storm(plan: &str, at_most: u64) {
    let stage = Stage::set().await;
    let asked = || stage.one().state.counts.requests().values().sum::<u64>();
    stage.one().state.faults.break_connections();
    wrong(stage.one(), plan);
    stage.give(stage.one(), [7, 4]).await;
    stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
    let before = asked();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let asked = asked() - before;
    assert!(asked <= at_most, "{asked} requests in 3 s to a server that says no");
    stage.give(stage.two(), [4, 5]).await;
    stage.has(stage.two(), [4, 5]).await;
    wrong(stage.one(), "");
    stage.ends_with([[7, 4], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_errors_is_met_with_patience() {
    storm("server-errors", 120).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_asked_as_rarely_as_it_wishes() {
    storm("too-many-requests 1s", 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_and_failing_answers_everywhere_only_delay() {
    let stage = Stage::set().await;
    let clusters = [stage.hub(), stage.one(), stage.two()];
    for cluster in clusters {
        wrong(cluster, "latency 60ms; server-errors 15%; too-many-requests 1s 5%");
    }
    stage.give(stage.one(), [7, 6]).await;
    stage.give(stage.two(), [5, 5]).await;
    stage.holds([[7, 6], [5, 5]]).await;
    for cluster in clusters {
        wrong(cluster, "");
    }
    stage.ends_with([[7, 6], [5, 5]]).await;
}

fn opened(cluster: &Cluster) -> u64 {
    cluster.state.counts.connections().1
}

/// Until somebody has opened more connections than these.
async fn reconnected(cluster: &Cluster, before: u64) {
    let began = Instant::now();
    while opened(cluster) <= before {
        assert!(began.elapsed() < WITHIN, "nobody comes back to `{}`", cluster.state.name);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What crossed a GOAWAY on its way is asked again, and nobody hears of it.
fn tells_of_none(stage: &Stage) {
    let log = stage.log();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("not a result of an error")).collect();
    assert!(told.is_empty(), "{told:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sends_its_clients_elsewhere_now_and_then_loses_no_request() {
    let stage = Stage::set().await;
    let before = opened(stage.one());
    let clusters = [stage.hub(), stage.one(), stage.two()];
    for cluster in clusters {
        wrong(cluster, "go-away 40%");
    }
    for number in 1..=8 {
        stage.one().put(gpu_node(&format!("c{number}"), 1)).await.unwrap();
        stage.give(stage.one(), [6 + number, 4]).await;
        stage.give(stage.two(), [3, 5 + number / 2]).await;
        stage.has(stage.one(), [6 + number, 4]).await;
    }
    stage.holds([[14, 4], [3, 9]]).await;
    assert!(before < opened(stage.one()), "nobody was sent away");
    tells_of_none(&stage);
    for cluster in clusters {
        wrong(cluster, "");
    }
    stage.ends_with([[14, 4], [3, 9]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_updated_cost_a_new_connection_and_nothing_else() {
    let stage = Stage::set().await;
    for number in 1..=3 {
        // In the midst of what follows from it.
        stage.give(stage.one(), [6 + number, 4]).await;
        stage.give(stage.two(), [3, 5 + number]).await;
        for cluster in [stage.hub(), stage.one(), stage.two()] {
            let opened = opened(cluster);
            cluster.state.faults.close_connections();
            reconnected(cluster, opened).await;
        }
        stage.holds([[6 + number, 4], [3, 5 + number]]).await;
    }
    tells_of_none(&stage);
    stage.ends_with([[9, 4], [3, 8]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_though_the_answer_was_lost_is_not_done_twice() {
    let stage = Stage::unjoined("", "").await;
    let plan = "create: lose-answers; patch: lose-answers";
    let clusters = [stage.hub(), stage.one(), stage.two()];
    for cluster in clusters {
        wrong(cluster, plan);
    }
    for (worker, amounts) in [(stage.one(), [6, 4]), (stage.two(), [3, 5])] {
        stage.bed.join(worker).await;
        stage.give(worker, amounts).await;
    }
    stage.holds([[6, 4], [3, 5]]).await;
    for cluster in clusters {
        wrong(cluster, "");
    }
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_hangs_or_fails_is_waited_for_and_no_quota_moves() {
    let mut stage = Stage::set().await;
    for (number, plan) in (1..).zip(["hang", "server-errors", "refuse-connections"]) {
        wrong(stage.hub(), plan);
        stage.give(stage.one(), [6 + number, 4]).await;
        stage.two().put(gpu_node(&format!("more-{number}"), 1)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        wrong(stage.hub(), "");
        stage.holds([[6 + number, 4], [3, 5]]).await;
        stage.mark();
    }
    stage.ends_with([[9, 4], [3, 5]]).await;
}

/// The reasons and notes of the events about a claim.
fn events_of(stage: &Stage, claim: &str) -> Vec<(String, String)> {
    let events = stage.hub().list("Event");
    let about = events.iter().filter(|event| event["regarding"]["name"] == claim);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    about.map(|event| (text(&event["reason"]), text(&event["note"]))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_told_to_be_created_though_the_answer_was_lost() {
    let stage = Stage::unjoined("", "").await;
    wrong(stage.hub(), "patch clusterresourceclaims: lose-answers 100%");
    stage.bed.join_unseen(stage.one()).await;
    let told = || events_of(&stage, "one-resource-claim");
    wait("the event of the new claim", stage.hub(), || {
        told().iter().any(|(reason, _)| reason == "ClaimCreated")
    })
    .await;
    wrong(stage.hub(), "");
    wait("the event of what it assigns", stage.hub(), || told().len() == 2).await;
    stage.rests().await;
    let told = told();
    let note = |reason: &str| told.iter().find(|(of, _)| of == reason).map(|(_, note)| note.as_str());
    assert_eq!(
        note("ClaimCreated"),
        Some("Created for cluster one with the capacity found there"),
        "{told:?}"
    );
    assert_eq!(note("QuotaApplied"), Some("the claim assigns nothing to any queue"), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
}
