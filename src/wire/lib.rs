//! The shapes of the REST API, shared by the server and the command line. They carry names and
//! quantities as text: what a person may read, and nothing a Secret holds.

pub mod audit;
pub mod capacity;
pub mod check;
pub mod claim;
pub mod cluster;
pub mod k8s_cli;
pub mod list;
pub mod placement;
pub mod problem;
pub mod quantity;
pub mod quota;
pub mod task;
pub mod time;
pub mod upload;
pub mod volume;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the daemon is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Of fedqd.
    pub version: String,
    /// The version of this API.
    pub api: String,
}

/// Who a token is of.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// As the hub, or the file of tokens, names them.
    pub user: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}
