//! Which cluster runs a task: a verdict with its numbers for each, and the best of those that can.
//!
//! A cluster that can never hold the task is never chosen, and when that is all of them it is said at
//! once. Among the others one with room now comes before one where the task would wait; then the
//! person's order, then a score of the administrator's weights, then the name, so that the same view
//! always gives the same answer.

pub mod gather;
pub mod hardware;
pub mod obstacle;
pub mod verdict;
pub mod view;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use self::{
    hardware::Terms,
    obstacle::Obstacle,
    verdict::Offer,
    view::{Access, ClusterView, View},
};
use super::{
    limits::{Excess, Room},
    spec::{Mount, Strategy, TaskSpec},
};
use fedq_values::ids::{ClusterName, FlavorName, ResourceName};

/// What a person wants beyond what the task's file says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Wish {
    pub cluster: Option<ClusterName>,
    /// The task's own, or the tenant's default.
    pub queue: Option<String>,
    /// Where it was before; avoided if its recovery says so, or if it has just been spilled from there.
    pub avoid: Option<ClusterName>,
    /// What its tenant's limits leave it; `None`: there are none.
    pub room: Option<Room>,
}

/// How much each consideration counts, in thousandths each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Weights {
    /// For what is left free afterwards; negative fills clusters one after the other.
    pub spread: i32,
    /// Against each workload that waits already.
    pub pending: i32,
    /// Against what has to be borrowed.
    pub borrowing: i32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { spread: 1, pending: 10, borrowing: 1 }
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// There is room now.
    Fits(Offer),
    /// It would wait in the queue.
    Waits(Offer),
    /// It could hold the task, but nothing can be dispatched there now.
    Away(Access, Offer),
    Never(Vec<Obstacle>),
}

impl Verdict {
    /// What else it would say is known once the queue is there, or the cluster has said what it runs.
    pub fn is_to_come(&self) -> bool {
        let to_come =
            |obstacle: &Obstacle| matches!(obstacle, Obstacle::QueueToCome { .. } | Obstacle::RuntimeUnknown);
        match self {
            Self::Never(obstacles) => obstacles.iter().any(to_come),
            Self::Fits(_) | Self::Waits(_) | Self::Away(..) => false,
        }
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Choice {
    /// Of each cluster, by name.
    pub verdicts: BTreeMap<ClusterName, Verdict>,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    Run(Placement),
    /// Clusters that could hold it are away, or not ready for it yet.
    Wait,
    /// A cluster could take it; its tenant, or its owner, takes all that they may already.
    Limited(Excess),
    /// No joined cluster can ever hold it.
    Never,
}

/// Where and as what a task is dispatched.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    pub cluster: ClusterName,
    pub candidate: usize,
    pub queue: String,
    /// Whether there is room now.
    pub now: bool,
    pub terms: Terms,
    /// Labels of nodes that pods must not get: any of the values.
    #[serde(default, skip_serializing_if = "Terms::is_empty")]
    pub refused: Terms,
    /// From which flavor each resource is expected to come.
    #[serde(default)]
    pub flavors: BTreeMap<ResourceName, FlavorName>,
    /// The same of each pod set of an AppWrapper, which may take one resource from several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<BTreeMap<ResourceName, FlavorName>>,
    /// PersistentVolumeClaims by the names the task gives its volumes.
    pub claims: BTreeMap<String, String>,
    /// Which of these volumes tasks only read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub read_only: BTreeSet<String>,
}

/// The least is the best; derived, so that the order of fields is the policy.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Rank {
    waits: bool,
    stopped: bool,
    avoided: bool,
    wish: usize,
    score: Reverse<i64>,
    candidate: usize,
    cluster: ClusterName,
    queue: String,
}

pub fn choose(task: &TaskSpec, wish: &Wish, view: &View, weights: Weights) -> Choice {
    let mut best: Option<(Rank, Placement)> = None;
    let mut limited = None;
    let mut verdicts = BTreeMap::new();
    for cluster in &view.clusters {
        let verdict = match offers(task, wish, cluster) {
            Err(obstacles) => Verdict::Never(obstacles),
            Ok(offers) => {
                let (offers, excess) = within(task, wish, offers);
                let ranked =
                    offers.into_iter().map(|offer| (rank(task, wish, cluster, &offer, weights), offer));
                let Some((rank, offer)) = ranked.min_by(|(one, _), (other, _)| one.cmp(other)) else {
                    continue;
                };
                match cluster.access {
                    Access::Cordoned | Access::Tidied | Access::Silent => {
                        Verdict::Away(cluster.access, offer)
                    }
                    Access::Ready => {
                        if excess.is_some() {
                            limited = limited.or(excess);
                        } else if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                            best = Some((rank, place(task, cluster, &offer)));
                        }
                        if offer.fits_now() { Verdict::Fits(offer) } else { Verdict::Waits(offer) }
                    }
                }
            }
        };
        verdicts.insert(cluster.name.clone(), verdict);
    }
    let away = verdicts.values().any(|verdict| matches!(verdict, Verdict::Away(..)) || verdict.is_to_come());
    let outcome = match (best, limited) {
        (Some((_, placement)), _) => Outcome::Run(placement),
        (None, Some(excess)) => Outcome::Limited(excess),
        (None, None) if away => Outcome::Wait,
        (None, None) => Outcome::Never,
    };
    Choice { verdicts, outcome }
}

/// Those that the limits of its tenant leave room for; all of them where that is none, and why.
fn within(task: &TaskSpec, wish: &Wish, offers: Vec<Offer>) -> (Vec<Offer>, Option<Excess>) {
    let Some(room) = &wish.room else { return (offers, None) };
    let excess = offers.iter().find_map(|offer| room.admits(task, offer.candidate).err());
    let (within, over): (Vec<_>, Vec<_>) =
        offers.into_iter().partition(|offer| room.admits(task, offer.candidate).is_ok());
    if within.is_empty() { (over, excess) } else { (within, None) }
}

/// Every form in which the cluster could take the task, at least one; or all that stands against it.
fn offers(task: &TaskSpec, wish: &Wish, cluster: &ClusterView) -> Result<Vec<Offer>, Vec<Obstacle>> {
    if wish.cluster.as_ref().is_some_and(|wanted| *wanted != cluster.name) {
        return Err(vec![Obstacle::NotWanted]);
    }
    let mut obstacles = verdict::volume_obstacles(task, cluster);
    let wanted = wish.queue.as_deref();
    let queues: Vec<_> =
        cluster.queues.iter().filter(|queue| wanted.is_some_and(|name| name == queue.local)).collect();
    if let Some(queue) = wanted.filter(|wanted| queues.is_empty() && cluster.promised.contains(*wanted)) {
        // A volume that is not there, or another wish, would not change.
        let obstacle = Obstacle::QueueToCome { queue: queue.to_owned() };
        return Err(if obstacles.is_empty() { vec![obstacle] } else { obstacles });
    }
    if queues.is_empty() {
        let mut there: Vec<_> = cluster.queues.iter().map(|queue| queue.local.clone()).collect();
        there.sort();
        there.dedup();
        obstacles.push(Obstacle::NoQueue { wanted: wish.queue.clone(), there });
    }
    let impossible = !obstacles.is_empty();
    let mut found = Vec::new();
    for (index, candidate) in task.candidates.iter().enumerate() {
        if candidate.cluster.as_ref().is_some_and(|wanted| *wanted != cluster.name) {
            obstacles.push(Obstacle::NotWanted);
            continue;
        }
        for queue in &queues {
            match verdict::judge(task, index, queue) {
                Ok(offer) => found.push(offer),
                Err(against) => obstacles.extend(against),
            }
        }
    }
    if found.is_empty() || impossible {
        obstacles.sort();
        obstacles.dedup();
        return Err(obstacles);
    }
    Ok(found)
}

fn rank(task: &TaskSpec, wish: &Wish, cluster: &ClusterView, offer: &Offer, weights: Weights) -> Rank {
    let weigh = |weight: i32, amount: i64| i64::from(weight).saturating_mul(amount);
    let score = weigh(weights.spread, offer.left())
        .saturating_sub(weigh(weights.pending, i64::from(offer.pending)))
        .saturating_sub(weigh(weights.borrowing, offer.borrowed()));
    Rank {
        waits: !offer.fits_now(),
        stopped: !offer.active,
        avoided: wish.avoid.as_ref() == Some(&cluster.name),
        wish: if task.ordered { offer.candidate } else { 0 },
        score: Reverse(score),
        candidate: offer.candidate,
        cluster: cluster.name.clone(),
        queue: offer.queue.clone(),
    }
}

fn place(task: &TaskSpec, cluster: &ClusterView, offer: &Offer) -> Placement {
    let claim = |mount: &Mount| {
        let claim = match &mount.claim {
            Some(claim) => &claim.name,
            None => &cluster.volumes.get(&mount.volume)?.claim,
        };
        Some((mount.volume.clone(), claim.clone()))
    };
    let is_read = |mount: &&Mount| match &mount.claim {
        Some(_) => task.volumes.iter().all(|other| other.volume != mount.volume || other.read_only),
        None => cluster.volumes.get(&mount.volume).is_some_and(|volume| volume.read_only),
    };
    Placement {
        cluster: cluster.name.clone(),
        candidate: offer.candidate,
        queue: offer.queue.clone(),
        now: offer.fits_now(),
        terms: offer.terms.clone(),
        refused: offer.refused.clone(),
        flavors: offer
            .numbers
            .iter()
            .map(|number| (number.resource.clone(), number.flavor.clone()))
            .collect(),
        pod_sets: task.wrapped.as_ref().map(|_| offer.flavors.clone()).unwrap_or_default(),
        claims: task.volumes.iter().filter_map(claim).collect(),
        read_only: task.volumes.iter().filter(is_read).map(|mount| mount.volume.clone()).collect(),
    }
}

/// What to avoid for the next dispatch after `was`.
pub fn avoided(task: &TaskSpec, was: ClusterName, spilled: bool) -> Option<ClusterName> {
    (spilled || task.recovery.strategy == Strategy::NextCluster).then_some(was)
}

/// A task in a queue.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Waiting {
    pub cluster: ClusterName,
    pub since: Timestamp,
    /// How long it waits there, if it has never moved.
    pub spill_after: Duration,
    /// How often it has moved.
    pub spills: u32,
}

impl Waiting {
    /// When it may move: after twice as long each time, so that it does not go to and fro.
    pub fn until(&self) -> Option<Timestamp> {
        let after = self.spill_after.saturating_mul(2_u32.saturating_pow(self.spills));
        self.since.checked_add(after).ok()
    }
}

/// Where a task that was not admitted in time should go instead: only where there is room now, since a
/// place further ahead in its queue is worth more than a place at the end of another.
pub fn spill(waiting: &Waiting, now: Timestamp, choice: &Choice) -> Option<ClusterName> {
    if waiting.until().is_none_or(|until| now < until) {
        return None;
    }
    match &choice.outcome {
        Outcome::Run(placement) if placement.now && placement.cluster != waiting.cluster => {
            Some(placement.cluster.clone())
        }
        Outcome::Run(_) | Outcome::Wait | Outcome::Limited(_) | Outcome::Never => None,
    }
}

#[cfg(test)]
mod tests;
