//! Keeps the webhook callable: its certificate in a Secret, so that restarts and replicas share it,
//! its authority in the ValidatingWebhookConfiguration and, for people, in a ConfigMap: who may read that need not be let
//! near the key.
//!
//! At rest it reads and writes nothing but those three reads a period.

use std::{collections::BTreeMap, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tracing::{info, warn};

use super::driver::{Controller, Failure, Next};
use fedq_base::{
    certificate::{CertificateError, ServingCertificate},
    clock::Clock,
};
use fedq_k8s::client::{ApiError, RetryClass, call};
use fedq_k8s::{rights::AUTHORITY, types::claim::REVIEW_PATH};

/// The Secret's name, in fedq's namespace.
pub const SECRET: &str = "fedq-webhook-cert";
/// Its key there, as in Kubernetes' own `kube-root-ca.crt`.
const AUTHORITY_KEY: &str = "ca.crt";
/// The ValidatingWebhookConfiguration's name.
pub const CONFIGURATION: &str = "fedq";
const WEBHOOK: &str = "claims.fedq.dev";
const MANAGER: &str = "fedqd";

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("cannot read the Secret {SECRET}")]
    ReadSecret(#[source] ApiError),
    #[error("cannot write the Secret {SECRET}")]
    WriteSecret(#[source] ApiError),
    #[error("cannot read the ValidatingWebhookConfiguration {CONFIGURATION}")]
    ReadConfiguration(#[source] ApiError),
    #[error("cannot write the ValidatingWebhookConfiguration {CONFIGURATION}")]
    WriteConfiguration(#[source] ApiError),
    #[error("cannot read the ConfigMap {AUTHORITY}")]
    ReadAuthority(#[source] ApiError),
    #[error("cannot write the ConfigMap {AUTHORITY}")]
    WriteAuthority(#[source] ApiError),
    #[error("cannot make the webhook's certificate")]
    Certificate(#[from] CertificateError),
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub namespace: String,
    /// What the certificate is for: `certificate::service_names` or `certificate::url_names`, and
    /// those of the API where it shares the certificate.
    pub names: Vec<String>,
    /// How the hub's API server is to reach the webhook; `None` leaves the configuration alone.
    pub registration: Option<Registration>,
    /// Whether people reach a server with this certificate, and so need its authority.
    pub serves_people: bool,
    pub deadline: Duration,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Registration {
    /// The manifests brought the configuration, which names our Service: only its caBundle is ours.
    Manifests,
    /// No Service leads here: the configuration is made for [`Registration::url`].
    Url(String),
}

impl Registration {
    /// A URL without a path is that of the server: the API server would post to its root.
    pub fn url(url: &str) -> Self {
        let server = url.trim_end_matches('/');
        let has_path = server.split_once("://").is_some_and(|(_, rest)| rest.contains('/'));
        Self::Url(if has_path { url.to_owned() } else { format!("{server}{REVIEW_PATH}") })
    }
}

pub struct WebhookController {
    client: Client,
    clock: Clock,
    settings: Settings,
    /// What serves; reloaded when the certificate changes.
    tls: RustlsConfig,
    serving: ServingCertificate,
    told_missing: bool,
}

impl WebhookController {
    /// Reads or makes the certificate, so that the listener can start with it.
    pub async fn new(client: Client, clock: Clock, settings: Settings) -> Result<Self, WebhookError> {
        let serving = ensure_secret(&client, &settings, &clock).await?;
        let tls = RustlsConfig::from_config(serving.server_config()?);
        Ok(Self { client, clock, settings, tls, serving, told_missing: false })
    }

    /// For the listeners: clones see each renewal.
    pub fn tls(&self) -> RustlsConfig {
        self.tls.clone()
    }

    async fn register(&mut self) -> Result<(), WebhookError> {
        let Some(registration) = &self.settings.registration else { return Ok(()) };
        let api: Api<ValidatingWebhookConfiguration> = Api::all(self.client.clone());
        let found = call(self.settings.deadline, api.get_opt(CONFIGURATION)).await;
        let found = found.map_err(WebhookError::ReadConfiguration)?;
        let bundle = self.serving.ca_bundle();
        match (found, registration) {
            (None, Registration::Manifests) => {
                if !std::mem::replace(&mut self.told_missing, true) {
                    warn!(
                        "There is no ValidatingWebhookConfiguration `{CONFIGURATION}`: claims are judged only after they are stored"
                    );
                }
            }
            (None, Registration::Url(url)) => {
                let configuration = configuration(&json!({ "url": url }), &bundle);
                let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                let created = call(self.settings.deadline, api.create(&params, &configuration)).await;
                created.map_err(WebhookError::WriteConfiguration)?;
                info!("Registered the webhook at {url}");
            }
            (Some(found), registration) => {
                self.told_missing = false;
                let Some(patch) = correction(&found, registration, &bundle) else { return Ok(()) };
                let params =
                    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
                let patch = Patch::Merge(patch);
                let patched = api.patch(CONFIGURATION, &params, &patch);
                call(self.settings.deadline, patched).await.map_err(WebhookError::WriteConfiguration)?;
                info!("Renewed what the webhook's callers trust");
            }
        }
        Ok(())
    }

    async fn keep(&mut self) -> Result<(), WebhookError> {
        let kept = ensure_secret(&self.client, &self.settings, &self.clock).await?;
        if kept != self.serving {
            self.tls.reload_from_config(kept.server_config()?);
            self.serving = kept;
            info!("Serving with another certificate");
        }
        self.register().await?;
        self.publish().await
    }

    /// For people who log in.
    async fn publish(&self) -> Result<(), WebhookError> {
        if !self.settings.serves_people {
            return Ok(());
        }
        let (api, bundle) = (self.authorities(), self.serving.ca_bundle());
        let found = call(self.settings.deadline, api.get_opt(AUTHORITY)).await;
        let Some(found) = found.map_err(WebhookError::ReadAuthority)? else {
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(AUTHORITY.to_owned()),
                    namespace: Some(self.settings.namespace.clone()),
                    ..ObjectMeta::default()
                },
                data: Some(BTreeMap::from([(AUTHORITY_KEY.to_owned(), bundle)])),
                ..ConfigMap::default()
            };
            let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            let created = call(self.settings.deadline, api.create(&params, &map)).await;
            created.map_err(WebhookError::WriteAuthority)?;
            return Ok(());
        };
        if found.data.iter().flatten().any(|(key, kept)| key == AUTHORITY_KEY && *kept == bundle) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({ "data": { AUTHORITY_KEY: bundle } }));
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patched = api.patch(AUTHORITY, &params, &patch);
        call(self.settings.deadline, patched).await.map_err(WebhookError::WriteAuthority)?;
        Ok(())
    }

    fn authorities(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.settings.namespace)
    }
}

impl Controller for WebhookController {
    const NAME: &'static str = "webhook";

    async fn reconcile(&mut self) -> Result<Next, Failure> {
        self.keep().await.map_err(|error| Failure::Passing(error.into()))?;
        // A caBundle that someone overwrote is put right at the next period.
        Ok(Next::AtPeriod)
    }
}

/// The certificate of the Secret, made or renewed where it has to be. Of two daemons that do so at
/// once one wins, and the other takes what the first one wrote.
async fn ensure_secret(
    client: &Client,
    settings: &Settings,
    clock: &Clock,
) -> Result<ServingCertificate, WebhookError> {
    let api = Api::namespaced(client.clone(), &settings.namespace);
    match ensure_secret_once(&api, settings, clock).await {
        Err(WebhookError::WriteSecret(error))
            if matches!(error.class, RetryClass::AlreadyExists | RetryClass::Conflict) =>
        {
            ensure_secret_once(&api, settings, clock).await
        }
        outcome => outcome,
    }
}

async fn ensure_secret_once(
    api: &Api<Secret>,
    settings: &Settings,
    clock: &Clock,
) -> Result<ServingCertificate, WebhookError> {
    let found = call(settings.deadline, api.get_opt(SECRET)).await.map_err(WebhookError::ReadSecret)?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let Some(secret) = found else {
        let issued = ServingCertificate::issue(&settings.names, clock.now())?;
        let secret = new_secret(&settings.namespace, &issued);
        call(settings.deadline, api.create(&params, &secret)).await.map_err(WebhookError::WriteSecret)?;
        return Ok(issued);
    };
    let next = match read(&secret) {
        Ok(kept) => match kept.renewed(&settings.names, clock.now())? {
            None => return Ok(kept),
            Some(renewed) => renewed,
        },
        Err(error) => {
            warn!("The Secret `{SECRET}` is replaced: {error}");
            ServingCertificate::issue(&settings.names, clock.now())?
        }
    };
    // With the version read: whoever else renewed it meanwhile is not overwritten. A patch, since fedqd has
    // no right to replace Secrets.
    let version = &secret.metadata.resource_version;
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": bytes(&next)}));
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patched = api.patch(SECRET, &params, &patch);
    call(settings.deadline, patched).await.map_err(WebhookError::WriteSecret)?;
    Ok(next)
}

fn read(secret: &Secret) -> Result<ServingCertificate, CertificateError> {
    let data = secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
    ServingCertificate::from_secret(&data.collect())
}

fn bytes(certificate: &ServingCertificate) -> BTreeMap<String, ByteString> {
    certificate.to_secret().into_iter().map(|(key, value)| (key, ByteString(value))).collect()
}

fn new_secret(namespace: &str, certificate: &ServingCertificate) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(bytes(certificate)),
        ..Secret::default()
    }
}

/// The configuration as the manifests ship it too. A webhook that is down is passed over (`Ignore`):
/// it only tells people early what the controllers find anyway, and must never block a repair.
pub fn configuration(client: &Value, ca_bundle: &str) -> ValidatingWebhookConfiguration {
    let mut client = client.clone();
    client["caBundle"] = json!(ByteString(ca_bundle.as_bytes().to_vec()));
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": CONFIGURATION },
        "webhooks": [{
            "name": WEBHOOK,
            "clientConfig": client,
            "rules": [{
                "apiGroups": ["galaxy.kubestellar.io"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["clusterresourceclaims"],
                "scope": "Cluster",
            }],
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "timeoutSeconds": 5,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    });
    serde_json::from_value(configuration).expect("a constant configuration with a client config is valid")
}

/// The merge-patch that puts our webhook right, or `None` when it is. Lists are replaced as a whole
/// by a merge-patch, so everything else in them goes back as it was read, with the version read.
fn correction(
    found: &ValidatingWebhookConfiguration,
    registration: &Registration,
    ca_bundle: &str,
) -> Option<Value> {
    let before = found.webhooks.as_deref().unwrap_or_default();
    let mut after = before.to_vec();
    for webhook in after.iter_mut().filter(|webhook| webhook.name == WEBHOOK) {
        webhook.client_config.ca_bundle = Some(ByteString(ca_bundle.as_bytes().to_vec()));
        if let Registration::Url(url) = registration {
            webhook.client_config.url = Some(url.clone());
            webhook.client_config.service = None;
        }
    }
    let version = &found.metadata.resource_version;
    (after != before).then(|| json!({ "metadata": { "resourceVersion": version }, "webhooks": after }))
}

#[cfg(test)]
mod tests;
