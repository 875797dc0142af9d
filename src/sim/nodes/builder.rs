//! A plain node, for those who need few.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// A ready node of 8 cpus and 32Gi without GPUs, to be changed.
pub fn node(name: &str) -> NodeBuilder {
    let resources = [("cpu", "8"), ("ephemeral-storage", "100Gi"), ("memory", "32Gi"), ("pods", "110")];
    let labels =
        [("kubernetes.io/arch", "amd64"), ("kubernetes.io/hostname", name), ("kubernetes.io/os", "linux")];
    let owned = |(key, value): (&str, &str)| (key.to_owned(), Value::from(value));
    NodeBuilder {
        name: name.to_owned(),
        labels: labels.map(owned).into_iter().collect(),
        resources: resources.map(owned).into_iter().collect(),
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
    }
}

#[derive(Clone, Debug)]
pub struct NodeBuilder {
    name: String,
    labels: Map<String, Value>,
    resources: Map<String, Value>,
    taints: Vec<Value>,
    unschedulable: bool,
    ready: bool,
}

impl NodeBuilder {
    pub fn gpus(self, count: u32) -> Self {
        self.resource("nvidia.com/gpu", &count.to_string())
    }

    pub fn cpu(self, quantity: &str) -> Self {
        self.resource("cpu", quantity)
    }

    pub fn memory(self, quantity: &str) -> Self {
        self.resource("memory", quantity)
    }

    /// As capacity and as allocatable.
    pub fn resource(mut self, name: &str, quantity: &str) -> Self {
        self.resources.insert(name.to_owned(), quantity.into());
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.into());
        self
    }

    /// `effect` is NoSchedule, PreferNoSchedule or NoExecute.
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({ "key": key, "value": value, "effect": effect }));
        self
    }

    pub fn cordoned(mut self) -> Self {
        self.unschedulable = true;
        self
    }

    pub fn not_ready(mut self) -> Self {
        self.ready = false;
        self
    }

    /// The node as its kubelet reported it at `now`.
    pub fn build(self, now: Timestamp) -> Value {
        let now = Timestamp::from_second(now.as_second()).expect("whole seconds of a time are in range");
        let now = now.to_string();
        let mut spec = json!({ "providerID": format!("sim:///{}", self.name) });
        if self.unschedulable {
            spec["unschedulable"] = true.into();
        }
        if !self.taints.is_empty() {
            spec["taints"] = self.taints.into();
        }
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": status, "lastHeartbeatTime": now, "lastTransitionTime": now,
                "reason": reason, "message": message,
            })
        };
        let ready = if self.ready {
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        } else {
            condition("Ready", "False", "KubeletNotReady", "container runtime is down")
        };
        let memory = condition(
            "MemoryPressure",
            "False",
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        );
        json!({
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": { "name": self.name, "labels": self.labels },
            "spec": spec,
            "status": {
                "capacity": self.resources,
                "allocatable": self.resources,
                "conditions": [memory, ready],
                "addresses": [{ "type": "Hostname", "address": self.name }],
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
                "nodeInfo": {
                    "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.8.0",
                    "osImage": "Simulated Linux", "containerRuntimeVersion": "containerd://2.1.4",
                    "kubeletVersion": "v1.36.3", "kubeProxyVersion": "", "operatingSystem": "linux",
                    "architecture": "amd64",
                },
            },
        })
    }
}
