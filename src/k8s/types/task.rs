//! What fedq reads of a task's objects: little of each, since there may be many.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::list_watch::{Key, Record};
use fedq_domain::task::{
    phase::Epoch,
    render::{FAIL_JOB_SET, POD_FAILURE_POLICY},
};

/// Metadata of something that belongs to a task or volume of this hub.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskMeta {
    pub name: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub uid: String,
    #[serde(default)]
    pub resource_version: String,
    /// Being deleted.
    #[serde(
        default,
        rename = "deletionTimestamp",
        deserialize_with = "is_there",
        skip_serializing_if = "is_not"
    )]
    pub going: bool,
    #[serde(default)]
    pub labels: TaskLabels,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct TaskLabels {
    #[serde(default, rename = "task-id")]
    pub task: Option<String>,
    #[serde(default, rename = "fedq.dev/epoch")]
    pub epoch: Option<String>,
    #[serde(default, rename = "volume-id")]
    pub volume: Option<String>,
    /// A Job that a JobSet made.
    #[serde(
        default,
        rename = "jobset.sigs.k8s.io/jobset-name",
        deserialize_with = "is_there",
        skip_serializing_if = "is_not"
    )]
    pub of_job_set: bool,
    /// Put there by MultiKueue, which also takes it away.
    #[serde(
        default,
        rename = "kueue.x-k8s.io/multikueue-origin",
        deserialize_with = "is_there",
        skip_serializing_if = "is_not"
    )]
    pub dispatched: bool,
}

/// A Job or JobSet.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "RawJob", into = "RawJob")]
pub struct TaskJob {
    pub metadata: TaskMeta,
    pub suspended: bool,
    pub end: Option<JobEnd>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JobEnd {
    pub succeeded: bool,
    /// A pod was ended by the cluster, not by its program.
    pub disrupted: bool,
    pub message: String,
    pub at: Option<Timestamp>,
}

impl TaskJob {
    /// The dispatch it belongs to.
    pub fn epoch(&self) -> Option<Epoch> {
        self.metadata.labels.epoch.as_deref()?.parse().ok()
    }
}

#[derive(Deserialize, Serialize)]
struct RawJob {
    metadata: TaskMeta,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawStatus,
}

#[derive(Default, Deserialize, Serialize)]
struct RawSpec {
    #[serde(default)]
    suspend: bool,
}

#[derive(Default, Deserialize, Serialize)]
struct RawStatus {
    #[serde(default)]
    conditions: Vec<RawCondition>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    last_transition_time: Option<String>,
}

impl From<RawJob> for TaskJob {
    fn from(raw: RawJob) -> Self {
        let ended = |condition: &RawCondition| {
            // A Job is Complete, a JobSet Completed.
            let succeeded = match condition.kind.as_str() {
                "Complete" | "Completed" => true,
                "Failed" => false,
                _ => return None,
            };
            let at = condition.last_transition_time.as_ref().and_then(|time| time.parse().ok());
            let disrupted =
                !succeeded && matches!(condition.reason.as_str(), POD_FAILURE_POLICY | FAIL_JOB_SET);
            let message = condition.message.clone();
            (condition.status == "True").then_some(JobEnd { succeeded, disrupted, message, at })
        };
        Self {
            metadata: raw.metadata,
            suspended: raw.spec.suspend,
            end: raw.status.conditions.iter().find_map(ended),
        }
    }
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct VolumeClaim {
    pub metadata: TaskMeta,
    #[serde(default)]
    pub status: ClaimStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ClaimStatus {
    #[serde(default)]
    pub phase: String,
}

/// As little as says the same again.
impl From<TaskJob> for RawJob {
    fn from(job: TaskJob) -> Self {
        let ended = |end: JobEnd| RawCondition {
            kind: if end.succeeded { "Complete" } else { "Failed" }.to_owned(),
            status: "True".to_owned(),
            reason: if end.disrupted { POD_FAILURE_POLICY } else { "" }.to_owned(),
            message: end.message,
            last_transition_time: end.at.map(|at| at.to_string()),
        };
        Self {
            metadata: job.metadata,
            spec: RawSpec { suspend: job.suspended },
            status: RawStatus { conditions: job.end.into_iter().map(ended).collect() },
        }
    }
}

pub(crate) fn is_there<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it so")]
pub(crate) fn is_not(there: &bool) -> bool {
    !there
}

macro_rules! record {
    ($($kind:ty),*) => {
        $(impl Record for $kind {
            fn key(&self) -> Key {
                (Some(self.metadata.namespace.clone()), self.metadata.name.clone())
            }

            fn version(&self) -> u64 {
                self.metadata.resource_version.parse().unwrap_or(0)
            }
        })*
    };
}

record!(TaskJob, VolumeClaim);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(status: &Value) -> TaskJob {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "train-1a2b3c4d", "namespace": "team", "uid": "u", "resourceVersion": "7",
                "labels": {"task-id": "1a2b3c4d", "fedq.dev/epoch": "2", "other": "x"},
            },
            "spec": {"suspend": true},
            "status": status,
        });
        serde_json::from_value(job).expect("a Job")
    }

    #[test]
    fn a_job_is_read_by_what_ended_it() {
        let waiting = job(&json!({"conditions": [{"type": "Suspended", "status": "True"}]}));
        assert_eq!((waiting.suspended, waiting.end.is_none(), waiting.metadata.going), (true, true, false));
        assert_eq!(waiting.metadata.labels.epoch.as_deref(), Some("2"));
        for (kind, succeeded) in [("Complete", true), ("Completed", true), ("Failed", false)] {
            let condition = json!({
                "type": kind, "status": "True", "message": "m", "lastTransitionTime": "2025-10-05T12:34:56Z",
            });
            let end = job(&json!({"conditions": [condition]})).end.expect("ended");
            assert_eq!((end.succeeded, end.message.as_str(), end.at.is_some()), (succeeded, "m", true));
        }
        for (reason, disrupted) in [
            ("PodFailurePolicy", true),
            ("FailJobSetFailurePolicyAction", true),
            ("BackoffLimitExceeded", false),
            ("ReachedMaxRestarts", false),
        ] {
            let condition = json!({"type": "Failed", "status": "True", "reason": reason});
            let ended = job(&json!({"conditions": [condition]}));
            assert_eq!(ended.end.as_ref().map(|end| end.disrupted), Some(disrupted), "{reason}");
            let kept = serde_json::to_vec(&ended).expect("JSON");
            assert_eq!(serde_json::from_slice::<TaskJob>(&kept).expect("a Job"), ended);
        }
        let failing = job(&json!({"conditions": [{"type": "Failed", "status": "False"}]}));
        assert_eq!(failing.end, None);
    }
}
