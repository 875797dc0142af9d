//! Where a hub queue's quota stands: in the ClusterQueue, or in a Cohort that the queue is alone in.
//!
//! Kueue lets a queue use what its Cohort has, so a ClusterQueue that is kept in Git can say zero for ever, while fedq
//! writes the Cohort: no field has two writers. Only on the hub, since a Cohort's status does not say which quota Kueue has
//! seen, and a worker's queues may grow only once it is known what was admitted after others shrank.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ReadError, groups};
use crate::{
    hub::Hub,
    types::{
        kueue::{ClusterQueue, Cohort},
        meta::Meta,
    },
};
use fedq_domain::{
    quota::{CohortProblem, QuotaPlace},
    resource_groups::ResourceGroups,
};

/// On a hub's ClusterQueue: `cohort` where its quota is to stand in a Cohort of its own.
pub const QUOTA_INTO: &str = "fedq.dev/quota-into";
/// On a ClusterQueue with [`QUOTA_INTO`]: the cohort that it would be in otherwise.
pub const PARENT_COHORT: &str = "fedq.dev/parent-cohort";
const LONGEST_NAME: usize = 253;

/// The Cohort of one queue.
pub struct QuotaCohort {
    pub name: String,
    /// As it is now; `None` until it is made.
    pub object: Option<Arc<Cohort>>,
    /// What it has to say beside its quota.
    pub form: CohortForm,
    problem: Option<CohortProblem>,
}

/// What of a Cohort follows its queue.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CohortForm {
    pub parent: Option<String>,
    /// `fairSharing` of the queue: where its quota is the Cohort's, so is its weight.
    pub fair_sharing: Option<Value>,
}

impl CohortForm {
    /// As fields of a merge patch: what there is to be none of is named, too.
    pub fn fields(&self) -> Map<String, Value> {
        let Value::Object(fields) = json!({"parentName": self.parent, "fairSharing": self.fair_sharing})
        else {
            unreachable!("it is written as an object")
        };
        fields
    }

    fn of(cohort: &Cohort) -> Self {
        let parent = cohort.spec.parent_name.clone().filter(|parent| !parent.is_empty());
        Self { parent, fair_sharing: cohort.spec.fair_sharing.clone() }
    }
}

pub fn cohort_of(queue: &str) -> String {
    format!("fedq-{queue}")
}

/// # Errors
/// Where the annotation says something that fedq does not know: its quota may be meant to be anywhere.
pub fn is_in_cohort(queue: &Meta) -> Result<bool, ReadError> {
    match queue.annotations.get(QUOTA_INTO).map(String::as_str) {
        None | Some("" | "queue") => Ok(false),
        Some("cohort") => Ok(true),
        Some(other) => Err(ReadError::QuotaInto(other.to_owned())),
    }
}

impl QuotaCohort {
    /// `None` for a queue that has its quota itself.
    pub fn find(hub: &Hub, queue: &ClusterQueue, hub_id: &str) -> Result<Option<Self>, ReadError> {
        if !is_in_cohort(&queue.metadata)? {
            return Ok(None);
        }
        let name = cohort_of(&queue.metadata.name);
        let object = hub.cohorts.get(None, &name);
        let parent = queue.metadata.annotations.get(PARENT_COHORT).filter(|parent| !parent.is_empty());
        let form = CohortForm {
            parent: parent.cloned(),
            fair_sharing: queue.spec.policy.get("fairSharing").filter(|sharing| !sharing.is_null()).cloned(),
        };
        let is_in = queue.spec.cohort_name.as_deref() == Some(name.as_str());
        let usable =
            |cohort: &Cohort| cohort.metadata.is_labelled(hub_id) || cohort.metadata.is_handed_over();
        let problem = if LONGEST_NAME < name.len() {
            Some(CohortProblem::NameTooLong)
        } else if !is_in {
            let found = queue.spec.cohort_name.clone().filter(|found| !found.is_empty());
            Some(CohortProblem::NotInIt { wanted: name.clone(), found })
        } else if object.as_deref().is_some_and(|cohort| !usable(cohort)) {
            Some(CohortProblem::NotOurs { cohort: name.clone() })
        } else {
            None
        };
        Ok(Some(Self { name, object, form, problem }))
    }

    pub fn place(&self) -> QuotaPlace {
        QuotaPlace::Cohort { problem: self.problem.clone() }
    }

    /// The metadata of the object that holds the quota.
    pub fn meta(&self) -> Meta {
        self.object.as_ref().map(|cohort| cohort.metadata.clone()).unwrap_or_default()
    }

    /// The queue's form with the Cohort's quota. What the ClusterQueue itself has is its owner's, and on top.
    pub fn groups(&self, queue: &ClusterQueue) -> Result<ResourceGroups, ReadError> {
        let own = groups(&queue.spec.resource_groups)?;
        let held = match &self.object {
            Some(cohort) => groups(&cohort.spec.resource_groups)?,
            None => ResourceGroups::default(),
        };
        Ok(own.with_quota_of(&held))
    }

    /// Whether it has just this quota.
    pub fn holds(&self, groups: &ResourceGroups) -> bool {
        let held = self.object.as_deref().map(|cohort| super::groups(&cohort.spec.resource_groups));
        held.is_some_and(|held| held.is_ok_and(|held| held == *groups))
    }

    /// What of its form a merge patch has to change.
    pub fn form_difference(&self) -> Map<String, Value> {
        let observed = self.object.as_deref().map(CohortForm::of).unwrap_or_default().fields();
        let mut fields = self.form.fields();
        fields.retain(|field, value| observed.get(field) != Some(value));
        fields
    }
}

/// The queue as one that has its quota itself: so it is copied to workers.
pub fn as_ordinary(queue: &ClusterQueue, cohort: &QuotaCohort) -> ClusterQueue {
    let mut ordinary = queue.clone();
    ordinary.spec.cohort_name.clone_from(&cohort.form.parent);
    ordinary
}
