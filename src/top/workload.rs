//! What a Workload says, and the Events about it.

use jiff::Timestamp;
use serde_json::Value;

use crate::shown::{count, text, time};

/// A line of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Workload {
    pub local_queue: String,
    /// The ClusterQueue that it was admitted by.
    pub admitted_by: String,
    pub phase: Phase,
    pub priority: i64,
    /// `Job/train`, of its first owner.
    pub owner: String,
    pub created: Option<Timestamp>,
}

/// In the order of a workload's life.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Phase {
    Stopped,
    Pending,
    QuotaReserved,
    Admitted,
    Finished,
}

/// All that the view of one workload shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Detail {
    pub workload: Workload,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Condition {
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    pub kind: String,
    pub reason: String,
    pub message: String,
    pub from: String,
    pub times: u64,
    pub last: Option<Timestamp>,
}

impl Workload {
    pub fn read(workload: &Value) -> Self {
        let owner = workload.pointer("/metadata/ownerReferences/0");
        Self {
            local_queue: text(workload, "/spec/queueName"),
            admitted_by: text(workload, "/status/admission/clusterQueue"),
            phase: Phase::read(workload),
            priority: workload.pointer("/spec/priority").and_then(Value::as_i64).unwrap_or(0),
            owner: owner
                .map(|owner| format!("{}/{}", text(owner, "/kind"), text(owner, "/name")))
                .unwrap_or_default(),
            created: time(workload, "/metadata/creationTimestamp"),
        }
    }
}

impl Phase {
    fn read(workload: &Value) -> Self {
        let is = |kind: &str| {
            each_condition(workload)
                .any(|condition| condition["type"] == kind && condition["status"] == "True")
        };
        match () {
            () if is("Finished") => Self::Finished,
            () if is("Admitted") => Self::Admitted,
            () if is("QuotaReserved") => Self::QuotaReserved,
            () if workload.pointer("/spec/active") == Some(&Value::Bool(false)) => Self::Stopped,
            () => Self::Pending,
        }
    }

    /// As kueuectl has it, which calls what is stopped pending.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stopped => "STOPPED",
            Self::Pending => "PENDING",
            Self::QuotaReserved => "QUOTARESERVED",
            Self::Admitted => "ADMITTED",
            Self::Finished => "FINISHED",
        }
    }
}

impl Detail {
    pub fn read(workload: &Value) -> Self {
        let conditions = each_condition(workload).map(|condition| Condition {
            kind: text(condition, "/type"),
            status: text(condition, "/status"),
            reason: text(condition, "/reason"),
            message: text(condition, "/message"),
            since: time(condition, "/lastTransitionTime"),
        });
        Self { workload: Workload::read(workload), conditions: conditions.collect() }
    }
}

impl Event {
    pub fn read(event: &Value) -> Self {
        let last = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/firstTimestamp"];
        let times = ["/series/count", "/count"].map(|field| count(event, field));
        let from = ["/reportingComponent", "/source/component"].map(|field| text(event, field));
        Self {
            kind: text(event, "/type"),
            reason: text(event, "/reason"),
            message: text(event, "/message"),
            from: from.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
            times: times.into_iter().max().unwrap_or(0).max(1),
            last: last.into_iter().find_map(|field| time(event, field)),
        }
    }
}

/// The ClusterQueue of a LocalQueue.
pub fn cluster_queue(local_queue: &Value) -> String {
    text(local_queue, "/spec/clusterQueue")
}

fn each_condition(workload: &Value) -> impl Iterator<Item = &Value> {
    workload.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}
