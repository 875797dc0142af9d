//! What clusters have.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{quantity::Quantity, time::Time};

/// One (cluster, flavor, resource).
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct Capacity {
    pub cluster: String,
    /// Of the cluster: what is unknown now stands as it was last confirmed.
    pub state: String,
    pub flavor: String,
    pub resource: String,
    pub capacity: Quantity,
    /// What an autoscaler would bring beyond that, as `fedq.dev/max-capacity` of the ResourceFlavor says; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coming: Option<Quantity>,
    pub assigned: Quantity,
    pub unassigned: Quantity,
}

/// One line of the history of capacity.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
pub struct CapacityChange {
    pub at: Time,
    pub cluster: String,
    pub flavor: String,
    pub resource: String,
    /// Absent: no longer reported, which is not the same as 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Quantity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable: Option<Quantity>,
}
