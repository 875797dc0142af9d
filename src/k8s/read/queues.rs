//! Queues and what belongs to them, into the types of `domain::queue`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::quota_place::{QuotaCohort, as_ordinary};
use crate::{
    hub::Hub,
    list_watch::Table,
    types::{
        kueue::{
            AdmissionChecksStrategy, ClusterQueueSpec, Cohort, LabelRequirement, LabelSelector, LocalQueue,
            ResourceFlavor, ResourceFlavorSpec, ResourceGroup, WorkloadPriorityClass,
        },
        meta::{Meta, MetaOnly},
    },
    worker::Worker,
};
use fedq_domain::queue::{
    input::{
        CohortFacts, HubObjects, HubQueue, LocalQueueKey, LocalQueueSpec, NamespaceRules, Object, Owner,
        PriorityClass, WorkerLocalQueue, WorkerObjects,
    },
    policy::QueuePolicy,
    selector::{Requirement, Selector, Test},
};
use fedq_values::ids::{FlavorName, QueueName};

/// A ClusterQueue's spec apart from its quota.
pub fn policy(spec: &ClusterQueueSpec) -> QueuePolicy {
    let mut fields = spec.policy.clone();
    let mut put =
        |name: &str, value: Option<Value>| fields.insert(name.to_owned(), value.unwrap_or_default());
    put("cohortName", spec.cohort_name.as_ref().map(|name| json!(name)));
    put("stopPolicy", spec.stop_policy.as_ref().map(|policy| json!(policy)));
    put("namespaceSelector", spec.namespace_selector.as_ref().map(selector));
    put("admissionChecksStrategy", spec.admission_checks_strategy.as_ref().map(checks));
    QueuePolicy::new(fields)
}

fn selector(selector: &LabelSelector) -> Value {
    json!({"matchLabels": selector.match_labels, "matchExpressions": selector.match_expressions})
}

fn checks(strategy: &AdmissionChecksStrategy) -> Value {
    json!({"admissionChecks": strategy.admission_checks})
}

/// What the hub says that workers must have.
pub fn hub_objects(hub: &Hub, hub_id: &str, namespace_rules: &NamespaceRules) -> HubObjects {
    let hub_queue = |queue: &Arc<crate::types::kueue::ClusterQueue>| {
        // Of one whose quota stands in a Cohort of its own, workers get an ordinary copy.
        let copied = QuotaCohort::find(hub, queue, hub_id).map(|own| as_ordinary(queue, &own));
        let spec = copied.as_ref().map_or(&queue.spec, |copied| &copied.spec);
        let cohort = spec.cohort_name.clone().filter(|name| !name.is_empty());
        let namespaces = queue.spec.namespace_selector.as_ref().and_then(requirements);
        Some((QueueName::new(&queue.metadata.name).ok()?, HubQueue { cohort, namespaces }))
    };
    let local_queue = |queue: &Arc<LocalQueue>| {
        // One that is going is none to copy.
        queue.metadata.deletion_timestamp.is_none().then(|| (key(&queue.metadata), local_queue_spec(queue)))
    };
    let flavor = |flavor: &Arc<ResourceFlavor>| {
        Some((FlavorName::new(&flavor.metadata.name).ok()?, flavor_fields(&flavor.spec)))
    };
    let namespaces = hub.namespaces.all();
    HubObjects {
        id: hub_id.to_owned(),
        queues: hub.queues.all().iter().filter_map(hub_queue).collect(),
        local_queues: hub.local_queues.all().iter().filter_map(local_queue).collect(),
        namespaces: namespaces
            .iter()
            .map(|one| (one.metadata.name.clone(), one.metadata.labels.clone()))
            .collect(),
        namespace_rules: namespace_rules.clone(),
        flavors: hub.flavors.all().iter().filter_map(flavor).collect(),
        priority_classes: hub.priority_classes.all().iter().map(|class| priority_class(class)).collect(),
        cohorts: cohorts(&hub.cohorts),
        partial: !hub.local_queues.skipped().is_empty()
            || !hub.flavors.skipped().is_empty()
            || !hub.priority_classes.skipped().is_empty(),
    }
}

/// The objects of a worker that fedq may write, as they were at one moment: what is decided from it is
/// written with its versions.
pub struct WorkerSnapshot {
    pub namespaces: BTreeMap<String, Arc<MetaOnly>>,
    pub local_queues: BTreeMap<LocalQueueKey, Arc<LocalQueue>>,
    pub flavors: BTreeMap<String, Arc<ResourceFlavor>>,
    pub priority_classes: BTreeMap<String, Arc<WorkloadPriorityClass>>,
}

impl WorkerSnapshot {
    pub fn take(worker: &Worker) -> Self {
        let named = |one: Arc<MetaOnly>| (one.metadata.name.clone(), one);
        let local_queue = |one: Arc<LocalQueue>| (key(&one.metadata), one);
        let flavor = |one: Arc<ResourceFlavor>| (one.metadata.name.clone(), one);
        let class = |one: Arc<WorkloadPriorityClass>| (one.metadata.name.clone(), one);
        Self {
            namespaces: worker.namespaces.all().into_iter().map(named).collect(),
            local_queues: worker.local_queues.all().into_iter().map(local_queue).collect(),
            flavors: worker.flavors.all().into_iter().map(flavor).collect(),
            priority_classes: worker.priority_classes.all().into_iter().map(class).collect(),
        }
    }

    pub fn objects(&self, worker: &Worker, hub_id: &str) -> WorkerObjects {
        let queues = worker.queues.all();
        let cohorts_with_quota = worker.cohorts.all();
        let groups = queues.iter().flat_map(|queue| &queue.spec.resource_groups);
        let groups = groups.chain(cohorts_with_quota.iter().flat_map(|cohort| &cohort.spec.resource_groups));
        let flavor = |(name, flavor): (&String, &Arc<ResourceFlavor>)| {
            let object = object(&flavor.metadata, hub_id, flavor_fields(&flavor.spec));
            Some((FlavorName::new(name).ok()?, object))
        };
        let local_queue = |(key, queue): (&LocalQueueKey, &Arc<LocalQueue>)| {
            let content = WorkerLocalQueue { spec: local_queue_spec(queue), workloads: workloads(queue) };
            (key.clone(), object(&queue.metadata, hub_id, content))
        };
        let namespace = |(name, one): (&String, &Arc<MetaOnly>)| {
            (name.clone(), object(&one.metadata, hub_id, one.metadata.labels.clone()))
        };
        let class = |class: &Arc<WorkloadPriorityClass>| {
            let (name, content) = priority_class(class);
            (name, object(&class.metadata, hub_id, content))
        };
        WorkerObjects {
            local_queues: self.local_queues.iter().map(local_queue).collect(),
            namespaces: self.namespaces.iter().map(namespace).collect(),
            flavors: self.flavors.iter().filter_map(flavor).collect(),
            priority_classes: self.priority_classes.values().map(class).collect(),
            topologies: worker.topologies.all().iter().map(|one| one.metadata.name.clone()).collect(),
            cohorts: cohorts(&worker.cohorts),
            used_flavors: groups.flat_map(flavor_names).collect(),
            has_our_queues: queues.iter().any(|queue| owner(&queue.metadata, hub_id) == Owner::Ours),
        }
    }
}

fn object<T>(meta: &Meta, hub_id: &str, content: T) -> Object<T> {
    Object { owner: owner(meta, hub_id), deleting: meta.deletion_timestamp.is_some(), content }
}

fn owner(meta: &Meta, hub_id: &str) -> Owner {
    if meta.is_handed_over() {
        Owner::HandedOver
    } else if meta.is_labelled(hub_id) {
        Owner::Ours
    } else {
        Owner::Foreign
    }
}

fn key(meta: &Meta) -> LocalQueueKey {
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone())
}

fn local_queue_spec(queue: &LocalQueue) -> LocalQueueSpec {
    let sharing = queue.spec.fair_sharing.as_ref().and_then(Value::as_object).cloned();
    LocalQueueSpec::new(&queue.spec.cluster_queue, queue.spec.stop_policy.as_deref(), sharing)
}

/// Where Kueue has never looked at the queue, it has admitted nothing through it either.
fn workloads(queue: &LocalQueue) -> Option<i64> {
    let status = &queue.status;
    let current = |observed: i64| observed == queue.metadata.generation;
    let active = status.conditions.iter().find(|condition| condition.type_ == "Active");
    active.is_none_or(|active| current(active.observed_generation)).then(|| {
        status.pending_workloads.saturating_add(status.reserving_workloads.max(status.admitted_workloads))
    })
}

fn flavor_fields(spec: &ResourceFlavorSpec) -> Map<String, Value> {
    match serde_json::to_value(spec) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("a struct of texts always has the form of an object"),
    }
}

fn priority_class(class: &WorkloadPriorityClass) -> (String, PriorityClass) {
    let content = PriorityClass { value: class.value, description: class.description.clone() };
    (class.metadata.name.clone(), content)
}

fn cohorts(table: &Table<Cohort>) -> BTreeMap<String, CohortFacts> {
    let facts = |cohort: &Arc<Cohort>| {
        let parent = cohort.spec.parent_name.clone().filter(|name| !name.is_empty());
        let has_quota = !cohort.spec.resource_groups.is_empty();
        (cohort.metadata.name.clone(), CohortFacts { parent, has_quota })
    };
    table.all().iter().map(facts).collect()
}

fn flavor_names(group: &ResourceGroup) -> impl Iterator<Item = String> + '_ {
    group.flavors.iter().map(|flavor| flavor.name.clone())
}

/// `None` for an operator that Kubernetes does not have: such a selector selects nothing.
fn requirements(selector: &LabelSelector) -> Option<Selector> {
    let one = |value: &String| BTreeSet::from([value.clone()]);
    let label =
        |(key, value): (&String, &String)| Requirement { key: key.clone(), test: Test::In(one(value)) };
    let expression = |requirement: &LabelRequirement| {
        let values = || requirement.values.iter().cloned().collect();
        let test = match requirement.operator.as_str() {
            "In" => Test::In(values()),
            "NotIn" => Test::NotIn(values()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::DoesNotExist,
            _ => return None,
        };
        Some(Requirement { key: requirement.key.clone(), test })
    };
    let labels = selector.match_labels.iter().map(|pair| Some(label(pair)));
    labels.chain(selector.match_expressions.iter().map(expression)).collect::<Option<_>>().map(Selector)
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn a_policy_has_every_field_but_the_quota() {
        let spec = json!({
            "resourceGroups": [], "cohortName": "all", "stopPolicy": "Hold",
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "admissionChecksStrategy": {"admissionChecks": [{"name": "multikueue"}]},
            "fairSharing": {"weight": "2"}, "comesLater": {"on": true},
        });
        let fields: Map<String, Value> = spec.as_object().cloned().expect("an object");
        let read: ClusterQueueSpec = serde_json::from_value(spec).expect("a spec");
        assert_eq!(policy(&read), QueuePolicy::new(fields));
        assert_eq!(policy(&read).fields().get("comesLater"), Some(&json!({"on": true})));
    }

    #[test]
    fn no_selector_and_an_empty_one_differ() {
        let read = |json: Value| {
            let spec: ClusterQueueSpec = serde_json::from_value(json).expect("a spec");
            policy(&spec).fields().get("namespaceSelector").cloned()
        };
        assert_eq!(read(json!({})), None);
        assert_eq!(read(json!({"namespaceSelector": null})), None);
        assert_eq!(read(json!({"namespaceSelector": {}})), Some(json!({})));
    }
}
