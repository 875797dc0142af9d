//! Clusters that are known by a ManagedCluster and by nothing else.

use std::collections::BTreeMap;

use crate::{hub::Hub, types::ocm::ManagedCluster, worker::JoinedClusters};
use fedq_domain::{overview::ManagedOverview, resources::Resources};
use fedq_values::{
    ids::{ClusterName, ResourceName},
    quantity::{Amount, Quantity},
};

/// Those that are not joined. What fedq made itself says nothing new.
pub fn unjoined(
    hub: &Hub,
    hub_id: &str,
    joined: &JoinedClusters,
) -> BTreeMap<ClusterName, std::sync::Arc<ManagedCluster>> {
    let others = hub.ocm.clusters.all().into_iter();
    let others = others.filter(|cluster| !cluster.metadata.is_labelled(hub_id));
    others
        .filter_map(|cluster| Some((ClusterName::new(&cluster.metadata.name).ok()?, cluster)))
        .filter(|(name, _)| !joined.contains_key(name))
        .collect()
}

pub fn managed_overview(cluster: &ManagedCluster) -> ManagedOverview {
    let version = &cluster.status.version.kubernetes;
    ManagedOverview {
        unavailable: cluster.unavailable().map(|(since, message)| (since, message.to_owned())),
        known_since: cluster.metadata.creation_timestamp.as_ref().and_then(|time| time.parse().ok()),
        server: cluster.spec.managed_cluster_client_configs.first().map(|config| config.url.clone()),
        kubernetes_version: Some(version.clone()).filter(|version| !version.is_empty()),
        capacity: allocatable(cluster),
    }
}

/// Of resources that fedq counts by itself; what cannot be read is not there.
fn allocatable(cluster: &ManagedCluster) -> Resources {
    let counts = |name: &str| matches!(name, "cpu" | "memory") || name.contains('/');
    let all = cluster.status.allocatable.iter().filter(|(name, _)| counts(name));
    all.filter_map(|(name, text)| {
        let resource = ResourceName::new(name).ok()?;
        let quantity = Quantity::parse(&text.0).ok()?;
        Some((resource.clone(), Amount::offered(quantity, &resource)))
    })
    .collect()
}
