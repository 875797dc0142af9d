//! Claims as people write, edit, lose and mistake them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{
    Assign, CLAIM, CLAIMS, GPU, KUEUE, SOON, Stage, claim, claim_name, condition, ground, holds, queue,
};
use crate::support::cluster::{Part, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::{CASE_LABEL, Node, node};
use crate::support::wait::{Seen, eventually};

/// As the feature request has it.
const ISSUE_MANIFEST: &str = r#"
apiVersion: galaxy.kubestellar.io/v1alpha1
kind: ClusterResourceClaim
metadata:
  name: cluster2-resource-claim
spec:
  clusterName: cluster2
  nominalResources:
    cpu: "1000"
    memory: 1000Gi
    gpu: "10"
  resourceAssignments:
    - clusterQueueName: high-priority-queue
      flavor: on-demand
      resources:
        cpu: "500"
        memory: 500Gi
        gpu: "5"
    - clusterQueueName: low-priority-queue
      flavor: spot
      resources:
        cpu: "500"
        memory: 500Gi
        gpu: "5"
"#;

pub async fn the_manifest_of_the_feature_request_gives_the_quotas_it_says(fleet: &Fleet) -> Result<()> {
    let case = "seed";
    let name = "the_manifest_of_the_feature_request_gives_the_quotas_it_says";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    hub.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {case}}}}}")).await?;
    for (queue, flavor) in [("high-priority-queue", "on-demand"), ("low-priority-queue", "spot")] {
        worker.add_nodes(&[half(case, flavor)]).await?;
        hub.apply(&two_flavored(case, queue, flavor)).await?;
    }
    stage.join("cluster2", worker).await?;
    // Between kubectl's look and its create, fedqd may make the claim that every joined cluster gets.
    stage.claim_says("cluster2", "CapacityKnown", "True", "Observed").await?;
    let manifest = stage.daemon.home().file("claim.yaml", ISSUE_MANIFEST)?;
    hub.kubectl(&["apply", "--filename", &manifest.display().to_string()])?;
    let quotas = [("cpu", "500"), ("memory", "500Gi"), (GPU, "5")];
    for cluster in [worker, hub] {
        holds(cluster, "high-priority-queue", "on-demand", &quotas).await?;
        holds(cluster, "low-priority-queue", "spot", &quotas).await?;
    }
    stage.claim_says("cluster2", "Ready", "True", "Ready").await?;
    let claim = stage.claim("cluster2").await?;
    let given = &claim["spec"]["nominalResources"];
    ensure!(
        *given == json!({"cpu": "1000", "memory": "1000Gi", "gpu": "10"}),
        "they stay a person's: {given}"
    );
    Ok(())
}

fn half(case: &str, flavor: &str) -> Node {
    let node = node(case, flavor).label("lifecycle", flavor).gpus(5);
    node.allocatable("cpu", "500").allocatable("memory", "500Gi")
}

fn two_flavored(case: &str, queue: &str, flavor: &str) -> String {
    format!(
        "
apiVersion: {KUEUE}
kind: ResourceFlavor
metadata: {{name: {flavor}}}
spec:
  nodeLabels: {{{CASE_LABEL}: {case}, lifecycle: {flavor}}}
---
apiVersion: {KUEUE}
kind: ClusterQueue
metadata: {{name: {queue}}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu, memory, {GPU}]
    flavors:
    - name: {flavor}
      resources: [{{name: cpu, nominalQuota: 0}}, {{name: memory, nominalQuota: 0}}, {{name: {GPU}, nominalQuota: 0}}]
"
    )
}

pub async fn kubectl_alone_joins_edits_and_reads(fleet: &Fleet) -> Result<()> {
    let case = "kubectl";
    let stage = Stage::set(fleet, "kubectl_alone_joins_edits_and_reads", case).await?;
    let (hub, worker, home) = (stage.hub(), fleet.worker1(), stage.daemon.home());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "kubectl-queue", &[(GPU, "0")], "")).await?;

    let namespace = stage.namespace();
    let kubeconfig = home.file("worker.kubeconfig", &worker.kubeconfig_for("fedqd", &["system:masters"])?)?;
    let from_file = format!("--from-file=kubeconfig={}", kubeconfig.display());
    hub.kubectl(&["create", "secret", "generic", "kubectl-one", "--namespace", &namespace, &from_file])?;
    hub.kubectl(&[
        "label",
        "secret",
        "kubectl-one",
        "--namespace",
        &namespace,
        "fedq.dev/cluster=kubectl-one",
    ])?;
    let name = claim_name("kubectl-one");
    hub.wait(id(CLAIMS, CLAIM, &name), "made at the join", SOON, |claim| {
        claim["spec"]["nominalResources"]["gpu"] == "8"
    })
    .await?;

    let editor = home.file("editor", EDITOR)?;
    let run = format!("sh {}", editor.display());
    hub.kubectl_with(&[("KUBE_EDITOR", &run)], &["edit", "clusterresourceclaim", &name])?;
    for cluster in [worker, hub] {
        holds(cluster, "kubectl-queue", case, &[(GPU, "6")]).await?;
    }
    stage.claim_says("kubectl-one", "Ready", "True", "Ready").await?;

    let table = hub.kubectl(&["get", "crc", &name, "--output", "wide"])?;
    for word in ["CLUSTER", "READY", "SHORT", "GPU", "kubectl-one", "True"] {
        ensure!(table.contains(word), "`{word}` is missing:\n{table}");
    }
    eventually("the events that say what happened", SOON, async || {
        let described = hub.kubectl(&["describe", "crc", &name])?;
        let words = ["Effective", "Assigned", "QuotaSynced", "Satisfied", "ClaimCreated", "QuotaApplied"];
        let missing: Vec<_> = words.iter().filter(|word| !described.contains(**word)).collect();
        Ok(Seen::when(missing.is_empty(), || format!("{missing:?} are missing:\n{described}")))
    })
    .await?;
    let selected =
        hub.kubectl(&["get", "crc", "--field-selector", "spec.clusterName=kubectl-one", "--output", "name"])?;
    ensure!(selected.contains(&name), "{selected}");
    Ok(())
}

/// Replaces the file by itself with an assignment, as a person would type it.
const EDITOR: &str = r#"
sed -i 's/^spec:$/spec:\n  resourceAssignments:\n  - clusterQueueName: kubectl-queue\n    flavor: kubectl\n    resources: {gpu: "6"}/' "$1"
"#;

pub async fn claims_that_vanish_together_are_held_until_confirmed(fleet: &Fleet) -> Result<()> {
    let case = "vanish";
    let stage = Stage::set(fleet, "claims_that_vanish_together_are_held_until_confirmed", case).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "vanish-queue", &[(GPU, "0")], "")).await?;
    for (cluster, worker) in [("vanish-one", one), ("vanish-two", two)] {
        worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
        stage.join(cluster, worker).await?;
        let give = [Assign { queue: "vanish-queue", flavor: case, resources: &[("gpu", "4")] }];
        stage.assign(cluster, &give).await?;
    }
    holds(hub, "vanish-queue", case, &[(GPU, "8")]).await?;

    hub.kubectl(&["delete", "crc", "--all"])?;
    // An empty claim is made anew for each; what they had is not believed gone.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    for (cluster, gpus) in [(hub, "8"), (one, "4"), (two, "4")] {
        holds(cluster, "vanish-queue", case, &[(GPU, gpus)]).await.context("held")?;
    }
    let namespace = stage.namespace();
    let confirm = json!({"metadata": {"annotations": {"fedq.dev/confirm-removal": "true"}}});
    hub.merge(id("v1", "Namespace", &namespace), Part::Whole, confirm).await?;
    for cluster in [hub, one, two] {
        holds(cluster, "vanish-queue", case, &[(GPU, "0")]).await.context("confirmed")?;
    }
    hub.wait(id("v1", "Namespace", &namespace), "free of the answered confirmation", SOON, |object| {
        object["metadata"]["annotations"]["fedq.dev/confirm-removal"].is_null()
    })
    .await?;
    Ok(())
}

pub async fn an_unknown_name_waits_and_takes_effect_when_it_appears(fleet: &Fleet) -> Result<()> {
    let case = "wait";
    let stage = Stage::set(fleet, "an_unknown_name_waits_and_takes_effect_when_it_appears", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    let give = [Assign { queue: "wait-queue", flavor: case, resources: &[("gpu", "3")] }];
    stage.assign("wait-one", &give).await?;
    let missing = stage.claim_says("wait-one", "Resolved", "False", "ClusterNotFound").await?;
    ensure!(missing["message"].to_string().contains("wait-one"), "{missing}");
    stage.join("wait-one", worker).await?;
    stage.claim_says("wait-one", "Resolved", "False", "QueueNotFound").await?;
    let queue_yaml = queue(case, "wait-queue", &[("cpu", "0")], "")
        .replace(&format!("- name: {case}\n"), "- name: other\n");
    hub.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {case}}}}}")).await?;
    hub.apply(&queue_yaml).await?;
    stage.claim_says("wait-one", "Resolved", "False", "FlavorNotFound").await?;
    // The queue has neither the flavor nor the resource: both are added to it.
    hub.apply(&ground(case)).await?;
    for cluster in [worker, hub] {
        holds(cluster, "wait-queue", case, &[(GPU, "3")]).await?;
    }
    stage.claim_says("wait-one", "Resolved", "True", "Resolved").await?;
    Ok(())
}

pub async fn a_wrong_claim_is_refused_and_changes_nothing(fleet: &Fleet) -> Result<()> {
    let case = "wrong";
    let stage = Stage::set(fleet, "a_wrong_claim_is_refused_and_changes_nothing", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "wrong-queue", &[(GPU, "0")], "")).await?;
    stage.join("wrong-one", worker).await?;
    let gpus = |amount| [("gpu", amount)];
    let resources = gpus("2");
    let give = Assign { queue: "wrong-queue", flavor: case, resources: &resources };
    stage.assign("wrong-one", &[give]).await?;
    holds(hub, "wrong-queue", case, &[(GPU, "2")]).await?;
    stage.rest().await?;

    let marks = stage.marks()?;
    for amount in ["-1", "99999999999999999999", "ten", "5 GB"] {
        let resources = gpus(amount);
        let give = [Assign { queue: "wrong-queue", flavor: case, resources: &resources }];
        refused(&stage, claim("wrong-one", &give), "", amount).await?;
    }
    let resources = gpus("1");
    let twice = || Assign { queue: "wrong-queue", flavor: case, resources: &resources };
    refused(&stage, claim("wrong-one", &[twice(), twice()]), "", "the same assignment twice").await?;
    let mut pointed = claim("wrong-one", &[twice()]);
    pointed["spec"]["clusterName"] = "wrong-two".into();
    refused(&stage, pointed, "immutable", "another cluster").await?;
    let mut huge = claim("wrong-one", &[twice()]);
    huge["spec"]["clusterName"] = "x".repeat(64).into();
    refused(&stage, huge, "", "a name that is too long").await?;
    let many: Vec<Value> = (0..200)
        .map(|index| json!({"clusterQueueName": format!("q{index}"), "flavor": "f", "resources": {"gpu": "1"}}))
        .collect();
    let mut list = claim("wrong-one", &[]);
    list["spec"]["resourceAssignments"] = many.into();
    refused(&stage, list, "", "200 assignments").await?;
    let writes = stage.writes_since(&marks).await?;
    ensure!(writes.is_empty(), "a refused claim made fedqd write: {writes:#?}");

    // The schema lets this one through; the claim says what is wrong with it, and the last valid text stands.
    let resources = gpus("1e99");
    stage
        .assign("wrong-one", &[Assign { queue: "wrong-queue", flavor: case, resources: &resources }])
        .await?;
    let invalid = stage.claim_says("wrong-one", "Accepted", "False", "").await?;
    ensure!(invalid["message"].to_string().contains("gpu"), "it does not say which: {invalid}");
    holds(hub, "wrong-queue", case, &[(GPU, "2")]).await?;

    let mut second = claim("wrong-one", &[twice()]);
    second["metadata"]["name"] = "wrong-second".into();
    hub.apply_object("fedq-test", second).await?;
    hub.wait(id(CLAIMS, CLAIM, "wrong-second"), "turned down", SOON, |claim| {
        let accepted = condition(claim, "Accepted");
        accepted["status"] == "False" && accepted["reason"] == "ClusterAlreadyClaimed"
    })
    .await?;
    holds(hub, "wrong-queue", case, &[(GPU, "2")]).await
}

async fn refused(stage: &Stage<'_>, claim: Value, says: &str, what: &str) -> Result<()> {
    let answer = stage.hub().apply_object("fedq-test", claim).await;
    let error = answer.err().with_context(|| format!("the hub took a claim with {what}"))?;
    ensure!(format!("{error:#}").contains(says), "{what}: {error:#}");
    Ok(())
}
