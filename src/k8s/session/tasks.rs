//! The Secrets that keep the values of tasks' `secrets`, in fedq's own namespace. Like the Secrets of
//! clusters they are made by fedqd itself: their content goes in and never comes out.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::{DeleteParams, PostParams};

use super::{DEADLINE, HubError, Sessions};
use crate::{
    domain::{
        claim::EDIT_MANAGER,
        task::{
            names::{SECRET_LABEL, TaskId, hub_secret_name},
            render::{ID_LABEL, OWNER_ANNOTATION},
            spec::Secrets,
        },
    },
    k8s::client::{RetryClass, call},
};

impl Sessions {
    /// `false`: there is one for this id, so draw another.
    pub async fn keep_secrets(&self, id: &TaskId, owner: &str, secrets: &Secrets) -> Result<bool, HubError> {
        let labels = [(SECRET_LABEL.to_owned(), "true".to_owned()), (ID_LABEL.to_owned(), id.to_string())];
        let value = |(name, value): (&str, &str)| (name.to_owned(), ByteString(value.as_bytes().to_vec()));
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(hub_secret_name(id)),
                labels: Some(BTreeMap::from(labels)),
                annotations: Some(BTreeMap::from([(OWNER_ANNOTATION.to_owned(), owner.to_owned())])),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(secrets.reveal().map(value).collect()),
            ..Secret::default()
        };
        let parameters = PostParams { dry_run: false, field_manager: Some(EDIT_MANAGER.to_owned()) };
        match call(DEADLINE, self.secrets().create(&parameters, &secret)).await {
            Ok(_) => Ok(true),
            Err(error) if error.class == RetryClass::AlreadyExists => Ok(false),
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
