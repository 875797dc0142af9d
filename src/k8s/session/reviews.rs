//! Who a token belongs to, and what that person may do.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};

use super::{DEADLINE, HubError, Sessions};
use crate::k8s::client::{Caller, call};

/// One question to the hub's authorizer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Permission {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
}

impl Permission {
    /// Reading anything through fedq: whoever may list claims may see what they do.
    pub const READ: Self =
        Self { verb: "list", group: "galaxy.kubestellar.io", resource: "clusterresourceclaims" };
}

impl Sessions {
    /// Whose token it is; `None` where the hub does not know it, or not for `audience`. The hub may
    /// ignore the audience asked for, so its answer must name it.
    pub async fn who(&self, token: &str, audience: &str) -> Result<Option<Caller>, HubError> {
        let spec =
            TokenReviewSpec { token: Some(token.to_owned()), audiences: Some(vec![audience.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api = Api::<TokenReview>::all(self.access.own());
        let answer = call(DEADLINE, api.create(&PostParams::default(), &review)).await?;
        let status = answer.status.unwrap_or_default();
        let meant_for_us = status.audiences.iter().flatten().any(|named| named == audience);
        if status.authenticated != Some(true) || !meant_for_us {
            return Ok(None);
        }
        Ok(status.user.and_then(|user| {
            Some(Caller {
                user: user.username.filter(|name| !name.is_empty())?,
                uid: user.uid,
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            })
        }))
    }

    /// Whether `caller` may; otherwise what the hub says about it, which is often nothing.
    pub async fn may(
        &self,
        caller: &Caller,
        permission: &Permission,
    ) -> Result<Result<(), String>, HubError> {
        let attributes = ResourceAttributes {
            group: Some(permission.group.to_owned()),
            resource: Some(permission.resource.to_owned()),
            verb: Some(permission.verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(caller.user.clone()),
            uid: caller.uid.clone(),
            groups: Some(caller.groups.clone()),
            extra: Some(caller.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api = Api::<SubjectAccessReview>::all(self.access.own());
        let status = call(DEADLINE, api.create(&PostParams::default(), &review)).await?.status;
        let Some(status) = status else { return Ok(Err(String::new())) };
        if status.allowed && status.denied != Some(true) {
            return Ok(Ok(()));
        }
        Ok(Err(status.reason.unwrap_or_default()))
    }
}
