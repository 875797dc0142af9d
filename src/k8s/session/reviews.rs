//! Who a token belongs to, and what that person may do.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, api::PostParams};

use super::{DEADLINE, HubError, Sessions};
use crate::client::{Caller, call};
use fedq_values::ids::ClusterName;

/// One question to the hub's authorizer.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Permission {
    pub verb: &'static str,
    pub group: &'static str,
    /// With its subresource, if any: `tasks/log`.
    pub resource: &'static str,
    /// Where, of what is in fedq's own namespace.
    pub namespace: Option<String>,
    /// Only this object.
    pub name: Option<String>,
}

/// Of rights that exist for fedq alone: the hub has no such resources, and its RBAC needs none.
pub const FEDQ_GROUP: &str = "fedq.dev";

impl Permission {
    /// Reading anything through fedq: whoever may list claims may see what they do.
    pub const READ: Self = Self {
        verb: "list",
        group: "galaxy.kubestellar.io",
        resource: "clusterresourceclaims",
        namespace: None,
        name: None,
    };
}

impl Permission {
    /// On tasks or volumes: of one's own in `namespace`, of everybody's where there is none.
    pub fn on_own(verb: &'static str, resource: &'static str, namespace: Option<&str>) -> Self {
        Self { verb, group: FEDQ_GROUP, resource, namespace: namespace.map(str::to_owned), name: None }
    }

    /// To be taken for somebody else.
    pub fn impersonate(user: &str) -> Self {
        let name = Some(user.to_owned());
        Self { verb: "impersonate", group: "", resource: "users", namespace: None, name }
    }
}

impl Sessions {
    /// To join a cluster (`create`), to cordon or confirm it (`patch`), to let it leave (`delete`).
    pub fn on_cluster(&self, verb: &'static str, cluster: &ClusterName) -> Permission {
        Permission { name: Some(cluster.to_string()), ..self.own_right(verb, "clusters") }
    }

    /// To say that the removal of many claims at once is meant.
    pub fn on_removals(&self) -> Permission {
        self.own_right("create", "removals")
    }

    fn own_right(&self, verb: &'static str, resource: &'static str) -> Permission {
        let namespace = Some(self.namespace.to_string());
        Permission { verb, group: FEDQ_GROUP, resource, namespace, name: None }
    }

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
        let (resource, subresource) = match permission.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (permission.resource, None),
        };
        let attributes = ResourceAttributes {
            group: Some(permission.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(permission.verb.to_owned()),
            namespace: permission.namespace.clone(),
            name: permission.name.clone(),
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
