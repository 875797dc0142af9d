//! Where a hub queue's quota stands: in the ClusterQueue, or in a Cohort that the queue is alone in.
//!
//! Kueue lets a queue use what its Cohort has, so a ClusterQueue that is kept in Git can say zero for ever, while fedq
//! writes the Cohort: no field has two writers. Only on the hub, since a Cohort's status does not say which quota Kueue has
//! seen, and a worker's queues may grow only once it is known what was admitted after others shrank.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value, json};

use super::{ReadError, groups};
use crate::{
    hub::Hub,
    types::{
        kueue::{ClusterQueue, Cohort},
        meta::{HUB_LABEL, Meta},
    },
};
use fedq_domain::{
    quota::{CohortProblem, QuotaPlace},
    resource_groups::ResourceGroups,
};
use fedq_values::ids::CohortName;

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
    is_ours: bool,
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

/// Whether its quota is to stand in a Cohort.
///
/// # Errors
/// Where the annotation says something that fedq does not know: its quota may be meant to be anywhere.
pub fn is_in_cohort(queue: &Meta) -> Result<bool, CohortProblem> {
    match queue.annotations.get(QUOTA_INTO).map(String::as_str) {
        None | Some("" | "queue") => Ok(false),
        Some("cohort") => Ok(true),
        Some(other) => Err(CohortProblem::Annotation {
            annotation: QUOTA_INTO,
            value: other.to_owned(),
            expected: "`cohort` or `queue`",
        }),
    }
}

impl QuotaCohort {
    /// `None` for a queue that has its quota itself.
    pub fn find(hub: &Hub, queue: &ClusterQueue, hub_id: &str) -> Option<Self> {
        let asked = is_in_cohort(&queue.metadata);
        if asked == Ok(false) {
            return None;
        }
        let name = cohort_of(&queue.metadata.name);
        let object = hub.cohorts.get(None, &name);
        let parent = parent(queue);
        let form = CohortForm {
            parent: parent.clone().ok().flatten(),
            fair_sharing: queue.spec.policy.get("fairSharing").filter(|sharing| !sharing.is_null()).cloned(),
        };
        let mut found = Self { name, object, form, problem: None, is_ours: true };
        let looked = asked.map(|_| ()).and(parent.map(|_| ())).and_then(|()| found.look(hub, queue, hub_id));
        found.is_ours = found.object.as_deref().is_some_and(|cohort| cohort.metadata.is_labelled(hub_id));
        found.problem = looked.err();
        Some(found)
    }

    fn look(&self, hub: &Hub, queue: &ClusterQueue, hub_id: &str) -> Result<(), CohortProblem> {
        let cohort = || self.name.clone();
        if LONGEST_NAME < self.name.len() {
            return Err(CohortProblem::NameTooLong);
        }
        if queue.spec.cohort_name.as_deref() != Some(self.name.as_str()) {
            let found = queue.spec.cohort_name.clone().filter(|found| !found.is_empty());
            return Err(CohortProblem::NotInIt { wanted: cohort(), found });
        }
        if let Some(object) = self.object.as_deref().filter(|object| !object.metadata.is_labelled(hub_id))
            && !object.metadata.is_handed_over()
        {
            let labelled = object.metadata.labels.contains_key(HUB_LABEL);
            let cohort = cohort();
            return Err(if labelled {
                CohortProblem::OfAnotherHub { cohort }
            } else {
                CohortProblem::NotOurs { cohort }
            });
        }
        if let Some(limit) = limit_of(queue) {
            return Err(CohortProblem::LimitOnQueue { limit, cohort: cohort() });
        }
        match &self.form.parent {
            Some(parent) if self.is_above(hub, parent) => {
                Err(CohortProblem::Cycle { cohort: cohort(), parent: parent.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether `cohort` is below it, or is it.
    fn is_above(&self, hub: &Hub, cohort: &str) -> bool {
        let (mut next, mut passed) = (Some(cohort.to_owned()), BTreeSet::new());
        while let Some(name) = next.take().filter(|name| passed.insert(name.clone())) {
            if name == self.name {
                return true;
            }
            next = hub.cohorts.get(None, &name).and_then(|cohort| cohort.spec.parent_name.clone());
        }
        false
    }

    pub fn place(&self) -> QuotaPlace {
        QuotaPlace::Cohort { problem: self.problem.clone() }
    }

    /// Whether the quota is still where it was before: in the queue.
    pub fn is_of_queue(&self) -> bool {
        self.problem.is_some() && !self.is_ours
    }

    /// What the quota is remembered by. The Cohort is fedq's own: made anew, it gets back what people gave it.
    pub fn known_by(&self, queue: &Meta) -> String {
        if self.is_of_queue() { queue.uid.clone() } else { format!("{}/cohort", queue.uid) }
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
        let held = own.with_quota_of(&held);
        Ok(if self.form.parent.is_some() { held } else { held.without_limits() })
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

/// The queue as one that has its quota itself: so it is copied to workers. One that is in another cohort is no other there.
pub fn as_ordinary(queue: &ClusterQueue, cohort: &QuotaCohort) -> ClusterQueue {
    let mut ordinary = queue.clone();
    if queue.spec.cohort_name.as_deref() == Some(cohort.name.as_str()) {
        ordinary.spec.cohort_name.clone_from(&cohort.form.parent);
    }
    ordinary
}

fn parent(queue: &ClusterQueue) -> Result<Option<String>, CohortProblem> {
    let parent = queue.metadata.annotations.get(PARENT_COHORT).filter(|parent| !parent.is_empty());
    let is_name = |parent: &String| CohortName::new(parent).is_ok();
    match parent {
        Some(parent) if !is_name(parent) => Err(CohortProblem::Annotation {
            annotation: PARENT_COHORT,
            value: parent.clone(),
            expected: "the name of a Cohort",
        }),
        parent => Ok(parent.cloned()),
    }
}

/// A limit of the queue's own, which would hold for all that it uses, and which nobody would move for it.
fn limit_of(queue: &ClusterQueue) -> Option<&'static str> {
    let flavors = queue.spec.resource_groups.iter().flat_map(|group| &group.flavors);
    flavors.flat_map(|flavor| &flavor.resources).find_map(|quota| {
        let lending = quota.lending_limit.as_ref().map(|_| "lendingLimit");
        quota.borrowing_limit.as_ref().map(|_| "borrowingLimit").or(lending)
    })
}
