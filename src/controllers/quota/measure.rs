//! What metrics say of the plan.

use std::{collections::BTreeMap, sync::Arc};

use super::{QuotaController, Round};
use fedq_base::telemetry::QuotaGauge;
use fedq_domain::{
    cluster::Connection,
    quota::{ClusterPlan, ClusterReport},
    resources::FlavorResource,
};
use fedq_k8s::worker::{Joined, Worker};
use fedq_values::ids::ClusterName;

impl QuotaController {
    /// Only of clusters whose plan is new.
    pub(super) fn measure(&self, round: &Round<'_>) {
        for name in &round.touched.clusters {
            let gauges = round.plans.get(name).map(|(plan, report)| gauges(plan, report));
            self.context.metrics.quota(name, &gauges.unwrap_or_default());
        }
    }

    /// What waits there, while the cluster tells. Then nobody knows, and its last number would pass for one of now.
    pub(super) fn measure_pending(&self, name: &ClusterName, joined: &Joined) {
        let tells = |worker: &&Arc<Worker>| {
            joined.connection == Connection::Ready && worker.has_kueue() && worker.queues.is_current()
        };
        let Some(worker) = joined.worker.as_ref().filter(tells) else {
            return self.context.metrics.forget_pending(name);
        };
        let queues = worker.queues.all();
        let ours = queues.iter().filter(|queue| queue.metadata.is_labelled(&self.context.hub_id));
        self.context.metrics.pending(name, ours.map(|queue| queue.status.pending_workloads).sum());
    }
}

fn gauges(plan: &ClusterPlan, report: &ClusterReport) -> Vec<QuotaGauge> {
    let mut gauges: BTreeMap<FlavorResource, QuotaGauge> = BTreeMap::new();
    let mut of = |at: FlavorResource, add: &dyn Fn(&mut QuotaGauge)| {
        add(gauges.entry(at.clone()).or_insert_with(|| QuotaGauge::zero(at)));
    };
    for (flavor, uses) in &report.flavors {
        for (resource, usage) in uses {
            let at = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
            of(at, &|gauge| (gauge.capacity, gauge.coming) = (usage.capacity, usage.coming));
        }
    }
    for (cell, planned) in &plan.cells {
        let at = FlavorResource { flavor: cell.flavor.clone(), resource: cell.resource.clone() };
        of(at, &|gauge| {
            gauge.assigned = gauge.assigned.saturating_add(planned.requested);
            gauge.effective = gauge.effective.saturating_add(planned.effective);
        });
    }
    gauges.into_values().collect()
}
