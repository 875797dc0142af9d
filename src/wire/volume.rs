//! Volumes: storage of a cluster that tasks mount by name.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{list::flag, time::Time};

/// A volume that is to be made.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateVolume {
    /// As tasks name it.
    #[schema(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length = 54)]
    pub name: String,
    /// Such as 10Gi.
    #[schema(
        pattern = r"^[+]?([0-9]*[1-9][0-9]*\.?[0-9]*|[0-9]*\.[0-9]*[1-9][0-9]*)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,6})?$",
        max_length = 64,
        example = "10Gi"
    )]
    pub size: String,
    /// Where to make it; where there is none, on the cluster of the first task that mounts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 63
    )]
    pub cluster: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 253
    )]
    pub storage_class: Option<String>,
    /// ReadWriteOnce where there are none.
    #[schema(min_items = 1, max_items = 4, value_type = Option<Vec<AccessMode>>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
}

/// A PersistentVolumeClaim that is there already, for tasks to mount.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdoptVolume {
    /// As tasks name it.
    #[schema(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length = 54)]
    pub name: String,
    /// Where the claim is.
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 63
    )]
    pub cluster: String,
    /// Its name, in the tenant's namespace there.
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 253
    )]
    pub claim: String,
    /// Tasks cannot write to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// Kubernetes' words, for the document.
#[derive(Clone, Copy, ToSchema)]
#[expect(dead_code, reason = "the domain reads the words")]
#[expect(clippy::enum_variant_names, reason = "the words are those of Kubernetes")]
enum AccessMode {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

/// Whose volumes, and which part of the list.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
#[serde(rename_all = "camelCase")]
pub struct VolumesQuery {
    /// Everybody's; takes the right to do so in all namespaces.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = bool)]
    pub all_users: bool,
    /// How many items a page has at most; 0 leaves it to the server.
    #[serde(default)]
    pub limit: u32,
    /// `continue` of the page before.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    pub id: String,
    pub name: String,
    pub user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    pub namespace: String,
    pub size: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    pub access_modes: Vec<String>,
    /// As the phase of its PersistentVolumeClaim, `Unknown` while nobody can ask its cluster, or `Terminating`.
    #[schema(pattern = "^(Pending|Bound|Lost|Unknown|Terminating)$")]
    pub state: String,
    /// Why it is not Bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The PersistentVolumeClaim.
    pub claim: String,
    /// The claim was there before, and stays when the volume goes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopted: bool,
    /// Tasks cannot write to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Ids of tasks that use it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub used_by: Vec<String>,
    pub created: Time,
}
