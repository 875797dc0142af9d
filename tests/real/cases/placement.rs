//! Placements decided by fedqd on a hub without OCM: the stories of the guide, and who decides.

use anyhow::{Result, ensure};
use fedq_base::clock::Clock;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::multikueue_stage::{
    NAMESPACE, OCM, checks, config_is, finishes, hub_queue, is_active, ocm, runs_on, was_not_evicted,
    worker_queue,
};
use super::stage::{FEDQD, GPU, OCM_CRDS, SOON, Setup, Stage, clear, job};
use crate::support::cluster::{Cluster, Part, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::kueue::install_crds;
use crate::support::wait::{Seen, eventually};

const GROUP: &str = "cluster.open-cluster-management.io";
const V1: &str = "cluster.open-cluster-management.io/v1";
const SETS: &str = "cluster.open-cluster-management.io/v1beta2";
const SCORES: &str = "cluster.open-cluster-management.io/v1alpha1";
/// Longer than any case.
const LONG: &str = "30m";

/// What `fedqd --print-crds=ocm` prints, applied, with the set `global` bound to Kueue's namespace.
async fn install(hub: &Cluster) -> Result<()> {
    install_crds(hub, OCM_CRDS).await?;
    for (version, kind) in [
        (V1, "ManagedCluster"),
        (SETS, "ManagedClusterSet"),
        (SETS, "ManagedClusterSetBinding"),
        (OCM, "Placement"),
        (OCM, "PlacementDecision"),
        (SCORES, "AddOnPlacementScore"),
    ] {
        eventually(&format!("{kind} to be served"), SOON, async || {
            hub.list(version, kind, None).await.map(|_| Seen::Done(()))
        })
        .await?;
    }
    hub.apply(&format!(
        "{{apiVersion: {SETS}, kind: ManagedClusterSetBinding, metadata: {{name: global, namespace: {NAMESPACE}}}, spec: {{clusterSet: global}}}}"
    ))
    .await
}

async fn place(hub: &Cluster, name: &str, spec: &str) -> Result<()> {
    hub.apply(&format!(
        "
apiVersion: {OCM}
kind: Placement
metadata: {{name: {name}, namespace: {NAMESPACE}}}
spec:
{spec}"
    ))
    .await
}

/// As in the guide: dead clusters stay, so that nothing that runs there is given up.
const TOLERANT: &str = "
  clusterSets: [global]
  tolerations:
  - {key: cluster.open-cluster-management.io/unreachable, operator: Exists}
  - {key: cluster.open-cluster-management.io/unavailable, operator: Exists}
  predicates:
  - requiredClusterSelector: {labelSelector: {matchLabels: {accelerator: nvidia-tesla-t4}}}
";

async fn decides(hub: &Cluster, placement: &str, clusters: &[&str]) -> Result<()> {
    let name = format!("{placement}-decision-1");
    let what = format!("decisions {clusters:?}");
    hub.wait(ocm("PlacementDecision", &name), &what, SOON, |decision| {
        let decisions = decision["status"]["decisions"].as_array().cloned().unwrap_or_default();
        decisions.iter().map(|one| &one["clusterName"]).eq(clusters
            .iter()
            .map(|name| json!(name))
            .collect::<Vec<_>>()
            .iter())
    })
    .await?;
    Ok(())
}

async fn label(hub: &Cluster, cluster: &str, value: &str) -> Result<()> {
    let labels = json!({"metadata": {"labels": {"accelerator": value}}});
    hub.merge(id(V1, "ManagedCluster", cluster), Part::Whole, labels).await
}

async fn is_available(hub: &Cluster, cluster: &str) -> Result<()> {
    hub.wait(id(V1, "ManagedCluster", cluster), "available and without taints", SOON, |cluster| {
        has_condition(cluster, "ManagedClusterConditionAvailable", "True")
            && cluster["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
    })
    .await?;
    Ok(())
}

async fn score_is(hub: &Cluster, cluster: &str, value: i64) -> Result<()> {
    let scores = id(SCORES, "AddOnPlacementScore", "resource-usage-score").within(cluster);
    hub.wait(scores, &format!("gpuClusterAvailable {value}"), SOON, |scores| {
        let items = scores["status"]["scores"].as_array().cloned().unwrap_or_default();
        items.iter().any(|item| item["name"] == "gpuClusterAvailable" && item["value"] == value)
    })
    .await?;
    Ok(())
}

pub async fn the_three_stories_end_in_finished_jobs(fleet: &Fleet) -> Result<()> {
    let (name, case) = ("the_three_stories_end_in_finished_jobs", "story");
    clear(fleet).await?;
    install(&fleet.hub).await?;
    let stage = Stage::start(fleet, name, case, Setup::default()).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    for (cluster, worker) in [("story-one", one), ("story-two", two)] {
        worker_queue(worker, case, 8).await?;
        stage.join(cluster, worker).await?;
        is_available(hub, cluster).await?;
    }
    hub.apply(&checks(case, "gpu")).await?;
    hub_queue(hub, case, 16).await?;

    // First and second: clusters by their labels.
    place(hub, "gpu", TOLERANT).await?;
    decides(hub, "gpu", &[]).await?;
    label(hub, "story-two", "nvidia-tesla-t4").await?;
    decides(hub, "gpu", &["story-two"]).await?;
    config_is(hub, "gpu", &["gpu-story-two"]).await?;
    is_active(hub, "ClusterQueue", case).await?;
    hub.apply_object("fedq-test", job(case, "first", case, &[(GPU, "4")], LONG)).await?;
    runs_on(hub, case, "first", "gpu-story-two").await?;
    label(hub, "story-one", "nvidia-tesla-t4").await?;
    decides(hub, "gpu", &["story-one", "story-two"]).await?;

    // Third: the one with the most free GPUs. Four of eight are taken on the second.
    score_is(hub, "story-one", -20).await?;
    score_is(hub, "story-two", -60).await?;
    let scored = format!(
        "{TOLERANT}
  numberOfClusters: 1
  prioritizerPolicy:
    mode: Exact
    configurations:
    - scoreCoordinate:
        type: AddOn
        addOn: {{resourceName: resource-usage-score, scoreName: gpuClusterAvailable}}
      weight: 1
"
    );
    place(hub, "gpu", &scored).await?;
    decides(hub, "gpu", &["story-one"]).await?;
    config_is(hub, "gpu", &["gpu-story-one", "gpu-story-two"]).await?;
    hub.apply_object("fedq-test", job(case, "second", case, &[(GPU, "6")], LONG)).await?;
    runs_on(hub, case, "second", "gpu-story-one").await?;
    // Two are left on the first now, four on the second: the score moves the decision, and nobody is evicted.
    score_is(hub, "story-one", -80).await?;
    decides(hub, "gpu", &["story-two"]).await?;
    for (job, worker) in [("first", two), ("second", one)] {
        was_not_evicted(hub, case, job).await?;
        finishes(hub, worker, case, job).await?;
    }
    Ok(())
}

pub async fn a_placement_has_one_writer_and_what_is_wrong_is_told(fleet: &Fleet) -> Result<()> {
    let (name, case) = ("a_placement_has_one_writer_and_what_is_wrong_is_told", "writer");
    clear(fleet).await?;
    install(&fleet.hub).await?;
    let stage = Stage::start(fleet, name, case, Setup::default()).await?;
    let (hub, worker) = (&fleet.hub, fleet.worker1());
    worker_queue(worker, case, 8).await?;
    stage.join("writer-one", worker).await?;
    is_available(hub, "writer-one").await?;

    // The CRDs refuse what OCM's own refuse.
    let weight =
        "  prioritizerPolicy: {configurations: [{scoreCoordinate: {builtIn: Steady}, weight: 11}]}\n";
    ensure!(place(hub, "heavy", weight).await.is_err(), "weights end at 10");
    ensure!(place(hub, "effect", "  tolerations: [{effect: NoSchedule}]\n").await.is_err(), "no such effect");
    // What they cannot refuse, conditions tell.
    let cel = "  predicates: [{requiredClusterSelector: {celSelector: {celExpressions: ['managedCluster.name +']}}}]\n";
    for (wrong, spec) in [("broken", cel), ("negative", "  numberOfClusters: -1\n")] {
        place(hub, wrong, spec).await?;
        let misconfigured = |placement: &Value| has_condition(placement, "PlacementMisconfigured", "True");
        hub.wait(ocm("Placement", wrong), "misconfigured", SOON, misconfigured).await?;
        decides(hub, wrong, &[]).await?;
    }

    // Somebody else's decision stays theirs.
    let theirs = json!({
        "apiVersion": OCM, "kind": "PlacementDecision",
        "metadata": {
            "name": "theirs-decision-1", "namespace": NAMESPACE, "labels": {format!("{GROUP}/placement"): "theirs"},
        },
    });
    hub.apply_object("fedq-test", theirs).await?;
    place(hub, "theirs", "  clusterSets: []\n").await?;
    place(hub, "ours", "  clusterSets: []\n").await?;
    decides(hub, "ours", &["writer-one"]).await?;
    decides(hub, "theirs", &[]).await?;
    let placement = hub.get(ocm("Placement", "theirs")).await?.unwrap_or_default();
    ensure!(placement["status"].is_null(), "its status is not fedq's: {placement}");

    // OCM's controller runs: fedq stands back, but for a Placement that sends it away.
    lease(hub).await?;
    eventually("fedqd to stand back", SOON, async || {
        let log = stage.daemon.log_text();
        Ok(Seen::when(log.contains("Placements are decided by OCM's placement controller"), || log.clone()))
    })
    .await?;
    place(hub, "later", "  clusterSets: []\n").await?;
    let disable =
        json!({"metadata": {"annotations": {format!("{GROUP}/experimental-scheduling-disable"): "true"}}});
    hub.merge(ocm("Placement", "theirs"), Part::Whole, disable).await?;
    decides(hub, "theirs", &["writer-one"]).await?;
    ensure!(hub.get(ocm("PlacementDecision", "later-decision-1")).await?.is_none(), "OCM decides that one");
    hub.delete(id("coordination.k8s.io/v1", "Lease", "placement-lock").within("open-cluster-management-hub"))
        .await?;
    decides(hub, "later", &["writer-one"]).await?;

    // At rest, and over a restart, nothing of it is written.
    stage.rest().await?;
    let mark = hub.mark()?;
    stage.daemon.kill()?;
    stage.daemon.restart().await?;
    stage.rest().await?;
    let written = hub.writes_since(mark, FEDQD).await?;
    let of_ocm: Vec<_> = written.iter().filter(|request| format!("{request:?}").contains(GROUP)).collect();
    ensure!(of_ocm.is_empty(), "{of_ocm:#?}");
    Ok(())
}

async fn lease(hub: &Cluster) -> Result<()> {
    let namespace = "open-cluster-management-hub";
    hub.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")).await?;
    let now = Timestamp::from_second(Clock::system().now().as_second())?;
    let renewed = format!("{}.000000Z", now.to_string().trim_end_matches('Z'));
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "placement-lock", "namespace": namespace},
        "spec": {"holderIdentity": "placement-controller", "leaseDurationSeconds": 137, "renewTime": renewed},
    });
    hub.apply_object("fedq-test", lease).await.map(|_| ())
}
