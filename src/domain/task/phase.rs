//! What becomes of a task: one enum, and every move it may make.
//!
//! A task is on at most one cluster. Whatever takes it off one goes through [`Phase::Withdrawing`], which
//! ends only when the cluster has confirmed that nothing of it is left; only then may it be dispatched
//! again, under the next epoch. So no crash and no delay makes it run twice, and what carries an older
//! epoch is an orphan. The one way round is [`Move::Replace`], which an administrator has to have chosen
//! ([`LostPolicy::Requeue`]): what it leaves behind on a lost cluster is withdrawn when that answers again.

use serde::{Deserialize, Serialize};

use fedq_values::ids::ClusterName;

/// Counts dispatches, and stands on every object of them. It never falls.
pub type Epoch = u32;

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "phase", rename_all = "camelCase")]
pub enum Phase {
    /// Accepted; no cluster is chosen.
    Pending,
    /// A cluster is chosen; its objects may be there, in part, or not.
    Dispatching {
        cluster: ClusterName,
    },
    /// Its objects are there and wait for quota.
    Queued {
        cluster: ClusterName,
    },
    /// Admitted; not all pods run.
    Starting {
        cluster: ClusterName,
    },
    Running {
        cluster: ClusterName,
    },
    /// Being taken off its cluster.
    Withdrawing {
        cluster: ClusterName,
        then: Then,
    },
    /// The cluster is silent; what runs there is not known.
    Lost {
        cluster: ClusterName,
        before: Before,
    },
    Succeeded {
        cluster: ClusterName,
    },
    Failed {
        reason: Failure,
    },
    Stopped,
}

/// What a withdrawal is for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Then {
    /// Another try, here or elsewhere.
    Requeue,
    /// A person stopped it.
    Stop,
    /// It cannot go on.
    Fail(Failure),
}

/// What a task did before its cluster fell silent.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Before {
    Dispatching,
    Queued,
    Starting,
    Running,
    Withdrawing(Then),
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Failure {
    /// Its own script ended with an error.
    Program,
    /// No cluster can ever hold it.
    NeverFits,
    /// The cluster refused its objects.
    Refused,
    /// Somebody deleted its objects on the cluster.
    Vanished,
    /// It ran for as long as it may.
    Overdue,
}

/// What becomes of a task whose cluster is lost.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LostPolicy {
    /// It waits for the cluster, however long.
    #[default]
    Wait,
    /// It is run elsewhere once the cluster is let go of: until then it may still be running there.
    RequeueOnceLeft,
    /// Another cluster takes it over as soon as one can. What may still run on the lost one keeps its quota there, and is
    /// withdrawn when that answers.
    Requeue,
}

/// What happened, or was decided.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Move {
    /// A cluster was chosen: the next epoch begins.
    Dispatch(ClusterName),
    /// Its cluster is lost, and this one takes it over: the next epoch begins, the one before is left behind.
    Replace(ClusterName),
    /// Its objects are all there.
    Written,
    /// The cluster does not take its objects; some may be there.
    Refused,
    /// The same, but it might have: another one is tried.
    TurnedAway,
    Admitted,
    Started,
    /// Kueue took its quota back.
    Evicted,
    Succeeded,
    /// The script failed; whether it is restarted is decided by whoever knows the exit code.
    ProgramFailed {
        restart: bool,
    },
    /// Its cluster ended a pod of it, which is no failure of the script.
    Disrupted,
    /// It waits here while another cluster has room.
    Spill,
    /// It has its quota, and its pods do not start, or not again.
    Stuck,
    /// It has run for as long as it may.
    Overdue,
    /// Its objects are gone, and fedq did not delete them.
    Vanished,
    NeverFits,
    Stop,
    /// What it waits for does not succeed any more.
    Cancel,
    /// The cluster confirmed that nothing of it is left.
    Withdrawn,
    ClusterLost,
    ClusterBack,
    /// The lost cluster can run nothing of it any more.
    Fenced,
}

/// A move that the phase does not allow: something else happened first.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{to:?} does not follow {from:?}")]
pub struct IllegalMove {
    pub from: Phase,
    pub to: Move,
}

/// A task's phase with its epoch.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct State {
    #[serde(flatten)]
    pub phase: Phase,
    pub epoch: Epoch,
}

/// The words of those that are not over.
pub const LIVE_WORDS: [&str; 8] =
    ["pending", "dispatching", "queued", "starting", "running", "stopping", "withdrawing", "lost"];

impl Default for State {
    fn default() -> Self {
        Self { phase: Phase::Pending, epoch: 0 }
    }
}

impl State {
    /// The state after `to`. What has ended stays as it is.
    pub fn next(self, to: Move) -> Result<Self, IllegalMove> {
        let epoch = match &to {
            Move::Dispatch(_) | Move::Replace(_) => self.epoch.saturating_add(1),
            _ => self.epoch,
        };
        Ok(Self { phase: self.phase.next(to)?, epoch })
    }
}

impl Move {
    /// Where a dispatch begins with it.
    pub fn dispatches_to(&self) -> Option<&ClusterName> {
        match self {
            Self::Dispatch(cluster) | Self::Replace(cluster) => Some(cluster),
            _ => None,
        }
    }
}

impl Before {
    /// Whether it would run again elsewhere.
    pub fn goes_on(self) -> bool {
        !matches!(self, Self::Withdrawing(Then::Stop | Then::Fail(_)))
    }

    /// Whether its queue had admitted it, so that it may well run on.
    pub fn has_quota(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }
}

impl Phase {
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Succeeded { .. } | Self::Failed { .. } | Self::Stopped)
    }

    /// Where its objects are, or may be.
    pub fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::Dispatching { cluster }
            | Self::Queued { cluster }
            | Self::Starting { cluster }
            | Self::Running { cluster }
            | Self::Withdrawing { cluster, .. }
            | Self::Lost { cluster, .. }
            | Self::Succeeded { cluster } => Some(cluster),
            Self::Pending | Self::Failed { .. } | Self::Stopped => None,
        }
    }

    /// The word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Dispatching { .. } => "dispatching",
            Self::Queued { .. } => "queued",
            Self::Starting { .. } => "starting",
            Self::Running { .. } => "running",
            Self::Withdrawing { then: Then::Stop, .. } => "stopping",
            Self::Withdrawing { .. } => "withdrawing",
            Self::Lost { .. } => "lost",
            Self::Succeeded { .. } => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Stopped => "stopped",
        }
    }

    fn next(self, to: Move) -> Result<Self, IllegalMove> {
        match (self, to) {
            (Self::Pending, to) => Self::from_pending(to),
            (Self::Withdrawing { cluster, then }, to) => Self::from_withdrawing(cluster, then, to),
            (Self::Lost { cluster, before }, to) => Self::from_lost(cluster, before, to),
            (Self::Dispatching { cluster }, to) => Self::from_live(cluster, Before::Dispatching, to),
            (Self::Queued { cluster }, to) => Self::from_live(cluster, Before::Queued, to),
            (Self::Starting { cluster }, to) => Self::from_live(cluster, Before::Starting, to),
            (Self::Running { cluster }, to) => Self::from_live(cluster, Before::Running, to),
            // Stopping is idempotent.
            (over @ (Self::Succeeded { .. } | Self::Failed { .. } | Self::Stopped), Move::Stop) => Ok(over),
            (from @ (Self::Succeeded { .. } | Self::Failed { .. } | Self::Stopped), to) => {
                Err(IllegalMove { from, to })
            }
        }
    }

    fn from_pending(to: Move) -> Result<Self, IllegalMove> {
        match to {
            Move::Dispatch(cluster) => Ok(Self::Dispatching { cluster }),
            Move::NeverFits => Ok(Self::Failed { reason: Failure::NeverFits }),
            Move::Stop | Move::Cancel => Ok(Self::Stopped),
            to => Err(IllegalMove { from: Self::Pending, to }),
        }
    }

    /// A watch may miss steps in between, so that any later one follows any earlier one.
    fn from_live(cluster: ClusterName, at: Before, to: Move) -> Result<Self, IllegalMove> {
        let dispatching = at == Before::Dispatching;
        let withdraw = |cluster, then| Ok(Self::Withdrawing { cluster, then });
        match to {
            Move::Written if dispatching => Ok(Self::Queued { cluster }),
            // What its pods need besides may be refused once its Jobs are there.
            Move::Refused if at != Before::Running => withdraw(cluster, Then::Fail(Failure::Refused)),
            Move::TurnedAway if dispatching => withdraw(cluster, Then::Requeue),
            Move::Admitted if matches!(at, Before::Dispatching | Before::Queued) => {
                Ok(Self::Starting { cluster })
            }
            Move::Started if at != Before::Running => Ok(Self::Running { cluster }),
            Move::Evicted if matches!(at, Before::Starting | Before::Running) => Ok(Self::Queued { cluster }),
            Move::Succeeded => Ok(Self::Succeeded { cluster }),
            Move::ProgramFailed { restart: true } | Move::Disrupted => withdraw(cluster, Then::Requeue),
            Move::ProgramFailed { restart: false } => Ok(Self::Failed { reason: Failure::Program }),
            Move::Spill if matches!(at, Before::Dispatching | Before::Queued) => {
                withdraw(cluster, Then::Requeue)
            }
            Move::Stuck if !dispatching => withdraw(cluster, Then::Requeue),
            Move::Overdue if matches!(at, Before::Starting | Before::Running) => {
                withdraw(cluster, Then::Fail(Failure::Overdue))
            }
            // Part of it may still be there.
            Move::Vanished => withdraw(cluster, Then::Fail(Failure::Vanished)),
            Move::Stop => withdraw(cluster, Then::Stop),
            Move::ClusterLost => Ok(Self::Lost { cluster, before: at }),
            to => Err(IllegalMove { from: Self::live(cluster, at), to }),
        }
    }

    fn from_withdrawing(cluster: ClusterName, then: Then, to: Move) -> Result<Self, IllegalMove> {
        match to {
            Move::Withdrawn => Ok(match then {
                Then::Requeue => Self::Pending,
                Then::Stop => Self::Stopped,
                Then::Fail(reason) => Self::Failed { reason },
            }),
            Move::Stop => Ok(Self::Withdrawing { cluster, then: stopping(then) }),
            Move::ClusterLost => Ok(Self::Lost { cluster, before: Before::Withdrawing(then) }),
            to => Err(IllegalMove { from: Self::Withdrawing { cluster, then }, to }),
        }
    }

    fn from_lost(cluster: ClusterName, before: Before, to: Move) -> Result<Self, IllegalMove> {
        match to {
            Move::ClusterBack => Ok(Self::live(cluster, before)),
            Move::Replace(by) if by != cluster && before.goes_on() => Ok(Self::Dispatching { cluster: by }),
            Move::Stop => {
                let then = match before {
                    Before::Withdrawing(then) => stopping(then),
                    Before::Dispatching | Before::Queued | Before::Starting | Before::Running => Then::Stop,
                };
                Ok(Self::Lost { cluster, before: Before::Withdrawing(then) })
            }
            Move::Fenced => Ok(match before {
                Before::Withdrawing(Then::Stop) => Self::Stopped,
                Before::Withdrawing(Then::Fail(reason)) => Self::Failed { reason },
                Before::Withdrawing(Then::Requeue)
                | Before::Dispatching
                | Before::Queued
                | Before::Starting
                | Before::Running => Self::Pending,
            }),
            to => Err(IllegalMove { from: Self::Lost { cluster, before }, to }),
        }
    }

    fn live(cluster: ClusterName, at: Before) -> Self {
        match at {
            Before::Dispatching => Self::Dispatching { cluster },
            Before::Queued => Self::Queued { cluster },
            Before::Starting => Self::Starting { cluster },
            Before::Running => Self::Running { cluster },
            Before::Withdrawing(then) => Self::Withdrawing { cluster, then },
        }
    }
}

/// A stop wins over another try; what has failed stays failed.
fn stopping(then: Then) -> Then {
    match then {
        Then::Requeue | Then::Stop => Then::Stop,
        Then::Fail(reason) => Then::Fail(reason),
    }
}

#[cfg(test)]
mod tests;
