//! What fedq follows on a joined cluster. Nodes have a loop of their own, since they are stored.

use std::{ops::Deref, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use fedq_domain::{
    cluster::{Connection, LastSeen, QuarantineReason},
    task::{render::TASK_LABEL, volume::VOLUME_LABEL},
};
use fedq_values::ids::ClusterName;

use super::{
    client::ClusterClient,
    follow::{
        Followed, Following, KnownObjects, Part, Row, Scope, StoredSet, StoredTable, TableSet, Wake, followed,
    },
    list_watch::{Allowance, State, Table, Timing},
    logs::{LogConnections, LogPod},
    types::{
        kueue::{
            AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass,
        },
        meta::MetaOnly,
        task::{TaskJob, VolumeClaim},
    },
    write::{Change, Kind},
};

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";
/// Kueue labels Workloads so that a MultiKueue hub dispatched.
const NOT_DISPATCHED: &str = "!kueue.x-k8s.io/multikueue-origin";

followed! { stored
    /// What is followed of a joined cluster, but for nodes, which have a loop of their own, and tasks.
    pub struct WorkerTables {
        queues: ClusterQueue = Row::of(Kind::ClusterQueue).planned().read_by(Wake::of_queues);
        local_queues: LocalQueue = Row::of(Kind::LocalQueue).planned().read_by(Wake::of_local_queues);
        flavors: ResourceFlavor = Row::of(Kind::ResourceFlavor).planned();
        cohorts: Cohort = Row::read_only(KUEUE, "cohorts").planned();
        topologies: MetaOnly = Row::read_only(KUEUE, "topologies");
        checks: AdmissionCheck = Row::read_only(KUEUE, "admissionchecks").planned();
        namespaces: MetaOnly = Row::of(Kind::Namespace).planned().read_by(Wake::of_worker_namespaces);
        priority_classes: WorkloadPriorityClass = Row::of(Kind::WorkloadPriorityClass).planned();
        /// Workloads that no hub dispatched: put there by hand or pinned.
        direct_workloads: Workload =
            Row::read_only(KUEUE, "workloads").labelled(NOT_DISPATCHED).planned().read_by(Wake::of_workloads);
    }
}

followed! { stored
    /// Objects of this hub's tasks and volumes. A plan of quota does not wait for them.
    pub struct TaskTables {
        jobs: TaskJob = Row::of(Kind::Job).ours().marked(TASK_LABEL).read_by(Wake::of_tasks);
        job_sets: TaskJob = Row::of(Kind::JobSet).ours().marked(TASK_LABEL).read_by(Wake::of_tasks);
        app_wrappers: TaskJob =
            Row::of(Kind::AppWrapper).ours().marked(TASK_LABEL).read_by(Wake::of_tasks).part(Part::AppWrappers);
        pods: LogPod =
            Row::read_only("/api/v1", "pods").ours().marked(TASK_LABEL).read_by(Wake::of_tasks).part(Part::Pods);
        volume_claims: VolumeClaim =
            Row::of(Kind::VolumeClaim).ours().marked(VOLUME_LABEL).read_by(Wake::of_tasks).part(Part::Pods);
    }
}

impl TaskTables {
    /// Why not, in the cluster's words.
    pub fn broken(&self) -> Option<String> {
        let broken = |state: State| match state {
            State::Synced { broken } => broken,
            State::Waiting | State::Absent => None,
        };
        broken(self.jobs.state()).or(broken(self.pods.state())).or(broken(self.job_sets.state()))
    }
}

/// A connected cluster: its identity is checked, so it may be read and written. A new kubeconfig makes a
/// new one.
pub struct Worker {
    pub name: ClusterName,
    pub client: ClusterClient,
    pub logs: LogConnections,
    /// For those that fedqd follows to keep them.
    pub kept_logs: LogConnections,
    pub uid: String,
    /// When it was known to be the cluster that was joined.
    pub connected: Instant,
    pub tables: WorkerTables,
    pub tasks: TaskTables,
    /// Set by whoever finds that this is not the cluster that was joined.
    pub quarantine: watch::Sender<Option<QuarantineReason>>,
    pub cancel: CancellationToken,
    /// Of all that is kept of it.
    pub allowance: Allowance,
}

/// A worker is asked for what it has.
impl Deref for Worker {
    type Target = WorkerTables;

    fn deref(&self) -> &WorkerTables {
        &self.tables
    }
}

impl Worker {
    pub fn new(name: ClusterName, client: ClusterClient, uid: String, cancel: CancellationToken) -> Self {
        Self::within(Allowance::default(), name, client, uid, cancel)
    }

    /// One of which no more is kept than that.
    pub fn within(
        allowance: Allowance,
        name: ClusterName,
        client: ClusterClient,
        uid: String,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            name,
            logs: LogConnections::new(client.clone()),
            kept_logs: LogConnections::for_keeping(client.clone()),
            client,
            uid,
            connected: Instant::now(),
            tables: WorkerTables::within(&allowance),
            tasks: TaskTables::within(&allowance),
            quarantine: watch::Sender::new(None),
            cancel,
            allowance,
        }
    }

    /// What its tables hold.
    pub fn known(&self) -> KnownObjects {
        let (mut known, tasks) = (self.tables.known(), self.tasks.known());
        known.extend(tasks);
        known
    }

    /// Before anything is followed: each kind goes on from there if the server still has its version, and is
    /// listed otherwise.
    ///
    /// # Errors
    /// Of a kind that cannot be read, which is listed.
    pub fn restore(&self, known: &KnownObjects) -> serde_json::Result<()> {
        self.tables.restore(known).and(self.tasks.restore(known))
    }

    pub fn follow(&self, timing: &Timing, hub_id: &str, wake: &Wake, tasks: &mut JoinSet<()>) {
        let mut following = Following::new(self.client.clone(), timing.clone(), wake.all());
        following.allowance = self.allowance.clone();
        let scope = Scope { hub_id, namespace: "", wake: Some(wake), cancel: &self.cancel };
        self.tables.follow_part(Part::Always, &following, &scope, tasks);
        for part in [Part::Always, Part::AppWrappers, Part::Pods] {
            self.tasks.follow_part(part, &following, &scope, tasks);
        }
    }

    /// Jobs, JobSets and AppWrappers of tasks, and nothing else: where MultiKueue takes them from, they have no pods.
    pub fn follow_jobs(&self, following: &Following, hub_id: &str, tasks: &mut JoinSet<()>) {
        let scope = Scope { hub_id, namespace: "", wake: None, cancel: &self.cancel };
        for part in [Part::Always, Part::AppWrappers] {
            self.tasks.follow_part(part, following, &scope, tasks);
        }
    }

    /// Whether what is there of tasks, and what is not, is known and followed at this moment.
    pub fn follows_tasks(&self) -> bool {
        self.follows_jobs() && self.tasks.pods.is_current()
    }

    /// The same of AppWrappers: a cluster may let fedq see its Jobs, and not these. One that does not serve the kind, as a
    /// server that has just started, has not said that there are none.
    pub fn follows_app_wrappers(&self) -> bool {
        matches!(self.tasks.app_wrappers.state(), State::Synced { broken: None })
    }

    /// The same, where no pods are followed.
    pub fn follows_jobs(&self) -> bool {
        let TaskTables { jobs, job_sets, .. } = &self.tasks;
        jobs.is_current() && job_sets.is_current() && self.direct_workloads.is_current()
    }

    /// Of all that a plan reads here. Each count only grows, so the same sum means that none changed.
    pub fn revision(&self) -> u64 {
        self.queues.revision()
            + self.checks.revision()
            + self.cohorts.revision()
            + self.direct_workloads.revision()
    }

    /// Takes over what a write was answered with, so that the next decision need not wait for its watch event.
    pub fn absorb_answer(&self, change: &Change, answer: &Value) {
        self.tables.absorb_answer(change, answer);
        self.tasks.absorb_answer(change, answer);
    }

    /// Whether Kueue in a version fedq speaks (0.16 or newer) is installed.
    pub fn has_kueue(&self) -> bool {
        !self.queues.is_absent() && !self.flavors.is_absent()
    }
}

/// Where a joined cluster is known from.
pub const KUBECONFIG: &str = "kubeconfig";
pub const CLUSTER_PROFILE: &str = "clusterProfile";
pub const CLUSTER_METRICS: &str = "clusterMetrics";

/// A joined cluster as it stands now.
#[derive(Clone)]
pub struct Joined {
    pub connection: Connection,
    pub cordoned: bool,
    /// Its Secret is being deleted: withdraw, clean up, let go.
    pub leaving: bool,
    pub source: &'static str,
    /// When its Secret was made.
    pub joined_at: Option<Timestamp>,
    pub server: Option<String>,
    pub kubernetes_version: Option<String>,
    pub credential_expires: Option<Timestamp>,
    pub last_seen: LastSeen,
    /// It was refused, and silent for so long before and since that its share does not stand any more.
    pub is_given_up: bool,
    /// There once its identity is checked.
    pub worker: Option<Arc<Worker>>,
}

impl Default for Joined {
    fn default() -> Self {
        Self::new(Connection::Connecting, KUBECONFIG)
    }
}

impl Joined {
    /// One of which nothing more is known.
    pub fn new(connection: Connection, source: &'static str) -> Self {
        Self {
            connection,
            cordoned: false,
            leaving: false,
            source,
            joined_at: None,
            server: None,
            kubernetes_version: None,
            credential_expires: None,
            last_seen: LastSeen::default(),
            is_given_up: false,
            worker: None,
        }
    }

    pub fn is_without_kueue(&self) -> bool {
        self.worker.as_ref().is_some_and(|worker| worker.synced() && !worker.has_kueue())
    }

    /// Whether people are told this of the link.
    pub fn tells(&self, connection: &Connection) -> bool {
        if self.connection == Connection::Ready && self.is_without_kueue() {
            return self.told() == *connection;
        }
        self.connection == *connection
    }

    /// The link as people are told of it: a cluster without Kueue answers, but is of no use.
    pub fn told(&self) -> Connection {
        if self.connection == Connection::Ready && self.is_without_kueue() {
            let reason = "it does not serve kueue.x-k8s.io/v1beta2: install Kueue 0.16 or newer there";
            return Connection::Refused { reason: reason.to_owned() };
        }
        self.connection.clone()
    }
}

/// All joined clusters, published whole: whoever changes one copies the others' handles only.
pub type JoinedClusters = std::collections::BTreeMap<ClusterName, Arc<Joined>>;

#[cfg(test)]
mod tests;
