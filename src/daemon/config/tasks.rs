//! The section `tasks`.

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use super::{resolve::Unusable, text};
use fedq_domain::task::{
    choose,
    limits::{Bounds, Limits, cores},
    phase::LostPolicy,
    render::Gang,
    upload::MAX_BYTES,
};
use fedq_store::Live;
use fedq_values::quantity::{Amount, Quantity};

/// Quantities count in billionths.
const NANO: i128 = 1_000_000_000;
const SIZES: RangeInclusive<u64> = 64 << 10..=64 << 20;
/// No task file is larger.
const ONE_TASK: u64 = 1 << 20;

pub(super) fn bytes(key: &str, text: &str) -> Result<u64, Unusable> {
    let unusable = |reason: String| Unusable { key: key.to_owned(), reason };
    let nanos = Quantity::parse(text).map_err(|error| unusable(error.to_string()))?.nanos();
    u64::try_from(nanos / NANO).map_err(|_| unusable(format!("`{text}` is not a size")))
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tasks {
    #[serde(with = "text::duration")]
    pub spill_after: Duration,
    #[serde(with = "text::duration")]
    pub start_timeout: Duration,
    pub lost_policy: LostPolicy,
    pub max_live_per_user: u32,
    pub max_live_bytes_per_user: String,
    #[serde(with = "text::duration")]
    pub keep_objects: Duration,
    pub history: TaskHistory,
    pub gang: GangChoice,
    pub unwrap_jobs: bool,
    pub default_image: String,
    pub weights: TaskWeights,
    pub logs: TaskLogs,
    pub uploads: TaskUploads,
    pub tenants: Vec<Tenant>,
}

/// Which finished tasks are remembered.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskHistory {
    #[serde(with = "text::duration")]
    pub keep_for: Duration,
    pub keep_rows: u32,
}

/// What is left of a task's logs when its pods are gone.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskLogs {
    pub keep: bool,
    /// Of one run.
    pub max_size: String,
    /// Of all together.
    pub max_total: String,
    pub folder: PathBuf,
}

/// Files that tasks bring along.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskUploads {
    /// Of one task.
    pub max_size: String,
    /// Of one person.
    pub max_per_user: String,
    /// What no task needs that is not over.
    #[serde(with = "text::duration")]
    pub keep_for: Duration,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum GangChoice {
    #[default]
    Auto,
    PerNode,
    Indexed,
    JobSet,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskWeights {
    pub spread: i32,
    pub pending: i32,
    pub borrowing: i32,
}

/// What the tasks of one namespace get, and who is at home there.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tenant {
    pub namespace: String,
    /// As the hub knows them; `*` is everyone.
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub groups: Vec<String>,
    /// Of tasks that name none.
    #[serde(default)]
    pub queue: Option<String>,
    /// Of the pods; it must be there on the clusters.
    #[serde(default)]
    pub service_account: Option<String>,
    /// What `config.kubernetes.pod_config` of its tasks may have beyond what everybody's may.
    #[serde(default)]
    pub pod_config: PodConfig,
    /// What its tasks may take.
    #[serde(default)]
    pub limits: TenantLimits,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantLimits {
    /// Of all of them at once.
    pub gpus: Option<u32>,
    /// The same in cores.
    pub cpus: Option<String>,
    /// Of those of each person.
    pub per_user: UserLimits,
    /// Of one run of one of them.
    pub max_duration: Option<String>,
    /// Of those that say none.
    pub default_duration: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct UserLimits {
    pub gpus: Option<u32>,
    pub cpus: Option<String>,
}

impl TenantLimits {
    /// `key`: of the tenant.
    pub(super) fn resolve(&self, key: &str) -> Result<Limits, Unusable> {
        let Self { gpus, cpus, per_user, max_duration, default_duration } = self;
        let unusable =
            |field: &str, reason: String| Unusable { key: format!("{key}: limits.{field}"), reason };
        let bounds = |prefix: &str, gpus: Option<u32>, cpus: &Option<String>| {
            let read = |text: &String| {
                let reason = format!("`{text}` is no number of cores, as 64 or 500m");
                cores(text).ok_or_else(|| unusable(&format!("{prefix}cpus"), reason))
            };
            let cpu = cpus.as_ref().map(read).transpose()?;
            Ok(Bounds { gpus: gpus.map(|gpus| Amount::new(i64::from(gpus))), cpu })
        };
        let duration = |field: &str, text: &Option<String>| {
            let read = |text: &String| match text::parse_duration(text) {
                Ok(duration) if Duration::from_secs(1) <= duration => Ok(duration),
                Ok(_) => Err(unusable(field, "must be 1s or longer".to_owned())),
                Err(error) => Err(unusable(field, error.to_string())),
            };
            text.as_ref().map(read).transpose()
        };
        let limits = Limits {
            all: bounds("", *gpus, cpus)?,
            per_user: bounds("perUser.", per_user.gpus, &per_user.cpus)?,
            max_duration: duration("maxDuration", max_duration)?,
            default_duration: duration("defaultDuration", default_duration)?,
        };
        if limits
            .max_duration
            .is_some_and(|most| limits.default_duration.is_some_and(|default| most < default))
        {
            return Err(unusable("defaultDuration", "is longer than maxDuration".to_owned()));
        }
        Ok(limits)
    }
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PodConfig {
    /// Names of devices, as `rdma/hca`.
    pub resources: Vec<String>,
    pub capabilities: Vec<String>,
    pub host_network: bool,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            spill_after: Duration::from_secs(30),
            start_timeout: Duration::from_hours(1),
            lost_policy: LostPolicy::Wait,
            max_live_per_user: 10_000,
            max_live_bytes_per_user: "64Mi".to_owned(),
            keep_objects: Duration::from_mins(30),
            history: TaskHistory::default(),
            gang: GangChoice::Auto,
            unwrap_jobs: false,
            default_image: "python:3.13-slim".to_owned(),
            weights: TaskWeights::default(),
            logs: TaskLogs::default(),
            uploads: TaskUploads::default(),
            tenants: Vec::new(),
        }
    }
}

impl Tasks {
    /// Of one person, that are not over.
    pub(super) fn max_live(&self) -> Result<Live, Unusable> {
        let key = "tasks.maxLiveBytesPerUser";
        let most = bytes(key, &self.max_live_bytes_per_user)?;
        if most < ONE_TASK {
            return Err(Unusable {
                key: key.to_owned(),
                reason: "1Mi or more: one task may take that".to_owned(),
            });
        }
        Ok(Live { tasks: self.max_live_per_user, bytes: most })
    }
}

impl Default for TaskHistory {
    fn default() -> Self {
        Self { keep_for: Duration::from_hours(90 * 24), keep_rows: 100_000 }
    }
}

impl Default for TaskLogs {
    fn default() -> Self {
        Self {
            keep: true,
            max_size: "8Mi".to_owned(),
            max_total: "1Gi".to_owned(),
            folder: PathBuf::from("task-logs"),
        }
    }
}

impl TaskLogs {
    /// Bytes of one run, and of all.
    pub(super) fn sizes(&self) -> Result<(usize, u64), Unusable> {
        let one = bytes("tasks.logs.maxSize", &self.max_size)?;
        let all = bytes("tasks.logs.maxTotal", &self.max_total)?;
        let unusable =
            |reason: &str| Unusable { key: "tasks.logs.maxSize".to_owned(), reason: reason.to_owned() };
        if !SIZES.contains(&one) {
            return Err(unusable("from 64Ki to 64Mi: eight logs of that size are in memory at a time"));
        }
        if all < one {
            return Err(unusable("one log would not fit in tasks.logs.maxTotal"));
        }
        Ok((usize::try_from(one).unwrap_or(usize::MAX), all))
    }
}

impl Default for TaskUploads {
    fn default() -> Self {
        Self {
            max_size: "4Mi".to_owned(),
            max_per_user: "256Mi".to_owned(),
            keep_for: Duration::from_hours(24),
        }
    }
}

impl TaskUploads {
    /// Bytes of one task, and of one person.
    pub(super) fn sizes(&self) -> Result<(u64, u64), Unusable> {
        let (size, per_user) = ("tasks.uploads.maxSize", "tasks.uploads.maxPerUser");
        let (one, all) = (bytes(size, &self.max_size)?, bytes(per_user, &self.max_per_user)?);
        let unusable = |key: &str, reason: String| Err(Unusable { key: key.to_owned(), reason });
        if MAX_BYTES < one {
            return unusable(
                size,
                format!("{}Mi or less: it is in the database of the cluster's API server", MAX_BYTES >> 20),
            );
        }
        if all < one {
            return unusable(per_user, "one task would not fit in it".to_owned());
        }
        Ok((one, all))
    }
}

impl Default for TaskWeights {
    fn default() -> Self {
        let choose::Weights { spread, pending, borrowing } = choose::Weights::default();
        Self { spread, pending, borrowing }
    }
}

impl TaskWeights {
    pub fn resolve(&self) -> choose::Weights {
        choose::Weights { spread: self.spread, pending: self.pending, borrowing: self.borrowing }
    }
}

impl GangChoice {
    /// `None`: by the task and its cluster.
    pub fn fixed(self) -> Option<Gang> {
        match self {
            Self::Auto => None,
            Self::PerNode => Some(Gang::PerNode),
            Self::Indexed => Some(Gang::Indexed),
            Self::JobSet => Some(Gang::JobSet),
        }
    }
}
