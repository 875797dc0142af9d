//! What is told of clusters: objects as they come and go, and whether they are still being followed.

use std::time::Duration;

use serde_json::Value;

/// Objects that the view is made of.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    ClusterQueues,
    LocalQueues,
    Workloads,
    /// One of them, whole.
    Workload {
        namespace: String,
        name: String,
    },
    /// Events about one of them.
    Events {
        namespace: String,
        name: String,
    },
}

/// Objects of one kind in one cluster, by its place in the list of clusters.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Source {
    pub cluster: usize,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum News {
    /// All objects follow. What was known before stands until they are there.
    Begin,
    Object(Value),
    Gone(Value),
    /// All objects were told.
    Complete,
    /// Changes are told again, from where they broke off.
    Followed,
    /// What is known gets old. It is asked for again after so long.
    Broken {
        reason: String,
        again: Duration,
    },
}
