//! What is known of live tasks and of volumes at this moment, beside what is stored of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{fleet::Fleet, names::TaskId, phase::State, record::NodeCounts, render::Gang};
use fedq_values::ids::ClusterName;

/// Published whole; what did not change is shared with the one before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskViews {
    /// Those that are not over.
    pub tasks: BTreeMap<TaskId, Arc<TaskView>>,
    /// What the next task would be chosen by.
    pub fleet: Arc<Fleet>,
    /// Ids on objects of some cluster, of which the store knows no task.
    pub orphans: BTreeSet<TaskId>,
    /// Nothing was looked at yet.
    pub starting: bool,
}

impl TaskViews {
    pub fn starting() -> Self {
        Self { starting: true, ..Self::default() }
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TaskView {
    /// Of which the rest tells. The store may be one move ahead.
    pub state: State,
    /// Where its pods are or will be: where MultiKueue put it, if that dispatches.
    pub cluster: Option<ClusterName>,
    /// The LocalQueue it waits or waited in.
    pub queue: Option<String>,
    pub gang: Option<Gang>,
    /// Kueue's Workload.
    pub workload: Option<String>,
    /// By rank; empty until there are objects.
    pub nodes: Vec<NodeView>,
    /// Why it does not run yet; `None` once it does.
    pub pending_reason: Option<String>,
}

/// One node of a task.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct NodeView {
    pub phase: NodePhase,
    /// In Kubernetes' word: `ImagePullBackOff`, `Unschedulable`, `OOMKilled`.
    pub reason: Option<String>,
    pub pod: Option<String>,
    pub exit_code: Option<i32>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NodePhase {
    /// There is no pod.
    #[default]
    Waiting,
    /// A pod that does not run yet.
    Starting,
    Running,
    Succeeded,
    Failed,
}

impl TaskView {
    pub fn counts(&self) -> NodeCounts {
        let of = |phase: NodePhase| {
            u32::try_from(self.nodes.iter().filter(|node| node.phase == phase).count()).unwrap_or(u32::MAX)
        };
        NodeCounts {
            succeeded: of(NodePhase::Succeeded),
            failed: of(NodePhase::Failed),
            running: of(NodePhase::Running),
        }
    }
}

/// By id.
pub type VolumeViews = BTreeMap<TaskId, VolumeState>;

/// What is known of a volume that is stored.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VolumeState {
    pub phase: VolumePhase,
    /// Why it is not there yet, or cannot be made or deleted.
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum VolumePhase {
    /// Not bound: with many storage classes that happens when the first pod uses it.
    #[default]
    Pending,
    Bound,
    /// The disk behind it is gone.
    Lost,
    /// Its cluster is silent; this is no word on the data.
    Unknown,
    Deleting,
}

impl VolumePhase {
    /// As a PersistentVolumeClaim's phase is called.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Bound => "Bound",
            Self::Lost => "Lost",
            Self::Unknown => "Unknown",
            Self::Deleting => "Terminating",
        }
    }
}
