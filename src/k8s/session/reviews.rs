//! Who a token belongs to, and what that person may do.

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec},
    authorization::v1::{
        NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
    },
};
use kube::{Api, Client, api::PostParams};

use super::{DEADLINE, HubError, Sessions};
use crate::client::{ApiError, Caller, call};
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
    ///
    /// ServiceAccounts are asked for as such: whoever may act as any user of RBAC's `users` may not act as them.
    pub fn impersonate(user: &str) -> Self {
        let account = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        if let Some((namespace, name)) = account {
            let (namespace, name) = (Some(namespace.to_owned()), Some(name.to_owned()));
            return Self { verb: "impersonate", group: "", resource: "serviceaccounts", namespace, name };
        }
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
        Ok(review(self.access.own(), caller, Question::Resource(Box::new(attributes))).await?)
    }
}

/// What of a caller decides their rights.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Asker {
    user: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: Vec<(String, Vec<String>)>,
}

impl From<&Caller> for Asker {
    fn from(caller: &Caller) -> Self {
        Self {
            user: caller.user.clone(),
            uid: caller.uid.clone(),
            groups: caller.groups.clone(),
            extra: caller.extra.clone().into_iter().collect(),
        }
    }
}

/// What an authorizer is asked about.
pub(crate) enum Question {
    Resource(Box<ResourceAttributes>),
    Path(NonResourceAttributes),
}

/// Whether `caller` may, by the cluster that `client` speaks to; otherwise what it says about it.
pub(crate) async fn review(
    client: Client,
    caller: &Caller,
    question: Question,
) -> Result<Result<(), String>, ApiError> {
    let mut spec = SubjectAccessReviewSpec {
        user: Some(caller.user.clone()),
        uid: caller.uid.clone(),
        groups: Some(caller.groups.clone()),
        extra: Some(caller.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    };
    match question {
        Question::Resource(attributes) => spec.resource_attributes = Some(*attributes),
        Question::Path(attributes) => spec.non_resource_attributes = Some(attributes),
    }
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api = Api::<SubjectAccessReview>::all(client);
    let status = call(DEADLINE, api.create(&PostParams::default(), &review)).await?.status;
    let Some(status) = status else { return Ok(Err(String::new())) };
    if status.allowed && status.denied != Some(true) {
        return Ok(Ok(()));
    }
    Ok(Err(status.reason.unwrap_or_default()))
}
