//! `fedq kueue` through fedqd, which has on the workers what `deploy/worker` gives it and no more.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::command_line::Person;
use super::rights::{NAMESPACE, POLICY, ROLES, WORKER, kubeconfig_of, nothing_was_refused};
use super::stage::{CLAIM, CLAIMS, GPU, KUEUE, SOON, Stage, claim_name, ground, job, job_id, queue};
use crate::follower::Follower;
use crate::support::cluster::{Cluster, Id, id};
use crate::support::daemon::start_cli;
use crate::support::fleet::Fleet;
use crate::support::wait::{Seen, eventually};

const KUEUECTL: &str = include_str!("../../../deploy/worker/kueuectl.yaml");
const JOB_SET: &str = "jobset.x-k8s.io/v1alpha2";
const CASE: &str = "people";
const QUEUE: &str = "people-queue";

/// Lets a user of the hub do this on a worker.
async fn grant(worker: &Cluster, user: &str, name: &str, rules: Value) -> Result<()> {
    const RBAC: &str = "rbac.authorization.k8s.io/v1";
    let (metadata, group) = (json!({"name": name}), "rbac.authorization.k8s.io");
    let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
    let binding = json!({
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    worker.apply_object("fedq-test", role).await?;
    worker.apply_object("fedq-test", binding).await?;
    Ok(())
}

fn reads() -> Value {
    json!([
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        // kueuectl asks for the place in the queue of each that waits.
        {"apiGroups": ["visibility.kueue.x-k8s.io"], "resources": ["clusterqueues/pendingworkloads"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["namespaces", "events", "pods"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list"]},
    ])
}

fn moves() -> Value {
    json!([
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]},
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "patch", "delete"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "create", "patch", "delete"]},
    ])
}

/// One of two Jobs of a GPU each.
fn job_set(name: &str) -> Value {
    let template = job(CASE, "", QUEUE, &[(GPU, "1")], "1h")["spec"]["template"].clone();
    json!({
        "apiVersion": JOB_SET, "kind": "JobSet",
        "metadata": {"name": name, "namespace": CASE, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}},
        "spec": {"suspend": true, "replicatedJobs": [
            {"name": "part", "replicas": 2, "template": {"spec": {"backoffLimit": 0, "template": template}}},
        ]},
    })
}

struct Ann<'s, 'f> {
    stage: &'s Stage<'f>,
    person: Person<'s, 'f>,
}

impl Ann<'_, '_> {
    /// What the command says: data, errors, exit code.
    fn kueue(&self, line: &str) -> Result<(String, String, i32)> {
        let words: Vec<&str> = ["kueue"].into_iter().chain(line.split(' ')).collect();
        let ran = self.person.runs(&words)?;
        Ok((ran.stdout, ran.stderr, ran.code))
    }

    fn follows(&self, line: &str) -> Result<Follower> {
        let words: Vec<&str> = ["kueue"].into_iter().chain(line.split(' ')).collect();
        let env = [("FEDQ_SERVER", self.stage.server.as_str()), ("FEDQ_TOKEN", self.person.token())];
        Ok(Follower::new(start_cli(self.stage.fleet, CASE, &env, &words, Stdio::piped())?))
    }
}

/// First words of the lines below the head.
fn clusters(table: &str) -> Vec<&str> {
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect()
}

pub async fn people_see_and_change_on_each_cluster_what_it_lets_them(fleet: &Fleet) -> Result<()> {
    let name = "people_see_and_change_on_each_cluster_what_it_lets_them";
    let stage = Stage::set(fleet, name, CASE).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    for manifest in [NAMESPACE, ROLES] {
        hub.apply(manifest).await?;
    }
    for (cluster, worker) in [("people-one", one), ("people-two", two)] {
        worker.apply(WORKER).await?;
        worker.apply(POLICY).await?;
        worker.apply(&ground(CASE)).await?;
        worker.apply(&queue(CASE, QUEUE, &[(GPU, "8")], "")).await?;
        stage.put_secret(cluster, &kubeconfig_of(worker, "fedq")?).await?;
        let claim = claim_name(cluster);
        hub.wait(id(CLAIMS, CLAIM, &claim), "made at the join", SOON, Value::is_object).await?;
    }
    let ann = Ann { stage: &stage, person: Person::new(&stage, "ann", Some("fedq-claim-viewer")).await? };
    let user = format!("hub:system:serviceaccount:{}:ann", stage.namespace());
    grant(one, &user, "people-reads", reads()).await?;

    // It is the administrator's to allow it at all.
    let (out, err, code) = ann.kueue("list cq --cluster people-one")?;
    ensure!(code == 1 && out.is_empty() && err.contains("deploy/worker/kueuectl.yaml"), "{code}: {out}{err}");
    for worker in [one, two] {
        worker.apply(KUEUECTL).await?;
    }
    let marks = [(one, one.mark()?), (two, two.mark()?)];

    // What she may see is shown, what she may not is named.
    eventually("the right to be felt", SOON, async || {
        let (out, err, code) = ann.kueue("list cq --cluster people-one")?;
        Ok(Seen::when(code == 0 && out.contains(QUEUE), || format!("{code}: {out}{err}")))
    })
    .await?;
    let (out, err, code) = ann.kueue("list cq --all-clusters")?;
    ensure!(code == 1 && clusters(&out) == ["people-one"], "{code}: {out}{err}");
    let refused = format!(
        "cluster people-two: user \"{user}\" cannot list clusterqueues.kueue.x-k8s.io on cluster `people-two`"
    );
    ensure!(err.contains(&refused), "{err}");
    let (_, err, code) = ann.kueue(&format!("stop cq {QUEUE} --cluster people-one"))?;
    ensure!(code == 1 && err.contains("cannot patch clusterqueues.kueue.x-k8s.io"), "{err}");
    let policy = async |worker: &Cluster| {
        let queue = worker.get(id(KUEUE, "ClusterQueue", QUEUE)).await?.context("the queue")?;
        anyhow::Ok(queue["spec"]["stopPolicy"].clone())
    };
    ensure!(policy(one).await? == "None", "nobody stopped it");

    // What she changes there is on record as hers.
    let changes = json!([{"apiGroups": ["kueue.x-k8s.io"], "resources": ["clusterqueues"], "verbs": ["patch", "update"]}]);
    grant(one, &user, "people-changes", changes).await?;
    eventually("the right to change to be felt", SOON, async || {
        let (out, err, code) = ann.kueue(&format!("stop cq {QUEUE} --cluster people-one"))?;
        Ok(Seen::when(code == 0, || format!("{code}: {out}{err}")))
    })
    .await?;
    ensure!(policy(one).await? == "HoldAndDrain" && policy(two).await? == "None", "of one alone");
    let (_, err, code) = ann.kueue(&format!("resume cq {QUEUE} --cluster people-one"))?;
    ensure!(code == 0 && policy(one).await? == "None", "{err}");

    // Lists of both are followed while workloads come and go.
    grant(two, &user, "people-reads", reads()).await?;
    eventually("both to be shown", SOON, async || {
        let (out, err, code) = ann.kueue("list cq --all-clusters")?;
        let both = clusters(&out) == ["people-one", "people-two"];
        Ok(Seen::when(code == 0 && both, || format!("{code}: {out}{err}")))
    })
    .await?;
    beside_the_hub(&ann, hub).await?;
    for worker in [one, two] {
        grant(worker, &user, "people-moves", moves()).await?;
    }
    goes_to_the_other(
        &ann,
        one,
        two,
        job_id(CASE, "travels"),
        job(CASE, "travels", QUEUE, &[(GPU, "2")], "1h"),
    )
    .await?;
    goes_to_the_other(&ann, one, two, id(JOB_SET, "JobSet", "troupe").within(CASE), job_set("troupe"))
        .await?;
    let mut follower = follow_both(&ann, one, two).await?;
    nothing_was_refused(marks)?;
    follow_through_a_stop(&ann, &mut follower, one, two).await
}

/// The hub's own queues come first, where she may see them.
async fn beside_the_hub(ann: &Ann<'_, '_>, hub: &Cluster) -> Result<()> {
    hub.apply(&ground(CASE)).await?;
    hub.apply(&queue(CASE, QUEUE, &[(GPU, "0")], "")).await?;
    let (out, err, code) = ann.kueue("list cq --hub --cluster people-one")?;
    ensure!(code == 1 && clusters(&out) == ["people-one"] && err.contains("hub: "), "{code}: {out}{err}");
    let user = format!("system:serviceaccount:{}:ann", ann.stage.namespace());
    grant(hub, &user, "people-reads", reads()).await?;
    eventually("the hub's to be shown", SOON, async || {
        let (out, err, code) = ann.kueue("list cq --hub --cluster people-one")?;
        let both = code == 0 && clusters(&out) == ["<hub>", "people-one"];
        Ok(Seen::when(both, || format!("{code}: {out}{err}")))
    })
    .await
}

/// It runs on one, and then on the other, by one command; a server's own rules hold for what fedq makes of it there.
async fn goes_to_the_other(
    ann: &Ann<'_, '_>,
    one: &Cluster,
    two: &Cluster,
    job: Id<'_>,
    object: Value,
) -> Result<()> {
    let runs = |object: &Value| object["spec"]["suspend"] == false;
    one.apply_object("fedq-test", object).await?;
    let here = one.wait(job, "to run on the one cluster", SOON, runs).await?;
    let uid = here["metadata"]["uid"].clone();
    let workloads = one.list(KUEUE, "Workload", Some(CASE)).await?;
    let of_it = workloads.iter().find(|one| one["metadata"]["ownerReferences"][0]["uid"] == uid);
    let name = of_it.and_then(|one| one["metadata"]["name"].as_str()).context("its workload")?;
    let line = format!(
        "move workload {name} -n {CASE} --cluster people-one --to-cluster people-two --to-queue {QUEUE}"
    );
    let (_, err, code) = ann.kueue(&line)?;
    ensure!(code == 1 && err.contains("--restart stops"), "{code}: {err}");
    // What was just granted takes a moment to be felt.
    eventually("the move to be carried out", SOON, async || {
        let (out, err, code) = ann.kueue(&format!("{line} --restart"))?;
        ensure!(code == 0 || err.contains("cannot"), "{code}: {out}{err}");
        Ok(Seen::when(code == 0 && out.ends_with(" moved\n"), || format!("{code}: {out}{err}")))
    })
    .await?;
    two.wait(job, "to run on the other", SOON, runs).await?;
    let workloads = two.list(KUEUE, "Workload", Some(CASE)).await?;
    ensure!(workloads.iter().all(|one| one["spec"]["queueName"] == QUEUE), "{workloads:#?}");
    eventually("the first to be gone", SOON, async || {
        let left = one.get(job).await?;
        Ok(Seen::when(left.is_none(), || format!("{left:?}")))
    })
    .await?;
    let (out, err, code) = ann.kueue(&format!("{line} --restart"))?;
    ensure!(code == 0 && out.ends_with(" unchanged\n"), "{code}: {out}{err}");
    two.delete(job).await?;
    eventually("nothing to be left", SOON, async || {
        let left = two.list(KUEUE, "Workload", Some(CASE)).await?;
        Ok(Seen::when(left.is_empty(), || format!("{left:?}")))
    })
    .await
}

/// Lists of both clusters, while workloads come and go.
async fn follow_both(ann: &Ann<'_, '_>, one: &Cluster, two: &Cluster) -> Result<Follower> {
    let mut follower = ann.follows(&format!("list workload -n {CASE} --all-clusters -w"))?;
    for (cluster, worker) in [("people-one", one), ("people-two", two)] {
        // More than the queue has, so that it stays pending.
        worker.apply_object("fedq-test", job(CASE, "waits", QUEUE, &[(GPU, "9")], "1s")).await?;
        shows(&mut follower, cluster, "job-waits-", "PENDING").await?;
    }
    let (out, err, code) = ann.kueue(&format!("list workload -n {CASE} --all-clusters --status pending"))?;
    ensure!(code == 0 && clusters(&out) == ["people-one", "people-two"], "{code}: {out}{err}");
    one.delete(job_id(CASE, "waits")).await?;
    eventually("the workload of the deleted job to go", SOON, async || {
        let (out, err, _) = ann.kueue(&format!("list workload -n {CASE} --all-clusters"))?;
        Ok(Seen::when(clusters(&out) == ["people-two"], || format!("{out}{err}")))
    })
    .await?;
    Ok(follower)
}

/// A server that stops is named, and what the other one has is shown; what is followed goes on with the other.
async fn follow_through_a_stop(
    ann: &Ann<'_, '_>,
    follower: &mut Follower,
    one: &Cluster,
    two: &Cluster,
) -> Result<()> {
    two.plane.kill_api_server()?;
    let (out, err, code) = ann.kueue("list cq --all-clusters")?;
    ensure!(code == 1 && clusters(&out) == ["people-one"], "{code}: {out}{err}");
    ensure!(err.contains("cluster people-two: "), "{err}");
    one.apply_object("fedq-test", job(CASE, "later", QUEUE, &[(GPU, "9")], "1s")).await?;
    shows(follower, "people-one", "job-later-", "PENDING").await?;
    two.plane.restart_api_server().await?;
    eventually("both to be shown again", SOON, async || {
        let (out, err, code) = ann.kueue("list cq --all-clusters")?;
        let both = clusters(&out) == ["people-one", "people-two"];
        Ok(Seen::when(code == 0 && both, || format!("{code}: {out}{err}")))
    })
    .await?;
    two.apply_object("fedq-test", job(CASE, "back", QUEUE, &[(GPU, "9")], "1s")).await?;
    shows(follower, "people-two", "job-back-", "PENDING").await?;
    follower.interrupt();
    eventually("the command to end", SOON, async || {
        let ended = follower.ended()?;
        Ok(Seen::when(ended.is_some(), || "it runs".to_owned()))
    })
    .await?;
    Ok(())
}

/// Until a line tells this of a workload of that cluster.
async fn shows(follower: &mut Follower, cluster: &str, workload: &str, status: &str) -> Result<()> {
    eventually(&format!("{workload}… of {cluster} to be {status}"), SOON, async || {
        let tells =
            |line: &String| line.starts_with(cluster) && line.contains(workload) && line.contains(status);
        let heard = follower.heard();
        Ok(Seen::when(heard.iter().any(tells), || format!("{heard:#?}")))
    })
    .await
}
