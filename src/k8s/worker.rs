//! What fedq follows on a joined cluster. Nodes have a loop of their own, since they are stored.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
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
    follow::{Following, Wake, follow_table},
    list_watch::{Allowance, Answers, Known, Record, Selector, State, Table, Timing},
    logs::{LogConnections, LogPod},
    types::{
        kueue::{
            AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass,
        },
        meta::{HUB_LABEL, MetaOnly},
        task::{TaskJob, VolumeClaim},
    },
    write::{Change, Kind},
};

/// Set by Kueue on Workloads that a MultiKueue hub dispatched.
const DISPATCHED_LABEL: &str = "kueue.x-k8s.io/multikueue-origin";

/// Objects of this hub's tasks and volumes. A plan of quota does not wait for them.
#[derive(Clone, Default)]
pub struct TaskTables {
    pub jobs: Table<TaskJob>,
    pub job_sets: Table<TaskJob>,
    pub pods: Table<LogPod>,
    pub claims: Table<VolumeClaim>,
}

/// Those of this hub that carry a label.
fn ours(hub_id: &str, label: &str) -> Selector {
    Selector { labels: Some(format!("{HUB_LABEL}={hub_id},{label}=true")), fields: None }
}

impl TaskTables {
    fn within(allowance: &Allowance) -> Self {
        Self {
            jobs: Table::within(allowance),
            job_sets: Table::within(allowance),
            pods: Table::within(allowance),
            claims: Table::within(allowance),
        }
    }

    fn follow(
        &self,
        following: &Following,
        hub_id: &str,
        cancel: &CancellationToken,
        tasks: &mut JoinSet<()>,
    ) {
        let of = |path: &str, label: &str| (path.to_owned(), ours(hub_id, label), cancel.clone());
        follow_table(following, &self.pods, of("/api/v1/pods", TASK_LABEL), tasks);
        follow_table(following, &self.claims, of("/api/v1/persistentvolumeclaims", VOLUME_LABEL), tasks);
    }

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
    pub uid: String,
    /// When it was known to be the cluster that was joined.
    pub connected: Instant,
    pub queues: Table<ClusterQueue>,
    pub local_queues: Table<LocalQueue>,
    pub flavors: Table<ResourceFlavor>,
    pub cohorts: Table<Cohort>,
    pub topologies: Table<MetaOnly>,
    pub checks: Table<AdmissionCheck>,
    pub namespaces: Table<MetaOnly>,
    pub priority_classes: Table<WorkloadPriorityClass>,
    /// Workloads that no hub dispatched: put there by hand or pinned.
    pub direct_workloads: Table<Workload>,
    /// Told at each answer to a probe.
    pub answers: Arc<Answers>,
    pub tasks: TaskTables,
    /// Set by whoever finds that this is not the cluster that was joined.
    pub quarantine: watch::Sender<Option<QuarantineReason>>,
    pub cancel: CancellationToken,
    /// Of all that is kept of it.
    pub allowance: Allowance,
}

/// What a worker's tables held, for the next start to begin from.
#[derive(Deserialize, Serialize)]
pub struct KnownObjects {
    queues: Option<Known<ClusterQueue>>,
    local_queues: Option<Known<LocalQueue>>,
    flavors: Option<Known<ResourceFlavor>>,
    cohorts: Option<Known<Cohort>>,
    topologies: Option<Known<MetaOnly>>,
    checks: Option<Known<AdmissionCheck>>,
    namespaces: Option<Known<MetaOnly>>,
    priority_classes: Option<Known<WorkloadPriorityClass>>,
    direct_workloads: Option<Known<Workload>>,
    jobs: Option<Known<TaskJob>>,
    job_sets: Option<Known<TaskJob>>,
    pods: Option<Known<LogPod>>,
    volume_claims: Option<Known<VolumeClaim>>,
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
        let a = &allowance;
        Self {
            name,
            logs: LogConnections::new(client.clone()),
            client,
            uid,
            connected: Instant::now(),
            queues: Table::within(a),
            local_queues: Table::within(a),
            flavors: Table::within(a),
            cohorts: Table::within(a),
            topologies: Table::within(a),
            checks: Table::within(a),
            namespaces: Table::within(a),
            priority_classes: Table::within(a),
            direct_workloads: Table::within(a),
            answers: Arc::default(),
            tasks: TaskTables::within(a),
            quarantine: watch::Sender::new(None),
            cancel,
            allowance,
        }
    }

    pub fn known(&self) -> KnownObjects {
        KnownObjects {
            queues: self.queues.known(),
            local_queues: self.local_queues.known(),
            flavors: self.flavors.known(),
            cohorts: self.cohorts.known(),
            topologies: self.topologies.known(),
            checks: self.checks.known(),
            namespaces: self.namespaces.known(),
            priority_classes: self.priority_classes.known(),
            direct_workloads: self.direct_workloads.known(),
            jobs: self.tasks.jobs.known(),
            job_sets: self.tasks.job_sets.known(),
            pods: self.tasks.pods.known(),
            volume_claims: self.tasks.claims.known(),
        }
    }

    /// Before anything is followed: each kind goes on from there if the server still has its version, and is
    /// listed otherwise.
    pub fn restore(&self, known: KnownObjects) {
        fn fill<T: Record>(table: &Table<T>, known: Option<Known<T>>) {
            if let Some(known) = known {
                table.restore(known);
            }
        }
        fill(&self.queues, known.queues);
        fill(&self.local_queues, known.local_queues);
        fill(&self.flavors, known.flavors);
        fill(&self.cohorts, known.cohorts);
        fill(&self.topologies, known.topologies);
        fill(&self.checks, known.checks);
        fill(&self.namespaces, known.namespaces);
        fill(&self.priority_classes, known.priority_classes);
        fill(&self.direct_workloads, known.direct_workloads);
        fill(&self.tasks.jobs, known.jobs);
        fill(&self.tasks.job_sets, known.job_sets);
        fill(&self.tasks.pods, known.pods);
        fill(&self.tasks.claims, known.volume_claims);
    }

    pub fn follow(&self, timing: &Timing, (hub_id, wake): (&str, &Wake), tasks: &mut JoinSet<()>) {
        let mut following = Following::new(self.client.clone(), timing.clone(), wake.all());
        following.answers = Arc::clone(&self.answers);
        following.allowance = self.allowance.clone();
        let f = &following;
        // A plan of quota does not wait for them.
        let of_tasks = Following { linked: vec![Arc::clone(&wake.task)], ..f.read_by([&wake.task]) };
        self.follow_jobs(&of_tasks, hub_id, tasks);
        self.tasks.follow(&of_tasks, hub_id, &self.cancel, tasks);
        let kueue = |plural: &str| {
            (format!("/apis/kueue.x-k8s.io/v1beta2/{plural}"), Selector::default(), self.cancel.clone())
        };
        // Only these change all the time: the rest wakes everybody.
        let of_queues = f.read_by(wake.of_local_queues().chain([&wake.quota]).chain(&wake.inventory));
        follow_table(&of_queues, &self.queues, kueue("clusterqueues"), tasks);
        let of_local_queues = f.read_by(wake.of_local_queues());
        follow_table(&of_local_queues, &self.local_queues, kueue("localqueues"), tasks);
        follow_table(f, &self.flavors, kueue("resourceflavors"), tasks);
        follow_table(f, &self.cohorts, kueue("cohorts"), tasks);
        follow_table(f, &self.topologies, kueue("topologies"), tasks);
        follow_table(f, &self.checks, kueue("admissionchecks"), tasks);
        follow_table(f, &self.priority_classes, kueue("workloadpriorityclasses"), tasks);
        let namespaces = ("/api/v1/namespaces".to_owned(), Selector::default(), self.cancel.clone());
        follow_table(&f.read_by([&wake.queue, &wake.task]), &self.namespaces, namespaces, tasks);
        let (path, _, cancel) = kueue("workloads");
        let direct = Selector { labels: Some(format!("!{DISPATCHED_LABEL}")), fields: None };
        let of_workloads = f.read_by([&wake.quota, &wake.task]);
        follow_table(&of_workloads, &self.direct_workloads, (path, direct, cancel), tasks);
    }

    /// Jobs and JobSets of tasks, and nothing else: where MultiKueue takes them from, they have no pods.
    pub fn follow_jobs(&self, following: &Following, hub_id: &str, tasks: &mut JoinSet<()>) {
        let of = |path: &str| (path.to_owned(), ours(hub_id, TASK_LABEL), self.cancel.clone());
        follow_table(following, &self.tasks.jobs, of("/apis/batch/v1/jobs"), tasks);
        follow_table(following, &self.tasks.job_sets, of("/apis/jobset.x-k8s.io/v1alpha2/jobsets"), tasks);
    }

    /// Whether everything a plan for this cluster rests on is known.
    pub fn synced(&self) -> bool {
        self.queues.synced()
            && self.local_queues.synced()
            && self.flavors.synced()
            && self.cohorts.synced()
            && self.checks.synced()
            && self.namespaces.synced()
            && self.priority_classes.synced()
            && self.direct_workloads.synced()
    }

    /// Whether some of it was asked for in vain, so that nobody knows when the rest is known.
    pub fn is_refused(&self) -> bool {
        self.queues.is_refused()
            || self.local_queues.is_refused()
            || self.flavors.is_refused()
            || self.cohorts.is_refused()
            || self.checks.is_refused()
            || self.namespaces.is_refused()
            || self.priority_classes.is_refused()
            || self.direct_workloads.is_refused()
    }

    /// Whether all of it is also being followed at this moment.
    pub fn is_current(&self) -> bool {
        self.queues.is_current()
            && self.local_queues.is_current()
            && self.flavors.is_current()
            && self.cohorts.is_current()
            && self.checks.is_current()
            && self.namespaces.is_current()
            && self.priority_classes.is_current()
            && self.direct_workloads.is_current()
    }

    /// Whether what is there of tasks, and what is not, is known and followed at this moment.
    pub fn follows_tasks(&self) -> bool {
        self.follows_jobs() && self.tasks.pods.is_current()
    }

    /// The same, where no pods are followed.
    pub fn follows_jobs(&self) -> bool {
        let TaskTables { jobs, job_sets, .. } = &self.tasks;
        jobs.is_current() && job_sets.is_current() && self.direct_workloads.is_current()
    }

    /// Of all that a plan reads here. Each count only grows, so the same sum means that none changed.
    pub fn revision(&self) -> u64 {
        self.queues.revision() + self.checks.revision() + self.direct_workloads.revision()
    }

    /// Of all that a plan rests on, and of how each kind is followed.
    pub fn changes(&self) -> u64 {
        self.revision()
            + self.local_queues.revision()
            + self.flavors.revision()
            + self.cohorts.revision()
            + self.namespaces.revision()
            + self.priority_classes.revision()
    }

    /// Takes over what a write was answered with, so that the next decision need not wait for its watch event.
    pub fn absorb_answer(&self, change: &Change, answer: &Value) {
        if change.is_deletion() {
            return;
        }
        match change.target.kind {
            Kind::ClusterQueue => self.queues.absorb_answer(answer),
            Kind::LocalQueue => self.local_queues.absorb_answer(answer),
            Kind::ResourceFlavor => self.flavors.absorb_answer(answer),
            Kind::WorkloadPriorityClass => self.priority_classes.absorb_answer(answer),
            Kind::Namespace => self.namespaces.absorb_answer(answer),
            Kind::Job => self.tasks.jobs.absorb_answer(answer),
            Kind::JobSet => self.tasks.job_sets.absorb_answer(answer),
            Kind::VolumeClaim => self.tasks.claims.absorb_answer(answer),
            _ => {}
        }
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
