//! What a plan leaves in the store: each cluster's terms, which stand while it does not answer, and a
//! line of history for each plan that says something new.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use fedq_domain::{
    capacity::Capacity,
    claim_status::reason_word,
    quota::{ClusterPlan, Mode},
    resources::{Cell, FlavorResource, Resources},
};
use fedq_k8s::{claims::keeping::last_editor, worker::Worker};
use fedq_store::{ClaimInForce, Deferred, HubCells, PlanCause, QuotaCell, Store, StoreError};
use fedq_values::{
    ids::{ClusterName, FlavorName, QueueName},
    quantity::Amount,
};

use super::{QuotaController, Round};

/// What was recorded last, so that a plan which says the same writes nothing.
#[derive(Default)]
pub(super) struct Recorded {
    cells: BTreeMap<ClusterName, Vec<QuotaCell>>,
    effective: BTreeMap<ClusterName, Last>,
}

impl Recorded {
    /// Whether the cluster has said what it has since fedqd started.
    pub fn knows(&self, cluster: &ClusterName) -> bool {
        self.cells.contains_key(cluster)
    }

    pub fn forget(&mut self, cluster: &ClusterName) {
        self.cells.remove(cluster);
        self.effective.remove(cluster);
    }
}

/// What is to be stored of one cluster. Nobody waits for that: a commit takes longer than all else on the
/// way from a change to the queues, and the next write follows from what the clusters say.
pub(super) enum Record {
    Cells(ClusterName, Vec<QuotaCell>),
    InForce(ClusterName, Option<ClaimInForce>),
    /// What a hub queue's annotation says; `None`: the queue is gone.
    HubCells(QueueName, Option<HubCells>),
    Plan {
        cluster: ClusterName,
        cause: PlanCause,
        report: Value,
        at: Timestamp,
        /// Since fedqd started.
        is_first: bool,
    },
}

#[derive(Default, Eq, PartialEq)]
struct Last {
    effective: BTreeMap<Cell, (Amount, Amount)>,
    generation: Option<i64>,
    /// With what may come.
    capacity: Option<BTreeMap<FlavorResource, (Amount, Amount)>>,
    /// How often a node had changed what counts.
    moved: u64,
    word: &'static str,
}

impl Deferred for Record {
    /// What is recorded, and of which cluster or queue.
    type Key = (&'static str, String);

    fn key(&self) -> Self::Key {
        match self {
            Self::Cells(cluster, _) => ("cells", cluster.to_string()),
            Self::InForce(cluster, _) => ("claim", cluster.to_string()),
            Self::HubCells(queue, _) => ("hub cells", queue.to_string()),
            Self::Plan { cluster, .. } => ("plan", cluster.to_string()),
        }
    }

    fn replaces(&mut self, earlier: &Self) {
        if let (Self::Plan { is_first, .. }, Self::Plan { is_first: was_first, .. }) = (self, earlier) {
            *is_first |= was_first;
        }
    }

    async fn store(&self, store: &Store) -> Result<(), StoreError> {
        match self {
            Self::Cells(cluster, cells) => store.put_quota_cells(cluster, cells).await,
            Self::InForce(cluster, claim) => store.put_claim_in_force(cluster, claim.as_ref()).await,
            Self::HubCells(queue, cells) => store.put_hub_cells(queue, cells.as_ref()).await,
            Self::Plan { cluster, cause, report, at, is_first } => {
                // A restart that plans the same is no news.
                let latest = if *is_first { store.latest_plan(cluster).await? } else { None };
                if latest.is_none_or(|latest| latest.report != *report) {
                    store.record_plan(cluster, cause, report, *at).await?;
                }
                Ok(())
            }
        }
    }
}

impl QuotaController {
    pub(super) fn record(&mut self, round: &Round<'_>) {
        let mut new: BTreeSet<ClusterName> = round.touched.clusters.clone();
        new.append(&mut self.told.renewed.clone());
        for name in &new {
            let Some((plan, _)) = round.plans.get(name) else { continue };
            // What stands because nothing newer is known must not become what is known.
            let told = self.told.clusters.get(name);
            if told.is_none_or(|told| told.treated_as() == Mode::Frozen || told.capacity.is_none()) {
                continue;
            }
            let worker = round.joined.get(name).and_then(|joined| joined.worker.as_deref());
            let cells: Vec<QuotaCell> = plan
                .cells
                .iter()
                .map(|(cell, planned)| QuotaCell {
                    cell: cell.clone(),
                    effective: planned.effective,
                    acknowledged: acknowledged(worker, cell),
                    term: planned.term,
                })
                .collect();
            if self.recorded.cells.get(name) != Some(&cells) {
                self.store_later(Record::Cells(name.clone(), cells.clone()));
                let terms = cells.iter().map(|cell| (cell.cell.clone(), cell.term)).collect();
                self.terms.insert(name.clone(), terms);
                // The terms are input of the next plan.
                self.told.known.remove(name);
                self.recorded.cells.insert(name.clone(), cells);
            }
            self.record_plan(round, name, plan);
        }
        // Those of clusters that left while fedqd did not run.
        self.terms.retain(|name, _| round.joined.contains_key(name));
    }

    pub(super) fn store_later(&self, record: Record) {
        // Fails only when storing failed, which ends the controller.
        self.records.send(record).ok();
    }

    fn record_plan(&mut self, round: &Round<'_>, name: &ClusterName, plan: &ClusterPlan) {
        let now = last(round, name, plan);
        let before = self.recorded.effective.get(name);
        if before.is_some_and(|before| before.effective == now.effective) {
            self.recorded.effective.insert(name.clone(), now);
            return;
        }
        let cause = cause(round, name, before, &now);
        let is_first = before.is_none();
        let connection = round.joined.get(name).map(|joined| &joined.connection);
        let report: Vec<_> = plan
            .cells
            .iter()
            .map(|(cell, planned)| {
                json!({
                    "queue": cell.queue, "flavor": cell.flavor, "resource": cell.resource,
                    "requested": planned.requested.text(&cell.resource),
                    "effective": planned.effective.text(&cell.resource),
                    "draining": planned.draining.text(&cell.resource),
                    "term": planned.term.text(&cell.resource),
                    "reason": reason_word(&planned.reason, connection),
                })
            })
            .collect();
        let report = json!({"cells": report});
        let (cluster, at) = (name.clone(), self.context.clock.now());
        self.store_later(Record::Plan { cluster, cause, report, at, is_first });
        self.recorded.effective.insert(name.clone(), now);
    }
}

fn acknowledged(worker: Option<&Worker>, cell: &Cell) -> Amount {
    let queue = worker.and_then(|worker| worker.queues.get(None, cell.queue.as_str()));
    let groups = queue.and_then(|queue| fedq_k8s::read::groups(&queue.spec.resource_groups).ok());
    let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
    groups.and_then(|groups| groups.cell(&at).map(|quota| quota.nominal.amount())).unwrap_or_default()
}

fn last(round: &Round<'_>, name: &ClusterName, plan: &ClusterPlan) -> Last {
    let effective =
        plan.cells.iter().map(|(cell, planned)| (cell.clone(), (planned.requested, planned.effective)));
    let capacity = round.capacity.get(name).map(|known| amounts(&known.capacity));
    Last {
        effective: effective.collect(),
        generation: claim_of(round, name).map(|(_, generation)| generation),
        capacity,
        moved: round.capacity.get(name).map_or(0, |known| known.moved.times()),
        word: round.joined.get(name).map_or("", |joined| joined.connection.word()),
    }
}

fn amounts(capacity: &Capacity) -> BTreeMap<FlavorResource, (Amount, Amount)> {
    let mut amounts: BTreeMap<FlavorResource, (Amount, Amount)> = BTreeMap::new();
    let mut each = |of: &BTreeMap<FlavorName, Resources>, put: fn(&mut (Amount, Amount), Amount)| {
        for (flavor, resources) in of {
            for (resource, amount) in resources {
                let at = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
                put(amounts.entry(at).or_default(), *amount);
            }
        }
    };
    each(&capacity.by_flavor, |of, amount| of.0 = amount);
    each(&capacity.coming, |of, amount| of.1 = amount);
    amounts
}

fn claim_of(round: &Round<'_>, name: &ClusterName) -> Option<(fedq_values::ids::ClaimName, i64)> {
    let claim = round.in_force.get(name)?;
    let object = &round.claims.get(claim.name())?.object;
    Some((claim.name().clone(), object.metadata.generation.unwrap_or_default()))
}

/// Names what differs from the plan before.
fn cause(round: &Round<'_>, name: &ClusterName, before: Option<&Last>, now: &Last) -> PlanCause {
    let mut cause = PlanCause::default();
    let Some(before) = before else {
        cause.other = Some("fedqd started, or the cluster joined".to_owned());
        return cause;
    };
    if before.generation != now.generation {
        if let Some((claim, generation)) = claim_of(round, name) {
            let object = &round.claims.get(&claim).map(|claim| &claim.object);
            cause.who = object.map(|object| last_editor(object));
            (cause.claim, cause.generation) = (Some(claim), Some(generation));
        } else {
            cause.other = Some("the claim is gone".to_owned());
        }
    }
    if before.capacity != now.capacity {
        let nodes = round.capacity.get(name).and_then(|known| known.moved.since(before.moved));
        let nodes = nodes.map(|nodes| format!(" ({nodes})")).unwrap_or_default();
        cause.capacity_change = Some(capacity_change(before, now) + &nodes);
    }
    if before.word != now.word {
        cause.other = Some(format!("the cluster is {}", now.word));
    }
    if cause == PlanCause::default() {
        cause.other = Some("a queue or its use changed".to_owned());
    }
    cause
}

fn capacity_change(before: &Last, now: &Last) -> String {
    let map = |last: &Last| last.capacity.clone().unwrap_or_default();
    let (before, now) = (map(before), map(now));
    let changes = before.keys().chain(now.keys().filter(|at| !before.contains_key(*at)));
    let changes = changes.filter(|at| before.get(*at) != now.get(*at)).map(|at| {
        let text = |amounts: Option<&(Amount, Amount)>| match amounts {
            None => "unknown".to_owned(),
            Some((amount, coming)) if coming.is_zero() => amount.text(&at.resource),
            Some((amount, coming)) => {
                format!("{} (+{} could come)", amount.text(&at.resource), coming.text(&at.resource))
            }
        };
        format!("{} {} {} → {}", at.flavor, at.resource, text(before.get(at)), text(now.get(at)))
    });
    changes.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_values::ids::ResourceName;

    #[test]
    fn a_change_of_what_could_come_is_one_of_capacity() {
        let at = |present: i64, coming: i64| {
            let of = |units: i64| {
                let gpu = ResourceName::new("nvidia.com/gpu").expect("a name");
                BTreeMap::from([(
                    FlavorName::new("h100").expect("a name"),
                    Resources::from([(gpu, Amount::new(units))]),
                )])
            };
            let coming = if coming == 0 { BTreeMap::new() } else { of(coming) };
            let capacity = Capacity { by_flavor: of(present), coming, ..Capacity::default() };
            Last { capacity: Some(amounts(&capacity)), ..Last::default() }
        };
        assert!(at(8, 0) != at(8, 56));
        assert_eq!(capacity_change(&at(8, 0), &at(8, 56)), "h100 nvidia.com/gpu 8 → 8 (+56 could come)");
        assert_eq!(
            capacity_change(&at(8, 56), &at(16, 48)),
            "h100 nvidia.com/gpu 8 (+56 could come) → 16 (+48 could come)"
        );
        assert_eq!(capacity_change(&Last::default(), &at(8, 0)), "h100 nvidia.com/gpu unknown → 8");
    }
}
