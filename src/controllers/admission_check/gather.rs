//! The hub's objects as they are now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;

use crate::{
    domain::{
        ids::ClusterName,
        multikueue::{Check, Decided, Existing, Source},
    },
    k8s::{
        hub::Hub,
        multikueue::{secret_cluster, secret_name},
        read::multikueue::{self as read, Dispatched},
    },
};

pub(super) struct Seen {
    pub checks: Vec<Check>,
    pub placements: BTreeMap<String, Decided>,
    pub configs: BTreeMap<String, Existing<Vec<String>>>,
    pub clusters: BTreeMap<String, Existing<Source>>,
    /// Ours for Kueue, by the cluster that they are for.
    pub secrets: BTreeMap<ClusterName, Arc<Secret>>,
    pub running: BTreeSet<String>,
    /// Whether `running` changes by time alone.
    pub settling: bool,
}

impl Seen {
    pub fn gather(hub: &Hub, (hub_id, kueue_namespace): (&str, &str), settled: Timestamp) -> Self {
        let mut running = BTreeSet::new();
        let mut settling = false;
        for workload in hub.workloads.all() {
            let dispatched = Dispatched::new(&workload);
            running.extend(dispatched.needs(settled).map(str::to_owned));
            settling |= dispatched.is_settling(settled);
        }
        Self {
            checks: read::checks(&hub.checks),
            placements: read::placements(hub, kueue_namespace),
            configs: read::configs(&hub.multikueue_configs, hub_id),
            clusters: read::clusters(&hub.multikueue_clusters, hub_id),
            secrets: secrets(hub),
            running,
            settling,
        }
    }
}

fn secrets(hub: &Hub) -> BTreeMap<ClusterName, Arc<Secret>> {
    let cluster = |secret: &Secret| {
        let cluster = secret_cluster(secret)?;
        (secret.metadata.name.as_deref() == Some(secret_name(&cluster).as_str())).then_some(cluster)
    };
    let all = hub.kueue_secrets.all().into_iter();
    all.filter_map(|secret| Some((cluster(&secret)?, secret))).collect()
}
