//! Kueue, as far as fedq meets it: what its webhooks fill in and refuse, and what its controllers and
//! scheduler write. Everything here is a function of objects and the time; requests are the caller's.
//!
//! Follows Kueue 0.19 with its default configuration: no fair sharing, all of the API's v1beta2.
//! Left out: topology-aware scheduling, partial admission, elastic jobs, MultiKueue's own controllers,
//! limit ranges, kinds of jobs other than batch/v1 Job and AppWrapper.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

mod active;
mod app_wrappers;
mod assign;
mod changes;
mod default;
mod jobs;
mod operator;
mod pods;
mod preempt;
mod queues;
mod quota;
mod read;
mod refusal;
mod run;
mod schedule;
mod schema;
mod snapshot;
mod webhook;
mod workload;

pub use self::{
    default::default,
    operator::{WrappersView, run_app_wrappers},
    refusal::{Denial, Problem, Refusal, denied},
    run::{EXIT, JobsView, SECONDS, next_end, run_jobs},
};

/// Namespace, empty for what has none, and name.
pub type Key = (String, String);
pub type Objects = BTreeMap<Key, Arc<Value>>;

/// All that the controllers see of one cluster.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub cluster_queues: Objects,
    pub local_queues: Objects,
    pub flavors: Objects,
    pub cohorts: Objects,
    pub checks: Objects,
    pub topologies: Objects,
    pub workloads: Objects,
    /// Of batch/v1.
    pub jobs: Objects,
    pub app_wrappers: Objects,
    pub namespaces: Objects,
    /// WorkloadPriorityClasses.
    pub priority_classes: Objects,
    /// PriorityClasses of scheduling.k8s.io/v1.
    pub pod_priority_classes: Objects,
}

/// A request that a controller would send.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Create {
        kind: &'static str,
        object: Value,
    },
    /// A merge patch of the status, through the subresource.
    Status {
        kind: &'static str,
        namespace: String,
        name: String,
        status: Value,
    },
    /// A merge patch of all but the status.
    Patch {
        kind: &'static str,
        namespace: String,
        name: String,
        patch: Value,
    },
    Delete {
        kind: &'static str,
        namespace: String,
        name: String,
    },
}

/// What the schema of `kind` refuses in `after`, or where it refuses nothing, what Kueue's webhook does.
/// Before both, the webhook that fills new objects in has to be able to read them.
pub fn validate(kind: &str, before: Option<&Value>, after: &Value) -> Vec<Refusal> {
    if let Some(unreadable) = schema::unreadable(kind, before, after) {
        return vec![unreadable];
    }
    let refusals = schema::validate(kind, before, after);
    if refusals.is_empty() { webhook::validate(kind, before, after) } else { refusals }
}

/// One pass of all controllers and the scheduler; at a fixed point it returns nothing. Effects are to
/// be carried out in order, and passes repeated while there are any.
pub fn reconcile(view: &View, now: Timestamp) -> Vec<Effect> {
    let mut after = view.clone();
    jobs::reconcile(&mut after, now);
    app_wrappers::reconcile(&mut after, now);
    workload::reconcile(&mut after, now);
    schedule::schedule(&mut after, now);
    queues::reconcile(&mut after, now);
    let mut effects = Vec::new();
    for (kind, before, after) in [
        ("Job", &view.jobs, &after.jobs),
        ("AppWrapper", &view.app_wrappers, &after.app_wrappers),
        ("Workload", &view.workloads, &after.workloads),
        ("ClusterQueue", &view.cluster_queues, &after.cluster_queues),
        ("LocalQueue", &view.local_queues, &after.local_queues),
        ("ResourceFlavor", &view.flavors, &after.flavors),
        ("AdmissionCheck", &view.checks, &after.checks),
    ] {
        changes::effects(kind, before, after, &mut effects);
    }
    effects
}

#[cfg(test)]
mod tests;
