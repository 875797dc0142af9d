//! Measures how long Workloads that have the hub's quota wait for a cluster.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use fedq_k8s::{read::multikueue::Dispatched, types::kueue::Workload};

/// Since when each Workload waits, by UID. Not known of those that waited at the first look.
#[derive(Default)]
pub(super) struct Waits(Option<HashMap<String, Option<Instant>>>);

impl Waits {
    /// The waits that ended since the last look: the MultiKueueCluster that took the Workload, and after how long.
    /// `by_check`: configs by MultiKueue's checks.
    pub fn over<'w>(
        &mut self,
        workloads: &'w [Arc<Workload>],
        by_check: &BTreeMap<String, String>,
        now: Instant,
    ) -> Vec<(&'w str, Duration)> {
        let since = self.0.is_some().then_some(now);
        let mut before = self.0.take().unwrap_or_default();
        let (mut waiting, mut over) = (HashMap::new(), Vec::new());
        for workload in workloads {
            let (dispatched, uid) = (Dispatched::new(workload), &workload.metadata.uid);
            if dispatched.config(by_check).is_some() {
                let since = before.remove(uid).unwrap_or(since);
                waiting.insert(uid.clone(), since);
            } else if let (Some(Some(since)), Some(cluster)) = (before.remove(uid), dispatched.runs_on()) {
                over.push((cluster, now - since));
            }
        }
        self.0 = Some(waiting);
        over
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workload(uid: &str, cluster: Option<&str>) -> Arc<Workload> {
        let check = if cluster.is_some() { "Ready" } else { "Pending" };
        let workload = json!({
            "metadata": {"name": uid, "uid": uid, "resourceVersion": "1"},
            "status": {
                "conditions": [{"type": "QuotaReserved", "status": "True"}],
                "admissionChecks": [{"name": "multikueue", "state": check}],
                "clusterName": cluster,
            },
        });
        Arc::new(serde_json::from_value(workload).expect("a Workload"))
    }

    #[test]
    fn a_wait_is_measured_once_where_all_of_it_was_seen() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let by_check = BTreeMap::from([("multikueue".to_owned(), "config".to_owned())]);
        let mut over = |seconds, workloads: &[Arc<Workload>]| {
            let over = waits.over(workloads, &by_check, start + Duration::from_secs(seconds));
            over.into_iter()
                .map(|(cluster, waited)| (cluster.to_owned(), waited.as_secs()))
                .collect::<Vec<_>>()
        };
        let of = |cluster: &str, seconds| vec![(cluster.to_owned(), seconds)];
        assert_eq!(over(0, &[workload("early", None)]), []);
        assert_eq!(over(1, &[workload("early", None), workload("one", None)]), []);
        assert_eq!(over(3, &[workload("early", Some("east")), workload("one", None)]), [], "begun unseen");
        assert_eq!(over(5, &[workload("one", Some("west"))]), of("west", 4));
        assert_eq!(over(6, &[workload("one", Some("west"))]), [], "told already");
        assert_eq!(over(7, &[workload("one", None)]), [], "evicted");
        assert_eq!(over(8, &[workload("one", Some("east"))]), of("east", 1), "anew");
        assert_eq!(over(9, &[workload("gone", None)]), []);
        assert_eq!(over(10, &[]), [], "deleted while it waited");
    }
}
