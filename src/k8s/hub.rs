//! What fedq follows on the hub.

use std::ops::Deref;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use super::{
    client::ClusterClient,
    follow::{Followed, Following, Part, Row, Scope, TableSet, Wake, followed},
    list_watch::Table,
    types::{
        claim::ClusterResourceClaim,
        cluster_metrics::ClusterMetrics,
        kueue::{
            AdmissionCheck, ClusterQueue, Cohort, LocalQueue, MultiKueueCluster, MultiKueueConfig,
            ResourceFlavor, Workload, WorkloadPriorityClass,
        },
        meta::{HUB_LABEL, MetaOnly},
    },
    worker::JoinedClusters,
    write::{Change, Kind},
};
use fedq_values::ids::ClusterName;

use self::{
    ocm::OcmTables,
    profiles::{MULTICLUSTER, Profiles, cluster_name},
};

pub mod ocm;
pub mod profiles;

/// Marks the Secrets that join a cluster; the value is the cluster's name.
pub const CLUSTER_LABEL: &str = "fedq.dev/cluster";

const KUEUE: &str = "/apis/kueue.x-k8s.io/v1beta2";

followed! {
    /// What is followed of the hub, but for OCM's kinds.
    pub struct HubTables {
        claims: ClusterResourceClaim = Row::of(Kind::Claim).planned().read_by(Wake::of_claims);
        queues: ClusterQueue = Row::of(Kind::ClusterQueue).planned().read_by(Wake::of_queues);
        local_queues: LocalQueue = Row::read_only(KUEUE, "localqueues").planned().read_by(Wake::of_local_queues);
        flavors: ResourceFlavor = Row::read_only(KUEUE, "resourceflavors").planned();
        cohorts: Cohort = Row::of(Kind::Cohort).planned();
        checks: AdmissionCheck = Row::of(Kind::AdmissionCheck).planned();
        multikueue_configs: MultiKueueConfig = Row::of(Kind::MultiKueueConfig).planned();
        multikueue_clusters: MultiKueueCluster = Row::of(Kind::MultiKueueCluster).planned();
        namespaces: MetaOnly = Row::of(Kind::Namespace).planned().read_by(Wake::of_namespaces);
        priority_classes: WorkloadPriorityClass = Row::read_only(KUEUE, "workloadpriorityclasses").planned();
        cluster_metrics: ClusterMetrics = Row::of(Kind::ClusterMetrics).planned();
        /// Those that join clusters, which are somebody else's to write.
        secrets: Secret = Row::read_only("/api/v1", "secrets").in_namespace().labelled(CLUSTER_LABEL).planned();
        workloads: Workload = Row::of(Kind::Workload).part(Part::MultiKueue);
        /// What fedq gives Kueue to reach clusters by.
        kueue_secrets: Secret = Row::of(Kind::Secret).in_namespace().ours().part(Part::MultiKueue);
        /// Clusters that Kueue may reach by itself.
        cluster_profiles: MetaOnly = Row::read_only(MULTICLUSTER, "clusterprofiles").in_namespace().part(Part::MultiKueue);
        /// One of them lets fedq nominate clusters for Workloads.
        mutating_policies: MetaOnly =
            Row::read_only("/apis/admissionregistration.k8s.io/v1", "mutatingadmissionpolicies").part(Part::Nomination);
    }
}

#[derive(Clone)]
pub struct Hub {
    pub client: ClusterClient,
    /// UID of the hub's kube-system namespace: a cluster with this one is the hub itself.
    pub uid: String,
    /// Where fedq keeps its own objects.
    pub namespace: String,
    pub tables: HubTables,
    /// Whether clusters that are known by a ClusterMetrics object alone count.
    pub counts_reports: bool,
    pub ocm: OcmTables,
    /// Where clusters are joined by ClusterProfiles, too.
    pub profiles: Option<Profiles>,
}

/// The hub is asked for what it has.
impl Deref for Hub {
    type Target = HubTables;

    fn deref(&self) -> &HubTables {
        &self.tables
    }
}

impl Hub {
    pub fn new(client: ClusterClient, uid: String, namespace: String) -> Self {
        Self {
            client,
            uid,
            namespace,
            tables: HubTables::default(),
            counts_reports: false,
            ocm: OcmTables::default(),
            profiles: None,
        }
    }

    /// Starts following everything; each task ends with `cancel`.
    pub fn follow(
        &self,
        following: &Following,
        wake: &Wake,
        tasks: &mut JoinSet<()>,
        cancel: &CancellationToken,
    ) {
        let scope = Scope { hub_id: "", namespace: &self.namespace, wake: Some(wake), cancel };
        self.tables.follow_part(Part::Always, following, &scope, tasks);
        if let Some(profiles) = &self.profiles {
            profiles.follow(following, tasks, cancel);
        }
    }

    /// The clusters that a ClusterMetrics object reports. Our own report of a followed cluster is no cluster of its own.
    pub fn reported(&self) -> Vec<ClusterName> {
        let reports =
            self.cluster_metrics.all().into_iter().filter(|report| self.counts_reports && reports(report));
        reports.filter_map(|report| ClusterName::new(&report.metadata.name).ok()).collect()
    }

    /// Whether it serves what a plan is made of. Where it does not, its queues are unknown, which is not the same as none.
    /// A server that has just started serves one kind after the other: without the configs, a queue of MultiKueue
    /// would be one that reaches no cluster.
    pub fn has_kueue(&self) -> bool {
        let multikueue = self.checks.is_absent()
            || self.multikueue_configs.is_absent()
            || self.multikueue_clusters.is_absent();
        !self.queues.is_absent() && !self.flavors.is_absent() && !self.cohorts.is_absent() && !multikueue
    }

    /// Whether every cluster that a Secret or a ClusterProfile joins, or a ClusterMetrics object reports, is among
    /// `joined`: until then a decision would take the clusters that are not there yet for ones that left.
    pub fn lists(&self, joined: &JoinedClusters) -> bool {
        let is_missing = |name: &str| !joined.contains_key(name) && ClusterName::new(name).is_ok();
        let waits = |secret: &Secret| {
            let labels = secret.metadata.labels.as_ref();
            labels.and_then(|labels| labels.get(CLUSTER_LABEL)).is_some_and(|name| is_missing(name))
        };
        let by_profiles = self.profiles.as_ref().is_none_or(|profiles| {
            profiles.synced() && !profiles.profiles.any(|profile| is_missing(cluster_name(&profile.metadata)))
        });
        let is_reported = |report: &ClusterMetrics| reports(report) && is_missing(&report.metadata.name);
        let by_reports = !self.counts_reports || !self.cluster_metrics.any(is_reported);
        by_profiles && by_reports && !self.secrets.any(waits)
    }

    /// Takes over what a write was answered with, so that the next decision need not wait for its watch event.
    pub fn absorb_answer(&self, change: &Change, answer: &Value) {
        self.tables.absorb_answer(change, answer);
        self.ocm.absorb_answer(change, answer);
    }
}

fn reports(report: &ClusterMetrics) -> bool {
    !report.metadata.labels.contains_key(HUB_LABEL)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, sync::Arc};

    use axum::Router;
    use serde_json::json;

    use super::*;
    use crate::{
        testing::Server,
        worker::{CLUSTER_METRICS, Joined},
    };
    use fedq_domain::cluster::Connection;

    fn secret(name: &str, cluster: &str) -> Secret {
        serde_json::from_value(json!({
            "metadata": {"name": name, "resourceVersion": "3", "labels": {CLUSTER_LABEL: cluster}},
        }))
        .expect("a Secret")
    }

    fn report(name: &str, labels: &Value) -> ClusterMetrics {
        let metadata = json!({"name": name, "resourceVersion": "3", "labels": labels});
        serde_json::from_value(json!({"metadata": metadata})).expect("a ClusterMetrics")
    }

    #[tokio::test]
    async fn a_cluster_that_only_reports_is_waited_for() {
        let server = Server::start(Router::new());
        let mut hub = Hub::new(server.client(), "uid".to_owned(), "fedq-system".to_owned());
        hub.cluster_metrics.absorb(report("far", &json!({})));
        hub.cluster_metrics.absorb(report("followed", &json!({HUB_LABEL: "hub"})));
        assert!(hub.lists(&joined(&[])), "it does not count here");
        hub.counts_reports = true;
        assert!(!hub.lists(&joined(&[])), "far would be taken for one that left");
        assert!(hub.lists(&joined(&["far"])), "our own report of a followed cluster joins none");
    }

    fn joined(names: &[&str]) -> JoinedClusters {
        let entry = Arc::new(Joined::new(Connection::Connecting, CLUSTER_METRICS));
        let entry = |name: &&str| (ClusterName::new(name).expect("a name"), Arc::clone(&entry));
        names.iter().map(entry).collect::<BTreeMap<_, _>>()
    }

    #[tokio::test]
    async fn a_cluster_that_is_not_listed_yet_is_waited_for() {
        let server = Server::start(Router::new());
        let hub = Hub::new(server.client(), "uid".to_owned(), "fedq-system".to_owned());
        assert!(hub.lists(&joined(&[])));
        hub.secrets.absorb(secret("one", "east"));
        hub.secrets.absorb(secret("two", "west"));
        assert!(!hub.lists(&joined(&[])));
        assert!(!hub.lists(&joined(&["east"])), "west would be taken for one that left");
        assert!(hub.lists(&joined(&["east", "west"])));
        assert!(hub.lists(&joined(&["east", "north", "west"])), "others may be there besides");
        hub.secrets.absorb(secret("three", "No Name"));
        assert!(hub.lists(&joined(&["east", "west"])), "what joins nothing is not waited for");
    }
}
