//! Kubernetes Events on claims: what `kubectl describe` tells a person who asks what happened.

use tokio_util::sync::CancellationToken;

use super::{client::ClusterClient, types::claim::ClusterResourceClaim};

/// Something that happened to a claim.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Happening {
    ClaimCreated,
    CapacityChanged,
    QuotaApplied,
    Draining,
    OverCommitted,
    Lost,
    Returned,
    Conflict,
}

/// Hands events over without waiting; clones feed the same sender.
#[derive(Clone)]
pub struct ClaimEvents {}

/// Sends them.
pub struct EventSender {}

/// Both ends.
pub fn claim_events() -> (ClaimEvents, EventSender) {
    todo!()
}

impl ClaimEvents {
    /// Says that something happened to `claim`. Told twice within minutes, it is sent once.
    pub fn tell(&self, _claim: &ClusterResourceClaim, _happening: Happening, _note: String) {
        todo!()
    }
}

impl EventSender {
    /// Runs until cancelled. Events are best effort: one that cannot be sent is logged and forgotten.
    pub async fn run(self, _client: ClusterClient, _cancel: CancellationToken) {
        todo!()
    }
}
