//! A task as it will be run: every field here has an effect. It is kept as JSON until it is over, so that
//! a field may be added with a default, but never change its meaning.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{quantity::Request, upload::Upload, wrapped::Wrapped};
use fedq_values::ids::{ClusterName, ResourceName};

/// More pods than any gang of one job has; Kueue's podsets take no more with all their status.
pub const MAX_NODES: u32 = 1000;
/// Linux takes no longer argument to a program, so that a longer script or value could never start.
pub const MAX_ARGUMENT: usize = 128 << 10;

/// A task as it was handed in.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTask {
    pub spec: TaskSpec,
    pub secrets: Secrets,
}

/// One task: `num_nodes` equal pods that run the same script.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskSpec {
    /// As written. Names of objects are made from it in `names`.
    pub name: Option<String>,
    pub num_nodes: u32,
    pub workdir: Option<Workdir>,
    /// Files of whoever submitted it, put in place before all else.
    #[serde(default)]
    pub uploads: Vec<Upload>,
    pub setup: Option<String>,
    pub run: String,
    /// In the order written, which is the order in which values may refer to each other.
    pub envs: Vec<(String, String)>,
    /// Variables whose values are in [`Secrets`].
    pub secrets: BTreeSet<String>,
    pub volumes: Vec<Mount>,
    /// All nodes run on one machine of the cluster, which may mount a volume that is no other's.
    #[serde(default)]
    pub one_machine: bool,
    /// What the task may run on, in order; at least one.
    pub candidates: Vec<Candidate>,
    /// Whether the order of candidates is a wish (`ordered`) or left to the chooser (`any_of`).
    pub ordered: bool,
    pub queue: Option<String>,
    pub priority: Option<Priority>,
    /// For how long one cluster may keep it waiting before another is tried.
    pub spill_after: Option<Duration>,
    /// For how long one run of it may go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<Duration>,
    pub recovery: Recovery,
    pub limits: Limits,
    pub pod: PodExtras,
    /// Made as an AppWrapper, which its cluster's controller looks after.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_app_wrapper: bool,
    /// What of its file has no effect, or another than its writer may think.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Objects that it is instead of a script: an AppWrapper. Then `num_nodes` counts all their pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapped: Option<Wrapped>,
}

impl TaskSpec {
    /// Whether it takes a controller of AppWrappers to run it.
    pub fn is_app_wrapper(&self) -> bool {
        self.as_app_wrapper || self.wrapped.is_some()
    }

    /// Whether it is a Job by itself where no such controller is.
    pub fn may_unwrap(&self) -> bool {
        self.wrapped.as_ref().is_some_and(|wrapped| wrapped.unwrap)
    }
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Workdir {
    /// A folder of the image, of a volume, or of what the task brings along.
    Folder(String),
    /// Cloned by every node before `setup`.
    Git { url: String, reference: Option<String> },
}

/// Values nobody may read from fedq: kept in Secrets of Kubernetes only, never with the task.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Secrets(BTreeMap<String, String>);

impl Secrets {
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(values)
    }

    /// For the Secret that is written to the cluster, and nothing else.
    pub fn reveal(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, "<redacted>"))).finish()
    }
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    pub path: String,
    pub volume: String,
    pub sub_path: Option<String>,
    /// The task only reads there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// A claim that was there before, and is no volume: then `volume` is its cluster and name, which no volume is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<MountedClaim>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountedClaim {
    pub cluster: ClusterName,
    pub name: String,
    /// Whether pods on different nodes can mount it at once: its cluster is asked for that when the task is handed in.
    pub shared: bool,
}

/// What each node needs, in one of the forms the task may take.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// `infra: k8s/<cluster>`
    pub cluster: Option<ClusterName>,
    pub cpu: Option<Request>,
    pub memory: Option<Request>,
    pub accelerator: Option<Accelerator>,
    pub instance_type: Option<String>,
    /// `use_spot: true`: spot nodes only.
    pub spot: bool,
    /// `use_spot: false`: never on spot nodes. With neither of both it may be any.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_demand: bool,
    pub image: Option<String>,
    /// Of the pods.
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Accelerator {
    /// `H100`; `None` takes any.
    pub kind: Option<String>,
    pub count: u32,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Priority {
    /// A WorkloadPriorityClass.
    Class(String),
    /// The class with this value, or the next below, is looked for where the task runs.
    Value(i64),
}

/// What follows a failure of the program itself. Evictions and lost clusters are no failures.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    pub strategy: Strategy,
    pub max_restarts: u32,
    /// Exit codes after which it is restarted without counting.
    pub always_on: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// The cluster it was on counts as any other.
    #[default]
    Failover,
    /// Elsewhere first.
    NextCluster,
}

/// How much more than its requests a pod may use of cpu and memory.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Limits {
    /// No more, but of what is written with a `+`, of which more is as good: any.
    #[default]
    AsRequested,
    Unlimited,
    /// In hundredths, 100 or more, whatever is written with a `+`.
    Percent(u32),
}

/// What `config.kubernetes` may add to pods.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodExtras {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node_selector: BTreeMap<String, String>,
    /// In Kubernetes' JSON, checked.
    pub tolerations: Vec<Value>,
    pub image_pull_secrets: Vec<String>,
    pub runtime_class: Option<String>,
    pub grace_seconds: Option<u32>,
    /// Devices of each pod, beside the accelerators of its form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<ResourceName, u32>,
    /// Linux capabilities that its container has beyond the runtime's.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub capabilities: BTreeSet<String>,
    /// In the network of its node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub host_network: bool,
}
