//! What the hub's ManagedCluster of a joined cluster says where OCM does not keep one: in the words and
//! with the taints that OCM's registration uses.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    cluster::{Connection, QuarantineReason},
    placement::{
        hub::Taint,
        usage::{self, Measure},
    },
    resources::{Aliases, Resources},
};
use fedq_values::{
    ids::{QueueName, ResourceName},
    quantity::Amount,
};

pub const UNREACHABLE: &str = "cluster.open-cluster-management.io/unreachable";
pub const UNAVAILABLE: &str = "cluster.open-cluster-management.io/unavailable";

/// Whether the cluster can be used, as its Available condition says it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Availability {
    pub status: Status,
    pub reason: &'static str,
    pub message: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    True,
    False,
    Unknown,
}

impl Status {
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// `None` while nothing is known since the start: what was said before stands.
pub fn availability(connection: &Connection) -> Option<Availability> {
    let said =
        |status, reason, message: &str| Some(Availability { status, reason, message: message.to_owned() });
    match connection {
        Connection::Ready => said(Status::True, "ManagedClusterAvailable", "Managed cluster is available"),
        Connection::Connecting => None,
        // An agent there reports its nodes to the hub; silence alone proves nothing.
        Connection::Unreached => said(
            Status::True,
            "ManagedClusterReported",
            "An agent reports the cluster, which fedq does not reach",
        ),
        Connection::Stale { reason, .. } | Connection::Lost { reason, .. } => {
            said(Status::Unknown, "ManagedClusterLeaseUpdateStopped", reason)
        }
        Connection::Refused { reason } => said(Status::False, "KubeconfigRefused", reason),
        Connection::Quarantined { reason, .. } => {
            let message = match reason {
                QuarantineReason::IdentityChanged { .. } => "it is another cluster than the one joined",
                QuarantineReason::VersionsWentBack { .. } => "its resourceVersion went back",
            };
            said(Status::False, "Quarantined", message)
        }
    }
}

/// The taints the cluster is to have: others' as they are, ours as the Available condition asks for. The time
/// of a taint that stays is kept, since tolerations end by it.
pub fn taints(existing: &[Taint], status: Status, now: Timestamp) -> Vec<Taint> {
    let wanted = match status {
        Status::True => None,
        Status::False => Some(UNAVAILABLE),
        Status::Unknown => Some(UNREACHABLE),
    };
    let ours = |taint: &&Taint| taint.key == UNREACHABLE || taint.key == UNAVAILABLE;
    let mut taints: Vec<Taint> = existing.iter().filter(|taint| !ours(taint)).cloned().collect();
    if let Some(key) = wanted {
        let kept = existing.iter().find(|taint| taint.key == key && taint.added.is_some());
        taints.push(kept.cloned().unwrap_or_else(|| Taint {
            key: key.to_owned(),
            value: String::new(),
            effect: "NoSelect".to_owned(),
            added: Some(now),
        }));
    }
    taints
}

/// What workloads may still use of a cluster, as scores for Placements.
pub fn usage_scores(
    measures: &[Measure],
    total: &Resources,
    largest: &Resources,
    reserved: &Resources,
) -> Vec<(String, i64)> {
    let free = |resource: &ResourceName| {
        let of = |amounts: &Resources| amounts.get(resource).copied().unwrap_or_default();
        of(total).saturating_sub(of(reserved))
    };
    // Which node a workload is on, nobody knows here: no more is free on one than is free at all.
    let best_node =
        |resource: &ResourceName| largest.get(resource).copied().unwrap_or_default().min(free(resource));
    usage::scores(measures, &free, &best_node)
}

/// The object with scores by queue and resource: what the queue may still admit on the cluster.
pub const QUOTA_SCORES: &str = "queue-quota-score";

/// Nominal quota and what is reserved of it, of one queue on the cluster.
pub type QueueQuota = BTreeMap<ResourceName, (Amount, Amount)>;

/// Names such as `team-a.gpu`.
pub fn quota_scores(queues: &BTreeMap<QueueName, QueueQuota>, aliases: &Aliases) -> Vec<(String, i64)> {
    let of_queue = |(queue, quota): (&QueueName, &QueueQuota)| -> Vec<(String, i64)> {
        let score = |(resource, (nominal, reserved)): (&ResourceName, &(Amount, Amount))| {
            (format!("{queue}.{}", aliases.short(resource)), usage::quota_score(*nominal, *reserved))
        };
        quota.iter().map(score).collect()
    };
    queues.iter().flat_map(of_queue).collect()
}

/// Until when scores are to be valid: what was said before, while more than half of the time is left.
pub fn valid_until(
    before: Option<Timestamp>,
    valid_for: std::time::Duration,
    now: Timestamp,
) -> Option<Timestamp> {
    if valid_for.is_zero() {
        return None;
    }
    let after = |from: Timestamp, time| from.saturating_add(time).unwrap_or(Timestamp::MAX);
    let half = after(now, valid_for / 2);
    // Somebody set a clock back, or the time to be valid was shortened: longer than it can be is no promise.
    let kept = before.filter(|until| half < *until && *until <= after(now, valid_for));
    kept.or_else(|| Timestamp::from_second(after(now, valid_for).as_second()).ok())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    fn later(seconds: u64) -> Timestamp {
        now().saturating_add(Duration::from_secs(seconds)).expect("a time")
    }

    fn taint(key: &str, added: Option<Timestamp>) -> Taint {
        Taint { key: key.to_owned(), value: String::new(), effect: "NoSelect".to_owned(), added }
    }

    fn resource(name: &str) -> ResourceName {
        ResourceName::new(name).expect("a name")
    }

    #[test]
    fn a_link_is_told_as_ocm_tells_it() {
        let status = |connection: &Connection| availability(connection).map(|told| told.status.word());
        let silent = |reason: &str| reason.to_owned();
        assert_eq!(status(&Connection::Ready), Some("True"));
        assert_eq!(status(&Connection::Stale { since: now(), reason: silent("no answer") }), Some("Unknown"));
        assert_eq!(status(&Connection::Lost { since: now(), reason: silent("no answer") }), Some("Unknown"));
        assert_eq!(status(&Connection::Refused { reason: silent("exec") }), Some("False"));
        assert_eq!(status(&Connection::Connecting), None, "a restart says nothing new");
        assert_eq!(status(&Connection::Unreached), Some("True"), "it is reported");
        let reason = QuarantineReason::VersionsWentBack { stored: 2, found: 1 };
        assert_eq!(status(&Connection::Quarantined { since: now(), reason }), Some("False"));
    }

    #[test]
    fn taints_of_others_stay_and_a_time_is_kept() {
        let others = taint("gpu-only", None);
        let one = taints(std::slice::from_ref(&others), Status::Unknown, now());
        assert_eq!(one, [others.clone(), taint(UNREACHABLE, Some(now()))]);
        assert_eq!(taints(&one, Status::Unknown, later(9)), one);
        assert_eq!(
            taints(&one, Status::False, later(9)),
            [others.clone(), taint(UNAVAILABLE, Some(later(9)))]
        );
        assert_eq!(taints(&one, Status::True, later(9)), [others]);
    }

    #[test]
    fn scores_count_what_is_free() {
        let amounts = |gpus: i64| Resources::from([(resource("nvidia.com/gpu"), Amount::new(gpus))]);
        let scores = usage_scores(&usage::default_measures(), &amounts(3), &amounts(3), &amounts(1));
        let found: BTreeMap<_, _> = scores.into_iter().collect();
        assert_eq!((found["gpuClusterAvailable"], found["gpuNodeAvailable"]), (-80, -80));
        assert_eq!(found["cpuClusterAvailable"], -100);
        // More is reserved than there is.
        let scores = usage_scores(&usage::default_measures(), &amounts(3), &amounts(3), &amounts(5));
        assert!(scores.iter().all(|(_, value)| *value == -100));
    }

    #[test]
    fn a_queue_scores_by_its_own_quota() {
        let quota = QueueQuota::from([(resource("nvidia.com/gpu"), (Amount::new(8), Amount::new(2)))]);
        let queues = BTreeMap::from([(QueueName::new("team").expect("a name"), quota)]);
        assert_eq!(quota_scores(&queues, &Aliases::default()), [("team.gpu".to_owned(), 50)]);
    }

    #[test]
    fn validity_is_renewed_when_half_of_it_is_over() {
        let hour = Duration::from_hours(1);
        assert_eq!(valid_until(None, hour, now()), Some(later(3600)));
        assert_eq!(valid_until(Some(later(3600)), hour, later(1700)), Some(later(3600)));
        assert_eq!(valid_until(Some(later(3600)), hour, later(1800)), Some(later(5400)));
        assert_eq!(valid_until(Some(later(36_000)), hour, now()), Some(later(3600)));
        assert_eq!(valid_until(Some(later(3600)), Duration::ZERO, now()), None);
    }
}
