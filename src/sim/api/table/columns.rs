//! Which columns a kind has beside its name.

use std::borrow::Cow;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::super::super::kind::Kind;
use super::super::super::structure;
use super::duration;

pub(super) struct Column {
    pub title: Cow<'static, str>,
    pub kind: Cow<'static, str>,
    /// Only with `-o wide`.
    pub wide: bool,
    pub cell: Cell,
}

pub(super) enum Cell {
    At(Cow<'static, str>),
    Of(fn(&Value) -> Value),
}

const fn at(title: &'static str, kind: &'static str, path: &'static str) -> Column {
    let cell = Cell::At(Cow::Borrowed(path));
    Column { title: Cow::Borrowed(title), kind: Cow::Borrowed(kind), wide: false, cell }
}

const fn text(title: &'static str, path: &'static str) -> Column {
    at(title, "string", path)
}

const fn count(title: &'static str, path: &'static str) -> Column {
    at(title, "integer", path)
}

const fn of(title: &'static str, of: fn(&Value) -> Value) -> Column {
    let cell = Cell::Of(of);
    Column { title: Cow::Borrowed(title), kind: Cow::Borrowed("string"), wide: false, cell }
}

const fn wide(title: &'static str, path: &'static str) -> Column {
    let cell = Cell::At(Cow::Borrowed(path));
    Column { title: Cow::Borrowed(title), kind: Cow::Borrowed("string"), wide: true, cell }
}

const AGE: Column = at("Age", "date", ".metadata.creationTimestamp");
const CREATED_AT: Column = text("Created At", ".metadata.creationTimestamp");

const ONLY_AGE: &[Column] = &[AGE];
const NAMESPACE: &[Column] = &[text("Status", ".status.phase"), AGE];
const NODE: &[Column] = &[
    of("Status", node_status),
    of("Roles", node_roles),
    AGE,
    text("Version", ".status.nodeInfo.kubeletVersion"),
    wide("Internal-IP", ".status.addresses[?(@.type==\"InternalIP\")].address"),
    wide("OS-Image", ".status.nodeInfo.osImage"),
    wide("Kernel-Version", ".status.nodeInfo.kernelVersion"),
    wide("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion"),
];
const SECRET: &[Column] = &[text("Type", ".type"), of("Data", data), AGE];
const CONFIG_MAP: &[Column] = &[of("Data", data), AGE];
const POD: &[Column] = &[
    of("Ready", pod_ready),
    text("Status", ".status.phase"),
    of("Restarts", pod_restarts),
    AGE,
    wide("IP", ".status.podIP"),
    wide("Node", ".spec.nodeName"),
];
const CLAIM_OF_VOLUME: &[Column] = &[
    text("Status", ".status.phase"),
    text("Volume", ".spec.volumeName"),
    text("Capacity", ".status.capacity.storage"),
    text("StorageClass", ".spec.storageClassName"),
    AGE,
];
const EVENT: &[Column] = &[
    at("Last Seen", "date", ".metadata.creationTimestamp"),
    text("Type", ".type"),
    text("Reason", ".reason"),
    of("Object", event_object),
    of("Message", event_message),
];
const JOB: &[Column] =
    &[of("Status", job_status), of("Completions", job_completions), of("Duration", job_duration), AGE];
const DEPLOYMENT: &[Column] = &[
    of("Ready", deployment_ready),
    count("Up-to-date", ".status.updatedReplicas"),
    count("Available", ".status.availableReplicas"),
    AGE,
];
const LEASE: &[Column] = &[text("Holder", ".spec.holderIdentity"), AGE];
const ROLE: &[Column] = &[CREATED_AT];
const BINDING: &[Column] = &[of("Role", bound_role), AGE];
const PRIORITY_CLASS: &[Column] = &[
    count("Value", ".value"),
    text("Global-Default", ".globalDefault"),
    AGE,
    text("PreemptionPolicy", ".preemptionPolicy"),
];
const WEBHOOKS: &[Column] = &[of("Webhooks", webhooks), AGE];

// Kinds of Kueue, as its definitions have them.
const CLUSTER_QUEUE: &[Column] = &[
    text("Cohort", ".spec.cohortName"),
    wide("Strategy", ".spec.queueingStrategy"),
    count("Pending Workloads", ".status.pendingWorkloads"),
    wide("Admitted Workloads", ".status.admittedWorkloads"),
];
const LOCAL_QUEUE: &[Column] = &[
    text("ClusterQueue", ".spec.clusterQueue"),
    count("Pending Workloads", ".status.pendingWorkloads"),
    count("Admitted Workloads", ".status.admittedWorkloads"),
];
const WORKLOAD: &[Column] = &[
    text("Queue", ".spec.queueName"),
    text("Reserved in", ".status.admission.clusterQueue"),
    text("Admitted", ".status.conditions[?(@.type=='Admitted')].status"),
    text("Finished", ".status.conditions[?(@.type=='Finished')].status"),
    AGE,
];
const WORKER: &[Column] = &[text("Connected", ".status.conditions[?(@.type=='Active')].status"), AGE];
const WORKLOAD_PRIORITY: &[Column] = &[count("Value", ".value")];

static CLAIM: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let definition = structure::claim_definition();
    let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
    columns.into_iter().flatten().map(defined).collect()
});

fn defined(column: &Value) -> Column {
    let text = |field: &str| Cow::Owned(column[field].as_str().unwrap_or_default().to_owned());
    Column {
        title: text("name"),
        kind: text("type"),
        wide: column["priority"].as_u64().is_some_and(|priority| 0 < priority),
        cell: Cell::At(text("jsonPath")),
    }
}

pub(super) fn all(kind: &Kind) -> &'static [Column] {
    match kind.kind {
        "Namespace" => NAMESPACE,
        "Node" => NODE,
        "Secret" => SECRET,
        "ConfigMap" => CONFIG_MAP,
        "Pod" => POD,
        "PersistentVolumeClaim" => CLAIM_OF_VOLUME,
        "Event" => EVENT,
        "Job" => JOB,
        "Deployment" => DEPLOYMENT,
        "Lease" => LEASE,
        "Role" | "ClusterRole" | "CustomResourceDefinition" => ROLE,
        "RoleBinding" | "ClusterRoleBinding" => BINDING,
        "PriorityClass" => PRIORITY_CLASS,
        "ValidatingWebhookConfiguration" => WEBHOOKS,
        "ClusterQueue" => CLUSTER_QUEUE,
        "LocalQueue" => LOCAL_QUEUE,
        "Workload" => WORKLOAD,
        "MultiKueueCluster" => WORKER,
        "WorkloadPriorityClass" => WORKLOAD_PRIORITY,
        "ClusterResourceClaim" => &CLAIM,
        _ => ONLY_AGE,
    }
}

fn node_status(node: &Value) -> Value {
    let ready = super::at(node, ".status.conditions[?(@.type==\"Ready\")].status");
    let ready = match ready.as_str() {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let closed = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    json!(format!("{ready}{closed}"))
}

fn node_roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<&str> =
        labels.filter_map(|(name, _)| name.strip_prefix("node-role.kubernetes.io/")).collect();
    json!(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") })
}

fn data(object: &Value) -> Value {
    let size = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
    json!(size("data") + size("binaryData"))
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["containerStatuses"].as_array().into_iter().flatten()
}

fn pod_ready(pod: &Value) -> Value {
    let ready = containers(pod).filter(|container| container["ready"] == true).count();
    json!(format!("{ready}/{}", pod["spec"]["containers"].as_array().map_or(0, Vec::len)))
}

fn pod_restarts(pod: &Value) -> Value {
    let restarts = containers(pod).filter_map(|container| container["restartCount"].as_u64());
    json!(restarts.sum::<u64>().to_string())
}

fn event_object(event: &Value) -> Value {
    let object =
        [&event["regarding"], &event["involvedObject"]].into_iter().find(|object| object.is_object());
    let text = |field: &str| object.and_then(|object| object[field].as_str()).unwrap_or_default();
    json!(format!("{}/{}", text("kind").to_lowercase(), text("name")))
}

fn event_message(event: &Value) -> Value {
    [&event["note"], &event["message"]].into_iter().find(|text| text.is_string()).cloned().unwrap_or_default()
}

fn job_status(job: &Value) -> Value {
    let holds =
        |kind: &str| super::at(job, &format!(".status.conditions[?(@.type=={kind})].status")) == "True";
    let known = [("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")];
    let found = known.into_iter().find(|(kind, _)| holds(kind));
    json!(found.map_or("Running", |(_, status)| status))
}

fn job_completions(job: &Value) -> Value {
    let succeeded = job["status"]["succeeded"].as_u64().unwrap_or_default();
    let wanted = job["spec"]["completions"].as_u64().or_else(|| job["spec"]["parallelism"].as_u64());
    json!(format!("{succeeded}/{}", wanted.unwrap_or(1)))
}

fn job_duration(job: &Value) -> Value {
    let time = |field: &str| {
        let text = job["status"][field].as_str();
        text.and_then(|text| text.parse::<jiff::Timestamp>().ok()).map(jiff::Timestamp::as_second)
    };
    match (time("startTime"), time("completionTime")) {
        (Some(start), Some(end)) => json!(duration(end - start)),
        _ => json!(""),
    }
}

fn deployment_ready(deployment: &Value) -> Value {
    let ready = deployment["status"]["readyReplicas"].as_u64().unwrap_or_default();
    json!(format!("{ready}/{}", deployment["spec"]["replicas"].as_u64().unwrap_or(1)))
}

fn bound_role(binding: &Value) -> Value {
    let text = |field: &str| binding["roleRef"][field].as_str().unwrap_or_default().to_owned();
    json!(format!("{}/{}", text("kind"), text("name")))
}

fn webhooks(configuration: &Value) -> Value {
    json!(configuration["webhooks"].as_array().map_or(0, Vec::len))
}
