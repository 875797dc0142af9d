//! Files that are sent before the task that needs them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the server has of an archive.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upload {
    /// SHA-256 of its bytes, in hexadecimal digits.
    pub digest: String,
    /// It is here, so that a task may name it.
    pub stored: bool,
    /// How many bytes it has, where it is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How many bytes all that one task brings along may have together.
    pub max_bytes: u64,
}
