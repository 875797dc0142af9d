//! Claims as people read and edit them.

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{CONFIRM_REMOVAL, DEADLINE, HubError, Session, Sessions};
use crate::{
    claims::keeping::EDITED_BY,
    client::call,
    types::claim::{ClusterResourceClaim, ClusterResourceClaimSpec},
};
use fedq_domain::claim::EDIT_MANAGER;
use fedq_values::ids::ClaimName;

impl Session {
    pub async fn claim(&self, name: &ClaimName) -> Result<ClusterResourceClaim, HubError> {
        let api = Api::<ClusterResourceClaim>::all(self.client.clone());
        Ok(call(DEADLINE, api.get(name.as_str())).await?)
    }

    /// Brings the spec of `current` to `wanted`, if nobody changed it since `current` was read.
    ///
    /// A merge patch, not server-side apply: an apply could not take away an assignment that somebody
    /// made with kubectl, and would make every key of nominalResources that it repeats a person's cap.
    pub async fn edit_claim(
        &self,
        current: &ClusterResourceClaim,
        wanted: &ClusterResourceClaimSpec,
        dry_run: bool,
    ) -> Result<ClusterResourceClaim, HubError> {
        let api = Api::<ClusterResourceClaim>::all(self.client.clone());
        let parameters =
            PatchParams { dry_run, field_manager: Some(EDIT_MANAGER.to_owned()), ..PatchParams::default() };
        let name = current.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(patch(current, wanted, &self.user));
        Ok(call(DEADLINE, api.patch(name, &parameters, &patch)).await?)
    }
}

impl Sessions {
    /// Says that the removal of many claims at once is meant; made by fedqd itself, of callers who have been
    /// granted it, since whoever may patch a namespace may do much more to it.
    pub async fn confirm_removal(&self, until: &str, dry_run: bool) -> Result<(), HubError> {
        let api = Api::<k8s_openapi::api::core::v1::Namespace>::all(self.access.own());
        let parameters = PatchParams { dry_run, ..PatchParams::default() };
        let patch = Patch::Merge(json!({"metadata": {"annotations": {CONFIRM_REMOVAL: until}}}));
        call(DEADLINE, api.patch(&self.namespace, &parameters, &patch)).await?;
        Ok(())
    }
}

fn patch(current: &ClusterResourceClaim, wanted: &ClusterResourceClaimSpec, user: &str) -> Value {
    let mut nominal: Value = json!(wanted.nominal_resources);
    for key in current.spec.nominal_resources.keys() {
        if !wanted.nominal_resources.contains_key(key) {
            nominal[key] = Value::Null;
        }
    }
    json!({
        "metadata": {
            "resourceVersion": current.metadata.resource_version,
            "annotations": {EDITED_BY: user},
        },
        "spec": {
            "clusterName": wanted.cluster_name,
            "nominalResources": nominal,
            "resourceAssignments": wanted.resource_assignments,
        },
    })
}
