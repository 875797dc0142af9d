//! What a worker's queues have and hold, summed up for scores.

use std::collections::BTreeMap;

use super::{groups, usage};
use crate::{list_watch::Table, types::kueue::ClusterQueue};
use fedq_domain::{inventory::QueueQuota, resources::Resources};
use fedq_values::{ids::QueueName, quantity::Amount};

/// What admitted workloads hold on the cluster, in whatever queue.
pub fn reserved(queues: &Table<ClusterQueue>) -> Resources {
    let mut sum = Resources::new();
    for queue in queues.all() {
        for (at, amount) in usage(&queue.status.flavors_reservation) {
            add(&mut sum, at.resource, amount);
        }
    }
    sum
}

/// Quota and use of each queue over its flavors; a queue that cannot be read has none.
pub fn queue_quotas(queues: &Table<ClusterQueue>) -> BTreeMap<QueueName, QueueQuota> {
    let of_queue = |queue: std::sync::Arc<ClusterQueue>| {
        let mut nominal = Resources::new();
        for flavor in groups(&queue.spec.resource_groups).ok()?.0.iter().flat_map(|group| &group.flavors) {
            for quota in &flavor.resources {
                add(&mut nominal, quota.name.clone(), quota.nominal.amount());
            }
        }
        let mut held = Resources::new();
        for (at, amount) in usage(&queue.status.flavors_reservation) {
            add(&mut held, at.resource, amount);
        }
        let of = |(resource, nominal)| {
            let held = held.get(&resource).copied().unwrap_or_default();
            (resource, (nominal, held))
        };
        Some((QueueName::new(&queue.metadata.name).ok()?, nominal.into_iter().map(of).collect()))
    };
    queues.all().into_iter().filter_map(of_queue).collect()
}

fn add(sum: &mut Resources, resource: fedq_values::ids::ResourceName, amount: Amount) {
    let known = sum.entry(resource).or_default();
    *known = known.saturating_add(amount);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flavors_and_queues_are_summed_up() {
        let table = Table::new();
        for (name, nominal, held) in [("a", ["4", "2"], "3"), ("b", ["1", "0"], "1")] {
            let flavor = |(flavor, nominal): (&str, &str)| json!({"name": flavor, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": nominal}]});
            let flavors: Vec<_> = ["x", "y"].into_iter().zip(nominal).map(flavor).collect();
            let held = json!([{"name": "x", "resources": [{"name": "nvidia.com/gpu", "total": held}]}]);
            let queue = json!({
                "metadata": {"name": name, "resourceVersion": "7"},
                "spec": {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]},
                "status": {"flavorsReservation": held},
            });
            table.absorb(serde_json::from_value::<ClusterQueue>(queue).expect("a queue"));
        }
        let units = |amounts: &Resources| amounts.values().map(|amount| amount.units()).collect::<Vec<_>>();
        assert_eq!(units(&reserved(&table)), [4]);
        let quotas = queue_quotas(&table);
        let of = |name: &str| {
            quotas[&QueueName::new(name).expect("a name")]
                .values()
                .map(|(one, two)| (one.units(), two.units()))
                .collect::<Vec<_>>()
        };
        assert_eq!((of("a"), of("b")), (vec![(6, 3)], vec![(1, 1)]));
    }
}
