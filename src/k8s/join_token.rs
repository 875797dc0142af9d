//! The token that fedq joins a cluster with: made by the TokenRequest API, good for a month, and made anew with itself.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, api::PostParams};

use super::client::{ApiError, RetryClass, call};

/// fedq's account on a worker.
pub const NAMESPACE: &str = "fedq-system";
pub const SERVICE_ACCOUNT: &str = "fedq";
/// What is asked for; a server may grant less (`--service-account-max-token-expiration`).
const LIFETIME: Duration = Duration::from_hours(30 * 24);

/// How long a token of that account is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validity {
    pub issued: Timestamp,
    pub expires: Timestamp,
}

impl Validity {
    /// A third of its time is left then, for a fedqd or a cluster that is away.
    pub fn renewal(&self) -> Timestamp {
        let lasts = self.expires.duration_since(self.issued);
        self.issued.saturating_add(lasts * 2 / 3).unwrap_or(self.expires)
    }

    /// Whether it should have been renewed some time ago.
    pub fn is_overdue(&self, now: Timestamp) -> bool {
        let left = self.expires.duration_since(self.renewal());
        self.renewal().saturating_add(left / 4).is_ok_and(|late| late <= now)
    }
}

/// Deliberately without `Debug`.
pub struct Made {
    pub token: String,
    pub expires: Timestamp,
}

/// A token of fedq's account, for whoever may make one: who joins the cluster, and later that account itself.
pub async fn make(client: &Client, deadline: Duration) -> Result<Made, ApiError> {
    let spec = TokenRequestSpec {
        // None: what the API server itself takes.
        audiences: Vec::new(),
        expiration_seconds: i64::try_from(LIFETIME.as_secs()).ok(),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let api = Api::<ServiceAccount>::namespaced(client.clone(), NAMESPACE);
    let answer =
        call(deadline, api.create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &request)).await?;
    let status = answer.status.filter(|status| !status.token.is_empty());
    let status = status.ok_or_else(|| ApiError::new(RetryClass::Invalid, "the cluster made no token"))?;
    Ok(Made { token: status.token, expires: status.expiration_timestamp.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_renewed_while_a_third_of_its_time_is_left() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let month = Validity { issued: at("2026-11-01T00:00:00Z"), expires: at("2026-12-01T00:00:00Z") };
        assert_eq!(month.renewal(), at("2026-11-21T00:00:00Z"));
        assert!(!month.is_overdue(at("2026-11-23T11:59:59Z")));
        assert!(month.is_overdue(at("2026-11-23T12:00:00Z")));
    }
}
