//! Others who write what fedqd writes.

use std::process::Command;
use std::time::{Duration, Instant};

use fedq_k8s::client::{ClientLimits, connect};
use fedq_k8s::kubeconfig::{Rules, check};
use fedq_sim::rbac::User;
use http::Request;
use serde_json::{Value, json};

use super::super::bed::WITHIN;
use super::stage::{FLAVOR, GPU, Stage, condition_of, gpus, merged, queue_objects};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_elses_queue_of_the_same_name_is_neither_taken_nor_counted() {
    let mut stage = Stage::unjoined("", "").await;
    stage.may_fall = true;
    let theirs = queue_objects("team", 2, Some("somebody")).remove(0);
    stage.one().put(theirs).await.unwrap();
    let before = stage.one().get("ClusterQueue", "", "team").unwrap();
    for (worker, amounts) in [(stage.one(), [6, 4]), (stage.two(), [3, 5])] {
        stage.bed.join(worker).await;
        stage.give(worker, amounts).await;
    }
    stage.has(stage.one(), [2, 4]).await;
    stage.has(stage.hub(), [3, 9]).await;
    stage.claim_says(stage.one(), "Satisfied", "Conflict").await;
    stage.rests().await;
    let after = stage.one().get("ClusterQueue", "", "team").unwrap();
    assert_eq!(
        (&before["spec"], &before["metadata"]["labels"]),
        (&after["spec"], &after["metadata"]["labels"])
    );
    stage.one().remove("ClusterQueue", "team").await.unwrap();
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_war_over_a_queues_policy_is_fought_at_a_bounded_rate_and_told() {
    let mut stage = Stage::set_with("", "quota: {mergeWindow: 50ms, driftRevertsPerMinute: 2}\n").await;
    stage.may_fall = true;
    let strategy =
        || stage.one().get("ClusterQueue", "", "team").unwrap()["spec"]["queueingStrategy"].clone();
    let told = || {
        let claim = stage.hub().get("ClusterResourceClaim", "", "one-resource-claim").unwrap();
        condition_of(&claim, "QuotaSynced")["reason"] == "QuotaConflict"
    };
    let ours = strategy();
    // Each edit is put back, or left and told of.
    for _ in 0..12 {
        let patch = json!({"spec": {"queueingStrategy": "StrictFIFO"}});
        merged(stage.one(), "ClusterQueue", "team", patch).await;
        let began = Instant::now();
        while strategy() != ours && !told() {
            assert!(began.elapsed() < WITHIN, "neither put back nor told of");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    stage.claim_says(stage.one(), "QuotaSynced", "QuotaConflict").await;
    assert_eq!(strategy(), "StrictFIFO", "then it is left to people");
    let patch = json!({"spec": {"queueingStrategy": ours}});
    merged(stage.one(), "ClusterQueue", "team", patch).await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_war_over_quota_is_fought_at_a_bounded_rate_and_told() {
    let mut stage = Stage::set_with("", "quota: {mergeWindow: 50ms, driftRevertsPerMinute: 2}\n").await;
    stage.may_fall = true;
    let set = async |gpus: &str| {
        let quota = json!({"name": GPU, "nominalQuota": gpus});
        let flavors = json!([{"name": FLAVOR, "resources": [quota]}]);
        let groups = json!([{"coveredResources": [GPU], "flavors": flavors}]);
        let patch = json!({"spec": {"resourceGroups": groups}});
        merged(stage.one(), "ClusterQueue", "team", patch).await;
    };
    let told = || {
        let claim = stage.hub().get("ClusterResourceClaim", "", "one-resource-claim").unwrap();
        condition_of(&claim, "QuotaSynced")["reason"] == "QuotaConflict"
    };
    // Each edit is put back, or left and told of.
    for _ in 0..12 {
        set("1").await;
        let began = Instant::now();
        while gpus(stage.one())[0] != Some(6) && !told() {
            assert!(began.elapsed() < WITHIN, "neither put back nor told of");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    stage.claim_says(stage.one(), "QuotaSynced", "QuotaConflict").await;
    let reverts =
        stage.quota_writes()[1].iter().filter(|(name, _, after)| name == "team" && *after == 6).count();
    assert!((1..=3).contains(&reverts), "{reverts} reverts");
    assert_eq!(gpus(stage.one())[0], Some(1), "then it is left to people");
    set("6").await;
    stage.ends_with([[6, 4], [3, 5]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_applies_the_hubs_queue_from_git_is_told_what_to_configure() {
    let mut stage = Stage::set_with("", "quota: {mergeWindow: 50ms, driftRevertsPerMinute: 2}\n").await;
    stage.may_fall = true;
    let kubeconfig = stage.hub().kubeconfig("admin", &["system:masters"]);
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let client =
        connect(&check(kubeconfig.as_bytes(), None, &rules).unwrap(), &ClientLimits::default()).unwrap();
    let in_git = json!({"spec": {"resourceGroups": [{
        "coveredResources": [GPU],
        "flavors": [{"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": "0"}]}],
    }]}});
    let apply = async || {
        let request =
            Request::patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team?fieldManager=argocd-controller")
                .header("content-type", "application/merge-patch+json")
                .body(in_git.to_string().into_bytes())
                .unwrap();
        client.kube().request::<Value>(request).await.unwrap();
    };
    let began = Instant::now();
    loop {
        let claim = stage.hub().get("ClusterResourceClaim", "", "one-resource-claim").unwrap();
        let said = condition_of(&claim, "QuotaSynced");
        if said["reason"] == "QuotaConflict" {
            let message = said["message"].as_str().unwrap();
            // Times of writes are in seconds, so whoever made the queue within the same one may be named as well.
            assert!(message.contains("`argocd-controller`: `fedq quota explain team` prints"), "{message}");
            break;
        }
        assert!(began.elapsed() < WITHIN, "nothing is said of it: {said}");
        if gpus(stage.hub())[0] != Some(0) {
            apply().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let url = stage.bed.api().await;
    let token = stage.hub().state.new_token(User::new("ann", &["system:masters"]), None);
    let fedq = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
        command.args(arguments).env_clear().env("FEDQ_SERVER", &url).env("FEDQ_TOKEN", &token);
        command.env("FEDQ_CONFIG", "/nowhere/config.yaml").env("KUBECONFIG", "/nowhere/kubeconfig");
        let said = command.output().unwrap();
        String::from_utf8([said.stdout, said.stderr].concat()).unwrap()
    };
    // On a busy machine the moment is over before it is asked about: the next write of theirs tells again.
    let told = |arguments: &[&str]| {
        let said = fedq(arguments);
        said.contains("`argocd-controller`").then_some(said)
    };
    for arguments in [&["quota", "explain", "team"][..], &["check"]] {
        let began = Instant::now();
        let said = loop {
            if let Some(said) = told(arguments) {
                break said;
            }
            assert!(began.elapsed() < WITHIN, "it is not told of: {}", fedq(arguments));
            apply().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        for line in [
            "`argocd-controller`",
            "- RespectIgnoreDifferences=true",
            "  - .spec.resourceGroups[].flavors[].resources[].nominalQuota",
        ] {
            assert!(said.contains(line), "`{line}` is missing:\n{said}");
        }
    }
}
