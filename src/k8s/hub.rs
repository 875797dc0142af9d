//! What fedq follows on the hub.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;

use super::{
    client::ClusterClient,
    follow::{Following, Wake, follow_table},
    list_watch::{Selector, State, Table},
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
    profiles::{Profiles, cluster_name},
};

pub mod ocm;
pub mod profiles;

/// Marks the Secrets that join a cluster; the value is the cluster's name.
pub const CLUSTER_LABEL: &str = "fedq.dev/cluster";

#[derive(Clone)]
pub struct Hub {
    pub client: ClusterClient,
    /// UID of the hub's kube-system namespace: a cluster with this one is the hub itself.
    pub uid: String,
    /// Where fedq keeps its own objects.
    pub namespace: String,
    pub claims: Table<ClusterResourceClaim>,
    pub queues: Table<ClusterQueue>,
    pub local_queues: Table<LocalQueue>,
    pub flavors: Table<ResourceFlavor>,
    pub cohorts: Table<Cohort>,
    pub checks: Table<AdmissionCheck>,
    pub multikueue_configs: Table<MultiKueueConfig>,
    pub multikueue_clusters: Table<MultiKueueCluster>,
    pub namespaces: Table<MetaOnly>,
    pub priority_classes: Table<WorkloadPriorityClass>,
    pub cluster_metrics: Table<ClusterMetrics>,
    /// Whether clusters that are known by a ClusterMetrics object alone count.
    pub counts_reports: bool,
    pub ocm: OcmTables,
    pub secrets: Table<Secret>,
    /// Where clusters are joined by ClusterProfiles, too.
    pub profiles: Option<Profiles>,
    /// Followed, as what follows, where MultiKueue is configured from Placements.
    pub workloads: Table<Workload>,
    /// What fedq gives Kueue to reach clusters by.
    pub kueue_secrets: Table<Secret>,
    /// Clusters that Kueue may reach by itself.
    pub cluster_profiles: Table<MetaOnly>,
    /// One of them lets fedq nominate clusters for Workloads.
    pub mutating_policies: Table<MetaOnly>,
}

impl Hub {
    pub fn new(client: ClusterClient, uid: String, namespace: String) -> Self {
        Self {
            client,
            uid,
            namespace,
            claims: Table::new(),
            queues: Table::new(),
            local_queues: Table::new(),
            flavors: Table::new(),
            cohorts: Table::new(),
            checks: Table::new(),
            multikueue_configs: Table::new(),
            multikueue_clusters: Table::new(),
            namespaces: Table::new(),
            priority_classes: Table::new(),
            cluster_metrics: Table::new(),
            counts_reports: false,
            ocm: OcmTables::default(),
            secrets: Table::new(),
            profiles: None,
            workloads: Table::new(),
            kueue_secrets: Table::new(),
            cluster_profiles: Table::new(),
            mutating_policies: Table::new(),
        }
    }

    /// Starts following everything; each task ends with `cancel`.
    pub fn follow(
        &self,
        (following, wake): (&Following, &Wake),
        tasks: &mut JoinSet<()>,
        cancel: &CancellationToken,
    ) {
        let kueue = |plural: &str| format!("/apis/kueue.x-k8s.io/v1beta2/{plural}");
        let galaxy = |plural: &str| format!("/apis/galaxy.kubestellar.io/v1alpha1/{plural}");
        let all = Selector::default;
        let start = |path: String| (path, all(), cancel.clone());
        let f = following;
        // Only these change all the time: the rest wakes everybody.
        let of_claims = f.read_by([&wake.quota]);
        follow_table(&of_claims, &self.claims, start(galaxy("clusterresourceclaims")), tasks);
        let of_queues = f.read_by(wake.of_local_queues().chain([&wake.quota]));
        follow_table(&of_queues, &self.queues, start(kueue("clusterqueues")), tasks);
        let of_local_queues = f.read_by(wake.of_local_queues());
        follow_table(&of_local_queues, &self.local_queues, start(kueue("localqueues")), tasks);
        follow_table(f, &self.flavors, start(kueue("resourceflavors")), tasks);
        follow_table(f, &self.cohorts, start(kueue("cohorts")), tasks);
        follow_table(f, &self.checks, start(kueue("admissionchecks")), tasks);
        follow_table(f, &self.multikueue_configs, start(kueue("multikueueconfigs")), tasks);
        follow_table(f, &self.multikueue_clusters, start(kueue("multikueueclusters")), tasks);
        follow_table(f, &self.priority_classes, start(kueue("workloadpriorityclasses")), tasks);
        follow_table(f, &self.cluster_metrics, start(galaxy("clustermetrics")), tasks);
        let of_namespaces = f.read_by([&wake.quota, &wake.queue, &wake.task]);
        follow_table(&of_namespaces, &self.namespaces, start("/api/v1/namespaces".to_owned()), tasks);
        let secrets = format!("/api/v1/namespaces/{}/secrets", self.namespace);
        let joined = Selector { labels: Some(CLUSTER_LABEL.to_owned()), fields: None };
        follow_table(f, &self.secrets, (secrets, joined, cancel.clone()), tasks);
        if let Some(profiles) = &self.profiles {
            profiles.follow(f, tasks, cancel);
        }
    }

    /// The clusters that a ClusterMetrics object reports. Our own report of a followed cluster is no cluster of its own.
    pub fn reported(&self) -> Vec<ClusterName> {
        let reports =
            self.cluster_metrics.all().into_iter().filter(|report| self.counts_reports && reports(report));
        reports.filter_map(|report| ClusterName::new(&report.metadata.name).ok()).collect()
    }

    /// Whether it serves what a plan is made of. Where it does not, its queues are unknown, which is not the same as none.
    pub fn has_kueue(&self) -> bool {
        !self.queues.is_absent() && !self.flavors.is_absent()
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

    /// Whether all of it is known and being followed at this moment.
    pub fn is_current(&self) -> bool {
        let current = |state: State| matches!(state, State::Absent | State::Synced { broken: None });
        current(self.claims.state())
            && current(self.queues.state())
            && current(self.local_queues.state())
            && current(self.flavors.state())
            && current(self.cohorts.state())
            && current(self.checks.state())
            && current(self.multikueue_configs.state())
            && current(self.multikueue_clusters.state())
            && current(self.namespaces.state())
            && current(self.priority_classes.state())
            && current(self.cluster_metrics.state())
            && current(self.secrets.state())
    }

    /// Whether everything that a plan rests on is known.
    pub fn synced(&self) -> bool {
        self.claims.synced()
            && self.queues.synced()
            && self.local_queues.synced()
            && self.flavors.synced()
            && self.cohorts.synced()
            && self.checks.synced()
            && self.multikueue_configs.synced()
            && self.multikueue_clusters.synced()
            && self.namespaces.synced()
            && self.priority_classes.synced()
            && self.cluster_metrics.synced()
            && self.secrets.synced()
    }

    /// Takes over what a write was answered with, so that the next decision need not wait for its watch event.
    pub fn absorb_answer(&self, change: &Change, answer: &Value) {
        if change.is_deletion() {
            return;
        }
        match change.target.kind {
            Kind::Claim => self.claims.absorb_answer(answer),
            Kind::ClusterQueue => self.queues.absorb_answer(answer),
            Kind::AdmissionCheck => self.checks.absorb_answer(answer),
            Kind::MultiKueueConfig => self.multikueue_configs.absorb_answer(answer),
            Kind::MultiKueueCluster => self.multikueue_clusters.absorb_answer(answer),
            Kind::Workload => self.workloads.absorb_answer(answer),
            Kind::Namespace => self.namespaces.absorb_answer(answer),
            Kind::ClusterMetrics => self.cluster_metrics.absorb_answer(answer),
            // MultiKueue's credentials. Those that join clusters are somebody else's to write.
            Kind::Secret => self.kueue_secrets.absorb_answer(answer),
            Kind::Placement => self.ocm.placements.absorb_answer(answer),
            Kind::PlacementDecision => self.ocm.decisions.absorb_answer(answer),
            Kind::ManagedCluster => self.ocm.clusters.absorb_answer(answer),
            Kind::ManagedClusterSet => self.ocm.sets.absorb_answer(answer),
            Kind::AddOnPlacementScore => self.ocm.scores.absorb_answer(answer),
            _ => {}
        }
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
