//! The keys of the file with their defaults. `config/fedqd.yaml` explains each of them; a test keeps
//! the two alike.

use std::{
    collections::BTreeMap,
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    clusters::{Clusters, Namespaces},
    placement::Placement,
    tasks::Tasks,
    text,
};
use fedq_base::telemetry::{LogFormat, LogLevel};
use fedq_values::ids::ResourceName;

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    pub namespace: String,
    /// `None`: the UID of the hub's kube-system namespace.
    pub hub_name: Option<String>,
    pub hub: Hub,
    pub store: StoreSection,
    pub api: Api,
    pub webhook: Webhook,
    pub metrics: MetricsListener,
    pub clusters: Clusters,
    pub namespaces: Namespaces,
    pub capacity: Capacity,
    pub aliases: BTreeMap<String, ResourceName>,
    pub quota: Quota,
    pub tasks: Tasks,
    pub multikueue: MultiKueue,
    pub placement: Placement,
    pub log: Log,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hub {
    /// `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    pub context: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StoreSection {
    pub path: PathBuf,
    pub history: History,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct History {
    #[serde(with = "text::duration")]
    pub keep_for: Duration,
    pub keep_rows: u32,
    #[serde(with = "text::duration")]
    pub prune_interval: Duration,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Api {
    pub address: SocketAddr,
    pub tls: Tls,
    pub token_file: Option<PathBuf>,
    pub audience: String,
    pub insecure_x_user: bool,
    pub insecure_admin: bool,
    /// The web page at `/ui`.
    pub page: bool,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Tls {
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub self_signed: bool,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhook {
    pub address: Listen,
    pub service: Service,
    /// Instead of the service, where the hub's API server reaches us by a URL.
    pub url: Option<String>,
    /// Both `None`: fedqd issues its own certificate and registers its authority with the hub.
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Service {
    pub name: String,
    /// `None`: [`Config::namespace`].
    pub namespace: Option<String>,
}

/// An address to listen on, or the word `disabled`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Listen {
    At(SocketAddr),
    Disabled,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsListener {
    pub address: SocketAddr,
    pub allow_non_loopback: bool,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Capacity {
    pub resources: ResourceNames,
    pub headroom: HeadroomSection,
    pub count_foreign_quota: bool,
    pub cluster_metrics: ClusterMetrics,
    /// By cluster, `*` for each: more than this is not believed.
    pub limits: BTreeMap<String, BTreeMap<String, String>>,
}

/// Besides cpu, memory and every extended resource.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ResourceNames {
    pub also: Vec<String>,
    pub never: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HeadroomSection {
    /// By resource, `*` for each other.
    pub percent: BTreeMap<String, u8>,
    /// By resource.
    pub absolute: BTreeMap<String, String>,
    /// What differs in single clusters.
    pub clusters: BTreeMap<String, ClusterHeadroom>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterHeadroom {
    pub percent: BTreeMap<String, u8>,
    pub absolute: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterMetrics {
    pub watch: bool,
    pub publish: bool,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Quota {
    #[serde(with = "text::duration")]
    pub merge_window: Duration,
    pub drift_reverts_per_minute: u32,
    #[serde(with = "text::duration")]
    pub removal_window: Duration,
    pub copy_admission_checks: Vec<String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MultiKueue {
    pub kueue_namespace: String,
    pub naming: ClusterNaming,
    #[serde(with = "text::duration")]
    pub token_lifetime: Duration,
    pub dispatcher: bool,
}

/// What a MultiKueueCluster is called.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ClusterNaming {
    #[default]
    PlacementCluster,
    Cluster,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

impl Default for Config {
    fn default() -> Self {
        let gpu = ResourceName::new("nvidia.com/gpu").expect("a constant resource name is valid");
        Self {
            namespace: "fedq-system".to_owned(),
            hub_name: None,
            hub: Hub::default(),
            store: StoreSection::default(),
            api: Api::default(),
            webhook: Webhook::default(),
            metrics: MetricsListener::default(),
            clusters: Clusters::default(),
            namespaces: Namespaces::default(),
            capacity: Capacity::default(),
            aliases: BTreeMap::from([("gpu".to_owned(), gpu)]),
            quota: Quota::default(),
            tasks: Tasks::default(),
            multikueue: MultiKueue::default(),
            placement: Placement::default(),
            log: Log::default(),
        }
    }
}

impl Default for StoreSection {
    fn default() -> Self {
        Self { path: "data/fedq.db".into(), history: History::default() }
    }
}

impl Default for History {
    fn default() -> Self {
        Self {
            keep_for: Duration::from_hours(90 * 24),
            keep_rows: 100_000,
            prune_interval: Duration::from_hours(1),
        }
    }
}

impl Default for Api {
    fn default() -> Self {
        Self {
            address: (Ipv4Addr::LOCALHOST, 8750).into(),
            tls: Tls::default(),
            token_file: None,
            audience: "fedq".to_owned(),
            insecure_x_user: false,
            insecure_admin: false,
            page: true,
        }
    }
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            address: Listen::At((Ipv4Addr::UNSPECIFIED, 9443).into()),
            service: Service::default(),
            url: None,
            cert_file: None,
            key_file: None,
        }
    }
}

impl Default for Service {
    fn default() -> Self {
        Self { name: "fedqd-webhook".to_owned(), namespace: None }
    }
}

impl Default for MetricsListener {
    fn default() -> Self {
        Self { address: (Ipv4Addr::LOCALHOST, 8751).into(), allow_non_loopback: false }
    }
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            resources: ResourceNames::default(),
            headroom: HeadroomSection::default(),
            count_foreign_quota: true,
            cluster_metrics: ClusterMetrics::default(),
            limits: BTreeMap::new(),
        }
    }
}

impl Default for HeadroomSection {
    fn default() -> Self {
        Self {
            percent: BTreeMap::from([("*".to_owned(), 0)]),
            absolute: BTreeMap::new(),
            clusters: BTreeMap::new(),
        }
    }
}

impl Default for ClusterMetrics {
    fn default() -> Self {
        Self { watch: true, publish: false }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            merge_window: Duration::from_secs(1),
            drift_reverts_per_minute: 4,
            removal_window: Duration::from_mins(10),
            copy_admission_checks: Vec::new(),
        }
    }
}

impl Default for MultiKueue {
    fn default() -> Self {
        Self {
            kueue_namespace: "kueue-system".to_owned(),
            naming: ClusterNaming::default(),
            token_lifetime: Duration::from_hours(24),
            dispatcher: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an address: write IP:PORT, such as 0.0.0.0:9443, or disabled")]
pub struct ListenError(String);

impl Listen {
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::Disabled => None,
        }
    }
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        if text == "disabled" {
            return Ok(Self::Disabled);
        }
        text.parse().map(Self::At).map_err(|_| ListenError(text.to_owned()))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => write!(f, "{address}"),
            Self::Disabled => f.write_str("disabled"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
