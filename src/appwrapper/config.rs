//! The operator's configuration: upstream's keys, so that its ConfigMap can be taken over.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::duration::GoDuration;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatorConfig {
    pub appwrapper: AppWrapperConfig,
    pub cert_management: CertManagement,
    pub controller_manager: ControllerManager,
    /// Without webhooks nobody asks whether a user may create what is wrapped: for tests only.
    pub webhooks_enabled: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AppWrapperConfig {
    pub autopilot: Option<Autopilot>,
    /// Whether users must be allowed to create each wrapped object themselves.
    #[serde(rename = "userRBACAdmissionCheck")]
    pub user_rbac_admission_check: bool,
    pub fault_tolerance: FaultTolerance,
    /// Put into pods that name no scheduler.
    pub scheduler_name: String,
    /// For AppWrappers that name no queue.
    pub default_queue_name: String,
}

/// Moves workloads away from nodes whose devices Autopilot found to be unhealthy.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Autopilot {
    pub inject_anti_affinities: bool,
    pub monitor_nodes: bool,
    /// By resource: node labels (as key and value) and what they mean for pods that use it.
    pub resource_taints: BTreeMap<String, Vec<NodeTaint>>,
    pub prefer_no_schedule_weight: Option<i32>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct NodeTaint {
    pub key: String,
    #[serde(default)]
    pub value: String,
    pub effect: String,
}

/// Defaults of what annotations can change, and their bounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultTolerance {
    pub admission_grace_period: GoDuration,
    pub warmup_grace_period: GoDuration,
    pub failure_grace_period: GoDuration,
    #[serde(rename = "resetPause")]
    pub retry_pause_period: GoDuration,
    pub retry_limit: i32,
    #[serde(rename = "deletionGracePeriod")]
    pub forceful_deletion_grace_period: GoDuration,
    #[serde(rename = "gracePeriodCeiling")]
    pub grace_period_maximum: GoDuration,
    #[serde(rename = "successTTLCeiling")]
    pub success_ttl: GoDuration,
}

/// Where the certificate of the webhooks is kept, and who must trust it. The namespace is the operator's own.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CertManagement {
    pub mutating_webhook_config_name: String,
    pub validating_webhook_config_name: String,
    pub webhook_service_name: String,
    pub webhook_secret_name: String,
    /// Further names and addresses that the API server calls the webhooks by.
    pub extra_names: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerManager {
    pub metrics: Address,
    pub health: Address,
    pub webhook: Address,
    pub leader_election: bool,
}

/// `host:port`, or `:port` for all addresses; `0` for none.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Address {
    pub bind_address: String,
}

fn at(address: &str) -> Address {
    Address { bind_address: address.to_owned() }
}

impl Default for OperatorConfig {
    fn default() -> Self {
        Self {
            appwrapper: AppWrapperConfig::default(),
            cert_management: CertManagement::default(),
            controller_manager: ControllerManager::default(),
            webhooks_enabled: true,
        }
    }
}

impl Default for AppWrapperConfig {
    fn default() -> Self {
        let taint = |value: &str, effect: &str| NodeTaint {
            key: "autopilot.ibm.com/gpuhealth".to_owned(),
            value: value.to_owned(),
            effect: effect.to_owned(),
        };
        let gpu = vec![
            taint("WARN", "PreferNoSchedule"),
            taint("TESTING", "NoSchedule"),
            taint("EVICT", "NoExecute"),
        ];
        Self {
            autopilot: Some(Autopilot {
                inject_anti_affinities: true,
                monitor_nodes: true,
                resource_taints: BTreeMap::from([("nvidia.com/gpu".to_owned(), gpu)]),
                prefer_no_schedule_weight: Some(50),
            }),
            user_rbac_admission_check: true,
            fault_tolerance: FaultTolerance::default(),
            scheduler_name: String::new(),
            default_queue_name: String::new(),
        }
    }
}

impl Default for FaultTolerance {
    fn default() -> Self {
        let minutes = |count: i64| GoDuration::from_secs(count * 60);
        Self {
            admission_grace_period: minutes(1),
            warmup_grace_period: minutes(5),
            failure_grace_period: minutes(1),
            retry_pause_period: GoDuration::from_secs(90),
            retry_limit: 3,
            forceful_deletion_grace_period: minutes(10),
            grace_period_maximum: minutes(24 * 60),
            success_ttl: minutes(7 * 24 * 60),
        }
    }
}

impl Default for CertManagement {
    fn default() -> Self {
        Self {
            mutating_webhook_config_name: "fedq-appwrapper-mutating".to_owned(),
            validating_webhook_config_name: "fedq-appwrapper-validating".to_owned(),
            webhook_service_name: "fedq-appwrapper-webhook".to_owned(),
            webhook_secret_name: "fedq-appwrapper-webhook".to_owned(),
            extra_names: Vec::new(),
        }
    }
}

impl Default for ControllerManager {
    fn default() -> Self {
        Self { metrics: at(":8443"), health: at(":8081"), webhook: at(":9443"), leader_election: false }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the configuration cannot be read: {0}")]
    Unreadable(#[from] Box<serde_saphyr::Error>),
    #[error("{name} {value} is above {bound_name} {bound}: lower it, or raise the other")]
    Above { name: &'static str, value: GoDuration, bound_name: &'static str, bound: GoDuration },
    #[error("successTTLCeiling {0} must be above 0")]
    SuccessTtl(GoDuration),
}

impl OperatorConfig {
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let config: Self = serde_saphyr::from_str(text).map_err(Box::new)?;
        config.appwrapper.fault_tolerance.validate()?;
        Ok(config)
    }
}

impl FaultTolerance {
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ceiling = ("gracePeriodCeiling", self.grace_period_maximum);
        let bounds = [
            ("deletionGracePeriod", self.forceful_deletion_grace_period, ceiling),
            ("resetPause", self.retry_pause_period, ceiling),
            ("failureGracePeriod", self.failure_grace_period, ceiling),
            ("admissionGracePeriod", self.admission_grace_period, ceiling),
            ("warmupGracePeriod", self.warmup_grace_period, ceiling),
            (
                "admissionGracePeriod",
                self.admission_grace_period,
                ("warmupGracePeriod", self.warmup_grace_period),
            ),
        ];
        for (name, value, (bound_name, bound)) in bounds {
            if bound < value {
                return Err(ConfigError::Above { name, value, bound_name, bound });
            }
        }
        if self.success_ttl <= GoDuration::ZERO {
            return Err(ConfigError::SuccessTtl(self.success_ttl));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `pkg/config/config_test.go`, "Config Constructors" and "Config Validation".
    #[test]
    fn defaults_are_valid_and_what_contradicts_itself_is_not() {
        assert!(OperatorConfig::read("{}").is_ok());
        let tolerance = |keys: &str| format!("{{appwrapper: {{faultTolerance: {{{keys}}}}}}}");
        for keys in [
            "deletionGracePeriod: 10s, gracePeriodCeiling: 1s",
            "resetPause: 10s, gracePeriodCeiling: 1s",
            "failureGracePeriod: 10s, gracePeriodCeiling: 1s",
            "admissionGracePeriod: 10s, gracePeriodCeiling: 1s",
            "warmupGracePeriod: 10s, gracePeriodCeiling: 1s",
            "admissionGracePeriod: 10s, warmupGracePeriod: 1s",
            "successTTLCeiling: -1s",
        ] {
            let refused = OperatorConfig::read(&tolerance(keys));
            assert!(
                matches!(refused, Err(ConfigError::Above { .. } | ConfigError::SuccessTtl(_))),
                "{keys}: {refused:?}"
            );
        }
        let text = "controllerManager: {metrics: {bindAddress: ':1'}}\nappwrapper: {faultTolerance: {resetPause: 5000000000}}";
        let config = OperatorConfig::read(text).expect("readable");
        assert_eq!(config.appwrapper.fault_tolerance.retry_pause_period, GoDuration::from_secs(5));
        assert_eq!(config.controller_manager.health.bind_address, ":8081");
        assert!(config.appwrapper.user_rbac_admission_check);
    }
}
