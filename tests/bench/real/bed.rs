//! A hub and two workers with quota in place, and a fedqd that keeps it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::support::audit::{Mark, Request};
use crate::support::cluster::{Cluster, id};
use crate::support::daemon::{Daemon, Home};
use crate::support::fleet::Fleet;
use crate::support::kueue::install_crds;
use crate::support::nodes::{CASE_LABEL, node};
use crate::support::process::free_ports;
use crate::support::tools::Tools;

pub const QUEUES: usize = 4;
pub const NODES: u32 = 8;
/// fedqd's user on every server.
pub const USER: &str = "fedqd";
const CASE: &str = "bench";
const FLAVOR: &str = "bench";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";
const SETTLED_WITHIN: Duration = Duration::from_mins(2);

/// A resource that claims ask more of than there is, so that every change of a node moves quota.
#[derive(Clone, Copy)]
pub struct Resource {
    pub name: &'static str,
    /// What a node has, in `unit`s; so chosen that no sum is written in a larger unit.
    pub a_node: u32,
    pub unit: &'static str,
    /// How many queues share it.
    pub queues: usize,
}

/// Only the first queue is given GPUs.
pub const GPU: Resource = Resource { name: "nvidia.com/gpu", a_node: 8, unit: "", queues: 1 };
pub const MEMORY: Resource = Resource { name: "memory", a_node: 192, unit: "Gi", queues: QUEUES };

pub struct Bed {
    fleet: Fleet,
    pub daemon: Daemon,
    /// What node `changing` has of each resource now.
    changing: Mutex<(u32, u32)>,
}

impl Bed {
    pub async fn start() -> Result<Self> {
        let tools = Arc::new(tokio::task::spawn_blocking(Tools::find_or_build).await??);
        let fleet = Fleet::start(&tools).await.context("the real clusters did not come up")?;
        prepare(&fleet).await?;
        let home = Home::new(&fleet, CASE)?;
        let kubeconfig = fleet.hub.kubeconfig_for(USER, &["system:masters"])?;
        let config = config(&home, &home.file("hub.kubeconfig", &kubeconfig)?.display().to_string())?;
        let daemon = home.start("http", &config).await?;
        let bed = Self { fleet, daemon, changing: Mutex::new((GPU.a_node, MEMORY.a_node)) };
        bed.settled(GPU, GPU.a_node).await?;
        bed.settled(MEMORY, MEMORY.a_node).await?;
        // The claims' status and what else follows from the first plan.
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(bed)
    }

    pub fn hub(&self) -> &Cluster {
        &self.fleet.hub
    }

    /// The worker whose node changes.
    pub fn worker(&self) -> &Cluster {
        self.fleet.worker1()
    }

    pub fn stop(&self) {
        self.fleet.stop();
    }

    /// What the changing node has.
    pub fn now(&self, resource: Resource) -> u32 {
        self.changing.lock().map_or(0, |now| if resource.name == GPU.name { now.0 } else { now.1 })
    }

    /// Another amount than now, so that each change is one.
    pub fn other(&self, resource: Resource) -> u32 {
        let now = self.now(resource);
        if now == resource.a_node { resource.a_node / 2 } else { resource.a_node }
    }

    /// Gives the changing node this much, with a heartbeat: a patch puts off the one kwok would send, and
    /// a node without any counts as lost after a while.
    pub async fn change(&self, resource: Resource, amount: u32) -> Result<()> {
        let amounts = json!({resource.name: format!("{amount}{}", resource.unit)});
        let beat = json!({"type": "Ready", "lastHeartbeatTime": Timestamp::try_from(SystemTime::now())?});
        let status = json!({"capacity": amounts, "allocatable": amounts, "conditions": [beat]});
        let nodes: Api<Node> = Api::all(self.worker().client.clone());
        let patch = Patch::Strategic(json!({"status": status}));
        nodes.patch_status(&format!("{CASE}-changing"), &PatchParams::default(), &patch).await?;
        if let Ok(mut now) = self.changing.lock() {
            *(if resource.name == GPU.name { &mut now.0 } else { &mut now.1 }) = amount;
        }
        Ok(())
    }

    /// Returns when the queues of worker and hub say what the nodes add up to.
    pub async fn settled(&self, resource: Resource, changing: u32) -> Result<()> {
        let (on_worker, on_hub) = Self::shares(resource, changing)?;
        for (cluster, wanted) in [(self.worker(), on_worker), (self.hub(), on_hub)] {
            for queue in 0..resource.queues {
                let name = queue_name(queue);
                let queue = id(KUEUE, "ClusterQueue", &name);
                cluster
                    .wait(queue, &format!("{wanted} of {}", resource.name), SETTLED_WITHIN, |queue| {
                        nominal(queue, resource.name) == Some(&wanted)
                    })
                    .await?;
            }
        }
        Ok(())
    }

    /// What each queue is to have on the worker and on the hub.
    pub fn shares(resource: Resource, changing: u32) -> Result<(String, String)> {
        let all = NODES * resource.a_node;
        let on_worker = all - resource.a_node + changing;
        let queues = u32::try_from(resource.queues)?;
        let share = |sum: u32| format!("{}{}", sum / queues, resource.unit);
        Ok((share(on_worker), share(on_worker + all)))
    }

    pub fn marks(&self) -> Result<Vec<Mark>> {
        self.fleet.clusters().map(|cluster| cluster.mark()).collect()
    }

    /// What fedqd wrote anywhere since the marks, with the cluster's name.
    pub async fn writes_since(&self, marks: &[Mark]) -> Result<Vec<(String, Request)>> {
        let mut writes = Vec::new();
        for (cluster, mark) in self.fleet.clusters().zip(marks) {
            let here = cluster.writes_since(*mark, USER).await?;
            writes.extend(here.into_iter().map(|request| (cluster.name.clone(), request)));
        }
        Ok(writes)
    }
}

pub fn queue_name(number: usize) -> String {
    format!("{CASE}-{number}")
}

pub fn nominal<'a>(queue: &'a Value, resource: &str) -> Option<&'a str> {
    let resources = queue.pointer("/spec/resourceGroups/0/flavors/0/resources")?.as_array()?;
    resources.iter().find(|quota| quota["name"] == resource)?["nominalQuota"].as_str()
}

async fn prepare(fleet: &Fleet) -> Result<()> {
    let flavor = json!({
        "apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR},
        "spec": {"nodeLabels": {CASE_LABEL: CASE}},
    });
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/crds/clusterresourceclaims.yaml");
    install_crds(&fleet.hub, &std::fs::read_to_string(root)?).await?;
    fleet.hub.apply("{apiVersion: v1, kind: Namespace, metadata: {name: fedq-system}}").await?;
    fleet.hub.apply_object("fedq-test", flavor.clone()).await?;
    for number in 0..QUEUES {
        fleet.hub.apply_object("fedq-test", hub_queue(number)).await?;
    }
    for worker in &fleet.workers {
        worker.apply_object("fedq-test", flavor.clone()).await?;
        let names = (1..NODES).map(|number| number.to_string()).chain(["changing".to_owned()]);
        let memory = format!("{}{}", MEMORY.a_node, MEMORY.unit);
        let whole = |name: String| node(CASE, &name).gpus(GPU.a_node).allocatable(MEMORY.name, &memory);
        worker.add_nodes(&names.map(whole).collect::<Vec<_>>()).await?;
        let kubeconfig = worker.kubeconfig_for(USER, &["system:masters"])?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": format!("fedq-cluster-{}", worker.name), "namespace": "fedq-system",
                "labels": {"fedq.dev/cluster": worker.name},
            },
            "stringData": {"kubeconfig": kubeconfig},
        });
        fleet.hub.apply_object("fedq-test", secret).await?;
        fleet.hub.apply_object("fedq-test", claim(&worker.name)).await?;
    }
    Ok(())
}

fn hub_queue(number: usize) -> Value {
    let zero = |name: &str| json!({"name": name, "nominalQuota": "0"});
    json!({
        "apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": queue_name(number)},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [{
                "coveredResources": ["cpu", MEMORY.name, GPU.name],
                "flavors": [{"name": FLAVOR, "resources": [zero("cpu"), zero(MEMORY.name), zero(GPU.name)]}],
            }],
        },
    })
}

/// Every queue asks for as much memory as all nodes have, the first for more GPUs than there are.
fn claim(cluster: &str) -> Value {
    let assignment = |number: usize| {
        let mut resources =
            json!({"cpu": "8", MEMORY.name: format!("{}{}", NODES * MEMORY.a_node, MEMORY.unit)});
        if number < GPU.queues {
            resources["gpu"] = json!("1000");
        }
        json!({"clusterQueueName": queue_name(number), "flavor": FLAVOR, "resources": resources})
    };
    json!({
        "apiVersion": "galaxy.kubestellar.io/v1alpha1", "kind": "ClusterResourceClaim",
        "metadata": {"name": format!("{cluster}-resource-claim")},
        "spec": {
            "clusterName": cluster,
            "nominalResources": {},
            "resourceAssignments": (0..QUEUES).map(assignment).collect::<Vec<_>>(),
        },
    })
}

fn config(home: &Home, hub: &str) -> Result<String> {
    let [api] = free_ports()?;
    let config = json!({
        "hub": {"kubeconfig": hub},
        "store": {"path": home.data_dir.join("fedq.db")},
        "api": {"address": format!("127.0.0.1:{api}")},
        "webhook": {"address": "disabled"},
        "metrics": {"address": format!("127.0.0.1:{}", home.port)},
        "clusters": {"allowLoopback": true},
    });
    Ok(serde_saphyr::to_string(&config)?)
}
