//! Configures MultiKueue from the decisions of Placements: for each AdmissionCheck of
//! `open-cluster-management.io/placement` a MultiKueueConfig with its MultiKueueClusters and a credential for
//! each, the check's condition, and its state in every Workload that waits for it.
//!
//! It writes on the hub only; of joined clusters it asks for tokens of MultiKueue's account there.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    domain::{
        ids::ClusterName,
        multikueue::{Existing, Input, Naming, Plan, plan},
        placement::view::PlacementView,
    },
    k8s::{
        hub::Hub, list_watch::State, read::multikueue::dispatching_checks, worker::JoinedClusters,
        write::Kind,
    },
};

use self::{
    credentials::Credentials,
    gather::{Needed, Seen},
    order::Order,
    render::Render,
    target::start_writer,
};
use super::writer::{Writer, WriterConfig};

mod credentials;
mod gather;
mod order;
mod render;
mod target;
mod workloads;

const MANAGER: &str = "fedq-placement";
/// Looked at without a signal this often, so that nothing that was missed stays missed.
const PERIOD: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Settings {
    /// Where Kueue is, with its Placements and Secrets.
    pub kueue_namespace: String,
    pub naming: Naming,
    pub token_lifetime: Duration,
    /// Whether nominations are fedq's, so that it takes them back from clusters that drain.
    pub dispatches: bool,
    pub writer: WriterConfig,
}

pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    pub placements: watch::Receiver<Arc<PlacementView>>,
}

pub struct AdmissionCheckController {
    hub: Hub,
    hub_id: String,
    clock: Clock,
    settings: Settings,
    signal: Arc<Notify>,
    credentials: Credentials,
    needed: Needed,
    order: Order,
    /// Configs, clusters, Secrets and checks.
    objects: Writer,
    /// Apart, so that no number of Workloads holds the others up.
    workloads: Writer,
    render: Render,
    /// What the last decision wanted, by config: whose failure is whose.
    wanted: BTreeMap<String, Vec<String>>,
}

impl AdmissionCheckController {
    pub fn new((hub, hub_id): (Hub, String), clock: Clock, settings: Settings, signal: Arc<Notify>) -> Self {
        Self {
            credentials: Credentials::new(settings.clone(), hub_id.clone()),
            needed: Needed::default(),
            order: Order::default(),
            render: Render::new(hub_id.clone()),
            objects: Writer::waking(Arc::clone(&signal)),
            workloads: Writer::waking(Arc::clone(&signal)),
            hub,
            hub_id,
            clock,
            settings,
            signal,
            wanted: BTreeMap::new(),
        }
    }

    pub async fn run(
        mut self,
        Inputs { mut joined, placements: mut view }: Inputs,
        cancel: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        for writer in [&self.objects, &self.workloads] {
            start_writer(writer, &self.hub, self.settings.writer.clone(), (&mut tasks, &cancel));
        }
        let mut placements = self.hub.ocm.placements.changed();
        let mut decisions = self.hub.ocm.decisions.changed();
        loop {
            let clusters = Arc::clone(&joined.borrow_and_update());
            let scored = Arc::clone(&view.borrow_and_update());
            let next = self.reconcile(&clusters, &scored).unwrap_or(PERIOD).min(PERIOD);
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.signal.notified() => {}
                changed = joined.changed() => changed?,
                changed = view.changed() => changed?,
                changed = placements.changed() => changed?,
                changed = decisions.changed() => changed?,
                minted = self.credentials.minted() => self.credentials.take(minted?, self.clock.now()),
                () = tokio::time::sleep(next) => {}
            }
        }
        // Writes under way are finished, so that their outcome is known.
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        Ok(())
    }

    /// When to look again, if time alone changes something.
    fn reconcile(&mut self, joined: &JoinedClusters, view: &PlacementView) -> Option<Duration> {
        // Not the same as a hub whose checks were all deleted.
        let has_kueue = [self.hub.checks.state(), self.hub.multikueue_configs.state()]
            .iter()
            .all(|state| *state != State::Absent);
        if !has_kueue || !self.hub.multikueue_is_current() || !self.hub.lists(joined) {
            self.objects.want(Vec::new());
            self.workloads.want(Vec::new());
            return None;
        }
        let now = self.clock.now();
        let mut seen = Seen::gather(&self.hub, &self.hub_id, &self.settings.kueue_namespace);
        let by_check = dispatching_checks(&self.hub.checks);
        let workloads = self.hub.workloads.all();
        seen.count_nominated((&workloads, &by_check), self.settings.dispatches, self.settings.naming);
        self.order.sort(&mut seen, view, &self.settings.kueue_namespace, now);
        let (running, settled) = self.needed.now(&seen, Instant::now());
        let (failed, unwritten) = self.failures();
        let credentials = self.credentials.keep(&seen, joined, &unwritten, now);
        let plan = plan(&Input {
            checks: &seen.checks,
            placements: &seen.placements,
            naming: self.settings.naming,
            sources: &credentials.sources,
            unready: &credentials.unready,
            configs: &seen.configs,
            clusters: &seen.clusters,
            running: &running,
            failed: &failed,
        });
        let mut changes = self.render.objects(&self.hub, &seen, &plan);
        changes.extend(self.render.checks(&self.hub, &seen, &plan, now));
        changes.extend(credentials.changes);
        changes.extend(self.credentials.unused(&self.hub, &seen, &plan));
        self.objects.want(changes);
        self.workloads.want(self.render.workloads(&self.hub, &seen, &plan, now));
        self.render.forget_old();
        self.wanted = plan.configs;
        let settles = settled.map(|settled| settled.saturating_duration_since(Instant::now()));
        [settles, credentials.next].into_iter().flatten().min()
    }

    /// What could not be written: by config, and by the cluster that a Secret is for.
    fn failures(&self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let (mut configs, mut secrets) = (BTreeMap::new(), BTreeMap::new());
        for (target, reason) in self.objects.failures() {
            let text = format!("{target} cannot be written: {reason}");
            match target.kind {
                Kind::MultiKueueConfig => {
                    configs.insert(target.name, text);
                }
                Kind::MultiKueueCluster => {
                    let named = self.wanted.iter().filter(|(_, clusters)| clusters.contains(&target.name));
                    configs.extend(named.map(|(config, _)| (config.clone(), text.clone())));
                }
                Kind::Secret => {
                    secrets.insert(target.name, text);
                }
                _ => {}
            }
        }
        (configs, secrets)
    }
}

/// The joined clusters that some check's Placement decided on.
fn decided(seen: &Seen) -> impl Iterator<Item = &ClusterName> {
    let live = seen.checks.iter().filter(|check| !check.deleting);
    let named = live.filter_map(|check| check.parameters.as_ref());
    named.filter_map(|parameters| seen.placements.get(&parameters.name)).flat_map(|decided| &decided.clusters)
}

/// Whether the config that a check stands for is there as planned.
fn is_written(seen: &Seen, plan: &Plan, placement: &str) -> bool {
    let Some(wanted) = plan.configs.get(placement) else { return false };
    matches!(seen.configs.get(placement), Some(Existing::Ours(found)) if found == wanted)
}
