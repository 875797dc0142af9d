//! Which objects around its queues a worker still needs, and what stands in the way.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{
    input::{HubObjects, LocalQueueKey, LocalQueueSpec, Object, Owner, PriorityClass, WorkerObjects},
    merge_patch,
    pod_security::{self, is_pod_security},
    report::{Problem, QueueReport},
    selector::{Labels, Selector},
};
use fedq_values::ids::{FlavorName, QueueName};

/// Marks every object fedq makes on a worker with the hub it belongs to: two hubs may share a worker.
pub const HUB_LABEL: &str = "fedq.dev/hub";
/// On an object that fedq did not make: hand it over.
pub const ADOPT: &str = "fedq.dev/adopt";
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY_FEDQ: &str = "fedq";

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ObjectRef {
    Namespace(String),
    Flavor(FlavorName),
    PriorityClass(String),
    LocalQueue(LocalQueueKey),
}

/// One write that the worker still needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    pub object: ObjectRef,
    pub step: Step,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The object but for its kind and name.
    Create(Map<String, Value>),
    /// A JSON merge patch.
    Patch(Map<String, Value>),
    Delete,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// In the order in which they are needed.
    pub wanted: Vec<Wanted>,
    /// Each once, in order.
    pub reports: Vec<QueueReport>,
}

/// The labels of an object that fedq makes.
pub fn labels(hub_id: &str) -> Map<String, Value> {
    let label = |key: &str, value: &str| (key.to_owned(), json!(value));
    [label(HUB_LABEL, hub_id), label(MANAGED_BY, MANAGED_BY_FEDQ)].into_iter().collect()
}

/// What the worker needs for the queues that its claim names. With none claimed, what is ours is
/// cleared away.
///
/// A LocalQueue is asked for once its namespace is there, and goes once it is held and empty: each call
/// gives the next steps only.
pub fn worker_objects(
    hub: &HubObjects,
    worker: &WorkerObjects,
    claimed: &BTreeMap<QueueName, BTreeSet<FlavorName>>,
) -> Decision {
    let mut deciding = Deciding { hub, worker, claimed, wanted: Vec::new(), reports: BTreeSet::new() };
    deciding.system_namespaces();
    deciding.namespaces();
    deciding.flavors();
    deciding.priority_classes();
    deciding.local_queues();
    deciding.unclaimed_local_queues();
    deciding.cohorts();
    Decision { wanted: deciding.wanted, reports: deciding.reports.into_iter().collect() }
}

struct Deciding<'a> {
    hub: &'a HubObjects,
    worker: &'a WorkerObjects,
    claimed: &'a BTreeMap<QueueName, BTreeSet<FlavorName>>,
    wanted: Vec<Wanted>,
    reports: BTreeSet<QueueReport>,
}

impl<'a> Deciding<'a> {
    /// Whoever may make a LocalQueue in such a namespace of the hub does not let work into the workers' of that name: what runs
    /// there may do more than a tenant.
    fn system_namespaces(&mut self) {
        for ((namespace, _), spec) in self.hub.local_queues.iter().filter(|((name, _), _)| is_system(name)) {
            if let Some((queue, _)) = self.claimed.get_key_value(spec.queue.as_str()) {
                self.report(Some(queue), Problem::SystemNamespace { namespace: namespace.clone() });
            }
        }
    }

    /// The hub's LocalQueues of claimed queues.
    fn copied(
        &self,
    ) -> impl Iterator<Item = (&'a LocalQueueKey, &'a LocalQueueSpec, &'a QueueName)> + use<'a> {
        let claimed = self.claimed;
        let local_queues = self.hub.local_queues.iter().filter(|((namespace, _), _)| !is_system(namespace));
        local_queues.filter_map(move |(key, spec)| {
            let (queue, _) = claimed.get_key_value(spec.queue.as_str())?;
            Some((key, spec, queue))
        })
    }

    fn namespaces(&mut self) {
        let mut needed: BTreeMap<&str, BTreeSet<&QueueName>> = BTreeMap::new();
        for ((namespace, _), _, queue) in self.copied() {
            needed.entry(namespace).or_default().insert(queue);
        }
        let none = Labels::new();
        for (name, queues) in needed {
            let on_hub = self.hub.namespaces.get(name);
            let hub_labels = on_hub.unwrap_or(&none);
            let Some(namespace) = self.worker.namespaces.get(name) else {
                // A LocalQueue cannot be without its namespace, so the hub's is about to be seen. What its pods may do is
                // not known before, and is never loosened afterwards.
                if on_hub.is_none() {
                    continue;
                }
                let mut labels = self.copied_labels(&queues, hub_labels, &none);
                let default = self.hub.namespace_rules.pod_security;
                labels.extend(in_json(pod_security::of_new(hub_labels, default)));
                self.create(ObjectRef::Namespace(name.to_owned()), labels, Map::new());
                continue;
            };
            if namespace.deleting {
                let problem = Problem::NamespaceTerminating { namespace: name.to_owned() };
                for queue in queues {
                    self.report(Some(queue), problem.clone());
                }
            } else if namespace.owner == Owner::Foreign {
                self.report_unselected(name, &queues, hub_labels);
            } else {
                let mut labels = self.copied_labels(&queues, hub_labels, &namespace.content);
                labels.extend(in_json(pod_security::stricter(hub_labels, &namespace.content)));
                let mut patch = Map::new();
                if !labels.is_empty() {
                    patch.insert("metadata".to_owned(), json!({"labels": labels}));
                }
                self.patch(ObjectRef::Namespace(name.to_owned()), namespace.owner, patch);
            }
        }
    }

    /// The labels that decide whether the queues take the namespace, and those that are to be copied, where `observed`
    /// differs.
    fn copied_labels(
        &self,
        queues: &BTreeSet<&QueueName>,
        hub: &Labels,
        observed: &Labels,
    ) -> Map<String, Value> {
        let selectors = queues.iter().filter_map(|queue| self.hub.queues.get(*queue)?.namespaces.as_ref());
        let copied = self.hub.namespace_rules.copied_labels.iter().map(String::as_str);
        let keys: BTreeSet<&str> = selectors.flat_map(Selector::keys).chain(copied).collect();
        let differing =
            keys.into_iter().filter(|key| !is_pod_security(key) && hub.get(*key) != observed.get(*key));
        differing
            .map(|key| (key.to_owned(), hub.get(key).map_or(Value::Null, |value| json!(value))))
            .collect()
    }

    /// Only where the hub itself lets the queue take the namespace.
    fn report_unselected(&mut self, name: &str, queues: &BTreeSet<&QueueName>, hub_labels: &Labels) {
        let Some(namespace) = self.worker.namespaces.get(name) else { return };
        for queue in queues {
            let selector = self.hub.queues.get(*queue).and_then(|queue| queue.namespaces.as_ref());
            let Some(selector) = selector.filter(|selector| selector.matches(hub_labels)) else { continue };
            let keys: Vec<String> =
                selector.failing(&namespace.content).map(|requirement| requirement.key.clone()).collect();
            if !keys.is_empty() {
                let problem = Problem::NamespaceNotSelected { namespace: name.to_owned(), keys };
                self.report(Some(queue), problem);
            }
        }
    }

    fn flavors(&mut self) {
        let claimed = self.claimed;
        let named: BTreeMap<&FlavorName, &QueueName> = claimed
            .iter()
            .flat_map(|(queue, flavors)| flavors.iter().map(move |flavor| (flavor, queue)))
            .collect();
        for (name, queue) in &named {
            let hub = self.hub.flavors.get(*name);
            let found = self.worker.flavors.get(*name);
            match (hub, found) {
                (Some(spec), None) => {
                    let fields = Map::from_iter([("spec".to_owned(), json!(spec))]);
                    self.create(ObjectRef::Flavor((*name).clone()), Map::new(), fields);
                }
                (Some(spec), Some(found)) => self.keep_flavor(name, queue, spec, found),
                (None, _) => {}
            }
            let spec = found.map(|found| &found.content).or(hub);
            let topology = spec.and_then(|spec| spec.get("topologyName")).and_then(Value::as_str);
            if let Some(topology) = topology.filter(|name| !self.worker.topologies.contains(*name)) {
                let problem =
                    Problem::TopologyMissing { flavor: (*name).clone(), topology: topology.to_owned() };
                self.report(Some(queue), problem);
            }
        }
        let unused = self.worker.flavors.iter().filter(|(name, flavor)| {
            is_ours(flavor) && !named.contains_key(name) && !self.worker.used_flavors.contains(name.as_str())
        });
        let unused: Vec<ObjectRef> = unused.map(|(name, _)| ObjectRef::Flavor(name.clone())).collect();
        self.delete_all(unused);
    }

    fn keep_flavor(
        &mut self,
        name: &FlavorName,
        queue: &QueueName,
        spec: &Map<String, Value>,
        found: &Object<Map<String, Value>>,
    ) {
        if found.deleting || found.owner == Owner::Foreign {
            return;
        }
        let mut difference = merge_patch(&found.content, spec);
        // As Kueue's CRD has it: with a topology, only taints may change.
        if found.content.contains_key("topologyName") && difference.keys().any(|field| field != "nodeTaints")
        {
            self.report(Some(queue), Problem::FlavorUnchangeable { flavor: name.clone() });
            difference.clear();
        }
        self.patch(ObjectRef::Flavor(name.clone()), found.owner, in_spec(difference));
    }

    fn priority_classes(&mut self) {
        let cleared = self.claimed.is_empty();
        if !cleared {
            for (name, class) in &self.hub.priority_classes {
                match self.worker.priority_classes.get(name) {
                    None => self.create(ObjectRef::PriorityClass(name.clone()), Map::new(), fields(class)),
                    Some(found) => self.keep_priority_class(name, class, found),
                }
            }
        }
        let ours_left = self.worker.has_our_queues || self.worker.local_queues.values().any(is_ours);
        let unneeded = self.worker.priority_classes.iter().filter(|(name, class)| {
            let needed = if cleared { ours_left } else { self.hub.priority_classes.contains_key(*name) };
            is_ours(class) && !needed
        });
        let unneeded: Vec<ObjectRef> =
            unneeded.map(|(name, _)| ObjectRef::PriorityClass(name.clone())).collect();
        self.delete_all(unneeded);
    }

    fn keep_priority_class(&mut self, name: &str, class: &PriorityClass, found: &Object<PriorityClass>) {
        match found.owner {
            _ if found.deleting => {}
            Owner::Foreign if found.content.value != class.value => {
                let (hub, worker) = (class.value, found.content.value);
                self.report(None, Problem::PriorityClassDiffers { name: name.to_owned(), hub, worker });
            }
            Owner::Foreign => {}
            Owner::Ours | Owner::HandedOver => {
                let difference = merge_patch(&fields(&found.content), &fields(class));
                self.patch(ObjectRef::PriorityClass(name.to_owned()), found.owner, difference);
            }
        }
    }

    fn local_queues(&mut self) {
        for (key, spec, queue) in self.copied() {
            let (namespace, name) = key;
            let object = ObjectRef::LocalQueue(key.clone());
            let Some(found) = self.worker.local_queues.get(key) else {
                if self.worker.namespaces.get(namespace).is_some_and(|namespace| !namespace.deleting) {
                    self.create(object, Map::new(), in_spec(spec.fields()));
                }
                continue;
            };
            let observed = &found.content.spec;
            match found.owner {
                _ if found.deleting => {}
                Owner::Foreign if observed.queue != spec.queue => {
                    let problem = Problem::LocalQueueConflict {
                        namespace: namespace.clone(),
                        name: name.clone(),
                        leads_to: observed.queue.clone(),
                    };
                    self.report(Some(queue), problem);
                }
                Owner::Foreign => {}
                // Where it leads cannot be changed: it is cleared away below, then made anew.
                Owner::Ours if observed.queue != spec.queue => {}
                Owner::HandedOver if observed.queue != spec.queue => {
                    self.patch(object, found.owner, Map::new());
                }
                Owner::Ours | Owner::HandedOver => {
                    let difference = merge_patch(&observed.fields(), &spec.fields());
                    self.patch(object, found.owner, in_spec(difference));
                }
            }
        }
    }

    /// Ours that nobody asks for any more: held first, gone when empty.
    fn unclaimed_local_queues(&mut self) {
        if self.hub.partial {
            return;
        }
        for (key, found) in &self.worker.local_queues {
            let spec = &found.content.spec;
            let hub = self.hub.local_queues.get(key).filter(|_| !is_system(&key.0));
            let needed = hub
                .is_some_and(|hub| hub.queue == spec.queue && self.claimed.contains_key(spec.queue.as_str()));
            if needed || !is_ours(found) {
                continue;
            }
            let object = ObjectRef::LocalQueue(key.clone());
            match found.content.workloads {
                _ if spec.stop == "None" => {
                    let hold = Map::from_iter([("stopPolicy".to_owned(), json!("Hold"))]);
                    self.patch(object, found.owner, in_spec(hold));
                }
                Some(0) => self.wanted.push(Wanted { object, step: Step::Delete }),
                Some(workloads) => {
                    let (namespace, name) = key.clone();
                    let queue = QueueName::new(&spec.queue).ok();
                    let problem = Problem::LocalQueueInUse { namespace, name, workloads };
                    self.report(queue.as_ref(), problem);
                }
                None => {}
            }
        }
    }

    /// Cohorts of the claimed queues, and those above them.
    fn cohorts(&mut self) {
        for queue in self.claimed.keys() {
            let mut next = self.hub.queues.get(queue).and_then(|queue| queue.cohort.as_ref());
            let mut seen = BTreeSet::new();
            while let Some(name) = next.filter(|name| seen.insert(*name)) {
                let (hub, worker) = (self.hub.cohorts.get(name), self.worker.cohorts.get(name));
                for (cohort, on_hub) in [(hub, true), (worker, false)] {
                    if cohort.is_some_and(|cohort| cohort.has_quota) {
                        self.report(Some(queue), Problem::CohortHasQuota { cohort: name.clone(), on_hub });
                    }
                }
                next = worker.or(hub).and_then(|cohort| cohort.parent.as_ref());
            }
        }
    }

    fn report(&mut self, queue: Option<&QueueName>, problem: Problem) {
        self.reports.insert(QueueReport { queue: queue.cloned(), problem });
    }

    fn create(&mut self, object: ObjectRef, more_labels: Map<String, Value>, fields: Map<String, Value>) {
        let mut all = labels(&self.hub.id);
        // A label that the hub lacks is none to make.
        all.extend(more_labels.into_iter().filter(|(_, value)| !value.is_null()));
        let mut body = Map::from_iter([("metadata".to_owned(), json!({"labels": all}))]);
        body.extend(fields);
        self.wanted.push(Wanted { object, step: Step::Create(body) });
    }

    /// What was handed over is labelled with the same write, and its annotation taken off: another hub
    /// that shares the worker must not take it as well.
    fn patch(&mut self, object: ObjectRef, owner: Owner, mut patch: Map<String, Value>) {
        if owner == Owner::HandedOver {
            let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
            let wanted = metadata["labels"].take();
            let mut all = labels(&self.hub.id);
            all.extend(wanted.as_object().cloned().unwrap_or_default());
            metadata["labels"] = all.into();
            metadata["annotations"] = json!({ADOPT: null});
        }
        if !patch.is_empty() {
            self.wanted.push(Wanted { object, step: Step::Patch(patch) });
        }
    }

    fn delete_all(&mut self, objects: Vec<ObjectRef>) {
        if !self.hub.partial {
            self.wanted.extend(objects.into_iter().map(|object| Wanted { object, step: Step::Delete }));
        }
    }
}

/// Kubernetes' own namespaces, Kueue's and fedq's.
fn is_system(namespace: &str) -> bool {
    namespace.starts_with("kube-") || matches!(namespace, "kueue-system" | "fedq-system")
}

fn is_ours<T>(object: &Object<T>) -> bool {
    object.owner == Owner::Ours && !object.deleting
}

fn in_json(labels: Labels) -> impl Iterator<Item = (String, Value)> {
    labels.into_iter().map(|(key, value)| (key, value.into()))
}

fn in_spec(fields: Map<String, Value>) -> Map<String, Value> {
    if fields.is_empty() { fields } else { Map::from_iter([("spec".to_owned(), fields.into())]) }
}

fn fields(class: &PriorityClass) -> Map<String, Value> {
    let mut fields = Map::from_iter([("value".to_owned(), json!(class.value))]);
    if !class.description.is_empty() {
        fields.insert("description".to_owned(), json!(class.description));
    }
    fields
}

#[cfg(test)]
mod tests;
