//! Hub queues whose quota stands in a Cohort of their own, so that whoever keeps the ClusterQueue in Git is its only writer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use fedq_domain::{
    quota::{HubQueuePlan, ManagedCell},
    resource_groups::{Quota, ResourceQuota, Written},
    resources::FlavorResource,
};
use fedq_k8s::{
    read::{
        self, CELLS,
        quota_place::{QuotaCohort, cohort_of},
    },
    types::{
        kueue::{ClusterQueue, Cohort},
        meta::{ADOPT, HUB_LABEL, MANAGED_BY, MANAGED_BY_FEDQ, Meta},
    },
    write::{Action, Change, Kind, Target as WriteTarget},
};
use fedq_values::ids::QueueName;

use super::{MANAGER, QuotaController, Round, changes::QuotaObject};

impl QuotaController {
    /// What the Cohort still needs: its form, its quota and the annotation that lists fedq's cells, in one write.
    pub(super) fn cohort_change(
        &self,
        name: &QueueName,
        cohort: &QuotaCohort,
        plan: &HubQueuePlan,
        round: &mut Round<'_>,
    ) -> Option<Change> {
        let queue = self.context.hub.queues.get(None, name.as_str())?;
        // Quota that fedq gave the queue before would count beside the Cohort's.
        if queue.metadata.annotations.contains_key(CELLS) {
            return take_from_queue(&queue);
        }
        let target = WriteTarget::cluster_scoped(Kind::Cohort, &cohort.name);
        let annotations = json!({CELLS: read::render_cells(&plan.managed)});
        let groups = json!(read::render_groups(&plan.groups));
        let labels = json!({HUB_LABEL: self.context.hub_id, MANAGED_BY: MANAGED_BY_FEDQ});
        let Some(object) = &cohort.object else {
            let mut spec = cohort.form.fields();
            spec.retain(|_, value| !value.is_null());
            spec.insert("resourceGroups".to_owned(), groups);
            let body = json!({
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Cohort",
                "metadata": {"name": cohort.name, "labels": labels, "annotations": annotations},
                "spec": spec,
            });
            return Some(Change { target, action: Action::Create(body), manager: MANAGER });
        };
        let meta = &object.metadata;
        let mut spec = cohort.form_difference();
        self.leave_fought_over(
            &QuotaObject { place: "hub", target: &target, meta, queue: name.as_str() },
            &mut spec,
            round,
        );
        let unlabelled = !meta.is_labelled(&self.context.hub_id);
        let of_quota = !cohort.holds(&plan.groups) || read::managed_cells(meta).ok()? != plan.managed;
        if meta.deletion_timestamp.is_some() || spec.is_empty() && !unlabelled && !of_quota {
            return None;
        }
        let mut metadata = json!({"resourceVersion": meta.resource_version});
        if of_quota {
            let fought = QuotaObject { place: "hub", target: &target, meta, queue: name.as_str() };
            if !self.may_write(&fought, &plan.groups, round) {
                return None;
            }
            metadata["annotations"] = annotations;
            spec.insert("resourceGroups".to_owned(), groups);
        }
        if unlabelled {
            metadata["labels"] = labels;
            metadata["annotations"][ADOPT] = Value::Null;
        }
        let action = Action::Merge(json!({"metadata": metadata, "spec": spec}));
        Some(Change { target, action, manager: MANAGER })
    }

    /// Cohorts of ours whose queue has its quota itself again, or is gone.
    pub(super) fn cohorts_left(&self, round: &Round<'_>) -> Vec<Change> {
        let skipped = self.context.hub.queues.skipped();
        let unread = skipped.iter().filter_map(|skipped| skipped.name.as_deref());
        let unread = unread.chain(round.unreadable.keys().map(QueueName::as_str)).map(cohort_of);
        let read = self.told.cohorts.values().map(|cohort| cohort.name.clone());
        let wanted: BTreeSet<String> = unread.chain(read).collect();
        let cohorts = self.context.hub.cohorts.all();
        let left = cohorts.iter().filter(|cohort| {
            let meta = &cohort.metadata;
            self.is_our_cohort(cohort)
                && meta.name.starts_with(&cohort_of(""))
                && meta.deletion_timestamp.is_none()
                && !wanted.contains(&meta.name)
        });
        left.map(|cohort| delete(&cohort.metadata)).collect()
    }

    /// What is to be said where a Cohort of ours still gives the queue quota that is to stand in the queue itself again.
    pub(super) fn left_in_cohort(&self, queue: &QueueName) -> Option<String> {
        if self.told.cohorts.contains_key(queue) {
            return None;
        }
        let cohort = self.context.hub.cohorts.get(None, &cohort_of(queue.as_str()))?;
        let meta = &cohort.metadata;
        // Whoever took one of the marks off has the quota there all the same.
        let is_marked = meta.is_labelled(&self.context.hub_id) || meta.annotations.contains_key(CELLS);
        is_marked
            .then(|| format!("its quota is still in Cohort `{}`, which has to be deleted first", meta.name))
    }

    /// By its label, and by what fedq wrote on it: people copy objects with their labels.
    fn is_our_cohort(&self, cohort: &Cohort) -> bool {
        cohort.metadata.is_labelled(&self.context.hub_id) && cohort.metadata.annotations.contains_key(CELLS)
    }
}

fn delete(meta: &Meta) -> Change {
    Change {
        target: WriteTarget::cluster_scoped(Kind::Cohort, &meta.name),
        action: Action::Delete { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() },
        manager: MANAGER,
    }
}

/// Leaves a queue that has its quota in a Cohort from now on as it was before fedq.
fn take_from_queue(queue: &ClusterQueue) -> Option<Change> {
    let managed = read::managed_cells(&queue.metadata).ok()?;
    let observed = read::groups(&queue.spec.resource_groups).ok()?;
    let mut groups = observed.clone();
    let quotas = managed.iter().filter_map(|(at, cell)| Some((at.clone(), before(observed.cell(at)?, cell))));
    groups.set_cells(&quotas.collect::<BTreeMap<FlavorResource, Quota>>());
    let mut spec = Map::new();
    if groups != observed {
        spec.insert("resourceGroups".to_owned(), json!(read::render_groups(&groups)));
    }
    let body = json!({
        "metadata": {"resourceVersion": queue.metadata.resource_version, "annotations": {CELLS: null}},
        "spec": spec,
    });
    let target = WriteTarget::cluster_scoped(Kind::ClusterQueue, &queue.metadata.name);
    Some(Change { target, action: Action::Merge(body), manager: MANAGER })
}

/// What people already took off it is not put back.
fn before(quota: &ResourceQuota, cell: &ManagedCell) -> Quota {
    let nominal = quota.nominal.amount().min(cell.base);
    Quota {
        nominal,
        borrowing: quota.borrowing.as_ref().map(Written::amount),
        lending: quota.lending.as_ref().map(|limit| limit.amount().min(nominal)),
    }
}
