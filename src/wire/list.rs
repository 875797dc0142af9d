//! Lists come in pages and as streams.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// One page of a list.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    pub items: Vec<T>,
    /// Where the next page starts; absent on the last.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which part of a list.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// How many items a page has at most; 0 leaves it to the server.
    #[serde(default)]
    pub limit: u32,
    /// `continue` of the page before.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Answer with a stream of changes instead: JSON lines, or server-sent events where the request
    /// accepts `text/event-stream`. `limit` and `continue` have no effect on it.
    #[serde(default, deserialize_with = "flag", skip_serializing_if = "is_false")]
    #[param(value_type = bool)]
    pub watch: bool,
}

/// Which part of a list that no stream follows.
#[derive(Clone, Debug, Default, Deserialize, Eq, IntoParams, PartialEq, Serialize)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// How many items a page has at most; 0 leaves it to the server.
    #[serde(default)]
    pub limit: u32,
    /// `continue` of the page before.
    #[serde(rename = "continue", default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One line of a stream.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Event<T> {
    #[serde(rename = "type")]
    pub kind: EventKind,
    /// Of all but `SYNCED`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<T>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
    /// What was there when the stream began has been sent.
    Synced,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// `watch=1` and `watch=true`, as Kubernetes reads them.
pub(super) fn flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.as_str() {
        "1" | "true" | "True" | "" => Ok(true),
        "0" | "false" | "False" => Ok(false),
        _ => Err(serde::de::Error::custom("expected 1, true, 0 or false")),
    }
}

/// A [`flag`] that may be left out.
pub(super) fn some_flag<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    flag(deserializer).map(Some)
}
