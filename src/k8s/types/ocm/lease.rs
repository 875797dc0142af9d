//! Leases by which OCM's controllers on the hub say that they run.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

use crate::k8s::types::meta::Meta;

/// `coordination.k8s.io/v1`.
#[derive(Clone, Debug, Deserialize)]
pub struct Lease {
    pub metadata: Meta,
    #[serde(default)]
    pub spec: LeaseSpec,
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
    /// gone, whatever the clocks of both say.
    pub fn is_held(&self, now: Timestamp) -> bool {
        let holder = self.spec.holder_identity.as_ref().is_some_and(|holder| !holder.is_empty());
        let lasts = Duration::from_secs(u64::from(self.spec.lease_duration_seconds.unwrap_or(DURATION))) * 2;
        let end = self.spec.renew_time.map(|renewed| renewed.saturating_add(lasts).unwrap_or(Timestamp::MAX));
        holder && end.is_some_and(|end| now < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(spec: &serde_json::Value, now: &str) -> bool {
        let lease = serde_json::json!({"metadata": {"name": "placement-lock"}, "spec": spec});
        let lease: Lease = serde_json::from_value(lease).expect("a Lease");
        lease.is_held(now.parse().expect("a time"))
    }

    #[test]
    fn a_lease_is_held_while_it_is_renewed() {
        let spec = serde_json::json!({
            "holderIdentity": "pod_1", "leaseDurationSeconds": 60, "renewTime": "2026-01-01T00:00:00.000000Z",
        });
        assert!(held(&spec, "2026-01-01T00:01:59Z"));
        assert!(!held(&spec, "2026-01-01T00:02:00Z"));
        let mut released = spec.clone();
        released["holderIdentity"] = serde_json::json!("");
        assert!(!held(&released, "2026-01-01T00:00:01Z"));
        assert!(!held(&serde_json::json!({"holderIdentity": "pod_1"}), "2026-01-01T00:00:01Z"));
    }
}
