//! Which kinds the hub serves, and whether a person may create objects of one.

use http::Request;
use k8s_openapi::{
    api::authorization::v1::ResourceAttributes, apimachinery::pkg::apis::meta::v1::APIResourceList,
};

use super::{
    DEADLINE, HubError, Sessions,
    reviews::{Question, review},
};
use crate::client::{Caller, RetryClass, call};

/// A kind as the hub serves it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServedKind {
    pub group: String,
    /// As RBAC names it: `jobs`.
    pub resource: String,
    pub namespaced: bool,
}

impl Sessions {
    /// `None`: the hub does not know it.
    pub async fn kind(&self, api_version: &str, kind: &str) -> Result<Option<ServedKind>, HubError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let named = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
        };
        let path = match group {
            "" if named(version) => format!("/api/{version}"),
            group if named(group) && named(version) => format!("/apis/{group}/{version}"),
            _ => return Ok(None),
        };
        let request = Request::get(path).body(Vec::new()).expect("names were checked, so the path is a URI");
        let list: APIResourceList = match call(DEADLINE, self.access.own().request(request)).await {
            Ok(list) => list,
            Err(error) if error.class == RetryClass::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = list.resources.into_iter().find(|one| one.kind == kind && !one.name.contains('/'));
        Ok(found.map(|one| ServedKind {
            group: group.to_owned(),
            resource: one.name,
            namespaced: one.namespaced,
        }))
    }

    /// Whether `caller` may, as [`Sessions::may`] answers.
    pub async fn may_create(
        &self,
        caller: &Caller,
        kind: &ServedKind,
        namespace: &str,
    ) -> Result<Result<(), String>, HubError> {
        let attributes = ResourceAttributes {
            group: Some(kind.group.clone()),
            resource: Some(kind.resource.clone()),
            verb: Some("create".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ResourceAttributes::default()
        };
        Ok(review(self.access.own(), caller, Question::Resource(Box::new(attributes))).await?)
    }
}
