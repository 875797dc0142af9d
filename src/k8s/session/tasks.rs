//! The Secrets that keep the values of tasks' `secrets`, in fedq's own namespace. Like the Secrets of
//! clusters they are made by fedqd itself: their content goes in and never comes out.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{DEADLINE, HubError, Sessions};
use crate::client::{RetryClass, call};
use fedq_domain::{
    claim::EDIT_MANAGER,
    task::{
        names::{SECRET_LABEL, TaskId, hub_secret_name},
        render::{ID_LABEL, OWNER_ANNOTATION},
        spec::Secrets,
    },
};

impl Sessions {
    /// `false`: there is one for this id.
    pub async fn keep_secrets(&self, id: &TaskId, owner: &str, secrets: &Secrets) -> Result<bool, HubError> {
        let parameters = PostParams { dry_run: false, field_manager: Some(EDIT_MANAGER.to_owned()) };
        match call(DEADLINE, self.secrets().create(&parameters, &secret(id, owner, secrets))).await {
            Ok(_) => Ok(true),
            Err(error) if error.class == RetryClass::AlreadyExists => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Puts other values into the Secret of an id of which there is no task. `false`: it is somebody else's, or was
    /// changed meanwhile.
    pub async fn replace_secrets(
        &self,
        id: &TaskId,
        owner: &str,
        secrets: &Secrets,
    ) -> Result<bool, HubError> {
        let name = hub_secret_name(id);
        let known = call(DEADLINE, self.secrets().get(&name)).await?;
        let annotations = known.metadata.annotations.unwrap_or_default();
        if annotations.get(OWNER_ANNOTATION).is_none_or(|known| known != owner) {
            return Ok(false);
        }
        let mut data: BTreeMap<String, Option<ByteString>> =
            known.data.unwrap_or_default().into_keys().map(|name| (name, None)).collect();
        let values = secret(id, owner, secrets).data.unwrap_or_default();
        data.extend(values.into_iter().map(|(name, value)| (name, Some(value))));
        let version = known.metadata.resource_version;
        let change = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": data}));
        let parameters =
            PatchParams { field_manager: Some(EDIT_MANAGER.to_owned()), ..PatchParams::default() };
        match call(DEADLINE, self.secrets().patch(&name, &parameters, &change)).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.class, RetryClass::Conflict | RetryClass::NotFound) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Of a task that was not accepted after all.
    pub async fn forget_secrets(&self, id: &TaskId) -> Result<(), HubError> {
        match call(DEADLINE, self.secrets().delete(&hub_secret_name(id), &DeleteParams::default())).await {
            Err(error) if error.class != RetryClass::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

fn secret(id: &TaskId, owner: &str, secrets: &Secrets) -> Secret {
    let labels = [(SECRET_LABEL.to_owned(), "true".to_owned()), (ID_LABEL.to_owned(), id.to_string())];
    let value = |(name, value): (&str, &str)| (name.to_owned(), ByteString(value.as_bytes().to_vec()));
    Secret {
        metadata: ObjectMeta {
            name: Some(hub_secret_name(id)),
            labels: Some(BTreeMap::from(labels)),
            annotations: Some(BTreeMap::from([(OWNER_ANNOTATION.to_owned(), owner.to_owned())])),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        data: Some(secrets.reveal().map(value).collect()),
        ..Secret::default()
    }
}
