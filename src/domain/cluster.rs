//! What fedq knows of its link to a joined cluster.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The link to a joined cluster. Unknown is not zero: every state but [`Connection::Lost`] keeps the
/// cluster's share of the hub's quota.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Connection {
    /// No answer yet since this process started; what the store remembers stands.
    Connecting,
    Ready,
    /// Not answering since then; its last confirmed capacity and share stand.
    Stale {
        since: Timestamp,
        reason: String,
    },
    /// Not answering for longer than `lostTimeout`; its share is off the hub's quota until it returns.
    Lost {
        since: Timestamp,
        reason: String,
    },
    /// It answers, but may be another cluster than the one that was joined: no writes until confirmed.
    Quarantined {
        since: Timestamp,
        reason: QuarantineReason,
    },
    /// Its kubeconfig cannot be used.
    Refused {
        reason: String,
    },
    /// Known by ClusterMetrics only: capacity is read from the hub and nothing is written there.
    Unreached,
}

/// When a cluster last answered, shared by all that tell of it: that it answers once more is no news that anybody is woken
/// for, or that makes a copy of anything.
#[derive(Clone, Debug, Default)]
pub struct LastSeen(Arc<AtomicI64>);

impl LastSeen {
    /// `None`: it never did.
    pub fn get(&self) -> Option<Timestamp> {
        let millis = self.0.load(Ordering::Relaxed);
        Timestamp::from_millisecond(millis).ok().filter(|_| millis != 0)
    }

    pub fn set(&self, at: Timestamp) {
        self.0.store(at.as_millisecond(), Ordering::Relaxed);
    }

    /// Whether it is the very same one, which a cluster has for as long as it is joined.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for LastSeen {
    fn eq(&self, other: &Self) -> bool {
        self.is(other) || self.get() == other.get()
    }
}

impl Eq for LastSeen {}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum QuarantineReason {
    /// The UID of its kube-system namespace changed.
    IdentityChanged { expected: String, found: String },
    /// Its resourceVersion went backwards: etcd was restored from a backup.
    VersionsWentBack { stored: u64, found: u64 },
}

/// What the reason of silence begins with where the cluster answers, and does not accept who asks.
pub const CREDENTIAL_REFUSED: &str = "it does not accept its credential any more";

/// Why a cluster counts as lost that answers, and may be another one.
pub const UNCONFIRMED: &str = "quarantined, and nobody confirmed it";

impl Connection {
    /// Whether only a new credential can help.
    pub fn refuses_credential(&self) -> bool {
        matches!(self, Self::Stale { reason, .. } | Self::Lost { reason, .. } if reason.starts_with(CREDENTIAL_REFUSED))
    }

    /// Whether it does not answer, and has not for `lostTimeout`. One that is lost for want of a credential or of
    /// somebody's word that it is the same answers: what ran there may well run on.
    pub fn is_silent_for_long(&self) -> bool {
        matches!(self, Self::Lost { reason, .. } if reason != UNCONFIRMED) && !self.refuses_credential()
    }

    /// Whether fedq may write to the cluster.
    pub fn is_writable(&self) -> bool {
        matches!(self, Self::Ready)
    }

    /// The word shown in tables and stored with the cluster.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Connecting => "Connecting",
            Self::Ready => "Ready",
            Self::Stale { .. } => "Stale",
            Self::Lost { .. } => "Lost",
            Self::Quarantined { .. } => "Quarantined",
            Self::Refused { .. } => "Refused",
            Self::Unreached => "Unreached",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_answers_is_not_silent_though_it_counts_as_lost() {
        let since = Timestamp::UNIX_EPOCH;
        let lost = |reason: &str| Connection::Lost { since, reason: reason.to_owned() };
        assert!(lost("connection refused").is_silent_for_long());
        assert!(!lost(UNCONFIRMED).is_silent_for_long());
        let refused = format!("{CREDENTIAL_REFUSED}, and says `401`");
        assert!(!lost(&refused).is_silent_for_long());
        assert!(!Connection::Stale { since, reason: "no answer".to_owned() }.is_silent_for_long());
        assert!(!Connection::Ready.is_silent_for_long());
    }
}
