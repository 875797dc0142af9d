//! Tasks whose objects are on the hub, for MultiKueue to dispatch.

use std::collections::BTreeSet;

use crate::{
    domain::{
        ids::ClusterName,
        task::{
            choose::Placement,
            names::TaskId,
            progress::{self, Observed},
        },
    },
    k8s::list_watch::State,
    store::TaskRow,
};

use super::{
    Cluster, Decided, TaskController,
    chooser::Chooser,
    decide::{decided, observe, over},
    gather::Routes,
    wishes::Dispatching,
};

impl TaskController {
    /// Whether JobSets can be dispatched: they must be known wherever one may land.
    pub(super) fn has_jobsets(&self, clusters: &BTreeSet<ClusterName>, chooser: &Chooser<'_>) -> bool {
        let on_hub = self
            .place
            .as_ref()
            .is_some_and(|hub| matches!(hub.target.worker.tasks.job_sets.state(), State::Synced { .. }));
        let known = |name| chooser.fleet.clusters.get(name).is_some_and(|member| member.has_jobsets);
        on_hub && clusters.iter().all(known)
    }

    /// A task whose objects are on the hub, and copies of them wherever MultiKueue put them.
    pub(super) fn follow_on_hub(&self, id: &TaskId) -> Option<Decided> {
        let live = self.live.get(id)?;
        let row = &live.row;
        let hub = self.place.as_ref().filter(|hub| hub.index.current)?;
        let seen = self.observe_dispatched(hub, row);
        let step = progress::next(&row.state.phase, &seen, (&row.spec.recovery, row.restarts))?;
        let nodes = over(&step, &seen, row);
        let mut dispatch = row.dispatch.clone()?;
        dispatch.landed = self.landed(row).cloned().or(dispatch.landed);
        let mut next = decided(row, step, Some(dispatch), None)?;
        next.nodes = nodes;
        Some(next)
    }

    /// With the pods of the cluster it landed on, and whatever of it is left on any.
    pub(super) fn observe_dispatched(&self, hub: &Cluster, row: &TaskRow) -> Observed {
        let mut seen = observe(hub, row);
        seen.complete = seen.expected <= seen.objects;
        let owned = row.dispatch.as_ref().map(|dispatch| Dispatching { task: row, dispatch }.owned());
        let owned = owned.unwrap_or_default();
        for cluster in self.clusters.values() {
            let Some(here) = cluster.index.of(row) else { continue };
            seen.left += here.copies.len();
            if !here.copies.is_empty() {
                here.add_nodes(row.state.epoch, &mut seen);
                let refused = || owned.iter().find_map(|object| cluster.target.refusal(object));
                seen.refused = seen.refused.or_else(refused);
            }
        }
        seen.refused = seen.refused.or_else(|| self.secrets.gone(&row.id));
        seen
    }

    /// The cluster that has a copy of a task's objects.
    pub(super) fn landed(&self, row: &TaskRow) -> Option<&ClusterName> {
        let has_copy = |cluster: &Cluster| {
            cluster
                .index
                .of(row)
                .is_some_and(|here| here.copies.iter().any(|job| job.epoch() == Some(row.state.epoch)))
        };
        self.clusters.iter().find(|(_, cluster)| has_copy(cluster)).map(|(name, _)| name)
    }
}

pub(super) fn is_dispatched(row: &TaskRow) -> bool {
    row.dispatch.as_ref().is_some_and(|dispatch| dispatch.by_multikueue)
}

/// Where MultiKueue may put the task, if its queue on the hub is MultiKueue's. A task that has to be on one cluster
/// goes there directly.
pub(super) fn route<'a>(
    row: &TaskRow,
    placement: &Placement,
    routes: &'a Routes,
) -> Option<&'a BTreeSet<ClusterName>> {
    let pinned = row.cluster.is_some()
        || !row.spec.volumes.is_empty()
        || row.spec.candidates.iter().any(|candidate| candidate.cluster.is_some());
    let clusters = routes.get(&(row.namespace.clone(), placement.queue.clone()))?;
    (!pinned && clusters.contains(&placement.cluster)).then_some(clusters)
}
