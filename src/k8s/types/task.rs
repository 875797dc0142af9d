//! What fedq reads of a task's objects: little of each, since there may be many.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::list_watch::{Key, Record};
use fedq_domain::task::{
    phase::Epoch,
    progress::Fault,
    render::{FAIL_JOB_SET, POD_FAILURE_POLICY},
};

/// The condition of an AppWrapper that its pods run, or have run to their end.
const PODS_READY: &str = "PodsReady";

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

/// A Job, JobSet or AppWrapper.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(from = "RawJob", into = "RawJob")]
pub struct TaskJob {
    pub metadata: TaskMeta,
    pub suspended: bool,
    /// An AppWrapper whose pods have all run.
    pub ready: bool,
    pub end: Option<JobEnd>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct JobEnd {
    pub succeeded: bool,
    /// Of one that has not.
    pub fault: Fault,
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
    /// Of an AppWrapper.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    phase: String,
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
            let fault = match condition.reason.as_str() {
                POD_FAILURE_POLICY | FAIL_JOB_SET if !succeeded => Fault::Cluster,
                // As it was kept.
                NOT_READY if !succeeded => Fault::NotStarted,
                _ => Fault::Program,
            };
            let message = condition.message.clone();
            (condition.status == "True").then_some(JobEnd { succeeded, fault, message, at })
        };
        let RawStatus { conditions, phase } = &raw.status;
        let ready = |condition: &RawCondition| condition.kind == PODS_READY && condition.status == "True";
        Self {
            suspended: raw.spec.suspend,
            ready: conditions.iter().any(ready),
            end: conditions.iter().find_map(ended).or_else(|| wrapper_end(phase, conditions)),
            metadata: raw.metadata,
        }
    }
}

/// Why an AppWrapper is unhealthy: a node has to be left.
const NODE_TO_LEAVE: &str = "AutopilotNoExecute";
/// The same: not all its pods run in its warmup grace period, or again after that.
const NOT_READY: &str = "InsufficientPodsReady";

/// Of an AppWrapper, whose phase says that it is over, and a condition what was wrong. Its controller has tried again as often
/// as it was told to.
fn wrapper_end(phase: &str, conditions: &[RawCondition]) -> Option<JobEnd> {
    let succeeded = match phase {
        "Succeeded" => true,
        "Failed" => false,
        _ => return None,
    };
    let unhealthy = conditions.iter().find(|one| one.kind == "Unhealthy" && one.status == "True");
    let message = unhealthy.filter(|_| !succeeded).map(|one| match one.message.as_str() {
        "" => one.reason.clone(),
        message => format!("{}: {message}", one.reason),
    });
    let times = conditions.iter().filter_map(|one| one.last_transition_time.as_ref()?.parse().ok());
    let fault = match unhealthy.filter(|_| !succeeded).map(|one| one.reason.as_str()) {
        Some(NODE_TO_LEAVE) => Fault::Cluster,
        Some(NOT_READY) => Fault::NotStarted,
        _ => Fault::Program,
    };
    Some(JobEnd { succeeded, fault, message: message.unwrap_or_default(), at: times.max() })
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
            reason: match end.fault {
                Fault::Cluster => POD_FAILURE_POLICY,
                Fault::NotStarted => NOT_READY,
                Fault::Program => "",
            }
            .to_owned(),
            message: end.message,
            last_transition_time: end.at.map(|at| at.to_string()),
        };
        let ready = || RawCondition {
            kind: PODS_READY.to_owned(),
            status: "True".to_owned(),
            reason: String::new(),
            message: String::new(),
            last_transition_time: None,
        };
        Self {
            metadata: job.metadata,
            spec: RawSpec { suspend: job.suspended },
            status: RawStatus {
                conditions: job.end.into_iter().map(ended).chain(job.ready.then(ready)).collect(),
                phase: String::new(),
            },
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
        for (reason, fault) in [
            ("PodFailurePolicy", Fault::Cluster),
            ("FailJobSetFailurePolicyAction", Fault::Cluster),
            ("BackoffLimitExceeded", Fault::Program),
            ("ReachedMaxRestarts", Fault::Program),
        ] {
            let condition = json!({"type": "Failed", "status": "True", "reason": reason});
            let ended = job(&json!({"conditions": [condition]}));
            assert_eq!(ended.end.as_ref().map(|end| end.fault), Some(fault), "{reason}");
            let kept = serde_json::to_vec(&ended).expect("JSON");
            assert_eq!(serde_json::from_slice::<TaskJob>(&kept).expect("a Job"), ended);
        }
        let condition = |kind: &str, status: &str, message: &str| {
            json!({
                "type": kind, "status": status, "reason": "FoundFailedPods", "message": message,
                "lastTransitionTime": "2025-10-05T12:34:56Z",
            })
        };
        for (phase, unhealthy, end) in [
            ("Suspended", "False", None),
            ("Running", "True", None),
            ("Resetting", "True", None),
            ("Succeeded", "True", Some((true, ""))),
            ("Failed", "True", Some((false, "FoundFailedPods: 1 failed"))),
            ("Failed", "False", Some((false, ""))),
        ] {
            let conditions =
                [condition("PodsReady", "True", ""), condition("Unhealthy", unhealthy, "1 failed")];
            let wrapper = job(&json!({"phase": phase, "conditions": conditions}));
            let told = wrapper.end.as_ref().map(|end| (end.succeeded, end.message.as_str()));
            assert_eq!((told, wrapper.ready), (end, true), "{phase}");
            let kept = serde_json::to_vec(&wrapper).expect("JSON");
            assert_eq!(serde_json::from_slice::<TaskJob>(&kept).expect("an AppWrapper"), wrapper, "{phase}");
        }
        for (phase, reason, fault) in [
            ("Failed", "AutopilotNoExecute", Fault::Cluster),
            ("Failed", "InsufficientPodsReady", Fault::NotStarted),
            ("Failed", "FoundFailedPods", Fault::Program),
            ("Failed", "CreateFailed", Fault::Program),
            ("Succeeded", "AutopilotNoExecute", Fault::Program),
        ] {
            let unhealthy = json!({"type": "Unhealthy", "status": "True", "reason": reason});
            let wrapper = job(&json!({"phase": phase, "conditions": [unhealthy]}));
            assert_eq!(wrapper.end.as_ref().map(|end| end.fault), Some(fault), "{phase} {reason}");
            let kept = serde_json::to_vec(&wrapper).expect("JSON");
            assert_eq!(serde_json::from_slice::<TaskJob>(&kept).expect("an AppWrapper"), wrapper, "{reason}");
        }
        let failing = job(&json!({"conditions": [{"type": "Failed", "status": "False"}]}));
        assert_eq!(failing.end, None);
    }
}
