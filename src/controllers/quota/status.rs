//! The status of every claim, written when it says something new.

use std::collections::BTreeMap;

use crate::{
    domain::{
        claim_status::{Condition, ConditionKind, HubCell, StatusInput, WriteState, claim_status},
        ids::ClusterName,
        quota::Assignment,
        resources::{Cell, FlavorResource},
    },
    k8s::{
        claims::{ReadClaim, conditions, status_change},
        events::Happening,
        worker::Joined,
        write::Change,
    },
};

use super::{QuotaController, Round, target::Target};

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
        let name = ClusterName::new(&claim.cluster).ok();
        let assignments = &claim.input.assignments;
        let joined = name.as_ref().and_then(|name| round.joined.get(name));
        let plan = name.as_ref().filter(|_| claim.in_force()).and_then(|name| round.plans.get(name));
        let previous = conditions(&claim.object);
        let connection = joined.map(Joined::told);
        let input = StatusInput {
            generation: claim.object.metadata.generation.unwrap_or_default(),
            cluster: &claim.cluster,
            verdict: &claim.verdict,
            assignments,
            caps: &claim.input.caps,
            connection: connection.as_ref(),
            capacity: name.as_ref().and_then(|name| round.capacity.get(name)).map(AsRef::as_ref),
            plan: plan.map(|(plan, _)| plan),
            report: plan.map(|(_, report)| report),
            hub: &hub_cells(round, assignments),
            writes: &self.write_state(round, name.as_ref(), assignments, hub_failures),
            aliases: &self.settings.aliases,
            now: self.clock.now(),
            previous: &previous,
        };
        let status = claim_status(&input);
        let change = status_change(&claim.object, &status, &self.settings.aliases)?;
        if let Some((happening, note)) = news(&previous, &status.conditions) {
            self.outputs.events.tell(&claim.object, happening, note, input.now);
        }
        Some(change)
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

/// What of a new status deserves an event: the claim got ready, or something else than before keeps it
/// from being so.
fn news(before: &[Condition], now: &[Condition]) -> Option<(Happening, String)> {
    let find =
        |conditions: &[Condition], kind| conditions.iter().find(|condition| condition.kind == kind).cloned();
    let overcommitted = find(now, ConditionKind::Overcommitted);
    if let Some(condition) = overcommitted.filter(|_| find(before, ConditionKind::Overcommitted).is_none()) {
        return Some((Happening::OverCommitted, condition.message));
    }
    let (before, now) = (find(before, ConditionKind::Ready), find(now, ConditionKind::Ready)?);
    let same = before.as_ref().is_some_and(|before| {
        (before.status, &before.reason, before.observed_generation)
            == (now.status, &now.reason, now.observed_generation)
    });
    if same {
        return None;
    }
    let was_lost = before.is_some_and(|before| matches!(before.reason.as_str(), "Lost" | "Stale"));
    let happening = match now.reason.as_str() {
        "Ready" if was_lost => Happening::Returned,
        "Ready" => Happening::QuotaApplied,
        "Draining" => Happening::Draining,
        "Lost" | "Stale" => Happening::Lost,
        "Conflict" | "QuotaConflict" => Happening::Conflict,
        _ => return None,
    };
    Some((happening, now.message))
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
