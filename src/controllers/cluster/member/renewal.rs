//! A token that fedq joined with ends. It is made anew well before, with the token itself, and put into the Secret it came from;
//! that connects the cluster anew, as whenever somebody puts another kubeconfig there.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::{info, warn};

use fedq_base::telemetry::chain;
use fedq_k8s::{
    client::{ApiError, ClusterClient, RetryClass},
    join_token::{self, Validity},
    kubeconfig::{self, KUBECONFIG_KEY, KubeconfigError},
    write::{self, Action, Change, Kind, Target},
};

use super::{
    super::{CONTEXT, MANAGER, membership::Origin},
    Member,
};

/// When a Secret was last given a new token.
const RENEWED: &str = "fedq.dev/token-renewed";
const NOT_AGAIN_FOR: SignedDuration = SignedDuration::from_hours(1);
/// After a failure, if that much time is left.
const RETRY: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error("the Secret is not known, or not as it was")]
    Changed,
    #[error("its kubeconfig cannot be used")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("the cluster makes no new one")]
    Token(#[source] ApiError),
    #[error("the hub does not take the Secret with the new one")]
    Secret(#[source] ApiError),
}

impl Member {
    /// Makes a new token if it is time. `again`: not before, after a failure.
    pub(super) async fn renew(&self, client: &ClusterClient, again: &mut Option<Instant>) {
        let Some(validity) = client.renewable() else { return };
        let Origin::Secret(name) = &self.origin else { return };
        let now = self.context.all.clock.now();
        if now < validity.renewal() || again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let left = validity.expires.duration_since(now);
        let pause = RETRY.min(left / 4).max(SignedDuration::from_secs(1));
        *again = Some(Instant::now() + Duration::try_from(pause).unwrap_or_default());
        match self.replace_token(client, name, validity, now).await {
            Ok(Some(expires)) => {
                info!(cluster.name = %self.name, "Made a new token for `{}`, good until {expires}", self.name);
            }
            Ok(None) => {}
            Err(error) => warn!(
                cluster.name = %self.name,
                "Could not make a new token for `{}`, whose own is good until {}: {}: apply deploy/worker/rbac.yaml there, \
                 or put a new kubeconfig into the Secret `{name}`",
                self.name, validity.expires, chain(&error)
            ),
        }
    }

    /// Until when the new one is good; nothing where there was one a moment ago.
    async fn replace_token(
        &self,
        client: &ClusterClient,
        name: &str,
        validity: Validity,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, RenewalError> {
        let (hub, settings) = (&self.context.all.hub, &self.context.settings);
        let secret = hub.secrets.get(Some(&hub.namespace), name).ok_or(RenewalError::Changed)?;
        let annotation = |key: &str| secret.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let renewed = annotation(RENEWED).and_then(|at| at.parse::<Timestamp>().ok());
        if renewed.is_some_and(|at| is_recent(at, validity, now)) {
            return Ok(None);
        }
        let (key, kubeconfig) = kubeconfig_of(&secret).ok_or(RenewalError::Changed)?;
        let checked = kubeconfig::check(kubeconfig, annotation(CONTEXT), &settings.rules)?;
        // Somebody put another there a moment ago.
        if checked.renewable() != Some(validity) || checked.server() != client.server() {
            return Err(RenewalError::Changed);
        }
        let made = join_token::make(&client.kube(), settings.request).await.map_err(RenewalError::Token)?;
        let change = Change {
            target: Target::namespaced(Kind::Secret, &hub.namespace, name),
            action: Action::Merge(patch(&secret, key, checked.render_with(&made.token), now)),
            manager: MANAGER,
        };
        match write::send(&hub.client.kube(), &change, settings.request).await {
            Ok(_) => Ok(Some(made.expires)),
            Err(error) if error.class == RetryClass::Conflict => Err(RenewalError::Changed),
            Err(error) => Err(RenewalError::Secret(error)),
        }
    }
}

/// Whoever keeps Secrets elsewhere may put the old token back, again and again. A server may grant less than an hour.
fn is_recent(renewed: Timestamp, of: Validity, now: Timestamp) -> bool {
    let pause = NOT_AGAIN_FOR.min(of.expires.duration_since(of.issued) / 3);
    (SignedDuration::ZERO..pause).contains(&now.duration_since(renewed))
}

fn kubeconfig_of(secret: &Secret) -> Option<(&'static str, &[u8])> {
    let data = secret.data.as_ref()?;
    let of = |key: &'static str| data.get(key).map(|bytes| (key, bytes.0.as_slice()));
    of(KUBECONFIG_KEY).or_else(|| of("value"))
}

/// The new kubeconfig has one context, whatever was chosen in the old one. It replaces what was read, and no other.
fn patch(secret: &Secret, key: &str, kubeconfig: String, now: Timestamp) -> Value {
    json!({
        "metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "annotations": {CONTEXT: null, RENEWED: now.to_string()},
        },
        "data": {key: ByteString(kubeconfig.into_bytes())},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_token_that_is_put_back_is_replaced_once_in_a_while() {
        let at = |seconds: i64| Timestamp::from_second(1_764_000_000 + seconds).expect("a time");
        let month = Validity { issued: at(0), expires: at(30 * 86_400) };
        assert!(is_recent(at(0), month, at(3599)) && !is_recent(at(0), month, at(3600)));
        let short = Validity { issued: at(0), expires: at(600) };
        assert!(
            is_recent(at(0), short, at(199)) && !is_recent(at(0), short, at(200)),
            "before it is due again"
        );
        assert!(!is_recent(at(60), month, at(0)), "a time to come is nobody's");
    }
}
