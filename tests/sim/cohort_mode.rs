//! Hub queues whose quota stands in a Cohort of their own: who writes what, and that quota is never there twice.

use std::cell::Cell;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fedq_sim::{cluster::Cluster, rbac::User};
use fedq_values::quantity::Quantity;
use serde_json::{Value, json};

use super::bed::{Bed, KUEUE, WITHIN, nominal, wait};

const COHORT: &str = "fedq-team";

/// The queue as Git has it: what it says, it says for ever.
fn in_git(into: Option<&str>, cohort: Option<&str>) -> Value {
    let annotations = into.map(|into| json!({"fedq.dev/quota-into": into, "fedq.dev/parent-cohort": "org"}));
    json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue",
        "metadata": {"name": "team", "annotations": annotations},
        "spec": {"namespaceSelector": {}, "cohortName": cohort, "fairSharing": {"weight": 2}, "resourceGroups": [{
            "coveredResources": ["nvidia.com/gpu"],
            "flavors": [{"name": "gpus", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "0"}]}],
        }]},
    })
}

/// As an engine does that goes by Git.
async fn apply(hub: &Cluster, queue: Value) {
    hub.merge("ClusterQueue", "team", queue).await.unwrap();
}

fn gpus(cluster: &Cluster, kind: &str, name: &str) -> Option<String> {
    let object = cluster.get(kind, "", name)?;
    let quota = &object["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"];
    quota.as_str().map(str::to_owned)
}

fn units(gpus: Option<String>) -> i64 {
    let text = gpus.unwrap_or_else(|| "0".to_owned());
    i64::try_from(Quantity::parse(&text).unwrap().nanos() / 1_000_000_000).unwrap()
}

async fn has(cluster: &Cluster, kind: &str, name: &str, amount: &str) {
    let what = format!("{amount} GPUs in {kind} {name}");
    wait(&what, cluster, || gpus(cluster, kind, name).as_deref() == Some(amount)).await;
}

async fn managed(mode: Option<&str>, cohort: Option<&str>) -> Bed {
    let bed = Bed::start(&["one"]).await;
    apply(&bed.hub, in_git(mode, cohort)).await;
    bed.join(&bed.workers[0]).await;
    bed.assign(&bed.workers[0], "5").await;
    bed
}

/// Why the queue is left alone, as the API says it.
async fn left_alone(bed: &Bed, says: &str) {
    let began = Instant::now();
    loop {
        let queue = explained(bed).await;
        let untouched = queue["untouched"].as_str().unwrap_or_default().to_owned();
        if untouched.contains(says) {
            return;
        }
        assert!(began.elapsed() < WITHIN, "`{untouched}` is not `{says}`");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// `fedq quota …`, as an administrator of the hub.
async fn quota(bed: &Bed, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedq"));
    let token = bed.hub.state.new_token(User::new("ann", &["system:masters"]), None);
    command.arg("quota").args(line.split(' ')).env_clear().stdin(Stdio::null());
    command.env("FEDQ_SERVER", bed.api().await).env("FEDQ_TOKEN", token);
    command.env("FEDQ_CONFIG", "/nowhere/config.yaml").env("KUBECONFIG", "/nowhere/kubeconfig");
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn explained(bed: &Bed) -> Value {
    let answer = quota(bed, "explain team -o json").await;
    // A daemon that has just started knows no queue yet.
    let explanation: Value = serde_json::from_slice(&answer.stdout).unwrap_or_default();
    explanation["queue"].clone()
}

#[tokio::test]
async fn git_writes_the_queue_and_fedq_its_cohort() {
    let bed = managed(Some("cohort"), Some(COHORT)).await;
    let (hub, one) = (&bed.hub, &bed.workers[0]);
    has(hub, "Cohort", COHORT, "5").await;
    let cohort = hub.get("Cohort", "", COHORT).unwrap();
    assert_eq!(cohort["spec"]["parentName"], "org");
    assert_eq!(cohort["spec"]["fairSharing"]["weight"], 2);
    assert!(cohort["metadata"]["labels"]["fedq.dev/hub"].is_string(), "{cohort:#}");
    let queue = hub.get("ClusterQueue", "", "team").unwrap();
    let managers = queue["metadata"]["managedFields"].as_array().unwrap().iter();
    let managers: Vec<&Value> = managers.map(|entry| &entry["manager"]).collect();
    assert_eq!(managers, ["admin", "kueue"], "fedq writes nothing of it");
    has(one, "ClusterQueue", "team", "5").await;
    let copy = one.get("ClusterQueue", "", "team").unwrap();
    assert_eq!(copy["spec"]["cohortName"], "org", "workers get an ordinary queue");
    let shown = explained(&bed).await;
    assert_eq!((&shown["cohort"], &shown["quotaCohort"]), (&json!("org"), &json!(COHORT)));

    // Git changes another field; its numbers are what they were, and nobody minds.
    let mut git = in_git(Some("cohort"), Some(COHORT));
    git["spec"]["queueingStrategy"] = json!("StrictFIFO");
    git["metadata"]["annotations"]["fedq.dev/parent-cohort"] = json!("lab");
    apply(hub, git).await;
    wait("the policy on the worker", one, || {
        let copy = one.get("ClusterQueue", "", "team").unwrap();
        copy["spec"]["queueingStrategy"] == "StrictFIFO" && copy["spec"]["cohortName"] == "lab"
    })
    .await;
    wait("the new parent", hub, || hub.get("Cohort", "", COHORT).unwrap()["spec"]["parentName"] == "lab")
        .await;
    // A limit that a person sets on the Cohort is kept, as far as there is quota.
    let limited = json!({"spec": {"resourceGroups": with_limit(hub, "3")}});
    hub.merge("Cohort", COHORT, limited).await.unwrap();
    for (gpus, lent) in [("2", "2"), ("7", "3")] {
        bed.assign(one, gpus).await;
        has(hub, "Cohort", COHORT, gpus).await;
        let cohort = hub.get("Cohort", "", COHORT).unwrap();
        let cell = &cohort["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
        assert_eq!(cell["lendingLimit"], lent, "{cohort:#}");
    }
    let above = json!({"spec": {"resourceGroups": with_limit(hub, "9")}});
    hub.merge("Cohort", COHORT, above).await.unwrap();
    bed.assign(one, "4").await;
    has(hub, "Cohort", COHORT, "4").await;
    // Nothing is shared any more, so Kueue takes no limit.
    let mut alone = in_git(Some("cohort"), Some(COHORT));
    alone["metadata"]["annotations"]["fedq.dev/parent-cohort"] = Value::Null;
    apply(hub, alone).await;
    wait("a Cohort without parent and limits", hub, || {
        let cohort = hub.get("Cohort", "", COHORT).unwrap();
        let cell = &cohort["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0];
        cohort["spec"]["parentName"].is_null() && cell["lendingLimit"].is_null()
    })
    .await;
    assert_eq!(nominal(hub).as_deref(), Some("0"));
}

fn with_limit(hub: &Cluster, lending: &str) -> Value {
    let mut groups = hub.get("Cohort", "", COHORT).unwrap()["spec"]["resourceGroups"].clone();
    groups[0]["flavors"][0]["resources"][0]["lendingLimit"] = json!(lending);
    groups
}

#[tokio::test]
async fn quota_moves_into_the_cohort_and_back_without_being_there_twice() {
    let bed = managed(None, None).await;
    let hub = &bed.hub;
    bed.holds(hub, "5").await;
    let story = async {
        apply(hub, in_git(Some("cohort"), Some(COHORT))).await;
        has(hub, "Cohort", COHORT, "5").await;
        bed.holds(hub, "0").await;
        let queue = hub.get("ClusterQueue", "", "team").unwrap();
        assert!(queue["metadata"]["annotations"]["fedq.dev/cells"].is_null(), "{queue:#}");

        // By the annotation alone, as a person with kubectl would.
        let turn = |into: Option<&str>, cohort: &str| json!({"metadata": {"annotations": {"fedq.dev/quota-into": into}}, "spec": {"cohortName": cohort}});
        hub.merge("ClusterQueue", "team", turn(None, "org")).await.unwrap();
        bed.holds(hub, "5").await;
        assert!(hub.get("Cohort", "", COHORT).is_none(), "it is not wanted any more");
        hub.merge("ClusterQueue", "team", turn(Some("cohort"), COHORT)).await.unwrap();
        has(hub, "Cohort", COHORT, "5").await;
        bed.holds(hub, "0").await;
        hub.remove("ClusterQueue", "team").await.unwrap();
        wait("the Cohort to go with its queue", hub, || hub.get("Cohort", "", COHORT).is_none()).await;
    };
    assert_eq!(most_together(hub, story).await, 5, "of what the worker has");
}

/// The most that queue and Cohort had together at any moment of a story.
async fn most_together(hub: &Cluster, story: impl Future<Output = ()>) -> i64 {
    let most = Cell::new(0);
    let look = async {
        let mut moved = hub.state.store.moved();
        loop {
            let sum = units(gpus(hub, "ClusterQueue", "team")) + units(gpus(hub, "Cohort", COHORT));
            most.set(most.get().max(sum));
            moved.changed().await.unwrap();
        }
    };
    tokio::select! {
        biased;
        () = look => unreachable!("the cluster outlives the story"),
        () = story => most.get(),
    }
}

#[tokio::test]
async fn a_cohort_that_is_not_ours_is_left_alone_until_handed_over() {
    let bed = Bed::start(&["one"]).await;
    let theirs = json!({
        "apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": COHORT}, "spec": {"parentName": "theirs"},
    });
    bed.hub.put(theirs).await.unwrap();
    apply(&bed.hub, in_git(Some("cohort"), Some("org"))).await;
    bed.join(&bed.workers[0]).await;
    bed.assign(&bed.workers[0], "5").await;
    left_alone(&bed, "its cohortName has to be `fedq-team`, and it is `org`").await;
    let claim = || bed.hub.get("ClusterResourceClaim", "", "one-resource-claim").unwrap();
    wait("the claim to say so", &bed.hub, || {
        let text = claim()["status"]["conditions"].to_string();
        text.contains("LeftAlone") && text.contains("its cohortName has to be `fedq-team`")
    })
    .await;
    let on_worker = || bed.workers[0].get("ClusterQueue", "", "team").unwrap()["spec"]["cohortName"].clone();
    assert_eq!(on_worker(), "org", "as it is on the hub");
    apply(&bed.hub, in_git(Some("cohort"), Some(COHORT))).await;
    left_alone(&bed, "Cohort `fedq-team` is there already and not fedq's").await;
    assert_eq!(bed.hub.get("Cohort", "", COHORT).unwrap()["spec"], json!({"parentName": "theirs"}));
    let adopt = json!({"metadata": {"annotations": {"fedq.dev/adopt": "true"}}});
    bed.hub.merge("Cohort", COHORT, adopt).await.unwrap();
    has(&bed.hub, "Cohort", COHORT, "5").await;
    let ours = bed.hub.get("Cohort", "", COHORT).unwrap();
    assert!(ours["metadata"]["annotations"]["fedq.dev/adopt"].is_null(), "{ours:#}");
    assert_eq!(ours["spec"]["parentName"], "org");
    apply(&bed.hub, in_git(Some("elsewhere"), Some(COHORT))).await;
    left_alone(&bed, "annotation `fedq.dev/quota-into` is `elsewhere`; it can be `cohort` or `queue`").await;
    assert_eq!(gpus(&bed.hub, "Cohort", COHORT).as_deref(), Some("5"), "it stays as it is");
    assert_eq!(on_worker(), "org", "there, too");
    for (parent, says) in [("No Name", "fedq.dev/parent-cohort` is `No Name`"), (COHORT, "below that itself")]
    {
        let mut wrong = in_git(Some("cohort"), Some(COHORT));
        wrong["metadata"]["annotations"]["fedq.dev/parent-cohort"] = json!(parent);
        apply(&bed.hub, wrong).await;
        left_alone(&bed, says).await;
    }
    let mut limited = in_git(Some("cohort"), Some(COHORT));
    limited["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = json!("0");
    apply(&bed.hub, limited).await;
    left_alone(&bed, "its own borrowingLimit would hold for all that it uses").await;
}

#[tokio::test]
async fn what_git_does_not_cover_is_told_and_the_base_outlives_a_restart() {
    let mut bed = managed(Some("cohort"), Some(COHORT)).await;
    has(&bed.hub, "Cohort", COHORT, "5").await;
    let answer = quota(&bed, "base team --flavor gpus gpu=2").await;
    assert!(answer.status.success(), "{}", String::from_utf8_lossy(&answer.stderr));
    has(&bed.hub, "Cohort", COHORT, "7").await;
    bed.kill();
    // Somebody deletes it meanwhile: it is fedq's own, and comes back as it was.
    bed.hub.remove("Cohort", COHORT).await.unwrap();
    bed.start_daemon();
    has(&bed.hub, "Cohort", COHORT, "7").await;
    bed.assign(&bed.workers[0], "6").await;
    has(&bed.hub, "Cohort", COHORT, "8").await;

    let claim = "one-resource-claim";
    let assignments = json!({"spec": {"resourceAssignments": [
        {"clusterQueueName": "team", "flavor": "gpus", "resources": {"gpu": "6", "cpu": "4"}},
    ]}});
    bed.hub.merge("ClusterResourceClaim", claim, assignments).await.unwrap();
    wait("what is not covered to be told", &bed.hub, || {
        let claim = bed.hub.get("ClusterResourceClaim", "", claim).unwrap();
        claim["status"]["conditions"]
            .to_string()
            .contains("add `cpu` of flavor `gpus` to it with nominalQuota 0")
    })
    .await;
    assert_eq!(gpus(&bed.hub, "Cohort", COHORT).as_deref(), Some("8"));
}
