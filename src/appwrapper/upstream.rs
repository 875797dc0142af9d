//! Whether the upstream operator is in the cluster. Two controllers of one AppWrapper would delete each other's work.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration,
    apps::v1::Deployment,
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    coordination::v1::{Lease, LeaseSpec},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams},
};

use crate::names::GROUP;

const WEBHOOKS: &str = "appwrapper-validating-webhook-configuration";
/// Its ServiceAccount has the same name.
const DEPLOYMENT: &str = "appwrapper-controller-manager";
const LEASE: &str = "f134c674.codeflare.dev";

/// What of it was found, in words. In namespaces of their own people make Deployments and Leases of any name, so one counts only
/// where its account may do the operator's work.
pub async fn find(client: &Client, now: Timestamp) -> Result<Option<String>, kube::Error> {
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    if webhooks.get_metadata_opt(WEBHOOKS).await?.is_some() {
        return Ok(Some(format!("its ValidatingWebhookConfiguration `{WEBHOOKS}`")));
    }
    let deployments = Api::<Deployment>::all(client.clone()).list(&named(DEPLOYMENT)).await?;
    for deployment in &deployments.items {
        let spec = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let account = spec.and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let namespace = deployment.namespace().unwrap_or_default();
        if runs_them(client, &namespace, account).await? {
            return Ok(Some(format!("its Deployment `{namespace}/{DEPLOYMENT}`")));
        }
    }
    let leases = Api::<Lease>::all(client.clone()).list(&named(LEASE)).await?;
    let held = leases.items.iter().filter(|lease| lease.spec.as_ref().is_some_and(|spec| is_held(spec, now)));
    for lease in held {
        let namespace = lease.namespace().unwrap_or_default();
        if runs_them(client, &namespace, DEPLOYMENT).await? {
            return Ok(Some(format!("its Lease `{namespace}/{LEASE}`")));
        }
    }
    Ok(None)
}

/// A controller that ended without a word leaves its name in its Lease, which then lapses.
fn is_held(lease: &LeaseSpec, now: Timestamp) -> bool {
    let held = lease.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    let seconds = SignedDuration::from_secs(lease.lease_duration_seconds.unwrap_or_default().into());
    // Twice as long: clocks differ.
    let until = lease.renew_time.as_ref().and_then(|renewed| renewed.0.checked_add(seconds * 2).ok());
    held && until.is_some_and(|until| now <= until)
}

/// Whether the account may write what only a controller of AppWrappers writes.
async fn runs_them(client: &Client, namespace: &str, account: &str) -> Result<bool, kube::Error> {
    let asked = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some("appwrappers".to_owned()),
        subresource: Some("status".to_owned()),
        verb: Some("patch".to_owned()),
        ..ResourceAttributes::default()
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{namespace}:{account}")),
            groups: Some(vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ]),
            resource_attributes: Some(asked),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer =
        Api::<SubjectAccessReview>::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    #[test]
    fn a_lease_counts_while_it_is_renewed() {
        let now: Timestamp = "2026-11-21T07:00:00Z".parse().expect("a time");
        let lease = |holder: &str, ago: i64| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(now - SignedDuration::from_secs(ago))),
            ..LeaseSpec::default()
        };
        assert!(is_held(&lease("pod", 0), now) && is_held(&lease("pod", 29), now));
        assert!(!is_held(&lease("pod", 31), now) && !is_held(&lease("", 0), now));
        assert!(!is_held(
            &LeaseSpec { holder_identity: Some("pod".to_owned()), ..LeaseSpec::default() },
            now
        ));
    }
}
