//! What is known of a task: what was asked for, where it is, how its nodes do.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use fedq_values::ids::ClusterName;

use super::{
    names::{TaskId, node_name, object_name},
    phase::{Before, Phase, State, Then},
    render::Gang,
};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    pub id: TaskId,
    pub name: Option<String>,
    /// As the hub knows them.
    pub owner: String,
    pub submitted: Timestamp,
    pub num_nodes: u32,
    pub namespace: String,
    pub queue: Option<String>,
    pub state: State,
    pub gang: Option<Gang>,
    pub workload: Option<String>,
    /// Where it is, or ended.
    pub cluster: Option<ClusterName>,
    pub nodes: NodeCounts,
    /// Why it does not run yet.
    pub pending_reason: Option<String>,
}

/// Nodes by what their pods do; those that are none of these wait.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct NodeCounts {
    pub succeeded: u32,
    pub failed: u32,
    pub running: u32,
}

/// A task's phase for programs that know four of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RoughPhase {
    Pending,
    Running,
    Completed,
    Failed,
}

impl Record {
    /// `task-<id>` where the person gave none.
    pub fn shown_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("task-{}", self.id))
    }

    pub fn object_name(&self) -> String {
        object_name(self.name.as_deref(), &self.id, self.num_nodes)
    }

    /// What each node's Job is called, or would be.
    pub fn node_names(&self) -> Vec<String> {
        let object = self.object_name();
        (0..self.num_nodes).map(|rank| node_name(&object, rank, self.num_nodes)).collect()
    }

    pub fn pending_nodes(&self) -> u32 {
        let NodeCounts { succeeded, failed, running } = self.nodes;
        self.num_nodes.saturating_sub(succeeded).saturating_sub(failed).saturating_sub(running)
    }

    pub fn rough_phase(&self) -> RoughPhase {
        match &self.state.phase {
            Phase::Succeeded { .. } => RoughPhase::Completed,
            Phase::Failed { .. } => RoughPhase::Failed,
            Phase::Running { .. } | Phase::Lost { before: Before::Running, .. } => {
                if 0 < self.nodes.failed {
                    RoughPhase::Failed
                } else {
                    RoughPhase::Running
                }
            }
            Phase::Pending
            | Phase::Dispatching { .. }
            | Phase::Queued { .. }
            | Phase::Starting { .. }
            | Phase::Withdrawing { .. }
            | Phase::Lost { .. }
            | Phase::Stopped => {
                if 0 < self.nodes.running {
                    RoughPhase::Running
                } else {
                    RoughPhase::Pending
                }
            }
        }
    }

    /// Whether somebody stopped it, so that for k8s-cli it is gone, though its history is kept.
    pub fn is_stopped(&self) -> bool {
        matches!(
            self.state.phase,
            Phase::Stopped
                | Phase::Withdrawing { then: Then::Stop, .. }
                | Phase::Lost { before: Before::Withdrawing(Then::Stop), .. }
        )
    }
}
