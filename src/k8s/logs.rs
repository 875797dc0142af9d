//! The logs of containers on workers: each line once and in order, through broken streams, restarts and moves.
//!
//! [`open`] begins a [`Session`] over a changing set of [`Pod`]s. Each container has one reader; whoever takes
//! the [`Event`]s sets the pace, and memory is bounded by [`Limits`]. What may be asked twice is judged in
//! `transcript`, which knows no client; `reader` asks; `session` keeps readers in step with the pods. What [`gather`] kept of
//! pods that are gone, [`replay`] makes a session of again.

mod connections;
mod cursor;
#[cfg(feature = "testing")]
pub mod fuzz;
mod kept;
mod lines;
mod outlet;
mod pods;
mod reader;
mod render;
mod request;
mod session;
mod transcript;

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc, time::Duration};

use jiff::Timestamp;

use fedq_values::ids::ClusterName;

pub use connections::{KEPT_AT_ONCE, LogConnections};
pub use kept::{Following, gather, places, replay, trimmed};
pub use pods::{LogPod, numbered};
pub use render::{Style, json, missing, text};
pub use session::{Session, open};

/// What somebody wants to see.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Until the containers end; otherwise what is there now.
    pub follow: bool,
    /// Only the last lines of each container, and what follows.
    pub tail: Option<u64>,
    pub since: Option<Since>,
    /// Only the node of this rank.
    pub node: Option<u32>,
    /// By node and container, where an earlier session stopped: `tail` and `since` do not count there.
    pub after: BTreeMap<(u32, String), After>,
    pub limits: Limits,
}

/// Where an earlier session stopped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct After {
    /// Whose log it read then: of a pod that came in its place everything is new, whatever the clock of its node says.
    pub pod: String,
    pub position: Position,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Since {
    /// So long before now, by the clock of the worker.
    Ago(Duration),
    Time(Timestamp),
}

/// How large and how slow things may be.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes kept of one line; the rest is counted.
    pub line: usize,
    /// Bytes of lines that wait for whoever reads the session.
    pub waiting: usize,
    /// How long a follower may let them wait before lines are dropped. Whoever does not follow drops none.
    pub patience: Duration,
    /// A stream without a byte for so long is begun anew, ± 10 %: some die without a word, where a load
    /// balancer forgets them or a kubelet misses that the log was rotated.
    pub silent: Duration,
    /// How long a stream may outlive its container.
    pub linger: Duration,
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    /// Attempts to read the end of a log that nobody adds to any more.
    pub attempts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            line: 64 << 10,
            waiting: 1 << 20,
            patience: Duration::from_secs(10),
            silent: Duration::from_mins(2),
            linger: Duration::from_secs(5),
            backoff_min: Duration::from_millis(250),
            backoff_max: Duration::from_secs(10),
            attempts: 8,
        }
    }
}

/// A pod whose containers are read.
#[derive(Clone)]
pub struct Pod {
    /// The rank of the task's node that it is.
    pub node: u32,
    pub cluster: ClusterName,
    /// The cluster's; a cluster that was joined anew has others.
    pub connections: LogConnections,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Container {
    pub name: String,
    pub state: ContainerState,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ContainerState {
    /// Not started yet, and why.
    Waiting {
        reason: String,
    },
    Running,
    /// Between two runs, and why the next one has not begun.
    Between {
        reason: String,
    },
    /// It will not run again.
    Ended,
}

/// All pods of a session as they are now. One that is left out is gone.
#[derive(Clone, Default)]
pub struct Pods {
    pub pods: Vec<Pod>,
    /// No others will come.
    pub complete: bool,
}

/// Whose line it is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Origin {
    pub cluster: ClusterName,
    pub node: u32,
    pub pod: String,
    pub container: String,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    pub origin: Arc<Origin>,
    /// Counts the lines of a container of a node from 1, through its restarts and moves.
    pub seq: u64,
    /// When its runtime took it; `None` for what the kubelet itself has to say.
    pub ts: Option<Timestamp>,
    /// As it was written, without its end.
    pub line: Vec<u8>,
    /// Bytes of it that were not kept.
    pub cut: u64,
    /// For [`Options::after`] of a session that goes on behind it.
    pub position: Option<Position>,
}

/// What happens to a session.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    Line(Record),
    Status(Arc<Origin>, Status),
}

/// What becomes of one container's log. Displayed, it is for people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Status {
    Waiting {
        reason: String,
    },
    /// Tried again by itself.
    Broken {
        error: String,
    },
    Reconnected,
    /// The lines that follow are of another run.
    Restarted,
    /// The log was rotated, or there was a run of which nothing is left: lines may be missing here.
    Gap,
    /// Nobody took them.
    Dropped {
        lines: u64,
    },
    /// Of what was kept: the log was larger than that.
    NotKept {
        lines: u64,
    },
    /// What is left of the log cannot be read.
    Unread {
        error: String,
    },
    Ended,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting { reason } => write!(f, "waiting: {reason}"),
            Self::Broken { error } => write!(f, "the log broke off and is resumed: {error}"),
            Self::Reconnected => f.write_str("reconnected"),
            Self::Restarted => f.write_str("the container was restarted"),
            Self::Gap => f.write_str("… lines may be missing: the log was rotated"),
            Self::Dropped { lines: 1 } => f.write_str("… 1 line dropped"),
            Self::Dropped { lines } => write!(f, "… {lines} lines dropped"),
            Self::NotKept { lines: 1 } => f.write_str("… 1 line before this was not kept"),
            Self::NotKept { lines } => write!(f, "… {lines} lines before this were not kept"),
            Self::Unread { error } => write!(f, "the log cannot be read: {error}"),
            Self::Ended => f.write_str("the log is over"),
        }
    }
}

/// A place in a container's log: right after so many lines with this time. Printed and parsed as
/// `2026-11-21T07:00:00.000000001Z+2`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Position {
    pub ts: Timestamp,
    pub lines: u32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("not a place in a log, such as 2026-11-21T07:00:00.5Z+1")]
pub struct NoPosition;

impl Position {
    fn is_before(self, other: Self) -> bool {
        (self.ts, self.lines) < (other.ts, other.lines)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.ts, self.lines)
    }
}

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        let (ts, lines) = text.rsplit_once('+').ok_or(NoPosition)?;
        Ok(Self { ts: ts.parse().map_err(|_| NoPosition)?, lines: lines.parse().map_err(|_| NoPosition)? })
    }
}

#[cfg(test)]
mod tests;
