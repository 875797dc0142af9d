//! Every metric of the daemon. Labels come from enums, constants and names of clusters, flavors and
//! resources; never from workloads, users or error texts, so that their number stays bounded.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
        info::Info,
    },
    registry::Registry,
};

use fedq_domain::{
    cluster::Connection,
    resources::FlavorResource,
    task::{event::Reason, phase::LIVE_WORDS},
};
use fedq_values::{
    ids::{ClusterName, FlavorName, ResourceName},
    quantity::Amount,
};

/// A handle; clones share the values.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    insecure: Family<SettingLabels, Gauge>,
    connection: Family<ConnectionLabels, Gauge>,
    last_seen: Family<ClusterLabels, Units>,
    pending: Family<ClusterLabels, Gauge>,
    refusals: OfClusters<RefusalLabels, Counter>,
    clusters_tried: Histogram,
    admission_seconds: OfClusters<ClusterLabels, Histogram>,
    watch_restarts: OfClusters<RestartLabels, Counter>,
    node_events: OfClusters<NodeEventLabels, Counter>,
    api_requests: OfClusters<RequestLabels, Counter>,
    api_request_seconds: OfClusters<ClusterLabels, Counter<f64, AtomicU64>>,
    writes: OfClusters<WriteLabels, Counter>,
    publications: Family<PublicationLabels, Counter>,
    plan_seconds: Histogram,
    reconcile_seconds: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    reconcile_errors: Family<ControllerLabels, Counter>,
    assigned: Family<QuotaLabels, Units>,
    effective: Family<QuotaLabels, Units>,
    capacity: Family<QuotaLabels, Units>,
    /// Only where there is some.
    coming: Family<QuotaLabels, Units>,
    store_commit_seconds: Histogram,
    store_errors: Counter,
    capacity_to_write_seconds: Histogram,
    tasks: Family<PhaseLabels, Gauge>,
    task_events: Family<ReasonLabels, Counter>,
    task_dispatch_seconds: Histogram,
    task_start_seconds: Histogram,
    /// Which series of quota each cluster has, so that those of a flavor that went do not stay.
    quota_series: Mutex<BTreeMap<ClusterName, BTreeSet<FlavorResource>>>,
    /// Whose series went last.
    left: Mutex<Vec<ClusterName>>,
}

/// A family whose series go with their clusters.
struct OfClusters<S, M> {
    family: Family<S, M, fn() -> M>,
    known: Mutex<HashMap<ClusterName, HashSet<S>>>,
}

impl<S: Clone + Eq + Hash, M> OfClusters<S, M> {
    fn new(make: fn() -> M) -> Self {
        Self { family: Family::new_with_constructor(make), known: Mutex::default() }
    }

    fn with(&self, cluster: &ClusterName, labels: S, on: impl FnOnce(&M)) {
        if let Some(metric) = self.family.get(&labels) {
            return on(&metric);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        on(&self.family.get_or_create(&labels));
        known.entry(cluster.clone()).or_default().insert(labels);
    }

    fn forget(&self, cluster: &ClusterName) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for labels in known.remove(cluster).unwrap_or_default() {
            self.family.remove(&labels);
        }
    }
}

type Units = Gauge<f64, AtomicU64>;

/// What of one (flavor, resource) a cluster's gauges show.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QuotaGauge {
    pub at: FlavorResource,
    pub assigned: Amount,
    pub effective: Amount,
    pub capacity: Amount,
    pub coming: Amount,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct BuildLabels {
    version: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SettingLabels {
    setting: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ConnectionLabels {
    cluster: Label<ClusterName>,
    state: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ClusterLabels {
    cluster: Label<ClusterName>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RefusalLabels {
    cluster: Label<ClusterName>,
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RestartLabels {
    cluster: Label<ClusterName>,
    kind: String,
    reason: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct NodeEventLabels {
    cluster: Label<ClusterName>,
    changed: bool,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RequestLabels {
    cluster: Label<ClusterName>,
    verb: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct WriteLabels {
    cluster: Label<ClusterName>,
    kind: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PublicationLabels {
    of: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ReasonLabels {
    reason: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct QuotaLabels {
    cluster: Label<ClusterName>,
    flavor: Label<FlavorName>,
    resource: Label<ResourceName>,
}

impl QuotaGauge {
    pub fn zero(at: FlavorResource) -> Self {
        let zero = Amount::ZERO;
        Self { at, assigned: zero, effective: zero, capacity: zero, coming: zero }
    }
}

/// Every [`Connection::word`]: one of a cluster's series is 1, the others 0.
pub const CONNECTION_WORDS: [&str; 7] =
    ["Connecting", "Ready", "Stale", "Lost", "Quarantined", "Refused", "Unreached"];

/// 100 µs to 52 s: from a plan in memory to a write against a slow cluster.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 20))
}

/// Few, since each cluster has its own: a healthy dispatch, one round of a dispatcher, and a wait for quota.
fn admissions() -> Histogram {
    Histogram::new([1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 600.0])
}

/// A tenth of a second to half a day: tasks wait for quota.
fn waits() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 2.0, 20))
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("fedq");
        let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") });
        registry.register("build", "Version of this fedqd", build);
        let mut families = Families {
            registry,
            insecure: Family::default(),
            connection: Family::default(),
            last_seen: Family::default(),
            pending: Family::default(),
            refusals: OfClusters::new(Default::default),
            clusters_tried: Histogram::new([1.0, 2.0, 3.0, 5.0, 10.0, 20.0]),
            admission_seconds: OfClusters::new(admissions),
            watch_restarts: OfClusters::new(Default::default),
            node_events: OfClusters::new(Default::default),
            api_requests: OfClusters::new(Default::default),
            api_request_seconds: OfClusters::new(Default::default),
            writes: OfClusters::new(Default::default),
            publications: Family::default(),
            plan_seconds: seconds(),
            reconcile_seconds: Family::new_with_constructor(seconds),
            reconcile_errors: Family::default(),
            assigned: Family::default(),
            effective: Family::default(),
            capacity: Family::default(),
            coming: Family::default(),
            store_commit_seconds: seconds(),
            store_errors: Counter::default(),
            capacity_to_write_seconds: seconds(),
            tasks: Family::default(),
            task_events: Family::default(),
            task_dispatch_seconds: seconds(),
            task_start_seconds: waits(),
            quota_series: Mutex::default(),
            left: Mutex::default(),
        };
        families.register();
        Self(Arc::new(families))
    }

    /// All metrics in OpenMetrics text.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry)?;
        Ok(text)
    }

    /// A setting that lets callers in who prove nothing.
    pub fn insecure(&self, setting: &'static str, on: bool) {
        self.0.insecure.get_or_create(&SettingLabels { setting }).set(i64::from(on));
    }

    pub fn connection(&self, cluster: &ClusterName, connection: &Connection) {
        for state in CONNECTION_WORDS {
            let labels = ConnectionLabels { cluster: Label(cluster.clone()), state };
            self.0.connection.get_or_create(&labels).set(i64::from(state == connection.word()));
        }
    }

    /// The cluster answered.
    #[expect(clippy::cast_precision_loss, reason = "metrics are floats; nothing is computed from them")]
    pub fn seen(&self, cluster: &ClusterName, at: Timestamp) {
        let labels = ClusterLabels { cluster: Label(cluster.clone()) };
        self.0.last_seen.get_or_create(&labels).set(at.as_millisecond() as f64 / 1e3);
    }

    /// Workloads that wait in the cluster's queues of this hub.
    pub fn pending(&self, cluster: &ClusterName, workloads: i64) {
        self.0.pending.get_or_create(&ClusterLabels { cluster: Label(cluster.clone()) }).set(workloads);
    }

    /// The cluster did not take a write.
    pub fn refused(&self, cluster: &ClusterName, reason: &'static str) {
        let labels = RefusalLabels { cluster: Label(cluster.clone()), reason };
        self.0.refusals.with(cluster, labels, |count| _ = count.inc());
    }

    /// A Workload was admitted after so many clusters had been nominated for it.
    pub fn admitted(&self, clusters: u32) {
        self.0.clusters_tried.observe(f64::from(clusters));
    }

    /// A Workload had waited so long for a cluster when this one took it.
    pub fn admitted_by(&self, cluster: &ClusterName, waited: Duration) {
        let labels = ClusterLabels { cluster: Label(cluster.clone()) };
        self.0.admission_seconds.with(cluster, labels, |waits| waits.observe(waited.as_secs_f64()));
    }

    /// A watch that did not end in good order.
    pub fn watch_restarted(&self, cluster: &ClusterName, kind: &str, reason: &'static str) {
        let labels = RestartLabels { cluster: Label(cluster.clone()), kind: kind.to_owned(), reason };
        self.0.watch_restarts.with(cluster, labels, |count| _ = count.inc());
    }

    /// `changed`: whether the event changed capacity. Most do not: heartbeats, images.
    pub fn node_event(&self, cluster: &ClusterName, changed: bool) {
        let labels = NodeEventLabels { cluster: Label(cluster.clone()), changed };
        self.0.node_events.with(cluster, labels, |count| _ = count.inc());
    }

    /// `took`: until its answer began.
    pub fn api_request(&self, cluster: &ClusterName, verb: &'static str, code: &'static str, took: Duration) {
        let label = Label(cluster.clone());
        let labels = ClusterLabels { cluster: label.clone() };
        self.0.api_request_seconds.with(cluster, labels, |count| _ = count.inc_by(took.as_secs_f64()));
        self.0
            .api_requests
            .with(cluster, RequestLabels { cluster: label, verb, code }, |count| _ = count.inc());
    }

    /// What is written on the hub counts as any cluster's.
    pub fn wrote(&self, cluster: &ClusterName, kind: &str) {
        let labels = WriteLabels { cluster: Label(cluster.clone()), kind: kind.to_owned() };
        self.0.writes.with(cluster, labels, |count| _ = count.inc());
    }

    /// One part of fedqd told the others something new, which wakes all who listen.
    pub fn published(&self, of: &'static str) {
        self.0.publications.get_or_create(&PublicationLabels { of }).inc();
    }

    pub fn planned(&self, took: Duration) {
        self.0.plan_seconds.observe(took.as_secs_f64());
    }

    pub fn reconciled(&self, controller: &'static str, took: Duration, failed: bool) {
        let labels = ControllerLabels { controller };
        self.0.reconcile_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        // Made at the first success too: an alert on the rate needs the series from the start.
        let errors = self.0.reconcile_errors.get_or_create(&labels);
        if failed {
            errors.inc();
        }
    }

    pub fn committed(&self, took: Duration, kept: bool) {
        self.0.store_commit_seconds.observe(took.as_secs_f64());
        if !kept {
            self.0.store_errors.inc();
        }
    }

    /// From the event that changed capacity to the first queue written for it.
    pub fn capacity_written(&self, took: Duration) {
        self.0.capacity_to_write_seconds.observe(took.as_secs_f64());
    }

    /// How many tasks that are not over are in each phase.
    pub fn tasks(&self, counts: &BTreeMap<&'static str, i64>) {
        for phase in LIVE_WORDS {
            let count = counts.get(phase).copied().unwrap_or_default();
            self.0.tasks.get_or_create(&PhaseLabels { phase }).set(count);
        }
    }

    pub fn task_event(&self, reason: Reason) {
        self.0.task_events.get_or_create(&ReasonLabels { reason: reason.to_string() }).inc();
    }

    /// From the acceptance of a task until its objects were all on a cluster.
    pub fn task_dispatched(&self, took: Duration) {
        self.0.task_dispatch_seconds.observe(took.as_secs_f64());
    }

    /// From the acceptance of a task until all its nodes ran.
    pub fn task_started(&self, took: Duration) {
        self.0.task_start_seconds.observe(took.as_secs_f64());
    }

    /// Sets the cluster's gauges; series of cells that are not in `cells` go.
    pub fn quota(&self, cluster: &ClusterName, cells: &[QuotaGauge]) {
        let families = &self.0;
        let now = cells.iter().map(|cell| cell.at.clone()).collect::<BTreeSet<_>>();
        let mut series = families.quota_series.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in series.remove(cluster).unwrap_or_default().difference(&now) {
            let labels = QuotaLabels::new(cluster, gone);
            for family in [&families.assigned, &families.effective, &families.capacity, &families.coming] {
                family.remove(&labels);
            }
        }
        for cell in cells {
            let labels = QuotaLabels::new(cluster, &cell.at);
            for (family, amount) in [
                (&families.assigned, cell.assigned),
                (&families.effective, cell.effective),
                (&families.capacity, cell.capacity),
            ] {
                family.get_or_create(&labels).set(base_units(amount, &cell.at.resource));
            }
            if cell.coming.is_zero() {
                families.coming.remove(&labels);
            } else {
                families.coming.get_or_create(&labels).set(base_units(cell.coming, &cell.at.resource));
            }
        }
        if !now.is_empty() {
            series.insert(cluster.clone(), now);
        }
    }

    /// The cluster left: what its link was and what was counted of it goes, so that names that come and go do not pile up.
    pub fn forget_link(&self, cluster: &ClusterName) {
        let mut left = self.0.left.lock().unwrap_or_else(PoisonError::into_inner);
        // Requests that were under way when a cluster left are counted after it.
        for name in std::mem::replace(&mut *left, vec![cluster.clone()]).iter().chain([cluster]) {
            self.0.refusals.forget(name);
            self.0.admission_seconds.forget(name);
            self.0.watch_restarts.forget(name);
            self.0.node_events.forget(name);
            self.0.api_requests.forget(name);
            self.0.api_request_seconds.forget(name);
            self.0.writes.forget(name);
        }
        drop(left);
        for state in CONNECTION_WORDS {
            self.0.connection.remove(&ConnectionLabels { cluster: Label(cluster.clone()), state });
        }
        let labels = ClusterLabels { cluster: Label(cluster.clone()) };
        self.0.last_seen.remove(&labels);
    }

    /// Nobody knows what waits there: the cluster left, or does not tell.
    pub fn forget_pending(&self, cluster: &ClusterName) {
        self.0.pending.remove(&ClusterLabels { cluster: Label(cluster.clone()) });
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Families {
    fn register(&mut self) {
        let registry = &mut self.registry;
        let insecure = self.insecure.clone();
        registry.register("insecure", "1 where the setting lets callers in who prove nothing", insecure);
        let connection = self.connection.clone();
        registry.register(
            "cluster_connection",
            "State of the link to a cluster: 1 for the current",
            connection,
        );
        registry.register(
            "cluster_last_seen_timestamp_seconds",
            "When a cluster last answered, in seconds since 1970",
            self.last_seen.clone(),
        );
        registry.register(
            "cluster_pending_workloads",
            "Workloads that wait in a cluster's queues of this hub",
            self.pending.clone(),
        );
        registry.register(
            "cluster_refusals",
            "Writes that a cluster did not take, by reason",
            self.refusals.family.clone(),
        );
        registry.register(
            "watch_restarts",
            "Watches that broke and were begun anew, by reason",
            self.watch_restarts.family.clone(),
        );
        registry.register(
            "node_events",
            "Node events, by whether capacity changed",
            self.node_events.family.clone(),
        );
        registry.register("api_requests", "Requests to clusters", self.api_requests.family.clone());
        registry.register(
            "api_request_seconds",
            "Time until the answers of requests began",
            self.api_request_seconds.family.clone(),
        );
        registry.register("writes", "Objects written to clusters", self.writes.family.clone());
        registry.register(
            "publications",
            "What parts of fedqd tell each other; at rest it does not move",
            self.publications.clone(),
        );
        registry.register("plan_seconds", "Time to make a plan", self.plan_seconds.clone());
        registry.register("reconcile_seconds", "Time a controller took", self.reconcile_seconds.clone());
        registry.register("reconcile_errors", "Failed runs of a controller", self.reconcile_errors.clone());
        let commit = self.store_commit_seconds.clone();
        registry.register("store_commit_seconds", "Time of a commit to the database", commit);
        let errors = self.store_errors.clone();
        registry.register("store_errors", "Commits to the database that failed, whole or in part", errors);
        let latency = self.capacity_to_write_seconds.clone();
        registry.register(
            "capacity_to_write_seconds",
            "From a change of capacity seen to the first queue written for it",
            latency,
        );
        self.register_quota();
        self.register_admissions();
        self.register_tasks();
    }

    fn register_quota(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "quota_assigned",
            "What claims ask for, in cores, bytes or pieces",
            self.assigned.clone(),
        );
        registry.register(
            "quota_effective",
            "What queues get, in cores, bytes or pieces",
            self.effective.clone(),
        );
        registry.register(
            "quota_capacity",
            "What nodes offer, in cores, bytes or pieces",
            self.capacity.clone(),
        );
        registry.register(
            "quota_coming",
            "What an autoscaler would bring beyond that, in cores, bytes or pieces",
            self.coming.clone(),
        );
    }

    fn register_admissions(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "admission_clusters_tried",
            "Clusters nominated for a Workload until it was admitted",
            self.clusters_tried.clone(),
        );
        registry.register(
            "admission_seconds",
            "From a Workload's quota on the hub until this cluster had taken it",
            self.admission_seconds.family.clone(),
        );
    }

    fn register_tasks(&mut self) {
        let registry = &mut self.registry;
        registry.register("tasks", "Tasks that are not over, by phase", self.tasks.clone());
        registry.register("task_events", "What happened to tasks, by reason", self.task_events.clone());
        registry.register(
            "task_dispatch_seconds",
            "From the acceptance of a task to its objects on a cluster, the first time",
            self.task_dispatch_seconds.clone(),
        );
        registry.register(
            "task_start_seconds",
            "From the acceptance of a task until all its nodes run, the first time",
            self.task_start_seconds.clone(),
        );
    }
}

impl QuotaLabels {
    fn new(cluster: &ClusterName, at: &FlavorResource) -> Self {
        Self {
            cluster: Label(cluster.clone()),
            flavor: Label(at.flavor.clone()),
            resource: Label(at.resource.clone()),
        }
    }
}

/// Cores, bytes, pieces. A float, since Prometheus has nothing else.
#[expect(clippy::cast_precision_loss, reason = "metrics are floats; nothing is computed from them")]
fn base_units(amount: Amount, resource: &ResourceName) -> f64 {
    amount.units() as f64 * (resource.nanos_per_unit() as f64 / 1e9)
}

/// A name as the value of a label. Names are in a crate of their own, which knows nothing of metrics.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Label<N>(N);

impl<N: Borrow<str>> EncodeLabelValue for Label<N> {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
        EncodeLabelValue::encode(&self.0.borrow(), encoder)
    }
}

#[cfg(test)]
mod tests;
