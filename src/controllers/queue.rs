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
    list_watch::State,
    read::queues::{WorkerSnapshot, hub_objects},
    worker::{Joined, JoinedClusters, Worker},
    write::Change,
};
use fedq_values::ids::{ClusterName, FlavorName, QueueName};

use self::target::Target;
use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Tasks},
    memo::{Identity, Memo},
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
    /// What the hub says, by the changes of its tables.
    hub_objects: Memo<[u64; 6], Arc<HubObjects>>,
    clusters: BTreeMap<ClusterName, Cluster>,
    tasks: Tasks,
}

/// What is kept of one cluster between activations.
struct Cluster {
    target: Target,
    /// As it was last told.
    claimed: Arc<Claimed>,
    needs: Memo<Sources, Needs>,
}

/// What a decision about a cluster is made from.
#[derive(PartialEq)]
struct Sources {
    hub: Identity<HubObjects>,
    /// Of the worker's tables.
    revisions: [u64; 7],
    claimed: Identity<Claimed>,
}

/// Of one cluster.
type Claimed = BTreeMap<QueueName, BTreeSet<FlavorName>>;

/// What a cluster still needs, and what keeps its queues from working.
#[derive(Debug, Default, PartialEq)]
struct Needs {
    changes: Vec<Change>,
    reports: Vec<QueueReport>,
}

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
            hub_objects: Memo::default(),
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
        let hub = self.read_hub();
        for (name, entry) in joined {
            let Some(cluster) = self.clusters.get_mut(name) else { continue };
            match (writable(entry), claimed.get(name)) {
                (Some(worker), Some(queues)) => cluster.decide(worker, &hub, queues),
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
                Cluster { target, claimed: Arc::default(), needs: Memo::default() }
            },
        );
    }

    /// Quota of a queue changes all the time, and is nothing that workers get from here.
    fn read_hub(&mut self) -> Arc<HubObjects> {
        let hub = &self.context.hub;
        let revisions = || {
            [
                hub.queues.revision(),
                hub.local_queues.revision(),
                hub.namespaces.revision(),
                hub.flavors.revision(),
                hub.priority_classes.revision(),
                hub.cohorts.revision(),
            ]
        };
        let read = |_: &_| Arc::new(hub_objects(hub, &self.context.hub_id, &self.settings.namespaces));
        Arc::clone(self.hub_objects.get(revisions, read))
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
    fn decide(&mut self, worker: &Worker, hub: &Arc<HubObjects>, claimed: &Claimed) {
        if *self.claimed != *claimed {
            self.claimed = Arc::new(claimed.clone());
        }
        let sources = || Sources {
            hub: Identity::of(hub),
            revisions: revisions(worker),
            claimed: Identity::of(&self.claimed),
        };
        if self.needs.refresh(sources, |_| Needs::of(worker, hub, claimed)) {
            let changes = self.needs.value().map(|needs| needs.changes.clone());
            self.target.writer.want(changes.unwrap_or_default());
        }
    }

    fn forget(&mut self) {
        self.needs.expire();
        self.target.writer.want(Vec::new());
    }

    fn all_reports(&self) -> Vec<QueueReport> {
        let failed = self.target.writer.shortfalls().into_iter().map(|(target, reason)| QueueReport {
            queue: None,
            problem: Problem::NotWritten { object: target.to_string(), reason },
        });
        let found = self.needs.value().map(|needs| needs.reports.clone());
        found.into_iter().flatten().chain(failed).collect()
    }
}

impl Needs {
    fn of(worker: &Worker, hub: &HubObjects, claimed: &Claimed) -> Self {
        if !worker.has_kueue() {
            let missing = QueueReport { queue: None, problem: Problem::NoKueue };
            let reports = if claimed.is_empty() { Vec::new() } else { vec![missing] };
            return Self { reports, changes: Vec::new() };
        }
        let snapshot = WorkerSnapshot::take(worker);
        let decision = worker_objects(hub, &snapshot.objects(worker, &hub.id), claimed);
        let changes = decision.wanted.into_iter().filter_map(|wanted| render::change(wanted, &snapshot));
        Self { changes: changes.collect(), reports: decision.reports }
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

fn revisions(worker: &Worker) -> [u64; 7] {
    [
        worker.queues.revision(),
        worker.local_queues.revision(),
        worker.namespaces.revision(),
        worker.flavors.revision(),
        worker.priority_classes.revision(),
        worker.topologies.revision(),
        worker.cohorts.revision(),
    ]
}

#[cfg(test)]
mod tests;
