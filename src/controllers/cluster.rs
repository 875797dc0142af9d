//! Which clusters are joined, and the link to each: one task a cluster, from its kubeconfig to a
//! checked identity, then a probe that tells an answering cluster from a silent one.
//!
//! It writes nothing but the finalizer and the answered confirmation on the Secrets that join clusters.
//!
//! # How a cluster is linked
//!
//! A Secret in fedq's namespace with the label `fedq.dev/cluster` joins a cluster. So does a ClusterProfile there, where
//! `clusters.profiles` is enabled: `k8s/hub/profiles.rs` makes a kubeconfig of it and of the Secret that its access provider
//! names, and from then on it is like any other. It is another's object, and never written.
//!
//! 1. `controllers/cluster.rs`, `ClusterController::reconcile`: each labelled Secret, then each ClusterProfile is read into a
//!    `Membership` (`cluster/membership.rs`); of two for one cluster the older counts. A new or changed one starts a `Member` task
//!    (`keep`), a deleted one ends it once the cluster is clear (`keep_finalizer`, `forget`).
//! 2. `controllers/cluster/member.rs`, `Member::live`: `connect` checks the kubeconfig
//!    (`k8s::kubeconfig::check`) and makes a client (`k8s::client::connect`: one HTTP/2 connection, with
//!    deadlines). What is refused ends as `Refused` with the reason. A server that sends GOAWAY, as when it is updated, is
//!    asked again on the next connection for what it had not looked at (`k8s/client/again.rs`).
//! 3. `first_answer` asks for the cluster's identity, the UID of its kube-system namespace. `refusal` turns the
//!    hub itself and a cluster that is joined twice away; `mismatch` compares with the stored identity and
//!    quarantines a cluster that is another one.
//! 4. `connected` makes a `k8s::worker::Worker`: the client and a `Table` for each kind, each filled by
//!    one `k8s::follow::follow_table` task. A probe tells an answering cluster from a silent one: `Ready`,
//!    `Stale`, `Lost`.
//! 5. All of it is published whole as `JoinedClusters`. A new kubeconfig makes a new `Worker`; tables
//!    and rows of the store live on by name, so no quota dips. Where the new one does not work, the old `Worker` is let go
//!    of all the same (`let_go`): no connection outlives its kubeconfig.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::driver::{self, Controller, Driver, Failure, Next, Pace, Tasks};
use fedq_base::telemetry::Metrics;
use fedq_domain::cluster::Connection;
use fedq_k8s::{
    client::{ClientLimits, Observer, RetryClass, Told},
    follow::TableSet,
    follow::Wake,
    kubeconfig::Rules,
    list_watch::{Limits, Timing},
    read::managed::unjoined,
    worker::{CLUSTER_METRICS, Joined, JoinedClusters},
    write::{self, Action, Change, Kind, Target},
};
use fedq_store::{ClusterRow, ClusterSource, until_kept};
use fedq_values::ids::ClusterName;

use self::{
    member::Member,
    membership::{Membership, Origin, ProfilesChanged, memberships},
};

mod member;
mod membership;

/// Keeps a deleted Secret until the cluster's share is withdrawn and its queues are cleared.
const FINALIZER: &str = "fedq.dev/leave";
const CORDON: &str = "fedq.dev/cordon";
const CONFIRM_IDENTITY: &str = "fedq.dev/confirm-identity";
const CONTEXT: &str = "fedq.dev/context";
const MANAGER: &str = "fedq-cluster";
/// How often a leaving cluster is looked at again, besides on every change.
const LEAVING_PERIOD: Duration = Duration::from_secs(2);
/// Secrets that are marked at a time.
const MARKS: usize = 8;
/// Time alone makes a cluster that OCM calls unavailable a lost one.
const PERIOD: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Settings {
    pub rules: Rules,
    pub limits: ClientLimits,
    pub timing: Timing,
    /// For one request.
    pub request: Duration,
    /// Without an answer for this long, a cluster is stale.
    pub stale_after: Duration,
    /// Without an answer for this long, its share is taken off the hub.
    pub lost_timeout: Duration,
    /// What is kept of one cluster.
    pub most: Limits,
    /// Tells this program from another that may read more of an object. Without it nothing is kept between
    /// starts.
    pub build: Option<String>,
}

/// What the tasks of all clusters share.
#[derive(Clone)]
struct Context {
    all: super::context::Context,
    settings: Arc<Settings>,
    joined: watch::Sender<Arc<JoinedClusters>>,
    /// Woken when a cluster's objects or its link change.
    wake: Wake,
}

pub struct ClusterController {
    context: Context,
    members: BTreeMap<ClusterName, Running>,
    /// Clusters that only OCM knows, with the versions that were told of.
    managed: BTreeMap<ClusterName, u64>,
    tasks: Tasks,
    changed: Changed,
}

/// What joins clusters.
struct Changed {
    secrets: watch::Receiver<()>,
    reports: watch::Receiver<()>,
    managed: watch::Receiver<()>,
    profiles: ProfilesChanged,
}

struct Running {
    /// Hash of what the task was started with.
    key: u64,
    cancel: CancellationToken,
}

impl ClusterController {
    pub fn new(
        all: super::context::Context,
        settings: Settings,
        joined: watch::Sender<Arc<JoinedClusters>>,
        wake: Wake,
    ) -> Self {
        let changed = Changed {
            secrets: all.hub.secrets.changed(),
            reports: all.hub.cluster_metrics.changed(),
            managed: all.hub.ocm.clusters.changed(),
            profiles: ProfilesChanged::of(&all.hub),
        };
        let context = Context { all, settings: Arc::new(settings), joined, wake };
        let (members, managed) = (BTreeMap::new(), BTreeMap::new());
        Self { context, members, managed, tasks: Tasks::new(), changed }
    }

    /// Follows what joins clusters until the daemon stops.
    pub async fn run(self) -> anyhow::Result<()> {
        let (metrics, stop) = (self.context.all.metrics.clone(), self.context.all.stop.clone());
        Driver { signal: Arc::new(Notify::new()), metrics }.run(self, stop).await
    }

    async fn follow(&mut self) -> anyhow::Result<()> {
        let memberships = memberships(&self.context.all.hub);
        let gone: Vec<ClusterName> =
            self.members.keys().filter(|name| !memberships.contains_key(*name)).cloned().collect();
        for name in gone {
            self.forget(&name).await?;
        }
        for membership in memberships.values() {
            self.keep(membership);
        }
        self.keep_unreached().await?;
        self.tell_managed();
        // A hub that is slow to answer is not waited for once a cluster.
        let this = &*self;
        let mark = |membership: Membership| async move { this.keep_finalizer(&membership).await };
        stream::iter(memberships.into_values().map(mark)).buffer_unordered(MARKS).collect::<()>().await;
        Ok(())
    }

    /// Clusters that only report: those with a ClusterMetrics object and nothing that joins them.
    async fn keep_unreached(&mut self) -> anyhow::Result<()> {
        let mut reported: BTreeMap<ClusterName, Connection> = BTreeMap::new();
        for name in self.context.all.hub.reported() {
            if !self.members.contains_key(&name) {
                let connection = self.context.reported_connection(&name);
                reported.insert(name, connection);
            }
        }
        let joined = Arc::clone(&self.context.joined.borrow());
        let unreached = joined.iter().filter(|(_, entry)| entry.source == CLUSTER_METRICS);
        for (name, _) in unreached.filter(|(name, _)| !reported.contains_key(*name)) {
            self.forget(name).await?;
        }
        for (name, connection) in reported {
            if joined.get(&name).is_some_and(|entry| entry.connection == connection) {
                continue;
            }
            self.context.put_unreached(&name, connection).await?;
        }
        Ok(())
    }

    /// OCM's word on a joined cluster wakes nobody here; of others it is all that is known.
    fn tell_managed(&mut self) {
        let joined = Arc::clone(&self.context.joined.borrow());
        let managed = unjoined(&self.context.all.hub, &self.context.all.hub_id, &joined);
        let managed = managed.into_iter().map(|(name, managed)| (name, managed.metadata.version())).collect();
        if self.managed != managed {
            self.managed = managed;
            self.context.wake();
        }
    }

    /// Starts the cluster's task, or starts it anew when its Secret says something else.
    fn keep(&mut self, membership: &Membership) {
        let key = membership.key();
        let running = self.members.get(&membership.cluster);
        self.context.set_flags(membership);
        if running.is_some_and(|running| running.key == key) {
            return;
        }
        if let Some(running) = running {
            info!(cluster.name = %membership.cluster, "What joins `{}` changed: connecting anew", membership.cluster);
            running.cancel.cancel();
        }
        let cancel = self.context.all.stop.child_token();
        let member = Member {
            name: membership.cluster.clone(),
            origin: membership.origin.clone(),
            access: membership.access.clone(),
            fingerprint: membership.fingerprint(),
            confirmed_identity: membership.confirmed_identity.clone(),
            context: self.context.clone(),
            cancel: cancel.clone(),
        };
        driver::spawn(&mut self.tasks, member.run());
        self.members.insert(membership.cluster.clone(), Running { key, cancel });
    }

    async fn forget(&mut self, name: &ClusterName) -> anyhow::Result<()> {
        if let Some(running) = self.members.remove(name) {
            running.cancel.cancel();
        }
        self.context.joined.send_modify(|joined| {
            Arc::make_mut(joined).remove(name);
            self.context.all.metrics.forget_link(name);
        });
        until_kept(|| self.context.all.store.remove_cluster(name)).await?;
        self.context.wake();
        info!(cluster.name = %name, "`{name}` left");
        Ok(())
    }

    /// Adds the finalizer to a joined cluster's Secret, and takes it off when a leaving one is clear.
    async fn keep_finalizer(&self, membership: &Membership) {
        let Origin::Secret(secret) = &membership.origin else { return };
        let has = membership.finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        let finalizers: Vec<&str> = match (membership.leaving, has) {
            (false, false) => membership.finalizers.iter().map(String::as_str).chain([FINALIZER]).collect(),
            (true, true) if self.context.is_clear(&membership.cluster) => {
                membership.finalizers.iter().map(String::as_str).filter(|name| *name != FINALIZER).collect()
            }
            (false, true) | (true, _) => return,
        };
        // The list goes as a whole: with the version read, so that nobody else's entry is lost.
        let patch = serde_json::json!({
            "metadata": {"finalizers": finalizers, "resourceVersion": membership.resource_version},
        });
        self.context.patch_secret(secret, patch).await;
    }
}

impl Controller for ClusterController {
    const NAME: &'static str = "cluster";

    fn pace(&self) -> Pace {
        Pace { period: PERIOD, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        if self.context.knows_who_joins() {
            // A store that is full or busy was waited for.
            self.follow().await.map_err(Failure::Lasting)?;
        }
        let leaving = self.context.joined.borrow().values().any(|joined| joined.leaving);
        Ok(if leaving { Next::After(LEAVING_PERIOD) } else { Next::AtPeriod })
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        let Changed { secrets, reports, managed, profiles } = &mut self.changed;
        tokio::select! {
            changed = secrets.changed() => changed?,
            changed = reports.changed() => changed?,
            changed = managed.changed() => changed?,
            changed = profiles.changed() => changed?,
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}

impl Context {
    fn knows_who_joins(&self) -> bool {
        let hub = &self.all.hub;
        hub.secrets.synced()
            && hub.cluster_metrics.synced()
            && hub.profiles.as_ref().is_none_or(|profiles| profiles.synced())
    }

    fn wake(&self) {
        self.wake.all().iter().for_each(|wake| wake.notify_one());
    }

    /// Changes one cluster's entry and tells everyone.
    fn publish(&self, name: &ClusterName, change: impl FnOnce(&mut Joined)) {
        self.joined.send_modify(|joined| {
            if let Some(entry) = Arc::make_mut(joined).get_mut(name).map(Arc::make_mut) {
                let before = entry.connection.word();
                change(entry);
                if entry.connection.word() != before {
                    self.all.metrics.connection(name, &entry.connection);
                }
            }
        });
        self.wake();
    }

    /// ClusterMetrics carries no time, so silence alone proves nothing; OCM's word does.
    fn reported_connection(&self, name: &ClusterName) -> Connection {
        let managed = self.all.hub.ocm.clusters.get(None, name.as_str());
        // What fedq says there itself rests on this.
        let managed = managed.filter(|managed| !managed.metadata.is_labelled(&self.all.hub_id));
        let Some((since, message)) = managed.as_ref().and_then(|managed| managed.unavailable()) else {
            return Connection::Unreached;
        };
        let now = self.all.clock.now();
        let known = self.joined.borrow().get(name).map(|entry| entry.connection.clone());
        let since = since.unwrap_or(match known {
            Some(Connection::Stale { since, .. } | Connection::Lost { since, .. }) => since,
            _ => now,
        });
        let reason = format!("its ManagedCluster is not available: {message}");
        let lasted = Duration::try_from(now.duration_since(since)).unwrap_or_default();
        silent(since, lasted, &self.settings, reason.clone()).unwrap_or(Connection::Stale { since, reason })
    }

    async fn put_unreached(&self, name: &ClusterName, connection: Connection) -> anyhow::Result<()> {
        let now = self.all.clock.now();
        let row = ClusterRow {
            name: name.clone(),
            identity: None,
            server: String::new(),
            source: ClusterSource::ClusterMetrics,
            connection: connection.word().to_owned(),
            last_seen: Some(now),
            cordoned: false,
            version: None,
            joined: now,
        };
        until_kept(|| self.all.store.put_cluster(&row)).await?;
        self.joined.send_modify(|joined| {
            let entry = Arc::make_mut(Arc::make_mut(joined).entry(name.clone()).or_default());
            self.all.metrics.connection(name, &connection);
            (entry.connection, entry.source) = (connection, CLUSTER_METRICS);
        });
        self.wake();
        Ok(())
    }

    fn set_flags(&self, membership: &Membership) {
        let changed = self.joined.send_if_modified(|joined| {
            let (cordoned, leaving) = (membership.cordoned, membership.leaving);
            let flags = (cordoned, leaving, membership.joined_at(), membership.origin.word());
            let of = |entry: &Joined| (entry.cordoned, entry.leaving, entry.joined_at, entry.source);
            if joined.get(&membership.cluster).is_some_and(|entry| of(entry) == flags) {
                return false;
            }
            let entry = Arc::make_mut(Arc::make_mut(joined).entry(membership.cluster.clone()).or_default());
            self.all.metrics.connection(&membership.cluster, &entry.connection);
            (entry.cordoned, entry.leaving, entry.joined_at, entry.source) = flags;
            true
        });
        if changed {
            self.wake();
        }
    }

    /// Whether nothing of ours is left on a leaving cluster, or nothing can be done there any more.
    fn is_clear(&self, name: &ClusterName) -> bool {
        let joined = self.joined.borrow();
        let Some(entry) = joined.get(name) else { return true };
        match (&entry.connection, &entry.worker) {
            (Connection::Refused { .. } | Connection::Lost { .. } | Connection::Unreached, _) => true,
            (_, Some(worker)) => {
                let queues = worker.queues.all();
                let local_queues = worker.local_queues.all();
                // Task objects have no other hub's label: only our own are followed.
                worker.synced()
                    && worker.tasks.jobs.all().is_empty()
                    && worker.tasks.job_sets.all().is_empty()
                    && worker.tasks.app_wrappers.all().is_empty()
                    && !queues.iter().any(|queue| queue.metadata.is_labelled(&self.all.hub_id))
                    && !local_queues.iter().any(|queue| queue.metadata.is_labelled(&self.all.hub_id))
            }
            (_, None) => false,
        }
    }

    async fn patch_secret(&self, secret: &str, patch: serde_json::Value) {
        let change = Change {
            target: Target::namespaced(Kind::Secret, &self.all.hub.namespace, secret),
            action: Action::Merge(patch),
            manager: MANAGER,
        };
        match write::send(&self.all.hub.client.kube(), &change, self.settings.request).await {
            // Whoever wrote in between woke us with it.
            Err(error) if error.class != RetryClass::Conflict => {
                warn!(secret.name = secret, "Could not mark the Secret `{secret}`: {error}");
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Counts what a client does to the cluster, or to the hub.
pub fn observer(metrics: &Metrics, name: ClusterName) -> Observer {
    let metrics = metrics.clone();
    Observer::new(move |told| match told {
        Told::Request { verb, code, took } => metrics.api_request(&name, verb, code, took),
        Told::Write { kind } => metrics.wrote(&name, kind),
        Told::WatchRestart { kind, reason } => metrics.watch_restarted(&name, kind, reason),
    })
}

/// What the link is called after a silence that began then and was listened to for so long.
fn silent(since: Timestamp, lasted: Duration, settings: &Settings, reason: String) -> Option<Connection> {
    if settings.lost_timeout <= lasted {
        Some(Connection::Lost { since, reason })
    } else if settings.stale_after <= lasted {
        Some(Connection::Stale { since, reason })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            rules: Rules::default(),
            limits: ClientLimits::default(),
            timing: Timing::default(),
            request: Duration::from_secs(10),
            stale_after: Duration::from_secs(40),
            lost_timeout: Duration::from_mins(15),
            most: Limits { objects: 1000, bytes: 1 << 20 },
            build: None,
        }
    }

    #[test]
    fn silence_is_stale_first_and_lost_after_the_timeout() {
        let seen = Timestamp::from_second(1_000_000).expect("a time");
        let after = |seconds| {
            let lasted = Duration::from_secs(seconds);
            silent(seen, lasted, &settings(), String::new()).map(|connection| connection.word())
        };
        assert_eq!(after(0), None);
        assert_eq!(after(39), None);
        assert_eq!(after(40), Some("Stale"));
        assert_eq!(after(899), Some("Stale"));
        assert_eq!(after(900), Some("Lost"));
    }
}
