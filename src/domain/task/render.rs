//! The objects of a task, exactly as they are sent to its cluster.
//!
//! Three forms, and what is handed in as an AppWrapper. One node, or no queue: a Job for each node, as k8s-cli makes them. Several nodes in a
//! queue: one object, so that Kueue admits all of them or none, a JobSet where the cluster has them,
//! else an Indexed Job. Who asks for it has the Job of either in an AppWrapper. Labels are the same in all forms; status, stop and logs go by them, never by names.

mod pod;
mod script;

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{Timestamp, tz::TimeZone};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use fedq_wrapped::{
    names::{KIND, USER_ID_LABEL, USER_LABEL, annotation::RETRY_LIMIT},
    validate::label_value,
};

pub use self::pod::{HOST_NETWORK_DNS, SHARED_MEMORY_PATH};
use super::{
    choose::Placement,
    names::{TaskId, node_name, object_name, task_label, user_label},
    phase::Epoch,
    sky::is_reserved,
    spec::{Candidate, Secrets, TaskSpec},
    upload::{Piece, Upload, pieces},
    wrapped::API_VERSION,
};
use crate::queue::objects::{HUB_LABEL, MANAGED_BY, MANAGED_BY_FEDQ};

/// What an older or newer dispatch of the task does not carry.
pub const EPOCH_LABEL: &str = "fedq.dev/epoch";
/// The task's name and owner as they are, which labels cannot always say.
pub const NAME_ANNOTATION: &str = "fedq.dev/task-name";
pub const OWNER_ANNOTATION: &str = "fedq.dev/owner";
pub const TASK_LABEL: &str = "skypilot-task";
pub const ID_LABEL: &str = "task-id";
pub const NODE_LABEL: &str = "node-idx";
/// The container that runs the task: what else is in its pods, as of a service mesh, was put there by others.
pub const CONTAINER: &str = "task";
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
pub const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";
/// The reason why a Job failed whose pod was drained, preempted or lost, and of a JobSet that has such a Job.
pub const POD_FAILURE_POLICY: &str = "PodFailurePolicy";
pub const FAIL_JOB_SET: &str = "FailJobSetFailurePolicyAction";
/// So named, its jobs are called `<task>-node-<rank>`, as k8s-cli's are.
const REPLICATED_JOB: &str = "node";

/// The form of a task's objects.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Gang {
    /// A Job for each node. Each is a Workload of its own.
    PerNode,
    Indexed,
    JobSet,
    /// What was handed in, as it is; or a Job in one.
    AppWrapper,
    /// The one Job of what was handed in.
    Unwrapped,
}

impl Gang {
    /// The form that makes one Workload of one task.
    pub fn auto(num_nodes: u32, queued: bool, has_jobsets: bool) -> Self {
        match (num_nodes, queued, has_jobsets) {
            (1, ..) | (_, false, _) => Self::PerNode,
            (_, true, true) => Self::JobSet,
            (_, true, false) => Self::Indexed,
        }
    }
}

/// What a tenant's tasks get.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tenant {
    pub namespace: String,
    pub service_account: Option<String>,
}

/// Everything that the objects are made of.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    pub id: &'a TaskId,
    pub epoch: Epoch,
    pub hub_id: &'a str,
    /// Who submitted it, as the hub knows them.
    pub owner: &'a str,
    pub submitted: Timestamp,
    pub spec: &'a TaskSpec,
    /// The values of all its `secrets`.
    pub secrets: &'a Secrets,
    /// The archives of all its `uploads`; none where only Jobs are asked for.
    pub uploads: &'a [Vec<u8>],
    pub placement: &'a Placement,
    pub gang: Gang,
    pub tenant: &'a Tenant,
    pub priority_class: Option<&'a str>,
    /// The object goes to the hub, where MultiKueue dispatches it.
    pub by_multikueue: bool,
    pub default_image: &'a str,
}

/// The Jobs or the JobSet come last; what stands before them is to be made theirs, so that it goes with them.
pub fn render(order: &Order<'_>) -> Vec<Value> {
    let mut objects = Vec::new();
    objects.extend(order.secret());
    objects.extend(order.upload_secrets());
    if order.has_own_service() {
        objects.push(order.service());
    }
    match order.gang {
        Gang::PerNode => objects.extend((0..order.spec.num_nodes).map(|rank| order.node_job(rank))),
        Gang::Indexed => objects.push(order.indexed_job()),
        Gang::JobSet => objects.push(order.job_set()),
        Gang::AppWrapper => objects.push(order.app_wrapper()),
        Gang::Unwrapped => objects.extend(order.unwrapped_job()),
    }
    objects
}

/// Whether its nodes find each other by a Service that fedq makes: of JobSets, and of what was handed in, that is their own
/// matter.
pub fn needs_service(gang: Gang, spec: &TaskSpec) -> bool {
    let of_form = match gang {
        Gang::PerNode | Gang::Indexed => true,
        Gang::AppWrapper => spec.wrapped.is_none(),
        Gang::JobSet | Gang::Unwrapped => false,
    };
    of_form && 1 < spec.num_nodes
}

/// The names of a task's Jobs, or of its JobSet.
pub fn main_names(gang: Gang, object: &str, num_nodes: u32) -> Vec<String> {
    match gang {
        Gang::PerNode => (0..num_nodes).map(|rank| node_name(object, rank, num_nodes)).collect(),
        Gang::Indexed | Gang::JobSet | Gang::AppWrapper | Gang::Unwrapped => vec![object.to_owned()],
    }
}

/// Whether a name is one of those that a task's Jobs, or its JobSet, have in some form.
pub fn is_main_name(name: &str, object: &str, num_nodes: u32) -> bool {
    let Some(rest) = name.strip_prefix(object) else { return false };
    let rank = rest.strip_prefix("-node-").and_then(|rank| rank.parse().ok());
    rest.is_empty()
        || rank.is_some_and(|rank: u32| rank < num_nodes && node_name(object, rank, num_nodes) == name)
}

/// The names of the Secrets that hold what a task brings along.
pub fn upload_secret_names(object: &str, uploads: &[Upload]) -> Vec<String> {
    (0..pieces(uploads).len()).map(|number| format!("{object}-files-{number}")).collect()
}

/// Whether a rendered object is one of its Jobs, or its JobSet.
pub fn is_main(object: &Value) -> bool {
    matches!(object["kind"].as_str(), Some("Job" | "JobSet" | "AppWrapper"))
}

impl Order<'_> {
    pub fn object_name(&self) -> String {
        object_name(self.spec.name.as_deref(), self.id, self.spec.num_nodes)
    }

    fn candidate(&self) -> &Candidate {
        &self.spec.candidates[self.placement.candidate]
    }

    fn has_own_service(&self) -> bool {
        needs_service(self.gang, self.spec)
    }

    fn secret_name(&self) -> Option<String> {
        (!self.spec.secrets.is_empty()).then(|| format!("{}-env", self.object_name()))
    }

    /// On everything that belongs to the task; `rank`: of a Job for one node.
    fn own_labels(&self, rank: Option<u32>) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            (TASK_LABEL.to_owned(), "true".to_owned()),
            (ID_LABEL.to_owned(), self.id.to_string()),
            ("username".to_owned(), user_label(self.owner)),
            (HUB_LABEL.to_owned(), self.hub_id.to_owned()),
            (EPOCH_LABEL.to_owned(), self.epoch.to_string()),
        ]);
        labels.extend(rank.map(|rank| (NODE_LABEL.to_owned(), rank.to_string())));
        labels
    }

    fn labels(&self, rank: Option<u32>) -> BTreeMap<String, String> {
        let mut labels = self.own_labels(rank);
        let name = self.spec.name.as_deref().map_or_else(|| format!("task-{}", self.id), task_label);
        labels.insert("task-name".to_owned(), name);
        labels.insert(MANAGED_BY.to_owned(), MANAGED_BY_FEDQ.to_owned());
        labels
    }

    fn pod_labels(&self, rank: Option<u32>) -> BTreeMap<String, String> {
        let mut labels = self.spec.pod.labels.clone();
        labels.extend(self.candidate().labels.clone());
        labels.extend(self.own_labels(rank));
        labels
    }

    /// Of the object that Kueue makes a Workload of.
    fn queue_labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([(QUEUE_LABEL.to_owned(), self.placement.queue.clone())]);
        labels.extend(self.priority_class.map(|class| (PRIORITY_LABEL.to_owned(), class.to_owned())));
        labels
    }

    fn metadata(&self, name: &str, labels: &BTreeMap<String, String>) -> Value {
        let mut annotations = json!({
            "created-at": naive(self.submitted),
            "num-nodes": self.spec.num_nodes.to_string(),
            OWNER_ANNOTATION: self.owner,
        });
        if let Some(name) = &self.spec.name {
            annotations[NAME_ANNOTATION] = json!(name);
        }
        json!({
            "name": name,
            "namespace": self.tenant.namespace,
            "labels": labels,
            "annotations": annotations,
        })
    }

    /// Of the task's object, with what people wrote there.
    fn annotated(&self, labels: &BTreeMap<String, String>, theirs: BTreeMap<String, String>) -> Value {
        let mut metadata = self.metadata(&self.object_name(), labels);
        if let Some(annotations) = metadata["annotations"].as_object_mut() {
            for (key, value) in theirs {
                annotations.entry(key).or_insert(value.into());
            }
        }
        metadata
    }

    fn queued(&self, rank: Option<u32>) -> BTreeMap<String, String> {
        let mut labels = self.labels(rank);
        labels.extend(self.queue_labels());
        labels
    }

    fn secret(&self) -> Option<Value> {
        let name = self.secret_name()?;
        let values: Map<String, Value> =
            self.secrets.reveal().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        Some(json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self.metadata(&name, &self.labels(None)),
            "immutable": true,
            "stringData": values,
        }))
    }

    /// Secrets and not ConfigMaps: what people send may be anybody's secret, and fedq may make no other.
    fn upload_secrets(&self) -> Vec<Value> {
        if self.uploads.len() != self.spec.uploads.len() {
            return Vec::new();
        }
        let names = upload_secret_names(&self.object_name(), &self.spec.uploads);
        let secret = |(name, held): (String, Vec<Piece>)| {
            let data: Map<String, Value> = held
                .into_iter()
                .map(|Piece { upload, bytes, key }| {
                    let bytes = self.uploads[upload].get(bytes).unwrap_or_default();
                    (key, BASE64_STANDARD.encode(bytes).into())
                })
                .collect();
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": self.metadata(&name, &self.labels(None)),
                "immutable": true,
                "data": data,
            })
        };
        names.into_iter().zip(pieces(&self.spec.uploads)).map(secret).collect()
    }

    /// Gives each node a name that the others find before it is ready.
    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": self.metadata(&self.object_name(), &self.labels(None)),
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": true,
                "selector": {ID_LABEL: self.id.as_str(), HUB_LABEL: self.hub_id},
            },
        })
    }

    fn node_job(&self, rank: u32) -> Value {
        let name = node_name(&self.object_name(), rank, self.spec.num_nodes);
        let mut spec = json!({
            "backoffLimit": 0,
            "podFailurePolicy": tells_disruption(),
            "template": self.template(Some(rank), pod::Rank::Fixed(rank)),
        });
        self.suspend(&mut spec);
        if self.has_own_service() {
            spec["template"]["spec"]["hostname"] = json!(name);
        }
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.metadata(&name, &self.queued(Some(rank))),
            "spec": spec,
        })
    }

    /// One failure ends all ranks, as with SkyPilot: the others wait for that one forever.
    fn indexed_job(&self) -> Value {
        let mut spec = json!({
            "backoffLimit": 0,
            "podFailurePolicy": tells_disruption(),
            "completionMode": "Indexed",
            "completions": self.spec.num_nodes,
            "parallelism": self.spec.num_nodes,
            "template": self.template(None, pod::Rank::CompletionIndex),
        });
        self.suspend(&mut spec);
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self.metadata(&self.object_name(), &self.queued(None)),
            "spec": spec,
        })
    }

    fn job_set(&self) -> Value {
        let mut spec = json!({
            "failurePolicy": {
                "maxRestarts": 0,
                // Its condition says of no other end which of its Jobs failed for what.
                "rules": [{
                    "name": "disruption", "action": "FailJobSet", "onJobFailureReasons": [POD_FAILURE_POLICY],
                }],
            },
            "network": {"enableDNSHostnames": true, "publishNotReadyAddresses": true},
            "replicatedJobs": [{
                "name": REPLICATED_JOB,
                "replicas": self.spec.num_nodes,
                "template": {
                    "metadata": {"labels": self.labels(None)},
                    "spec": {
                        "backoffLimit": 0,
                        "podFailurePolicy": tells_disruption(),
                        "completions": 1,
                        "parallelism": 1,
                        "template": self.template(None, pod::Rank::JobIndex),
                    },
                },
            }],
        });
        self.suspend(&mut spec);
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": self.metadata(&self.object_name(), &self.queued(None)),
            "spec": spec,
        })
    }

    /// Found and queued as a task is. The labels of its user are for whoever looks: upstream's webhook puts fedq's own account
    /// there, ours does not where that may name users.
    fn app_wrapper(&self) -> Value {
        let (mut labels, annotations, components) = if let Some(wrapped) = &self.spec.wrapped {
            let mut labels = wrapped.labels.clone();
            let user_id = wrapped.user_id.as_deref().unwrap_or_default();
            labels.insert(USER_ID_LABEL.to_owned(), label_value(user_id));
            (labels, wrapped.annotations.clone(), json!(wrapped.labelled(&self.own_labels(None))))
        } else {
            // Programs that fail are fedq's to start again, as with every task.
            let annotations = BTreeMap::from([(RETRY_LIMIT.to_owned(), "0".to_owned())]);
            (BTreeMap::new(), annotations, json!([{"template": self.wrapped_job()}]))
        };
        labels.extend(self.queued(None));
        labels.insert(USER_LABEL.to_owned(), label_value(self.owner));
        let metadata = self.annotated(&labels, annotations);
        let mut spec = json!({"components": components});
        self.suspend(&mut spec);
        json!({"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec})
    }

    /// The AppWrapper has its turn, and the labels by which tasks are found.
    fn wrapped_job(&self) -> Value {
        let mut job = if self.spec.num_nodes == 1 { self.node_job(0) } else { self.indexed_job() };
        job["metadata"] = json!({"name": self.object_name()});
        if let Some(spec) = job["spec"].as_object_mut() {
            spec.remove("suspend");
            spec.remove("managedBy");
        }
        job
    }

    fn unwrapped_job(&self) -> Option<Value> {
        let wrapped = self.spec.wrapped.as_ref()?;
        wrapped.only_job()?;
        let mut job = wrapped.labelled(&self.own_labels(None)).into_iter().next()?.template;
        // Within an AppWrapper they mean nothing to Kueue, nor to fedq.
        let own = |field: &str| -> BTreeMap<String, String> {
            let all: BTreeMap<String, String> =
                serde_json::from_value(job["metadata"][field].clone()).unwrap_or_default();
            all.into_iter().filter(|(key, _)| !is_reserved(key)).collect()
        };
        let mut labels = wrapped.labels.clone();
        labels.extend(own("labels"));
        labels.extend(self.queued(None));
        job["metadata"] = self.annotated(&labels, own("annotations"));
        if let Some(spec) = job["spec"].as_object_mut() {
            spec.remove("managedBy");
            // It goes when fedq has seen how it ended.
            spec.remove("ttlSecondsAfterFinished");
        }
        self.suspend(&mut job["spec"]);
        Some(job)
    }

    /// Kueue's webhook would do both; without it, nothing runs before its turn either.
    fn suspend(&self, spec: &mut Value) {
        spec["suspend"] = json!(true);
        if self.by_multikueue {
            spec["managedBy"] = json!(MULTIKUEUE);
        }
    }

    /// By which the nodes find each other, a line a rank; one node needs none.
    fn host_names(&self) -> Option<String> {
        if self.spec.num_nodes == 1 {
            return None;
        }
        let name = self.object_name();
        let host = |rank: u32| match self.gang {
            Gang::PerNode => format!("{name}-node-{rank}.{name}"),
            Gang::Indexed | Gang::AppWrapper => format!("{name}-{rank}.{name}"),
            Gang::JobSet => format!("{name}-{REPLICATED_JOB}-{rank}-0.{name}"),
            // What was handed in is no script that could ask.
            Gang::Unwrapped => name.clone(),
        };
        Some((0..self.spec.num_nodes).map(host).collect::<Vec<_>>().join("\n"))
    }
}

/// A Job has to say itself that its cluster ended it: of a pod that was evicted nothing is left once the Job has failed.
/// No other rule may end with this action, or its reason would say nothing.
fn tells_disruption() -> Value {
    json!({"rules": [{
        "action": "FailJob",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }]})
}

/// As Python's `datetime.utcnow().isoformat()` writes it, which is what k8s-cli reads.
pub fn naive(at: Timestamp) -> String {
    let local = at.to_zoned(TimeZone::UTC).datetime();
    if local.subsec_nanosecond() / 1000 == 0 {
        local.strftime("%Y-%m-%dT%H:%M:%S").to_string()
    } else {
        local.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string()
    }
}

#[cfg(test)]
mod tests;
