//! Where each waiting Workload of a cluster stands in its queue, by Kueue's order: priority, then age.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use fedq_k8s::{
    types::kueue::{LocalQueue, Workload},
    worker::Worker,
};

use super::is_true;

/// From 1, and of how many, by the Workload's UID.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Places(HashMap<String, (usize, usize)>);

impl Places {
    /// Of queues of which every waiting Workload is followed. What MultiKueue puts on a worker is not, so that
    /// a place there would be too far ahead.
    pub fn of(worker: &Worker, workloads: &[Arc<Workload>]) -> Self {
        let reported = |queue: &str| {
            let queue = worker.queues.get(None, queue)?;
            usize::try_from(queue.status.pending_workloads).ok()
        };
        Self::among(&worker.local_queues.all(), workloads, reported)
    }

    fn among(
        locals: &[Arc<LocalQueue>],
        workloads: &[Arc<Workload>],
        reported: impl Fn(&str) -> Option<usize>,
    ) -> Self {
        let queue_of: HashMap<(&str, &str), &str> = locals
            .iter()
            .map(|local| {
                let namespace = local.metadata.namespace.as_deref().unwrap_or_default();
                ((namespace, local.metadata.name.as_str()), local.spec.cluster_queue.as_str())
            })
            .collect();
        let mut waiting: BTreeMap<&str, Vec<&Workload>> = BTreeMap::new();
        for workload in workloads.iter().filter(|workload| waits(workload)) {
            let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
            if let Some(queue) = queue_of.get(&(namespace, workload.spec.queue_name.as_str())) {
                waiting.entry(queue).or_default().push(workload);
            }
        }
        let mut places = HashMap::new();
        for (queue, mut workloads) in waiting {
            if reported(queue).is_none_or(|reported| workloads.len() < reported) {
                continue;
            }
            workloads.sort_by_key(|workload| {
                let metadata = &workload.metadata;
                (Reverse(workload.spec.priority), &metadata.creation_timestamp, &metadata.name)
            });
            let of = workloads.len();
            let placed = (1..).zip(workloads);
            places.extend(placed.map(|(place, workload)| (workload.metadata.uid.clone(), (place, of))));
        }
        Self(places)
    }

    pub fn get(&self, uid: &str) -> Option<(usize, usize)> {
        self.0.get(uid).copied()
    }
}

fn waits(workload: &Workload) -> bool {
    let conditions = &workload.status.conditions;
    !is_true(conditions, "QuotaReserved") && !is_true(conditions, "Finished")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(name: &str, priority: i64, second: u32, condition: &str) -> Arc<Workload> {
        let object = json!({
            "metadata": {
                "name": name, "namespace": "team", "uid": name,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {"queueName": "queue", "priority": priority},
            "status": {"conditions": [
                {"type": condition, "status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        Arc::new(serde_json::from_value(object).expect("a Workload"))
    }

    #[test]
    fn the_urgent_come_first_and_then_the_old_and_what_is_not_all_seen_is_not_told() {
        let local = json!({
            "metadata": {"name": "queue", "namespace": "team"}, "spec": {"clusterQueue": "cq"},
        });
        let locals = [Arc::new(serde_json::from_value(local).expect("a LocalQueue"))];
        let workloads = [
            workload("late", 0, 9, "Evicted"),
            workload("urgent", 10, 8, "Evicted"),
            workload("early", 0, 1, "Evicted"),
            workload("runs", 0, 0, "QuotaReserved"),
            workload("ended", 0, 0, "Finished"),
        ];
        let places = Places::among(&locals, &workloads, |_| Some(3));
        let of = |name: &str| places.get(name);
        assert_eq!([of("urgent"), of("early"), of("late")], [Some((1, 3)), Some((2, 3)), Some((3, 3))]);
        assert_eq!((of("runs"), of("ended")), (None, None));
        assert_eq!(Places::among(&locals, &workloads, |_| Some(4)).get("late"), None, "one is not followed");
        assert_eq!(Places::among(&[], &workloads, |_| Some(0)).get("late"), None);
    }
}
