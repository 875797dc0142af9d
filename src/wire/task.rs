//! Tasks, as people hand them in and look at them.

use std::{collections::BTreeMap, fmt, num::NonZeroU16};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    list::{flag, some_flag},
    time::Time,
};

/// A task that is to be run.
#[derive(Clone, Default, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitTask {
    /// The task in SkyPilot's YAML.
    #[schema(min_length = 1, example = "run: python train.py\n")]
    pub file: String,
    /// Eight lower-case letters and digits: a request that is repeated with it submits nothing twice.
    #[schema(pattern = "^[0-9a-z]{8}$", max_length = 8)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Variables given beside the file; they win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub envs: BTreeMap<String, String>,
    /// Values of secrets; they are kept in a Secret of Kubernetes and nowhere else.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// What was sent for `workdir` and `file_mounts` of the file (`PUT /api/v1/uploads/{digest}`): digests, by what the
    /// file calls it there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub uploads: BTreeMap<String, String>,
    /// Instead of the file's.
    #[schema(
        min_length = 1,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f-\x9f]*$"
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The LocalQueue to wait in.
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 253
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The only cluster it may run on.
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 63
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Instead of the file's `num_nodes`: digits alone, `2` and not `2.0`.
    #[schema(minimum = 1)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_nodes: Option<u32>,
    /// Instead of the file's `workdir`; what it names of the submitter's machine is in `uploads`.
    #[schema(max_length = 4096)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Instead of the file's `priority` and `priority_class`: a number, or the name of a WorkloadPriorityClass.
    #[schema(max_length = 253)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Instead of the file's `infra`, and `cloud` with `region`: `k8s`, or `k8s/` and a cluster's name.
    #[schema(max_length = 128)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infra: Option<String>,
    /// Instead of the file's `cpus` of each node, such as `16` or `8+`.
    #[schema(max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    /// Instead of the file's `memory` of each node, such as `64`, in GB as SkyPilot's, `32+` or `64Gi`.
    #[schema(max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Instead of the file's `use_spot`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_spot: Option<bool>,
    /// Instead of the file's `disk_size`.
    #[schema(max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<String>,
    /// Instead of the file's `max_duration`: seconds, or a number with `s`, `m`, `h` or `d`.
    #[schema(max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
    /// Instead of the file's `accelerators`, such as `H100:8`.
    #[schema(max_length = 256)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<String>,
    /// Instead of the file's `image_id`.
    #[schema(max_length = 1024)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Make it as an AppWrapper, which the cluster's controller looks after: it is made anew when a node has to be left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_app_wrapper: bool,
    /// Refuse a task of which a field would have no effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

/// Without values: of variables and files too, since people put secrets there.
impl fmt::Debug for SubmitTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitTask").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What became of a task that was handed in.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Submitted {
    pub id: String,
    pub name: String,
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// What of the file has no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Of a file with several tasks: each of them, in order. `id` is the first one's, and stands for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<SubmittedStage>,
    /// Of a dry run: what each cluster says to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterVerdict>,
    /// Nothing was submitted.
    pub dry_run: bool,
}

/// One of several tasks that run one after the other.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmittedStage {
    pub id: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Of a dry run: what each cluster says to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterVerdict>,
}

/// A task as lists show it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub id: String,
    #[schema(required)]
    #[serde(default)]
    pub kind: Kind,
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// pending, dispatching, queued, starting, running, stopping, withdrawing, lost, succeeded, failed or
    /// stopped.
    pub phase: String,
    /// Of a failed one: program, neverFits, refused or vanished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Why it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// perNode, indexed, jobSet, appWrapper or unwrapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<String>,
    pub num_nodes: u32,
    pub nodes: NodeCounts,
    /// Of each node: `H100:8`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<String>,
    /// How often its script was started again after it failed.
    pub restarts: u32,
    /// How often it was given to a cluster.
    pub epoch: u32,
    pub submitted: Time,
    /// When its phase last changed.
    pub changed: Time,
    /// Where it stands among tasks that run one after the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<Stage>,
}

/// What a task is made of.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A script.
    #[default]
    Task,
    /// Objects that were handed in as an AppWrapper.
    AppWrapper,
}

/// An AppWrapper that is to be run.
#[derive(Clone, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitAppWrapper {
    /// The AppWrapper's manifest, of `workload.codeflare.dev/v1beta2`, in YAML or JSON.
    #[schema(min_length = 1)]
    pub file: String,
    /// Eight lower-case letters and digits: a request that is repeated with it submits nothing twice.
    #[schema(pattern = "^[0-9a-z]{8}$", max_length = 8)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The LocalQueue to wait in, instead of the one that its label names.
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 253
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The only cluster it may run on.
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 63
    )]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// For how long it may run: seconds, or a number with `s`, `m`, `h` or `d`.
    #[schema(max_length = 64)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
    /// Where nothing runs AppWrappers its one Job is made by itself. Takes `tasks.unwrapJobs` of fedqd.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unwrap: bool,
}

/// Without the manifest, since people put secrets there.
impl fmt::Debug for SubmitAppWrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitAppWrapper").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A task's place in a pipeline.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stage {
    /// Of the pipeline's first task, which stands for all.
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// From 1.
    pub stage: u32,
    pub stages: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCounts {
    pub succeeded: u32,
    pub failed: u32,
    pub running: u32,
    pub pending: u32,
}

impl NodeCounts {
    /// `2 running, 1 failed`
    pub fn words(&self) -> String {
        let counts = [
            (self.running, "running"),
            (self.succeeded, "succeeded"),
            (self.failed, "failed"),
            (self.pending, "pending"),
        ];
        let there = counts.iter().filter(|(count, _)| 0 < *count);
        there.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    }
}

/// One task with all that is told of it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskDetail {
    #[serde(flatten)]
    pub task: Task,
    /// What it may run on, in order.
    pub forms: Vec<Form>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    pub run: String,
    /// Devices of each node beside its accelerators, such as `rdma/hca`, and how many.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u32>,
    /// For how long one run of it may go on, as `2h`; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_duration: Option<String>,
    /// Names of its variables; values stay with the task.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub envs: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Mounted>,
    /// What of its file has no effect, or another than its writer may think.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What an AppWrapper wraps, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<Component>,
    /// All tasks of its pipeline, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Task>,
    /// Oldest first.
    pub events: Vec<TaskEvent>,
}

/// What each node needs, in one of the forms a task may take.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Form {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerators: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_type: Option<String>,
    /// Whether it runs on spot nodes only (`true`), never on them (`false`), or on either (absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Mounted {
    pub path: String,
    pub volume: String,
}

/// An object that an AppWrapper wraps.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    pub api_version: String,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its pods that are alike; none of an object that has no pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSet>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSet {
    /// Where their template is.
    pub path: String,
    pub replicas: u32,
    /// What each of them asks for.
    pub requests: BTreeMap<String, String>,
}

/// One line of a task's history.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskEvent {
    pub at: Time,
    /// The phase that it led to.
    pub phase: String,
    /// For programs: one word.
    pub reason: String,
    pub message: String,
    pub epoch: u32,
}

/// Why a task is where it is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskExplanation {
    #[serde(flatten)]
    pub task: Task,
    pub clusters: Vec<ClusterVerdict>,
}

/// What one cluster says to a task.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterVerdict {
    pub cluster: String,
    /// fits, waits, away or never.
    pub verdict: String,
    /// The one that is chosen now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Workloads that wait in that queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<u32>,
    /// What is in the way, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<Numbers>,
}

/// The numbers of one resource that decided.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    pub resource: String,
    pub flavor: String,
    /// By all nodes of the task.
    pub needed: String,
    /// What it could take now, borrowing included.
    pub available: String,
    pub nominal: String,
    /// The most the queue can ever hold.
    pub ceiling: String,
    pub reserved: String,
    /// Of tasks on their way there.
    pub in_flight: String,
}

/// Which tasks.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub struct TasksQuery {
    /// Everybody's; takes the right to list `tasks.fedq.dev` in all namespaces.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = bool)]
    pub all_users: bool,
    /// Only those that are over (`true`), or are not (`false`).
    #[serde(default, deserialize_with = "some_flag", skip_serializing_if = "Option::is_none")]
    pub over: Option<bool>,
    /// Only AppWrappers (`appWrapper`), or only what is none (`task`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// How many items a page has at most; 0 leaves it to the server.
    #[serde(default)]
    pub limit: u32,
    /// `continue` of the page before.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Answer with a stream of changes instead: JSON lines, or server-sent events where the request
    /// accepts `text/event-stream`. It tells of the newest 500; `limit` and `continue` have no effect on it.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = bool)]
    pub watch: bool,
}

/// Whose tasks to stop.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub struct AllUsersQuery {
    /// Everybody's; takes the right to do so in all namespaces.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = bool)]
    pub all_users: bool,
}

/// What was stopped.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// Those that were not over.
    pub ids: Vec<String>,
}

/// Which part of a task's logs.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub struct LogsQuery {
    /// Until the task is over.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = bool)]
    pub follow: bool,
    /// What was kept of the run before this one: one that failed and was started again, or was moved. Takes
    /// `tasks.logs.keep`.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = bool)]
    pub previous: bool,
    /// What was kept of the run with this epoch, which the task's events name. Takes `tasks.logs.keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// Only the last lines of each node, and what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// Only lines of the last so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_seconds: Option<u64>,
    /// Only lines since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>, format = DateTime)]
    pub since_time: Option<Timestamp>,
    /// Only the node of this rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Where an earlier answer stopped: of each container, the line behind which to go on, by commas, such as
    /// `0/task/train-0-x2x7k=2026-11-21T07:00:00.5Z+1`. That is `node`, `container`, `pod` and `ts` of the last `LINE` that
    /// was received of it, and how many lines with this very `ts` were; lines without `ts` do not count. Server-sent
    /// events carry it as their id, and `TASK` as `resume`; JSON lines have no id, so who reads those keeps account.
    ///
    /// It is long where a task has many nodes, and a URL has at most 64 KiB. `Last-Event-ID` takes the same and has more
    /// room, about 400 KiB of all headers over HTTP/1.1; over HTTP/2 path and headers have 16 KiB together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Where a command runs, and what it is given.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
pub struct ExecQuery {
    /// The node of this rank, where the task has several.
    #[serde(default)]
    pub node: u32,
    /// This container; the task's own where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// It reads what comes in channel 0.
    #[serde(default)]
    pub stdin: bool,
    /// It has a terminal, and so one output.
    #[serde(default)]
    pub tty: bool,
}

/// To which port.
#[derive(Clone, Debug, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
pub struct PortForwardQuery {
    /// On which a program of the task listens.
    #[param(value_type = u16, minimum = 1, maximum = 65535)]
    pub port: NonZeroU16,
    /// The node of this rank, where the task has several.
    #[serde(default)]
    pub node: u32,
}

/// One line of a stream of logs, told apart by `type`: of a program, or a word on it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "UPPERCASE")]
pub enum LogItem {
    Line(LogLine),
    Status(LogStatus),
    Task(LogTask),
}

/// What a program wrote.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// When the container wrote it, as its cluster says: in UTC, with nine decimals, which tell lines of one moment apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<String>,
    pub cluster: String,
    pub node: u32,
    pub pod: String,
    pub container: String,
    pub seq: u64,
    pub line: String,
    /// In base64, where the line is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// Bytes that were not kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cut: u64,
}

/// What becomes of the log of a node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogStatus {
    pub cluster: String,
    pub node: u32,
    pub container: String,
    /// waiting, broken, reconnected, restarted, gap, dropped, notKept, unread or ended.
    pub status: String,
    pub message: String,
}

/// What becomes of the task itself.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogTask {
    pub phase: String,
    pub message: String,
    /// Where to go on after a break: what `after` takes, behind the lines that were sent before this. Without it no line
    /// was sent yet, or it would be longer than what is taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}
