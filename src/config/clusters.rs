//! The section `clusters`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::text;

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
        }
    }
}
