//! Everything around the queues of workers: namespaces, LocalQueues, flavors and priority classes, as the
//! hub has them. ClusterQueues themselves are the quota controller's.
//!
//! A cluster is decided on again when something of it or of the hub changed, so a hub with many clusters
//! costs what changes, not what there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{Notify, watch};

use fedq_domain::queue::{
    ClaimedQueues,
    input::{HubObjects, NamespaceRules},
    objects::worker_objects,
    report::{Problem, QueueReport, QueueReports},
};
use fedq_k8s::{
    follow::TableSet,
    hub::Hub,
    list_watch::{Record, State, Table},
    read::queues::{WorkerSnapshot, hub_objects},
    worker::{Joined, JoinedClusters, Worker},
};
use fedq_values::ids::{ClusterName, FlavorName, QueueName};

use self::target::Target;
use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Tasks},
    writer::keep_for_workers,
};

mod render;
mod target;

const MANAGER: &str = "fedq-queue";
/// Looked at without a signal this often, so that nothing that was missed stays missed.
const PERIOD: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Settings {
    pub namespaces: NamespaceRules,
}

pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    pub claimed: watch::Receiver<Arc<ClaimedQueues>>,
}

pub struct QueueController {
    context: Context,
    settings: Settings,
    inputs: Inputs,
    reports: watch::Sender<Arc<QueueReports>>,
    signal: Arc<Notify>,
    /// What the hub says, and the changes of its tables that are in it.
    hub_objects: (Stamp, Arc<HubObjects>),
    clusters: BTreeMap<ClusterName, Cluster>,
    tasks: Tasks,
}

/// What is kept of one cluster between activations.
struct Cluster {
    target: Target,
    /// What the last decision was made from.
    decided: Option<Seen>,
    reports: Vec<QueueReport>,
}

struct Seen {
    hub: Arc<HubObjects>,
    worker: WorkerStamp,
    claimed: BTreeMap<QueueName, BTreeSet<FlavorName>>,
}

impl Seen {
    fn is(
        &self,
        hub: &Arc<HubObjects>,
        worker: WorkerStamp,
        claimed: &BTreeMap<QueueName, BTreeSet<FlavorName>>,
    ) -> bool {
        self.worker == worker && Arc::ptr_eq(&self.hub, hub) && self.claimed == *claimed
    }
}

/// How often each of some tables has changed.
type Stamp = Vec<u64>;
type WorkerStamp = [u64; 7];

impl QueueController {
    pub fn new(
        context: Context,
        settings: Settings,
        inputs: Inputs,
        reports: watch::Sender<Arc<QueueReports>>,
        signal: Arc<Notify>,
    ) -> Self {
        Self {
            context,
            settings,
            inputs,
            reports,
            signal,
            hub_objects: Default::default(),
            clusters: BTreeMap::new(),
            tasks: Tasks::new(),
        }
    }

    pub async fn run(self) -> anyhow::Result<()> {
        let Context { metrics, stop, .. } = self.context.clone();
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    fn decide(&mut self, joined: &JoinedClusters, claimed: &ClaimedQueues) {
        self.keep_targets(joined);
        if !self.context.hub.is_current() || !has_kueue(&self.context.hub) {
            // Not the same as a hub whose queues were all deleted.
            self.clusters.values().for_each(|cluster| cluster.target.writer.want(Vec::new()));
            return;
        }
        self.read_hub();
        for (name, entry) in joined {
            let Some(cluster) = self.clusters.get_mut(name) else { continue };
            match (writable(entry), claimed.get(name)) {
                (Some(worker), Some(queues)) => cluster.decide(worker, &self.hub_objects.1, queues),
                // A write that was decided on before the cluster fell silent must not land after.
                (_, _) => cluster.forget(),
            }
        }
        self.publish();
    }

    fn keep_targets(&mut self, joined: &JoinedClusters) {
        keep_for_workers(
            &mut self.clusters,
            joined,
            |cluster| Some(&cluster.target.worker),
            |worker| {
                let told = (self.context.metrics.clone(), Arc::clone(&self.signal));
                let config = self.context.writer.clone();
                let target = Target::start(worker, config, told, (&mut self.tasks, &self.context.stop));
                Cluster { target, decided: None, reports: Vec::new() }
            },
        );
    }

    fn read_hub(&mut self) {
        let hub = &self.context.hub;
        let stamp = vec![
            changes(&hub.queues),
            changes(&hub.local_queues),
            changes(&hub.namespaces),
            changes(&hub.flavors),
            changes(&hub.priority_classes),
            changes(&hub.cohorts),
        ];
        if self.hub_objects.0 != stamp {
            let objects = hub_objects(hub, &self.context.hub_id, &self.settings.namespaces);
            self.hub_objects.0 = stamp;
            // Quota of a queue changes all the time, and is nothing that workers get from here.
            if *self.hub_objects.1 != objects {
                self.hub_objects.1 = Arc::new(objects);
            }
        }
    }

    fn publish(&self) {
        let reports: QueueReports =
            self.clusters.iter().map(|(name, cluster)| (name.clone(), cluster.all_reports())).collect();
        self.reports.send_if_modified(|current| {
            let changed = **current != reports;
            if changed {
                *current = Arc::new(reports);
            }
            changed
        });
    }
}

impl Controller for QueueController {
    const NAME: &'static str = "queue";

    fn pace(&self) -> Pace {
        Pace { period: PERIOD, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        let joined = Arc::clone(&self.inputs.joined.borrow_and_update());
        let claimed = Arc::clone(&self.inputs.claimed.borrow_and_update());
        self.decide(&joined, &claimed);
        Ok(Next::AtPeriod)
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.inputs.joined.changed() => changed?,
            changed = self.inputs.claimed.changed() => changed?,
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
    }
}

impl Cluster {
    fn decide(
        &mut self,
        worker: &Worker,
        hub: &Arc<HubObjects>,
        claimed: &BTreeMap<QueueName, BTreeSet<FlavorName>>,
    ) {
        let stamp = worker_stamp(worker);
        if self.decided.as_ref().is_some_and(|seen| seen.is(hub, stamp, claimed)) {
            return;
        }
        self.decided = Some(Seen { hub: Arc::clone(hub), worker: stamp, claimed: claimed.clone() });
        if !worker.has_kueue() {
            let missing = QueueReport { queue: None, problem: Problem::NoKueue };
            self.reports = if claimed.is_empty() { Vec::new() } else { vec![missing] };
            self.target.writer.want(Vec::new());
            return;
        }
        let snapshot = WorkerSnapshot::take(worker);
        let decision = worker_objects(hub, &snapshot.objects(worker, &hub.id), claimed);
        self.reports = decision.reports;
        let changes = decision.wanted.into_iter().filter_map(|wanted| render::change(wanted, &snapshot));
        self.target.writer.want(changes.collect());
    }

    fn forget(&mut self) {
        self.decided = None;
        self.target.writer.want(Vec::new());
    }

    fn all_reports(&self) -> Vec<QueueReport> {
        let failed = self.target.writer.shortfalls().into_iter().map(|(target, reason)| QueueReport {
            queue: None,
            problem: Problem::NotWritten { object: target.to_string(), reason },
        });
        self.reports.iter().cloned().chain(failed).collect()
    }
}

fn writable(entry: &Joined) -> Option<&Worker> {
    let worker = entry.worker.as_deref()?;
    (entry.connection.is_writable() && worker.synced()).then_some(worker)
}

fn has_kueue(hub: &Hub) -> bool {
    [hub.queues.state(), hub.local_queues.state(), hub.flavors.state(), hub.priority_classes.state()]
        .iter()
        .all(|state| *state != State::Absent)
}

fn worker_stamp(worker: &Worker) -> WorkerStamp {
    [
        changes(&worker.queues),
        changes(&worker.local_queues),
        changes(&worker.namespaces),
        changes(&worker.flavors),
        changes(&worker.priority_classes),
        changes(&worker.topologies),
        changes(&worker.cohorts),
    ]
}

fn changes<T: Record>(table: &Table<T>) -> u64 {
    table.revision()
}

#[cfg(test)]
mod tests;
