//! What ClusterQueues still need, as writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use fedq_domain::{
    conflict::Writers,
    queue::{
        policy::{QueuePolicy, WorkerRules, immutable_difference, policy_difference, worker_policy},
        report::{Problem, QueueReport},
    },
    quota::{ClusterPlan, HubQueuePlan, Mode, Untouched},
    resource_groups::{Quota, ResourceGroup, ResourceGroups},
    resources::FlavorResource,
};
use fedq_k8s::{
    follow::TableSet,
    read::{self, CELLS},
    types::{
        kueue::ClusterQueue,
        meta::{ADOPT, HUB_LABEL, MANAGED_BY, MANAGED_BY_FEDQ, Meta},
    },
    worker::{Joined, Worker},
    write::{Action, Change, Kind, Target as WriteTarget},
};
use fedq_values::ids::{ClusterName, FlavorName, QueueName, ResourceName};

use crate::memo::verify;

use super::{
    ClaimedQueues, MANAGER, QuotaController, Round,
    drift::{Verdict, Wish},
    target::{field_key, key},
};

/// What is known of the workers' queues from one round to the next.
#[derive(Default)]
pub(super) struct Kept {
    /// Of the hub's queues, what of it goes to workers.
    shapes: BTreeMap<QueueName, (Arc<ClusterQueue>, Shape)>,
    /// Clusters whose queues need nothing and give nothing to tell, unless something of them is new.
    clean: BTreeSet<ClusterName>,
    /// Clusters that some queue is to be written on.
    pub writing: BTreeSet<ClusterName>,
    /// As published.
    claimed: ClaimedQueues,
}

impl Kept {
    /// Whether it was published.
    fn forget(&mut self, cluster: &ClusterName) -> bool {
        self.clean.remove(cluster);
        self.writing.remove(cluster);
        self.claimed.remove(cluster).is_some()
    }
}

/// A hub queue without its amounts.
#[derive(PartialEq)]
struct Shape {
    policy: QueuePolicy,
    groups: Vec<(Vec<ResourceName>, Vec<FlavorName>)>,
}

impl Shape {
    fn of(object: &ClusterQueue, plan: Option<&HubQueuePlan>) -> Self {
        let groups = plan.into_iter().flat_map(|plan| &plan.groups.0);
        let flavors =
            |group: &ResourceGroup| group.flavors.iter().map(|flavor| flavor.name.clone()).collect();
        Self {
            policy: read::queues::policy(&object.spec),
            groups: groups.map(|group| (group.covered.clone(), flavors(group))).collect(),
        }
    }
}

impl QuotaController {
    /// The hub's queues: quota and the annotation that lists fedq's cells, in one write.
    pub(super) fn hub_changes(&mut self, round: &mut Round<'_>) -> Vec<Change> {
        let mut changes = Vec::new();
        for (name, plan) in std::mem::take(&mut round.queues) {
            if let Some(why) = self.left_alone(&name, &plan) {
                round.left_alone.insert(name.clone(), why);
            }
            if plan.untouched.is_none() && !round.unreadable.contains_key(&name) {
                changes.extend(match self.told.cohorts.get(&name) {
                    Some(cohort) => self.cohort_change(&name, cohort, &plan, round),
                    None => self.queue_change(&name, &plan, round),
                });
            }
            round.queues.insert(name, plan);
        }
        changes.extend(self.cohorts_left(round));
        changes
    }

    /// Kueue's own management is told of in its own words.
    fn left_alone(&self, name: &QueueName, plan: &HubQueuePlan) -> Option<String> {
        match &plan.untouched {
            Some(Untouched::Automated) => None,
            Some(why) => Some(why.to_string()),
            None => self.left_in_cohort(name),
        }
    }

    fn queue_change(&self, name: &QueueName, plan: &HubQueuePlan, round: &mut Round<'_>) -> Option<Change> {
        let (object, observed) = (self.told.hub_objects.get(name)?, self.told.queues.get(name)?);
        // What the annotation really says, not what is remembered of it.
        let written = read::managed_cells(&object.metadata).ok()?;
        let same = plan.groups == observed.groups && plan.managed == written;
        // The same quota would be there twice.
        if same || self.left_in_cohort(name).is_some() {
            return None;
        }
        let target = WriteTarget::cluster_scoped(Kind::ClusterQueue, name.as_str());
        let of = QuotaObject { place: "hub", target: &target, meta: &object.metadata, queue: name.as_str() };
        if !self.may_write(&of, &plan.groups, round) {
            return None;
        }
        let body = json!({
            "metadata": {
                "resourceVersion": object.metadata.resource_version,
                "annotations": {CELLS: read::render_cells(&plan.managed)},
            },
            "spec": {"resourceGroups": read::render_groups(&plan.groups)},
        });
        Some(merge(name, body))
    }

    /// Hands each live worker's writer what its queues still need.
    pub(super) fn write_workers(&mut self, round: &mut Round<'_>) {
        let mut kept = std::mem::take(&mut self.kept);
        let reshaped = self.reshaped(&mut kept, round);
        let joined = round.joined;
        let mut differs = false;
        for (name, entry) in joined {
            if kept.clean.contains(name) && !self.is_new(name, &reshaped, round) {
                self.verify_clean(name, entry, kept.claimed.get(name), round);
                continue;
            }
            let target = self.targets.get(name);
            let live = self.told.clusters.get(name).is_some_and(|told| told.mode == Mode::Live);
            let (Some(target), Some(worker), true) = (target, &entry.worker, live) else {
                // A change that was decided on before the cluster fell silent must not land after.
                if let Some(target) = target {
                    target.writer.want(Vec::new());
                }
                differs |= kept.forget(name);
                continue;
            };
            let queues = self.claimed_queues(name, round);
            let told =
                |round: &Round<'_>| (round.reports.get(name).map_or(0, Vec::len), round.conflicts.len());
            let before = told(round);
            let changes = self.worker_changes(worker, &queues, round);
            let observed = round.capacity.get(name).map(|known| known.observed);
            target.follows(observed, !changes.is_empty());
            let nothing = changes.is_empty();
            let view = self.told.known.get(name).map_or(0, |known| known.mark.writes());
            let is_wanted = target.writer.want_in_view_of(view, changes);
            if is_wanted && nothing && told(round) == before {
                kept.clean.insert(name.clone());
            } else {
                kept.clean.remove(name);
            }
            if is_wanted && nothing {
                kept.writing.remove(name);
            } else {
                kept.writing.insert(name.clone());
            }
            if kept.claimed.get(name) != Some(&queues) {
                kept.claimed.insert(name.clone(), queues);
                differs = true;
            }
        }
        let gone: Vec<ClusterName> =
            kept.claimed.keys().filter(|name| !joined.contains_key(*name)).cloned().collect();
        for name in &gone {
            differs |= kept.forget(name);
        }
        if differs {
            self.outputs.claimed.send_replace(Arc::new(kept.claimed.clone()));
        }
        self.kept = kept;
    }

    /// In debug builds: whether a cluster's queues need nothing, as it was found before.
    fn verify_clean(
        &self,
        name: &ClusterName,
        entry: &Joined,
        known: Option<&BTreeMap<QueueName, BTreeSet<FlavorName>>>,
        round: &mut Round<'_>,
    ) {
        if cfg!(debug_assertions)
            && let (Some(worker), Some(known)) = (&entry.worker, known)
        {
            let revision = worker.changes();
            let afresh = || (self.claimed_queues(name, round), self.worker_changes(worker, known, round));
            verify(&(known.clone(), Vec::new()), afresh, || worker.changes() == revision);
        }
    }

    /// Hub queues of which workers get something else than in the last round.
    fn reshaped(&self, kept: &mut Kept, round: &Round<'_>) -> BTreeSet<QueueName> {
        let mut shapes = BTreeMap::new();
        let mut reshaped = BTreeSet::new();
        for (name, object) in &self.told.hub_objects {
            let shape = match kept.shapes.remove(name) {
                Some((known, shape))
                    if Arc::ptr_eq(&known, object) && !round.touched.queues.contains(name) =>
                {
                    shape
                }
                known => {
                    let shape = Shape::of(object, round.queues.get(name));
                    if known.is_none_or(|(_, known)| known != shape) {
                        reshaped.insert(name.clone());
                    }
                    shape
                }
            };
            shapes.insert(name.clone(), (Arc::clone(object), shape));
        }
        reshaped.extend(std::mem::replace(&mut kept.shapes, shapes).into_keys());
        reshaped
    }

    /// Whether the cluster's queues have to be compared with what they should be.
    fn is_new(&self, name: &ClusterName, reshaped: &BTreeSet<QueueName>, round: &Round<'_>) -> bool {
        let concerns = |queue: &str| reshaped.iter().any(|reshaped| reshaped.as_str() == queue);
        let claim = round.in_force.get(name).map_or(&[][..], |claim| claim.assignments());
        let objects = self.told.worker_objects.get(name);
        self.told.renewed.contains(name)
            || round.touched.clusters.contains(name)
            || !reshaped.is_empty()
                && (claim.iter().any(|assignment| concerns(assignment.queue.as_str()))
                    || objects.is_some_and(|objects| objects.keys().any(|queue| concerns(queue))))
    }

    fn claimed_queues(
        &self,
        cluster: &ClusterName,
        round: &Round<'_>,
    ) -> BTreeMap<QueueName, BTreeSet<FlavorName>> {
        let leaving = round.joined.get(cluster).is_none_or(|joined| joined.leaving);
        let claim = round.in_force.get(cluster).filter(|_| !leaving);
        let assignments = claim.into_iter().flat_map(|claim| claim.assignments());
        let mut queues: BTreeMap<QueueName, BTreeSet<FlavorName>> = BTreeMap::new();
        for assignment in assignments.filter(|one| self.told.queues.contains_key(&one.queue)) {
            queues.entry(assignment.queue.clone()).or_default().insert(assignment.flavor.clone());
        }
        queues
    }

    fn worker_changes(
        &self,
        worker: &Worker,
        claimed: &BTreeMap<QueueName, BTreeSet<FlavorName>>,
        round: &mut Round<'_>,
    ) -> Vec<Change> {
        let Some((plan, _)) = round.plans.get(&worker.name) else { return Vec::new() };
        let Some(objects) = self.told.worker_objects.get(&worker.name) else { return Vec::new() };
        let quotas = quotas_by_queue(plan);
        let none = BTreeMap::new();
        let mut changes = Vec::new();
        for name in claimed.keys() {
            if !objects.contains_key(name.as_str()) {
                let quotas = quotas.get(name).unwrap_or(&none);
                changes.extend(self.create(worker, name, quotas, round));
            }
        }
        for object in objects.values() {
            let Ok(name) = QueueName::new(&object.metadata.name) else { continue };
            let is_claimed = claimed.contains_key(&name);
            // Handing a queue over means something only where a claim names it.
            let handed_over = is_claimed && object.metadata.is_handed_over();
            let ours = object.metadata.is_labelled(&self.context.hub_id) || handed_over;
            if !ours || object.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let quotas = quotas.get(&name).unwrap_or(&none);
            changes.extend(self.keep(worker, object, (&name, quotas, is_claimed), round));
        }
        changes
    }

    fn create(
        &self,
        worker: &Worker,
        name: &QueueName,
        quotas: &BTreeMap<FlavorResource, Quota>,
        round: &Round<'_>,
    ) -> Option<Change> {
        let hub_queue = self.told.hub_objects.get(name)?;
        let groups = round.queues.get(name)?.groups.for_worker(quotas);
        if groups.0.is_empty() {
            return None;
        }
        let policy = self.policy(worker, hub_queue, (&groups, None, true), round);
        let mut spec = policy.fields().clone();
        spec.insert("resourceGroups".to_owned(), json!(read::render_groups(&groups)));
        let body = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {
                "name": name,
                "labels": {HUB_LABEL: self.context.hub_id, MANAGED_BY: MANAGED_BY_FEDQ},
            },
            "spec": spec,
        });
        let target = WriteTarget::cluster_scoped(Kind::ClusterQueue, name.as_str());
        Some(Change { target, action: Action::Create(body), manager: MANAGER })
    }

    /// One write with everything that differs, or the deletion of a queue that is of no use any more.
    fn keep(
        &self,
        worker: &Worker,
        object: &ClusterQueue,
        (name, quotas, claimed): (&QueueName, &BTreeMap<FlavorResource, Quota>, bool),
        round: &mut Round<'_>,
    ) -> Option<Change> {
        let hub_queue = self.told.hub_objects.get(name);
        let observed = read::groups(&object.spec.resource_groups).ok()?;
        let desired = desired_groups(&observed, round.queues.get(name), quotas);
        let observed_policy = read::queues::policy(&object.spec);
        let policy = match hub_queue {
            Some(hub) => self.policy(worker, hub, (&desired, Some(&observed_policy), claimed), round),
            // The hub has no such queue any more: nothing new is admitted, the rest stays.
            None => observed_policy.clone().held(),
        };
        if hub_queue.as_ref().is_some_and(|hub| {
            claimed && immutable_difference(&read::queues::policy(&hub.spec), &observed_policy)
        }) {
            let report = QueueReport { queue: Some(name.clone()), problem: Problem::QueueUnchangeable };
            Arc::make_mut(&mut round.reports).entry(worker.name.clone()).or_default().push(report);
        }
        let mut policy = policy_difference(&observed_policy, &policy);
        let differs = !policy.is_empty();
        let target = WriteTarget::cluster_scoped(Kind::ClusterQueue, name.as_str());
        let (place, meta) = (worker.name.as_str(), &object.metadata);
        let of = QuotaObject { place, target: &target, meta, queue: name.as_str() };
        self.leave_fought_over(&of, &mut policy, round);
        let unlabelled = object.metadata.labels.get(HUB_LABEL) != Some(&self.context.hub_id);
        if desired == observed && policy.is_empty() && !unlabelled {
            return (!claimed && !differs).then(|| delete_if_empty(object)).flatten();
        }
        if desired != observed && !self.may_write(&of, &desired, round) {
            return None;
        }
        let mut spec = policy;
        if desired != observed {
            spec.insert("resourceGroups".to_owned(), json!(read::render_groups(&desired)));
        }
        let mut metadata = json!({"resourceVersion": object.metadata.resource_version});
        if unlabelled {
            metadata["labels"] = json!({HUB_LABEL: self.context.hub_id, MANAGED_BY: MANAGED_BY_FEDQ});
            // Handed over once: another hub that shares the worker must not take it in turn.
            metadata["annotations"] = json!({ADOPT: null});
        }
        Some(merge(name, json!({"metadata": metadata, "spec": spec})))
    }

    /// The hub's policy as it is to be on this worker.
    fn policy(
        &self,
        worker: &Worker,
        hub_queue: &ClusterQueue,
        (groups, observed, claimed): (&ResourceGroups, Option<&QueuePolicy>, bool),
        round: &Round<'_>,
    ) -> QueuePolicy {
        let joined = round.joined.get(&worker.name);
        let held = !claimed || joined.is_none_or(|joined| joined.cordoned || joined.leaving);
        let wanted = self.settings.copy_admission_checks.iter();
        let checks = wanted.filter(|name| worker.checks.get(None, name).is_some()).cloned().collect();
        let rules = WorkerRules { held, checks: &checks, groups, observed };
        worker_policy(&read::queues::policy(&hub_queue.spec), &rules)
    }

    /// Takes out of a patch the fields that somebody keeps writing back.
    pub(super) fn leave_fought_over(
        &self,
        of: &QuotaObject<'_>,
        patch: &mut Map<String, Value>,
        round: &mut Round<'_>,
    ) {
        let mut drift = self.writing.drift.lock().expect("no code panics while holding this lock");
        patch.retain(|field, value| {
            let wish = Wish::Field(value.clone());
            let key = field_key(of.place, of.target, field);
            let Verdict::Wait(until) = drift.judge(&key, &wish, of.meta, Instant::now()) else {
                return true;
            };
            of.fought_over(until, drift.writers(&key), round);
            false
        });
    }

    /// Whether a write of these groups is not the umpteenth against somebody who writes them back.
    pub(super) fn may_write(
        &self,
        of: &QuotaObject<'_>,
        desired: &ResourceGroups,
        round: &mut Round<'_>,
    ) -> bool {
        let mut drift = self.writing.drift.lock().expect("no code panics while holding this lock");
        let (key, wish) = (key(of.place, of.target), Wish::Groups(desired.clone()));
        match drift.judge(&key, &wish, of.meta, Instant::now()) {
            Verdict::Write => true,
            Verdict::Wait(until) => {
                of.fought_over(until, drift.writers(&key), round);
                false
            }
        }
    }
}

/// What holds a queue's quota at one place, as it was read.
pub(super) struct QuotaObject<'a> {
    pub place: &'a str,
    pub target: &'a WriteTarget,
    pub meta: &'a Meta,
    pub queue: &'a str,
}

impl QuotaObject<'_> {
    fn fought_over(&self, until: Instant, writers: Writers, round: &mut Round<'_>) {
        round.look_again(Some(until));
        // One may write its fields and another its groups.
        round.conflicts.entry((self.place.to_owned(), self.queue.to_owned())).or_default().add(writers);
    }
}

/// What each worker queue is to hold now. A cell that may not be written is left out.
fn quotas_by_queue(plan: &ClusterPlan) -> BTreeMap<QueueName, BTreeMap<FlavorResource, Quota>> {
    let mut queues: BTreeMap<QueueName, BTreeMap<FlavorResource, Quota>> = BTreeMap::new();
    for (cell, planned) in &plan.cells {
        let Some(granted) = planned.granted else { continue };
        let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
        let quota = Quota { nominal: granted, borrowing: planned.borrowing, lending: planned.lending };
        queues.entry(cell.queue.clone()).or_default().insert(at, quota);
    }
    queues
}

/// The groups of an existing worker queue: the hub's form where it has one, and never less than the cells
/// that are there, since removing a cell drops its usage from Kueue's accounting.
fn desired_groups(
    observed: &ResourceGroups,
    hub: Option<&HubQueuePlan>,
    quotas: &BTreeMap<FlavorResource, Quota>,
) -> ResourceGroups {
    let mut all: BTreeMap<FlavorResource, Quota> = BTreeMap::new();
    for flavor in observed.0.iter().flat_map(|group| &group.flavors) {
        for quota in &flavor.resources {
            let at = FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
            let kept = Quota {
                nominal: quota.nominal.amount(),
                borrowing: quota.borrowing.as_ref().map(fedq_domain::resource_groups::Written::amount),
                lending: quota.lending.as_ref().map(fedq_domain::resource_groups::Written::amount),
            };
            all.insert(at, kept);
        }
    }
    let new = quotas.keys().any(|at| !all.contains_key(at));
    all.extend(quotas.iter().map(|(at, quota)| (at.clone(), *quota)));
    if let Some(hub) = hub.filter(|_| new) {
        let whole = hub.groups.for_worker(&all);
        if all.keys().all(|at| whole.cell(at).is_some()) {
            return whole;
        }
    }
    let mut groups = observed.clone();
    for at in quotas.keys().filter(|at| observed.cell(at).is_none()) {
        // A rule that forbids it is on the claim already, since the hub's queue has it too.
        groups.extend(at).ok();
    }
    groups.set_cells(quotas);
    match hub {
        Some(hub) => groups.ordered_like(&hub.groups),
        None => groups,
    }
}

fn delete_if_empty(object: &ClusterQueue) -> Option<Change> {
    let status = &object.status;
    let settled = status.conditions.iter().any(|condition| {
        condition.type_ == "Active"
            && condition.status == "False"
            && condition.observed_generation == object.metadata.generation
    });
    let empty =
        status.reserving_workloads == 0 && status.admitted_workloads == 0 && status.pending_workloads == 0;
    (settled && empty).then(|| Change {
        target: WriteTarget::cluster_scoped(Kind::ClusterQueue, &object.metadata.name),
        action: Action::Delete {
            uid: object.metadata.uid.clone(),
            resource_version: object.metadata.resource_version.clone(),
        },
        manager: MANAGER,
    })
}

fn merge(name: &QueueName, body: Value) -> Change {
    let target = WriteTarget::cluster_scoped(Kind::ClusterQueue, name.as_str());
    Change { target, action: Action::Merge(body), manager: MANAGER }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::resource_groups::{FlavorQuotas, ResourceQuota};

    fn groups(flavors: &[&str]) -> ResourceGroups {
        let covered: ResourceName = "cpu".parse().expect("a name");
        let flavor = |name: &&str| FlavorQuotas {
            name: name.parse().expect("a name"),
            resources: vec![ResourceQuota::zero(covered.clone())],
        };
        let flavors = flavors.iter().map(flavor).collect();
        ResourceGroups(vec![ResourceGroup { covered: vec![covered.clone()], flavors }])
    }

    #[test]
    fn the_order_of_the_hubs_flavors_reaches_queues_that_are_there() {
        let plan = |flavors: &[&str]| HubQueuePlan {
            untouched: None,
            groups: groups(flavors),
            cells: BTreeMap::new(),
            managed: BTreeMap::new(),
        };
        let observed = groups(&["a", "local", "b"]);
        let desired = |hub: &[&str]| desired_groups(&observed, Some(&plan(hub)), &BTreeMap::new());
        assert_eq!(desired(&["b", "c", "a"]), groups(&["b", "a", "local"]));
        assert_eq!(desired(&["a", "b"]), groups(&["a", "b", "local"]));
        let observed = groups(&["a", "b"]);
        assert_eq!(desired_groups(&observed, Some(&plan(&["a", "b"])), &BTreeMap::new()), observed);
    }
}
