//! What is told of a task: one line of its history.

use std::{fmt, str::FromStr};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::phase::{Epoch, Failure, Move, Phase, State};

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Event {
    pub at: Timestamp,
    pub epoch: Epoch,
    /// The phase that it led to.
    pub phase: Phase,
    pub reason: Reason,
    /// What a person reads.
    pub message: String,
}

/// Why a task moved.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Reason {
    Submitted,
    /// The stage before it has succeeded.
    Due,
    Chosen,
    Created,
    Refused,
    TurnedAway,
    Admitted,
    Started,
    Evicted,
    Succeeded,
    Failed,
    Restarting,
    Spilled,
    /// Its pods did not start in time.
    Stuck,
    Overdue,
    Vanished,
    NeverFits,
    Stopping,
    /// The stage before it did not succeed.
    Cancelled,
    Withdrawn,
    /// A volume that it mounts was deleted on its cluster.
    VolumeLost,
    ClusterLost,
    ClusterBack,
    /// Another cluster took it over from one that is lost.
    Replaced,
    Fenced,
}

impl Reason {
    const ALL: [Self; 25] = [
        Self::Submitted,
        Self::Due,
        Self::Chosen,
        Self::Created,
        Self::Refused,
        Self::TurnedAway,
        Self::Admitted,
        Self::Started,
        Self::Evicted,
        Self::Succeeded,
        Self::Failed,
        Self::Restarting,
        Self::Spilled,
        Self::Stuck,
        Self::Overdue,
        Self::Vanished,
        Self::NeverFits,
        Self::Stopping,
        Self::Cancelled,
        Self::Withdrawn,
        Self::VolumeLost,
        Self::ClusterLost,
        Self::ClusterBack,
        Self::Replaced,
        Self::Fenced,
    ];
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no reason of an event")]
pub struct NoReason(String);

impl FromStr for Reason {
    type Err = NoReason;

    fn from_str(text: &str) -> Result<Self, NoReason> {
        let found = Self::ALL.into_iter().find(|reason| reason.to_string() == text);
        found.ok_or_else(|| NoReason(text.to_owned()))
    }
}

impl Event {
    pub fn submitted(at: Timestamp) -> Self {
        let message = "the task was accepted".to_owned();
        Self { at, epoch: 0, phase: Phase::Pending, reason: Reason::Submitted, message }
    }

    /// Of a stage whose turn has come. `before`: how the one before it is called.
    pub fn due(state: &State, at: Timestamp, before: &str) -> Self {
        let message = format!("{before} succeeded: its turn has come");
        Self { at, epoch: state.epoch, phase: state.phase.clone(), reason: Reason::Due, message }
    }

    /// Of a move that led to `state`; `detail` is what the cluster or the chooser said.
    pub fn of(step: &Move, state: &State, at: Timestamp, detail: Option<&str>) -> Self {
        let (reason, mut message) = told(step, state);
        if let Some(detail) = detail {
            message = format!("{message}: {detail}");
        }
        Self { at, epoch: state.epoch, phase: state.phase.clone(), reason, message }
    }
}

fn told(step: &Move, state: &State) -> (Reason, String) {
    let cluster = state.phase.cluster().map_or("its cluster", |cluster| cluster.as_str());
    match step {
        Move::Dispatch(cluster) => (Reason::Chosen, format!("cluster {cluster} was chosen")),
        Move::Written => (Reason::Created, format!("its objects were created on {cluster}")),
        Move::Refused => (Reason::Refused, format!("{cluster} does not take its objects")),
        Move::TurnedAway => {
            (Reason::TurnedAway, format!("{cluster} did not take its objects; another cluster is tried"))
        }
        Move::Admitted => (Reason::Admitted, format!("its queue on {cluster} gave it quota")),
        Move::Started => (Reason::Started, format!("all its nodes run on {cluster}")),
        Move::Evicted => {
            (Reason::Evicted, format!("Kueue on {cluster} took its quota back; it is queued again"))
        }
        Move::Succeeded => (Reason::Succeeded, "all its nodes ended without error".to_owned()),
        Move::ProgramFailed { restart: true } => {
            (Reason::Restarting, "its script failed; it is started again".to_owned())
        }
        Move::Disrupted => {
            (Reason::Restarting, "its cluster ended a pod of it; it is started again".to_owned())
        }
        Move::ProgramFailed { restart: false } => (Reason::Failed, "its script failed".to_owned()),
        Move::Spill => (Reason::Spilled, format!("it waits on {cluster} while another cluster has room")),
        Move::Stuck => {
            (Reason::Stuck, format!("it did not start on {cluster} in time; it gives its quota back"))
        }
        Move::Overdue => (Reason::Overdue, "it ran for as long as it may, and is ended".to_owned()),
        Move::Vanished => (Reason::Vanished, format!("somebody deleted its objects on {cluster}")),
        Move::NeverFits => (Reason::NeverFits, "no cluster can ever hold it".to_owned()),
        Move::Stop => (Reason::Stopping, "it was stopped".to_owned()),
        Move::Cancel => (Reason::Cancelled, "it is not run".to_owned()),
        Move::Withdrawn => (Reason::Withdrawn, withdrawn(&state.phase).to_owned()),
        Move::ClusterLost => (Reason::ClusterLost, format!("{cluster} does not answer")),
        Move::ClusterBack => (Reason::ClusterBack, format!("{cluster} answers again")),
        Move::Replace(cluster) => (
            Reason::Replaced,
            format!(
                "cluster {cluster} was chosen in place of the lost one, which withdraws it once it answers"
            ),
        ),
        Move::Fenced => (Reason::Fenced, "its lost cluster can run nothing of it any more".to_owned()),
    }
}

fn withdrawn(phase: &Phase) -> &'static str {
    match phase {
        Phase::Failed { reason: Failure::Refused } => "what was created of it is gone again",
        _ => "nothing of it is left on the cluster",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_values::ids::ClusterName;

    #[test]
    fn events_say_what_happened_where() {
        let at = Timestamp::UNIX_EPOCH;
        let step = Move::Dispatch(ClusterName::new("one").expect("a name"));
        let state = State::default().next(step.clone()).expect("legal");
        let event = Event::of(&step, &state, at, Some("most free quota"));
        assert_eq!(event.message, "cluster one was chosen: most free quota");
        assert_eq!((event.reason, event.epoch), (Reason::Chosen, 1));
        let state = state.next(Move::Written).expect("legal");
        assert_eq!(Event::of(&Move::Written, &state, at, None).message, "its objects were created on one");
        assert_eq!("NeverFits".parse(), Ok(Reason::NeverFits));
        assert!("Nothing".parse::<Reason>().is_err());
        let text = serde_json::to_string(&Event::submitted(at)).expect("JSON");
        assert!(text.contains(r#""reason":"Submitted""#), "{text}");
    }
}
