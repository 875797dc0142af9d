//! The section `placement`.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Placement {
    /// Whether fedq decides Placements that nobody else decides.
    pub evaluate: bool,
}

impl Default for Placement {
    fn default() -> Self {
        Self { evaluate: true }
    }
}
