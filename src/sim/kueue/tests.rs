//! Whole passes on a cluster in memory, and properties of any cluster.

mod admission;
mod eviction;
mod jobs;
mod properties;
mod refusals;
mod status;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{
    Effect, JobsView, Key, Objects, View, default,
    read::{child, condition, text},
    reconcile, run_jobs,
};

/// A cluster of objects, with a clock and the barest of API servers.
struct World {
    view: View,
    pods: Objects,
    nodes: Objects,
    now: Timestamp,
    uids: u32,
}

fn key(object: &Value) -> Key {
    let metadata = &object["metadata"];
    (text(metadata, &["namespace"]).to_owned(), text(metadata, &["name"]).to_owned())
}

impl World {
    fn new() -> Self {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut world =
            Self { view: View::default(), pods: Objects::new(), nodes: Objects::new(), now, uids: 0 };
        world.add("Namespace", json!({"metadata": {"name": "team"}}));
        world
    }

    /// With a ClusterQueue `cq` and its LocalQueue `team/lq`, and `cpu` of flavor `default`.
    fn simple(cpu: &str) -> Self {
        let mut world = Self::new();
        world.flavor("default");
        world.queue("cq", cpu, &json!({}));
        world
    }

    fn table(&mut self, kind: &str) -> &mut Objects {
        let view = &mut self.view;
        match kind {
            "ClusterQueue" => &mut view.cluster_queues,
            "LocalQueue" => &mut view.local_queues,
            "ResourceFlavor" => &mut view.flavors,
            "Cohort" => &mut view.cohorts,
            "AdmissionCheck" => &mut view.checks,
            "Workload" => &mut view.workloads,
            "Job" => &mut view.jobs,
            "Namespace" => &mut view.namespaces,
            "WorkloadPriorityClass" => &mut view.priority_classes,
            "PriorityClass" => &mut view.pod_priority_classes,
            "Pod" => &mut self.pods,
            "Node" => &mut self.nodes,
            other => panic!("no table of {other}"),
        }
    }

    fn add(&mut self, kind: &str, mut object: Value) {
        default(kind, None, &mut object);
        self.uids += 1;
        let (uid, created) = (format!("uid-{}", self.uids), super::read::stamp(self.now));
        child(&mut object, &["metadata"]).extend([
            ("uid".to_owned(), json!(uid)),
            ("creationTimestamp".to_owned(), json!(created)),
            ("generation".to_owned(), json!(1)),
            ("resourceVersion".to_owned(), json!("1")),
        ]);
        self.table(kind).insert(key(&object), Arc::new(object));
    }

    fn flavor(&mut self, name: &str) {
        self.add(
            "ResourceFlavor",
            json!({"metadata": {"name": name}, "spec": {"nodeLabels": {"pool": name}}}),
        );
    }

    /// A ClusterQueue with `cpu` of flavor `default` and a LocalQueue: `lq` of `cq`, else of its name.
    fn queue(&mut self, name: &str, cpu: &str, spec: &Value) {
        let group = json!({"coveredResources": ["cpu"], "flavors": [
            {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]},
        ]});
        let mut object = json!({"metadata": {"name": name}, "spec": {
            "namespaceSelector": {}, "resourceGroups": [group],
        }});
        child(&mut object, &["spec"]).extend(spec.as_object().cloned().unwrap_or_default());
        self.add("ClusterQueue", object);
        let local = if name == "cq" { "lq" } else { name };
        self.add(
            "LocalQueue",
            json!({
                "metadata": {"namespace": "team", "name": local}, "spec": {"clusterQueue": name},
            }),
        );
    }

    fn workload(&mut self, name: &str, queue: &str, cpu: &str, priority: i64) {
        self.add(
            "Workload",
            json!({"metadata": {"namespace": "team", "name": name}, "spec": {
                "queueName": queue, "priority": priority,
                "podSets": [{"name": "main", "count": 1, "template": template(cpu)}],
            }}),
        );
        self.wait(1);
    }

    fn job(&mut self, name: &str, queue: &str, cpu: &str, parallelism: i64) {
        let spec = json!({"parallelism": parallelism, "completions": parallelism, "template": template(cpu)});
        self.add("Job", json!({
            "metadata": {"namespace": "team", "name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
            "spec": spec,
        }));
        self.wait(1);
    }

    fn node(&mut self, name: &str) {
        self.add(
            "Node",
            json!({
                "metadata": {"name": name, "labels": {"pool": "default"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }),
        );
    }

    fn wait(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    fn edit(&mut self, kind: &str, name: &str, edit: impl FnOnce(&mut Value)) {
        let table = self.table(kind);
        let found = table.iter_mut().find(|((_, found), _)| found == name);
        edit(Arc::make_mut(found.unwrap().1));
    }

    /// Deletes as an API server does: what has finalizers is marked.
    fn delete(&mut self, kind: &str, at: &Key) {
        let now = super::read::stamp(self.now);
        let Some(object) = self.table(kind).get_mut(at) else { return };
        if object["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()) {
            child(Arc::make_mut(object), &["metadata"]).insert("deletionTimestamp".to_owned(), json!(now));
        } else {
            self.table(kind).remove(at);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Create { kind, object } => self.add(kind, object),
            Effect::Delete { kind, namespace, name } => self.delete(kind, &(namespace, name)),
            Effect::Status { kind, namespace, name, status } => {
                let at = (namespace, name);
                let object = self.table(kind).get_mut(&at).unwrap();
                merge(&mut Arc::make_mut(object)["status"], &status);
            }
            Effect::Patch { kind, namespace, name, patch } => {
                let at = (namespace, name);
                let object = Arc::make_mut(self.table(kind).get_mut(&at).unwrap());
                merge(object, &patch);
                let metadata = &object["metadata"];
                if metadata["deletionTimestamp"].is_string()
                    && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
                {
                    self.table(kind).remove(&at);
                }
            }
        }
    }

    /// Runs Kueue until it has nothing more to do.
    fn settle(&mut self) {
        for _ in 0..50 {
            let effects = reconcile(&self.view, self.now);
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out(effect);
            }
        }
        panic!("no fixed point: {:#?}", reconcile(&self.view, self.now));
    }

    /// Runs Kueue and Jobs until neither has anything to do.
    fn run(&mut self) {
        for _ in 0..50 {
            self.settle();
            let (jobs, pods) = (self.view.jobs.clone(), self.pods.clone());
            let effects = run_jobs(&JobsView { jobs, pods, nodes: self.nodes.clone() }, self.now);
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.carry_out(effect);
            }
        }
        panic!("Jobs do not come to rest");
    }

    fn get(&mut self, kind: &str, name: &str) -> &Value {
        let found = self.table(kind).iter().find(|((_, found), _)| found.starts_with(name));
        found.unwrap_or_else(|| panic!("no {kind} {name}")).1
    }

    /// `status reason: message` of a condition; empty without one.
    fn says(&mut self, kind: &str, name: &str, of: &str) -> String {
        let Some(found) = condition(self.get(kind, name), of) else { return String::new() };
        format!("{} {}: {}", text(found, &["status"]), text(found, &["reason"]), text(found, &["message"]))
    }

    fn is(&mut self, name: &str, of: &str) -> bool {
        super::read::is_true(self.get("Workload", name), of)
    }

    /// Names of the workloads that are admitted.
    fn admitted(&self) -> Vec<&str> {
        let all = self.view.workloads.iter();
        all.filter(|(_, workload)| super::read::is_true(workload, "Admitted"))
            .map(|((_, n), _)| n.as_str())
            .collect()
    }
}

fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [
        {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}},
    ]}})
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().unwrap();
    for (field, value) in patch {
        if value.is_null() {
            target.remove(field);
        } else {
            merge(target.entry(field.clone()).or_insert(Value::Null), value);
        }
    }
}
