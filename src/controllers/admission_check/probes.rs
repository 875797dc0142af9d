//! Whether clusters still take the tokens that Kueue was given. One may be made void before its time, by deleting
//! the account or changing the cluster's keys; Kueue's open watches outlive that, while all else it does there fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::task::{JoinError, JoinSet};
use tracing::warn;

use fedq_k8s::{
    client::ClusterClient,
    multikueue::{Credential, takes_token},
};
use fedq_values::ids::ClusterName;

/// Between two questions, about: not all clusters are asked at once.
const PERIOD: SignedDuration = SignedDuration::from_mins(5);

#[derive(Default)]
pub(super) struct Probes {
    asking: JoinSet<Answer>,
    under_way: BTreeSet<ClusterName>,
    next: BTreeMap<ClusterName, Timestamp>,
    /// Clusters that Kueue could not connect to when last looked at.
    refused: BTreeSet<ClusterName>,
    /// When the token was issued that the cluster does not take.
    void: BTreeMap<ClusterName, Timestamp>,
}

pub(super) struct Answer {
    pub cluster: ClusterName,
    issued: Timestamp,
    /// `None`: the cluster said nothing of it.
    accepted: Option<bool>,
}

impl Probes {
    pub async fn answered(&mut self) -> Result<Answer, JoinError> {
        match self.asking.join_next().await {
            Some(ended) => ended,
            None => pending().await,
        }
    }

    pub fn take(&mut self, Answer { cluster, issued, accepted }: Answer) {
        self.under_way.remove(&cluster);
        match accepted {
            Some(false) => {
                warn!(cluster.name = %cluster, "`{cluster}` does not take Kueue's token any more, before its time: it gets a new one");
                self.void.insert(cluster, issued);
            }
            Some(true) => drop(self.void.remove(&cluster)),
            None => {}
        }
    }

    /// Whether this token is known to be worth nothing.
    pub fn is_void(&self, credential: &Credential) -> bool {
        self.void.get(&credential.cluster) == Some(&credential.issued)
    }

    /// Asks, if it is time to, or if Kueue has just failed to connect; when to look again. `refused`: whether
    /// Kueue cannot connect now.
    pub fn look(
        &mut self,
        (client, deadline): (&ClusterClient, Duration),
        credential: &Credential,
        refused: bool,
        now: Timestamp,
    ) -> Option<Timestamp> {
        if !self.is_due(&credential.cluster, refused, now) {
            return self.next.get(&credential.cluster).copied();
        }
        let (cluster, token) = (credential.cluster.clone(), credential.token.clone());
        let (issued, client) = (credential.issued, client.clone());
        self.under_way.insert(cluster.clone());
        let next = now.saturating_add(period(&cluster)).unwrap_or(Timestamp::MAX);
        self.next.insert(cluster.clone(), next);
        self.asking.spawn(async move {
            let accepted = takes_token(&client, &token, deadline).await;
            Answer { cluster, issued, accepted }
        });
        Some(next)
    }

    fn is_due(&mut self, cluster: &ClusterName, refused: bool, now: Timestamp) -> bool {
        let known = self.refused.contains(cluster);
        match (refused, known) {
            (true, false) => drop(self.refused.insert(cluster.clone())),
            (false, true) => drop(self.refused.remove(cluster)),
            (true, true) | (false, false) => {}
        }
        let timely = self.next.get(cluster).is_none_or(|next| *next <= now);
        (refused && !known || timely) && !self.under_way.contains(cluster)
    }

    pub fn retain(&mut self, kept: impl Fn(&ClusterName) -> bool) {
        self.next.retain(|cluster, _| kept(cluster));
        self.void.retain(|cluster, _| kept(cluster));
        self.refused.retain(kept);
    }
}

fn period(cluster: &ClusterName) -> SignedDuration {
    const STEPS: u64 = 40;
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    let spread = i32::try_from(hasher.finish() % STEPS).unwrap_or_default();
    // 80 % to 120 % of it.
    (PERIOD / 100).saturating_mul(80 + spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ClusterName {
        ClusterName::new(text).expect("a name")
    }

    fn credential(issued: Timestamp) -> Credential {
        Credential { cluster: name("east"), token: "t".to_owned(), issued, expires: Timestamp::MAX }
    }

    fn answer(issued: Timestamp, accepted: Option<bool>) -> Answer {
        Answer { cluster: name("east"), issued, accepted }
    }

    #[test]
    fn a_token_is_void_until_there_is_another() {
        let (old, new) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1));
        let mut probes = Probes::default();
        probes.take(answer(old, None));
        assert!(!probes.is_void(&credential(old)), "silence says nothing");
        probes.take(answer(old, Some(false)));
        assert!(probes.is_void(&credential(old)) && !probes.is_void(&credential(new)));
        probes.take(answer(new, Some(true)));
        assert!(!probes.is_void(&credential(old)) && probes.void.is_empty());
    }

    #[test]
    fn a_cluster_is_asked_now_and_then_and_when_kueue_first_fails_to_connect() {
        let (mut probes, start) = (Probes::default(), Timestamp::UNIX_EPOCH);
        let east = name("east");
        assert!(probes.is_due(&east, false, start), "never asked since the start");
        probes.next.insert(east.clone(), start + period(&east));
        assert!(!probes.is_due(&east, false, start + SignedDuration::from_mins(1)));
        assert!(probes.is_due(&east, true, start + SignedDuration::from_mins(1)), "Kueue is refused");
        assert!(!probes.is_due(&east, true, start + SignedDuration::from_mins(2)), "it still is");
        assert!(!probes.is_due(&east, false, start + SignedDuration::from_mins(3)), "it connected");
        assert!(probes.is_due(&east, true, start + SignedDuration::from_mins(3)), "and is refused again");
        assert!(probes.is_due(&east, true, start + SignedDuration::from_mins(7)), "it is time");
        probes.under_way.insert(east.clone());
        assert!(!probes.is_due(&east, true, start + SignedDuration::from_mins(8)), "one question at a time");
    }

    #[test]
    fn clusters_are_not_all_asked_at_once() {
        let all: BTreeSet<SignedDuration> =
            (0..50).map(|number| period(&name(&format!("c{number}")))).collect();
        assert!(10 <= all.len(), "{all:?}");
        let bounds = SignedDuration::from_mins(4)..=SignedDuration::from_mins(6);
        assert!(all.iter().all(|period| bounds.contains(period)), "{all:?}");
    }
}
