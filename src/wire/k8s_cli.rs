//! k8s-cli's REST contract: its bodies, status words and texts, so that its own client works with fedq.
//!
//! What fedq adds stands in `metadata`, of which that client prints every key. Differences are deliberate
//! and few: a stopped task is gone here while its history is kept elsewhere, and stopping all counts
//! tasks, not Jobs.

mod json_error;
mod model;
mod validation;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

pub use self::model::truth;
pub use self::validation::{ValidationError, ValidationErrors};
use fedq_domain::task::{
    names::{TaskId, user_label},
    record::{Record, RoughPhase},
    render::{Gang, naive},
    sky::Note,
};

pub const USER_HEADER: &str = "x-user";

/// `GET /`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Health {
    pub status: String,
    pub service: String,
}

impl Default for Health {
    fn default() -> Self {
        Self { status: "ok".to_owned(), service: "k8s-cli-api".to_owned() }
    }
}

/// `POST /tasks/submit`, the request: what its client sends. All else that SkyPilot's tasks have is taken too.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TaskDefinition {
    pub name: Option<String>,
    /// At least 1, which it is where nothing is said.
    pub num_nodes: Option<u32>,
    pub workdir: Option<String>,
    pub resources: Option<TaskResources>,
    pub envs: Option<BTreeMap<String, String>>,
    /// Without effect.
    pub file_mounts: Option<BTreeMap<String, String>>,
    /// Names of volumes by the paths that they are mounted at.
    pub volumes: Option<BTreeMap<String, String>>,
    pub setup: Option<String>,
    pub run: String,
}

/// What each node of a task needs.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TaskResources {
    pub cpus: Option<String>,
    /// Without a unit, in GiB.
    pub memory: Option<String>,
    /// `4`, or `H100:4`
    pub accelerators: Option<String>,
    pub instance_type: Option<String>,
    pub use_spot: Option<bool>,
    pub image_id: Option<String>,
}

/// `POST /tasks/submit`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TaskSubmitResponse {
    pub task_id: String,
    pub status: String,
    pub message: String,
    /// What of the task has no effect. k8s-cli's client passes over it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl TaskSubmitResponse {
    pub fn new(id: &TaskId, warnings: &[Note]) -> Self {
        Self {
            task_id: id.to_string(),
            status: "submitted".to_owned(),
            message: format!("Task submitted successfully with ID: {id}"),
            warnings: warnings.iter().map(Note::to_string).collect(),
        }
    }
}

/// `GET /tasks/{id}`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct TaskStatus {
    pub task_id: String,
    pub name: String,
    pub status: String,
    pub created_at: String,
    pub updated_at: String,
    pub username: String,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
}

impl TaskStatus {
    /// `None`: the task was stopped, and k8s-cli knows no such task any more.
    pub fn of(task: &Record, now: Timestamp) -> Option<Self> {
        if task.is_stopped() {
            return None;
        }
        Some(Self {
            task_id: task.id.to_string(),
            name: task.shown_name(),
            status: status(task.rough_phase()).to_owned(),
            created_at: naive(task.submitted),
            updated_at: naive(now),
            username: user_label(&task.owner),
            metadata: metadata(task),
        })
    }
}

fn status(phase: RoughPhase) -> &'static str {
    match phase {
        RoughPhase::Pending => "pending",
        RoughPhase::Running => "running",
        RoughPhase::Completed => "completed",
        RoughPhase::Failed => "failed",
    }
}

fn metadata(task: &Record) -> Map<String, Value> {
    let names = task.node_names();
    let mut metadata = Map::new();
    let mut set = |key: &str, value: Value| metadata.insert(key.to_owned(), value);
    set("job_name", json!(names.first()));
    set("namespace", json!(task.namespace));
    set("num_nodes", json!(task.num_nodes));
    set("node_jobs", json!(names));
    set("succeeded_nodes", json!(task.nodes.succeeded));
    set("failed_nodes", json!(task.nodes.failed));
    set("running_nodes", json!(task.nodes.running));
    set("pending_nodes", json!(task.pending_nodes()));
    if let Some(cluster) = &task.cluster {
        set("cluster", json!(cluster.as_str()));
    }
    let gang = task.gang.map(|gang| match gang {
        Gang::PerNode => "per-node",
        Gang::Indexed => "indexed",
        Gang::JobSet => "jobset",
        Gang::AppWrapper => "appwrapper",
        Gang::Unwrapped => "unwrapped",
    });
    let more = [
        ("queue", task.queue.as_deref()),
        ("workload", task.workload.as_deref()),
        ("gang", gang),
        ("pending_reason", task.pending_reason.as_deref()),
    ];
    for (key, value) in more {
        if let Some(value) = value {
            set(key, json!(value));
        }
    }
    metadata
}

/// `GET /tasks`
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct TaskListResponse {
    pub tasks: Vec<TaskStatus>,
}

impl TaskListResponse {
    pub fn of<'a>(tasks: impl IntoIterator<Item = &'a Record>, now: Timestamp) -> Self {
        Self { tasks: tasks.into_iter().filter_map(|task| TaskStatus::of(task, now)).collect() }
    }
}

/// `POST /tasks/{id}/stop`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TaskStopResponse {
    pub task_id: String,
    pub status: String,
    pub message: String,
}

impl TaskStopResponse {
    pub fn new(id: &TaskId) -> Self {
        let message = format!("Task {id} stopped successfully");
        Self { task_id: id.to_string(), status: "stopped".to_owned(), message }
    }
}

/// `POST /tasks/stop`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct TaskStopAllResponse {
    /// Tasks.
    pub count: usize,
    pub status: String,
    pub message: String,
}

impl TaskStopAllResponse {
    pub fn new(count: usize, all_users: bool) -> Self {
        let whose = if all_users { " for all users" } else { "" };
        Self { count, status: "stopped".to_owned(), message: format!("Stopped {count} tasks{whose}") }
    }
}

/// `POST /volumes/create`, the request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct VolumeDefinition {
    pub name: String,
    pub size: String,
    #[serde(default)]
    pub storage_class: Option<String>,
    #[serde(default)]
    pub access_modes: Option<Vec<String>>,
}

/// `POST /volumes/create` and `DELETE /volumes/{id}`
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct VolumeResponse {
    pub volume_id: String,
    pub status: String,
    pub message: String,
}

impl VolumeResponse {
    pub fn created(id: &TaskId) -> Self {
        let message = format!("Volume created successfully with ID: {id}");
        Self { volume_id: id.to_string(), status: "created".to_owned(), message }
    }

    pub fn deleted(id: &TaskId) -> Self {
        let message = format!("Volume {id} deleted successfully");
        Self { volume_id: id.to_string(), status: "deleted".to_owned(), message }
    }
}

/// `GET /volumes/{id}`
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct VolumeStatus {
    pub volume_id: String,
    pub name: String,
    pub size: String,
    pub storage_class: Option<String>,
    pub access_modes: Vec<String>,
    pub status: String,
    pub created_at: String,
    pub username: String,
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
}

/// `GET /volumes`
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize, ToSchema)]
pub struct VolumeListResponse {
    pub volumes: Vec<VolumeStatus>,
}

/// Every error but those of a request's form.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Detail {
    pub detail: String,
}

impl Detail {
    /// `id` as it was asked for: it may be no id at all.
    pub fn no_task(id: &str) -> Self {
        Self { detail: format!("Task {id} not found") }
    }

    pub fn no_volume(id: &str) -> Self {
        Self { detail: format!("Volume {id} not found") }
    }

    pub fn failed(what: Operation, why: &str) -> Self {
        Self { detail: format!("Failed to {}: {why}", what.words()) }
    }
}

/// What failed, with k8s-cli's words.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation {
    SubmitTask,
    StopTask,
    StopAllTasks,
    ListTasks,
    GetTask,
    CreateVolume,
    ListVolumes,
    DeleteVolume,
    GetVolume,
}

impl Operation {
    fn words(self) -> &'static str {
        match self {
            Self::SubmitTask => "submit task",
            Self::StopTask => "stop task",
            Self::StopAllTasks => "stop all tasks",
            Self::ListTasks => "list tasks",
            Self::GetTask => "get task status",
            Self::CreateVolume => "create volume",
            Self::ListVolumes => "list volumes",
            Self::DeleteVolume => "delete volume",
            Self::GetVolume => "get volume status",
        }
    }
}

#[cfg(test)]
mod tests;
