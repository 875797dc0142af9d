//! What the sections mean to the domain: names resolved, quantities parsed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{ClusterNaming, Config, HeadroomSection, PodConfig, Tenant, TenantLimits};
use fedq_domain::{
    capacity::{Headroom, ResourceFilter},
    multikueue::Naming,
    queue::input::NamespaceRules,
    resources::{Aliases, Resources},
    task::{
        render,
        tenant::{ANYONE, PodRules, Rule, Tenants, is_device},
    },
};
use fedq_store::{Live, Retention};
use fedq_values::{
    ids::{ClusterName, ResourceName},
    quantity::Amount,
};

/// Every other key of a map.
pub(super) const ANY: &str = "*";

/// What is wrong with a value, for the person who wrote it. None is left after [`Config::load`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct Unusable {
    pub key: String,
    pub reason: String,
}

/// Those that can be allowed.
pub(super) fn devices(names: &[String]) -> impl Iterator<Item = ResourceName> {
    names.iter().filter_map(|name| ResourceName::new(name).ok().filter(is_device))
}

impl Config {
    pub fn aliases(&self) -> Aliases {
        Aliases::new(self.aliases.clone())
    }

    pub fn retention(&self) -> Retention {
        Retention { keep_for: self.store.history.keep_for, keep_rows: self.store.history.keep_rows }
    }

    /// Of finished tasks.
    pub fn task_retention(&self) -> Retention {
        let history = &self.tasks.history;
        Retention { keep_for: history.keep_for, keep_rows: history.keep_rows }
    }

    /// What one person may have that is not over.
    pub fn max_live(&self) -> Result<Live, Unusable> {
        self.tasks.max_live()
    }

    /// How many bytes one task may bring along, and one person send.
    pub fn upload_sizes(&self) -> Result<(u64, u64), Unusable> {
        self.tasks.uploads.sizes()
    }

    /// What fedqd keeps of one cluster: objects, and bytes of them.
    pub fn most_of_a_cluster(&self) -> Result<(usize, usize), Unusable> {
        self.clusters.most()
    }

    pub fn namespace_rules(&self) -> NamespaceRules {
        self.namespaces.rules()
    }

    /// Where logs of tasks are kept, and how many bytes of one run and of all; `None`: nowhere.
    pub fn task_logs(&self) -> Result<Option<(PathBuf, usize, u64)>, Unusable> {
        let logs = &self.tasks.logs;
        let (one, all) = logs.sizes()?;
        let beside = self.store.path.parent().unwrap_or(Path::new(""));
        Ok(logs.keep.then(|| (beside.join(&logs.folder), one, all)))
    }

    pub fn cluster_naming(&self) -> Naming {
        match self.multikueue.naming {
            ClusterNaming::PlacementCluster => Naming::PlacementCluster,
            ClusterNaming::Cluster => Naming::Cluster,
        }
    }

    /// Without any, everybody is at home in k8s-cli's namespace; what they may do there is for the hub to say.
    pub fn tenants(&self) -> Tenants {
        let rule = |tenant: &Tenant| Rule {
            users: tenant.users.clone(),
            groups: tenant.groups.clone(),
            tenant: render::Tenant {
                namespace: tenant.namespace.clone(),
                service_account: tenant.service_account.clone(),
            },
            queue: tenant.queue.clone(),
            pods: PodRules {
                resources: devices(&tenant.pod_config.resources).collect(),
                capabilities: tenant.pod_config.capabilities.iter().cloned().collect(),
                host_network: tenant.pod_config.host_network,
            },
            limits: tenant.limits.resolve("").expect("the configuration was checked when it was loaded"),
        };
        let everybody = Tenant {
            namespace: "default".to_owned(),
            users: vec![ANYONE.to_owned()],
            groups: Vec::new(),
            queue: None,
            service_account: None,
            pod_config: PodConfig::default(),
            limits: TenantLimits::default(),
        };
        match self.tasks.tenants.as_slice() {
            [] => Tenants(vec![rule(&everybody)]),
            tenants => Tenants(tenants.iter().map(rule).collect()),
        }
    }

    pub fn resource_filter(&self) -> Result<ResourceFilter, Unusable> {
        let names = |key: &str, names: &[String]| {
            names.iter().map(|name| self.resource(key, name)).collect::<Result<_, _>>()
        };
        Ok(ResourceFilter {
            also: names("capacity.resources.also", &self.capacity.resources.also)?,
            never: names("capacity.resources.never", &self.capacity.resources.never)?,
        })
    }

    /// The general headroom, with what the cluster has of its own put over it, resource by resource.
    pub fn headroom(&self, cluster: &ClusterName) -> Result<Headroom, Unusable> {
        let key = "capacity.headroom";
        let HeadroomSection { percent, absolute, clusters } = &self.capacity.headroom;
        let mut headroom = Headroom::default();
        self.add_percent(&format!("{key}.percent"), percent, &mut headroom)?;
        headroom.absolute = self.amounts(&format!("{key}.absolute"), absolute)?;
        if let Some(own) = clusters.get(cluster.as_str()) {
            let key = format!("{key}.clusters.{cluster}");
            self.add_percent(&format!("{key}.percent"), &own.percent, &mut headroom)?;
            headroom.absolute.extend(self.amounts(&format!("{key}.absolute"), &own.absolute)?);
        }
        Ok(headroom)
    }

    /// More than this of a resource is not believed of the cluster; a resource that is not named here
    /// has no limit.
    pub fn limits(&self, cluster: &ClusterName) -> Result<Resources, Unusable> {
        let mut limits = Resources::new();
        for name in [ANY, cluster.as_str()] {
            if let Some(amounts) = self.capacity.limits.get(name) {
                limits.extend(self.amounts(&format!("capacity.limits.{name}"), amounts)?);
            }
        }
        Ok(limits)
    }

    pub(super) fn resource(&self, key: &str, name: &str) -> Result<ResourceName, Unusable> {
        self.aliases()
            .resolve(name)
            .map_err(|error| Unusable { key: key.to_owned(), reason: error.to_string() })
    }

    pub(super) fn amounts(&self, key: &str, texts: &BTreeMap<String, String>) -> Result<Resources, Unusable> {
        let mut amounts = Resources::new();
        for (name, text) in texts {
            let resource = self.resource(key, name)?;
            let amount = Amount::exact(text, &resource)
                .map_err(|error| Unusable { key: format!("{key}.{name}"), reason: error.to_string() })?;
            if amounts.insert(resource.clone(), amount).is_some() {
                return Err(Unusable { key: key.to_owned(), reason: format!("{resource} is there twice") });
            }
        }
        Ok(amounts)
    }

    pub(super) fn add_percent(
        &self,
        key: &str,
        percent: &BTreeMap<String, u8>,
        headroom: &mut Headroom,
    ) -> Result<(), Unusable> {
        for (name, percent) in percent {
            if 100 < *percent {
                let reason = format!("{percent} is more than 100 percent");
                return Err(Unusable { key: format!("{key}.{name}"), reason });
            }
            if name == ANY {
                headroom.percent = *percent;
            } else {
                headroom.percent_of.insert(self.resource(key, name)?, *percent);
            }
        }
        Ok(())
    }
}
