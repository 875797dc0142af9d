//! Who did what through fedq.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::time::Time;

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct AuditEntry {
    pub at: Time,
    pub who: String,
    pub verb: String,
    pub object: String,
    /// What was done in particular. Its fields depend on `verb` and on the kind of `object`, and more come with each new
    /// one, so none is promised: `edit` of a claim has `changes`, as the answer to the edit has them; `set-base` has
    /// `flavor`, `resource` and `base`; `create` has the name of what was made. It is for people to read, and never holds
    /// a Secret's content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub detail: Option<serde_json::Value>,
    /// `ok`, or why not.
    pub outcome: String,
    /// Who acted as `who`, where that was somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// How many items a page has at most; 0 leaves it to the server.
    #[serde(default)]
    pub limit: u32,
    /// `continue` of the page before.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Only what this person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// Only what was done to this object, such as `clusterresourceclaims/a-resource-claim`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Only what was done since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
}
