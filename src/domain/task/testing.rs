//! Views and tasks for tests.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    choose::view::{Access, CellView, ClusterView, FlavorView, GroupView, QueueView, VolumeView},
    sky::{self, Options},
    spec::{NewTask, TaskSpec},
};
use crate::resources::Resources;
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName, ResourceName},
    quantity::Amount,
};

pub fn new_task(text: &str) -> NewTask {
    let mut file = sky::read_file(text.as_bytes(), &Options::default()).expect("a task");
    file.tasks.remove(0)
}

pub fn task(text: &str) -> TaskSpec {
    new_task(text).spec
}

pub fn cluster_name(name: &str) -> ClusterName {
    ClusterName::new(name).expect("a cluster's name")
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a resource's name")
}

/// A cluster with a queue `default` of one flavor that covers cpu, memory and GPUs.
pub fn cluster(name: &str, gpus: (i64, i64)) -> ClusterView {
    ClusterView {
        name: cluster_name(name),
        access: Access::Ready,
        queues: vec![queue(vec![flavor("gpu", &[], &[("nvidia.com/gpu", gpus)])])],
        promised: BTreeSet::new(),
        volumes: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
    }
}

pub fn queue(flavors: Vec<FlavorView>) -> QueueView {
    QueueView {
        local: "default".to_owned(),
        queue: QueueName::new("cq").expect("a queue's name"),
        active: true,
        pending: 0,
        groups: vec![GroupView { flavors }],
    }
}

/// With much cpu and memory; of the others (nominal, reserved).
pub fn flavor(name: &str, labels: &[(&str, &str)], cells: &[(&str, (i64, i64))]) -> FlavorView {
    let plenty = [("cpu", (1_000_000, 0)), ("memory", (1 << 50, 0))];
    let cell = |(name, (nominal, reserved)): &(&str, (i64, i64))| {
        let cell = CellView::new(Amount::new(*nominal), None, None, Amount::new(*reserved), None);
        (resource(name), cell)
    };
    FlavorView {
        name: FlavorName::new(name).expect("a flavor's name"),
        node_labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: Vec::new(),
        cells: plenty.iter().chain(cells).map(cell).collect(),
        largest_node: Resources::new(),
    }
}

pub fn volume(shared: bool) -> VolumeView {
    VolumeView { claim: "data-0a0a0a0a".to_owned(), shared, read_only: false }
}
