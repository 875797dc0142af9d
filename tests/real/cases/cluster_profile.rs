//! Clusters that a cluster manager such as OCM has in its inventory.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::multikueue_stage::{
    checks, decide, finishes, hub_queue, install_ocm, is_active, runs_on, worker_queue,
};
use super::stage::{CLAIM, CLAIMS, FEDQD, GPU, SOON, Setup, Stage, claim_name, clear, job};
use crate::support::cluster::{Cluster, Part, id};
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

const PROFILES: &str = "multicluster.x-k8s.io/v1alpha1";
/// As the kind is served, without what its schema says of the fields.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusterprofiles.multicluster.x-k8s.io
  annotations: {api-approved.kubernetes.io: https://github.com/kubernetes/enhancements/tree/master/keps/sig-multicluster/4322-cluster-inventory}
spec:
  group: multicluster.x-k8s.io
  names: {kind: ClusterProfile, listKind: ClusterProfileList, plural: clusterprofiles, singular: clusterprofile}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
const LONG: &str = "30m";

/// By the token that OCM keeps for a ManagedServiceAccount: claims, a job of MultiKueue, and away again.
pub async fn a_cluster_is_joined_by_its_profile_and_runs_jobs_of_multikueue(fleet: &Fleet) -> Result<()> {
    let case = "profile";
    let name = "a_cluster_is_joined_by_its_profile_and_runs_jobs_of_multikueue";
    clear(fleet).await?;
    let (hub, worker) = (&*fleet.hub, fleet.worker1());
    install_ocm(hub).await?;
    hub.apply(DEFINITION).await?;
    eventually("ClusterProfiles to be served", SOON, async || {
        hub.list(PROFILES, "ClusterProfile", None).await.map(|_| Seen::Done(()))
    })
    .await?;
    let setup = Setup {
        clusters: Some("{allowLoopback: true, profiles: {enabled: true}}"),
        more: "placement: {evaluate: false}",
        ..Setup::default()
    };
    let stage = Stage::start(fleet, name, case, setup).await?;
    worker_queue(worker, case, 8).await?;
    let (cluster, token) = way_to(worker)?;
    let namespace = stage.namespace();
    hub.apply_object(
        "fedq-test",
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"token": token},
            "metadata": {"name": "profile-one-fedq", "namespace": namespace, "labels": {
                "authentication.open-cluster-management.io/synced-from": "profile-one-fedq",
            }},
        }),
    )
    .await?;
    let profile = id(PROFILES, "ClusterProfile", "profile-one").within(&namespace);
    hub.apply_object(
        "fedq-test",
        json!({
            "apiVersion": PROFILES, "kind": "ClusterProfile",
            "metadata": {"name": "profile-one", "namespace": namespace},
            "spec": {"clusterManager": {"name": "open-cluster-management"}},
        }),
    )
    .await?;
    let status = json!({"status": {"accessProviders": [
        {"name": "open-cluster-management", "cluster": cluster},
    ]}});
    hub.merge(profile, Part::Status, status).await?;
    let claim = claim_name("profile-one");
    hub.wait(id(CLAIMS, CLAIM, &claim), "made of what was found there", SOON, Value::is_object).await?;
    hub.apply(&checks(case, "gpu")).await?;
    hub_queue(hub, case, 8).await?;
    decide(hub, "gpu", &["profile-one"]).await?;
    is_active(hub, "MultiKueueCluster", "gpu-profile-one").await?;
    hub.apply_object("fedq-test", job(case, "runs", case, &[(GPU, "4")], LONG)).await?;
    runs_on(hub, case, "runs", "gpu-profile-one").await?;
    finishes(hub, worker, case, "runs").await?;

    // It is the manager's object: read, never written.
    let found = hub.get(profile).await?.context("the profile")?;
    let managers = found["metadata"]["managedFields"].to_string();
    ensure!(
        !managers.contains("\"fedq-cluster\"") && found["metadata"]["finalizers"].is_null(),
        "{managers}"
    );
    hub.delete(profile).await?;
    hub.wait_gone(id("cluster.open-cluster-management.io/v1", "ManagedCluster", "profile-one"), SOON)
        .await
        .context("what fedq made of it goes with it")?;
    hub.delete(id(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "clusterprofiles.multicluster.x-k8s.io",
    ))
    .await
}

/// (its address as in a kubeconfig, a token of an administrator there)
fn way_to(worker: &Cluster) -> Result<(Value, String)> {
    let kubeconfig: Value = serde_saphyr::from_str(&worker.kubeconfig_for(FEDQD, &["system:masters"])?)?;
    let cluster = kubeconfig.pointer("/clusters/0/cluster").context("a kubeconfig has a cluster")?.clone();
    let account = "profile-admin";
    let binding = format!("--serviceaccount=default:{account}");
    // Of an earlier run of the case; what is there already is as good.
    worker.kubectl(&["create", "serviceaccount", account, "--namespace", "default"]).ok();
    worker.kubectl(&["create", "clusterrolebinding", account, "--clusterrole=cluster-admin", &binding]).ok();
    let token = worker.kubectl(&["create", "token", account, "--namespace", "default"])?;
    Ok((cluster, token.trim().to_owned()))
}
