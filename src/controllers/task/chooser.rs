//! Chooses clusters for tasks one after the other, each with what the ones before it take.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use fedq_domain::task::{
    choose::{
        Choice, Outcome, Placement, Wish,
        view::{Access, View},
    },
    fleet::{Fleet, Tenancy},
    limits::{Excess, Taken},
    names::TaskId,
    phase::Phase,
    volume::Known,
};
use fedq_store::{TaskRow, VolumeRow};
use fedq_values::ids::ClusterName;

use super::gather::{self, InFlight};

pub(super) struct Chooser<'a> {
    pub fleet: Fleet,
    in_flight: InFlight,
    /// Of tasks without volumes, by namespace.
    views: HashMap<String, View>,
    volumes: &'a [VolumeRow],
    /// Of those that had none, the clusters of the first tasks that mount them.
    placed: HashMap<TaskId, ClusterName>,
}

impl<'a> Chooser<'a> {
    pub fn new(mut fleet: Fleet, in_flight: InFlight, volumes: &'a [VolumeRow]) -> Self {
        for cluster in in_flight.keys() {
            gather::count(&mut fleet, cluster, &in_flight);
        }
        Self { fleet, in_flight, views: HashMap::new(), volumes, placed: HashMap::new() }
    }

    /// `Err`: a volume that is no more.
    /// `without`: as if nothing could be sent to that cluster.
    pub fn choose(
        &mut self,
        task: &TaskRow,
        avoid: Option<ClusterName>,
        without: Option<&ClusterName>,
    ) -> Result<Choice, String> {
        let room = self.fleet.room((&task.namespace, &task.owner), task.takes());
        let wish = Wish { cluster: task.cluster.clone(), queue: task.queue.clone(), avoid, room };
        if !task.spec.volumes.is_empty() {
            let view = self.fleet.view(&self.tenancy(task)?);
            return Ok(self.fleet.choose_in(&task.spec, &wish, &but(&view, without)));
        }
        let fleet = &self.fleet;
        let view = self.views.entry(task.namespace.clone()).or_insert_with_key(|namespace| {
            fleet.view(&Tenancy { namespace: namespace.clone(), volumes: BTreeMap::new() })
        });
        Ok(fleet.choose_in(&task.spec, &wish, &but(view, without)))
    }

    /// Later tasks do not get ahead of one that waits for what its tenant's limits leave too little of.
    pub fn wait(&mut self, task: &TaskRow, excess: Option<&Excess>) {
        if let (Some(excess), Some(usage)) = (excess, self.fleet.usage.get_mut(&task.namespace)) {
            usage.wait(&task.owner, excess);
        }
    }

    /// Counts what a task is about to take.
    pub fn take(&mut self, task: &TaskRow, placement: &Placement) {
        for volume in
            self.volumes.iter().filter(|volume| volume.cluster.is_none() && is_mounted(volume, task))
        {
            self.placed.entry(volume.id.clone()).or_insert_with(|| placement.cluster.clone());
        }
        if task.state.phase == Phase::Pending
            && let Some(usage) = self.fleet.usage.get_mut(&task.namespace)
        {
            usage.add(&task.owner, Taken::by(&task.spec, placement.candidate));
        }
        let cells = gather::takes(&self.fleet, &task.namespace, &task.spec, placement);
        let cluster = &placement.cluster;
        gather::add(&mut self.in_flight, cluster, cells);
        gather::count(&mut self.fleet, cluster, &self.in_flight);
        let Some(member) = self.fleet.clusters.get(cluster) else { return };
        for (namespace, view) in &mut self.views {
            let tenancy = Tenancy { namespace: namespace.clone(), volumes: BTreeMap::new() };
            if let Some(seen) = view.clusters.iter_mut().find(|seen| seen.name == *cluster) {
                *seen = member.view(cluster, &tenancy);
            }
        }
    }

    fn tenancy(&self, task: &TaskRow) -> Result<Tenancy, String> {
        if let Some(lost) = lost_volume(self.volumes, task) {
            return Err(lost);
        }
        let known = self.volumes.iter().map(|volume| {
            let known = volume.known();
            Known { cluster: known.cluster.or_else(|| self.placed.get(&volume.id)), ..known }
        });
        Ok(Tenancy::of(&task.owner, &task.namespace, known))
    }
}

/// What is wrong with a task that mounts what somebody deleted.
pub(super) fn lost_volume(volumes: &[VolumeRow], task: &TaskRow) -> Option<String> {
    let lost = volumes.iter().find(|volume| volume.lost && is_mounted(volume, task))?;
    Some(format!("volume {} was deleted on its cluster", lost.spec.name()))
}

/// Whether it is one that the task means.
pub(super) fn is_mounted(volume: &VolumeRow, task: &TaskRow) -> bool {
    let mine = volume.owner == task.owner && volume.namespace == task.namespace && !volume.deleting;
    mine && task.spec.volumes.iter().any(|mount| mount.volume == volume.spec.name())
}

fn but<'a>(view: &'a View, without: Option<&ClusterName>) -> Cow<'a, View> {
    let Some(without) = without else { return Cow::Borrowed(view) };
    let mut view = view.clone();
    for cluster in view.clusters.iter_mut().filter(|cluster| cluster.name == *without) {
        cluster.access = Access::Silent;
    }
    Cow::Owned(view)
}

pub(super) fn run(choice: &Choice) -> Option<&Placement> {
    match &choice.outcome {
        Outcome::Run(placement) => Some(placement),
        Outcome::Wait | Outcome::Limited(_) | Outcome::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::task::testing::{placement, row};
    use fedq_domain::task::{testing::cluster_name, volume::VolumeSpec};

    #[test]
    fn the_first_task_that_mounts_a_volume_decides_for_those_after_it() {
        let data = VolumeRow {
            id: TaskId::draw(1),
            owner: "ann".to_owned(),
            namespace: "team".to_owned(),
            cluster: None,
            spec: VolumeSpec::new("data", "1Gi", None, None).expect("a volume"),
            created: Timestamp::UNIX_EPOCH,
            deleting: false,
            made: false,
            lost: false,
        };
        let (fixed, bobs) = (
            VolumeRow { cluster: Some(cluster_name("one")), ..data.clone() },
            VolumeRow { id: TaskId::draw(2), owner: "bob".to_owned(), ..data.clone() },
        );
        let task = row("run: x\nvolumes: {/d: data}\n", Phase::Pending);
        let at = |volumes: &[VolumeRow]| {
            let mut chooser = Chooser::new(Fleet::default(), InFlight::new(), volumes);
            let place =
                |chooser: &Chooser<'_>| chooser.tenancy(&task).expect("a volume").volumes["data"].0.clone();
            let before = place(&chooser);
            chooser.take(&row("run: x\n", Phase::Pending), &placement("three"));
            chooser.take(&task, &placement("two"));
            chooser.take(&task, &placement("three"));
            (before, place(&chooser))
        };
        let (one, two) = (cluster_name("one"), cluster_name("two"));
        assert_eq!(at(&[bobs, data.clone()]), (None, Some(two)));
        assert_eq!(at(&[fixed]), (Some(one.clone()), Some(one)));
        let lost = VolumeRow { lost: true, ..data };
        let chooser = Chooser::new(Fleet::default(), InFlight::new(), std::slice::from_ref(&lost));
        assert!(chooser.tenancy(&task).is_err());
    }
}
