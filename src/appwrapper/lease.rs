//! Whether the Lease is still ours. The lease manager waits and tries again; whoever acts must know when to stop.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Until it is ours.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// To end before another takes it: for requests under way, and clocks that differ a little.
const MARGIN: SignedDuration = SignedDuration::from_secs(2);

/// Returns when the Lease is another's, or was not seen renewed for about as long as it lasts. `patience` is for its
/// first look.
pub async fn lapse(
    leases: Api<Lease>,
    name: &str,
    identity: &str,
    patience: Duration,
    clock: fn() -> Timestamp,
) {
    let mut ends = Instant::now() + patience;
    loop {
        match timeout_at(ends, leases.get(name)).await {
            Err(_) => return,
            Ok(Err(error)) => tracing::warn!("Cannot look at the Lease `{name}`: {error}"),
            Ok(Ok(lease)) => match left(&lease, identity, clock()) {
                Some(left) => ends = Instant::now() + left,
                None => return,
            },
        }
        // A look more than once before it ends: it may be renewed late.
        let left = ends.saturating_duration_since(Instant::now());
        sleep_until(ends.min(Instant::now() + LOOK_EVERY.min((left / 2).max(LOOK_AGAIN)))).await;
        if ends <= Instant::now() {
            return;
        }
    }
}

/// Returns once the Lease was seen to be ours for at least so long. A process that is started anew under the same name finds the
/// one of its predecessor, which may end before it is renewed.
pub async fn held(
    leases: &Api<Lease>,
    name: &str,
    identity: &str,
    at_least: Duration,
    clock: fn() -> Timestamp,
) {
    loop {
        match leases.get(name).await {
            Ok(lease) if left(&lease, identity, clock()).is_some_and(|left| at_least < left) => return,
            Ok(_) => {}
            Err(error) => tracing::warn!("Cannot look at the Lease `{name}`: {error}"),
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// How long it is ours; `None` if it is not.
fn left(lease: &Lease, identity: &str, now: Timestamp) -> Option<Duration> {
    let spec = lease.spec.as_ref().filter(|spec| spec.holder_identity.as_deref() == Some(identity))?;
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds?.into());
    let ends = spec.renew_time.as_ref()?.0 + lasts - MARGIN;
    Duration::try_from(ends.duration_since(now)).ok().filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;
    use crate::cases::server;

    #[expect(clippy::disallowed_methods, reason = "Leases are of the time that is")]
    fn now() -> Timestamp {
        Timestamp::now()
    }

    fn lease(holder: &str, seconds: i32) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "default", "name": "lease"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": now().to_string()},
        })
    }

    /// The Lease at first, and from then on nothing but this.
    async fn lapsed(first: Value, then: Option<(u16, Value)>) -> Duration {
        let asked = Arc::new(AtomicUsize::new(0));
        let client = server::client(move |_| {
            if asked.fetch_add(1, Ordering::SeqCst) == 0 { Some((200, first.clone())) } else { then.clone() }
        });
        let began = Instant::now();
        let patience = Duration::from_mins(1);
        let lapse = lapse(Api::namespaced(client, "default"), "lease", "me", patience, now);
        tokio::time::timeout(Duration::from_secs(30), lapse).await.expect("it lapses");
        began.elapsed()
    }

    #[tokio::test]
    async fn a_lease_that_cannot_be_seen_lapses_in_its_time() {
        let (failing, silent) = tokio::join!(
            lapsed(lease("me", 5), Some(server::failure(500, "no leader"))),
            lapsed(lease("me", 5), None),
        );
        for took in [failing, silent] {
            assert!((Duration::from_secs(2)..Duration::from_secs(5)).contains(&took), "{took:?}");
        }
    }

    #[tokio::test]
    async fn a_predecessors_lease_is_held_once_it_is_renewed() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let client = server::client(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
            0 => Some((200, lease("me", 1))),
            // It has some seconds left, and a slow server needs as many to renew it.
            1 => Some((200, lease("me", 7))),
            2 => Some((200, lease("another", 15))),
            _ => Some((200, lease("me", 15))),
        });
        held(&Api::namespaced(client, "default"), "lease", "me", Duration::from_secs(8), now).await;
        assert_eq!(looks.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn a_lease_that_is_renewed_late_is_seen_to_be() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let client = server::client(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
            // One second less the margin.
            0 => Some((200, lease("me", 3))),
            1 => Some((200, lease("me", 15))),
            _ => Some((200, lease("another", 15))),
        });
        let patience = Duration::from_mins(1);
        lapse(Api::namespaced(client, "default"), "lease", "me", patience, now).await;
        assert_eq!(looks.load(Ordering::SeqCst), 3, "it was looked at once more before its time was over");
    }

    #[tokio::test]
    async fn a_lease_of_another_has_lapsed() {
        assert!(lapsed(lease("another", 3600), None).await < Duration::from_secs(2));
        // Ours, renewed too long ago.
        assert!(lapsed(lease("me", 1), None).await < Duration::from_secs(2));
    }
}
