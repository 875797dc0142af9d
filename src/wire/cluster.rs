//! Joined clusters.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{quantity::Quantities, time::Time};

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    pub name: String,
    /// `Connecting`, `Ready`, `Stale`, `Lost`, `Quarantined`, `Refused` or `Unreached`.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Why it is in that state, where it is not `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The identity it answers with, where that is why it is quarantined: what `confirm` accepts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_identity: Option<String>,
    pub cordoned: bool,
    /// Where fedq knows it from: `kubeconfig`, `clusterProfile`, `clusterMetrics` or `managedCluster`.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kueue_version: Option<String>,
    /// Who runs AppWrappers there: `upstream`, `fedq` or `none`. Told of a cluster that is asked for by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_wrappers: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_expires: Option<Time>,
    /// When it last answered. A stream does not tell of this alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    pub nodes: Nodes,
    /// Allocatable resources of usable nodes.
    pub capacity: Quantities,
    /// Quota in the cluster that is not fedq's.
    pub foreign: Quantities,
    pub flavors: Vec<Flavor>,
    /// The claim in force for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Nodes {
    pub total: u32,
    pub usable: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Flavor {
    pub name: String,
    pub capacity: Quantities,
    /// What an autoscaler would bring beyond that, as `fedq.dev/max-capacity` of the ResourceFlavor says.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    pub coming: Quantities,
    pub assigned: Quantities,
    pub unassigned: Quantities,
}

/// Asks to join a cluster. The kubeconfig goes into a Secret on the hub and is never shown again.
#[derive(Clone, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinCluster {
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 63
    )]
    pub name: String,
    /// A kubeconfig as text, with a token or a certificate in it: no paths, no programs to run.
    #[schema(format = Password, min_length = 1)]
    pub kubeconfig: String,
    /// The context to use; the current one where absent.
    #[schema(max_length = 1024)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
}

impl std::fmt::Debug for JoinCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinCluster").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Accepts the cluster that now answers as the one that was joined.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfirmIdentity {
    /// UID of its kube-system namespace; the one fedq found where absent.
    #[schema(min_length = 1, max_length = 128)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// What was done, or would be done.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    pub message: String,
    #[schema(required)]
    #[serde(default)]
    pub dry_run: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
