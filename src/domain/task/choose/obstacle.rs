//! What stands between a task and a cluster, in words.

use std::fmt;

use super::{super::runtime::Absence, hardware::Told};
use fedq_values::{
    ids::{ClusterName, FlavorName, ResourceName},
    quantity::Amount,
};

/// Why a cluster can never take a task as both are.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Obstacle {
    /// The person, or the task's file, wants another cluster.
    NotWanted,
    NoQueue {
        wanted: Option<String>,
        there: Vec<String>,
    },
    /// The hub has it, and the cluster is to have it.
    QueueToCome {
        queue: String,
    },
    /// It is known by what it reports to the hub only.
    OutOfReach,
    NoKueue,
    /// Nothing runs AppWrappers there, or nothing that fedq may see.
    NoRuntime(Absence),
    /// Who runs AppWrappers there is still being asked.
    RuntimeUnknown,
    /// Pods that request what their queue does not cover are never admitted.
    NotCovered {
        queue: String,
        resource: ResourceName,
    },
    NoAccelerator {
        queue: String,
        kind: String,
        /// What tells the queue's flavors apart.
        there: Told,
    },
    NoInstanceType {
        queue: String,
        kind: String,
    },
    NoSpot {
        queue: String,
    },
    /// The task must not run on spot nodes, which are all that the flavor has.
    Spot {
        queue: String,
        flavor: FlavorName,
    },
    /// The task's nodeSelector asks for other nodes.
    NotSelected {
        queue: String,
        key: String,
    },
    NotTolerated {
        queue: String,
        flavor: FlavorName,
        taint: String,
    },
    /// More than the queue can ever hold.
    TooMuch {
        queue: String,
        resource: ResourceName,
        flavor: FlavorName,
        needed: Amount,
        ceiling: Amount,
    },
    /// More than any of the nodes has.
    NodeTooSmall {
        resource: ResourceName,
        flavor: FlavorName,
        /// Of all of them where all go to one.
        needed: Amount,
        one_machine: bool,
        largest: Amount,
    },
    NoPriorityClass {
        wanted: String,
        there: Vec<String>,
    },
    NoVolume {
        volume: String,
        /// Where it is.
        on: Option<ClusterName>,
    },
    VolumeOfOneNode {
        volume: String,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("another cluster was asked for"),
            Self::NoQueue { wanted: Some(wanted), there } => {
                write!(f, "there is no queue {wanted}; {}", list(there))
            }
            Self::NoQueue { wanted: None, there } => write!(f, "no queue was named; {}", list(there)),
            Self::QueueToCome { queue } => write!(f, "queue {queue} is still being made there"),
            Self::OutOfReach => {
                f.write_str("nothing can be sent there: it only reports what it has to the hub")
            }
            Self::NoKueue => f.write_str("Kueue 0.16 or newer does not run there"),
            Self::NoRuntime(absence) => absence.fmt(f),
            Self::RuntimeUnknown => f.write_str("it is being asked who runs AppWrappers there"),
            Self::NotCovered { queue, resource } => write!(f, "queue {queue} has no quota for {resource}"),
            Self::NoAccelerator { queue, kind, there } => {
                write!(f, "no flavor of queue {queue} has {kind}{}", told(there))
            }
            Self::NoInstanceType { queue, kind } => write!(f, "no flavor of queue {queue} is of type {kind}"),
            Self::NoSpot { queue } => write!(f, "no flavor of queue {queue} that fits is spot"),
            Self::Spot { queue, flavor } => write!(
                f,
                "the nodes of flavor {flavor} of queue {queue} are spot, and the task's use_spot: false refuses those"
            ),
            Self::NotSelected { queue, key } => {
                write!(f, "no flavor of queue {queue} that fits has the {key} of the nodeSelector")
            }
            Self::NotTolerated { queue, flavor, taint } => write!(
                f,
                "the nodes of flavor {flavor} of queue {queue} are tainted {taint}, which the task does not tolerate"
            ),
            Self::TooMuch { queue, resource, flavor, needed, ceiling } => write!(
                f,
                "queue {queue} can hold at most {} {resource} of flavor {flavor}, the task needs {}",
                ceiling.text(resource),
                needed.text(resource)
            ),
            Self::NodeTooSmall { resource, flavor, needed, one_machine, largest } => write!(
                f,
                "the largest node of flavor {flavor} has {} {resource}, {} {}",
                largest.text(resource),
                if *one_machine {
                    "all nodes of the task together need"
                } else {
                    "one node of the task needs"
                },
                needed.text(resource)
            ),
            Self::NoPriorityClass { wanted, there } => {
                let there = if there.is_empty() { "there is none".to_owned() } else { list(there) };
                write!(f, "there is no WorkloadPriorityClass {wanted}; {there}")
            }
            Self::NoVolume { volume, on: Some(cluster) } => write!(f, "volume {volume} is on {cluster}"),
            Self::NoVolume { volume, on: None } => write!(
                f,
                "volume {volume} is not there: fedq volume list says where it is, fedq volume create {volume} SIZE makes it, fedq volume adopt {volume} takes a claim that is on a cluster"
            ),
            Self::VolumeOfOneNode { volume } => write!(
                f,
                "volume {volume} can be mounted by one node only; use one with ReadWriteMany, or num_nodes: 1"
            ),
        }
    }
}

/// How the flavors say what accelerator their nodes have, or could.
fn told(Told { accelerators, others, devices }: &Told) -> String {
    let nodes = match devices.as_slice() {
        [] => String::new(),
        devices => format!("; their nodes have {}", devices.join(", ")),
    };
    if !accelerators.is_empty() {
        return format!("; there {}{nodes}", is_or_are(accelerators));
    }
    let apart = match others.as_slice() {
        [] => "they have no nodeLabels".to_owned(),
        labels => format!("they are told apart by {}", labels.join(", ")),
    };
    format!(
        ", since none says what accelerator its nodes have: {apart}{nodes}; set nvidia.com/gpu.product, or your \
         provider's label, in nodeLabels of the ResourceFlavor"
    )
}

fn is_or_are(names: &[String]) -> String {
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{verb} {}", names.join(", "))
}

fn list(queues: &[String]) -> String {
    match queues {
        [] => {
            "there is none that you may use: ask an administrator for a LocalQueue in your namespace, of a \
               ClusterQueue that a claim gives quota there"
                .to_owned()
        }
        queues => format!("there {}", is_or_are(queues)),
    }
}
