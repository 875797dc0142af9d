//! What is known of all Placements, published whole after each change: lists read it, and a
//! decision is explained from it at any time.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;

use super::{
    Writer,
    changes::Report,
    hub::Hub,
    spec::{Placement, PlacementKey},
};
use fedq_values::ids::ClusterName;

#[derive(Clone, Debug, Default)]
pub struct PlacementView {
    /// Counts up with every publication.
    pub revision: u64,
    /// Whether the hub serves OCM's kinds, and all of them are known.
    pub known: bool,
    /// With all that was decided, written or not: what Placements are evaluated with, by the daemon itself and by
    /// whoever explains or simulates.
    pub hub: Arc<Hub>,
    pub placements: BTreeMap<PlacementKey, Arc<PlacementRow>>,
}

/// One Placement as it stands on the hub.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacementRow {
    pub placement: Arc<Placement>,
    pub writer: Writer,
    /// The clusters that it chose, best first, where fedq decides.
    pub best: Option<Arc<[ClusterName]>>,
    /// What its status says now.
    pub report: Report,
    /// The clusters of its decisions, in their order.
    pub decided: Vec<String>,
    pub created: Option<Timestamp>,
    /// Why something of it could not be written.
    pub failures: Vec<String>,
}
