//! The status of every claim, written when it says something new.

use std::collections::BTreeMap;

use crate::{
    domain::{
        claim::ClaimText,
        claim_status::{HubCell, StatusInput, Verdict, WriteState, claim_status},
        ids::{ClusterName, FlavorName, QueueName},
        quantity::Amount,
        quota::Assignment,
        resources::{Cell, FlavorResource, Resources},
    },
    k8s::{
        claims::{conditions, status_change},
        write::Change,
    },
};

use super::{
    QuotaController, Round,
    gather::{self, ReadClaim},
    target::Target,
};

impl QuotaController {
    pub(super) fn status_changes(&self, round: &Round<'_>, hub: &Target) -> Vec<Change> {
        let hub_failures = hub.writer.failures();
        let failures: BTreeMap<String, String> = hub_failures
            .into_iter()
            .map(|(target, reason)| (format!("{target} on the hub"), reason))
            .collect();
        round.claims.values().filter_map(|claim| self.status_change(round, claim, &failures)).collect()
    }

    fn status_change(
        &self,
        round: &Round<'_>,
        claim: &ReadClaim,
        hub_failures: &BTreeMap<String, String>,
    ) -> Option<Change> {
        let cluster = &claim.object.spec.cluster_name;
        let name = ClusterName::new(cluster).ok();
        let assignments = assignments(claim, self);
        let verdict = verdict(claim);
        let accepted = verdict == Verdict::Accepted;
        let joined = name.as_ref().and_then(|name| round.joined.get(name));
        let plan = name.as_ref().filter(|_| accepted).and_then(|name| round.plans.get(name));
        let previous = conditions(&claim.object);
        let input = StatusInput {
            generation: claim.object.metadata.generation.unwrap_or_default(),
            cluster,
            verdict: &verdict,
            assignments: &assignments,
            connection: joined.map(|joined| &joined.connection),
            capacity: name.as_ref().and_then(|name| round.capacity.get(name)).map(AsRef::as_ref),
            plan: plan.map(|(plan, _)| plan),
            report: plan.map(|(_, report)| report),
            hub: &hub_cells(round, &assignments),
            writes: &self.write_state(round, name.as_ref(), &assignments, hub_failures),
            aliases: &self.settings.aliases,
            now: self.clock.now(),
            previous: &previous,
        };
        status_change(&claim.object, &claim_status(&input), &self.settings.aliases)
    }

    fn write_state(
        &self,
        round: &Round<'_>,
        cluster: Option<&ClusterName>,
        assignments: &[Assignment],
        hub_failures: &BTreeMap<String, String>,
    ) -> WriteState {
        let mut state = WriteState::default();
        let target = cluster.and_then(|cluster| self.targets.get(cluster).map(|target| (cluster, target)));
        if let Some((cluster, target)) = target {
            for (target, reason) in target.writer.failures() {
                state.failed.insert(format!("{target} on {cluster}"), reason);
            }
            state
                .pending
                .extend(target.writer.wanted().iter().map(|target| format!("{target} on {cluster}")));
        }
        for assignment in assignments {
            let on_hub = format!("clusterqueues {} on the hub", assignment.queue);
            state.failed.extend(hub_failures.get_key_value(&on_hub).map(|(k, v)| (k.clone(), v.clone())));
            let places = ["hub".to_owned()].into_iter().chain(cluster.map(ToString::to_string));
            for place in places {
                if let Some(who) = round.conflicts.get(&(place, assignment.queue.to_string())) {
                    state.conflicts.extend(cells(assignment).map(|cell| (cell, who.clone())));
                }
            }
        }
        state
    }
}

fn verdict(claim: &ReadClaim) -> Verdict {
    match &claim.verdict {
        gather::Verdict::Accepted(_) => Verdict::Accepted,
        gather::Verdict::AlreadyClaimed(owner) => Verdict::ClaimedBy(owner.clone()),
        gather::Verdict::Invalid(problems) => Verdict::Rejected(
            problems.iter().map(|problem| (problem.problem.reason(), problem.to_string())).collect(),
        ),
    }
}

/// The claim's assignments, as far as they can be read where it is invalid.
fn assignments(claim: &ReadClaim, controller: &QuotaController) -> Vec<Assignment> {
    if let gather::Verdict::Accepted(valid) = &claim.verdict {
        let assignment = |assignment: &crate::domain::claim::Assignment| Assignment {
            queue: assignment.queue.clone(),
            flavor: assignment.flavor.clone(),
            resources: assignment.resources.clone(),
        };
        return valid.assignments().iter().map(assignment).collect();
    }
    let aliases = &controller.settings.aliases;
    let text = ClaimText::from(&*claim.object);
    let readable = text.assignments.iter().filter_map(|assignment| {
        let amount = |(key, amount): (&String, &String)| {
            let resource = aliases.resolve(key).ok()?;
            let amount = Amount::exact(amount, &resource).ok()?;
            Some((resource, amount))
        };
        Some(Assignment {
            queue: QueueName::new(&assignment.queue).ok()?,
            flavor: FlavorName::new(&assignment.flavor).ok()?,
            resources: assignment.resources.iter().filter_map(amount).collect::<Resources>(),
        })
    });
    readable.collect()
}

fn cells(assignment: &Assignment) -> impl Iterator<Item = Cell> + '_ {
    assignment.resources.keys().map(|resource| Cell {
        queue: assignment.queue.clone(),
        flavor: assignment.flavor.clone(),
        resource: resource.clone(),
    })
}

fn hub_cells(round: &Round<'_>, assignments: &[Assignment]) -> BTreeMap<Cell, HubCell> {
    let mut found = BTreeMap::new();
    for cell in assignments.iter().flat_map(cells) {
        let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
        let planned = round.queues.get(&cell.queue).and_then(|queue| queue.cells.get(&at));
        if let Some(planned) = planned {
            found.insert(cell, HubCell { target: planned.target, observed: planned.observed });
        }
    }
    found
}
