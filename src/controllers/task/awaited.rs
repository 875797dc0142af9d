//! Clusters that are about to be known. A task that would wait in a queue waits for them instead, but not for long:
//! one of which a list is refused may never be known.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use fedq_domain::cluster::Connection;
use fedq_k8s::{follow::TableSet, worker::Joined};
use fedq_values::ids::ClusterName;

/// All that is asked of a cluster that answers is there in much less.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// How far a cluster is of which not all is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coming {
    /// It has not answered so far.
    Asked,
    Answers,
}

impl Coming {
    /// `None`: nobody can say when it is known.
    pub fn of(entry: &Joined) -> Option<Self> {
        match entry.connection {
            Connection::Connecting => Some(Self::Asked),
            Connection::Ready => {
                let refused = entry.worker.as_ref().is_some_and(|worker| worker.is_refused());
                (!refused).then_some(Self::Answers)
            }
            Connection::Stale { .. }
            | Connection::Lost { .. }
            | Connection::Quarantined { .. }
            | Connection::Refused { .. }
            | Connection::Unreached => None,
        }
    }
}

#[derive(Default)]
pub(super) struct Awaited(BTreeMap<ClusterName, (Coming, Timestamp)>);

impl Awaited {
    /// Whether to wait for one of those that are coming.
    pub fn look(&mut self, coming: &BTreeMap<ClusterName, Coming>, now: Timestamp) -> bool {
        self.0.retain(|name, (seen, _)| coming.get(name) == Some(seen));
        for (name, seen) in coming {
            self.0.entry(name.clone()).or_insert((*seen, now));
        }
        self.ends().any(|end| now < end)
    }

    /// When they are waited for no longer.
    pub fn ends(&self) -> impl Iterator<Item = Timestamp> + '_ {
        self.0.values().filter_map(|(_, since)| since.checked_add(PATIENCE).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_k8s::worker::KUBECONFIG;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn a_cluster_that_is_never_known_is_not_waited_for_for_ever() {
        let mut awaited = Awaited::default();
        let one = ClusterName::new("one").expect("a name");
        let coming = |seen| BTreeMap::from([(one.clone(), seen)]);
        assert!(awaited.look(&coming(Coming::Asked), at(0)));
        assert!(awaited.look(&coming(Coming::Answers), at(9)), "it answers, so the rest comes at once");
        assert!(awaited.look(&coming(Coming::Answers), at(18)));
        assert_eq!(awaited.ends().collect::<Vec<_>>(), [at(19)]);
        assert!(!awaited.look(&coming(Coming::Answers), at(19)));
        assert!(!awaited.look(&BTreeMap::new(), at(20)), "it is known");
        assert!(awaited.look(&coming(Coming::Answers), at(30)), "and is connected anew");
    }

    #[test]
    fn only_one_that_is_being_asked_is_about_to_be_known() {
        let coming = |connection| Coming::of(&Joined::new(connection, KUBECONFIG));
        assert_eq!(coming(Connection::Connecting), Some(Coming::Asked));
        assert_eq!(coming(Connection::Ready), Some(Coming::Answers));
        assert_eq!(coming(Connection::Unreached), None);
        assert_eq!(coming(Connection::Stale { since: at(0), reason: String::new() }), None);
    }
}
