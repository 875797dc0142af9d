//! ClusterProfiles of a cluster manager such as OCM (`multicluster.x-k8s.io/v1alpha1`): which clusters there are, and
//! by what each is reached. They hold no secrets.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::meta::Meta;

#[derive(Clone, Debug, Deserialize)]
pub struct ClusterProfile {
    pub metadata: Meta,
    #[serde(default)]
    pub status: ClusterProfileStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileStatus {
    #[serde(default)]
    pub access_providers: Vec<AccessProvider>,
    /// What these were called before; of two with one name the newer field counts.
    #[serde(default)]
    pub credential_providers: Vec<AccessProvider>,
    /// Of the API's first draft, which OCM's guide to MultiKueue was written with.
    #[serde(default)]
    pub credentials: Vec<SecretReference>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct AccessProvider {
    pub name: String,
    #[serde(default)]
    pub cluster: ProfileCluster,
}

/// A cluster as in kubeconfigs.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ProfileCluster {
    #[serde(default)]
    pub extensions: Vec<Extension>,
    /// All else, for the kubeconfig's own rules to judge.
    #[serde(flatten)]
    pub fields: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Extension {
    pub name: String,
    #[serde(default)]
    pub extension: Value,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    pub access_ref: AccessReference,
}

#[derive(Clone, Debug, Deserialize)]
pub struct AccessReference {
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: String,
}
