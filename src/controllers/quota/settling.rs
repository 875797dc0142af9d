//! Tells when what a worker says its workloads hold may be relied on.
//!
//! Kueue admits against the quota in its cache. After a quota shrank, a reservation made a moment
//! before may still be on its way into the status, of this queue or of a cohort's other queue that
//! borrowed. So a queue's `reserved` counts only when the status is of the current generation, and a
//! little time has passed since Kueue said so of anything that shrank in its cohort: before, it may still
//! have admitted against the old quota.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use tokio::time::Instant;

use fedq_domain::{quota::WorkerQueueInput, resources::FlavorResource};
use fedq_values::{
    ids::{ClusterName, QueueName},
    quantity::Amount,
};

/// From Kueue's word that it knows the new quota. A reservation takes a scheduling cycle and a status write, milliseconds each; this is many times
/// that, and only a move of quota from one queue to another waits for it.
const SETTLE: Duration = Duration::from_millis(500);

#[derive(Clone, Default)]
pub(super) struct Settling {
    clusters: BTreeMap<ClusterName, ClusterQuotas>,
}

#[derive(Clone, Default)]
struct ClusterQuotas {
    nominal: BTreeMap<QueueName, BTreeMap<FlavorResource, Amount>>,
    /// By cohort, or by queue where there is none: when a shrink was last known to be unknown to Kueue.
    shrunk: BTreeMap<String, Instant>,
    /// Queues that shrank, and whose status is not of that generation yet.
    unknown: BTreeSet<QueueName>,
}

impl Settling {
    /// Lowers `settled` where it cannot be relied on yet; when to look again, if it is a matter of time.
    pub fn observe(
        &mut self,
        cluster: &ClusterName,
        queues: &mut [WorkerQueueInput],
        now: Instant,
    ) -> Option<Instant> {
        let seen = self.clusters.entry(cluster.clone()).or_default();
        let mut nominal = BTreeMap::new();
        let mut unknown = BTreeSet::new();
        for queue in queues.iter() {
            let cells: BTreeMap<FlavorResource, Amount> =
                queue.cells.iter().map(|(at, cell)| (at.clone(), cell.nominal)).collect();
            // A queue seen for the first time may have shrunk just before.
            let before = seen.nominal.remove(&queue.name);
            if seen.unknown.contains(&queue.name) || before.is_none_or(|before| shrank(&before, &cells)) {
                seen.shrunk.insert(group(queue), now);
                if !queue.settled {
                    unknown.insert(queue.name.clone());
                }
            }
            nominal.insert(queue.name.clone(), cells);
        }
        (seen.nominal, seen.unknown) = (nominal, unknown);
        seen.shrunk.retain(|_, at| now < *at + SETTLE);
        let unsettled: BTreeSet<String> = queues
            .iter()
            .filter(|queue| !queue.settled)
            .map(group)
            .chain(seen.shrunk.keys().cloned())
            .collect();
        for queue in queues.iter_mut() {
            queue.settled &= !unsettled.contains(&group(queue));
        }
        // What waits for Kueue's word is looked at again when that arrives.
        let waits: BTreeSet<String> =
            queues.iter().filter(|queue| seen.unknown.contains(&queue.name)).map(group).collect();
        seen.shrunk.iter().filter(|(group, _)| !waits.contains(*group)).map(|(_, at)| *at + SETTLE).min()
    }

    pub fn forget(&mut self, cluster: &ClusterName) {
        self.clusters.remove(cluster);
    }
}

fn shrank(before: &BTreeMap<FlavorResource, Amount>, now: &BTreeMap<FlavorResource, Amount>) -> bool {
    before.iter().any(|(at, amount)| now.get(at).copied().unwrap_or_default() < *amount)
}

fn group(queue: &WorkerQueueInput) -> String {
    match &queue.cohort {
        Some(cohort) => format!("cohort {cohort}"),
        None => format!("queue {}", queue.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedq_domain::quota::WorkerCell;
    use fedq_values::ids::CohortName;

    fn queue(name: &str, cohort: Option<&str>, nominal: i64) -> WorkerQueueInput {
        let at =
            FlavorResource { flavor: "f".parse().expect("a name"), resource: "cpu".parse().expect("a name") };
        WorkerQueueInput {
            name: name.parse().expect("a name"),
            ours: true,
            conflict: false,
            cohort: cohort.map(|name| CohortName::new(name).expect("a name")),
            active: true,
            settled: true,
            cells: BTreeMap::from([(
                at,
                WorkerCell { nominal: Amount::new(nominal), ..WorkerCell::default() },
            )]),
            asked: Vec::new(),
        }
    }

    #[test]
    fn a_shrink_unsettles_its_whole_cohort_for_a_while() {
        let cluster = ClusterName::new("c").expect("a name");
        let mut settling = Settling::default();
        let start = Instant::now();
        let mut queues = vec![queue("a", Some("x"), 5), queue("b", Some("x"), 5), queue("z", None, 5)];
        settling.observe(&cluster, &mut queues, start);
        assert!(queues.iter().all(|queue| !queue.settled), "first seen");

        let later = start + SETTLE;
        let mut queues = vec![queue("a", Some("x"), 3), queue("b", Some("x"), 5), queue("z", None, 6)];
        let next = settling.observe(&cluster, &mut queues, later);
        let settled: Vec<bool> = queues.iter().map(|queue| queue.settled).collect();
        assert_eq!(settled, [false, false, true]);
        assert_eq!(next, Some(later + SETTLE));

        let mut queues = vec![queue("a", Some("x"), 3), queue("b", Some("x"), 5)];
        settling.observe(&cluster, &mut queues, later + SETTLE);
        assert!(queues.iter().all(|queue| queue.settled));
    }

    #[test]
    fn the_time_runs_from_kueues_word_not_from_the_sight_of_the_shrink() {
        let cluster = ClusterName::new("c").expect("a name");
        let mut settling = Settling::default();
        let start = Instant::now();
        settling.observe(&cluster, &mut [queue("a", Some("x"), 5), queue("b", Some("x"), 5)], start);
        let shrunk = |settled| {
            let mut shrunk = queue("a", Some("x"), 3);
            shrunk.settled = settled;
            vec![shrunk, queue("b", Some("x"), 5)]
        };
        let later = start + SETTLE;
        assert_eq!(settling.observe(&cluster, &mut shrunk(false), later), None, "Kueue's word is waited for");
        let mut queues = shrunk(true);
        let known = later + SETTLE * 4;
        assert_eq!(settling.observe(&cluster, &mut queues, known), Some(known + SETTLE));
        assert!(queues.iter().all(|queue| !queue.settled), "a reservation from before may be on its way");
        let mut queues = shrunk(true);
        assert_eq!(settling.observe(&cluster, &mut queues, known + SETTLE), None);
        assert!(queues.iter().all(|queue| queue.settled));
    }

    #[test]
    fn a_queue_that_vanishes_with_its_cohort_peers_left_is_a_shrink_of_nothing_of_theirs() {
        let cluster = ClusterName::new("c").expect("a name");
        let mut settling = Settling::default();
        let start = Instant::now();
        settling.observe(&cluster, &mut [queue("a", None, 5), queue("b", None, 5)], start);
        let mut queues = vec![queue("b", None, 5)];
        settling.observe(&cluster, &mut queues, start + SETTLE);
        assert!(queues[0].settled);
    }
}
