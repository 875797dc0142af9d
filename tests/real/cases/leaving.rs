//! Clusters that are cordoned, leave, or turn out to be others, and kubeconfigs that cannot be used.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{
    Assign, CLAIM, CLAIMS, GPU, KUEUE, SOON, Stage, claim, claim_name, condition, ground, holds, job, job_id,
    queue,
};
use crate::support::cluster::{Cluster, Part, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;

pub async fn a_cordoned_cluster_counts_only_what_its_workloads_hold(fleet: &Fleet) -> Result<()> {
    let case = "cordon";
    let name = "a_cordoned_cluster_counts_only_what_its_workloads_hold";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    joined(&stage, worker, "cordon-one", "cordon-queue", "6").await?;
    worker
        .wait(id(KUEUE, "LocalQueue", "cordon-queue").within(case), "copied", SOON, Value::is_object)
        .await?;
    worker.apply_object("fedq-test", job(case, "holds", "cordon-queue", &[(GPU, "4")], "1h")).await?;
    worker.wait(job_id(case, "holds"), "running", SOON, |job| job["status"]["ready"] == 1).await?;

    stage.annotate_secret("cordon-one", "fedq.dev/cordon", Some("true")).await?;
    stops(worker, "cordon-queue", "Hold").await?;
    holds(hub, "cordon-queue", case, &[(GPU, "4")]).await.context("what the Job holds still counts")?;
    stage.claim_says("cordon-one", "Satisfied", "False", "Cordoned").await?;
    stage.annotate_secret("cordon-one", "fedq.dev/cordon", None).await?;
    stops(worker, "cordon-queue", "None").await?;
    holds(hub, "cordon-queue", case, &[(GPU, "6")]).await.context("uncordoned")?;
    stage.claim_says("cordon-one", "Ready", "True", "Ready").await?;
    Ok(())
}

async fn stops(worker: &Cluster, queue: &str, policy: &str) -> Result<()> {
    let what = format!("stopPolicy {policy}");
    let is = |object: &Value| object["spec"]["stopPolicy"].as_str().unwrap_or("None") == policy;
    worker.wait(id(KUEUE, "ClusterQueue", queue), &what, SOON, is).await?;
    Ok(())
}

pub async fn a_leaving_cluster_loses_its_share_first_and_only_what_is_ours(fleet: &Fleet) -> Result<()> {
    let case = "leave";
    let name = "a_leaving_cluster_loses_its_share_first_and_only_what_is_ours";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    joined(&stage, worker, "leave-one", "leave-queue", "6").await?;
    let local_queue = id(KUEUE, "LocalQueue", "leave-queue").within(case);
    worker.wait(local_queue, "copied", SOON, Value::is_object).await?;
    let theirs = queue(case, "leave-theirs", &[(GPU, "1")], "");
    worker.apply(&theirs).await?;

    stage.delete_secret("leave-one").await?;
    let namespace = stage.namespace();
    let secret = id("v1", "Secret", "leave-one").within(&namespace);
    hub.wait_gone(secret, SOON).await.context("the finalizer is released")?;
    holds(hub, "leave-queue", case, &[(GPU, "0")]).await?;
    ensure!(worker.get(id(KUEUE, "ClusterQueue", "leave-queue")).await?.is_none(), "our queue is left");
    ensure!(worker.get(local_queue).await?.is_none(), "our LocalQueue is left");
    holds(worker, "leave-theirs", case, &[(GPU, "1")]).await.context("a person's queue stays")?;
    worker.get(id("v1", "Namespace", case)).await?.context("a namespace is never deleted")?;
    let claim = stage.claim("leave-one").await.context("a claim with assignments is a person's")?;
    ensure!(claim["spec"]["resourceAssignments"][0]["resources"]["gpu"] == "6", "{claim:#}");
    stage.claim_says("leave-one", "Resolved", "False", "ClusterNotFound").await?;

    stage.join("leave-one", worker).await?;
    for cluster in [worker, hub] {
        holds(cluster, "leave-queue", case, &[(GPU, "6")]).await.context("joined again")?;
    }
    Ok(())
}

pub async fn another_cluster_under_a_joined_name_is_quarantined_until_confirmed(fleet: &Fleet) -> Result<()> {
    let case = "identity";
    let name = "another_cluster_under_a_joined_name_is_quarantined_until_confirmed";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    joined(&stage, one, "identity-one", "identity-queue", "6").await?;
    two.add_nodes(&[node(case, "a").gpus(8)]).await?;
    stage.rest().await?;

    let marks = stage.marks()?;
    stage.join("identity-one", two).await?;
    let held = stage.claim_says("identity-one", "CapacityKnown", "Unknown", "Quarantined").await?;
    ensure!(held["message"].to_string().contains("fedq cluster confirm"), "{held}");
    holds(hub, "identity-queue", case, &[(GPU, "6")]).await.context("its last share stands")?;
    let writes = stage.writes_since(&marks).await?;
    let elsewhere: Vec<_> =
        writes.iter().filter(|one| !one.resource.contains("clusterresourceclaims")).collect();
    ensure!(elsewhere.is_empty(), "it wrote before anyone confirmed: {elsewhere:#?}");

    let system = two.get(id("v1", "Namespace", "kube-system")).await?.context("every cluster has it")?;
    stage
        .annotate_secret("identity-one", "fedq.dev/confirm-identity", system["metadata"]["uid"].as_str())
        .await?;
    for cluster in [two, hub] {
        holds(cluster, "identity-queue", case, &[(GPU, "6")]).await.context("confirmed")?;
    }
    stage.claim_says("identity-one", "Ready", "True", "Ready").await?;
    Ok(())
}

/// Must show nowhere.
const PASSWORD: &str = "orange-bicycle-42";

pub async fn a_kubeconfig_that_cannot_be_used_is_refused_with_its_reason(fleet: &Fleet) -> Result<()> {
    let case = "refuse";
    let name = "a_kubeconfig_that_cannot_be_used_is_refused_with_its_reason";
    let stage = Stage::set(fleet, name, case).await?;
    let good: Value = serde_saphyr::from_str(&fleet.worker1().kubeconfig_for("fedqd", &["system:masters"])?)?;
    let mut wrong: Vec<(&str, String, &str)> = vec![
        ("refuse-text", "clusters: [".to_owned(), "cannot be read as YAML"),
        ("refuse-empty", String::new(), "kubeconfig"),
        ("refuse-hub", fleet.hub.kubeconfig_for("fedqd", &["system:masters"])?, "the hub itself"),
    ];
    let user = "/users/0/user";
    let cluster = "/clusters/0/cluster";
    for (name, place, fields, says) in [
        (
            "refuse-exec",
            user,
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never"}}),
            "exec plugin",
        ),
        ("refuse-provider", user, json!({"auth-provider": {"name": "oidc"}}), "auth-provider"),
        ("refuse-basic", user, json!({"username": "me", "password": PASSWORD}), "username and password"),
        ("refuse-as", user, json!({"as": "someone"}), "impersonates"),
        ("refuse-file", user, json!({"tokenFile": "/etc/passwd"}), "is the path of a file"),
        ("refuse-insecure", cluster, json!({"insecure-skip-tls-verify": true}), "insecure-skip-tls-verify"),
        ("refuse-ca", cluster, json!({"certificate-authority": "/etc/ca.crt"}), "is the path of a file"),
        ("refuse-proxy", cluster, json!({"proxy-url": "http://proxy.example.com:3128"}), "proxy-url"),
        ("refuse-http", cluster, json!({"server": "http://api.example.com"}), "https://"),
        ("refuse-link", cluster, json!({"server": "https://169.254.169.254"}), "is refused"),
        ("refuse-context", "", json!({"current-context": "none"}), "no context `none`"),
    ] {
        let mut bad = good.clone();
        let target = bad.pointer_mut(place).and_then(Value::as_object_mut).context("a kubeconfig")?;
        target.extend(fields.as_object().cloned().unwrap_or_default());
        wrong.push((name, serde_saphyr::to_string(&bad)?, says));
    }
    for (cluster, kubeconfig, _) in &wrong {
        stage.put_secret(cluster, kubeconfig).await?;
        stage.assign(cluster, &[]).await?;
    }
    for (cluster, _, says) in &wrong {
        let refused = stage.claim_says(cluster, "CapacityKnown", "False", "Refused").await?;
        let message = refused["message"].to_string();
        ensure!(message.contains(says), "{cluster}: expected `{says}`: {message}");
        ensure!(!message.contains(PASSWORD), "a password shows: {message}");
    }
    ensure!(!stage.daemon.log_text().contains(PASSWORD), "a password is in the log");
    Ok(())
}

pub async fn a_cluster_without_kueue_says_so_and_a_bare_node_counts_nothing(fleet: &Fleet) -> Result<()> {
    let case = "bare";
    let name = "a_cluster_without_kueue_says_so_and_a_bare_node_counts_nothing";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker, bare) = (stage.hub(), fleet.worker1(), fleet.bare().await?);
    joined(&stage, worker, "bare-one", "bare-queue", "6").await?;
    worker.add_nodes(&[node(case, "b").gpus(8)]).await?;
    let empty = json!({"status": {"allocatable": null, "capacity": null}});
    worker.merge(id("v1", "Node", "bare-b"), Part::Status, empty).await?;
    let name = claim_name("bare-one");
    hub.wait(id(CLAIMS, CLAIM, &name), "8 GPUs, of the node that has any", SOON, |claim| {
        claim["status"]["capacity"]["gpu"] == "8" && condition(claim, "CapacityKnown")["status"] == "True"
    })
    .await?;

    stage.join("bare-two", bare).await?;
    let give = [Assign { queue: "bare-queue", flavor: case, resources: &[("gpu", "2")] }];
    stage.assign("bare-two", &give).await?;
    let name = claim_name("bare-two");
    hub.wait(id(CLAIMS, CLAIM, &name), "not ready, for want of Kueue", SOON, |claim| {
        let ready = condition(claim, "Ready");
        ready["status"] != "True" && claim["status"]["conditions"].to_string().contains("Kueue")
    })
    .await?;
    holds(hub, "bare-queue", case, &[(GPU, "6")]).await.context("it counts for nothing")
}

/// A node of 8 GPUs, a flavor, a queue, and a joined cluster that gives the queue some of them.
async fn joined(stage: &Stage<'_>, worker: &Cluster, cluster: &str, name: &str, gpus: &str) -> Result<()> {
    let (hub, case) = (stage.hub(), stage.case);
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, name, &[(GPU, "0")], "")).await?;
    stage.join(cluster, worker).await?;
    let resources = [("gpu", gpus)];
    let claim = claim(cluster, &[Assign { queue: name, flavor: case, resources: &resources }]);
    hub.apply_object("fedq-test", claim).await?;
    for cluster in [worker, hub] {
        holds(cluster, name, case, &[(GPU, gpus)]).await?;
    }
    Ok(())
}
