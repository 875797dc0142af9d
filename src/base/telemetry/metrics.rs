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
mod tests {
    use super::*;
    use crate::telemetry::Format;

    fn cluster() -> ClusterName {
        ClusterName::new("worker-1").expect("a name")
    }

    fn gauge(resource: &str, units: i64) -> QuotaGauge {
        QuotaGauge {
            at: FlavorResource {
                flavor: FlavorName::new("on-demand").expect("a name"),
                resource: ResourceName::new(resource).expect("a name"),
            },
            assigned: Amount::new(units),
            effective: Amount::new(units),
            capacity: Amount::new(units),
            coming: Amount::ZERO,
        }
    }

    #[track_caller]
    fn assert_line(metrics: &Metrics, line: &str) {
        let text = metrics.encode().expect("encodes");
        assert!(text.lines().any(|found| found == line), "no line `{line}` in:\n{text}");
    }

    #[test]
    fn every_family_is_exposed_under_its_documented_name() {
        let metrics = Metrics::new();
        metrics.insecure("insecureXUser", true);
        metrics.insecure("insecureAdmin", false);
        metrics.connection(&cluster(), &Connection::Ready);
        metrics.watch_restarted(&cluster(), "nodes", "Expired");
        metrics.node_event(&cluster(), false);
        metrics.api_request(&cluster(), "patch", "409", Duration::from_millis(500));
        metrics.seen(&cluster(), "2026-11-21T00:00:00.25Z".parse().expect("a time"));
        metrics.pending(&cluster(), 7);
        metrics.refused(&cluster(), "Forbidden");
        metrics.admitted(2);
        metrics.admitted_by(&cluster(), Duration::from_secs(4));
        metrics.wrote(&cluster(), "ClusterQueue");
        metrics.planned(Duration::from_millis(1));
        metrics.reconciled("quota", Duration::from_millis(1), true);
        metrics.reconciled("capacity", Duration::from_millis(1), false);
        metrics.published("capacity");
        metrics.committed(Duration::from_millis(2), true);
        metrics.committed(Duration::from_millis(2), false);
        metrics.capacity_written(Duration::from_secs(1));
        metrics.tasks(&[("queued", 3)].into());
        metrics.task_event(Reason::Chosen);
        metrics.task_dispatched(Duration::from_millis(30));
        metrics.task_started(Duration::from_mins(3));
        metrics.quota(&cluster(), &[gauge("cpu", 1500), gauge("nvidia.com/gpu", 8)]);
        for line in [
            concat!("fedq_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
            "fedq_insecure{setting=\"insecureXUser\"} 1",
            "fedq_insecure{setting=\"insecureAdmin\"} 0",
            "fedq_cluster_connection{cluster=\"worker-1\",state=\"Ready\"} 1",
            "fedq_cluster_connection{cluster=\"worker-1\",state=\"Lost\"} 0",
            "fedq_watch_restarts_total{cluster=\"worker-1\",kind=\"nodes\",reason=\"Expired\"} 1",
            "fedq_node_events_total{cluster=\"worker-1\",changed=\"false\"} 1",
            "fedq_api_requests_total{cluster=\"worker-1\",verb=\"patch\",code=\"409\"} 1",
            "fedq_api_request_seconds_total{cluster=\"worker-1\"} 0.5",
            "fedq_cluster_last_seen_timestamp_seconds{cluster=\"worker-1\"} 1795219200.25",
            "fedq_cluster_pending_workloads{cluster=\"worker-1\"} 7",
            "fedq_cluster_refusals_total{cluster=\"worker-1\",reason=\"Forbidden\"} 1",
            "fedq_admission_clusters_tried_bucket{le=\"2.0\"} 1",
            "fedq_admission_seconds_sum{cluster=\"worker-1\"} 4.0",
            "fedq_admission_seconds_bucket{le=\"2.0\",cluster=\"worker-1\"} 0",
            "fedq_admission_seconds_bucket{le=\"5.0\",cluster=\"worker-1\"} 1",
            "fedq_writes_total{cluster=\"worker-1\",kind=\"ClusterQueue\"} 1",
            "fedq_publications_total{of=\"capacity\"} 1",
            "fedq_plan_seconds_count 1",
            "fedq_tasks{phase=\"queued\"} 3",
            "fedq_tasks{phase=\"running\"} 0",
            "fedq_task_events_total{reason=\"Chosen\"} 1",
            "fedq_task_dispatch_seconds_count 1",
            "fedq_task_start_seconds_count 1",
            "fedq_reconcile_seconds_count{controller=\"quota\"} 1",
            "fedq_reconcile_errors_total{controller=\"quota\"} 1",
            "fedq_reconcile_errors_total{controller=\"capacity\"} 0",
            "fedq_store_commit_seconds_count 2",
            "fedq_store_errors_total 1",
            "fedq_capacity_to_write_seconds_sum 1.0",
            "fedq_quota_assigned{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"cpu\"} 1.5",
            "fedq_quota_effective{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"nvidia.com/gpu\"} 8.0",
        ] {
            assert_line(&metrics, line);
        }
    }

    #[test]
    fn what_could_come_is_told_where_something_could() {
        let metrics = Metrics::new();
        let coming = |metrics: &Metrics| {
            let text = metrics.encode().expect("encodes");
            text.lines()
                .filter(|line| line.starts_with("fedq_quota_coming{"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        metrics.quota(&cluster(), &[QuotaGauge { coming: Amount::new(1500), ..gauge("cpu", 1000) }]);
        assert_eq!(
            coming(&metrics),
            ["fedq_quota_coming{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"cpu\"} 1.5"]
        );
        metrics.quota(&cluster(), &[gauge("cpu", 1000)]);
        assert_eq!(coming(&metrics), [""; 0]);
        metrics.quota(&cluster(), &[QuotaGauge { coming: Amount::new(1500), ..gauge("cpu", 1000) }]);
        metrics.quota(&cluster(), &[]);
        assert_eq!(coming(&metrics), [""; 0]);
    }

    #[test]
    fn an_alert_s_threshold_is_a_bound_of_its_histogram() {
        let metrics = Metrics::new();
        metrics.admitted_by(&cluster(), Duration::from_secs(61));
        assert_line(&metrics, "fedq_admission_seconds_bucket{le=\"300.0\",cluster=\"worker-1\"} 1");
    }

    #[test]
    fn label_values_are_escaped_in_both_formats() {
        let metrics = Metrics::new();
        let nasty = format!("a\"}} 1\nfedq_x 2 \\{}", "é".repeat(1 << 19));
        metrics.watch_restarted(&cluster(), &nasty, "Expired");
        let escaped = nasty.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let line = format!(
            "fedq_watch_restarts_total{{cluster=\"worker-1\",kind=\"{escaped}\",reason=\"Expired\"}} 1"
        );
        let open_metrics = metrics.encode().expect("encodes");
        for text in [open_metrics.clone(), Format::Text.of(open_metrics)] {
            assert!(text.lines().any(|found| found == line), "the value is not escaped");
            assert!(!text.lines().any(|found| found.starts_with("fedq_x")), "it makes a line of its own");
        }
    }

    #[test]
    fn gauges_of_what_is_gone_go() {
        let metrics = Metrics::new();
        metrics.quota(&cluster(), &[gauge("cpu", 1500), gauge("memory", 8)]);
        metrics.quota(&cluster(), &[gauge("cpu", 1000)]);
        assert!(!metrics.encode().expect("encodes").contains("resource=\"memory\""));
        assert_line(
            &metrics,
            "fedq_quota_capacity{cluster=\"worker-1\",flavor=\"on-demand\",resource=\"cpu\"} 1.0",
        );
        metrics.connection(&cluster(), &Connection::Ready);
        metrics.seen(&cluster(), Timestamp::UNIX_EPOCH);
        metrics.pending(&cluster(), 1);
        let count = || {
            metrics.refused(&cluster(), "Forbidden");
            metrics.admitted_by(&cluster(), Duration::from_secs(4));
            metrics.watch_restarted(&cluster(), "nodes", "Expired");
            metrics.node_event(&cluster(), true);
            metrics.api_request(&cluster(), "get", "200", Duration::from_secs(1));
            metrics.wrote(&cluster(), "ClusterQueue");
        };
        count();
        metrics.forget_link(&cluster());
        metrics.forget_pending(&cluster());
        metrics.quota(&cluster(), &[]);
        assert!(!metrics.encode().expect("encodes").contains("worker-1"));
        // What was under way is counted after it left, and goes when the next one does.
        count();
        metrics.forget_link(&ClusterName::new("worker-2").expect("a name"));
        assert!(!metrics.encode().expect("encodes").contains("worker-1"));
    }

    /// As docs/observability.md counts them for a thousand clusters of four cells.
    #[test]
    fn the_series_of_a_thousand_clusters_are_bounded_by_what_they_have() {
        const CLUSTERS: usize = 1000;
        let metrics = Metrics::new();
        let cells: Vec<_> =
            ["cpu", "memory", "pods", "nvidia.com/gpu"].map(|name| gauge(name, 1000)).to_vec();
        for number in 0..CLUSTERS {
            let cluster = ClusterName::new(&format!("worker-{number}")).expect("a name");
            metrics.quota(&cluster, &cells);
            // Again and again, as over days: nothing is added.
            for connection in [Connection::Connecting, Connection::Ready, Connection::Unreached] {
                metrics.connection(&cluster, &connection);
                metrics.seen(&cluster, Timestamp::UNIX_EPOCH);
                metrics.pending(&cluster, 1);
                metrics.node_event(&cluster, true);
                metrics.node_event(&cluster, false);
                for (verb, code) in
                    [("get", "200"), ("list", "200"), ("watch", "200"), ("create", "201"), ("patch", "200")]
                {
                    metrics.api_request(&cluster, verb, code, Duration::from_millis(1));
                }
                for kind in
                    ["clusterqueues", "localqueues", "namespaces", "resourceflavors", "serviceaccounts"]
                {
                    metrics.wrote(&cluster, kind);
                }
            }
        }
        let text = metrics.encode().expect("encodes");
        let series = text.lines().filter(|line| line.contains("cluster=\"worker-")).count();
        let (any, cells, requests, events, kinds) = (10, 3 * 4, 5, 2, 5);
        assert_eq!(series, CLUSTERS * (any + cells + requests + events + kinds));
    }

    #[test]
    fn one_state_of_a_link_is_shown_at_a_time() {
        let metrics = Metrics::new();
        metrics.connection(&cluster(), &Connection::Connecting);
        for connection in [Connection::Refused { reason: "exec".to_owned() }, Connection::Unreached] {
            metrics.connection(&cluster(), &connection);
            let text = metrics.encode().expect("encodes");
            assert_eq!(
                text.lines().filter(|line| line.contains("_connection{") && line.ends_with(" 1")).count(),
                1
            );
            assert!(CONNECTION_WORDS.contains(&connection.word()));
        }
    }
}
