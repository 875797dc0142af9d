//! Tasks as people run them: handed in, followed through a dead API server, stopped.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::logs::{text, write};
use super::stage::{Assign, GPU, PATIENT, SOON, Stage, ground, holds, queue};
use crate::follower::Follower;
use crate::support::cluster::Cluster;
use crate::support::daemon::{Ran, cli, start_cli};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;
use crate::support::wait::{Seen, eventually};

const CASE: &str = "story";
const QUEUE: &str = "story-queue";
const NODES: usize = 4;
const LINES: usize = 120;
const ROLES: &str = include_str!("../../../deploy/hub/roles.yaml");

/// Gives someone the right to run tasks in a tenant's namespace, and no other.
pub async fn may_run_tasks(hub: &Cluster, namespace: &str, subject: Value) -> Result<()> {
    let role = ROLES.split("---\n").find(|role| role.contains("name: fedq-task-user"));
    hub.apply(role.context("the role of people who run tasks")?).await?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "runs-tasks", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fedq-task-user"},
        "subjects": [subject],
    });
    hub.apply_object("fedq-test", binding).await?;
    Ok(())
}

/// Someone who may do that.
struct Person<'s, 'f> {
    stage: &'s Stage<'f>,
    token: String,
}

impl<'s, 'f> Person<'s, 'f> {
    async fn new(stage: &'s Stage<'f>) -> Result<Self> {
        let hub = stage.hub();
        hub.apply(&format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: ann, namespace: {CASE}}}}}"
        ))
        .await?;
        may_run_tasks(hub, CASE, json!({"kind": "ServiceAccount", "name": "ann", "namespace": CASE})).await?;
        let token = hub.kubectl(&["create", "token", "ann", "--namespace", CASE, "--audience", "fedq"])?;
        Ok(Self { stage, token: token.trim().to_owned() })
    }

    fn env(&self) -> [(&'static str, String); 2] {
        [("FEDQ_SERVER", self.stage.server.clone()), ("FEDQ_TOKEN", self.token.clone())]
    }

    fn runs(&self, args: &[&str]) -> Result<Ran> {
        let env = self.env();
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        cli(self.stage.fleet, CASE, &env, args)
    }

    fn follows(&self, args: &[&str]) -> Result<Follower> {
        let env = self.env();
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Ok(Follower::new(start_cli(self.stage.fleet, CASE, &env, args, Stdio::piped())?))
    }
}

async fn until(follower: &mut Follower, what: &str, enough: impl Fn(&[String]) -> bool) -> Result<()> {
    eventually(what, SOON, async || {
        let heard = follower.heard();
        Ok(Seen::when(enough(heard), || format!("{} lines: {:?}", heard.len(), heard.last())))
    })
    .await
}

async fn code(mut follower: Follower) -> Result<Option<i32>> {
    eventually("the command to end", SOON, async || {
        let ended = follower.ended()?;
        Ok(ended.map_or(Seen::Still("it runs".to_owned()), |status| Seen::Done(status.code())))
    })
    .await
}

pub async fn four_nodes_are_submitted_followed_through_a_restart_and_stopped(fleet: &Fleet) -> Result<()> {
    // JobSets have a case of their own.
    let tenants =
        format!("tasks: {{gang: indexed, tenants: [{{namespace: {CASE}, users: ['*'], queue: {QUEUE}}}]}}");
    let name = "four_nodes_are_submitted_followed_through_a_restart_and_stopped";
    let stage = Stage::set_with(fleet, name, CASE, PATIENT, &tenants).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(CASE, "a").gpus(8)]).await?;
    hub.apply(&ground(CASE)).await?;
    hub.apply(&queue(CASE, QUEUE, &[(GPU, "0")], "")).await?;
    stage.join("story-one", worker).await?;
    let give = [Assign { queue: QUEUE, flavor: CASE, resources: &[("gpu", "8")] }];
    stage.assign("story-one", &give).await?;
    holds(worker, QUEUE, CASE, &[(GPU, "8")]).await?;
    let person = Person::new(&stage).await?;
    // kwok uses up whatever time its pods are given to end.
    let task = "name: train\nnum_nodes: 4\nresources: {accelerators: 1}\nrun: x\nconfig:\n  kubernetes:\n    \
                pod_config: {spec: {terminationGracePeriodSeconds: 1}}\n    custom_metadata:\n      annotations:\n        \
                pod-complete.stage.kwok.x-k8s.io/delay: 10m\n        pod-complete.stage.kwok.x-k8s.io/jitter-delay: 10m\n";
    let file = stage.daemon.home().file("task.yaml", task)?.display().to_string();
    eventually("the cluster to be one that fits", SOON, async || {
        let ran = person.runs(&["task", "submit", &file, "--dry-run", "-o", "json"])?;
        let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        Ok(Seen::when(told["clusters"][0]["verdict"] == "fits", || format!("{ran:?}")))
    })
    .await?;
    ensure!(person.runs(&["task", "list", "--all-users"])?.code == 1, "ann may not see everybody's");

    let mut follower = person.follows(&["task", "submit", &file])?;
    until(&mut follower, "the id", |heard| !heard.is_empty()).await?;
    let id = follower.id().context("the id")?;
    let lines = |heard: &[String]| heard.iter().filter(|line| line.contains(" | ")).count();
    until(&mut follower, "every node's first line", |heard| lines(heard) == NODES).await?;
    for number in 0..LINES {
        write(worker, number)?;
        match number {
            40 => worker.plane.kill_api_server()?,
            80 => worker.plane.restart_api_server().await?,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    until(&mut follower, "all lines of all nodes", |heard| NODES * (LINES + 1) <= lines(heard)).await?;
    let expected: Vec<String> =
        std::iter::once("hello from kwok".to_owned()).chain((0..LINES).map(text)).collect();
    for rank in 0..NODES {
        ensure!(follower.of_node(rank) == expected, "node {rank}: {:#?}", follower.of_node(rank));
    }

    let stopped = person.runs(&["task", "stop", &id])?;
    ensure!(stopped.code == 0 && stopped.stdout == format!("task {id} stopped\n"), "{stopped:?}");
    let told = code(follower).await?;
    ensure!(told == Some(103), "the one who follows is told that it was stopped, not {told:?}");
    let jobs = worker.list("batch/v1", "Job", Some(CASE)).await?;
    ensure!(jobs.is_empty(), "the stop was confirmed: {jobs:?}");
    let status = person.runs(&["task", "status", &id, "-o", "json"])?.success()?;
    let status: Value = serde_json::from_str(&status)?;
    ensure!(status["phase"] == "stopped", "its history is kept: {status}");
    Ok(())
}
