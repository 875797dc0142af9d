//! Leases by which OCM's controllers on the hub say that they run.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Deserialize;

use crate::types::meta::Meta;

/// `coordination.k8s.io/v1`.
#[derive(Clone, Debug, Deserialize)]
pub struct Lease {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: LeaseSpec,
    /// When this version of it arrived.
    #[serde(skip, default = "Instant::now")]
    pub seen: Instant,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseSpec {
    #[serde(default)]
    pub holder_identity: Option<String>,
    #[serde(default)]
    pub lease_duration_seconds: Option<u32>,
    #[serde(default)]
    pub renew_time: Option<Timestamp>,
}

/// What OCM's controllers set.
const DURATION: u32 = 137;

impl Lease {
    /// Whether somebody holds it. It is renewed several times in its duration, so one who has missed two is
    /// gone. Both clocks may be wrong: what counts is how long ago it was seen to change.
    pub fn is_held(&self, now: Instant) -> bool {
        let holder = self.spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
        holder && self.spec.renew_time.is_some() && now < self.ends()
    }

    /// When it is held no longer, unless it changes before.
    pub fn ends(&self) -> Instant {
        self.seen + Duration::from_secs(u64::from(self.spec.lease_duration_seconds.unwrap_or(DURATION))) * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(spec: &serde_json::Value, after: u64) -> bool {
        let lease = serde_json::json!({"metadata": {"name": "placement-lock"}, "spec": spec});
        let lease: Lease = serde_json::from_value(lease).expect("a Lease");
        lease.is_held(lease.seen + Duration::from_secs(after))
    }

    #[test]
    fn a_lease_is_held_while_it_is_renewed() {
        let spec = serde_json::json!({
            "holderIdentity": "pod_1", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.000000Z",
        });
        assert!(held(&spec, 119), "whatever the time it says");
        assert!(!held(&spec, 120));
        let mut released = spec.clone();
        released["holderIdentity"] = serde_json::json!("");
        assert!(!held(&released, 1));
        assert!(!held(&serde_json::json!({"holderIdentity": "pod_1"}), 1));
    }
}
