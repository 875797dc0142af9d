//! ClusterResourceClaims: read once, and their status rendered once.

use crate::domain::{
    claim_status::{ClaimStatus, Condition},
    resources::Aliases,
};

use super::{
    types::claim::{ClusterResourceClaim, ClusterResourceClaimStatus},
    write::Change,
};

/// Field manager of the status.
pub const STATUS_MANAGER: &str = "fedq-status";

/// The conditions that the claim has now; ones that are not fedq's are left out, and alone.
pub fn conditions(_claim: &ClusterResourceClaim) -> Vec<Condition> {
    todo!()
}

pub fn render_status(_status: &ClaimStatus, _aliases: &Aliases) -> ClusterResourceClaimStatus {
    todo!()
}

/// The write that the claim needs to say `status`; `None` when only the time of observation differs.
pub fn status_change(
    _claim: &ClusterResourceClaim,
    _status: &ClaimStatus,
    _aliases: &Aliases,
) -> Option<Change> {
    todo!()
}
