//! What Kueue on the hub is given to reach a worker by: a kubeconfig with a token of an account there that may
//! do what MultiKueue does and nothing else. Made with the credential that joined the cluster, which Kueue
//! never sees.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Secret, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{
    client::{ApiError, ClusterClient, RetryClass, call},
    follow::{Following, Part, Scope, TableSet},
    hub::Hub,
    kubeconfig::KUBECONFIG_KEY,
    onboard::{OnboardError, apply, parse},
    types::meta::{HUB_LABEL, MANAGED_BY, MANAGED_BY_FEDQ},
};
use fedq_domain::multikueue::Source;
use fedq_values::{ids::ClusterName, nested};

/// The account on a worker whose tokens Kueue gets, with its rights.
pub const MANIFEST: &str = include_str!("../../deploy/worker/multikueue.yaml");
const NAMESPACE: &str = "fedq-system";
pub const SERVICE_ACCOUNT: &str = "fedq-multikueue";

/// fedq's, of `deploy/hub/dispatcher.yaml`, and Kueue's own.
pub const NOMINATION_POLICIES: [&str; 2] = ["fedq-nominations", "clear-nominated-cluster-names"];

/// On what fedq makes for Kueue: the joined cluster that it leads to.
pub const FOR_CLUSTER: &str = "fedq.dev/for-cluster";
const ISSUED: &str = "fedq.dev/issued";
const EXPIRES: &str = "fedq.dev/expires";

impl Hub {
    /// Starts following what MultiKueue is configured from, waking only whoever does that: a hub has many
    /// Workloads, and quota does not depend on them.
    pub fn follow_multikueue(
        &self,
        kueue_namespace: &str,
        hub_id: &str,
        following: &Following,
        (tasks, cancel): (&mut JoinSet<()>, &CancellationToken),
    ) {
        let scope = Scope { hub_id, namespace: kueue_namespace, wake: None, cancel };
        self.tables.follow_part(Part::MultiKueue, following, &scope, tasks);
    }

    /// Starts following what fedq as a dispatcher needs besides.
    pub fn follow_policies(
        &self,
        following: &Following,
        tasks: &mut JoinSet<()>,
        cancel: &CancellationToken,
    ) {
        let scope = Scope { hub_id: "", namespace: "", wake: None, cancel };
        self.tables.follow_part(Part::Nomination, following, &scope, tasks);
    }

    /// Whether nominations that fedq writes are emptied where Kueue empties them: without that, Kueue could admit
    /// nothing that was nominated.
    pub fn empties_nominations(&self) -> bool {
        NOMINATION_POLICIES.iter().any(|name| self.mutating_policies.get(None, name).is_some())
    }

    /// Whether all that MultiKueue is configured from is known and being followed at this moment.
    pub fn multikueue_is_current(&self) -> bool {
        self.checks.is_current()
            && self.multikueue_configs.is_current()
            && self.multikueue_clusters.is_current()
            && self.workloads.is_current()
            && self.ocm.placements.is_current()
            && self.ocm.decisions.is_current()
            && self.kueue_secrets.is_current()
            && self.cluster_profiles.is_current()
            && self.secrets.is_current()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MintError {
    #[error(
        "the credential it was joined with may not make the account {NAMESPACE}/{SERVICE_ACCOUNT} or tokens for it: apply deploy/worker/multikueue.yaml there"
    )]
    Forbidden(#[source] ApiError),
    #[error("cannot make the account {NAMESPACE}/{SERVICE_ACCOUNT}")]
    Account(#[source] OnboardError),
    #[error("cannot make a token for {NAMESPACE}/{SERVICE_ACCOUNT}: {0}")]
    Token(#[source] ApiError),
    #[error("the cluster made no token")]
    NoToken,
}

/// A token that was made. Deliberately without `Debug`.
pub struct Minted {
    pub token: String,
    /// How long, not until when: the cluster's clock may be another than ours.
    pub lasts: Duration,
}

/// No server makes a token for less. One that says so must not be asked without end.
const SHORTEST: Duration = Duration::from_mins(10);

/// Asks the worker for a token of MultiKueue's account, and makes the account first where it is missing.
pub async fn mint(
    client: &ClusterClient,
    lifetime: Duration,
    deadline: Duration,
) -> Result<Minted, MintError> {
    let asked = match request(client, lifetime, deadline).await {
        Err(error) if error.class == RetryClass::NotFound => {
            for object in parse(MANIFEST).map_err(MintError::Account)? {
                apply(&client.kube(), &object).await.map_err(unapplied)?;
            }
            request(client, lifetime, deadline).await
        }
        asked => asked,
    };
    let answer = asked.map_err(|error| match error.class {
        RetryClass::Forbidden => MintError::Forbidden(error),
        _ => MintError::Token(error),
    })?;
    let status = answer.status.ok_or(MintError::NoToken)?;
    let lasts = answer.spec.expiration_seconds.map_or(lifetime, |granted| {
        // As the server granted it, which may be another time than was asked for.
        Duration::from_secs(u64::try_from(granted).unwrap_or_default())
    });
    Ok(Minted { token: status.token, lasts: lasts.max(SHORTEST) })
}

fn unapplied(error: OnboardError) -> MintError {
    match error {
        OnboardError::Apply { source, .. } if source.class == RetryClass::Forbidden => {
            MintError::Forbidden(source)
        }
        error => MintError::Account(error),
    }
}

async fn request(
    client: &ClusterClient,
    lifetime: Duration,
    deadline: Duration,
) -> Result<TokenRequest, ApiError> {
    let spec = TokenRequestSpec {
        // None: what the API server itself takes.
        audiences: Vec::new(),
        expiration_seconds: i64::try_from(lifetime.as_secs()).ok(),
        ..TokenRequestSpec::default()
    };
    let api = Api::<ServiceAccount>::namespaced(client.kube(), NAMESPACE);
    let request = TokenRequest { spec, ..TokenRequest::default() };
    call(deadline, api.create_token_request(SERVICE_ACCOUNT, &PostParams::default(), &request)).await
}

/// Whether the cluster takes that token; `None` if it does not say.
pub async fn takes_token(client: &ClusterClient, token: &str, deadline: Duration) -> Option<bool> {
    let asker = client.with_token(token)?;
    // Everybody may ask that, but for those whose token is worth nothing.
    match call(deadline, asker.kube().apiserver_version()).await {
        Ok(_) => Some(true),
        Err(error) if error.class == RetryClass::Unauthorized => Some(false),
        Err(_) => None,
    }
}

/// What a Secret for Kueue holds. Deliberately without `Debug`.
pub struct Credential {
    pub cluster: ClusterName,
    pub token: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
}

const SECRET_PREFIX: &str = "fedq-multikueue-";

pub fn secret_name(cluster: &ClusterName) -> String {
    format!("{SECRET_PREFIX}{cluster}")
}

/// The joined cluster that a source of ours leads to.
pub fn source_cluster(source: &Source) -> Option<ClusterName> {
    let name = match source {
        Source::Secret(name) => name.strip_prefix(SECRET_PREFIX)?,
        Source::ClusterProfile(name) => name,
    };
    ClusterName::new(name).ok()
}

/// The cluster that a Secret of ours is for.
pub fn secret_cluster(secret: &Secret) -> Option<ClusterName> {
    ClusterName::new(secret.metadata.labels.as_ref()?.get(FOR_CLUSTER)?).ok()
}

/// `None` if it is not as fedq wrote it, and so is to be written anew.
pub fn read_secret(secret: &Secret) -> Option<Credential> {
    let ObjectMeta { annotations, .. } = &secret.metadata;
    let time = |key: &str| annotations.as_ref()?.get(key)?.parse::<Timestamp>().ok();
    let text = kubeconfig(secret).filter(|text| !nested::is_nested(text))?;
    let kubeconfig: Value = serde_json::from_slice(text).ok()?;
    let token = kubeconfig.pointer("/users/0/user/token")?.as_str()?.to_owned();
    Some(Credential {
        cluster: secret_cluster(secret)?,
        token,
        issued: time(ISSUED)?,
        expires: time(EXPIRES)?,
    })
}

pub fn kubeconfig(secret: &Secret) -> Option<&[u8]> {
    Some(&secret.data.as_ref()?.get(KUBECONFIG_KEY)?.0)
}

/// The whole Secret, for its creation; a patch of an older one takes the same.
pub fn render_secret(credential: &Credential, kubeconfig: &str, hub_id: &str) -> Value {
    let data = k8s_openapi::ByteString(kubeconfig.as_bytes().to_vec());
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": secret_name(&credential.cluster),
            "labels": {
                HUB_LABEL: hub_id, MANAGED_BY: MANAGED_BY_FEDQ, FOR_CLUSTER: credential.cluster.as_str(),
            },
            "annotations": {
                ISSUED: credential.issued.to_string(), EXPIRES: credential.expires.to_string(),
            },
        },
        "data": {KUBECONFIG_KEY: data},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential() -> Credential {
        Credential {
            cluster: ClusterName::new("east").expect("a name"),
            token: "abc".to_owned(),
            issued: "2026-11-21T10:00:00Z".parse().expect("a time"),
            expires: "2026-11-21T11:00:00Z".parse().expect("a time"),
        }
    }

    #[test]
    fn a_secret_is_read_as_it_was_written() {
        let kubeconfig = r#"{"users": [{"user": {"token": "abc"}}]}"#;
        let rendered = render_secret(&credential(), kubeconfig, "hub");
        let mut secret: Secret = serde_json::from_value(rendered).expect("a Secret");
        let read = read_secret(&secret).expect("readable");
        assert_eq!((read.cluster.as_str(), read.token.as_str()), ("east", "abc"));
        assert_eq!((read.issued, read.expires), (credential().issued, credential().expires));

        secret.metadata.annotations = None;
        assert!(read_secret(&secret).is_none(), "nobody knows when it expires");
        assert_eq!(secret_cluster(&secret).expect("labelled").as_str(), "east");
    }

    #[test]
    fn the_manifest_makes_the_account_that_tokens_are_made_for() {
        let objects = parse(MANIFEST).expect("a manifest");
        let names = objects.iter().filter(|object| {
            object.types.as_ref().is_some_and(|types| types.kind == "ServiceAccount")
                && object.metadata.namespace.as_deref() == Some(NAMESPACE)
        });
        let names: Vec<_> = names.filter_map(|object| object.metadata.name.as_deref()).collect();
        assert_eq!(names, [SERVICE_ACCOUNT]);
    }
}
