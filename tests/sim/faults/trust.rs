//! Clusters that are not who they were, and credentials that should not work.

use std::collections::BTreeSet;
use std::time::Duration;

use fedq_sim::cluster::{Cluster, Options};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::bed::{gpu_node, wait};
use super::preload::Preload;
use super::stage::{Stage, gpus, merged, wrong};

/// Kept as it is until somebody says that it is right: nothing is written there, others go on.
async fn quarantined(stage: &Stage) {
    stage.claim_says(stage.one(), "CapacityKnown", "Quarantined").await;
    stage.give(stage.one(), [8, 4]).await;
    stage.give(stage.two(), [4, 5]).await;
    stage.has(stage.two(), [4, 5]).await;
    stage.has(stage.hub(), [10, 9]).await;
    assert_eq!(gpus(stage.one()), [Some(6), Some(4)], "nothing is written to a cluster in quarantine");
    let now = stage.one().get("Namespace", "", "kube-system").unwrap();
    let confirmed = json!({"fedq.dev/confirm-identity": now["metadata"]["uid"]});
    stage.change_secret(stage.one(), json!({"metadata": {"annotations": confirmed}})).await;
    stage.holds([[8, 4], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_at_the_same_address_is_quarantined() {
    let stage = Stage::set().await;
    wrong(stage.one(), "new-identity");
    quarantined(&stage).await;
    stage.ends_with([[8, 4], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_backup_is_quarantined_though_it_is_the_same_cluster() {
    let mut stage = Stage::set().await;
    stage.one().take_backup();
    // The version has to be seen before it is taken back.
    stage.one().put(gpu_node("c", 4)).await.unwrap();
    stage.give(stage.one(), [9, 8]).await;
    stage.holds([[9, 8], [3, 5]]).await;
    stage.give(stage.one(), [6, 4]).await;
    stage.may_fall = true;
    stage.holds([[6, 4], [3, 5]]).await;
    stage.rests().await;
    stage.mark();
    wrong(stage.one(), "restored-etcd");
    stage.mark_anew();
    quarantined(&stage).await;
    stage.ends_with([[8, 4], [4, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_restored_is_obeyed_as_it_then_is() {
    let mut stage = Stage::set().await;
    stage.hub().take_backup();
    stage.give(stage.one(), [8, 4]).await;
    stage.holds([[8, 4], [3, 5]]).await;
    stage.rests().await;
    stage.mark();
    wrong(stage.hub(), "restored-etcd");
    wrong(stage.hub(), "");
    stage.mark_anew();
    stage.may_fall = true;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

const REFUSED: &str = "it does not accept its credential any more, and says `Unauthorized`: \
                       put a new one into the Secret `fedq-cluster-one`";

/// A kubeconfig that leads to `one` for somebody, with a token that was never good where it says so.
fn kubeconfig(stage: &Stage, user: &str, token: Option<&str>) -> Value {
    let mut config: Value = serde_json::from_str(&stage.one().kubeconfig(user, &["system:masters"])).unwrap();
    if let Some(token) = token {
        config["users"][0]["user"]["token"] = json!(token);
    }
    json!({"stringData": {"kubeconfig": config.to_string()}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_credential_silences_its_own_cluster_until_there_is_a_new_one() {
    let stage = Stage::set().await;
    // As on real servers: a watch that is open goes on, whoever asks anew is refused.
    stage.one().state.revoke("fedq");
    stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
    stage.claim_tells(stage.one(), "CapacityKnown", REFUSED).await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.two(), [4, 6]).await;
    stage.has(stage.hub(), [10, 10]).await;
    stage.one().state.faults.break_connections();
    stage.give(stage.one(), [7, 4]).await;
    stage.change_secret(stage.one(), kubeconfig(&stage, "fedq", None)).await;
    stage.holds([[7, 4], [4, 6]]).await;
    stage.has_one_connection(stage.one()).await;
    stage.ends_with([[7, 4], [4, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_whose_time_is_over_silences_its_own_cluster_until_there_is_a_new_one() {
    let stage = Stage::set().await;
    let good_for = |seconds: i64| {
        let until = stage.one().state.now() + SignedDuration::from_secs(seconds);
        let config = stage.one().kubeconfig_until("fedq", "system:masters", until).unwrap();
        let until = Timestamp::from_second(until.as_second()).unwrap();
        (until, json!({"stringData": {"kubeconfig": config}}))
    };
    let (_, secret) = good_for(3600);
    stage.change_secret(stage.one(), secret).await;
    stage.logs("connecting anew").await;
    stage.one().state.revoke("fedq");
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    // Whether it is taken at all is seen before its time is over.
    let (until, secret) = good_for(20);
    stage.change_secret(stage.one(), secret).await;
    stage.give(stage.one(), [8, 4]).await;
    stage.holds([[8, 4], [3, 5]]).await;
    assert!(stage.one().state.now() < until, "too slow to see anything");
    stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
    assert!(until <= stage.one().state.now());
    let refused = format!(
        "it does not accept its credential any more, which expired at {until}, and says `Unauthorized`: \
         put a new one into the Secret `fedq-cluster-one`"
    );
    stage.claim_tells(stage.one(), "CapacityKnown", &refused).await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.two(), [4, 6]).await;
    stage.has(stage.hub(), [12, 10]).await;
    let (_, secret) = good_for(3600);
    stage.change_secret(stage.one(), secret).await;
    stage.give(stage.one(), [8, 5]).await;
    stage.has_one_connection(stage.one()).await;
    stage.ends_with([[8, 5], [4, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_was_open_with_a_credential_outlives_its_place_in_the_secret() {
    let stage = Stage::set().await;
    for round in 1..=2 {
        // The token before would still be taken.
        stage.change_secret(stage.one(), kubeconfig(&stage, &format!("fedq-{round}"), None)).await;
        stage.logs("connecting anew").await;
        stage.give(stage.one(), [6 + round, 4]).await;
        stage.holds([[6 + round, 4], [3, 5]]).await;
        stage.has_one_connection(stage.one()).await;
    }
    stage.change_secret(stage.one(), kubeconfig(&stage, "fedq", Some("void"))).await;
    stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
    stage.claim_tells(stage.one(), "CapacityKnown", REFUSED).await;
    stage.has_one_connection(stage.one()).await;
    // Somebody who may would have seen it come.
    stage.one().put(gpu_node("c", 4)).await.unwrap();
    stage.give(stage.one(), [12, 5]).await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.two(), [4, 6]).await;
    stage.has(stage.hub(), [12, 10]).await;
    stage.change_secret(stage.one(), kubeconfig(&stage, "fedq-3", None)).await;
    stage.ends_with([[12, 5], [4, 6]]).await;
}

/// In the certificates of all simulated clusters.
const NAME: &str = "kubernetes.default.svc";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_leads_elsewhere_later_is_not_followed_there() {
    let mut stage = Stage::set().await;
    let preload = Preload::build(&stage.bed.path("preload"));
    preload.set_address(NAME, "127.0.0.1");
    stage.restarted_with(preload.environment(&stage.bed.path("fedq.db"))).await;
    let honest = kubeconfig(&stage, "fedq", None);
    let mut named: Value =
        serde_json::from_str(honest["stringData"]["kubeconfig"].as_str().unwrap()).unwrap();
    named["clusters"][0]["cluster"]["server"] =
        json!(format!("https://{NAME}:{}", stage.one().address.port()));
    stage.change_secret(stage.one(), json!({"stringData": {"kubeconfig": named.to_string()}})).await;
    stage.logs("connecting anew").await;
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    for (round, address) in (1..).zip(["169.254.169.254", "100.100.100.200", "0.0.0.0"]) {
        preload.set_address(NAME, address);
        stage.one().state.faults.break_connections();
        stage.claim_says(stage.one(), "CapacityKnown", "Stale").await;
        let told = format!("{NAME} resolves to {address}, which is refused");
        stage.claim_tells(stage.one(), "CapacityKnown", &told).await;
        stage.give(stage.two(), [3, 5 + round]).await;
        stage.has(stage.two(), [3, 5 + round]).await;
        stage.has(stage.hub(), [10, 9 + round]).await;
        preload.set_address(NAME, "127.0.0.1");
        stage.claim_says(stage.one(), "CapacityKnown", "Observed").await;
    }
    // No credential was sent where nobody was called.
    let dialled = preload.dialled();
    assert_eq!(dialled, BTreeSet::from(["127.0.0.1".to_owned()]));
    stage.change_secret(stage.one(), honest).await;
    stage.give(stage.one(), [8, 4]).await;
    stage.holds([[8, 4], [3, 8]]).await;
    stage.ends_with([[8, 4], [3, 8]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubeconfigs_that_reach_too_far_are_refused() {
    let mut stage = Stage::set().await;
    let good = |cluster: &Cluster| -> Value {
        serde_json::from_str(&cluster.kubeconfig("fedq", &["system:masters"])).unwrap()
    };
    let changed = |pointer: &str, value: Value| {
        let mut config = good(stage.two());
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        config.pointer_mut(parent).unwrap()[field] = value;
        config
    };
    let exec =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": ["/tmp/x"]});
    for (name, kubeconfig) in [
        ("exec", changed("/users/0/user/exec", exec)),
        ("file", changed("/users/0/user/tokenFile", json!("/etc/passwd"))),
        ("insecure", changed("/clusters/0/cluster/insecure-skip-tls-verify", json!(true))),
        ("proxy", changed("/clusters/0/cluster/proxy-url", json!("http://127.0.0.1:3128"))),
        ("metadata", changed("/clusters/0/cluster/server", json!("https://169.254.169.254"))),
        ("plain", changed("/clusters/0/cluster/server", json!("http://127.0.0.1:8080"))),
        ("hub-itself", good(stage.hub())),
        ("twin", good(stage.one())),
    ] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "fedq-system", "labels": {"fedq.dev/cluster": name}},
            "stringData": {"kubeconfig": kubeconfig.to_string()},
        });
        stage.hub().put(secret).await.unwrap();
        stage.logs(&format!("`{name}` is Refused")).await;
    }
    // After a restart too the name it was joined by first is the one that counts.
    stage.kill();
    stage.start();
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    // Without a database only people can tell which of the two that is.
    stage.leave("twin").await;
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_says_it_is_huge_is_believed_up_to_its_limit() {
    let limits = "capacity: {limits: {one: {nvidia.com/gpu: \"16\"}}}\n";
    let mut stage = Stage::set_with("", limits).await;
    stage.may_fall = true;
    let huge = json!({"allocatable": {"nvidia.com/gpu": "8000"}});
    stage.one().set_status("Node", "a", huge).await.unwrap();
    stage.give(stage.one(), [5000, 0]).await;
    stage.holds([[14, 0], [3, 5]]).await;
    let honest = json!({"allocatable": {"nvidia.com/gpu": "8"}});
    stage.one().set_status("Node", "a", honest).await.unwrap();
    stage.give(stage.one(), [6, 4]).await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_kueue_gets_nothing_and_holds_up_no_other() {
    let mut stage = Stage::set().await;
    let options = Options { without: vec!["kueue.x-k8s.io"], ..Options::named("three") };
    let three = Cluster::start(options).await.unwrap();
    three.put(gpu_node("a", 8)).await.unwrap();
    stage.bed.join(&three).await;
    stage.more_claims.push("three-resource-claim");
    stage.give(&three, [4, 4]).await;
    stage.give(stage.one(), [7, 4]).await;
    stage.give(stage.two(), [3, 6]).await;
    stage.holds([[7, 4], [3, 6]]).await;
    stage.ends_with([[7, 4], [3, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kueue_that_is_taken_away_holds_up_no_other_and_gets_its_quota_when_it_is_back() {
    let mut stage = Stage::set().await;
    // The queues go with their kind, which is no doing of fedqd's.
    stage.may_fall = true;
    stage.one().state.uninstall("kueue.x-k8s.io");
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.two(), [4, 6]).await;
    stage.claim_says(stage.one(), "QuotaSynced", "Refused").await;
    // Whether its queues were seen to go before it fell silent or not: what the hub promises, the history tells.
    stage.one().state.install("kueue.x-k8s.io");
    stage.put_theirs_on_one_again().await;
    // Each kind is looked for again by itself.
    let one = stage.one();
    wait("the LocalQueues to be back", one, || one.get("LocalQueue", "team", "queue").is_some()).await;
    wait("the LocalQueues to be back", one, || one.get("LocalQueue", "team", "batch").is_some()).await;
    stage.ends_with([[6, 4], [4, 6]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_that_lacks_a_field_is_told_and_holds_up_nothing_else() {
    let stage = Stage::set().await;
    let weight =
        || stage.two().get("ClusterQueue", "", "team").unwrap()["spec"]["fairSharing"]["weight"].clone();
    stage.one().state.forget_field("ClusterQueue", "spec.fairSharing");
    let patch = json!({"spec": {"fairSharing": {"weight": "2"}}});
    merged(stage.hub(), "ClusterQueue", "team", patch).await;
    wait("the weight to be on the other worker", stage.two(), || weight() == "2").await;
    stage.claim_says(stage.one(), "QuotaSynced", "WriteFailed").await;
    stage.claim_tells(stage.one(), "QuotaSynced", "spec.fairSharing").await;
    // Beside it quota goes on at its own pace, and what cannot be written is not written all the time.
    let before = stage.one().state.counts.writes();
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let writes = stage.one().state.counts.writes() - before;
    assert!((1..=6).contains(&writes), "{writes} writes");
    stage.one().state.know_all_fields();
    wait("the weight to be on the worker", stage.one(), || {
        stage.one().get("ClusterQueue", "", "team").unwrap()["spec"]["fairSharing"]["weight"] == "2"
    })
    .await;
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_local_queue_whose_definition_lacks_a_field_is_told_and_whole_once_it_has_it() {
    let stage = Stage::set().await;
    stage.one().state.forget_field("LocalQueue", "spec.fairSharing");
    let weight = |cluster: &Cluster| {
        cluster.get("LocalQueue", "team", "queue").unwrap()["spec"]["fairSharing"]["weight"] == "2"
    };
    let patch = json!({"spec": {"fairSharing": {"weight": "2"}}});
    stage.hub().merge_in("team", "LocalQueue", "queue", patch).await.unwrap();
    wait("the weight to be on the other worker", stage.two(), || weight(stage.two())).await;
    stage.claim_says(stage.one(), "QuotaSynced", "WriteFailed").await;
    stage.claim_tells(stage.one(), "QuotaSynced", "spec.fairSharing").await;
    stage.one().state.know_all_fields();
    wait("the weight to be on the worker", stage.one(), || weight(stage.one())).await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_whose_definition_lacks_a_field_are_obeyed_and_told_of_in_the_log() {
    let stage = Stage::set().await;
    stage.hub().state.forget_field("ClusterResourceClaim", "status.assignments");
    stage.give(stage.one(), [7, 4]).await;
    stage.holds([[7, 4], [3, 5]]).await;
    stage.logs("status.assignments: field not declared in schema").await;
    let before = stage.hub().state.counts.writes();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let writes = stage.hub().state.counts.writes() - before;
    assert!(writes <= 6, "{writes} writes");
    stage.hub().state.know_all_fields();
    stage.ends_with([[7, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_taken_away_are_told_and_work_again_once_they_are_back() {
    let stage = Stage::set().await;
    wrong(stage.one(), "patch clusterqueues: forbidden");
    stage.give(stage.one(), [7, 5]).await;
    stage.give(stage.two(), [4, 6]).await;
    stage.has(stage.two(), [4, 6]).await;
    stage.claim_says(stage.one(), "QuotaSynced", "WriteFailed").await;
    stage.has(stage.hub(), [10, 10]).await;
    wrong(stage.one(), "");
    stage.ends_with([[7, 5], [4, 6]]).await;
}
