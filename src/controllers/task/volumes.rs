//! Volumes: a claim on a cluster for each that is wanted, none for one that is not.

use std::collections::BTreeMap;

use fedq_domain::task::{
    names::TaskId,
    view::{VolumePhase, VolumeState, VolumeViews},
    volume::{Place, Unfit},
};
use fedq_k8s::{
    types::task::VolumeClaim,
    worker::JoinedClusters,
    write::{Action, Change, Kind, Target},
};
use fedq_store::{StoreError, TaskRow, VolumeRow};
use fedq_values::ids::ClusterName;

use super::{Cluster, TaskController, adopted::Found, chooser::is_mounted, wishes::MANAGER};

/// What is to be done about volumes, and what is told of them.
#[derive(Default)]
pub(super) struct Volumes {
    pub wishes: BTreeMap<ClusterName, Vec<Change>>,
    pub views: VolumeViews,
    /// Of which nothing is left anywhere.
    pub gone: Vec<TaskId>,
    /// Seen for the first time.
    made: Vec<TaskId>,
    /// Deleted by somebody else, or not to be mounted any more, and where.
    lost: Vec<Loss>,
}

struct Loss {
    volume: TaskId,
    cluster: ClusterName,
    /// As the history of its tasks tells it.
    message: String,
}

impl TaskController {
    /// Has the volumes that a task is the first to mount where it goes, before it goes there. `false`: one of them is
    /// somewhere else by now, or gone.
    pub(super) async fn place_volumes(
        &self,
        task: &TaskRow,
        cluster: &ClusterName,
        volumes: &mut [VolumeRow],
    ) -> Result<bool, StoreError> {
        let placeless = |volume: &&mut VolumeRow| volume.cluster.is_none() && is_mounted(volume, task);
        for volume in volumes.iter_mut().filter(placeless) {
            if !self.context.store.place_volume(&volume.id, cluster).await? {
                return Ok(false);
            }
            tracing::info!(volume.id = %volume.id, "Volume {} goes to `{cluster}`", volume.id);
            volume.cluster = Some(cluster.clone());
        }
        Ok(true)
    }

    /// Tasks that wait are judged again when the volumes are not what they were.
    pub(super) fn note_volumes(&mut self, volumes: &[VolumeRow]) {
        if self.volumes == volumes {
            return;
        }
        self.volumes = volumes.to_vec();
        for live in self.live.values_mut().filter(|live| !live.row.spec.volumes.is_empty()) {
            live.judged = None;
        }
    }

    pub(super) fn tend_volumes(&self, volumes: &[VolumeRow], joined: &JoinedClusters) -> Volumes {
        let mut done = Volumes::default();
        for volume in volumes {
            let state = match &volume.cluster {
                None if volume.deleting => None,
                None => {
                    let reason = "it is made on the cluster of the first task that mounts it".to_owned();
                    Some(VolumeState { phase: VolumePhase::Pending, reason: Some(reason) })
                }
                // Nothing is to be done where its claim is.
                Some(_) if volume.spec.is_adopted() && volume.deleting => self.users(volume).next().map(used),
                Some(cluster) if !joined.contains_key(cluster) => {
                    let reason = format!("{cluster} is not joined");
                    // Whoever wants it gone cannot be told more than that it is out of reach.
                    (!volume.deleting)
                        .then_some(VolumeState { phase: VolumePhase::Unknown, reason: Some(reason) })
                }
                Some(cluster) => self.tend(volume, cluster, joined, &mut done),
            };
            match state {
                Some(state) => drop(done.views.insert(volume.id.clone(), state)),
                None => done.gone.push(volume.id.clone()),
            }
        }
        done
    }

    /// `None`: it is to be gone and is.
    fn tend(
        &self,
        volume: &VolumeRow,
        name: &ClusterName,
        joined: &JoinedClusters,
        done: &mut Volumes,
    ) -> Option<VolumeState> {
        let silent =
            || VolumeState { phase: VolumePhase::Unknown, reason: Some(format!("{name} does not answer")) };
        let Some(cluster) = self.usable(name, joined) else { return Some(silent()) };
        if volume.spec.is_adopted() {
            return Some(look_after(volume, (name, cluster), done));
        }
        if !cluster.target.worker.tasks.volume_claims.is_current() {
            return Some(silent());
        }
        let claim_name = volume.spec.claim_name(&volume.id);
        let claim = cluster.target.worker.tasks.volume_claims.get(Some(&volume.namespace), &claim_name);
        let target = Target::namespaced(Kind::VolumeClaim, &volume.namespace, claim_name);
        let wishes = done.wishes.entry(name.clone()).or_default();
        match (&claim, volume.deleting) {
            (None, true) => None,
            (None, false) if volume.made => {
                let lost =
                    format!("volume {} was deleted on {name}, with what was in it", volume.spec.name());
                done.lost.push(Loss { volume: volume.id.clone(), cluster: name.clone(), message: lost });
                let reason = format!(
                    "somebody deleted it on {name}, and what was in it is gone; delete it here too to make it anew"
                );
                Some(VolumeState { phase: VolumePhase::Lost, reason: Some(reason) })
            }
            (None, false) => {
                let place = Place {
                    namespace: &volume.namespace,
                    hub_id: &self.context.hub_id,
                    created: volume.created,
                };
                let body = volume.spec.render(&volume.id, &volume.owner, &place);
                let reason = cluster.target.failure(&target);
                wishes.push(Change { target, action: Action::Create(body), manager: MANAGER });
                Some(VolumeState { phase: VolumePhase::Pending, reason })
            }
            (Some(claim), true) => {
                let used = self.users(volume).next().map(used);
                if used.is_none() && !claim.metadata.going {
                    wishes.push(Change { target, action: deleted(claim), manager: MANAGER });
                }
                Some(used.unwrap_or(VolumeState { phase: VolumePhase::Deleting, reason: None }))
            }
            (Some(claim), false) => {
                if !volume.made || volume.lost {
                    done.made.push(volume.id.clone());
                }
                Some(bound(&claim.status.phase, claim.metadata.going))
            }
        }
    }

    /// Tasks that mount the volume.
    fn users<'a>(&'a self, volume: &'a VolumeRow) -> impl Iterator<Item = &'a TaskId> {
        let mounts = |live: &&super::Live| {
            let row = &live.row;
            row.owner == volume.owner
                && row.namespace == volume.namespace
                && row.spec.volumes.iter().any(|mount| mount.volume == volume.spec.name())
        };
        self.live.values().filter(mounts).map(|live| &live.row.id)
    }

    /// Has on the disk what was found out of volumes.
    pub(super) async fn record_volumes(
        &self,
        volumes: &[VolumeRow],
        found: &Volumes,
    ) -> Result<(), StoreError> {
        for id in &found.gone {
            self.context.store.forget_volume(id).await?;
        }
        for id in &found.made {
            self.context.store.volume_made(id).await?;
        }
        if volumes.iter().any(|volume| volume.lost && found.made.contains(&volume.id)) {
            // It is there again, and tasks may wait for it.
            self.signal.notify_one();
        }
        let now = self.context.clock.now();
        for Loss { volume: id, cluster, message } in &found.lost {
            let Some(volume) = volumes.iter().find(|volume| volume.id == *id && !volume.lost) else {
                continue;
            };
            tracing::warn!(volume.id = %id, cluster.name = %cluster, "A volume is lost: {message}");
            let users = self.users(volume).cloned().collect();
            self.context.store.volume_lost(id, users, now, message.clone()).await?;
        }
        Ok(())
    }
}

fn deleted(claim: &VolumeClaim) -> Action {
    Action::Delete {
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
    }
}

fn used(by: &TaskId) -> VolumeState {
    VolumeState { phase: VolumePhase::Deleting, reason: Some(format!("task {by} uses it")) }
}

/// One whose claim is not fedq's: it is neither made nor deleted.
fn look_after(
    volume: &VolumeRow,
    (name, cluster): (&ClusterName, &Cluster),
    done: &mut Volumes,
) -> VolumeState {
    let claim = volume.spec.claim_name(&volume.id);
    let state = |phase, reason: String| VolumeState { phase, reason: Some(reason) };
    let mut is_lost = |what: &str| {
        let message =
            format!("PersistentVolumeClaim {claim} of volume {} {what} on {name}", volume.spec.name());
        done.lost.push(Loss { volume: volume.id.clone(), cluster: name.clone(), message });
    };
    match cluster.adopted.claim(&volume.id) {
        Found::Unasked => {
            state(VolumePhase::Unknown, format!("{name} is being asked for PersistentVolumeClaim {claim}"))
        }
        Found::Missing => {
            is_lost("was deleted");
            let namespace = &volume.namespace;
            let reason =
                format!("there is no PersistentVolumeClaim {claim} in namespace {namespace} of {name}");
            state(VolumePhase::Lost, reason)
        }
        // It may be another one, of the same name.
        Found::There(found) => match found.unfit(volume.spec.is_read_only()) {
            Some(why) if why != Unfit::Going => {
                is_lost(&why.to_string());
                state(VolumePhase::Lost, format!("PersistentVolumeClaim {claim} on {name} {why}"))
            }
            _ => {
                if !volume.made || volume.lost {
                    done.made.push(volume.id.clone());
                }
                bound(&found.phase, found.going)
            }
        },
    }
}

fn bound(phase: &str, going: bool) -> VolumeState {
    if going {
        let reason = Some("somebody deleted it on its cluster".to_owned());
        return VolumeState { phase: VolumePhase::Deleting, reason };
    }
    let phase = match phase {
        "Bound" => VolumePhase::Bound,
        "Lost" => VolumePhase::Lost,
        _ => VolumePhase::Pending,
    };
    let reason = (phase == VolumePhase::Pending)
        .then(|| "it is not bound; with many storage classes that happens at its first use".to_owned());
    VolumeState { phase, reason }
}

impl Cluster {
    /// Whether it may be written to, and it is known for sure what is there.
    pub(super) fn keeps(&self, name: &ClusterName, joined: &JoinedClusters) -> bool {
        joined.get(name).is_some_and(|entry| entry.connection.is_writable()) && self.index.current
    }
}
