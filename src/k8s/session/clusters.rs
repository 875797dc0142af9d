//! The Secrets that join clusters. Their content goes in and never comes out.
//!
//! Made by fedqd itself, of callers who have been granted it on `clusters.fedq.dev`: with a right on Secrets
//! a person could read credentials of clusters, and have a token made for any account of fedq's namespace.

use std::collections::BTreeMap;

use http::Request;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api,
    api::{ListParams, ObjectList, PartialObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{DEADLINE, HubError, Sessions};
use crate::kubeconfig::KUBECONFIG_KEY;
use crate::{
    client::{ApiError, RetryClass, call},
    hub::CLUSTER_LABEL,
};
use fedq_domain::claim::EDIT_MANAGER;
use fedq_values::ids::ClusterName;

#[derive(Debug, thiserror::Error)]
pub enum ClusterSecretError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("the hub has no Secret that joins `{0}`")]
    NotJoined(ClusterName),
    #[error("cluster `{0}` is joined already")]
    AlreadyJoined(ClusterName),
}

impl From<ApiError> for ClusterSecretError {
    fn from(error: ApiError) -> Self {
        Self::Hub(error.into())
    }
}

impl Sessions {
    pub async fn join(
        &self,
        cluster: &ClusterName,
        kubeconfig: String,
        dry_run: bool,
    ) -> Result<(), ClusterSecretError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(format!("fedq-cluster-{cluster}")),
                labels: Some(BTreeMap::from([(CLUSTER_LABEL.to_owned(), cluster.to_string())])),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(BTreeMap::from([(KUBECONFIG_KEY.to_owned(), ByteString(kubeconfig.into_bytes()))])),
            ..Secret::default()
        };
        let parameters = PostParams { dry_run, field_manager: Some(EDIT_MANAGER.to_owned()) };
        match call(DEADLINE, self.secrets().create(&parameters, &secret)).await {
            Ok(_) => Ok(()),
            Err(error) if error.class == RetryClass::AlreadyExists => {
                Err(ClusterSecretError::AlreadyJoined(cluster.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The hub's controllers withdraw the share; until that is done the Secret stays, held by their
    /// finalizer.
    pub async fn leave(&self, cluster: &ClusterName, dry_run: bool) -> Result<(), ClusterSecretError> {
        let (client, secrets) = (self.access.own(), self.secrets());
        // In the query: with a body the server reads that alone, and whoever counts writes does not see it.
        let how = if dry_run { "?dryRun=All" } else { "" };
        for name in self.secret_names(cluster).await? {
            let request = Request::delete(format!("{}/{name}{how}", secrets.resource_url()));
            let request = request.body(Vec::new()).expect("names of objects fit into a path");
            call(DEADLINE, client.request::<Value>(request)).await?;
        }
        Ok(())
    }

    /// Sets an annotation on the cluster's Secret, or takes it away.
    pub async fn annotate(
        &self,
        cluster: &ClusterName,
        key: &str,
        value: Option<&str>,
        dry_run: bool,
    ) -> Result<(), ClusterSecretError> {
        let parameters =
            PatchParams { dry_run, field_manager: Some(EDIT_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = json!({"metadata": {"annotations": {key: value}}});
        for name in self.secret_names(cluster).await? {
            call(DEADLINE, self.secrets().patch_metadata(&name, &parameters, &Patch::Merge(&patch))).await?;
        }
        Ok(())
    }

    /// Found by label, since a Secret applied by hand may have any name. Names are all that is asked for.
    async fn secret_names(&self, cluster: &ClusterName) -> Result<Vec<String>, ClusterSecretError> {
        let selector = ListParams::default().labels(&format!("{CLUSTER_LABEL}={cluster}"));
        let api = self.secrets();
        let found: ObjectList<PartialObjectMeta<Secret>> =
            call(DEADLINE, api.list_metadata(&selector)).await?;
        let names: Vec<String> = found.items.into_iter().filter_map(|secret| secret.metadata.name).collect();
        if names.is_empty() {
            return Err(ClusterSecretError::NotJoined(cluster.clone()));
        }
        Ok(names)
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.access.own(), &self.namespace)
    }
}
