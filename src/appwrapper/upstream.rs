//! Whether the upstream operator is in the cluster. Two controllers of one AppWrapper would delete each other's work.

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, apps::v1::Deployment, coordination::v1::Lease,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

const WEBHOOKS: &str = "appwrapper-validating-webhook-configuration";
const DEPLOYMENT: &str = "appwrapper-controller-manager";
const LEASE: &str = "f134c674.codeflare.dev";

/// What of it was found, in words.
pub async fn find(client: &Client) -> Result<Option<String>, kube::Error> {
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    if webhooks.get_metadata_opt(WEBHOOKS).await?.is_some() {
        return Ok(Some(format!("its ValidatingWebhookConfiguration `{WEBHOOKS}`")));
    }
    let deployments = Api::<Deployment>::all(client.clone()).list_metadata(&named(DEPLOYMENT)).await?;
    let leases = Api::<Lease>::all(client.clone()).list(&named(LEASE)).await?;
    let held = leases.items.iter().filter(|lease| {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        holder.is_some_and(|holder| !holder.is_empty())
    });
    let deployments = deployments.items.iter().map(|one| ("Deployment", one.namespace(), one.name_any()));
    let mut found = deployments.chain(held.map(|one| ("Lease", one.namespace(), one.name_any())));
    Ok(found
        .next()
        .map(|(kind, namespace, name)| format!("its {kind} `{}/{name}`", namespace.unwrap_or_default())))
}
