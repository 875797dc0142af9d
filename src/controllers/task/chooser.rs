//! Chooses clusters for tasks one after the other, each with what the ones before it take.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use crate::{
    domain::{
        ids::ClusterName,
        task::{
            choose::{
                Choice, Outcome, Placement, Wish,
                view::{Access, View},
            },
            fleet::{Fleet, Tenancy},
        },
    },
    store::{TaskRow, VolumeRow},
};

use super::gather::{self, InFlight};

pub(super) struct Chooser<'a> {
    pub fleet: Fleet,
    in_flight: InFlight,
    /// Of tasks without volumes, by namespace.
    views: HashMap<String, View>,
    volumes: &'a [VolumeRow],
}

impl<'a> Chooser<'a> {
    pub fn new(mut fleet: Fleet, in_flight: InFlight, volumes: &'a [VolumeRow]) -> Self {
        for cluster in in_flight.keys() {
            gather::count(&mut fleet, cluster, &in_flight);
        }
        Self { fleet, in_flight, views: HashMap::new(), volumes }
    }

    /// `Err`: a volume that has no place yet.
    /// `without`: as if nothing could be sent to that cluster.
    pub fn choose(
        &mut self,
        task: &TaskRow,
        avoid: Option<ClusterName>,
        without: Option<&ClusterName>,
    ) -> Result<Choice, String> {
        let wish = Wish { cluster: task.cluster.clone(), queue: task.queue.clone(), avoid };
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

    /// Counts what a task is about to take.
    pub fn take(&mut self, task: &TaskRow, placement: &Placement) {
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
        let mounts = |volume: &&VolumeRow| {
            let mine = volume.owner == task.owner && volume.namespace == task.namespace && !volume.deleting;
            mine && task.spec.volumes.iter().any(|mount| mount.volume == volume.spec.name())
        };
        if let Some(lost) = self.volumes.iter().filter(|volume| volume.lost).find(mounts) {
            return Err(format!("volume {} was deleted on its cluster", lost.spec.name()));
        }
        let known = self.volumes.iter().map(VolumeRow::known);
        let (tenancy, placeless) = Tenancy::of(&task.owner, &task.namespace, known);
        match task.spec.volumes.iter().find(|mount| placeless.contains(&mount.volume)) {
            Some(mount) => Err(format!("volume {} has no cluster yet", mount.volume)),
            None => Ok(tenancy),
        }
    }
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
        Outcome::Wait | Outcome::Never => None,
    }
}
