//! Objects into domain types, parsed once. What cannot be read is left out and said, never guessed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use fedq_domain::{
    capacity::{Flavor, MAX_CAPACITY, MaxCapacity, Taint, Toleration},
    quota::{AskedCell, Dispatch, HubQueueInput, ManagedCell, WorkerCell, WorkerQueueInput},
    resource_groups::{FlavorQuotas, ResourceGroup, ResourceGroups, ResourceQuota, Written},
    resources::FlavorResource,
};
use fedq_values::{
    ids::{CohortName, FlavorName, NameError, QueueName, ResourceName},
    quantity::{Amount, Quantity, QuantityError},
};

use super::{
    hub::Hub,
    list_watch::Table,
    types::{
        kueue::{self, ClusterQueue, FlavorUsage, ResourceFlavor, Workload},
        meta::{Meta, QuantityText},
    },
    worker::Worker,
};

pub mod managed;
pub mod multikueue;
pub mod ocm;
pub mod queues;
pub mod quota_place;
mod scores;
pub mod tasks;

pub use scores::{queue_quotas, reserved};

use quota_place::QuotaCohort;

/// On a ClusterQueue of the hub: the cells that are fedq's, with what was there before.
pub const CELLS: &str = "fedq.dev/cells";
const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("quota of {resource} in flavor {flavor}: {problem}")]
    Quota { flavor: String, resource: String, problem: QuantityError },
    #[error("annotation {CELLS} is not what fedq wrote: {0}")]
    Cells(String),
}

/// ResourceFlavors by name; one whose name is no flavor name cannot be meant by any claim.
pub fn flavors(table: &Table<ResourceFlavor>) -> BTreeMap<FlavorName, Flavor> {
    table.all().iter().filter_map(|flavor| self::flavor(flavor)).collect()
}

fn flavor(object: &ResourceFlavor) -> Option<(FlavorName, Flavor)> {
    let name = FlavorName::new(&object.metadata.name).ok()?;
    let taint = |taint: &kueue::Taint| Taint {
        key: taint.key.clone(),
        value: taint.value.clone(),
        effect: taint.effect.clone(),
    };
    let toleration = |toleration: &kueue::Toleration| Toleration {
        key: toleration.key.clone(),
        operator: toleration.operator.clone(),
        value: toleration.value.clone(),
        effect: toleration.effect.clone(),
    };
    let flavor = Flavor {
        name: name.clone(),
        node_labels: object.spec.node_labels.clone(),
        node_taints: object.spec.node_taints.iter().map(taint).collect(),
        tolerations: object.spec.tolerations.iter().map(toleration).collect(),
        max_capacity: object
            .metadata
            .annotations
            .get(MAX_CAPACITY)
            .map(|text| MaxCapacity::parse(text))
            .unwrap_or_default(),
    };
    Some((name, flavor))
}

pub fn groups(groups: &[kueue::ResourceGroup]) -> Result<ResourceGroups, ReadError> {
    let group = |group: &kueue::ResourceGroup| {
        let covered = group.covered_resources.iter().map(|name| ResourceName::new(name));
        Ok(ResourceGroup {
            covered: covered.collect::<Result<_, _>>()?,
            flavors: group.flavors.iter().map(flavor_quotas).collect::<Result<_, ReadError>>()?,
        })
    };
    groups.iter().map(group).collect::<Result<_, ReadError>>().map(ResourceGroups)
}

fn flavor_quotas(flavor: &kueue::FlavorQuotas) -> Result<FlavorQuotas, ReadError> {
    let written = |text: &QuantityText, resource: &ResourceName| {
        Written::parse(&text.0, resource).map_err(|problem| ReadError::Quota {
            flavor: flavor.name.clone(),
            resource: resource.to_string(),
            problem,
        })
    };
    let quota = |quota: &kueue::ResourceQuota| {
        let name = ResourceName::new(&quota.name)?;
        Ok(ResourceQuota {
            nominal: written(&quota.nominal_quota, &name)?,
            borrowing: quota.borrowing_limit.as_ref().map(|text| written(text, &name)).transpose()?,
            lending: quota.lending_limit.as_ref().map(|text| written(text, &name)).transpose()?,
            name,
        })
    };
    Ok(FlavorQuotas {
        name: FlavorName::new(&flavor.name)?,
        resources: flavor.resources.iter().map(quota).collect::<Result<_, ReadError>>()?,
    })
}

/// The other way: what is written to `spec.resourceGroups`.
pub fn render_groups(groups: &ResourceGroups) -> Vec<kueue::ResourceGroup> {
    let text = |written: &Written| QuantityText(written.text().to_owned());
    let quota = |quota: &ResourceQuota| kueue::ResourceQuota {
        name: quota.name.to_string(),
        nominal_quota: text(&quota.nominal),
        borrowing_limit: quota.borrowing.as_ref().map(text),
        lending_limit: quota.lending.as_ref().map(text),
    };
    let flavor = |flavor: &FlavorQuotas| kueue::FlavorQuotas {
        name: flavor.name.to_string(),
        resources: flavor.resources.iter().map(quota).collect(),
    };
    let group = |group: &ResourceGroup| kueue::ResourceGroup {
        covered_resources: group.covered.iter().map(ToString::to_string).collect(),
        flavors: group.flavors.iter().map(flavor).collect(),
    };
    groups.0.iter().map(group).collect()
}

/// One entry of the annotation [`CELLS`].
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct CellText {
    base: QuantityText,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lending_limit: Option<QuantityText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written_lending_limit: Option<QuantityText>,
}

pub fn managed_cells(meta: &Meta) -> Result<BTreeMap<FlavorResource, ManagedCell>, ReadError> {
    meta.annotations.get(CELLS).map_or_else(|| Ok(BTreeMap::new()), |text| cells_of(text))
}

/// What [`render_cells`] made a text of.
pub fn cells_of(text: &str) -> Result<BTreeMap<FlavorResource, ManagedCell>, ReadError> {
    let cells: BTreeMap<String, CellText> =
        serde_json::from_str(text).map_err(|error| ReadError::Cells(error.to_string()))?;
    let cell = |(key, cell): (String, CellText)| {
        let (flavor, resource) = key.split_once('/').ok_or_else(|| ReadError::Cells(key.clone()))?;
        let at = FlavorResource { flavor: FlavorName::new(flavor)?, resource: ResourceName::new(resource)? };
        let amount = |text: &QuantityText| {
            Written::parse(&text.0, &at.resource)
                .map(|written| written.amount())
                .map_err(|problem| ReadError::Cells(format!("{key}: {problem}")))
        };
        let managed = ManagedCell {
            base: amount(&cell.base)?,
            kept_lending: cell.lending_limit.as_ref().map(amount).transpose()?,
            written_lending: cell.written_lending_limit.as_ref().map(amount).transpose()?,
        };
        Ok((at, managed))
    };
    cells.into_iter().map(cell).collect()
}

pub fn render_cells(cells: &BTreeMap<FlavorResource, ManagedCell>) -> String {
    let entry = |(at, cell): (&FlavorResource, &ManagedCell)| {
        let text = |amount: Amount| QuantityText(amount.text(&at.resource));
        let cell = CellText {
            base: text(cell.base),
            lending_limit: cell.kept_lending.map(text),
            written_lending_limit: cell.written_lending.map(text),
        };
        (format!("{}/{}", at.flavor, at.resource), cell)
    };
    let cells: BTreeMap<String, CellText> = cells.iter().map(entry).collect();
    serde_json::to_string(&cells).expect("a map of texts always has a JSON form")
}

fn cohort(queue: &ClusterQueue) -> Result<Option<CohortName>, ReadError> {
    let name = queue.spec.cohort_name.as_deref().filter(|name| !name.is_empty());
    Ok(name.map(CohortName::new).transpose()?)
}

/// `cohort`: where the queue's quota stands, if not in itself.
pub fn hub_queue(
    hub: &Hub,
    queue: &ClusterQueue,
    in_cohort: Option<&QuotaCohort>,
) -> Result<HubQueueInput, ReadError> {
    let (dispatch, automated) = dispatch(hub, queue);
    let stopped = queue.spec.stop_policy.as_deref().is_some_and(|policy| policy != "None");
    let runs_here = stopped && dispatch == Dispatch::RunsLocally;
    let still_held =
        if runs_here { usage(&queue.status.flavors_reservation).collect() } else { BTreeMap::new() };
    let (groups, cohort, managed) = match in_cohort {
        Some(place) if !place.is_of_queue() => {
            // What fedq gave the queue before is taken off by these.
            managed_cells(&queue.metadata)?;
            let parent = place.form.parent.as_deref().map(CohortName::new).transpose()?;
            (place.groups(queue)?, parent, managed_cells(&place.meta())?)
        }
        Some(_) | None => {
            (groups(&queue.spec.resource_groups)?, cohort(queue)?, managed_cells(&queue.metadata)?)
        }
    };
    Ok(HubQueueInput {
        name: QueueName::new(&queue.metadata.name)?,
        groups,
        cohort,
        managed,
        dispatch,
        automated,
        quota_place: in_cohort.map(QuotaCohort::place).unwrap_or_default(),
        still_held,
        unread: BTreeMap::new(),
    })
}

/// Who runs the queue's workloads, and whether Kueue itself writes its quota.
fn dispatch(hub: &Hub, queue: &ClusterQueue) -> (Dispatch, bool) {
    let rules = queue.spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks);
    let checks = rules.filter_map(|rule| hub.checks.get(None, &rule.name));
    let Some(check) = checks.into_iter().find(|check| check.spec.controller_name == MULTIKUEUE) else {
        return (Dispatch::RunsLocally, false);
    };
    let name = check.spec.parameters.as_ref().map(|parameters| parameters.name.as_str());
    let config = name.and_then(|name| hub.multikueue_configs.get(None, name));
    let clusters =
        config.as_deref().map(|config| multikueue::config_clusters(hub, config)).unwrap_or_default();
    let automated = config.is_some_and(|config| config.spec.quota_management.as_deref() == Some("Automated"));
    (Dispatch::MultiKueue { clusters }, automated)
}

/// A ClusterQueue of a worker. `settled` is for the caller to lower, who knows what it wrote when.
pub fn worker_queue(
    queue: &ClusterQueue,
    ours: bool,
    direct: &BTreeMap<FlavorResource, Amount>,
) -> Result<WorkerQueueInput, ReadError> {
    let groups = groups(&queue.spec.resource_groups)?;
    let mut cells: BTreeMap<FlavorResource, WorkerCell> = BTreeMap::new();
    for flavor in groups.0.iter().flat_map(|group| &group.flavors) {
        for quota in &flavor.resources {
            let at = FlavorResource { flavor: flavor.name.clone(), resource: quota.name.clone() };
            let cell = cells.entry(at).or_default();
            cell.nominal = quota.nominal.amount();
            cell.lending = quota.lending.as_ref().map(Written::amount);
            cell.borrowing = quota.borrowing.as_ref().map(Written::amount);
        }
    }
    for (at, reserved) in usage(&queue.status.flavors_reservation) {
        cells.entry(at).or_default().reserved = reserved;
    }
    for (at, amount) in direct {
        cells.entry(at.clone()).or_default().direct = *amount;
    }
    let active = queue.status.conditions.iter().find(|condition| condition.type_ == "Active");
    Ok(WorkerQueueInput {
        name: QueueName::new(&queue.metadata.name)?,
        ours,
        conflict: !ours,
        cohort: cohort(queue)?,
        active: active.is_some_and(|condition| condition.status == "True"),
        settled: active.is_some_and(|condition| condition.observed_generation == queue.metadata.generation),
        cells,
        asked: Vec::new(),
    })
}

/// What a body of a ClusterQueue that was sent asks for; nothing, where it says nothing of quota.
pub fn asked_cells(body: &Value) -> Option<BTreeMap<FlavorResource, AskedCell>> {
    let groups = body.pointer("/spec/resourceGroups")?;
    let groups = self::groups(&Vec::deserialize(groups).ok()?).ok()?;
    let flavors = groups.0.iter().flat_map(|group| &group.flavors);
    let quotas = flavors.flat_map(|flavor| flavor.resources.iter().map(|quota| (flavor.name.clone(), quota)));
    let cells = quotas.map(|(flavor, quota)| {
        let asked = AskedCell {
            nominal: quota.nominal.amount(),
            lending: quota.lending.as_ref().map(Written::amount),
        };
        (FlavorResource { flavor, resource: quota.name.clone() }, asked)
    });
    Some(cells.collect())
}

fn usage(flavors: &[FlavorUsage]) -> impl Iterator<Item = (FlavorResource, Amount)> + '_ {
    flavors.iter().flat_map(|flavor| {
        flavor.resources.iter().filter_map(|resource| {
            let at = FlavorResource {
                flavor: FlavorName::new(&flavor.name).ok()?,
                resource: ResourceName::new(&resource.name).ok()?,
            };
            let total = Quantity::parse(&resource.total.0).ok()?;
            let held = Amount::held(total, &at.resource);
            Some((at, held))
        })
    })
}

/// What workloads that no hub dispatched hold of each queue of a worker.
pub fn direct_use(worker: &Worker) -> BTreeMap<String, BTreeMap<FlavorResource, Amount>> {
    let mut by_queue: BTreeMap<String, BTreeMap<FlavorResource, Amount>> = BTreeMap::new();
    for workload in worker.direct_workloads.all() {
        let Some((queue, held)) = reservation(&workload) else { continue };
        let cells = by_queue.entry(queue.to_owned()).or_default();
        for (at, amount) in held {
            let sum = cells.entry(at).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    by_queue
}

/// The queue and cells that an unfinished workload holds.
fn reservation(workload: &Workload) -> Option<(&str, Vec<(FlavorResource, Amount)>)> {
    let is = |type_: &str| {
        workload
            .status
            .conditions
            .iter()
            .any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    let admission = workload.status.admission.as_ref()?;
    if !is("QuotaReserved") || is("Finished") {
        return None;
    }
    let held = admission.pod_set_assignments.iter().flat_map(|assignment| {
        assignment.resource_usage.iter().filter_map(|(resource, usage)| {
            let at = FlavorResource {
                flavor: FlavorName::new(assignment.flavors.get(resource)?).ok()?,
                resource: ResourceName::new(resource).ok()?,
            };
            let held = Amount::held(Quantity::parse(&usage.0).ok()?, &at.resource);
            Some((at, held))
        })
    });
    Some((&admission.cluster_queue, held.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(json: Value) -> ClusterQueue {
        serde_json::from_value(json).expect("a ClusterQueue")
    }

    #[test]
    fn groups_come_back_as_a_person_wrote_them() {
        let json = serde_json::json!([{
            "coveredResources": ["cpu", "nvidia.com/gpu"],
            "flavors": [{"name": "on-demand", "resources": [
                {"name": "cpu", "nominalQuota": "1500m", "lendingLimit": "1"},
                {"name": "nvidia.com/gpu", "nominalQuota": 8, "borrowingLimit": "0"},
            ]}],
        }]);
        let text: Vec<kueue::ResourceGroup> = serde_json::from_value(json.clone()).expect("groups");
        let rendered = render_groups(&groups(&text).expect("readable"));
        assert_eq!(rendered, text);
    }

    #[test]
    fn cells_survive_the_annotation() {
        let at = FlavorResource {
            flavor: FlavorName::new("spot").expect("a name"),
            resource: ResourceName::new("nvidia.com/gpu").expect("a name"),
        };
        let cell = ManagedCell {
            base: Amount::new(4),
            kept_lending: Some(Amount::new(3)),
            written_lending: Some(Amount::new(2)),
        };
        let cells = BTreeMap::from([(at, cell)]);
        let annotations = BTreeMap::from([(CELLS.to_owned(), render_cells(&cells))]);
        assert_eq!(managed_cells(&Meta { annotations, ..Meta::default() }), Ok(cells));
    }

    #[test]
    fn an_annotation_that_is_not_ours_is_an_error() {
        for text in ["[]", "{\"noslash\": {\"base\": \"1\"}}", "{\"a/cpu\": {\"base\": \"x\"}}"] {
            let annotations = BTreeMap::from([(CELLS.to_owned(), text.to_owned())]);
            let meta = Meta { annotations, ..Meta::default() };
            assert!(matches!(managed_cells(&meta), Err(ReadError::Cells(_))), "{text}");
        }
    }

    #[test]
    fn a_queue_is_settled_when_its_status_is_of_its_generation() {
        let read = |observed: i64| {
            let json = serde_json::json!({
                "metadata": {"name": "q", "generation": 3},
                "spec": {"resourceGroups": [], "queueingStrategy": "StrictFIFO"},
                "status": {"conditions": [
                    {"type": "Active", "status": "True", "observedGeneration": observed}
                ]},
            });
            worker_queue(&queue(json), true, &BTreeMap::new()).expect("readable").settled
        };
        assert!(read(3));
        assert!(!read(2));
    }
}
