//! Keeps the certificate in its Secret, and the API server trusting it: whatever replica finds something missing mends it.

use std::{collections::BTreeMap, time::Duration};

use axum_server::tls_rustls::RustlsConfig;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::Secret,
    },
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    certificate::{Certificate, CertificateError},
    config::CertManagement,
};

/// Nothing tells of a certificate that grows old.
const LOOK_EVERY: Duration = Duration::from_hours(6);
const RETRY_AFTER: Duration = Duration::from_secs(2);

pub struct Trust {
    pub client: Client,
    pub namespace: String,
    pub config: CertManagement,
    pub clock: fn() -> Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("cannot {what}")]
    Kube { what: String, source: Box<kube::Error> },
}

impl Trust {
    /// Waits until the API server trusts a certificate, and returns it for the server.
    pub async fn establish(&self) -> RustlsConfig {
        loop {
            match self.step(None).await {
                Ok(tls) => return tls,
                Err(error) => {
                    let cause =
                        std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                    tracing::warn!("The webhooks have no certificate yet: {error}: {cause}");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Looks again whenever the Secret or a configuration changes.
    pub async fn keep(&self, tls: RustlsConfig) {
        let client = || self.client.clone();
        let mut wake = stream::select_all([
            changes(Api::<Secret>::namespaced(client(), &self.namespace), &self.config.webhook_secret_name),
            changes(
                Api::<MutatingWebhookConfiguration>::all(client()),
                &self.config.mutating_webhook_config_name,
            ),
            changes(
                Api::<ValidatingWebhookConfiguration>::all(client()),
                &self.config.validating_webhook_config_name,
            ),
        ]);
        let mut wait = LOOK_EVERY;
        loop {
            let _ = tokio::time::timeout(wait, wake.next()).await;
            wait = match self.step(Some(&tls)).await {
                Ok(_) => LOOK_EVERY,
                Err(error) => {
                    tracing::warn!("Cannot keep the webhooks trusted: {error}");
                    RETRY_AFTER
                }
            };
        }
    }

    /// The API server trusts it before it is served.
    async fn step(&self, serving: Option<&RustlsConfig>) -> Result<RustlsConfig, TrustError> {
        let certificate = self.certificate().await?;
        let bundle = certificate.bundle();
        self.publish::<MutatingWebhookConfiguration>(&self.config.mutating_webhook_config_name, &bundle)
            .await?;
        self.publish::<ValidatingWebhookConfiguration>(&self.config.validating_webhook_config_name, &bundle)
            .await?;
        let config = certificate.server_config()?;
        if let Some(serving) = serving {
            serving.reload_from_config(config);
            return Ok(serving.clone());
        }
        Ok(RustlsConfig::from_config(config))
    }

    async fn certificate(&self) -> Result<Certificate, TrustError> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let name = &self.config.webhook_secret_name;
        let failed = |verb: &str| {
            let what = format!("{verb} the Secret `{}/{name}`", self.namespace);
            move |source| TrustError::Kube { what, source: Box::new(source) }
        };
        let found = secrets.get_opt(name).await.map_err(failed("read"))?;
        let data = found.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
        let data: BTreeMap<_, _> = data.into_iter().map(|(key, bytes)| (key, bytes.0)).collect();
        let (names, now) = (self.names(), (self.clock)());
        let new = match Certificate::from_secret(&data) {
            Some(old) => match old.renewed(&names, now)? {
                None => return Ok(old),
                Some(new) => new,
            },
            None => Certificate::issue(&names, now)?,
        };
        let data = new.to_secret().into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect();
        // With the version that was read: of two replicas one writes, and the other reads again.
        let version = found.as_ref().and_then(|secret| secret.metadata.resource_version.clone());
        let metadata =
            ObjectMeta { name: Some(name.clone()), resource_version: version, ..ObjectMeta::default() };
        let type_ =
            found.as_ref().map_or_else(|| Some("kubernetes.io/tls".to_owned()), |one| one.type_.clone());
        let secret = Secret { metadata, data: Some(data), type_, ..Secret::default() };
        match found {
            Some(_) => secrets.replace(name, &PostParams::default(), &secret).await,
            None => secrets.create(&PostParams::default(), &secret).await,
        }
        .map_err(failed("write"))?;
        Ok(new)
    }

    fn names(&self) -> Vec<String> {
        let service = format!("{}.{}", self.config.webhook_service_name, self.namespace);
        let suffixes = ["svc", "svc.cluster.local"].map(|suffix| format!("{service}.{suffix}"));
        suffixes.into_iter().chain(self.config.extra_names.iter().cloned()).collect()
    }

    async fn publish<K>(&self, name: &str, bundle: &str) -> Result<(), TrustError>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
    {
        let failed = |verb: &str| {
            let what = format!("{verb} the {} `{name}`", K::kind(&()));
            move |source| TrustError::Kube { what, source: Box::new(source) }
        };
        let api = Api::<K>::all(self.client.clone());
        let found = api.get(name).await.map_err(failed("read"))?;
        let mut object = serde_json::to_value(&found).unwrap_or_default();
        let wanted = json!(ByteString(bundle.as_bytes().to_vec()));
        let mut changed = false;
        for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
            let trusted = &mut webhook["clientConfig"]["caBundle"];
            changed |= *trusted != wanted;
            *trusted = wanted.clone();
        }
        if let (true, Ok(object)) = (changed, serde_json::from_value(object)) {
            api.replace(name, &PostParams::default(), &object).await.map_err(failed("write"))?;
        }
        Ok(())
    }
}

fn changes<K>(api: Api<K>, name: &str) -> stream::BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, config).default_backoff().touched_objects().map(|_| ()).boxed()
}
