//! Says on the hub what the nodes of followed clusters offer, as ClusterMetrics objects: for programs
//! that read those, such as KubeStellar's. Off unless the configuration asks for it.
//!
//! The objects are labelled as this hub's, so that fedq never takes its own report for another cluster.

use std::{collections::BTreeMap, sync::Mutex};

use serde_json::json;
use tokio_util::sync::DropGuard;
use tracing::warn;

use super::{Nodes, lock};
use crate::{context::Context, driver::Tasks, writer::Writer};
use fedq_domain::capacity::NodeRow;
use fedq_k8s::{
    types::{
        cluster_metrics::MetricsNode,
        kueue::Taint,
        meta::{HUB_LABEL, QuantityText},
    },
    write::{Action, Change, Kind, Target},
};
use fedq_values::{ids::ClusterName, quantity::Amount};

const MANAGER: &str = "fedq-capacity";
/// An object of the API server's holds 1.5 MB; a node takes some 300 bytes.
const MOST_NODES: usize = 4000;

pub(super) struct Publisher {
    context: Context,
    writer: Writer,
    reports: BTreeMap<ClusterName, Vec<MetricsNode>>,
    _stop: DropGuard,
}

impl Publisher {
    pub fn start(context: Context, tasks: &mut Tasks) -> Self {
        let writer = Writer::default();
        let stop = context.write_to_hub(&writer, tasks);
        Self { context, writer, reports: BTreeMap::new(), _stop: stop }
    }

    /// Takes the nodes of a cluster as they are now.
    pub fn observe(&mut self, name: &ClusterName, nodes: &Mutex<Nodes>) {
        let nodes = lock(nodes);
        if MOST_NODES < nodes.table.len() {
            warn!(cluster.name = %name, "`{name}` has more than {MOST_NODES} nodes, too many for a ClusterMetrics object");
            return;
        }
        let mut rows: Vec<MetricsNode> = nodes.table.rows().map(|row| metrics_node(&row)).collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        drop(nodes);
        self.reports.insert(name.clone(), rows);
    }

    /// Hands the writer what the hub's objects still lack.
    pub fn publish(&mut self, still_joined: impl Fn(&ClusterName) -> bool) {
        self.reports.retain(|name, _| still_joined(name));
        let written = self.reports.iter().filter_map(|(name, nodes)| self.change(name, nodes));
        let ours = self.context.hub.cluster_metrics.all();
        let gone = ours.iter().filter(|object| {
            object.metadata.labels.get(HUB_LABEL) == Some(&self.context.hub_id)
                && ClusterName::new(&object.metadata.name).is_ok_and(|name| !still_joined(&name))
        });
        let deleted = gone.map(|object| Change {
            target: Target::cluster_scoped(Kind::ClusterMetrics, &object.metadata.name),
            action: Action::Delete {
                uid: object.metadata.uid.clone(),
                resource_version: object.metadata.resource_version.clone(),
            },
            manager: MANAGER,
        });
        self.writer.want(written.chain(deleted).collect());
    }

    fn change(&self, name: &ClusterName, nodes: &[MetricsNode]) -> Option<Change> {
        let name = name.as_str();
        let Some(found) = self.context.hub.cluster_metrics.get(None, name) else {
            let body = json!({
                "apiVersion": "galaxy.kubestellar.io/v1alpha1",
                "kind": "ClusterMetrics",
                "metadata": {"name": name, "labels": {HUB_LABEL: self.context.hub_id}},
            });
            let target = Target::cluster_scoped(Kind::ClusterMetrics, name);
            return Some(Change { target, action: Action::Create(body), manager: MANAGER });
        };
        // Somebody else's report of the same cluster stays theirs.
        let ours = found.metadata.labels.get(HUB_LABEL) == Some(&self.context.hub_id);
        (ours && found.status.nodes != nodes).then(|| Change {
            target: Target::status(Kind::ClusterMetrics, name),
            action: Action::Merge(json!({"status": {"nodes": nodes}})),
            manager: MANAGER,
        })
    }
}

fn metrics_node(row: &NodeRow) -> MetricsNode {
    let quantity = |(resource, units): (&fedq_values::ids::ResourceName, &i64)| {
        (resource.to_string(), QuantityText(Amount::new(*units).text(resource)))
    };
    let taint = |taint: &fedq_domain::capacity::Taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
    };
    MetricsNode {
        name: row.name.clone(),
        allocatable_resources: row.shape.allocatable.iter().map(quantity).collect(),
        taints: row.shape.taints.iter().map(taint).collect(),
        labels: row.shape.labels.clone(),
        unschedulable: !row.shape.usable,
    }
}
