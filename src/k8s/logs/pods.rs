//! What of a Pod says whether its containers have logs to read.

use std::{collections::HashMap, ops::Deref};

use serde::{Deserialize, Serialize};

use super::{Container, ContainerState, Pod};
use crate::{
    client::clean,
    list_watch::{Key, Record},
    types::task::{is_not, is_there},
    worker::Worker,
};
use fedq_domain::task::{
    names::TaskId,
    phase::Epoch,
    render::{CONTAINER, EPOCH_LABEL, ID_LABEL, NODE_LABEL},
    view::{NodePhase, NodeView},
    wrapped::{FIRST_NODE_LABEL, NODES_LABEL, NODES_OF_JOB_LABEL},
};

/// A Pod, projected; a [`crate::list_watch::Table`] can keep it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LogPod {
    pub metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    #[serde(default)]
    pub namespace: Option<String>,
    pub uid: String,
    resource_version: String,
    #[serde(default)]
    pub labels: std::collections::BTreeMap<String, String>,
    /// Being deleted.
    #[serde(
        default,
        rename = "deletionTimestamp",
        deserialize_with = "is_there",
        skip_serializing_if = "is_not"
    )]
    pub going: bool,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    containers: Vec<Named>,
    #[serde(default)]
    restart_policy: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Named {
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    reason: String,
    container_statuses: Vec<ContainerStatus>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    name: String,
    #[serde(default)]
    state: Option<StateOf>,
    #[serde(default)]
    restart_count: u32,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
struct StateOf {
    waiting: Option<Reason>,
    running: Option<Running>,
    terminated: Option<Terminated>,
}

/// Since when is nobody's question.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Running {}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
struct Reason {
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    reason: String,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

/// Of what a kubelet says to a container that waits.
const LONGEST_WORDS: usize = 300;
const JOB_INDEX_LABEL: &str = "jobset.sigs.k8s.io/job-index";
const COMPLETION_INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";
/// Of the Job within a JobSet, and of the Indexed Job, which each of a JobSet's is too.
const RANK_LABELS: [&str; 2] = [JOB_INDEX_LABEL, COMPLETION_INDEX_LABEL];
/// By which Jobs, StatefulSets and Kubeflow number the pods that are alike.
const POD_INDEX_LABELS: [&str; 3] =
    [COMPLETION_INDEX_LABEL, "apps.kubernetes.io/pod-index", "training.kubeflow.org/replica-index"];

/// Each pod of one run with its number among its task's nodes. Those that are alike and that nobody numbers, as of a
/// Deployment, are numbered by name, those that failed last: others took their places.
pub fn numbered<P: Deref<Target = LogPod>>(mut pods: Vec<P>) -> Vec<(Option<u32>, P)> {
    pods.sort_by_cached_key(|pod| (pod.node_view().phase == NodePhase::Failed, pod.metadata.name.clone()));
    let mut next: HashMap<u32, u32> = HashMap::new();
    let mut number = |pod: &LogPod| {
        pod.rank().or_else(|| {
            let first = pod.first_node()?;
            let free = next.entry(first).or_insert(first);
            let number = (*free).min(pod.last_node().unwrap_or(first));
            *free = free.saturating_add(1);
            Some(number)
        })
    };
    pods.into_iter().map(|pod| (number(&pod), pod)).collect()
}

impl LogPod {
    pub fn task(&self) -> Option<TaskId> {
        TaskId::parse(self.metadata.labels.get(ID_LABEL)?)
    }

    /// The dispatch it belongs to.
    pub fn epoch(&self) -> Option<Epoch> {
        self.metadata.labels.get(EPOCH_LABEL)?.parse().ok()
    }

    /// Of the task's node that it is.
    pub fn rank(&self) -> Option<u32> {
        if let Some(rank) = self.number(NODE_LABEL) {
            return Some(rank);
        }
        if let Some(first) = self.first_node() {
            return first.checked_add(self.index_in_pod_set()?);
        }
        RANK_LABELS.iter().find_map(|label| self.number(label))
    }

    /// Of a pod of an AppWrapper: the number of the first of those that are alike.
    pub fn first_node(&self) -> Option<u32> {
        self.number(FIRST_NODE_LABEL)
    }

    /// And of the last.
    pub fn last_node(&self) -> Option<u32> {
        self.first_node()?.checked_add(self.number(NODES_LABEL)?.checked_sub(1)?)
    }

    /// `None` where its controller does not number its pods.
    fn index_in_pod_set(&self) -> Option<u32> {
        let Some(job) = self.number(JOB_INDEX_LABEL) else {
            return POD_INDEX_LABELS.iter().find_map(|label| self.number(label));
        };
        let of_job = self.number(NODES_OF_JOB_LABEL).unwrap_or(1);
        // Alone in its Job, it has the number of that.
        let within = if of_job == 1 { 0 } else { self.number(COMPLETION_INDEX_LABEL)? };
        job.checked_mul(of_job)?.checked_add(within)
    }

    fn number(&self, label: &str) -> Option<u32> {
        self.metadata.labels.get(label)?.parse().ok()
    }

    /// To read it by; its containers are for the caller to look at before.
    /// `place`: its number, where it has none of its own.
    pub fn of_task(&self, worker: &Worker, place: Option<u32>, containers: Vec<Container>) -> Option<Pod> {
        Some(Pod {
            node: self.rank().or(place)?,
            cluster: worker.name.clone(),
            connections: worker.logs.clone(),
            namespace: self.metadata.namespace.clone()?,
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
            containers,
        })
    }

    pub fn node_view(&self) -> NodeView {
        let mut containers = self.status.container_statuses.iter();
        let task = match self.status.container_statuses.as_slice() {
            // What a container of an AppWrapper is called is its owner's matter.
            [only] if self.first_node().is_some() => Some(only),
            _ => containers.find(|status| status.name == CONTAINER),
        };
        let ended = task.and_then(|status| {
            let terminated = status.state.as_ref()?.terminated.as_ref()?;
            Some((terminated.exit_code, terminated.reason.clone()))
        });
        let waits = || {
            let waiting = self.status.container_statuses.iter().find_map(|status| {
                let Reason { reason, message } = status.state.as_ref()?.waiting.as_ref()?;
                let words =
                    if message.is_empty() { reason.clone() } else { format!("{reason}: {}", clean(message)) };
                (!reason.is_empty()).then(|| words.chars().take(LONGEST_WORDS).collect())
            });
            waiting.unwrap_or_else(|| self.pending())
        };
        let (phase, reason) = match self.status.phase.as_str() {
            "Running" => (NodePhase::Running, None),
            "Succeeded" => (NodePhase::Succeeded, None),
            "Failed" => (NodePhase::Failed, Some(self.failure(ended.as_ref().map(|(_, reason)| reason)))),
            _ => (NodePhase::Starting, Some(waits())),
        };
        NodeView {
            phase,
            reason: reason.filter(|reason| !reason.is_empty()),
            pod: Some(self.metadata.name.clone()),
            exit_code: ended.map(|(code, _)| code),
        }
    }

    /// Whether the cluster ended it, and not its program.
    pub fn is_disrupted(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.kind == "DisruptionTarget" && condition.status == "True")
    }

    /// Why the scheduler has no node for it, in its words.
    pub fn unschedulable(&self) -> Option<&str> {
        let mut conditions = self.status.conditions.iter();
        let found = conditions.find(|condition| {
            condition.kind == "PodScheduled" && condition.status == "False" && !condition.message.is_empty()
        });
        found.map(|condition| condition.message.as_str())
    }

    fn failure(&self, of_container: Option<&String>) -> String {
        match of_container {
            _ if !self.status.reason.is_empty() => self.status.reason.clone(),
            Some(reason) => reason.clone(),
            None => String::new(),
        }
    }

    /// In the order of the pod's spec.
    pub fn containers(&self) -> Vec<Container> {
        let named = self.spec.containers.iter();
        named.map(|named| Container { name: named.name.clone(), state: self.state(&named.name) }).collect()
    }

    fn state(&self, container: &str) -> ContainerState {
        if matches!(self.status.phase.as_str(), "Succeeded" | "Failed") {
            return ContainerState::Ended;
        }
        let status = self.status.container_statuses.iter().find(|status| status.name == container);
        let state = status.and_then(|status| status.state.clone()).unwrap_or_default();
        let restarts = status.map_or(0, |status| status.restart_count);
        if let Some(terminated) = state.terminated {
            return self.after(&terminated);
        }
        if state.running.is_some() {
            return ContainerState::Running;
        }
        let reason = state.waiting.map(|waiting| waiting.reason).filter(|reason| !reason.is_empty());
        let reason = reason.unwrap_or_else(|| self.pending());
        if 0 < restarts { ContainerState::Between { reason } } else { ContainerState::Waiting { reason } }
    }

    fn after(&self, terminated: &Terminated) -> ContainerState {
        let again = match self.spec.restart_policy.as_str() {
            "Never" => false,
            "OnFailure" => terminated.exit_code != 0,
            _ => true,
        };
        if again {
            ContainerState::Between { reason: terminated.reason.clone() }
        } else {
            ContainerState::Ended
        }
    }

    /// Why it has not begun, in the scheduler's word if it has one.
    fn pending(&self) -> String {
        let unscheduled = |condition: &&Condition| {
            condition.kind == "PodScheduled" && condition.status == "False" && !condition.reason.is_empty()
        };
        let unscheduled = self.status.conditions.iter().find(unscheduled);
        unscheduled.map_or_else(|| "Pending".to_owned(), |condition| condition.reason.clone())
    }
}

impl Record for LogPod {
    fn key(&self) -> Key {
        (self.metadata.namespace.clone(), self.metadata.name.clone())
    }

    fn version(&self) -> u64 {
        self.metadata.resource_version.parse().unwrap_or(0)
    }

    /// By itself: one that is being deleted ends for that.
    fn is_end(&self) -> bool {
        !self.metadata.going && matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(policy: &str, status: &Value) -> ContainerState {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5"},
            "spec": {"containers": [{"name": "c"}], "restartPolicy": policy},
            "status": status,
        });
        let pod: LogPod = serde_json::from_value(pod).expect("a pod");
        pod.containers().remove(0).state
    }

    #[test]
    fn a_pod_of_a_job_set_has_the_rank_of_its_job() {
        let rank = |labels: &Value| {
            let pod = json!({
                "metadata": {"name": "p", "uid": "u", "resourceVersion": "5", "labels": labels}, "spec": {"containers": []},
            });
            serde_json::from_value::<LogPod>(pod).expect("a pod").rank()
        };
        let (job, index) = ("jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index");
        assert_eq!(rank(&json!({job: "2", index: "0"})), Some(2));
        assert_eq!(rank(&json!({index: "3"})), Some(3));
        assert_eq!(rank(&json!({"node-idx": "1"})), Some(1));
        assert_eq!(rank(&json!({})), None);
        let (first, of_job) = ("fedq.dev/first-node", "fedq.dev/nodes-of-job");
        assert_eq!(rank(&json!({first: "4", index: "2"})), Some(6));
        assert_eq!(rank(&json!({first: "4", job: "2", index: "0"})), Some(6));
        assert_eq!(rank(&json!({first: "4", of_job: "3", job: "1", index: "2"})), Some(9));
        assert_eq!(rank(&json!({first: "4"})), None, "of a Deployment nobody numbers them");
    }

    #[test]
    fn a_node_ends_as_its_task_does_whatever_else_is_in_its_pod() {
        let ended = |name: &str, code: i32, reason: &str| json!({"name": name, "state": {"terminated": {"exitCode": code, "reason": reason}}});
        let view = |phase: &str, statuses: &[Value]| {
            let pod = json!({
                "metadata": {"name": "p", "uid": "u", "resourceVersion": "5"}, "spec": {"containers": []},
                "status": {"phase": phase, "containerStatuses": statuses},
            });
            let view = serde_json::from_value::<LogPod>(pod).expect("a pod").node_view();
            (view.phase, view.exit_code, view.reason)
        };
        let (sidecar, task) = (ended("istio-proxy", 0, "Completed"), ended("task", 42, "Error"));
        for statuses in [[sidecar.clone(), task.clone()], [task, sidecar]] {
            assert_eq!(view("Failed", &statuses), (NodePhase::Failed, Some(42), Some("Error".to_owned())));
        }
        let killed = ended("a-sidecar", 137, "OOMKilled");
        assert_eq!(view("Running", std::slice::from_ref(&killed)), (NodePhase::Running, None, None));
        let well = [killed, ended("task", 0, "Completed")];
        assert_eq!(view("Failed", &well).1, Some(0), "what failed is not the task");
    }

    #[test]
    fn a_pods_status_says_whether_there_is_a_log() {
        let waiting = |reason: &str| ContainerState::Waiting { reason: reason.to_owned() };
        let between = |reason: &str| ContainerState::Between { reason: reason.to_owned() };
        let of = |state: Value, restarts: u32| json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": restarts, "state": state}]});
        assert_eq!(state("Never", &json!({})), waiting("Pending"));
        let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        assert_eq!(state("Never", &unscheduled), waiting("Unschedulable"));
        let creating = json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(state("Never", &of(creating, 0)), waiting("ContainerCreating"));
        assert_eq!(
            state("Never", &of(json!({"running": {"startedAt": "2026-11-21T07:00:00Z"}}), 0)),
            ContainerState::Running
        );
        let crash = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert_eq!(state("Always", &of(crash, 3)), between("CrashLoopBackOff"));
        let ended = |code: i32| of(json!({"terminated": {"exitCode": code, "reason": "Error"}}), 0);
        assert_eq!(state("Never", &ended(1)), ContainerState::Ended);
        assert_eq!(state("OnFailure", &ended(0)), ContainerState::Ended);
        assert_eq!(state("OnFailure", &ended(1)), between("Error"));
        assert_eq!(state("Always", &ended(0)), between("Error"));
        assert_eq!(state("Always", &json!({"phase": "Failed"})), ContainerState::Ended);
    }
}
