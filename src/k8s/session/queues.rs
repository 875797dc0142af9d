//! What a hub queue holds besides what clusters contribute.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::json;

use super::{DEADLINE, HubError, Session};
use crate::{
    client::{ApiError, call},
    read::{
        self, CELLS, ReadError,
        quota_place::{cohort_of, is_in_cohort},
    },
    types::{kueue, meta::Meta},
};
use fedq_domain::{claim::EDIT_MANAGER, quota::CohortProblem, resources::FlavorResource};
use fedq_values::{ids::QueueName, quantity::Amount};

#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Cohort(#[from] CohortProblem),
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
    fn kueue(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(kueue::GROUP, kueue::VERSION, kind);
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    /// Changes the base of a cell; the one it had. The queue itself follows with the next plan.
    pub async fn set_base(
        &self,
        queue: &QueueName,
        cell: &FlavorResource,
        base: Amount,
        dry_run: bool,
    ) -> Result<Amount, BaseError> {
        let unreadable = |source| BaseError::Cells { queue: queue.clone(), source };
        let mut api = self.kueue("ClusterQueue");
        let mut name = queue.to_string();
        let mut object = call(DEADLINE, api.get_metadata(&name)).await?;
        let mut annotations = object.metadata.annotations.take().unwrap_or_default();
        if is_in_cohort(&Meta { annotations: annotations.clone(), ..Meta::default() })? {
            (api, name) = (self.kueue("Cohort"), cohort_of(&name));
            object = call(DEADLINE, api.get_metadata(&name)).await?;
            annotations = object.metadata.annotations.take().unwrap_or_default();
        }
        let mut cells = read::managed_cells(&Meta { annotations, ..Meta::default() }).map_err(unreadable)?;
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
        call(DEADLINE, api.patch_metadata(&name, &parameters, &Patch::Merge(&patch))).await?;
        Ok(before)
    }
}
