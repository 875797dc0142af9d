//! Up to a thousand clusters in this process: a hub with queues, and workers whose nodes are herds, each at
//! an address of its own, with its own authority and credentials.

mod beating;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::{Cluster, HerdOptions, Options, StartError};
use super::nodes::{Change, Step, Template};
use super::status::Refusal;
use fedq_values::quantity::Quantity;

pub use beating::Beating;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
/// The namespace where fedq looks for the Secrets of joined clusters.
const NAMESPACE: &str = "fedq-system";
pub const FLAVOR: &str = "h100";
pub const GPU: &str = "nvidia.com/gpu";
/// A thousand clusters that look around twice a second would be a load of their own, and no Job runs in
/// them that would end by the clock.
const PERIOD: Duration = Duration::from_mins(1);
/// Addresses of one last byte: 127.77.0.1, 127.77.0.2, and so on.
const A_BYTE: usize = 250;

#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub clusters: usize,
    /// Of each cluster.
    pub nodes: usize,
    pub template: Arc<Template>,
    /// Of the hub. Cluster i gives all its GPUs to queue i, and again from the first.
    pub queues: usize,
}

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error("cannot start cluster {number} of the fleet")]
    Start { number: usize, source: StartError },
    #[error("cannot start the hub")]
    Hub(#[source] StartError),
    #[error("the hub does not take an object: {}", .0.message)]
    Furnish(Box<Refusal>),
    #[error("a cluster's start was broken off")]
    Broken(#[from] tokio::task::JoinError),
}

impl From<Refusal> for FleetError {
    fn from(refusal: Refusal) -> Self {
        Self::Furnish(Box::new(refusal))
    }
}

pub struct Fleet {
    pub hub: Cluster,
    pub workers: Vec<Arc<Cluster>>,
    queues: usize,
}

/// What clusters were asked for and sent, by verb and resource.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Totals {
    pub requests: BTreeMap<(&'static str, String), u64>,
    pub bytes: BTreeMap<(&'static str, String), u64>,
    pub writes: u64,
    pub connections_open: u64,
    pub connections_ever: u64,
}

impl Fleet {
    pub async fn start(options: &FleetOptions) -> Result<Self, FleetError> {
        let hub = Options { period: PERIOD, ..Options::named("hub") };
        let hub = Cluster::start(hub).await.map_err(FleetError::Hub)?;
        for object in hub_objects(options.queues) {
            hub.put(object).await?;
        }
        let mut starting = JoinSet::new();
        for number in 0..options.clusters {
            let worker = worker(number, options);
            starting.spawn(async move { (number, Cluster::start(worker).await) });
        }
        let mut workers = BTreeMap::new();
        while let Some(started) = starting.join_next().await {
            let (number, started) = started?;
            let worker = started.map_err(|source| FleetError::Start { number, source })?;
            workers.insert(number, Arc::new(worker));
        }
        Ok(Self { hub, workers: workers.into_values().collect(), queues: options.queues })
    }

    /// Joins a cluster as an administrator does with kubectl alone.
    pub async fn join(&self, number: usize) -> Result<(), FleetError> {
        let worker = &self.workers[number];
        let name = &worker.state.name;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"fedq.dev/cluster": name}},
            "stringData": {"kubeconfig": worker.kubeconfig("fedq", &["system:masters"])},
        });
        Ok(self.hub.put(secret).await?)
    }

    /// Claims more GPUs of a cluster for its queue than it has, so that every change of its nodes moves quota.
    pub async fn claim(&self, number: usize) -> Result<(), FleetError> {
        let name = &self.workers[number].state.name;
        let assignment = json!({
            "clusterQueueName": queue(number % self.queues), "flavor": FLAVOR, "resources": {"gpu": "1000000"},
        });
        let claim = json!({
            "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
            "metadata": {"name": format!("{name}-resource-claim")},
            "spec": {"clusterName": name, "nominalResources": {}, "resourceAssignments": [assignment]},
        });
        Ok(self.hub.put(claim).await?)
    }

    /// Heartbeats of all nodes, `rate` times as often as kubelets', until the value is dropped.
    pub fn beat(&self, rate: f64) -> Beating {
        Beating::start(&self.workers, rate)
    }

    /// Makes changes happen to nodes of one cluster, now and in this order.
    pub fn change(&self, number: usize, changes: impl IntoIterator<Item = (usize, Change)>) -> usize {
        let state = &self.workers[number].state;
        state.herd().map_or(0, |herd| herd.apply(&state.store, changes, state.now()))
    }

    /// Makes changes happen as time goes on.
    pub async fn play(&self, number: usize, steps: Vec<Step>) {
        let began = tokio::time::Instant::now();
        for (after, node, change) in steps {
            tokio::time::sleep_until(began + after).await;
            self.change(number, [(node, change)]);
        }
    }

    /// The GPUs of a cluster's usable nodes.
    pub fn gpus(&self, number: usize) -> u64 {
        self.workers[number].state.herd().map_or(0, |herd| herd.with(super::nodes::Herd::usable_gpus))
    }

    /// What a worker's queue gives out, if it is there.
    pub fn worker_quota(&self, number: usize) -> Option<u64> {
        quota(&self.workers[number], &queue(number % self.queues))
    }

    pub fn hub_quota(&self, queue_number: usize) -> Option<u64> {
        quota(&self.hub, &queue(queue_number))
    }

    /// Whether every queue of the fleet gives out what its nodes have.
    pub fn is_settled(&self) -> bool {
        let mut sums = vec![0; self.queues];
        for number in 0..self.workers.len() {
            let gpus = self.gpus(number);
            if self.worker_quota(number) != Some(gpus) {
                return false;
            }
            sums[number % self.queues] += gpus;
        }
        (0..).zip(sums).all(|(number, sum)| self.hub_quota(number) == Some(sum))
    }

    /// Of all workers together.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for worker in &self.workers {
            totals.add(worker);
        }
        totals
    }

    pub fn hub_totals(&self) -> Totals {
        let mut totals = Totals::default();
        totals.add(&self.hub);
        totals
    }
}

impl Totals {
    fn add(&mut self, cluster: &Cluster) {
        let counts = &cluster.state.counts;
        for (key, count) in counts.requests() {
            *self.requests.entry(key).or_default() += count;
        }
        for (key, count) in counts.bytes_sent() {
            *self.bytes.entry(key).or_default() += count;
        }
        let (open, ever) = counts.connections();
        self.writes += counts.writes();
        self.connections_open += open;
        self.connections_ever += ever;
    }

    /// What came since an earlier count.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: &BTreeMap<(&'static str, String), u64>, then: &BTreeMap<_, u64>| {
            let left = |(key, count): (&(&'static str, String), &u64)| {
                (key.clone(), count - then.get(key).copied().unwrap_or_default())
            };
            now.iter().map(left).filter(|(_, count)| 0 < *count).collect()
        };
        Self {
            requests: less(&self.requests, &earlier.requests),
            bytes: less(&self.bytes, &earlier.bytes),
            writes: self.writes - earlier.writes,
            connections_open: self.connections_open,
            connections_ever: self.connections_ever - earlier.connections_ever,
        }
    }

    pub fn all_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    pub fn requests_of(&self, verb: &'static str, resource: &str) -> u64 {
        self.requests.get(&(verb, resource.to_owned())).copied().unwrap_or_default()
    }

    pub fn bytes_of(&self, verb: &'static str, resource: &str) -> u64 {
        self.bytes.get(&(verb, resource.to_owned())).copied().unwrap_or_default()
    }
}

pub fn queue(number: usize) -> String {
    format!("queue-{number:03}")
}

fn worker(number: usize, options: &FleetOptions) -> Options {
    let byte = |value: usize| u8::try_from(value).unwrap_or(u8::MAX);
    let address = Ipv4Addr::new(127, 77, byte(number / A_BYTE), byte(1 + number % A_BYTE));
    let herd = HerdOptions {
        template: Arc::clone(&options.template),
        number: u16::try_from(number).unwrap_or(u16::MAX),
        nodes: options.nodes,
    };
    Options {
        address: IpAddr::V4(address),
        period: PERIOD,
        herd: Some(herd),
        ..Options::named(&format!("worker-{number:04}"))
    }
}

fn hub_objects(queues: usize) -> Vec<Value> {
    let flavor = json!({
        "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR},
        "spec": {"nodeLabels": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}},
    });
    let queue = |number| {
        json!({
            "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": queue(number)},
            "spec": {"namespaceSelector": {}, "resourceGroups": [{
                "coveredResources": [GPU],
                "flavors": [{"name": FLAVOR, "resources": [{"name": GPU, "nominalQuota": "0"}]}],
            }]},
        })
    };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    [namespace, flavor].into_iter().chain((0..queues).map(queue)).collect()
}

fn quota(cluster: &Cluster, queue: &str) -> Option<u64> {
    let queue = cluster.get("ClusterQueue", "", queue)?;
    let resources = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"].as_array()?;
    let gpus = resources.iter().find(|resource| resource["name"] == GPU)?["nominalQuota"].clone();
    // Not always digits: Kueue and fedq write 8000 as 8k.
    let units = Quantity::parse(gpus.as_str()?).ok()?.nanos() / 1_000_000_000;
    u64::try_from(units).ok()
}

#[cfg(test)]
mod tests;
