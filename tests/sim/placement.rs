//! Placements on a hub without OCM: fedqd decides them, and only what changes is written.

use std::time::Duration;

use fedq_sim::cluster::{Cluster, Options};
use serde_json::{Value, json};

use super::bed::{Bed, wait};

const OCM: &str = "cluster.open-cluster-management.io";
const NAMESPACE: &str = "kueue-system";

fn v1beta1() -> String {
    format!("{OCM}/v1beta1")
}

async fn bed() -> Bed {
    let hub = Options { ocm: true, ..Options::named("hub") };
    let mut bed = Bed::with_hub(hub, &[]).await;
    furnish(&bed.hub).await;
    bed.configure("");
    bed.start_daemon();
    bed
}

/// Three clusters in the set `all`, which is bound.
pub async fn furnish(hub: &Cluster) {
    let namespace = "open-cluster-management-hub";
    hub.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await.unwrap();
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1beta2"), "kind": "ManagedClusterSet", "metadata": {"name": "all"},
        "spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
    }))
    .await
    .unwrap();
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1beta2"), "kind": "ManagedClusterSetBinding",
        "metadata": {"name": "all", "namespace": NAMESPACE}, "spec": {"clusterSet": "all"},
    }))
    .await
    .unwrap();
    for name in ["one", "two", "three"] {
        hub.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await.unwrap();
        hub.put(json!({
            "apiVersion": format!("{OCM}/v1"), "kind": "ManagedCluster",
            "metadata": {"name": name, "labels": {"name": name}}, "spec": {"hubAcceptsClient": true},
        }))
        .await
        .unwrap();
    }
}

pub async fn place(hub: &Cluster, name: &str, spec: Value) {
    hub.put(json!({
        "apiVersion": v1beta1(), "kind": "Placement",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
    }))
    .await
    .unwrap();
}

fn selects(label: &str, value: &str) -> Value {
    json!({"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {label: value}}}}]})
}

fn decided(hub: &Cluster, placement: &str) -> Option<Vec<String>> {
    let decision = hub.get("PlacementDecision", NAMESPACE, &format!("{placement}-decision-1"))?;
    // Without decisions it has no status yet.
    let decisions = decision["status"]["decisions"].as_array().cloned().unwrap_or_default();
    decisions.iter().map(|one| one["clusterName"].as_str().map(str::to_owned)).collect()
}

pub async fn decides(hub: &Cluster, placement: &str, clusters: &[&str]) {
    let what = format!("{placement} to choose {clusters:?}");
    wait(&what, hub, || decided(hub, placement).is_some_and(|found| found == clusters)).await;
}

fn condition(hub: &Cluster, placement: &str, kind: &str) -> Option<Value> {
    let placement = hub.get("Placement", NAMESPACE, placement)?;
    let conditions = placement["status"]["conditions"].as_array()?.clone();
    conditions.into_iter().find(|condition| condition["type"] == kind)
}

async fn says(hub: &Cluster, placement: &str, kind: &str, status: &str, text: &str) {
    let what = format!("{placement} to say {kind}={status} {text}");
    wait(&what, hub, || {
        condition(hub, placement, kind).is_some_and(|condition| {
            condition["status"] == status
                && condition["message"].as_str().is_some_and(|message| message.contains(text))
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_and_scores_decide_and_nothing_is_written_twice() {
    let bed = bed().await;
    let hub = &bed.hub;
    place(hub, "labelled", selects("gpu", "yes")).await;
    says(hub, "labelled", "PlacementSatisfied", "False", "No ManagedCluster matches").await;
    decides(hub, "labelled", &[]).await;
    for name in ["one", "three"] {
        hub.merge("ManagedCluster", name, json!({"metadata": {"labels": {"gpu": "yes"}}})).await.unwrap();
    }
    decides(hub, "labelled", &["one", "three"]).await;
    says(hub, "labelled", "PlacementSatisfied", "True", "All cluster decisions scheduled").await;

    let scored = json!({
        "numberOfClusters": 1,
        "prioritizerPolicy": {"mode": "Exact", "configurations": [{
            "scoreCoordinate": {"type": "AddOn", "addOn": {"resourceName": "usage", "scoreName": "gpu"}},
            "weight": 1,
        }]},
    });
    place(hub, "scored", scored).await;
    decides(hub, "scored", &["one"]).await;
    score(hub, "two", 10).await;
    decides(hub, "scored", &["two"]).await;

    rests(hub).await;
    let owner = hub.get("PlacementDecision", NAMESPACE, "scored-decision-1").unwrap();
    assert_eq!(owner["metadata"]["ownerReferences"][0]["name"], "scored");
    assert_eq!(owner["metadata"]["labels"][format!("{OCM}/placement")], "scored");

    // A cluster that changes in what nobody looks at costs nothing.
    let version = hub.get("Placement", NAMESPACE, "scored").unwrap()["metadata"]["resourceVersion"].clone();
    hub.merge("ManagedCluster", "two", json!({"metadata": {"labels": {"other": "label"}}})).await.unwrap();
    rests(hub).await;
    assert_eq!(hub.get("Placement", NAMESPACE, "scored").unwrap()["metadata"]["resourceVersion"], version);
}

async fn score(hub: &Cluster, cluster: &str, value: i64) {
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1alpha1"), "kind": "AddOnPlacementScore",
        "metadata": {"name": "usage", "namespace": cluster},
        "status": {"scores": [{"name": "gpu", "value": value}]},
    }))
    .await
    .unwrap();
}

/// Waits until fedqd has written nothing for a while.
pub async fn rests(hub: &Cluster) {
    let mut rested = false;
    for _ in 0..20 {
        let before = hub.state.store.version();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        rested = hub.state.store.version() == before;
        if rested {
            break;
        }
    }
    assert!(rested, "fedqd goes on writing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_told_and_moves_nothing_else() {
    let bed = bed().await;
    let hub = &bed.hub;
    place(hub, "good", selects("name", "two")).await;
    decides(hub, "good", &["two"]).await;
    let cel = |text: &str| json!({"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": [text]}}}]});
    place(hub, "broken", cel("managedCluster.metadata.name ==")).await;
    place(hub, "deep", cel(&format!("{}true{}", "(".repeat(5000), ")".repeat(5000)))).await;
    place(hub, "long", cel(&format!("{}true", "true && ".repeat(20_000)))).await;
    let list = "[1,2,3,4,5,6,7,8,9,10].all(";
    let slow: String = ["a", "b", "c", "d", "e", "f", "g"].map(|name| format!("{list}{name},")).concat();
    place(hub, "slow", cel(&format!("{slow}true{}", ")".repeat(7)))).await;
    place(hub, "negative", json!({"numberOfClusters": -1})).await;
    for wrong in ["broken", "deep", "long", "negative"] {
        says(hub, wrong, "PlacementMisconfigured", "True", "").await;
        decides(hub, wrong, &[]).await;
    }
    // What takes too long is not true of any cluster, as in OCM.
    says(hub, "slow", "PlacementSatisfied", "False", "No ManagedCluster matches").await;

    // A score of an absurd cluster does not count, and a condition says so.
    let allocatable = json!({
        "prioritizerPolicy": {"mode": "Exact", "configurations": [
            {"scoreCoordinate": {"type": "BuiltIn", "builtIn": "ResourceAllocatableCPU"}, "weight": 1},
        ]},
        "numberOfClusters": 1,
    });
    place(hub, "allocatable", allocatable).await;
    for (name, cpu) in [("one", "4"), ("two", "8"), ("three", "1e1000")] {
        let amounts = json!({"cpu": cpu});
        let status = json!({"allocatable": amounts, "capacity": amounts});
        hub.set_status("ManagedCluster", name, status).await.unwrap();
    }
    decides(hub, "allocatable", &["two"]).await;
    says(hub, "allocatable", "fedq.dev/ClustersReadable", "False", "three: allocatable cpu").await;
    let amounts = json!({"cpu": "16"});
    let status = json!({"allocatable": amounts, "capacity": amounts});
    hub.set_status("ManagedCluster", "three", status).await.unwrap();
    decides(hub, "allocatable", &["three"]).await;
    wait("the condition to go", hub, || condition(hub, "allocatable", "fedq.dev/ClustersReadable").is_none())
        .await;
    decides(hub, "good", &["two"]).await;
    rests(hub).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placement_has_one_writer() {
    let bed = bed().await;
    let hub = &bed.hub;
    // Somebody else decided this one before.
    hub.put(json!({
        "apiVersion": v1beta1(), "kind": "PlacementDecision",
        "metadata": {
            "name": "theirs-decision-1", "namespace": NAMESPACE, "labels": {format!("{OCM}/placement"): "theirs"},
        },
        "status": {"decisions": [{"clusterName": "one", "reason": ""}]},
    }))
    .await
    .unwrap();
    place(hub, "theirs", selects("name", "two")).await;
    place(hub, "ours", selects("name", "two")).await;
    decides(hub, "ours", &["two"]).await;
    assert_eq!(decided(hub, "theirs").unwrap(), ["one"]);
    assert!(condition(hub, "theirs", "PlacementSatisfied").is_none());

    // OCM's controller begins to run: fedqd stands back from all, but for those that send it away.
    lease(hub, 137).await;
    let labels = json!({"metadata": {"labels": {"name": "two"}}});
    bed.logs("Placements are decided by OCM's placement controller", 1).await;
    hub.merge("ManagedCluster", "one", labels).await.unwrap();
    rests(hub).await;
    assert_eq!(decided(hub, "ours").unwrap(), ["two"], "OCM decides now");
    let disable =
        json!({"metadata": {"annotations": {format!("{OCM}/experimental-scheduling-disable"): "true"}}});
    hub.merge_in(NAMESPACE, "Placement", "theirs", disable).await.unwrap();
    decides(hub, "theirs", &["one", "two"]).await;

    // It is gone: what fedqd decided before is decided on.
    lease(hub, 1).await;
    decides(hub, "ours", &["one", "two"]).await;
}

/// OCM's placement controller takes its lease for so many seconds, by a clock that is far behind.
async fn lease(hub: &Cluster, seconds: u32) {
    let (namespace, name) = ("open-cluster-management-hub", "placement-lock");
    let spec = json!({
        "holderIdentity": "placement-controller", "leaseDurationSeconds": seconds,
        "renewTime": "2020-01-01T00:00:00.000000Z",
    });
    if hub.get("Lease", namespace, name).is_some() {
        hub.merge_in(namespace, "Lease", name, json!({"spec": spec})).await.unwrap();
        return;
    }
    hub.put(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    }))
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_and_kinds_that_come_later_change_no_decision() {
    let mut bed = Bed::with_hub(Options::named("hub"), &[]).await;
    bed.configure("");
    bed.start_daemon();
    bed.logs("\"message\":\"Started\"", 1).await;
    bed.hub.state.serve_ocm(true);
    furnish(&bed.hub).await;
    place(&bed.hub, "labelled", selects("name", "three")).await;
    decides(&bed.hub, "labelled", &["three"]).await;
    rests(&bed.hub).await;
    bed.kill();
    bed.hub.merge("ManagedCluster", "one", json!({"metadata": {"labels": {"name": "three"}}})).await.unwrap();
    bed.start_daemon();
    decides(&bed.hub, "labelled", &["one", "three"]).await;
    rests(&bed.hub).await;
    let version = bed.hub.state.store.version();
    bed.kill();
    bed.start_daemon();
    bed.logs("Placements are decided by fedq", 3).await;
    rests(&bed.hub).await;
    assert_eq!(bed.hub.state.store.version(), version, "a restart writes nothing");
}

/// As when somebody removes OCM's CRDs, and installs them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_vanish_and_return_change_no_decision_and_hold_up_no_quota() {
    let hub = Options { ocm: true, ..Options::named("hub") };
    let mut bed = Bed::with_hub(hub, &["worker"]).await;
    furnish(&bed.hub).await;
    bed.configure("");
    bed.start_daemon();
    let hub = &bed.hub;
    place(hub, "labelled", selects("name", "two")).await;
    decides(hub, "labelled", &["two"]).await;
    bed.join(&bed.workers[0]).await;
    wait("the worker's ManagedCluster", hub, || hub.get("ManagedCluster", "", "worker").is_some()).await;

    hub.state.serve_ocm(false);
    // What is watched is asked for anew, and is not there.
    hub.power_off().await;
    hub.power_on().await.unwrap();
    bed.assign(&bed.workers[0], "4").await;
    bed.holds(&bed.workers[0], "4").await;
    wait("the share on the hub", hub, || super::bed::nominal(hub).as_deref() == Some("4")).await;
    assert_eq!(decided(hub, "labelled").unwrap(), ["two"]);

    hub.state.serve_ocm(true);
    hub.merge("ManagedCluster", "one", json!({"metadata": {"labels": {"name": "two"}}})).await.unwrap();
    decides(hub, "labelled", &["one", "two"]).await;
    assert!(hub.get("ManagedCluster", "", "worker").is_some(), "it has not left");
    rests(hub).await;
}

/// With the same view of all clusters they would all choose the same one, and then all another, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn placements_that_balance_spread_and_come_to_rest() {
    const PLACEMENTS: usize = 12;
    let bed = bed().await;
    let hub = &bed.hub;
    let balance = json!({
        "numberOfClusters": 1,
        "prioritizerPolicy": {"mode": "Exact", "configurations": [{
            "scoreCoordinate": {"type": "BuiltIn", "builtIn": "Balance"}, "weight": 1,
        }]},
    });
    for number in 0..PLACEMENTS {
        place(hub, &format!("p{number}"), balance.clone()).await;
    }
    let chosen = || {
        let of = |number: usize| decided(hub, &format!("p{number}")).unwrap_or_default();
        let mut chosen: Vec<String> = (0..PLACEMENTS).flat_map(of).collect();
        chosen.sort();
        chosen
    };
    wait("all to be decided", hub, || chosen().len() == PLACEMENTS).await;
    for number in 0..PLACEMENTS {
        says(hub, &format!("p{number}"), "PlacementSatisfied", "True", "").await;
    }
    // Those that were made while the others were being decided may move once.
    wait("them to be spread", hub, || {
        let spread: Vec<usize> = chosen().chunk_by(|one, other| one == other).map(<[String]>::len).collect();
        spread == [PLACEMENTS / 3; 3]
    })
    .await;
    // Longer than writes to one object are apart.
    let versions = || {
        let all = ["Placement", "PlacementDecision"].into_iter().flat_map(|kind| hub.list(kind));
        all.map(|object| object["metadata"]["resourceVersion"].clone()).collect::<Vec<_>>()
    };
    let before = versions();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(versions(), before, "{:?}", chosen());
}

/// The clusters of each decision of the Placement that has any, by name of the decision.
fn decisions(hub: &Cluster, placement: &str) -> Vec<Vec<String>> {
    let of = |decision: &Value| decision["metadata"]["labels"][format!("{OCM}/placement")] == placement;
    let clusters = |decision: &Value| -> Vec<String> {
        let decided = decision["status"]["decisions"].as_array().cloned().unwrap_or_default();
        decided.iter().map(|one| one["clusterName"].as_str().unwrap().to_owned()).collect()
    };
    let all = hub.list("PlacementDecision");
    all.iter().filter(|decision| of(decision)).map(|decision| clusters(decision)).collect()
}

async fn managed(hub: &Cluster, name: &str, label: (&str, &str)) {
    hub.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await.unwrap();
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1"), "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": {label.0: label.1}}, "spec": {"hubAcceptsClient": true},
    }))
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn regrouping_moves_a_placement_off_no_cluster() {
    let bed = bed().await;
    let hub = &bed.hub;
    let mut chosen = Vec::new();
    for number in 0..12 {
        let name = format!("m{number:02}");
        managed(hub, &name, ("pool", "yes")).await;
        chosen.push(name);
    }
    let in_groups_of = |size: u32| {
        let mut spec = selects("pool", "yes");
        spec["numberOfClusters"] = json!(12);
        spec["decisionStrategy"] = json!({"groupStrategy": {"clustersPerDecisionGroup": size}});
        spec
    };
    place(hub, "steady", in_groups_of(12)).await;
    says(hub, "steady", "PlacementSatisfied", "True", "").await;
    assert_eq!(
        decisions(hub, "steady"),
        std::slice::from_ref(&chosen),
        "the status comes after the decisions"
    );

    // Better by name, and not better than those that are chosen.
    for number in 0..12 {
        managed(hub, &format!("a{number:02}"), ("pool", "yes")).await;
    }
    rests(hub).await;
    for size in [5, 1, 4, 12] {
        let spec = json!({"spec": in_groups_of(size)});
        hub.merge_in(NAMESPACE, "Placement", "steady", spec).await.unwrap();
        let groups = chosen.len().div_ceil(usize::try_from(size).unwrap());
        wait(&format!("groups of {size}"), hub, || {
            let found = decisions(hub, "steady");
            let mut all = found.concat();
            all.sort();
            let is_whole = all == chosen;
            all.dedup();
            assert_eq!(all, chosen, "a chosen cluster is in no decision, or another one in some");
            is_whole && found.len() == groups
        })
        .await;
    }
    rests(hub).await;
    assert_eq!(decisions(hub, "steady"), [chosen]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_tells_no_more_than_the_decisions_show() {
    let bed = bed().await;
    let hub = &bed.hub;
    let refused = fedq_sim::faults::Plan::default().only(
        Some("patch"),
        Some("placementdecisions"),
        fedq_sim::faults::Fault::Forbidden,
    );
    hub.set_faults(refused);
    place(hub, "labelled", selects("name", "two")).await;
    bed.logs("Could not write placementdecisions", 1).await;
    rests(hub).await;
    assert!(condition(hub, "labelled", "PlacementSatisfied").is_none(), "nothing is decided yet");
    hub.set_faults(fedq_sim::faults::Plan::default());
    says(hub, "labelled", "PlacementSatisfied", "True", "").await;
    assert_eq!(decided(hub, "labelled").unwrap(), ["two"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placement_that_was_taken_over_stays_taken_over() {
    let mut bed = bed().await;
    let disabled = |value: Value| json!({"metadata": {"annotations": {format!("{OCM}/experimental-scheduling-disable"): value}}});
    bed.hub
        .put(json!({
            "apiVersion": v1beta1(), "kind": "PlacementDecision",
            "metadata": {
                "name": "theirs-decision-1", "namespace": NAMESPACE,
                "labels": {
                    format!("{OCM}/placement"): "theirs", format!("{OCM}/decision-group-name"): "",
                    format!("{OCM}/decision-group-index"): "0",
                },
            },
            "status": {"decisions": [{"clusterName": "one", "reason": ""}]},
        }))
        .await
        .unwrap();
    place(&bed.hub, "theirs", selects("name", "two")).await;
    bed.hub.merge_in(NAMESPACE, "Placement", "theirs", disabled(json!("true"))).await.unwrap();
    decides(&bed.hub, "theirs", &["two"]).await;
    rests(&bed.hub).await;

    bed.hub.merge_in(NAMESPACE, "Placement", "theirs", disabled(Value::Null)).await.unwrap();
    let labels = json!({"metadata": {"labels": {"name": "two"}}});
    bed.hub.merge("ManagedCluster", "one", labels.clone()).await.unwrap();
    decides(&bed.hub, "theirs", &["one", "two"]).await;
    rests(&bed.hub).await;
    bed.kill();
    bed.start_daemon();
    bed.hub.merge("ManagedCluster", "three", labels).await.unwrap();
    decides(&bed.hub, "theirs", &["one", "three", "two"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_placement_of_a_name_that_was_there_before_is_warned_of_again() {
    let bed = bed().await;
    let hub = &bed.hub;
    hub.put(json!({
        "apiVersion": format!("{OCM}/v1alpha1"), "kind": "AddOnPlacementScore",
        "metadata": {"name": "usage", "namespace": "one"},
        "status": {"scores": [{"name": "gpu", "value": 1}], "validUntil": "2020-01-01T00:00:00Z"},
    }))
    .await
    .unwrap();
    let scored = json!({"prioritizerPolicy": {"mode": "Exact", "configurations": [{
        "scoreCoordinate": {"type": "AddOn", "addOn": {"resourceName": "usage", "scoreName": "gpu"}}, "weight": 1,
    }]}});
    let warning = "AddOnPlacementScores one/usage expired";
    place(hub, "scored", scored.clone()).await;
    bed.logs(warning, 1).await;
    says(hub, "scored", "PlacementSatisfied", "True", "").await;
    hub.remove_in(NAMESPACE, "Placement", "scored").await.unwrap();
    rests(hub).await;
    place(hub, "scored", scored).await;
    bed.logs(warning, 2).await;
}
