//! What a GPU node of a managed cluster looks like in full: eight H100s, labels and conditions of the
//! provider, managed fields; invented text of a real node's size.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Encoding,
    look::{CORDONED, Look, NOT_READY, TAINTED},
    render::{
        BEAT, BOOT, BORN, Body, CHANGED, CLUSTER, INDEX, INSTANCE, MACHINE, OCTETS, SYSTEM, UID, VERSION,
    },
};

use crate::draw::mix;

/// Bodies of one size, in each look and encoding. To be shared by all herds.
#[derive(Debug)]
pub struct Template {
    json: Vec<Body>,
    protobuf: Vec<Body>,
}

impl Template {
    /// 6.9 kB in JSON: what a kubelet reports with `nodeStatusMaxImages: 0`.
    pub fn small() -> Self {
        Self::new(0)
    }

    /// 16.5 kB in JSON: with the 50 images that a kubelet names.
    pub fn large() -> Self {
        Self::new(50)
    }

    fn new(images: usize) -> Self {
        let nodes: Vec<_> = Look::all().map(|look| node(look, images)).collect();
        debug_assert_eq!(nodes.len(), Look::COUNT);
        let bodies = |encoding| nodes.iter().map(|node| Body::new(encoding, node)).collect();
        Self { json: bodies(Encoding::Json), protobuf: bodies(Encoding::Protobuf) }
    }

    pub(super) fn body(&self, encoding: Encoding, look: Look) -> &Body {
        match encoding {
            Encoding::Json => &self.json[look.place()],
            Encoding::Protobuf => &self.protobuf[look.place()],
        }
    }
}

const ACCELERATOR: &str = "nvidia-h100-80gb";
const MACHINE_TYPE: &str = "a3-highgpu-8g";
const ZONE: &str = "example-west4-a";

/// The node with what stands for its holes.
fn node(look: Look, images: usize) -> Value {
    let metadata = json!({
        "name": name(),
        "uid": UID,
        "resourceVersion": VERSION,
        "creationTimestamp": BORN,
        "labels": labels(),
        "annotations": annotations(),
        "managedFields": managed_fields(images),
    });
    json!({ "metadata": metadata, "spec": spec(look), "status": status(look, images) })
}

fn name() -> String {
    format!("gke-{CLUSTER}-a3-{INDEX}")
}

/// As labels and as the annotation that repeats them.
fn provider_labels() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("cloud.google.com/gke-accelerator", ACCELERATOR),
        ("cloud.google.com/gke-boot-disk", "pd-ssd"),
        ("cloud.google.com/gke-container-runtime", "containerd"),
        ("cloud.google.com/gke-gpu-driver-version", "latest"),
        ("cloud.google.com/gke-logging-variant", "DEFAULT"),
        ("cloud.google.com/gke-max-pods-per-node", "110"),
        ("cloud.google.com/gke-memory-gb-scaling-level", "1872"),
        ("cloud.google.com/gke-nodepool", "a3"),
        ("cloud.google.com/gke-os-distribution", "cos"),
        ("cloud.google.com/gke-provisioning", "standard"),
        ("cloud.google.com/machine-family", "a3"),
    ])
}

fn labels() -> Value {
    let name = name();
    let mut labels = provider_labels();
    labels.extend([
        ("beta.kubernetes.io/instance-type", MACHINE_TYPE),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("kubernetes.io/hostname", &name),
        ("kubernetes.io/os", "linux"),
        ("node.kubernetes.io/instance-type", MACHINE_TYPE),
        ("topology.gke.io/zone", ZONE),
        ("topology.kubernetes.io/region", "example-west4"),
        ("topology.kubernetes.io/zone", ZONE),
    ]);
    json!(labels)
}

fn annotations() -> Value {
    let applied: Vec<_> = provider_labels().iter().map(|(key, value)| format!("{key}={value}")).collect();
    json!({
        "container.googleapis.com/instance_id": INSTANCE,
        "csi.volume.kubernetes.io/nodeid": format!(
            r#"{{"pd.csi.storage.gke.io":"projects/example-training/zones/{ZONE}/instances/{}"}}"#,
            name()
        ),
        "node.alpha.kubernetes.io/ttl": "300",
        "node.gke.io/last-applied-node-labels": applied.join(","),
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    })
}

/// Condition, status when all is well, reason, message. The first four are the kubelet's, the others a
/// problem detector's.
const CONDITIONS: [(&str, &str, &str, &str); 8] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ("KernelDeadlock", "False", "KernelHasNoDeadlock", "kernel has no deadlock"),
    ("ReadonlyFilesystem", "False", "FilesystemIsNotReadOnly", "Filesystem is not read-only"),
    (
        "FrequentContainerdRestart",
        "False",
        "NoFrequentContainerdRestart",
        "containerd is functioning properly",
    ),
    ("NetworkUnavailable", "False", "RouteCreated", "NodeController create implicit route"),
];
const KUBELETS: usize = 4;

fn managed_fields(images: usize) -> Value {
    let owned = |names: &[&str]| -> Value {
        names
            .iter()
            .map(|name| (if *name == "." { ".".to_owned() } else { format!("f:{name}") }, json!({})))
            .collect()
    };
    let entry = |manager: &str, time: &str, fields: Value, subresource: &str| {
        let mut entry = json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        if !subresource.is_empty() {
            entry["subresource"] = subresource.into();
        }
        entry
    };
    let conditions = |kinds: &[(&str, &str, &str, &str)], whole: bool| -> Value {
        let fields: &[&str] = if whole {
            &["lastHeartbeatTime", "lastTransitionTime", "message", "reason", "status", "type"]
        } else {
            &["lastHeartbeatTime", "lastTransitionTime", "message", "reason", "status"]
        };
        let list = kinds.iter().map(|(kind, ..)| (format!("k:{{\"type\":\"{kind}\"}}"), owned(fields)));
        list.collect()
    };
    let mut kubelet = json!({
        "f:allocatable": owned(&["cpu", "ephemeral-storage", "memory", "nvidia.com/gpu"]),
        "f:capacity": owned(&["cpu", "ephemeral-storage", "memory", "nvidia.com/gpu"]),
        "f:conditions": conditions(&CONDITIONS[..KUBELETS], false),
    });
    if images != 0 {
        kubelet["f:images"] = json!({});
    }
    let labels = labels();
    let labels: Vec<&str> =
        labels.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).take(5).collect();
    let registered = json!({
        "f:metadata": {
            "f:annotations": owned(&[".", "volumes.kubernetes.io/controller-managed-attach-detach"]),
            "f:labels": owned(&labels),
        },
        "f:spec": owned(&["providerID"]),
    });
    let routed =
        json!({ "f:spec": { "f:podCIDR": {}, "f:podCIDRs": { ".": {}, "v:\"10.PPP.PPP.0/24\"": {} } } });
    // In the order of servers, by time and name: a write of something else must find nothing to put right here.
    json!([
        entry("kube-controller-manager", BORN, routed, ""),
        entry("kubelet", BORN, registered, ""),
        entry("kubelet", BEAT, json!({ "f:status": kubelet }), "status"),
        entry(
            "node-problem-detector",
            BEAT,
            json!({ "f:status": { "f:conditions": conditions(&CONDITIONS[KUBELETS..], true) } }),
            "status"
        ),
    ])
}

fn spec(look: Look) -> Value {
    let mut taints = Vec::new();
    if look.has(TAINTED) {
        taints.push(json!({ "key": "maintenance", "value": "planned", "effect": "NoSchedule" }));
    }
    if look.has(NOT_READY) {
        for effect in ["NoSchedule", "NoExecute"] {
            taints.push(
                json!({ "key": "node.kubernetes.io/not-ready", "effect": effect, "timeAdded": CHANGED }),
            );
        }
    }
    let cidr = format!("10.{OCTETS}.0/24");
    let mut spec = json!({
        "podCIDR": cidr,
        "podCIDRs": [cidr],
        "providerID": format!("gce://example-training/{ZONE}/{}", name()),
    });
    if look.has(CORDONED) {
        spec["unschedulable"] = true.into();
        taints.push(json!({
            "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": CHANGED,
        }));
    }
    if !taints.is_empty() {
        spec["taints"] = taints.into();
    }
    spec
}

fn status(look: Look, images: usize) -> Value {
    let resources = |cpu: &str, storage: &str, memory: &str| {
        json!({
            "cpu": cpu, "ephemeral-storage": storage, "hugepages-2Mi": "0",
            "memory": memory, "nvidia.com/gpu": look.gpus.count().to_string(), "pods": "110",
        })
    };
    let condition = |(kind, status, reason, message): &(&str, &str, &str, &str)| {
        let mut condition = json!({
            "type": kind, "status": status, "lastHeartbeatTime": BEAT, "lastTransitionTime": BORN,
            "reason": reason, "message": message,
        });
        if *kind == "Ready" {
            condition["lastTransitionTime"] = CHANGED.into();
        }
        if *kind == "Ready" && look.has(NOT_READY) {
            condition["status"] = "False".into();
            condition["reason"] = "KubeletNotReady".into();
            condition["message"] = "container runtime is down".into();
        }
        condition
    };
    let mut status = json!({
        "capacity": resources("208", "6339205792Ki", "1932496484Ki"),
        "allocatable": resources("206220m", "5829461396829", "1852313188Ki"),
        "conditions": CONDITIONS.iter().map(condition).collect::<Vec<_>>(),
        "addresses": [
            { "type": "InternalIP", "address": format!("172.{OCTETS}.2") },
            { "type": "Hostname", "address": name() },
        ],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        "nodeInfo": {
            "machineID": MACHINE, "systemUUID": SYSTEM, "bootID": BOOT, "kernelVersion": "6.6.93+",
            "osImage": "Container-Optimized OS", "containerRuntimeVersion": "containerd://2.0.6",
            "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux",
            "architecture": "amd64",
        },
    });
    if images != 0 {
        status["images"] = (0..images).map(image).collect();
    }
    status
}

fn image(i: usize) -> Value {
    const TEAMS: [&str; 5] = ["training", "serving", "platform", "data", "evaluation"];
    let name = format!("registry.example.com/{}/work-{i:02}", TEAMS[i % TEAMS.len()]);
    let digest = [0, 1, 2, 3].map(|part| format!("{:016x}", mix((i * 4 + part) as u64))).concat();
    json!({ "names": [format!("{name}@sha256:{digest}"), format!("{name}:v1.{i}.0")], "sizeBytes": 9_876_543_210_u64 / (1 + i as u64) })
}
