//! What each part is told, from the configuration.

use std::sync::Arc;

use fedq_controllers::{capacity, cluster, quota, task, writer::WriterConfig};
use fedq_domain::task::limits;
use fedq_k8s::{
    client::ClientLimits,
    hub::Hub,
    kubeconfig::Rules,
    list_watch::{Limits, Timing},
};

use super::{Daemon, host};

impl Daemon {
    /// Tells this hub's objects from another's.
    pub(super) fn hub_id(&self, hub: &Hub) -> String {
        self.config.hub_name.clone().unwrap_or_else(|| hub.uid.clone())
    }

    pub(super) fn rules(&self) -> Rules {
        let clusters = &self.config.clusters;
        Rules {
            allow_loopback: clusters.allow_loopback,
            allow_proxy: clusters.allow_proxy,
            allow_system_roots: clusters.allow_system_roots,
            files_from: None,
        }
    }

    /// The hub has its own, so that no cluster takes what it needs.
    pub(super) fn limits(&self) -> ClientLimits {
        let clusters = &self.config.clusters;
        ClientLimits {
            dial: clusters.connect_timeout,
            headers: clusters.request_timeout,
            // A half-open connection is found at the pace at which a request is given up.
            ping_every: clusters.request_timeout * 2,
            ping_timeout: clusters.request_timeout,
            ..ClientLimits::default()
        }
    }

    pub(super) fn timing(&self) -> Timing {
        let clusters = &self.config.clusters;
        Timing {
            watch: clusters.watch_timeout,
            request: clusters.request_timeout,
            object: clusters.request_timeout * 3,
            list: clusters.request_timeout * 12,
            consistency: clusters.consistency_interval,
            ..Timing::default()
        }
    }

    pub(super) fn cluster_settings(&self) -> anyhow::Result<cluster::Settings> {
        let clusters = &self.config.clusters;
        let (objects, bytes) = self.config.most_of_a_cluster()?;
        Ok(cluster::Settings {
            rules: self.rules(),
            limits: self.limits(),
            timing: self.timing(),
            request: clusters.request_timeout,
            stale_after: clusters.stale_after,
            lost_timeout: clusters.lost_timeout,
            most: Limits { objects, bytes },
            build: host::build(),
        })
    }

    pub(super) fn capacity_settings(&self) -> anyhow::Result<capacity::Settings> {
        let (headroom, limits) = (self.config.clone(), self.config.clone());
        let checked = "the configuration was checked when it was loaded";
        Ok(capacity::Settings {
            filter: self.config.resource_filter()?,
            headroom_of: Arc::new(move |cluster| headroom.headroom(cluster).expect(checked)),
            limits_of: Arc::new(move |cluster| limits.limits(cluster).expect(checked)),
            timing: self.timing(),
            position_period: self.config.clusters.node_position_interval,
            stale_after: self.config.clusters.stale_after,
            publish: self.config.capacity.cluster_metrics.publish,
        })
    }

    pub(super) fn writer_config(&self) -> WriterConfig {
        WriterConfig {
            merge_window: self.config.quota.merge_window,
            deadline: self.config.clusters.request_timeout,
            may_arrive: WriterConfig::MAY_ARRIVE,
        }
    }

    pub(super) fn task_settings(&self) -> task::Settings {
        let tasks = &self.config.tasks;
        let rules = self.config.tenants().0;
        let limited = rules.iter().filter(|rule| rule.limits != limits::Limits::default());
        let limits = limited.map(|rule| (rule.tenant.namespace.clone(), rule.limits)).collect();
        let tenants = rules.into_iter().map(|rule| rule.tenant);
        task::Settings {
            spill_after: tasks.spill_after,
            start_timeout: tasks.start_timeout,
            lost_policy: tasks.lost_policy,
            keep_objects: tasks.keep_objects,
            gang: tasks.gang.fixed(),
            default_image: tasks.default_image.clone(),
            weights: tasks.weights.resolve(),
            logs: self.kept_logs.clone(),
            tenants: tenants.map(|tenant| (tenant.namespace.clone(), tenant)).collect(),
            limits,
            timing: self.timing(),
        }
    }

    pub(super) fn quota_settings(&self) -> quota::Settings {
        quota::Settings {
            aliases: self.config.aliases(),
            count_foreign: self.config.capacity.count_foreign_quota,
            lost_timeout: self.config.clusters.lost_timeout,
            removal_window: self.config.quota.removal_window,
            drift_reverts_per_minute: self.config.quota.drift_reverts_per_minute,
            copy_admission_checks: self.config.quota.copy_admission_checks.clone(),
        }
    }
}
