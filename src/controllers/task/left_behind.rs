//! What may still run on clusters that were lost, of tasks that others took over. It keeps its quota there until the cluster
//! has answered and nothing of it is left; `wishes.rs`, `clean`, withdraws it as any earlier dispatch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use tracing::info;

use super::{
    Cluster, TaskController,
    decide::is_app_wrapper,
    gather::{self, InFlight},
    wishes::Dispatching,
};
use fedq_domain::task::{choose::view::Access, fleet::Fleet};
use fedq_k8s::{list_watch::State, worker::JoinedClusters};
use fedq_store::{StoreError, TaskRow};
use fedq_values::ids::ClusterName;

#[derive(Default)]
pub(super) struct LeftBehind {
    /// Each task as it was then.
    rows: Vec<Arc<TaskRow>>,
    /// Whether that is all the store has.
    is_read: bool,
}

impl LeftBehind {
    /// The store has more.
    pub fn grew(&mut self) {
        self.is_read = false;
    }

    #[cfg(test)]
    pub fn leave(&mut self, row: TaskRow) {
        self.rows.push(Arc::new(row));
    }

    /// Of tasks that others took over, or other dispatches of them.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<TaskRow>> {
        self.rows.iter()
    }

    fn by_cluster(&self) -> impl Iterator<Item = (&ClusterName, &Arc<TaskRow>)> {
        self.rows.iter().filter_map(|row| Some((row.state.phase.cluster()?, row)))
    }

    /// What is left counts until it is gone, where Kueue does not count it itself.
    pub fn count(&self, clusters: &BTreeMap<ClusterName, Cluster>, fleet: &Fleet, in_flight: &mut InFlight) {
        for (name, row) in self.by_cluster() {
            let is_reserved = clusters.get(name).is_some_and(|cluster| cluster.index.is_reserved(row));
            if let Some(dispatch) = row.dispatch.as_ref().filter(|_| !is_reserved) {
                let cells = gather::takes(fleet, &row.namespace, &row.spec, &dispatch.placement);
                gather::add(in_flight, name, cells);
            }
        }
    }

    /// Nothing is sent to a cluster that is back before all that was left there is being deleted.
    pub fn close(&self, is_closed: impl Fn(&ClusterName, &TaskRow) -> bool, fleet: &mut Fleet) {
        let closed: BTreeSet<&ClusterName> =
            self.by_cluster().filter(|(name, row)| is_closed(name, row)).map(|(name, _)| name).collect();
        for name in closed {
            let member = fleet.clusters.get_mut(name);
            if let Some(member) = member.filter(|member| member.access == Access::Ready) {
                member.access = Access::Tidied;
            }
        }
    }
}

impl TaskController {
    /// Lets go of what is not left any more.
    pub(super) async fn look_behind(
        &mut self,
        joined: &JoinedClusters,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        if !self.left_behind.is_read {
            self.left_behind.rows =
                self.context.store.left_behind().await?.into_iter().map(Arc::new).collect();
            self.left_behind.is_read = true;
        }
        let mut is_changed = false;
        for row in self.left_behind.rows.clone() {
            let Some(name) = row.state.phase.cluster() else { continue };
            let message = if !joined.contains_key(name) {
                format!("{name} was let go of, with what may have been left of it there")
            } else if self.is_left(name, &row, joined) {
                continue;
            } else {
                format!("{name} answers again, and nothing of it is left there")
            };
            let (id, epoch) = (&row.id, row.state.epoch);
            self.context.store.forget_left_behind(id, epoch, (now, &message)).await?;
            info!(task.id = %id, epoch, cluster.name = %name, "Task {id}: {message}");
            self.left_behind.rows.retain(|other| !Arc::ptr_eq(other, &row));
            is_changed = true;
        }
        if is_changed { self.read_store().await } else { Ok(()) }
    }

    /// Whether something of it may be there, or on its way.
    pub(super) fn is_left(&self, name: &ClusterName, row: &TaskRow, joined: &JoinedClusters) -> bool {
        let Some(cluster) = self.usable(name, joined).filter(|cluster| shows(cluster, row)) else {
            return true;
        };
        let Some(dispatch) = &row.dispatch else { return false };
        let sent =
            || Dispatching { task: row, dispatch }.mains().iter().any(|job| cluster.sent.contains(job));
        let earlier =
            || cluster.index.of(row).is_some_and(|here| here.until(row.state.epoch).next().is_some());
        earlier() || sent()
    }

    /// Whether something of it is there that nobody has deleted yet.
    pub(super) fn stays(&self, name: &ClusterName, row: &TaskRow, joined: &JoinedClusters) -> bool {
        let Some(cluster) = self.usable(name, joined).filter(|cluster| shows(cluster, row)) else {
            return true;
        };
        let here = cluster.index.of(row);
        here.is_some_and(|here| here.until(row.state.epoch).any(|(_, job)| !job.metadata.going))
    }
}

/// Whether what is not seen of it is not there. Where the kind is gone so are its objects, and theirs with them.
fn shows(cluster: &Cluster, row: &TaskRow) -> bool {
    let has_no_kind = || matches!(cluster.target.worker.tasks.app_wrappers.state(), State::Absent);
    !is_app_wrapper(row) || cluster.index.has_app_wrappers || has_no_kind()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::testing::row;
    use fedq_domain::{
        resources::Cell,
        task::{
            choose::gather::LocalQueueFacts,
            fleet::Member,
            phase::{Before, Phase},
            runtime::Runtime,
            testing::cluster_name,
        },
    };
    use fedq_values::{
        ids::{FlavorName, QueueName, ResourceName},
        quantity::Amount,
    };

    #[test]
    fn what_is_left_keeps_its_quota_and_closes_its_cluster_until_it_is_being_deleted() {
        let (queue, flavor) =
            (QueueName::new("cq").expect("a name"), FlavorName::new("h100").expect("a name"));
        let gpu = ResourceName::new("nvidia.com/gpu").expect("a name");
        let lost = Phase::Lost { cluster: cluster_name("one"), before: Before::Running };
        let mut task = row("run: x\nnum_nodes: 2\nresources: {accelerators: 3}\n", lost);
        let placement = &mut task.dispatch.as_mut().expect("it was dispatched").placement;
        placement.flavors.insert(gpu.clone(), flavor.clone());
        let left = LeftBehind { rows: vec![Arc::new(task)], is_read: true };
        let local = LocalQueueFacts { name: "default".to_owned(), queue: queue.clone(), active: true };
        let member = Member {
            access: Access::Ready,
            facts: Arc::default(),
            local_queues: Arc::new([("team".to_owned(), vec![local])].into()),
            promised: Arc::default(),
            priorities: Arc::default(),
            has_jobsets: false,
            app_wrappers: Runtime::Unknown,
        };
        let clusters = [("one", member.clone()), ("two", member)];
        let clusters = clusters.map(|(name, member)| (cluster_name(name), member)).into();
        let mut fleet = Fleet { clusters, ..Fleet::default() };
        let mut in_flight = InFlight::new();
        left.count(&BTreeMap::new(), &fleet, &mut in_flight);
        let cell = Cell { queue, flavor, resource: gpu };
        let expected = BTreeMap::from([(cluster_name("one"), BTreeMap::from([(cell, Amount::new(6))]))]);
        assert_eq!(in_flight, expected, "of all its nodes, and only there");

        left.close(|_, _| false, &mut fleet);
        let access = |fleet: &Fleet| fleet.clusters.values().map(|member| member.access).collect::<Vec<_>>();
        assert_eq!(access(&fleet), [Access::Ready, Access::Ready]);
        left.close(|_, _| true, &mut fleet);
        assert_eq!(access(&fleet), [Access::Tidied, Access::Ready]);
        fleet.clusters.values_mut().for_each(|member| member.access = Access::Cordoned);
        left.close(|_, _| true, &mut fleet);
        assert_eq!(access(&fleet), [Access::Cordoned, Access::Cordoned], "that says more");
    }
}
