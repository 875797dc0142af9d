//! Nodes that kwok runs. They belong to the whole cluster, so a case marks its own with a label and lets its flavors
//! select them by it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::cluster::{Cluster, Id, Part, has_condition, id};

pub const CASE_LABEL: &str = "fedq-test/case";

/// kwok needs a second; the rest is for a busy machine.
const NODE_READY_WITHIN: Duration = Duration::from_mins(1);

#[derive(Clone, Debug)]
pub struct Node {
    name: String,
    labels: BTreeMap<String, String>,
    taints: Vec<Value>,
    allocatable: BTreeMap<String, String>,
}

/// A node of a case: 32 cores, 256 GiB and 110 pods unless told otherwise. It is called `<case>-<name>`.
pub fn node(case: &str, name: &str) -> Node {
    let amounts = [("cpu", "32"), ("memory", "256Gi"), ("pods", "110")];
    Node {
        name: format!("{case}-{name}"),
        labels: BTreeMap::from([
            (CASE_LABEL.to_owned(), case.to_owned()),
            ("kubernetes.io/hostname".to_owned(), format!("{case}-{name}")),
        ]),
        taints: Vec::new(),
        allocatable: amounts.map(|(resource, amount)| (resource.to_owned(), amount.to_owned())).into(),
    }
}

impl Node {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// `effect` is `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(json!({"key": key, "value": value, "effect": effect}));
        self
    }

    pub fn allocatable(mut self, resource: &str, amount: &str) -> Self {
        self.allocatable.insert(resource.to_owned(), amount.to_owned());
        self
    }

    pub fn gpus(self, count: u32) -> Self {
        self.allocatable("nvidia.com/gpu", &count.to_string())
    }

    fn json(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self.labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "spec": {"taints": self.taints},
            "status": {"capacity": self.allocatable, "allocatable": self.allocatable},
        })
    }
}

fn node_id(name: &str) -> Id<'_> {
    id("v1", "Node", name)
}

impl Cluster {
    /// Creates the nodes and returns when all are ready and can be scheduled on.
    pub async fn add_nodes(&self, nodes: &[Node]) -> Result<()> {
        for node in nodes {
            let object = serde_json::from_value(node.json())?;
            self.api(node_id(&node.name)).await?.create(&kube::api::PostParams::default(), &object).await?;
        }
        for node in nodes {
            self.wait(node_id(&node.name), "ready, without the not-ready taint", NODE_READY_WITHIN, |seen| {
                let taints = seen["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
                let blocked = taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/not-ready");
                has_condition(seen, "Ready", "True") && !blocked
            })
            .await?;
        }
        Ok(())
    }

    pub async fn delete_node(&self, name: &str) -> Result<()> {
        self.delete(node_id(name)).await?;
        self.wait_gone(node_id(name), NODE_READY_WITHIN).await
    }

    /// Deletes every node of a case.
    pub async fn delete_nodes_of(&self, case: &str) -> Result<()> {
        for node in self.list("v1", "Node", None).await? {
            if node["metadata"]["labels"][CASE_LABEL] == case {
                self.delete_node(node["metadata"]["name"].as_str().unwrap_or_default()).await?;
            }
        }
        Ok(())
    }

    pub async fn cordon(&self, node: &str, unschedulable: bool) -> Result<()> {
        self.merge(node_id(node), Part::Whole, json!({"spec": {"unschedulable": unschedulable}})).await
    }

    /// Replaces the node's taints; each is (key, value, effect).
    pub async fn taint(&self, node: &str, taints: &[(&str, &str, &str)]) -> Result<()> {
        let taints: Vec<Value> = taints
            .iter()
            .map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
            .collect();
        self.merge(node_id(node), Part::Whole, json!({"spec": {"taints": taints}})).await
    }

    pub async fn set_allocatable(&self, node: &str, resource: &str, amount: &str) -> Result<()> {
        let amounts = json!({resource: amount});
        let patch = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        self.merge(node_id(node), Part::Status, patch).await
    }
}
