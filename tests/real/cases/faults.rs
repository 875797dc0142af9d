//! The daemon that dies and the cluster that falls silent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::stage::{
    Assign, CLAIM, CLAIMS, FEDQD, GPU, HASTY, KUEUE, Recorder, SOON, Stage, claim, condition, ground, holds,
    nominal, queue,
};
use crate::support::audit::{Mark, Request};
use crate::support::cluster::{Cluster, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually};

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

pub async fn a_daemon_killed_again_and_again_ends_in_the_same_state(fleet: &Fleet) -> Result<()> {
    let case = "kill";
    let stage = Stage::set(fleet, "a_daemon_killed_again_and_again_ends_in_the_same_state", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker2());
    worker.add_nodes(&[node(case, "a").gpus(16)]).await?;
    hub.apply(&ground(case)).await?;
    for name in ["kill-a", "kill-b"] {
        hub.apply(&queue(case, name, &[(GPU, "0")], "")).await?;
    }
    stage.join("kill-one", worker).await?;
    give(&stage, "kill-one", &[("kill-a", "1"), ("kill-b", "1")]).await?;
    holds(hub, "kill-a", case, &[(GPU, "1")]).await?;
    holds(hub, "kill-b", case, &[(GPU, "1")]).await?;

    // Assignments only grow, so a quota that ever falls was taken by a daemon that knew too little.
    let recorders = (
        Recorder::start(hub, KUEUE, "ClusterQueue").await?,
        Recorder::start(worker, KUEUE, "ClusterQueue").await?,
    );
    for round in 2..=6_u64 {
        let amount = round.to_string();
        give(&stage, "kill-one", &[("kill-a", &amount), ("kill-b", &amount)]).await?;
        // From before the first write to after the last one, differently each round.
        tokio::time::sleep(Duration::from_millis(round * 211 % 450)).await;
        stage.daemon.kill()?;
        stage.daemon.restart().await?;
    }
    for name in ["kill-a", "kill-b"] {
        holds(worker, name, case, &[(GPU, "6")]).await?;
        holds(hub, name, case, &[(GPU, "6")]).await?;
    }
    stage.claim_says("kill-one", "Ready", "True", "Ready").await?;
    never_fell(case, &recorders.0.stop()?)?;
    never_fell(case, &recorders.1.stop()?)?;
    exactly(hub, CLAIMS, CLAIM, &["kill-one-resource-claim"]).await?;
    for cluster in [hub, worker] {
        exactly(cluster, KUEUE, "ClusterQueue", &["kill-a", "kill-b"]).await?;
        exactly(cluster, KUEUE, "LocalQueue", &["kill-a", "kill-b"]).await?;
        exactly(cluster, KUEUE, "ResourceFlavor", &[case]).await?;
    }
    Ok(())
}

pub async fn a_restarted_daemon_resumes_its_watch_or_lists_and_compares(fleet: &Fleet) -> Result<()> {
    let case = "resume";
    let stage = Stage::set(fleet, "a_restarted_daemon_resumes_its_watch_or_lists_and_compares", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker2());
    worker.add_nodes(&[node(case, "a").gpus(4), node(case, "b").gpus(4)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "resume-queue", &[(GPU, "0")], "")).await?;
    stage.join("resume-one", worker).await?;
    give(&stage, "resume-one", &[("resume-queue", "12")]).await?;
    holds(hub, "resume-queue", case, &[(GPU, "8")]).await?;
    stage.rest().await?;

    let recorder = Recorder::start(hub, KUEUE, "ClusterQueue").await?;
    stage.daemon.kill()?;
    // The end of the killed daemon's watch is logged before this.
    worker.add_nodes(&[node(case, "c").gpus(2)]).await?;
    let mark = worker.mark()?;
    stage.daemon.restart().await?;
    holds(hub, "resume-queue", case, &[(GPU, "10")]).await?;
    let asked = node_requests(worker, mark).await?;
    // A list of one asks only which version the server has.
    let whole = |one: &Request| one.verb == "list" && !one.uri.ends_with("limit=1");
    ensure!(!asked.iter().any(whole), "the server had the version, so no list: {asked:#?}");
    ensure!(asked.iter().any(|one| resumes(&one.uri)), "a watch from the stored version: {asked:#?}");
    never_fell(case, &recorder.stop()?)?;

    stage.rest().await?;
    let recorder = Recorder::start(hub, KUEUE, "ClusterQueue").await?;
    stage.daemon.kill()?;
    worker.delete_node("resume-b").await?;
    worker.add_nodes(&[node(case, "d").gpus(6)]).await?;
    worker.plane.kill_api_server()?;
    worker.plane.restart_api_server().await?;
    stage.daemon.restart().await?;
    holds(hub, "resume-queue", case, &[(GPU, "12")]).await?;
    stage.claim_says("resume-one", "Ready", "True", "Ready").await?;
    // Nodes went and came while nobody looked: their sum grew, and at no time was it taken for less.
    never_fell(case, &recorder.stop()?)
}

pub async fn a_hub_that_refuses_writes_keeps_its_base_through_a_restart(fleet: &Fleet) -> Result<()> {
    let case = "base";
    let name = "a_hub_that_refuses_writes_keeps_its_base_through_a_restart";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "base-queue", &[(GPU, "4")], "")).await?;
    refuse(hub, "base-queue").await?;
    stage.join("base-one", worker).await?;
    give(&stage, "base-one", &[("base-queue", "5")]).await?;
    holds(worker, "base-queue", case, &[(GPU, "5")]).await?;
    stage.claim_says("base-one", "QuotaSynced", "False", "WriteFailed").await?;
    holds(hub, "base-queue", case, &[(GPU, "4")]).await.context("the hub never had the term")?;

    stage.daemon.kill()?;
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        hub.delete(id(ADMISSION, kind, "base-queue")).await?;
    }
    stage.daemon.restart().await?;
    holds(hub, "base-queue", case, &[(GPU, "9")]).await.context("added to what was there")?;
    give(&stage, "base-one", &[]).await?;
    holds(hub, "base-queue", case, &[(GPU, "4")]).await.context("what was there is left")
}

/// Refuses the daemon's writes of one ClusterQueue.
async fn refuse(hub: &Cluster, queue: &str) -> Result<()> {
    hub.apply(&format!(
        "
apiVersion: {ADMISSION}
kind: ValidatingAdmissionPolicy
metadata: {{name: {queue}}}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {{apiGroups: [kueue.x-k8s.io], apiVersions: ['*'], operations: [UPDATE], resources: [clusterqueues]}}
  validations:
  - {{expression: \"object.metadata.name != '{queue}' || request.userInfo.username != '{FEDQD}'\", message: not now}}
---
apiVersion: {ADMISSION}
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {queue}}}
spec: {{policyName: {queue}, validationActions: [Deny]}}
"
    ))
    .await?;
    let note = ["annotate", "clusterqueue", queue, "note=dry", "--overwrite", "--dry-run=server"];
    let daemon = [&note[..], &["--as", FEDQD, "--as-group", "system:masters"]].concat();
    eventually("the policy to be in force", SOON, async || {
        Ok(Seen::when(hub.kubectl(&daemon).is_err(), || "the daemon's writes are taken".to_owned()))
    })
    .await
}

pub async fn a_silent_cluster_keeps_its_share_until_it_is_lost(fleet: &Fleet) -> Result<()> {
    let case = "silent";
    let name = "a_silent_cluster_keeps_its_share_until_it_is_lost";
    let stage = Stage::set_with(fleet, name, case, HASTY, "").await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    for worker in [one, two] {
        worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    }
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "silent-queue", &[(GPU, "0")], "")).await?;
    for (cluster, worker, gpus) in [("silent-one", one, "5"), ("silent-two", two, "2")] {
        stage.join(cluster, worker).await?;
        give(&stage, cluster, &[("silent-queue", gpus)]).await?;
    }
    holds(hub, "silent-queue", case, &[(GPU, "7")]).await?;

    one.plane.kill_api_server()?;
    stage.claim_says("silent-one", "CapacityKnown", "Unknown", "Stale").await?;
    holds(hub, "silent-queue", case, &[(GPU, "7")]).await.context("its share stands")?;
    give(&stage, "silent-two", &[("silent-queue", "4")]).await?;
    holds(two, "silent-queue", case, &[(GPU, "4")]).await.context("others go on")?;
    holds(hub, "silent-queue", case, &[(GPU, "9")]).await.context("others go on, its share stands")?;
    stage.claim_says("silent-one", "CapacityKnown", "False", "Lost").await?;
    holds(hub, "silent-queue", case, &[(GPU, "4")]).await.context("its share is withdrawn")?;

    one.plane.restart_api_server().await?;
    holds(hub, "silent-queue", case, &[(GPU, "9")]).await.context("its share returns")?;
    stage.claim_says("silent-one", "Ready", "True", "Ready").await?;
    Ok(())
}

/// All that fedq follows on a worker but one kind, as a role that was trimmed would have it.
const ALL_BUT_LOCAL_QUEUES: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: narrow}
rules:
- {apiGroups: [''], resources: [nodes, namespaces, pods, persistentvolumeclaims], verbs: ['*']}
- {apiGroups: [batch, jobset.x-k8s.io], resources: ['*'], verbs: ['*']}
- apiGroups: [kueue.x-k8s.io]
  resources: [clusterqueues, resourceflavors, cohorts, topologies, admissionchecks, workloadpriorityclasses, workloads]
  verbs: ['*']
- {nonResourceURLs: ['*'], verbs: [get]}
";

fn bound_to(role: &str) -> String {
    format!(
        "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: narrow-{role}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: narrow-fedqd}}]
"
    )
}

pub async fn a_kind_that_is_forbidden_does_not_hold_up_what_others_lose(fleet: &Fleet) -> Result<()> {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let case = "narrow";
    let name = "a_kind_that_is_forbidden_does_not_hold_up_what_others_lose";
    let stage = Stage::set_with(fleet, name, case, HASTY, "").await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    for worker in [one, two] {
        worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    }
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "narrow-queue", &[(GPU, "0")], "")).await?;
    one.apply(ALL_BUT_LOCAL_QUEUES).await?;
    one.apply(&bound_to("cluster-admin")).await?;
    stage.put_secret("narrow-one", &one.kubeconfig_for("narrow-fedqd", &[])?).await?;
    stage.join("narrow-two", two).await?;
    for (cluster, gpus) in [("narrow-one", "5"), ("narrow-two", "4")] {
        give(&stage, cluster, &[("narrow-queue", gpus)]).await?;
    }
    holds(hub, "narrow-queue", case, &[(GPU, "9")]).await?;
    stage.rest().await?;

    stage.daemon.kill()?;
    one.apply(&bound_to("narrow")).await?;
    one.delete(id(RBAC, "ClusterRoleBinding", "narrow-cluster-admin")).await?;
    give(&stage, "narrow-two", &[("narrow-queue", "1")]).await?;
    stage.daemon.restart().await?;
    holds(two, "narrow-queue", case, &[(GPU, "1")]).await?;
    holds(hub, "narrow-queue", case, &[(GPU, "6")]).await.context("what `narrow-two` lost, and no more")?;
    holds(one, "narrow-queue", case, &[(GPU, "5")]).await?;

    one.apply(&bound_to("cluster-admin")).await?;
    stage.claim_says("narrow-one", "Ready", "True", "Ready").await?;
    holds(hub, "narrow-queue", case, &[(GPU, "6")]).await?;
    for role in ["narrow", "cluster-admin"] {
        one.delete(id(RBAC, "ClusterRoleBinding", &format!("narrow-{role}"))).await?;
    }
    one.delete(id(RBAC, "ClusterRole", "narrow")).await
}

pub async fn a_second_claim_that_was_turned_down_is_so_after_a_restart(fleet: &Fleet) -> Result<()> {
    let case = "second";
    let stage = Stage::set(fleet, "a_second_claim_that_was_turned_down_is_so_after_a_restart", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker2());
    claimed(&stage, worker, "second-one", "second-queue").await?;
    let resources = [("gpu", "1")];
    let give_less = Assign { queue: "second-queue", flavor: case, resources: &resources };
    let mut second = claim("second-one", &[give_less]);
    second["metadata"]["name"] = "second-z".into();
    hub.apply_object("fedq-test", second).await?;
    let turned_down = |claim: &Value| condition(claim, "Accepted")["reason"] == "ClusterAlreadyClaimed";
    hub.wait(id(CLAIMS, CLAIM, "second-z"), "turned down", SOON, turned_down).await?;
    stage.rest().await?;

    let recorder = Recorder::start(worker, KUEUE, "ClusterQueue").await?;
    stage.daemon.kill()?;
    stage.daemon.restart().await?;
    stage.rest().await?;
    let second = hub.get(id(CLAIMS, CLAIM, "second-z")).await?.context("the second claim is there")?;
    ensure!(turned_down(&second), "{second:#}");
    give(&stage, "second-one", &[("second-queue", "5")]).await?;
    for cluster in [worker, hub] {
        holds(cluster, "second-queue", case, &[(GPU, "5")]).await?;
    }
    never_fell(case, &recorder.stop()?)
}

pub async fn an_invalid_edit_leaves_the_last_valid_text_in_force_after_a_restart(
    fleet: &Fleet,
) -> Result<()> {
    let case = "invalid";
    let name = "an_invalid_edit_leaves_the_last_valid_text_in_force_after_a_restart";
    let stage = Stage::set(fleet, name, case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker2());
    claimed(&stage, worker, "invalid-one", "invalid-queue").await?;
    // The schema lets it through.
    give(&stage, "invalid-one", &[("invalid-queue", "1e99")]).await?;
    stage.claim_says("invalid-one", "Accepted", "False", "InvalidQuantity").await?;
    stage.rest().await?;

    let recorders = (
        Recorder::start(hub, KUEUE, "ClusterQueue").await?,
        Recorder::start(worker, KUEUE, "ClusterQueue").await?,
    );
    stage.daemon.kill()?;
    stage.daemon.restart().await?;
    stage.rest().await?;
    for cluster in [worker, hub] {
        holds(cluster, "invalid-queue", case, &[(GPU, "4")]).await?;
    }
    stage.claim_says("invalid-one", "Accepted", "False", "InvalidQuantity").await?;
    give(&stage, "invalid-one", &[("invalid-queue", "5")]).await?;
    for cluster in [worker, hub] {
        holds(cluster, "invalid-queue", case, &[(GPU, "5")]).await?;
    }
    never_fell(case, &recorders.0.stop()?)?;
    never_fell(case, &recorders.1.stop()?)
}

/// A cluster of 8 GPUs whose claim gives 4 of them to a queue.
async fn claimed(stage: &Stage<'_>, worker: &Cluster, cluster: &str, name: &str) -> Result<()> {
    worker.add_nodes(&[node(stage.case, "a").gpus(8)]).await?;
    stage.hub().apply(&ground(stage.case)).await?;
    stage.hub().apply(&queue(stage.case, name, &[(GPU, "0")], "")).await?;
    stage.join(cluster, worker).await?;
    give(stage, cluster, &[(name, "4")]).await?;
    for cluster in [worker, stage.hub()] {
        holds(cluster, name, stage.case, &[(GPU, "4")]).await?;
    }
    Ok(())
}

async fn give(stage: &Stage<'_>, cluster: &str, gpus: &[(&str, &str)]) -> Result<()> {
    let resources: Vec<[(&str, &str); 1]> = gpus.iter().map(|(_, amount)| [("gpu", *amount)]).collect();
    let assignments: Vec<Assign<'_>> = gpus
        .iter()
        .zip(&resources)
        .map(|((queue, _), resources)| Assign { queue, flavor: stage.case, resources })
        .collect();
    stage.assign(cluster, &assignments).await
}

fn never_fell(flavor: &str, states: &[Value]) -> Result<()> {
    let mut last: BTreeMap<String, i64> = BTreeMap::new();
    for state in states {
        let Some(now) = nominal(state, flavor, GPU).and_then(|text| text.parse().ok()) else { continue };
        let name = state["metadata"]["name"].to_string();
        let before = last.insert(name, now).unwrap_or(now);
        ensure!(before <= now, "the quota fell from {before} to {now}: {state:#}");
    }
    Ok(())
}

async fn exactly(cluster: &Cluster, api_version: &str, kind: &str, names: &[&str]) -> Result<()> {
    let all = cluster.list(api_version, kind, None).await?;
    let found: Vec<&str> = all.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
    let (found, wanted): (BTreeSet<&str>, BTreeSet<&str>) =
        (found.iter().copied().collect(), names.iter().copied().collect());
    ensure!(found == wanted && all.len() == names.len(), "{kind} on {}: {found:?}", cluster.name);
    Ok(())
}

/// What the daemon asked of the nodes since the mark; a watch is logged when its answer begins.
async fn node_requests(worker: &Cluster, mark: Mark) -> Result<Vec<Request>> {
    eventually("the audit log to have the daemon's watch of nodes", SOON, async || {
        let mut asked = worker.requests_since(mark)?;
        asked.retain(|one| one.user == FEDQD && one.resource == "nodes");
        let watched = asked.iter().any(|one| one.verb == "watch" && 0 < one.code);
        Ok(if watched { Seen::Done(asked) } else { Seen::Still(format!("{asked:?}")) })
    })
    .await
}

fn resumes(uri: &str) -> bool {
    let version = uri.split(['?', '&']).find_map(|part| part.strip_prefix("resourceVersion="));
    version.is_some_and(|version| version.parse::<u64>().is_ok_and(|version| 0 < version))
}
