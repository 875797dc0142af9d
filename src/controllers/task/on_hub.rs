//! Tasks whose objects are on the hub, for MultiKueue to dispatch.

use std::collections::BTreeSet;

use fedq_domain::task::{
    choose::Placement,
    names::TaskId,
    progress::{self, Observed},
};
use fedq_k8s::{list_watch::State, read::multikueue::joined_cluster};
use fedq_store::TaskRow;
use fedq_values::ids::ClusterName;

use super::{
    Cluster, Decided, TaskController,
    chooser::Chooser,
    decide::{decided, is_app_wrapper, leave_to_controller, observe, over, overdue},
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

    /// Whether the hub knows AppWrappers, once it has said so.
    pub(super) fn hub_has_app_wrappers(&self) -> Option<bool> {
        match self.place.as_ref()?.target.worker.tasks.app_wrappers.state() {
            State::Waiting => None,
            State::Absent => Some(false),
            State::Synced { .. } => Some(true),
        }
    }

    /// A task whose objects are on the hub, and copies of them wherever MultiKueue put them.
    pub(super) fn follow_on_hub(&self, id: &TaskId) -> Option<Decided> {
        let live = self.live.get(id)?;
        let row = &live.row;
        let has = |hub: &Cluster| hub.index.current && (!is_app_wrapper(row) || hub.index.has_app_wrappers);
        let hub = self.place.as_ref().filter(|hub| has(hub))?;
        let seen = self.observe_dispatched(hub, row);
        let step = progress::next(&row.state.phase, &seen, (&row.spec.recovery, row.restarts));
        let step = step.or_else(|| overdue((row, live.in_part), &seen, self.context.clock.now()))?;
        let nodes = over(&step, &seen, row);
        let mut dispatch = row.dispatch.clone()?;
        dispatch.landed = self.runs_on(row).cloned();
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
        let chosen: BTreeSet<ClusterName> = self.chosen(row).into_iter().collect();
        let runs_on: BTreeSet<ClusterName> = chosen.iter().chain(self.runs_on(row)).cloned().collect();
        for (name, cluster) in &self.clusters {
            let Some(here) = cluster.index.of(row) else { continue };
            seen.left += here.copies.len();
            if !here.copies.is_empty() && runs_on.contains(name) {
                here.add_nodes(row.state.epoch, &mut seen);
                let refused = || owned.iter().find_map(|object| cluster.target.refusal(object));
                seen.refused = seen.refused.or_else(refused);
            }
        }
        if seen.end.is_some() {
            // Where Kueue says it is; what was noted before may be another cluster's.
            for name in if chosen.is_empty() { &runs_on } else { &chosen } {
                if let Some(cluster) = self.clusters.get(name) {
                    cluster.index.recall(row, &mut seen);
                }
            }
        }
        seen.refused = seen.refused.or_else(|| self.contents.gone(&row.id));
        // What the copies' pods say is left to it as well.
        leave_to_controller(row, &mut seen);
        seen
    }

    /// The cluster that a dispatched task is on, or was last.
    pub(super) fn runs_on<'a>(&'a self, row: &'a TaskRow) -> Option<&'a ClusterName> {
        let noted = || {
            let (epoch, name) = self.live.get(&row.id)?.landed.as_ref()?;
            (*epoch == row.state.epoch).then_some(name)
        };
        self.landed(row).or_else(noted).or_else(|| row.dispatch.as_ref()?.cluster())
    }

    pub(super) fn note_landed(&mut self, id: &TaskId) {
        let landed = self.live.get(id).and_then(|live| {
            let name = self.landed(&live.row)?.clone();
            Some((live.row.state.epoch, name))
        });
        if let (Some(landed), Some(live)) = (landed, self.live.get_mut(id)) {
            live.landed = Some(landed);
        }
    }

    /// The cluster that MultiKueue put a task on, once its copy is there. A copy alone proves nothing: a cluster that
    /// was asked and not chosen could make one, to be given the task's secrets.
    pub(super) fn landed(&self, row: &TaskRow) -> Option<&ClusterName> {
        let has_copy = |cluster: &Cluster| {
            cluster
                .index
                .of(row)
                .is_some_and(|here| here.copies.iter().any(|job| job.epoch() == Some(row.state.epoch)))
        };
        let chosen = self.chosen(row).into_iter().filter_map(|name| self.clusters.get_key_value(&name));
        chosen.filter(|(_, cluster)| has_copy(cluster)).map(|(name, _)| name).next()
    }

    /// The clusters behind the MultiKueueClusters that Kueue names: several where each node has a Job of its own.
    fn chosen(&self, row: &TaskRow) -> Vec<ClusterName> {
        let names = self.place.iter().flat_map(|hub| hub.index.dispatched_to(row));
        names.filter_map(|name| joined_cluster(&self.context.hub, name)).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::task::testing::{controller, follow, row};
    use fedq_domain::task::{
        names::object_name, phase::Phase, testing::cluster_name, wrapped::read_manifest,
    };

    fn job(of: &TaskRow, labels: &Value) -> Value {
        let mut labels = labels.clone();
        labels["task-id"] = json!(of.id.to_string());
        labels["fedq.dev/epoch"] = json!("1");
        let name = object_name(None, &of.id, 1);
        json!({"metadata": {"name": name, "namespace": "team", "uid": "u", "resourceVersion": "3", "labels": labels}})
    }

    #[tokio::test]
    async fn a_pod_that_was_ended_is_for_the_controller_of_what_was_handed_in() {
        let (mut controller, (server, _folder)) = controller().await;
        let manifest = json!({
            "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "metadata": {"name": "train"},
            "spec": {"components": [{"template": {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
            }}]},
        });
        let handed_in =
            read_manifest(manifest.to_string().as_bytes(), "team").expect("an AppWrapper").task.spec;
        let script = row("run: x\n", Phase::Running { cluster: cluster_name("hub") });
        for (spec, disrupted) in [(script.spec.clone(), true), (handed_in, false)] {
            let mut of = TaskRow { spec, ..script.clone() };
            let dispatch = of.dispatch.as_mut().expect("it was dispatched");
            (dispatch.by_multikueue, dispatch.landed) = (true, Some(cluster_name("one")));
            controller.keep(of.clone());
            let (worker, _) = follow(&mut controller, "one", &server);
            let mut copy = job(&of, &json!({"kueue.x-k8s.io/multikueue-origin": "multikueue"}));
            copy["metadata"]["name"] = json!(object_name(of.spec.name.as_deref(), &of.id, of.spec.num_nodes));
            worker.tasks.jobs.absorb(serde_json::from_value(copy).expect("a Job"));
            let pod = json!({
                "metadata": {
                    "name": "p", "uid": "p", "namespace": "team", "resourceVersion": "4",
                    "labels": {"task-id": of.id.to_string(), "fedq.dev/epoch": "1"},
                },
                "spec": {"containers": []},
                "status": {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
            });
            worker.tasks.pods.absorb_answer(&pod);
            controller.clusters.get_mut(&cluster_name("one")).expect("it is followed").read(true);
            controller.follow_hub();
            let hub = controller.place.as_ref().expect("it is followed");
            assert_eq!(controller.observe_dispatched(hub, &of).disrupted, disrupted);
        }
    }

    #[tokio::test]
    async fn a_copy_counts_only_where_kueue_says_that_it_put_the_task() {
        let (mut controller, (server, _folder)) = controller().await;
        let mut of = row("run: x\n", Phase::Queued { cluster: cluster_name("hub") });
        of.dispatch.as_mut().expect("it was dispatched").by_multikueue = true;
        for name in ["gpu-two", "one", "two"] {
            let (worker, _) = follow(&mut controller, name, &server);
            let copy = job(&of, &json!({"kueue.x-k8s.io/multikueue-origin": "multikueue"}));
            worker.tasks.jobs.absorb(serde_json::from_value(copy).expect("a Job"));
            controller.clusters.get_mut(&cluster_name(name)).expect("it is followed").read(true);
        }
        controller.follow_hub();
        let dispatched = |chosen: Option<&str>, version: &str| {
            json!({
                "metadata": {
                    "name": "w", "namespace": "team", "resourceVersion": version,
                    "labels": {"kueue.x-k8s.io/job-uid": "u"},
                },
                "status": {"clusterName": chosen},
            })
        };
        let hub = controller.place.as_mut().expect("it is followed");
        hub.target.worker.tasks.jobs.absorb(serde_json::from_value(job(&of, &json!({}))).expect("a Job"));
        // What fedq makes for Placements is not called as its cluster; one that is joined is, to deceive.
        let made = json!({
            "metadata": {"name": "gpu-two", "resourceVersion": "3", "labels": {"fedq.dev/for-cluster": "two"}},
            "spec": {},
        });
        controller
            .context
            .hub
            .multikueue_clusters
            .absorb(serde_json::from_value(made).expect("a MultiKueueCluster"));
        for (version, chosen, landed) in [
            ("4", None, None),
            ("5", Some(""), None),
            ("6", Some("elsewhere"), None),
            ("7", Some("one"), Some("one")),
            ("8", Some("gpu-two"), Some("two")),
        ] {
            let workload = serde_json::from_value(dispatched(chosen, version)).expect("a Workload");
            controller.context.hub.workloads.absorb(workload);
            controller.place.as_mut().expect("it is followed").read(true);
            assert_eq!(controller.landed(&of).map(ClusterName::as_str), landed, "Kueue says {chosen:?}");
        }
        controller.keep(of.clone());
        controller.note_landed(&of.id);
        controller
            .context
            .hub
            .workloads
            .absorb(serde_json::from_value(dispatched(None, "9")).expect("a Workload"));
        controller.place.as_mut().expect("it is followed").read(true);
        assert_eq!(controller.landed(&of), None);
        assert_eq!(controller.runs_on(&of), Some(&cluster_name("two")), "where it was last");
    }
}
