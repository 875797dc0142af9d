//! What a hub queue holds besides what clusters contribute.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::json;

use super::{DEADLINE, HubError, Session};
use crate::{
    client::{ApiError, call},
    read::{self, CELLS, ReadError},
    types::{kueue, meta::Meta},
};
use fedq_domain::{claim::EDIT_MANAGER, resources::FlavorResource};
use fedq_values::{ids::QueueName, quantity::Amount};

#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error("cannot read which cells of queue `{queue}` are fedq's")]
    Cells { queue: QueueName, source: ReadError },
    #[error("queue `{queue}` has no cell {flavor} {resource} that is fedq's", flavor = cell.flavor, resource = cell.resource)]
    NotOurs { queue: QueueName, cell: FlavorResource },
}

impl From<ApiError> for BaseError {
    fn from(error: ApiError) -> Self {
        Self::Hub(error.into())
    }
}

impl Session {
    /// Changes the base of a cell; the one it had. The queue itself follows with the next plan.
    pub async fn set_base(
        &self,
        queue: &QueueName,
        cell: &FlavorResource,
        base: Amount,
        dry_run: bool,
    ) -> Result<Amount, BaseError> {
        let kind = GroupVersionKind::gvk(kueue::GROUP, kueue::VERSION, "ClusterQueue");
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        let object = call(DEADLINE, api.get_metadata(queue.as_str())).await?;
        let annotations = object.metadata.annotations.unwrap_or_default();
        let mut cells = read::managed_cells(&Meta { annotations, ..Meta::default() })
            .map_err(|source| BaseError::Cells { queue: queue.clone(), source })?;
        let Some(managed) = cells.get_mut(cell) else {
            return Err(BaseError::NotOurs { queue: queue.clone(), cell: cell.clone() });
        };
        let before = std::mem::replace(&mut managed.base, base);
        let parameters =
            PatchParams { dry_run, field_manager: Some(EDIT_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = json!({"metadata": {
            "resourceVersion": object.metadata.resource_version,
            "annotations": {CELLS: read::render_cells(&cells)},
        }});
        call(DEADLINE, api.patch_metadata(queue.as_str(), &parameters, &Patch::Merge(&patch))).await?;
        Ok(before)
    }
}
