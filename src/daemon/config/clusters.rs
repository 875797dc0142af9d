//! The section `clusters`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{resolve::Unusable, tasks::bytes, text};
use fedq_domain::queue::{input::NamespaceRules, pod_security::Level};

/// Of what is kept of one cluster.
const SMALLEST: u64 = 1 << 20;
/// Of objects: an empty cluster with Kueue has some hundred.
const FEWEST: usize = 1000;

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Clusters {
    pub allow_loopback: bool,
    pub allow_proxy: bool,
    pub allow_system_roots: bool,
    pub profiles: Profiles,
    #[serde(with = "text::duration")]
    pub lost_timeout: Duration,
    #[serde(with = "text::duration")]
    pub stale_after: Duration,
    #[serde(with = "text::duration")]
    pub connect_timeout: Duration,
    #[serde(with = "text::duration")]
    pub request_timeout: Duration,
    #[serde(with = "text::duration")]
    pub watch_timeout: Duration,
    #[serde(with = "text::duration")]
    pub consistency_interval: Duration,
    #[serde(with = "text::duration")]
    pub node_position_interval: Duration,
    pub max_objects: usize,
    pub max_bytes: String,
}

/// What workers' namespaces get.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Namespaces {
    pub pod_security: PodSecurity,
    pub copy_labels: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PodSecurity {
    Restricted,
    /// Most images run as root, which `restricted` refuses: people's tasks would not start.
    #[default]
    Baseline,
    Privileged,
    /// No label.
    None,
}

impl Namespaces {
    pub(super) fn rules(&self) -> NamespaceRules {
        let pod_security = match self.pod_security {
            PodSecurity::Restricted => Some(Level::Restricted),
            PodSecurity::Baseline => Some(Level::Baseline),
            PodSecurity::Privileged => Some(Level::Privileged),
            PodSecurity::None => None,
        };
        NamespaceRules { pod_security, copied_labels: self.copy_labels.iter().cloned().collect() }
    }
}

impl Clusters {
    /// Objects of one cluster, and bytes of them, that are kept.
    pub(super) fn most(&self) -> Result<(usize, usize), Unusable> {
        let key = "clusters.maxBytes";
        let most = bytes(key, &self.max_bytes)?;
        if most < SMALLEST {
            let reason = "1Mi or more: even a small cluster takes that".to_owned();
            return Err(Unusable { key: key.to_owned(), reason });
        }
        if self.max_objects < FEWEST {
            let reason = format!("{FEWEST} or more: over it a cluster is refused and loses its share");
            return Err(Unusable { key: "clusters.maxObjects".to_owned(), reason });
        }
        Ok((self.max_objects, usize::try_from(most).unwrap_or(usize::MAX)))
    }
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Profiles {
    /// Whether ClusterProfiles in `namespace` join clusters.
    pub enabled: bool,
    pub managed_service_account: String,
}

impl Default for Profiles {
    fn default() -> Self {
        Self { enabled: false, managed_service_account: "fedq".to_owned() }
    }
}

impl Default for Clusters {
    fn default() -> Self {
        Self {
            allow_loopback: false,
            allow_proxy: false,
            allow_system_roots: false,
            profiles: Profiles::default(),
            lost_timeout: Duration::from_mins(15),
            stale_after: Duration::from_secs(40),
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(10),
            watch_timeout: Duration::from_mins(5),
            consistency_interval: Duration::from_hours(1),
            node_position_interval: Duration::from_secs(30),
            max_objects: 200_000,
            max_bytes: "256Mi".to_owned(),
        }
    }
}
