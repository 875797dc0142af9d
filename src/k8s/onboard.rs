//! What the command line does with a person's own kubeconfig: once, on their machine, with their
//! rights. Nothing of it is sent to the daemon but the token it makes.

use std::{path::Path, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};

use super::{
    client::{self, ApiError, ClientLimits, ConnectError, RetryClass, call},
    join_token::{self, NAMESPACE, SERVICE_ACCOUNT},
    kubeconfig::{self, CheckedKubeconfig, KubeconfigError, Rules},
    multikueue,
};

/// The rights fedq needs on a cluster.
const MANIFEST: &str = include_str!("../../deploy/worker/rbac.yaml");
/// What it may do with them.
const POLICY: &str = include_str!("../../deploy/worker/policy.yaml");
const MANAGER: &str = "fedq-join";
const DEADLINE: Duration = Duration::from_secs(15);

#[derive(Debug, thiserror::Error)]
pub enum OnboardError {
    #[error("the kubeconfig cannot be used")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("cannot connect to the cluster")]
    Connect(#[from] ConnectError),
    #[error("cannot apply {kind} {name}")]
    Apply { kind: String, name: String, source: ApiError },
    #[error("cannot make a token for ServiceAccount {name}")]
    Token { name: String, source: ApiError },
    #[error("the cluster made no token for ServiceAccount {NAMESPACE}/{SERVICE_ACCOUNT}")]
    NoToken,
    #[error("the manifest of rights in this program cannot be read")]
    Manifest(#[source] serde_saphyr::Error),
}

/// Whose token is asked for.
pub struct TokenFor<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub audience: &'a str,
    pub seconds: i64,
}

/// What was made on a cluster.
pub struct Onboarded {
    /// Holds only the token that was made.
    pub kubeconfig: String,
    pub expires: Timestamp,
    /// Whether a policy bounds what is written with it. An old cluster knows none.
    pub bounded: bool,
}

/// Makes a ServiceAccount with just the rights fedq needs, and one with those of MultiKueue. Doing it again changes nothing.
pub async fn create_service_account(
    kubeconfig: &[u8],
    context: Option<&str>,
    folder: Option<&Path>,
) -> Result<Onboarded, OnboardError> {
    let (checked, client) = connect(kubeconfig, context, folder)?;
    for manifest in [MANIFEST, multikueue::MANIFEST] {
        for object in parse(manifest)? {
            apply(&client, &object).await?;
        }
    }
    let mut bounded = true;
    for object in parse(POLICY)? {
        match apply(&client, &object).await {
            Ok(()) => {}
            Err(OnboardError::Apply { source, .. }) if source.class == RetryClass::NotFound => {
                bounded = false;
            }
            Err(error) => return Err(error),
        }
    }
    let made = join_token::make(&client, DEADLINE).await;
    let name = format!("{NAMESPACE}/{SERVICE_ACCOUNT}");
    let made = made.map_err(|source| OnboardError::Token { name, source })?;
    Ok(Onboarded { kubeconfig: checked.render_with(&made.token), expires: made.expires, bounded })
}

/// A token of a ServiceAccount that is there already.
pub async fn request_token(
    kubeconfig: &[u8],
    context: Option<&str>,
    folder: Option<&Path>,
    account: &TokenFor<'_>,
) -> Result<String, OnboardError> {
    let (_, client) = connect(kubeconfig, context, folder)?;
    let api = Api::<ServiceAccount>::namespaced(client, account.namespace);
    let spec = TokenRequestSpec {
        audiences: vec![account.audience.to_owned()],
        expiration_seconds: Some(account.seconds),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let answer =
        call(DEADLINE, api.create_token_request(account.name, &PostParams::default(), &request)).await;
    let name = format!("{}/{}", account.namespace, account.name);
    let answer = answer.map_err(|source| OnboardError::Token { name, source })?;
    answer.status.map(|status| status.token).ok_or(OnboardError::NoToken)
}

/// The person's own kubeconfig, on their own machine: files and loopback are theirs to use. Programs
/// are not run.
fn connect(
    kubeconfig: &[u8],
    context: Option<&str>,
    folder: Option<&Path>,
) -> Result<(CheckedKubeconfig, Client), OnboardError> {
    let rules = Rules {
        allow_loopback: true,
        allow_proxy: true,
        allow_system_roots: true,
        files_from: Some(folder.unwrap_or(Path::new(".")).to_owned()),
    };
    let checked = kubeconfig::check(kubeconfig, context, &rules)?;
    let client = client::connect(&checked, &ClientLimits::default())?.kube();
    Ok((checked, client))
}

pub(super) fn parse(manifest: &str) -> Result<Vec<DynamicObject>, OnboardError> {
    serde_saphyr::from_multiple(manifest).map_err(OnboardError::Manifest)
}

pub(super) async fn apply(client: &Client, object: &DynamicObject) -> Result<(), OnboardError> {
    let types = object.types.clone().unwrap_or_default();
    let name = object.metadata.name.clone().unwrap_or_default();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let parameters = PatchParams::apply(MANAGER).force();
    let applied = call(DEADLINE, api.patch(&name, &parameters, &Patch::Apply(object))).await;
    applied.map(|_| ()).map_err(|source| OnboardError::Apply { kind: types.kind, name, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_makes_the_service_account_that_the_token_is_for() {
        let objects = parse(MANIFEST).expect("a manifest");
        let has = |kind: &str, name: &str| {
            objects.iter().any(|object| {
                object.types.as_ref().is_some_and(|types| types.kind == kind)
                    && object.metadata.name.as_deref() == Some(name)
            })
        };
        assert!(has("Namespace", NAMESPACE));
        assert!(has("ServiceAccount", SERVICE_ACCOUNT));
    }
}
