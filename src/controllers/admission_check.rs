//! Configures MultiKueue from the decisions of Placements: for each AdmissionCheck of
//! `open-cluster-management.io/placement` a MultiKueueConfig with its MultiKueueClusters and a credential for
//! each, the check's condition, and its state in every Workload that waits for it.
//!
//! It writes on the hub only; of joined clusters it asks for tokens of MultiKueue's account there.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use fedq_base::{clock::Clock, telemetry::Metrics};
use fedq_domain::{
    multikueue::{Existing, Input, Naming, Plan, Use, plan, preferred},
    placement::view::PlacementView,
};
use fedq_k8s::{
    hub::Hub,
    list_watch::State,
    read::multikueue::{addons_checks, dispatching_checks},
    worker::JoinedClusters,
    write::Kind,
};
use fedq_values::ids::ClusterName;

use self::{
    credentials::{Credentials, Kept},
    gather::{Needed, Seen},
    order::Order,
    render::Render,
    target::start_writer,
};
use super::{
    driver::{Rest, Share},
    writer::{Writer, WriterConfig},
};

mod credentials;
mod gather;
mod order;
mod probes;
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
    metrics: Metrics,
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
    /// For the dispatcher: what is in configs and for nothing new.
    draining: watch::Sender<Arc<BTreeSet<Use>>>,
    /// Checks that somebody else answers.
    left: BTreeSet<String>,
}

impl AdmissionCheckController {
    pub fn new(
        (hub, hub_id): (Hub, String),
        (clock, metrics): (Clock, Metrics),
        settings: Settings,
        draining: watch::Sender<Arc<BTreeSet<Use>>>,
        signal: Arc<Notify>,
    ) -> Self {
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
            metrics,
            settings,
            signal,
            draining,
            left: BTreeSet::new(),
        }
    }

    pub async fn run(
        mut self,
        Inputs { mut joined, placements: mut view }: Inputs,
        cancel: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut tasks = JoinSet::new();
        for writer in [&self.objects, &self.workloads] {
            let config = self.settings.writer.clone();
            start_writer(writer, &self.hub, config, (&mut tasks, &cancel));
        }
        let mut placements = self.hub.ocm.placements.changed();
        let mut decisions = self.hub.ocm.decisions.changed();
        let mut rest = Rest::new();
        loop {
            let clusters = Arc::clone(&joined.borrow_and_update());
            let scored = Arc::clone(&view.borrow_and_update());
            let begun = Instant::now();
            let next = self.reconcile(&clusters, &scored).unwrap_or(PERIOD).min(PERIOD);
            self.metrics.reconciled("admission_check", begun.elapsed(), false);
            rest.leave(Share::TENTH, begun.elapsed(), &cancel).await;
            tokio::select! {
                () = cancel.cancelled() => break,
                () = self.signal.notified() => {}
                changed = joined.changed() => changed?,
                changed = view.changed() => changed?,
                changed = placements.changed() => changed?,
                changed = decisions.changed() => changed?,
                answered = self.credentials.answered() => self.credentials.take(answered?, self.clock.now()),
                found = self.order.found() => self.order.take(found?),
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
        self.leave_to_addon();
        let now = self.clock.now();
        let mut seen = Seen::gather(&self.hub, &self.hub_id, &self.settings.kueue_namespace);
        if !self.order.sort(&mut seen, view, &self.settings.kueue_namespace, now) {
            return None;
        }
        let failures = self.failures();
        let credentials = self.credentials.keep(&seen, joined, &failures.secrets, now);
        let naming = self.settings.naming;
        let preferred = preferred(&input(naming, &seen, (&credentials, &failures), &seen.running));
        let preferred = (!self.settings.dispatches).then_some(&preferred);
        let by_check = dispatching_checks(&self.hub.checks);
        seen.count_nominated((&self.hub.workloads.all(), &by_check), preferred);
        let (running, settled) = self.needed.now(&seen, Instant::now());
        let plan = plan(&input(naming, &seen, (&credentials, &failures), &running));
        self.publish_draining(&plan);
        let mut changes = self.render.objects(&self.hub, &seen, &plan);
        changes.extend(self.render.checks(&self.hub, &seen, &plan, now));
        changes.extend(credentials.changes);
        changes.extend(self.credentials.unused(&self.hub, &seen, &plan));
        self.objects.want(changes);
        self.workloads.want(self.render.workloads(&self.hub, &seen, &plan, now));
        self.render.forget_old();
        let settles = settled.map(|settled| settled.saturating_duration_since(Instant::now()));
        [settles, credentials.next].into_iter().flatten().min()
    }

    /// Says once which checks OCM's kueue-addon answers.
    fn leave_to_addon(&mut self) {
        let theirs: BTreeSet<String> = addons_checks(&self.hub.checks).into_keys().collect();
        for check in theirs.difference(&self.left) {
            warn!("AdmissionCheck {check} is left to OCM's kueue-addon, which answers it");
        }
        self.left = theirs;
    }

    fn publish_draining(&self, plan: &Plan) {
        self.draining.send_if_modified(|draining| {
            let moved = **draining != plan.draining;
            if moved {
                *draining = Arc::new(plan.draining.clone());
            }
            moved
        });
    }

    fn failures(&self) -> Failures {
        let mut failures = Failures::default();
        for (target, reason) in self.objects.failures() {
            let text = format!("{target} cannot be written: {reason}");
            let of_kind = match target.kind {
                Kind::MultiKueueConfig => &mut failures.configs,
                Kind::MultiKueueCluster => &mut failures.clusters,
                Kind::Secret => &mut failures.secrets,
                _ => continue,
            };
            of_kind.insert(target.name, text);
        }
        failures
    }
}

/// What could not be written and why, by name.
#[derive(Default)]
struct Failures {
    configs: BTreeMap<String, String>,
    clusters: BTreeMap<String, String>,
    secrets: BTreeMap<String, String>,
}

fn input<'a>(
    naming: Naming,
    seen: &'a Seen,
    (kept, failures): (&'a Kept, &'a Failures),
    running: &'a BTreeSet<Use>,
) -> Input<'a> {
    Input {
        checks: &seen.checks,
        placements: &seen.placements,
        naming,
        sources: &kept.sources,
        unready: &kept.unready,
        configs: &seen.configs,
        clusters: &seen.clusters,
        running,
        failed: &failures.configs,
        unwritten: &failures.clusters,
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
    seen.configs.get(placement).and_then(Existing::usable) == Some(wanted)
}
