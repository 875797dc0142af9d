//! Logs of a task's pods, read through an API server that dies in the middle.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fedq_k8s::client::{ClientLimits, ClusterClient, connect};
use fedq_k8s::follow::{Following, follow_table};
use fedq_k8s::kubeconfig::{self, Rules};
use fedq_k8s::list_watch::{Selector, Table, Timing};
use fedq_k8s::logs::{Event, LogConnections, LogPod, Options, Pod, Pods, Session, Status, open};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::cluster::{Cluster, id};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;

const SOON: Duration = Duration::from_mins(1);
const NODES: usize = 4;
const LINES: usize = 200;
const RANK: &str = "batch.kubernetes.io/job-completion-index";

/// Pods of kwok all log the same file, so each of the four nodes has to give every line of it once.
pub async fn four_nodes_are_one_log_through_a_restart_of_their_api_server(fleet: &Fleet) -> Result<()> {
    let case = "logs";
    let worker = fleet.worker2();
    worker.add_nodes(&[node(case, "a")]).await?;
    worker.apply(&task(case)).await?;
    let client = client(worker)?;
    let mut tasks = JoinSet::new();
    let pods = pods(case, &client, &mut tasks);
    let mut session = open(Options { follow: true, ..Options::default() }, pods.subscribe());
    let from_now = Options { follow: true, tail: Some(0), node: Some(2), ..Options::default() };
    let mut heard = Heard::default();
    heard.until(&mut session, "every node's first line", |heard| heard.lines() == NODES).await?;
    // The only line so far is an old one, so this session is silent until there is another.
    let mut late = open(from_now, pods.subscribe());

    for number in 0..LINES {
        write(worker, number)?;
        match number {
            // The rest of what is written by then is read by the next stream, or by the one that breaks.
            80 => worker.plane.kill_api_server()?,
            120 => worker.plane.restart_api_server().await?,
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    let all = NODES * (LINES + 1);
    heard.until(&mut session, "all lines of all nodes", |heard| heard.lines() == all).await?;
    let expected: Vec<String> =
        std::iter::once("hello from kwok".to_owned()).chain((0..LINES).map(text)).collect();
    for rank in 0..u32::try_from(NODES)? {
        ensure!(heard.of(rank) == expected, "node {rank}: {:#?}", heard.of(rank));
    }
    let broke = |event: &Event| matches!(event, Event::Status(_, Status::Broken { .. }));
    ensure!(heard.0.iter().any(broke), "a dead server is told of");
    let gap = |event: &Event| matches!(event, Event::Status(_, Status::Gap | Status::Dropped { .. }));
    ensure!(!heard.0.iter().any(gap), "nothing is missing: {:?}", heard.0.iter().find(|event| gap(event)));
    let mut since = Heard::default();
    let last = text(LINES - 1);
    since.until(&mut late, "the last line", |heard| heard.of(2).last() == Some(&last)).await?;
    // It began with whichever line was the next one then, and missed none from there on.
    ensure!(expected[1..].ends_with(&since.of(2)), "only what is new: {:#?}", since.of(2));

    worker.delete(id("batch/v1", "Job", "t").within(case)).await?;
    pods.send_modify(|pods| pods.complete = true);
    heard.until(&mut session, "the end of every log", |heard| heard.ended() == NODES).await?;
    let end = tokio::time::timeout(SOON, session.next()).await.context("the session's end")?;
    ensure!(end.is_none(), "after the end: {end:?}");
    Ok(())
}

fn task(case: &str) -> String {
    format!(
        r"
apiVersion: v1
kind: Namespace
metadata: {{name: {case}}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: t, namespace: {case}}}
spec:
  completionMode: Indexed
  completions: {NODES}
  parallelism: {NODES}
  template:
    metadata:
      labels: {{task: t}}
      annotations:
        pod-complete.stage.kwok.x-k8s.io/delay: 10m
        pod-complete.stage.kwok.x-k8s.io/jitter-delay: 10m
    spec:
      restartPolicy: Never
      containers:
      - {{name: main, image: example.invalid/train}}
"
    )
}

fn client(worker: &Cluster) -> Result<ClusterClient> {
    let rules = Rules { allow_loopback: true, ..Rules::default() };
    let checked = kubeconfig::check(worker.kubeconfig.as_bytes(), None, &rules)?;
    Ok(connect(&checked, &ClientLimits::default())?)
}

/// The task's pods as fedq follows them.
fn pods(case: &str, client: &ClusterClient, tasks: &mut JoinSet<()>) -> watch::Sender<Pods> {
    let table: Table<LogPod> = Table::new();
    let following = Following::new(client.clone(), Timing::default(), Vec::new());
    let selector = Selector { labels: Some("task=t".to_owned()), fields: None };
    let path = format!("/api/v1/namespaces/{case}/pods");
    follow_table(&following, &table, (path, selector, CancellationToken::new()), tasks);
    let (sender, _) = watch::channel(Pods::default());
    let (told, connections) = (sender.clone(), LogConnections::new(client.clone()));
    let mut changed = table.changed();
    tasks.spawn(async move {
        while changed.changed().await.is_ok() {
            let pods = table.all().into_iter().filter_map(|pod| {
                Some(Pod {
                    node: pod.metadata.labels.get(RANK)?.parse().ok()?,
                    cluster: "logs-worker".parse().ok()?,
                    connections: connections.clone(),
                    namespace: pod.metadata.namespace.clone()?,
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                    containers: pod.containers(),
                })
            });
            told.send_modify(|told| told.pods = pods.collect());
        }
    });
    sender
}

pub fn text(number: usize) -> String {
    format!("line {number}")
}

/// Three lines at a time in ten milliseconds, as a container of some eloquence.
pub fn write(worker: &Cluster, number: usize) -> Result<()> {
    let (seconds, millis) = (number / 60, number / 3 % 20 * 50);
    let line = format!("2026-06-01T00:00:{seconds:02}.{millis:03}Z stdout F {}\n", text(number));
    let mut file = std::fs::OpenOptions::new().append(true).open(worker.plane.pod_log_path())?;
    Ok(file.write_all(line.as_bytes())?)
}

#[derive(Default)]
struct Heard(Vec<Event>);

impl Heard {
    async fn until(
        &mut self,
        session: &mut Session,
        what: &str,
        enough: impl Fn(&Self) -> bool,
    ) -> Result<()> {
        while !enough(self) {
            let event = tokio::time::timeout(SOON, session.next()).await;
            let last = || format!("{what}; {} lines so far, then {:?}", self.lines(), self.0.last());
            self.0.push(event.with_context(last)?.with_context(last)?);
        }
        Ok(())
    }

    fn lines(&self) -> usize {
        self.0.iter().filter(|event| matches!(event, Event::Line(_))).count()
    }

    fn ended(&self) -> usize {
        self.0.iter().filter(|event| matches!(event, Event::Status(_, Status::Ended))).count()
    }

    fn of(&self, rank: u32) -> Vec<String> {
        let lines = self.0.iter().filter_map(|event| match event {
            Event::Line(record) if record.origin.node == rank => Some(&record.line),
            Event::Line(_) | Event::Status(..) => None,
        });
        lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }
}
