//! The three stories of OCM's guide to its admission check for Kueue, as an administrator follows them: on a hub
//! without OCM, where fedq decides Placements and dispatches.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::multikueue_stage::{
    NAMESPACE, OCM, check_says, checks, config_is, finishes, hub_queue, install_ocm, is_active, runs_on,
    was_not_evicted, worker_queue, workload_of,
};
use super::stage::{GPU, KUEUE, SOON, Setup, Stage, clear, job};
use crate::support::cluster::{Cluster, Part, id};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

const LONG: &str = "30m";
const POLICY: &str = include_str!("../../../deploy/hub/dispatcher.yaml");
const CLUSTERS: &str = "cluster.open-cluster-management.io/v1";
const SETS: &str = "cluster.open-cluster-management.io/v1beta2";
const SCORES: &str = "cluster.open-cluster-management.io/v1alpha1";

pub async fn the_three_stories_of_the_guide_end_with_finished_jobs(fleet: &Fleet) -> Result<()> {
    let name = "the_three_stories_of_the_guide_end_with_finished_jobs";
    let third = fleet.another("worker3").await?;
    let fleet = &fleet.with_dispatching_hub().await?;
    clear(fleet).await?;
    let hub = &*fleet.hub;
    install_ocm(hub).await?;
    hub.apply(POLICY).await.context("the policy that nominations need")?;
    let setup = Setup { more: "multikueue: {dispatcher: true}", ..Setup::default() };
    let stage = Stage::start(fleet, name, "stories", setup).await?;
    let workers = [("cluster1", &*third), ("cluster2", fleet.worker1()), ("cluster3", fleet.worker2())];
    inventory(&stage, &workers).await?;

    every_cluster_of_a_set(&stage, &workers).await.context("story 1")?;
    by_label(&stage, &workers).await.context("story 2")?;
    by_score(&stage, &workers).await.context("story 3")?;
    too_large(&stage).await.context("a job that no cluster can hold")?;
    handed_on(&stage, &workers).await.context("jobs whose first cluster does not take them")?;
    admissions_are_measured(&stage).await
}

/// By cluster, and with how many were tried.
async fn admissions_are_measured(stage: &Stage<'_>) -> Result<()> {
    let told = stage.daemon.get("/metrics").await?.body;
    let count = |series: &str| -> Result<u64> {
        let line = told.lines().find_map(|line| line.strip_prefix(series));
        Ok(line.with_context(|| format!("no {series} in\n{told}"))?.trim().parse()?)
    };
    for cluster in ["cluster1", "cluster2", "cluster3"] {
        let taken = count(&format!("fedq_admission_seconds_count{{cluster=\"{cluster}\"}}"))?;
        ensure!(0 < taken, "{cluster} took nothing");
    }
    ensure!(0 < count("fedq_admission_clusters_tried_count")?, "no admission was counted");
    Ok(())
}

/// What stands there before the stories begin: clusters, their set, and its binding to Kueue's namespace.
async fn inventory(stage: &Stage<'_>, workers: &[(&str, &Cluster)]) -> Result<()> {
    let hub = stage.hub();
    hub.apply(&format!(
        "
apiVersion: {SETS}
kind: ManagedClusterSet
metadata: {{name: spoke}}
spec: {{clusterSelector: {{selectorType: ExclusiveClusterSetLabel}}}}
---
apiVersion: {SETS}
kind: ManagedClusterSetBinding
metadata: {{name: spoke, namespace: {NAMESPACE}}}
spec: {{clusterSet: spoke}}
"
    ))
    .await?;
    for (cluster, worker) in workers {
        stage.join(cluster, worker).await?;
        hub.apply(&format!(
            "{{apiVersion: {CLUSTERS}, kind: ManagedCluster, spec: {{hubAcceptsClient: true}}, metadata: {{name: {cluster}, \
             labels: {{cluster.open-cluster-management.io/clusterset: spoke}}}}}}"
        ))
        .await?;
        for case in ["demo1", "demo2"] {
            worker_queue(worker, case, 3).await?;
        }
    }
    Ok(())
}

async fn place(hub: &Cluster, name: &str, mut spec: Value) -> Result<()> {
    spec["clusterSets"] = json!(["spoke"]);
    spec["tolerations"] = json!([
        {"key": "cluster.open-cluster-management.io/unreachable", "operator": "Exists"},
        {"key": "cluster.open-cluster-management.io/unavailable", "operator": "Exists"},
    ]);
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let placement = json!({"apiVersion": OCM, "kind": "Placement", "metadata": metadata, "spec": spec});
    hub.apply_object("fedq-test", placement).await?;
    Ok(())
}

/// Both checks, the queue, and all of it active.
async fn set_up(hub: &Cluster, case: &str, placement: &str, clusters: &[&str]) -> Result<()> {
    hub.apply(&checks(case, placement)).await?;
    hub_queue(hub, case, 9).await?;
    config_is(hub, placement, clusters).await?;
    check_says(hub, &format!("placement-{case}"), "True", "Active").await?;
    for cluster in clusters {
        is_active(hub, "MultiKueueCluster", cluster).await?;
    }
    is_active(hub, "AdmissionCheck", &format!("multikueue-{case}")).await?;
    is_active(hub, "ClusterQueue", case).await
}

/// The Workload of the Job is on this cluster and on no other.
async fn only_on(
    workers: &[(&str, &Cluster)],
    cluster: &str,
    case: &str,
    job: &str,
    hub: &Cluster,
) -> Result<()> {
    let workload = workload_of(hub, case, job).await?.context("its Workload")?;
    let name = workload["metadata"]["name"].as_str().context("a name")?.to_owned();
    eventually(&format!("the Workload of {job} on {cluster} only"), SOON, async || {
        let mut on = Vec::new();
        for (other, worker) in workers {
            if worker.get(id(KUEUE, "Workload", &name).within(case)).await?.is_some() {
                on.push(*other);
            }
        }
        Ok(Seen::when(on == [cluster], || format!("it is on {on:?}")))
    })
    .await
}

async fn every_cluster_of_a_set(stage: &Stage<'_>, workers: &[(&str, &Cluster)]) -> Result<()> {
    let hub = stage.hub();
    place(hub, "placement-demo1", json!({})).await?;
    let clusters = ["placement-demo1-cluster1", "placement-demo1-cluster2", "placement-demo1-cluster3"];
    set_up(hub, "demo1", "placement-demo1", &clusters).await?;
    hub.apply_object("fedq-test", job("demo1", "job-demo1", "demo1", &[(GPU, "1")], LONG)).await?;
    runs_on(hub, "demo1", "job-demo1", clusters[0]).await?;
    only_on(workers, "cluster1", "demo1", "job-demo1", hub).await?;
    finishes(hub, workers[0].1, "demo1", "job-demo1").await
}

async fn by_label(stage: &Stage<'_>, workers: &[(&str, &Cluster)]) -> Result<()> {
    let hub = stage.hub();
    for cluster in ["cluster2", "cluster3"] {
        let labels = json!({"metadata": {"labels": {"accelerator": "nvidia-tesla-t4"}}});
        hub.merge(id(CLUSTERS, "ManagedCluster", cluster), Part::Whole, labels).await?;
    }
    place(hub, "placement-demo2", accelerated()).await?;
    set_up(hub, "demo2", "placement-demo2", &["placement-demo2-cluster2", "placement-demo2-cluster3"])
        .await?;
    hub.apply_object("fedq-test", job("demo2", "job-demo2", "demo2", &[(GPU, "1")], LONG)).await?;
    runs_on(hub, "demo2", "job-demo2", "placement-demo2-cluster2").await?;
    only_on(workers, "cluster2", "demo2", "job-demo2", hub).await
}

fn accelerated() -> Value {
    let labels = json!({"matchLabels": {"accelerator": "nvidia-tesla-t4"}});
    json!({"predicates": [{"requiredClusterSelector": {"labelSelector": labels}}]})
}

/// The cluster that runs the job of the second story has fewer GPUs free, so the other one is chosen.
async fn by_score(stage: &Stage<'_>, workers: &[(&str, &Cluster)]) -> Result<()> {
    let hub = stage.hub();
    for (cluster, score) in [("cluster1", -100), ("cluster2", -80), ("cluster3", -70)] {
        hub.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {cluster}}}}}")).await?;
        hub.apply(&format!(
            "{{apiVersion: {SCORES}, kind: AddOnPlacementScore, metadata: {{name: resource-usage-score, namespace: {cluster}}}}}"
        ))
        .await?;
        let status = json!({"status": {"scores": [{"name": "gpuClusterAvailable", "value": score}]}});
        let scores = id(SCORES, "AddOnPlacementScore", "resource-usage-score").within(cluster);
        hub.merge(scores, Part::Status, status).await?;
    }
    let mut spec = accelerated();
    spec["numberOfClusters"] = json!(1);
    let add_on = json!({"resourceName": "resource-usage-score", "scoreName": "gpuClusterAvailable"});
    let coordinate = json!({"type": "AddOn", "addOn": add_on});
    spec["prioritizerPolicy"] =
        json!({"mode": "Exact", "configurations": [{"scoreCoordinate": coordinate, "weight": 1}]});
    place(hub, "placement-demo2", spec).await?;
    let both = ["placement-demo2-cluster3", "placement-demo2-cluster2"];
    config_is(hub, "placement-demo2", &both).await.context("the one that runs the older job drains")?;

    hub.apply_object("fedq-test", job("demo2", "job-demo3", "demo2", &[(GPU, "1")], LONG)).await?;
    runs_on(hub, "demo2", "job-demo3", "placement-demo2-cluster3").await?;
    only_on(workers, "cluster3", "demo2", "job-demo3", hub).await?;
    only_on(workers, "cluster2", "demo2", "job-demo2", hub).await.context("the older job stays")?;
    for (job, worker) in [("job-demo2", workers[1].1), ("job-demo3", workers[2].1)] {
        finishes(hub, worker, "demo2", job).await?;
        was_not_evicted(hub, "demo2", job).await?;
    }
    config_is(hub, "placement-demo2", &both[..1]).await.context("removed when empty")
}

async fn too_large(stage: &Stage<'_>) -> Result<()> {
    let hub = stage.hub();
    hub.apply_object("fedq-test", job("demo2", "huge", "demo2", &[(GPU, "5")], LONG)).await?;
    eventually("fedqd to say that no cluster can hold it", SOON, async || {
        let log = stage.daemon.log_text();
        let said = log.contains("No cluster can ever hold Workload demo2/")
            && log.contains("it can have 3 of nvidia.com/gpu at most, not 5");
        Ok(Seen::when(said, || "nothing of it in the log".to_owned()))
    })
    .await?;
    let workload = workload_of(hub, "demo2", "huge").await?.context("its Workload")?;
    let nominated = &workload["status"]["nominatedClusterNames"];
    ensure!(nominated.is_null() || *nominated == json!([]), "it was sent somewhere: {nominated}");
    eventually("its owner to be told", SOON, async || {
        let events = hub.list("events.k8s.io/v1", "Event", Some("demo2")).await?;
        let told = events.iter().any(|event| {
            event["regarding"]["uid"] == workload["metadata"]["uid"]
                && event["reason"] == "NoClusterFits"
                && event["note"].to_string().contains("it can have 3 of nvidia.com/gpu at most, not 5")
        });
        Ok(Seen::when(told, || format!("{events:#?}")))
    })
    .await
}

/// The first cluster has room and never admits, since a check there is never passed.
async fn handed_on(stage: &Stage<'_>, workers: &[(&str, &Cluster)]) -> Result<()> {
    let (hub, second) = (stage.hub(), workers[1].1);
    let both = ["placement-demo2-cluster2", "placement-demo2-cluster3"];
    place(hub, "placement-demo2", accelerated()).await?;
    config_is(hub, "placement-demo2", &both).await?;
    let check = json!({
        "apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": "demo2-never"},
        "spec": {"controllerName": "example.com/never"},
    });
    second.apply_object("fedq-test", check).await?;
    let active = json!({"status": {"conditions": [{
        "type": "Active", "status": "True", "reason": "Active", "message": "never passed", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    second.merge(id(KUEUE, "AdmissionCheck", "demo2-never"), Part::Status, active).await?;
    let checked =
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "demo2-never"}]}}});
    second.merge(id(KUEUE, "ClusterQueue", "demo2"), Part::Whole, checked).await?;
    is_active(second, "ClusterQueue", "demo2").await?;

    // Its time there runs out, and the next one is asked as well.
    hub.apply_object("fedq-test", job("demo2", "late", "demo2", &[(GPU, "1")], LONG)).await?;
    is_nominated(hub, "late", &both[..1]).await?;
    runs_on(hub, "demo2", "late", both[1]).await?;

    // The cluster leaves the decision: what it has not taken goes elsewhere at once.
    hub.apply_object("fedq-test", job("demo2", "moved", "demo2", &[(GPU, "1")], LONG)).await?;
    is_nominated(hub, "moved", &both[..1]).await?;
    let labels = json!({"metadata": {"labels": {"accelerator": null}}});
    hub.merge(id(CLUSTERS, "ManagedCluster", "cluster2"), Part::Whole, labels).await?;
    runs_on(hub, "demo2", "moved", both[1]).await?;
    only_on(workers, "cluster3", "demo2", "moved", hub).await?;
    config_is(hub, "placement-demo2", &both[1..]).await?;
    for job in ["late", "moved"] {
        finishes(hub, workers[2].1, "demo2", job).await?;
        was_not_evicted(hub, "demo2", job).await?;
    }
    Ok(())
}

async fn is_nominated(hub: &Cluster, job: &str, clusters: &[&str]) -> Result<()> {
    eventually(&format!("{job} to be nominated for {clusters:?}"), SOON, async || {
        let workload = workload_of(hub, "demo2", job).await?.context("no Workload yet")?;
        let nominated = &workload["status"]["nominatedClusterNames"];
        Ok(Seen::when(*nominated == json!(clusters), || format!("{:#}", workload["status"])))
    })
    .await
}
