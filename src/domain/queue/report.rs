//! What keeps a worker's queues from working, for a person to read.

use std::{collections::BTreeMap, fmt};

use fedq_values::ids::{ClusterName, FlavorName, QueueName};

/// Of every cluster whose queues are being kept.
pub type QueueReports = BTreeMap<ClusterName, Vec<QueueReport>>;

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct QueueReport {
    /// The queue that suffers; `None`: all of the cluster.
    pub queue: Option<QueueName>,
    pub problem: Problem,
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Problem {
    /// The cluster has no Kueue that serves v1beta2.
    NoKueue,
    /// A namespace that is not ours lacks what the queue's namespaceSelector asks for.
    NamespaceNotSelected {
        namespace: String,
        keys: Vec<String>,
    },
    NamespaceTerminating {
        namespace: String,
    },
    /// One of Kubernetes', Kueue's or fedq's own.
    SystemNamespace {
        namespace: String,
    },
    /// A LocalQueue of this name that is not ours leads to another ClusterQueue.
    LocalQueueConflict {
        namespace: String,
        name: String,
        leads_to: String,
    },
    /// A held LocalQueue waits for its workloads to end before it goes.
    LocalQueueInUse {
        namespace: String,
        name: String,
        workloads: i64,
    },
    /// The hub's queue has another concurrentAdmissionPolicy, which Kueue lets nobody change.
    QueueUnchangeable,
    /// Kueue lets nobody change a flavor that has a topology.
    FlavorUnchangeable {
        flavor: FlavorName,
    },
    TopologyMissing {
        flavor: FlavorName,
        topology: String,
    },
    /// A priority class that is not ours has another value.
    PriorityClassDiffers {
        name: String,
        hub: i64,
        worker: i64,
    },
    /// Quota of a Cohort is outside every claim.
    CohortHasQuota {
        cohort: String,
        on_hub: bool,
    },
    NotWritten {
        object: String,
        reason: String,
    },
}

impl Problem {
    /// For conditions and machines.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoKueue => "NoKueue",
            Self::NamespaceNotSelected { .. } => "NamespaceNotSelected",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::SystemNamespace { .. } => "SystemNamespace",
            Self::LocalQueueConflict { .. } => "LocalQueueConflict",
            Self::LocalQueueInUse { .. } => "LocalQueueInUse",
            Self::QueueUnchangeable => "QueueUnchangeable",
            Self::FlavorUnchangeable { .. } => "FlavorUnchangeable",
            Self::TopologyMissing { .. } => "TopologyMissing",
            Self::PriorityClassDiffers { .. } => "PriorityClassDiffers",
            Self::CohortHasQuota { .. } => "CohortHasQuota",
            Self::NotWritten { .. } => "NotWritten",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKueue => f.write_str("Kueue 0.16 or newer (kueue.x-k8s.io/v1beta2) is not installed"),
            Self::NamespaceNotSelected { namespace, keys } => write!(
                f,
                "namespace `{namespace}` is not fedq's and its label {} does not meet the queue's namespaceSelector: set it there, or hand the namespace over with the annotation fedq.dev/adopt=true",
                keys.join(", ")
            ),
            Self::NamespaceTerminating { namespace } => {
                write!(f, "namespace `{namespace}` is being deleted; its queues come back after it")
            }
            Self::SystemNamespace { namespace } => write!(
                f,
                "namespace `{namespace}` belongs to Kubernetes, Kueue or fedq, so no LocalQueue is put there: have the hub's LocalQueue in another namespace"
            ),
            Self::LocalQueueConflict { namespace, name, leads_to } => write!(
                f,
                "LocalQueue `{namespace}/{name}` is not fedq's and leads to ClusterQueue `{leads_to}`: rename or delete it"
            ),
            // Not how many they are: that changes all the time, and each change would be a write.
            Self::LocalQueueInUse { namespace, name, .. } => write!(
                f,
                "LocalQueue `{namespace}/{name}` is held and goes when its workloads have ended"
            ),
            Self::QueueUnchangeable => f.write_str(
                "its concurrentAdmissionPolicy differs from the hub's and Kueue refuses changes: delete the queue on the cluster once it is empty, and fedq makes it anew",
            ),
            Self::FlavorUnchangeable { flavor } => write!(
                f,
                "flavor `{flavor}` differs from the hub's and has a topology, so Kueue refuses changes: delete it once no queue uses it, and fedq makes it anew"
            ),
            Self::TopologyMissing { flavor, topology } => {
                write!(f, "flavor `{flavor}` needs Topology `{topology}`, which the cluster lacks: create it")
            }
            Self::PriorityClassDiffers { name, hub, worker } => write!(
                f,
                "WorkloadPriorityClass `{name}` is not fedq's and has value {worker}, while the hub's has {hub}"
            ),
            Self::CohortHasQuota { cohort, on_hub } => write!(
                f,
                "Cohort `{cohort}` on the {} has quota of its own, which its queues can use beyond any claim",
                if *on_hub { "hub" } else { "cluster" }
            ),
            Self::NotWritten { object, reason } => write!(f, "could not write {object}: {reason}"),
        }
    }
}
