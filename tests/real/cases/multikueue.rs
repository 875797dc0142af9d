//! Placements decide which clusters MultiKueue uses.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::multikueue_stage::{
    NAMESPACE, check_says, check_tells, checks, config_is, decide, evictions, finishes, hub_queue,
    install_ocm, is_active, mk, ocm, placement_check, runs_on, was_not_evicted, worker_queue, workload_of,
};
use super::stage::{FEDQD, GPU, KUEUE, Recorder, SOON, Setup, Stage, clear, finish, job, queue};
use crate::support::cluster::{Id, Part, id};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually, throughout};

/// Longer than any case.
const LONG: &str = "30m";

/// The cases write decisions themselves.
const DECIDED: &str = "placement: {evaluate: false}";

/// Two joined workers with queues, the hub's queue with both checks on Placement `gpu`, and a daemon.
async fn set<'f>(fleet: &'f Fleet, name: &str, case: &'static str) -> Result<Stage<'f>> {
    clear(fleet).await?;
    install_ocm(&fleet.hub).await?;
    let setup = Setup { more: DECIDED, ..Setup::default() };
    let stage = Stage::start(fleet, name, case, setup).await?;
    for (suffix, worker) in [("one", fleet.worker1()), ("two", fleet.worker2())] {
        worker_queue(worker, case, 8).await?;
        stage.join(&format!("{case}-{suffix}"), worker).await?;
    }
    stage.hub().apply(&checks(case, "gpu")).await?;
    hub_queue(stage.hub(), case, 16).await?;
    Ok(stage)
}

pub async fn jobs_run_where_a_placement_decides_and_no_change_of_it_evicts_them(fleet: &Fleet) -> Result<()> {
    let case = "place";
    let name = "jobs_run_where_a_placement_decides_and_no_change_of_it_evicts_them";
    let stage = set(fleet, name, case).await?;
    let (hub, one) = (stage.hub(), fleet.worker1());
    check_says(hub, "placement-place", "False", "PlacementNotFound").await?;
    decide(hub, "gpu", &["place-one"]).await?;
    config_is(hub, "gpu", &["gpu-place-one"]).await?;
    check_says(hub, "placement-place", "True", "Active").await?;
    is_active(hub, "MultiKueueCluster", "gpu-place-one").await?;
    is_active(hub, "ClusterQueue", case).await?;

    hub.apply_object("fedq-test", job(case, "first", case, &[(GPU, "4")], LONG)).await?;
    runs_on(hub, case, "first", "gpu-place-one").await.context("dispatched with both checks")?;
    decide(hub, "gpu", &["place-two"]).await?;
    config_is(hub, "gpu", &["gpu-place-two", "gpu-place-one"])
        .await
        .context("the one that drains is last")?;
    check_tells(hub, "placement-place", ("True", "Active"), "draining: gpu-place-one").await?;
    is_active(hub, "MultiKueueCluster", "gpu-place-two").await?;

    // A decision that is gone altogether changes nothing while work runs.
    decide(hub, "gpu", &[]).await?;
    check_tells(hub, "placement-place", ("False", "NoClustersAvailable"), "decided on no cluster").await?;
    let misconfigured = json!({"status": {"conditions": [{
        "type": "PlacementMisconfigured", "status": "True", "reason": "Misconfigured", "message": "bad label",
        "lastTransitionTime": "2027-01-01T00:00:00Z",
    }]}});
    hub.merge(ocm("Placement", "gpu"), Part::Status, misconfigured).await?;
    check_tells(hub, "placement-place", ("False", "PlacementError"), "bad label").await?;
    config_is(hub, "gpu", &["gpu-place-two", "gpu-place-one"]).await.context("the last good one stays")?;
    hub.merge(ocm("Placement", "gpu"), Part::Status, json!({"status": null})).await?;
    decide(hub, "gpu", &["place-two"]).await?;
    check_says(hub, "placement-place", "True", "Active").await?;

    finishes(hub, one, case, "first").await?;
    was_not_evicted(hub, case, "first").await?;
    config_is(hub, "gpu", &["gpu-place-two"]).await.context("removed when empty")?;
    hub.wait_gone(mk("MultiKueueCluster", "gpu-place-one"), SOON).await?;
    hub.wait_gone(secret("place-one"), SOON).await?;
    let left = one.list(KUEUE, "Workload", Some(case)).await?;
    ensure!(left.is_empty(), "Kueue cleared up on the cluster that left: {left:#?}");
    stage.rest().await?;
    let marks = stage.marks()?;
    tokio::time::sleep(Duration::from_secs(35)).await;
    let writes = stage.writes_since(&marks).await?;
    ensure!(writes.is_empty(), "nothing changed: {writes:#?}");
    Ok(())
}

fn secret(cluster: &'static str) -> Id<'static> {
    let name = match cluster {
        "place-one" => "fedq-multikueue-place-one",
        "rotate-one" => "fedq-multikueue-rotate-one",
        "void-one" => "fedq-multikueue-void-one",
        _ => "fedq-multikueue-share-one",
    };
    id("v1", "Secret", name).within(NAMESPACE)
}

/// A new token, a killed daemon and an eviction: work goes on, and comes back.
pub async fn running_work_outlives_tokens_restarts_and_comes_back_from_an_eviction(
    fleet: &Fleet,
) -> Result<()> {
    let case = "rotate";
    let name = "running_work_outlives_tokens_restarts_and_comes_back_from_an_eviction";
    let stage = set(fleet, name, case).await?;
    let (hub, one) = (stage.hub(), fleet.worker1());
    decide(hub, "gpu", &["rotate-one"]).await?;
    is_active(hub, "MultiKueueCluster", "gpu-rotate-one").await?;
    hub.apply_object("fedq-test", job(case, "long", case, &[(GPU, "4")], LONG)).await?;
    runs_on(hub, case, "long", "gpu-rotate-one").await?;
    stage.rest().await?;

    let before = hub.get(secret("rotate-one")).await?.context("its credential")?;
    let mark = hub.mark()?;
    let old = json!({"metadata": {"annotations": {"fedq.dev/expires": "2026-01-01T00:00:00Z"}}});
    hub.merge(secret("rotate-one"), Part::Whole, old).await?;
    let renewed = |secret: &Value| {
        secret["data"] != before["data"]
            && secret["metadata"]["annotations"]["fedq.dev/expires"] != "2026-01-01T00:00:00Z"
    };
    hub.wait(secret("rotate-one"), "a new token", SOON, renewed).await?;
    stage.rest().await?;
    let writes = hub.writes_since(mark, FEDQD).await?;
    let secrets = writes
        .iter()
        .filter(|one| one.resource == "secrets" && one.name.as_deref() == Some("fedq-multikueue-rotate-one"));
    ensure!(secrets.count() == 1, "one renewal is one write: {writes:#?}");
    ensure!(writes.len() == 1, "and nothing else is written: {writes:#?}");

    for pause in [0, 300, 900] {
        stage.daemon.kill()?;
        decide(hub, "gpu", if pause == 300 { &["rotate-one"] } else { &["rotate-two"] }).await?;
        stage.daemon.restart().await?;
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    config_is(hub, "gpu", &["gpu-rotate-two", "gpu-rotate-one"]).await?;
    was_not_evicted(hub, case, "long").await.context("after a restart")?;
    decide(hub, "gpu", &["rotate-one"]).await?;
    config_is(hub, "gpu", &["gpu-rotate-one"])
        .await
        .context("the other one drains for half a minute at most")?;

    // Somebody more important comes on the worker.
    one.apply(&queue(case, case, &[(GPU, "8")], "  preemption: {withinClusterQueue: LowerPriority}")).await?;
    one.apply(&format!(
        "{{apiVersion: {KUEUE}, kind: WorkloadPriorityClass, metadata: {{name: {case}}}, value: 1000}}"
    ))
    .await?;
    let mut urgent = job(case, "urgent", case, &[(GPU, "8")], LONG);
    urgent["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(case);
    one.apply_object("fedq-test", urgent).await?;
    eventually("the Job to wait for a cluster again, with our check passed", SOON * 2, async || {
        let workload = workload_of(hub, case, "long").await?.context("its Workload")?;
        let states = workload["status"]["admissionChecks"].as_array().cloned().unwrap_or_default();
        let ready = states.iter().any(|one| one["name"] == "placement-rotate" && one["state"] == "Ready");
        let waits = workload["status"]["nominatedClusterNames"] == json!(["gpu-rotate-one"]);
        let evicted = 0 < evictions(hub, case, "long").await?;
        Ok(Seen::when(ready && waits && evicted, || format!("{:#}", workload["status"])))
    })
    .await?;
    finish(one, case, "urgent").await?;
    runs_on(hub, case, "long", "gpu-rotate-one").await.context("once more")?;
    finishes(hub, one, case, "long").await
}

/// The account is deleted on the worker: all of its tokens are worth nothing at once, and Kueue's open watches do not
/// notice.
pub async fn a_token_that_is_void_before_its_time_is_replaced_once(fleet: &Fleet) -> Result<()> {
    let case = "void";
    let name = "a_token_that_is_void_before_its_time_is_replaced_once";
    let stage = set(fleet, name, case).await?;
    let (hub, one) = (stage.hub(), fleet.worker1());
    decide(hub, "gpu", &["void-one"]).await?;
    is_active(hub, "MultiKueueCluster", "gpu-void-one").await?;
    let before = hub.get(secret("void-one")).await?.context("its credential")?;
    stage.rest().await?;
    let mark = hub.mark()?;
    one.delete(id("v1", "ServiceAccount", "fedq-multikueue").within("fedq-system")).await?;
    // The worker's API server believes a token that it has just seen for ten seconds more.
    tokio::time::sleep(Duration::from_secs(15)).await;
    stage.daemon.kill()?;
    stage.daemon.restart().await.context("which asks the clusters, as it does now and then")?;
    let renewed = |secret: &Value| secret["data"] != before["data"];
    hub.wait(secret("void-one"), "a token of the account that is there now", SOON, renewed).await?;
    hub.apply_object("fedq-test", job(case, "late", case, &[(GPU, "4")], LONG)).await?;
    runs_on(hub, case, "late", "gpu-void-one").await.context("Kueue connects with it")?;

    // Once more; this time Kueue has to connect anew, fails, and that is seen.
    let second = hub.get(secret("void-one")).await?.context("its credential")?;
    one.delete(id("v1", "ServiceAccount", "fedq-multikueue").within("fedq-system")).await?;
    one.plane.kill_api_server()?;
    one.plane.restart_api_server().await?;
    let renewed = |secret: &Value| secret["data"] != second["data"];
    hub.wait(secret("void-one"), "another one", SOON * 2, renewed).await?;
    is_active(hub, "MultiKueueCluster", "gpu-void-one").await?;
    finishes(hub, one, case, "late").await?;
    was_not_evicted(hub, case, "late").await?;
    stage.rest().await?;
    let writes = hub.writes_since(mark, FEDQD).await?;
    let of_secret =
        writes.iter().filter(|one| one.name.as_deref() == Some("fedq-multikueue-void-one")).count();
    ensure!(of_secret == 2, "each was replaced once: {writes:#?}");
    Ok(())
}

pub async fn a_worker_whose_api_server_stops_and_returns_finishes_its_work(fleet: &Fleet) -> Result<()> {
    let case = "outage";
    let name = "a_worker_whose_api_server_stops_and_returns_finishes_its_work";
    let stage = set(fleet, name, case).await?;
    let (hub, one) = (stage.hub(), fleet.worker1());
    decide(hub, "gpu", &["outage-one", "outage-two"]).await?;
    for cluster in ["gpu-outage-one", "gpu-outage-two"] {
        is_active(hub, "MultiKueueCluster", cluster).await?;
    }
    decide(hub, "gpu", &["outage-one"]).await?;
    // A cluster that is let go just as Kueue gives it the workload costs an eviction, which would be counted below.
    config_is(hub, "gpu", &["gpu-outage-one"]).await?;
    hub.apply_object("fedq-test", job(case, "long", case, &[(GPU, "4")], LONG)).await?;
    runs_on(hub, case, "long", "gpu-outage-one").await?;

    let config = Recorder::start(hub, KUEUE, "MultiKueueConfig").await?;
    one.plane.kill_api_server()?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    check_says(hub, "placement-outage", "True", "Active").await?;
    one.plane.restart_api_server().await?;
    is_active(hub, "MultiKueueCluster", "gpu-outage-one").await.context("connected again")?;
    finishes(hub, one, case, "long").await?;
    was_not_evicted(hub, case, "long").await?;
    let states = config.stop()?;
    ensure!(
        states.iter().all(|config| config["spec"]["clusters"] == json!(["gpu-outage-one"])),
        "{states:#?}"
    );
    Ok(())
}

pub async fn placements_that_share_a_cluster_keep_their_own_objects(fleet: &Fleet) -> Result<()> {
    let case = "share";
    let name = "placements_that_share_a_cluster_keep_their_own_objects";
    let stage = set(fleet, name, case).await?;
    let hub = stage.hub();
    hub.apply(&placement_check("share-other", "cpu")).await?;
    decide(hub, "gpu", &["share-one", "share-two"]).await?;
    decide(hub, "cpu", &["share-one"]).await?;
    config_is(hub, "gpu", &["gpu-share-one", "gpu-share-two"]).await?;
    config_is(hub, "cpu", &["cpu-share-one"]).await?;
    for cluster in ["gpu-share-one", "cpu-share-one"] {
        let found = hub.wait(mk("MultiKueueCluster", cluster), "made", SOON, Value::is_object).await?;
        let location = &found["spec"]["clusterSource"]["kubeConfig"]["location"];
        ensure!(location == "fedq-multikueue-share-one", "one credential a cluster: {found:#}");
    }
    stage.rest().await?;
    let version =
        hub.get(mk("MultiKueueConfig", "gpu")).await?.context("there")?["metadata"]["resourceVersion"]
            .clone();
    hub.delete(mk("AdmissionCheck", "share-other")).await?;
    hub.wait_gone(mk("MultiKueueConfig", "cpu"), SOON).await?;
    hub.wait_gone(mk("MultiKueueCluster", "cpu-share-one"), SOON).await?;
    stage.rest().await?;
    let config = hub.get(mk("MultiKueueConfig", "gpu")).await?.context("the other's stays")?;
    ensure!(config["metadata"]["resourceVersion"] == version, "untouched: {config:#}");
    hub.get(mk("MultiKueueCluster", "gpu-share-one")).await?.context("so does its cluster")?;
    hub.get(secret("share-one")).await?.context("and the credential that both used")?;

    // One name for both, as the configuration may ask for.
    drop(stage);
    let stage = Stage::start(
        fleet,
        name,
        case,
        Setup { more: "multikueue: {naming: cluster}\nplacement: {evaluate: false}", ..Setup::default() },
    )
    .await?;
    hub.apply(&placement_check("share-other", "cpu")).await?;
    config_is(hub, "gpu", &["share-one", "share-two"]).await?;
    config_is(hub, "cpu", &["share-one"]).await?;
    hub.wait_gone(mk("MultiKueueCluster", "gpu-share-one"), SOON).await?;
    hub.delete(mk("AdmissionCheck", "share-other")).await?;
    hub.wait_gone(mk("MultiKueueConfig", "cpu"), SOON).await?;
    stage.rest().await?;
    hub.get(mk("MultiKueueCluster", "share-one")).await?.context("the other Placement names it still")?;
    Ok(())
}

pub async fn what_is_wrong_with_a_check_is_said_and_nothing_else_moves(fleet: &Fleet) -> Result<()> {
    let case = "wrong";
    let name = "what_is_wrong_with_a_check_is_said_and_nothing_else_moves";
    let stage = set(fleet, name, case).await?;
    let hub = stage.hub();
    decide(hub, "gpu", &["wrong-one"]).await?;
    config_is(hub, "gpu", &["gpu-wrong-one"]).await?;
    check_says(hub, "placement-wrong", "True", "Active").await?;
    stage.rest().await?;
    let mark = hub.mark()?;

    let check = |name: &str, parameters: Value| {
        let mut check = json!({
            "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": name},
            "spec": {"controllerName": "open-cluster-management.io/placement"},
        });
        if !parameters.is_null() {
            check["spec"]["parameters"] = parameters;
        }
        check
    };
    let of = |group: &str, kind: &str, name: &str| json!({"apiGroup": group, "kind": kind, "name": name});
    let group = "cluster.open-cluster-management.io";
    let foreign = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: theirs}
spec: {clusters: [somewhere]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueCluster
metadata: {name: mixed-wrong-one}
spec: {clusterSource: {kubeConfig: {location: theirs, locationType: Secret}}}
";
    hub.apply(foreign).await?;
    decide(hub, "theirs", &["wrong-one"]).await?;
    decide(hub, "mixed", &["wrong-one", "nowhere"]).await?;
    // OCM takes longer names than a cluster can be joined by.
    let long = "l".repeat(200);
    decide(hub, "long", &[&long]).await?;
    for (name, parameters, reason, words) in [
        ("bad-nil", Value::Null, "PlacementError", "spec.parameters is missing"),
        ("bad-kind", of(group, "ManagedCluster", "gpu"), "PlacementError", "names a ManagedCluster of"),
        ("bad-group", of("example.com", "Placement", "gpu"), "PlacementError", "of example.com"),
        ("bad-missing", of(group, "Placement", "none"), "PlacementNotFound", "Placement none"),
        ("bad-config", of(group, "Placement", "theirs"), "MultiKueueConfigError", "not fedq's"),
        ("bad-name", of(group, "Placement", "long"), "NoClustersAvailable", "at most 63 characters"),
        ("bad-cluster", of(group, "Placement", "mixed"), "NoClustersAvailable", "not joined: nowhere"),
    ] {
        hub.apply_object("fedq-test", check(name, parameters)).await?;
        check_tells(hub, name, ("False", reason), words).await?;
    }
    stage.rest().await?;
    let writes = hub.writes_since(mark, FEDQD).await?;
    let others: Vec<_> = writes
        .iter()
        .filter(|write| !write.name.as_deref().is_some_and(|name| name.starts_with("bad-")))
        .collect();
    ensure!(others.is_empty(), "something else moved: {others:#?}");
    let theirs = hub.get(mk("MultiKueueConfig", "theirs")).await?.context("theirs")?;
    ensure!(theirs["spec"]["clusters"] == json!(["somewhere"]), "{theirs:#}");

    // A Secret of that name that is not ours stops what needs it, and is left alone.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"kubeconfig": "theirs"},
        "metadata": {"name": "fedq-multikueue-wrong-two", "namespace": NAMESPACE},
    });
    hub.apply_object("fedq-test", secret).await?;
    decide(hub, "gpu", &["wrong-one", "wrong-two"]).await?;
    for words in ["wrong-two", "already exists"] {
        check_tells(hub, "placement-wrong", ("True", "Active"), words).await?;
    }
    config_is(hub, "gpu", &["gpu-wrong-one"]).await?;
    let secret = id("v1", "Secret", "fedq-multikueue-wrong-two").within(NAMESPACE);
    throughout("the foreign Secret is left alone", Duration::from_secs(2), async || {
        let found = hub.get(secret).await?.context("it is there")?;
        Ok(Seen::when(found["metadata"]["labels"].is_null(), || found["metadata"].to_string()))
    })
    .await?;
    hub.delete(secret).await
}

pub async fn of_more_than_twenty_clusters_the_best_are_used_and_the_rest_is_told(
    fleet: &Fleet,
) -> Result<()> {
    let case = "many";
    let name = "of_more_than_twenty_clusters_the_best_are_used_and_the_rest_is_told";
    clear(fleet).await?;
    install_ocm(&fleet.hub).await?;
    let stage = Stage::start(fleet, name, case, Setup { more: DECIDED, ..Setup::default() }).await?;
    let hub = stage.hub();
    let hub_id =
        hub.get(id("v1", "Namespace", "kube-system")).await?.context("it has one")?["metadata"]["uid"]
            .clone();
    let names: Vec<String> = (0..25).map(|number| format!("many-{number:02}")).collect();
    let order: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    hub.apply(&checks(case, "gpu")).await?;
    decide(hub, "gpu", &order).await?;
    for cluster in &names {
        // Joined, out of reach now, and with the credential that Kueue was given before.
        let kubeconfig =
            fleet.worker1().kubeconfig.replace(&fleet.worker1().plane.url(), "https://127.0.0.1:1");
        stage.put_secret(cluster, &kubeconfig).await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("fedq-multikueue-{cluster}"), "namespace": NAMESPACE, "labels": {
                "fedq.dev/hub": hub_id, "fedq.dev/for-cluster": cluster,
            }},
            "stringData": {"kubeconfig": "{}"},
        });
        hub.apply_object("fedq-test", secret).await?;
    }
    let used: Vec<String> = order[..20].iter().map(|name| format!("gpu-{name}")).collect();
    config_is(hub, "gpu", &used.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let left_out =
        "left out, since it takes 20: gpu-many-04, gpu-many-03, gpu-many-02, gpu-many-01, gpu-many-00";
    check_tells(hub, "placement-many", ("True", "Active"), left_out).await?;
    Ok(())
}
