//! Configures MultiKueue from the decisions of Placements: for each AdmissionCheck of
//! `open-cluster-management.io/placement` a MultiKueueConfig with its MultiKueueClusters and a credential for
//! each, the check's condition, and its state in every Workload that waits for it.
//!
//! It writes on the hub only; of joined clusters it asks for tokens of MultiKueue's account there.
//!
//! # What follows when a Placement decides on other clusters
//!
//! `controllers/admission_check.rs`, `AdmissionCheckController::reconcile`, wakes on every change of AdmissionChecks,
//! Placements, their decisions, MultiKueue's objects, Workloads and joined clusters.
//!
//! 1. `gather.rs` and `k8s/read/multikueue.rs` read what there is; of Workloads, which clusters they need.
//! 2. `credentials.rs` keeps a Secret for each cluster that is decided on: a token of the account `fedq-multikueue` there
//!    (`k8s::multikueue::mint`), renewed after 60 to 75 % of its time, another part for each cluster, or once the cluster
//!    does not take it (`probes.rs`).
//! 3. `domain::multikueue::plan` says which configs and clusters there should be, and what each check's condition says. A
//!    cluster that left stays, last, while a Workload runs there, and half a minute longer, in which Kueue clears up.
//! 4. `render.rs` makes the writes: clusters go only once no config names them, Secrets once no cluster does. A check is
//!    said to be Active once its config is there.
//! 5. `workloads.rs` sets the check Ready in each Workload that has reserved quota. Kueue sets it back at each eviction.
//!
//! All of it is decided from the hub's objects alone, so a restart at any point goes on where it was. `order.rs` has the
//! order of clusters, since decisions carry no scores: from the `PlacementView` where fedq decides, else evaluated off the
//! shared threads. `domain/multikueue/names.rs` says which cluster a MultiKueueCluster's name leads to.
//!
//! With `multikueue.dispatcher`, `controllers/dispatcher.rs` says where each Workload goes (`domain::multikueue::dispatch`),
//! from the config's order and what the workers' queues have free; what drains, the admission check controller tells it. It
//! does nothing until the policy of `deploy/hub/dispatcher.yaml` is there, without which the API would refuse what Kueue
//! writes when a cluster has taken one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tracing::warn;

use fedq_domain::{
    multikueue::{Existing, Input, Naming, Plan, Use, plan, preferred},
    placement::view::PlacementView,
};
use fedq_k8s::{
    list_watch::State,
    read::multikueue::{addons_checks, dispatching_checks, joined_cluster},
    types::kueue::Workload,
    worker::JoinedClusters,
    write::Kind,
};
use fedq_values::ids::ClusterName;

use self::{
    credentials::{Credentials, Kept},
    gather::{Gathered, Needed},
    order::Order,
    render::Render,
    waits::Waits,
};
use super::{
    context::Context,
    driver::{self, Controller, Driver, Failure, Next, Pace, Tasks},
    writer::Writer,
};

mod credentials;
mod gather;
mod order;
mod probes;
mod render;
mod waits;
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
}

pub struct Inputs {
    pub joined: watch::Receiver<Arc<JoinedClusters>>,
    pub placements: watch::Receiver<Arc<PlacementView>>,
}

pub struct AdmissionCheckController {
    context: Context,
    settings: Settings,
    inputs: Inputs,
    /// What OCM's Placements choose, where those are OCM's to decide.
    decided: [watch::Receiver<()>; 2],
    tasks: Tasks,
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
    waits: Waits,
}

impl AdmissionCheckController {
    pub fn new(
        context: Context,
        settings: Settings,
        inputs: Inputs,
        draining: watch::Sender<Arc<BTreeSet<Use>>>,
        signal: Arc<Notify>,
    ) -> Self {
        let hub_id = context.hub_id.clone();
        Self {
            credentials: Credentials::new(settings.clone(), context.writer.deadline, hub_id.clone()),
            needed: Needed::default(),
            order: Order::default(),
            render: Render::new(hub_id),
            objects: Writer::waking(Arc::clone(&signal)),
            workloads: Writer::waking(Arc::clone(&signal)),
            decided: [context.hub.ocm.placements.changed(), context.hub.ocm.decisions.changed()],
            context,
            settings,
            inputs,
            tasks: Tasks::new(),
            signal,
            draining,
            left: BTreeSet::new(),
            waits: Waits::default(),
        }
    }

    pub async fn run(mut self) -> anyhow::Result<()> {
        let Context { metrics, stop, .. } = self.context.clone();
        let tasks = &mut self.tasks;
        let _stops = [&self.objects, &self.workloads].map(|writer| self.context.write_to_hub(writer, tasks));
        Driver { signal: Arc::clone(&self.signal), metrics }.run(self, stop).await
    }

    /// When to look again, if time alone changes something.
    fn answer(&mut self, joined: &JoinedClusters, view: &PlacementView) -> Option<Duration> {
        // Not the same as a hub whose checks were all deleted.
        let has_kueue = [self.context.hub.checks.state(), self.context.hub.multikueue_configs.state()]
            .iter()
            .all(|state| *state != State::Absent);
        if !has_kueue || !self.context.hub.multikueue_is_current() || !self.context.hub.lists(joined) {
            self.objects.want(Vec::new());
            self.workloads.want(Vec::new());
            return None;
        }
        self.leave_to_addon();
        let workloads = self.context.hub.workloads.all();
        let by_check = dispatching_checks(&self.context.hub.checks);
        self.measure(&workloads, &by_check, joined);
        let now = self.context.clock.now();
        let mut seen =
            Gathered::gather(&self.context.hub, &self.context.hub_id, &self.settings.kueue_namespace);
        if !self.order.sort(&mut seen, view, &self.settings.kueue_namespace, now) {
            return None;
        }
        let failures = self.failures();
        let credentials = self.credentials.keep(&seen, joined, &failures.secrets, now);
        let naming = self.settings.naming;
        let preferred = preferred(&input(naming, &seen, &credentials, &failures, &seen.running));
        let preferred = (!self.settings.dispatches).then_some(&preferred);
        seen.count_nominated(&workloads, &by_check, preferred);
        let (running, settled) = self.needed.now(&seen, Instant::now());
        let plan = plan(&input(naming, &seen, &credentials, &failures, &running));
        self.publish_draining(&plan);
        let mut changes = self.render.objects(&self.context.hub, &seen, &plan);
        changes.extend(self.render.checks(&self.context.hub, &seen, &plan, now));
        changes.extend(credentials.changes);
        changes.extend(self.credentials.unused(&self.context.hub, &seen, &plan));
        self.objects.want(changes);
        self.workloads.want(self.render.workloads(&self.context.hub, &seen, &plan, now));
        self.render.forget_old();
        let settles = settled.map(|settled| settled.saturating_duration_since(Instant::now()));
        [settles, credentials.next].into_iter().flatten().min()
    }

    /// How long each Workload waited for the joined cluster that took it.
    fn measure(
        &mut self,
        workloads: &[Arc<Workload>],
        by_check: &BTreeMap<String, String>,
        joined: &JoinedClusters,
    ) {
        for (name, waited) in self.waits.over(workloads, by_check, Instant::now()) {
            let cluster = joined_cluster(&self.context.hub, name);
            if let Some(cluster) = cluster.filter(|cluster| joined.contains_key(cluster)) {
                self.context.metrics.admitted_by(&cluster, waited);
            }
        }
    }

    /// Says once which checks OCM's kueue-addon answers.
    fn leave_to_addon(&mut self) {
        let theirs: BTreeSet<String> = addons_checks(&self.context.hub.checks).into_keys().collect();
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

impl Controller for AdmissionCheckController {
    const NAME: &'static str = "admission_check";

    fn pace(&self) -> Pace {
        Pace { period: PERIOD, ..Pace::default() }
    }

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        let joined = Arc::clone(&self.inputs.joined.borrow_and_update());
        let placements = Arc::clone(&self.inputs.placements.borrow_and_update());
        Ok(self.answer(&joined, &placements).map_or(Next::AtPeriod, Next::After))
    }

    async fn woken(&mut self) -> anyhow::Result<()> {
        let [placements, decisions] = &mut self.decided;
        tokio::select! {
            changed = self.inputs.joined.changed() => changed?,
            changed = self.inputs.placements.changed() => changed?,
            changed = placements.changed() => changed?,
            changed = decisions.changed() => changed?,
            answered = self.credentials.answered() => self.credentials.take(answered?, self.context.clock.now()),
            found = self.order.found() => self.order.take(found?),
            failed = driver::failed(&mut self.tasks) => failed?,
        }
        Ok(())
    }

    fn tasks(self) -> Tasks {
        self.tasks
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
    seen: &'a Gathered,
    kept: &'a Kept,
    failures: &'a Failures,
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
fn decided(seen: &Gathered) -> impl Iterator<Item = &ClusterName> {
    let live = seen.checks.iter().filter(|check| !check.deleting);
    let named = live.filter_map(|check| check.parameters.as_ref());
    named.filter_map(|parameters| seen.placements.get(&parameters.name)).flat_map(|decided| &decided.clusters)
}

/// Whether the config that a check stands for is there as planned.
fn is_written(seen: &Gathered, plan: &Plan, placement: &str) -> bool {
    let Some(wanted) = plan.configs.get(placement) else { return false };
    seen.configs.get(placement).and_then(Existing::usable) == Some(wanted)
}
