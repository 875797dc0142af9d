//! ClusterResourceClaims: the editable part as it stands in Kubernetes, and what fedq makes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    quantity::{Quantities, Quantity},
    time::Time,
};

/// What a person edits.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimSpec {
    #[schema(min_length = 1, max_length = 63)]
    pub cluster_name: String,
    #[serde(default)]
    pub nominal_resources: Quantities,
    #[serde(default)]
    pub resource_assignments: Vec<Assignment>,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Assignment {
    #[schema(min_length = 1, max_length = 253)]
    pub cluster_queue_name: String,
    #[schema(min_length = 1, max_length = 253)]
    pub flavor: String,
    pub resources: Quantities,
}

/// A claim as lists show it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    pub name: String,
    pub cluster: String,
    pub generation: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Time>,
    pub ready: Ready,
    /// What else there is to know of it, while it applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    pub nominal: Vec<Nominal>,
    pub assignments: Vec<AssignmentState>,
    /// What the assignments ask for beyond what the queues get, by resource.
    pub short: Quantities,
}

#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Ready {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// A condition that stands on a claim only while it applies.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Note {
    /// `Incomplete`, `Overcommitted`, `HubRunsLocally`, `QueueProblems`.
    pub kind: String,
    pub reason: String,
    pub message: String,
}

/// One key of `nominalResources`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Nominal {
    pub resource: String,
    pub amount: Quantity,
    /// A person owns it: it limits what may be assigned. Otherwise it follows capacity.
    pub cap: bool,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct AssignmentState {
    pub queue: String,
    pub flavor: String,
    /// What the claim asks for.
    pub requested: Quantities,
    /// What the queue gets now.
    pub effective: Quantities,
    /// `Assigned`, or what keeps it from what it asks for: what weighs most of its resources.
    pub reason: String,
    /// The same of single resources, where it is another.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One claim with everything an editor needs to see.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimDetail {
    pub name: String,
    /// In double quotes it goes into `If-Match` of an edit, as the `ETag` does.
    pub resource_version: String,
    pub generation: i64,
    pub spec: ClaimSpec,
    /// Keys of the spec's `nominalResources` that fedq keeps at what the nodes have. A file that is applied leaves them
    /// out: whoever writes one makes a cap of it.
    pub follows: Vec<String>,
    /// What the daemon knows of it; absent before it has looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Claim>,
    /// Of the cluster, by flavor: what it has, what is assigned and what is left.
    pub flavors: Vec<super::cluster::Flavor>,
    pub foreign: Quantities,
    /// Who holds what of the queues this claim names: base, and each cluster's part.
    pub holders: Vec<super::quota::Cell>,
}

/// What an edit does, or would do.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimChange {
    /// The version after the edit; the one it was compared with for a diff or a dry run, `0` where there is none yet.
    pub resource_version: String,
    pub dry_run: bool,
    /// What each queue gains and loses.
    pub changes: Vec<CellChange>,
    /// Nothing stands in the way, but the person should know.
    pub warnings: Vec<String>,
    pub spec: ClaimSpec,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct CellChange {
    pub queue: String,
    pub flavor: String,
    pub resource: String,
    pub before: Quantity,
    pub after: Quantity,
    /// The difference, with its sign.
    pub change: String,
}

/// Sets one assignment; without resources it is taken away.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Assign {
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 253
    )]
    pub queue: String,
    #[schema(
        pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length = 253
    )]
    pub flavor: String,
    /// Replaces the assignment's resources; empty removes the assignment.
    #[serde(default)]
    pub resources: Quantities,
}

/// One line of a claim's history.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClaimHistory {
    pub at: Time,
    pub claim: String,
    pub generation: i64,
    pub who: String,
    /// Absent: the claim was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ClaimSpec>,
    /// Absent: the claim was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ClaimSpec>,
}
