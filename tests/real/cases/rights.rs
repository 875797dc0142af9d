//! The roles under `deploy` are all that fedqd needs.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::multikueue_stage::{checks, decide, hub_queue, install_ocm, is_active, worker_queue};
use super::stage::{
    Assign, CLAIM, CLAIMS, GPU, KUEUE, SOON, Setup, Stage, claim_name, clear, ground, holds, job, job_id,
    nominal, queue, same,
};
use crate::support::audit::Mark;
use crate::support::cluster::{Cluster, Part, has_condition, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;

pub const NAMESPACE: &str = include_str!("../../../deploy/hub/namespace.yaml");
pub const ROLES: &str = include_str!("../../../deploy/hub/roles.yaml");
const HUB: [&str; 3] = [NAMESPACE, include_str!("../../../deploy/hub/rbac.yaml"), ROLES];
pub const WORKER: &str = include_str!("../../../deploy/worker/rbac.yaml");
pub const POLICY: &str = include_str!("../../../deploy/worker/policy.yaml");
const MULTIKUEUE: &str = include_str!("../../../deploy/worker/multikueue.yaml");

pub async fn the_rights_that_are_shipped_suffice_from_joining_to_leaving(fleet: &Fleet) -> Result<()> {
    // The manifests name the namespace fedq-system.
    let case = "system";
    let name = "the_rights_that_are_shipped_suffice_from_joining_to_leaving";
    clear(fleet).await?;
    let (hub, worker) = (&*fleet.hub, fleet.worker1());
    for manifest in HUB {
        hub.apply(manifest).await?;
    }
    worker.apply(WORKER).await?;
    worker.apply(POLICY).await?;
    let marks = (hub.mark()?, worker.mark()?);
    let setup = Setup { hub_kubeconfig: Some(kubeconfig_of(hub, "fedqd")?), ..Setup::default() };
    let stage = Stage::start(fleet, name, case, setup).await?;

    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "system-queue", &[(GPU, "0")], "")).await?;
    stage.put_secret("system-one", &kubeconfig_of(worker, "fedq")?).await?;
    let claim = claim_name("system-one");
    hub.wait(id(CLAIMS, CLAIM, &claim), "made at the join", SOON, Value::is_object).await?;
    let give = [Assign { queue: "system-queue", flavor: case, resources: &[("gpu", "4")] }];
    stage.assign("system-one", &give).await?;
    for cluster in [worker, hub] {
        holds(cluster, "system-queue", case, &[(GPU, "4")]).await?;
    }
    stage.claim_says("system-one", "Ready", "True", "Ready").await?;
    worker
        .wait(id(KUEUE, "LocalQueue", "system-queue").within(case), "copied", SOON, Value::is_object)
        .await?;
    worker.apply_object("fedq-test", job(case, "runs", "system-queue", &[(GPU, "4")], "1s")).await?;
    worker.wait(job_id(case, "runs"), "complete", SOON, |job| has_condition(job, "Complete", "True")).await?;

    // Its quota goes into a Cohort of its own, and back.
    let turn = |into: Option<&str>, cohort: Option<&str>| json!({"metadata": {"annotations": {"fedq.dev/quota-into": into}}, "spec": {"cohortName": cohort}});
    let (hub_queue, cohort) =
        (id(KUEUE, "ClusterQueue", "system-queue"), id(KUEUE, "Cohort", "fedq-system-queue"));
    hub.merge(hub_queue, Part::Whole, turn(Some("cohort"), Some("fedq-system-queue"))).await?;
    let has = |object: &Value| nominal(object, case, GPU).is_some_and(|now| same(&now, "4"));
    hub.wait(cohort, "4 GPUs", SOON, has).await?;
    holds(hub, "system-queue", case, &[(GPU, "0")]).await?;
    hub.merge(hub_queue, Part::Whole, turn(None, None)).await?;
    hub.wait_gone(cohort, SOON).await?;
    holds(hub, "system-queue", case, &[(GPU, "4")]).await?;

    stage.delete_secret("system-one").await?;
    let namespace = stage.namespace();
    hub.wait_gone(id("v1", "Secret", "system-one").within(&namespace), SOON).await.context("left")?;
    holds(hub, "system-queue", case, &[(GPU, "0")]).await?;

    nothing_was_refused([(hub, marks.0), (worker, marks.1)])?;
    let log = stage.daemon.log_text();
    let forbidden = log.lines().find(|line| line.to_lowercase().contains("forbidden"));
    ensure!(forbidden.is_none(), "{forbidden:?}");
    Ok(())
}

pub async fn multikueue_runs_jobs_with_the_rights_that_are_shipped(fleet: &Fleet) -> Result<()> {
    let case = "system";
    let name = "multikueue_runs_jobs_with_the_rights_that_are_shipped";
    clear(fleet).await?;
    let (hub, worker) = (&*fleet.hub, fleet.worker1());
    for manifest in HUB {
        hub.apply(manifest).await?;
    }
    install_ocm(hub).await?;
    worker.apply(WORKER).await?;
    worker.apply(POLICY).await?;
    // Other cases have fedqd make it as an administrator.
    for kind in ["ServiceAccount", "Role"] {
        let (api_version, name) = match kind {
            "Role" => ("rbac.authorization.k8s.io/v1", "fedq-multikueue-tokens"),
            _ => ("v1", "fedq-multikueue"),
        };
        worker.delete(id(api_version, kind, name).within("fedq-system")).await?;
    }
    let setup = Setup {
        hub_kubeconfig: Some(kubeconfig_of(hub, "fedqd")?),
        more: "placement: {evaluate: false}",
        ..Setup::default()
    };
    let stage = Stage::start(fleet, name, case, setup).await?;
    worker_queue(worker, case, 8).await?;
    stage.put_secret("system-one", &kubeconfig_of(worker, "fedq")?).await?;
    hub.apply(&checks(case, "gpu")).await?;
    hub_queue(hub, case, 8).await?;
    decide(hub, "gpu", &["system-one"]).await?;
    let what = "what is to be applied";
    let says =
        |check: &Value| check["status"].to_string().contains("apply deploy/worker/multikueue.yaml there");
    hub.wait(id(KUEUE, "AdmissionCheck", "placement-system"), what, SOON, says).await?;

    worker.apply(MULTIKUEUE).await?;
    is_active(hub, "MultiKueueCluster", "gpu-system-one").await?;
    let marks = (hub.mark()?, worker.mark()?);
    hub.apply_object("fedq-test", job(case, "runs", case, &[(GPU, "4")], "1s")).await?;
    hub.wait(job_id(case, "runs"), "complete", SOON * 2, |job| has_condition(job, "Complete", "True"))
        .await?;
    hub.delete(id(KUEUE, "AdmissionCheck", "placement-system")).await?;
    hub.delete(id(KUEUE, "ClusterQueue", case)).await?;
    hub.wait_gone(id("v1", "Secret", "fedq-multikueue-system-one").within("kueue-system"), SOON * 2).await?;
    let cluster = hub.get(id(KUEUE, "MultiKueueCluster", "gpu-system-one")).await?;
    ensure!(cluster.is_none(), "it went before its credential: {cluster:?}");
    nothing_was_refused([(hub, marks.0), (worker, marks.1)])
}

pub fn nothing_was_refused(marks: [(&Cluster, Mark); 2]) -> Result<()> {
    for (cluster, mark) in marks {
        let mut refused = cluster.requests_since(mark)?;
        refused.retain(|one| one.code == 403 && one.user.starts_with("system:serviceaccount:fedq-system:"));
        ensure!(refused.is_empty(), "{} refused: {refused:#?}", cluster.name);
    }
    Ok(())
}

/// The cluster's address with the token of a ServiceAccount in fedq-system.
pub fn kubeconfig_of(cluster: &Cluster, account: &str) -> Result<String> {
    kubeconfig_in(cluster, "fedq-system", account)
}

pub fn kubeconfig_in(cluster: &Cluster, namespace: &str, account: &str) -> Result<String> {
    let token = cluster.kubectl(&["create", "token", account, "--namespace", namespace])?;
    let mut kubeconfig: Value = serde_saphyr::from_str(&cluster.kubeconfig)?;
    let user = kubeconfig.pointer_mut("/users/0/user").context("a kubeconfig has a user")?;
    *user = json!({"token": token.trim()});
    Ok(serde_saphyr::to_string(&kubeconfig)?)
}
