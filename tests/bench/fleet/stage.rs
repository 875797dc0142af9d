//! A fleet and the daemon that keeps its quota.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fedq_sim::faults::Plan;
use fedq_sim::fleet::{Fleet, FleetOptions, Totals};
use fedq_sim::nodes::Template;
use serde_json::json;
use tokio::time::Instant;

use super::args::Args;
use super::daemon::{Daemon, Home};
use super::figures::count;
use super::peers::{Peer, Running};
use super::process::Process;

/// As many as divide the clusters of every size; each has its own window for merging writes.
pub const QUEUES: usize = 10;
pub const WITHIN: Duration = Duration::from_mins(5);
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Stage {
    pub fleet: Fleet,
    pub home: Home,
    /// Of each cluster.
    pub nodes: usize,
    daemon: Option<Daemon>,
}

#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub clusters: usize,
    pub nodes: usize,
}

impl Stage {
    /// Clusters that are joined and claimed, and no daemon yet.
    pub async fn new(args: &Args, size: Size, template: &Arc<Template>) -> Result<Self> {
        let Size { clusters, nodes } = size;
        let template = Arc::clone(template);
        let fleet = Fleet::start(&FleetOptions { clusters, nodes, template, queues: QUEUES }).await?;
        let home = Home::new(args, &fleet.hub.kubeconfig("fedqd", &["system:masters"]))?;
        for number in 0..clusters {
            fleet.join(number).await?;
            fleet.claim(number).await?;
        }
        Ok(Self { fleet, home, nodes, daemon: None })
    }

    pub fn start(&mut self) -> Result<()> {
        self.daemon = Some(self.home.start()?);
        Ok(())
    }

    /// Lets a group read all of Kueue's on each cluster, which gets as many queues as the hub has.
    pub async fn let_people_ask(&self, group: &str) -> Result<()> {
        const RBAC: &str = "rbac.authorization.k8s.io/v1";
        let metadata = json!({"name": group});
        let rules =
            json!([{"apiGroups": ["kueue.x-k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]}]);
        let role = json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        let binding = json!({
            "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": group},
            "subjects": [{"kind": "Group", "name": group}],
        });
        for worker in &self.fleet.workers {
            let queues = worker.list("ClusterQueue").len();
            let more = (queues..QUEUES).map(|number| {
                json!({
                    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
                    "metadata": {"name": format!("of-the-cluster-{number}")}, "spec": {"cohortName": "own"},
                })
            });
            for object in [role.clone(), binding.clone()].into_iter().chain(more) {
                let put = worker.put(object).await;
                put.map_err(|refusal| anyhow!("{}: {}", worker.state.name, refusal.message))?;
            }
        }
        Ok(())
    }

    pub async fn stop(&mut self) -> Result<()> {
        match self.daemon.take() {
            Some(daemon) => daemon.stop().await.map(drop),
            None => Ok(()),
        }
    }

    /// Another client instead of the daemon, once it knows all nodes.
    pub async fn peer(&mut self, peer: Peer) -> Result<Running> {
        // What was open to somebody else is noticed as closed.
        self.until("nobody is connected", |stage| stage.fleet.totals().connections_open == 0).await?;
        tokio::task::block_in_place(|| peer.start(&self.fleet))
    }

    pub fn daemon(&self) -> Result<&Daemon> {
        self.daemon.as_ref().context("the daemon was not started")
    }

    /// Gives the clusters from that number on these faults, and no others.
    pub fn spoil(&self, from: usize, plan: &Plan) {
        for worker in &self.fleet.workers[from..] {
            worker.set_faults(plan.clone());
        }
    }

    pub fn process(&self) -> Result<Process> {
        Ok(self.daemon()?.process)
    }

    /// Until every queue gives out what its nodes have.
    pub async fn settled(&mut self) -> Result<Duration> {
        self.until("all quota is in place", |stage| stage.fleet.is_settled()).await
    }

    /// Until every cluster's nodes are watched, after so many requests for it more than before: one that begins
    /// at a version that expired is answered with an error, and is made again after a list.
    pub async fn watched_since(&mut self, before: &[u64], requests: u64) -> Result<Duration> {
        let before = before.to_vec();
        self.until("all nodes are watched", |stage| {
            stage.node_watches().iter().zip(&before).all(|(now, then)| then + requests <= *now)
        })
        .await
    }

    /// How often each cluster was asked to have its nodes watched.
    pub fn node_watches(&self) -> Vec<u64> {
        let watches = |requests: std::collections::BTreeMap<(&str, String), u64>| {
            requests.get(&("watch", "nodes".to_owned())).copied().unwrap_or_default()
        };
        self.fleet.workers.iter().map(|worker| watches(worker.state.counts.requests())).collect()
    }

    pub async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> Result<Duration> {
        let began = Instant::now();
        while !holds(self) {
            if let Some(daemon) = &mut self.daemon {
                let home = &self.home;
                daemon.ensure_alive(|| home.log())?;
            }
            if WITHIN < began.elapsed() {
                bail!("waited {WITHIN:?} in vain until {what}; fedqd says:\n{}", self.home.log());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(began.elapsed())
    }

    /// Until the daemon says of every cluster that it is well: what was broken may be tried again only
    /// much later, which is work that belongs to what broke it.
    pub async fn connected(&self) -> Result<()> {
        let began = Instant::now();
        let all = count(self.fleet.workers.len());
        while self.daemon()?.metric("fedq_cluster_connection", "state=\"Ready\"").await? < all {
            ensure!(began.elapsed() < WITHIN, "some clusters stay lost; fedqd says:\n{}", self.home.log());
            // Thousands of lines, which fedqd has to write.
            tokio::time::sleep(10 * LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Until nothing is written for a while.
    pub async fn quiet(&mut self) -> Result<()> {
        let mut before = self.writes();
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            let now = self.writes();
            if now == before {
                return Ok(());
            }
            before = now;
        }
    }

    fn writes(&self) -> u64 {
        self.fleet.totals().writes + self.fleet.hub_totals().writes
    }

    /// Of the workers and of the hub.
    pub fn totals(&self) -> (Totals, Totals) {
        (self.fleet.totals(), self.fleet.hub_totals())
    }
}
