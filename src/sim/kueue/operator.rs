//! Stands for the controller of AppWrappers, whichever it is: what is wrapped is made when it is admitted, followed, and taken
//! away. Of what has pods it knows Jobs; it never tries again.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Effect, Key, Objects, changes,
    read::{Condition, child, is_deleted, is_true, items, set_condition, text},
};

const FINALIZER: &str = "workload.codeflare.dev/finalizer";
const LABEL: &str = "workload.codeflare.dev/appwrapper";

/// What it sees of a cluster.
#[derive(Clone, Debug, Default)]
pub struct WrappersView {
    pub app_wrappers: Objects,
    pub jobs: Objects,
    pub pods: Objects,
    /// Everything of kinds that are wrapped, by kind.
    pub objects: BTreeMap<&'static str, Objects>,
}

/// One pass over all AppWrappers; at a fixed point it returns nothing.
pub fn run_app_wrappers(view: &WrappersView, now: Timestamp) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut after = view.app_wrappers.clone();
    for (key, wrapper) in &view.app_wrappers {
        let mut updated = (**wrapper).clone();
        Acting { view, key, now, effects: &mut effects }.look(&mut updated);
        if **wrapper != updated {
            after.insert(key.clone(), Arc::new(updated));
        }
    }
    changes::effects("AppWrapper", &view.app_wrappers, &after, &mut effects);
    effects
}

/// How many pods of which template.
pub(super) fn pod_sets(wrapper: &Value) -> Vec<(i64, Value)> {
    let jobs = items(wrapper, &["spec", "components"]).iter().map(|component| &component["template"]);
    let jobs = jobs.filter(|template| template["kind"] == "Job");
    jobs.map(|job| {
        let parallelism = job["spec"]["parallelism"].as_i64().unwrap_or(1);
        let count = job["spec"]["completions"].as_i64().map_or(parallelism, |all| all.min(parallelism));
        (count, job["spec"]["template"].clone())
    })
    .collect()
}

struct Acting<'a> {
    view: &'a WrappersView,
    key: &'a Key,
    now: Timestamp,
    effects: &'a mut Vec<Effect>,
}

impl Acting<'_> {
    fn look(&mut self, wrapper: &mut Value) {
        if is_deleted(wrapper) {
            phase(wrapper, "Terminating");
            if self.is_clear(wrapper)
                && let Some(Value::Array(finalizers)) = child(wrapper, &["metadata"]).get_mut("finalizers")
            {
                finalizers.retain(|finalizer| finalizer != FINALIZER);
            }
            return;
        }
        let suspended = wrapper["spec"]["suspend"] == true;
        match text(wrapper, &["status", "phase"]) {
            "" => phase(wrapper, "Suspended"),
            "Suspended" if !suspended => self.resume(wrapper),
            "Resuming" | "Running" if suspended => phase(wrapper, "Suspending"),
            "Resuming" if self.is_made(wrapper) => phase(wrapper, "Running"),
            "Running" => self.follow(wrapper),
            "Suspending" if self.is_clear(wrapper) => {
                self.set(wrapper, &[("ResourcesDeployed", false), ("QuotaReserved", false)], "Suspended");
                phase(wrapper, "Suspended");
            }
            "Failed" if self.is_clear(wrapper) => {
                self.set(wrapper, &[("ResourcesDeployed", false), ("QuotaReserved", false)], "Failed");
            }
            _ => {}
        }
    }

    fn resume(&self, wrapper: &mut Value) {
        let metadata = child(wrapper, &["metadata"]);
        let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
        if let Some(finalizers) = finalizers.as_array_mut().filter(|all| !all.contains(&json!(FINALIZER))) {
            finalizers.push(json!(FINALIZER));
        }
        let conditions = [
            ("QuotaReserved", true),
            ("ResourcesDeployed", true),
            ("PodsReady", false),
            ("Unhealthy", false),
        ];
        self.set(wrapper, &conditions, "Resuming");
        phase(wrapper, "Resuming");
    }

    fn set(&self, wrapper: &mut Value, conditions: &[(&str, bool)], reason: &str) {
        for (kind, holds) in conditions {
            set_condition(wrapper, &Condition { kind, holds: *holds, reason, message: "" }, self.now);
        }
    }

    /// What it made, by kind.
    fn owned(&self, wrapper: &Value) -> Vec<(&'static str, &Key, &Arc<Value>)> {
        let ours = |object: &Value| {
            let owners = items(object, &["metadata", "ownerReferences"]);
            owners.iter().any(|owner| owner["uid"] == wrapper["metadata"]["uid"])
        };
        let all = self.view.objects.iter().chain([(&"Job", &self.view.jobs)]);
        all.flat_map(|(kind, objects)| objects.iter().map(|(key, object)| (*kind, key, object)))
            .filter(|(_, _, object)| ours(object))
            .collect()
    }

    fn has_pods(&self) -> bool {
        let (namespace, name) = self.key;
        let ours = |(key, pod): (&Key, &Arc<Value>)| {
            key.0 == *namespace && pod["metadata"]["labels"][LABEL] == name.as_str()
        };
        self.view.pods.iter().any(ours)
    }

    /// Whether nothing of it is left; what is left is deleted.
    fn is_clear(&mut self, wrapper: &Value) -> bool {
        let owned: Vec<_> = self
            .owned(wrapper)
            .into_iter()
            .map(|(kind, key, object)| (kind, key.clone(), is_deleted(object)))
            .collect();
        for (kind, (namespace, name), going) in &owned {
            if !going {
                self.effects.push(Effect::Delete { kind, namespace: namespace.clone(), name: name.clone() });
            }
        }
        owned.is_empty() && !self.has_pods()
    }

    /// Whether all of it is there; what is not is made.
    fn is_made(&mut self, wrapper: &Value) -> bool {
        let there: Vec<(&str, String)> =
            self.owned(wrapper).into_iter().map(|(kind, key, _)| (kind, key.1.clone())).collect();
        let mut complete = true;
        let known: Vec<&'static str> = self.view.objects.keys().copied().chain(["Job"]).collect();
        for component in items(wrapper, &["spec", "components"]) {
            let mut object = component["template"].clone();
            let Some(kind) = known.iter().find(|kind| object["kind"] == **kind) else { continue };
            let name = text(&object, &["metadata", "name"]).to_owned();
            if there.contains(&(kind, name)) {
                continue;
            }
            complete = false;
            let owner = json!([{
                "apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper", "controller": true,
                "blockOwnerDeletion": true, "name": wrapper["metadata"]["name"], "uid": wrapper["metadata"]["uid"],
            }]);
            let metadata = child(&mut object, &["metadata"]);
            metadata.insert("ownerReferences".to_owned(), owner);
            metadata.insert("namespace".to_owned(), wrapper["metadata"]["namespace"].clone());
            let label = wrapper["metadata"]["name"].clone();
            child(&mut object, &["metadata", "labels"]).insert(LABEL.to_owned(), label.clone());
            if *kind == "Job" {
                child(&mut object, &["spec", "template", "metadata", "labels"])
                    .insert(LABEL.to_owned(), label);
            }
            self.effects.push(Effect::Create { kind, object });
        }
        complete
    }

    fn follow(&self, wrapper: &mut Value) {
        let jobs: Vec<&Arc<Value>> = self
            .owned(wrapper)
            .into_iter()
            .filter(|(kind, ..)| *kind == "Job")
            .map(|(_, _, job)| job)
            .collect();
        if let Some(failed) = jobs.iter().find(|job| is_true(job, "Failed")) {
            let message = format!("Job {} has failed", text(failed, &["metadata", "name"]));
            let unhealthy =
                Condition { kind: "Unhealthy", holds: true, reason: "FailedComponent", message: &message };
            set_condition(wrapper, &unhealthy, self.now);
            phase(wrapper, "Failed");
            return;
        }
        if !jobs.is_empty() && jobs.iter().all(|job| is_true(job, "Complete")) {
            self.set(wrapper, &[("QuotaReserved", false)], "Succeeded");
            phase(wrapper, "Succeeded");
            return;
        }
        let number = |job: &Value, field: &str| job["status"][field].as_i64().unwrap_or(0);
        let up: i64 = jobs.iter().map(|job| number(job, "ready") + number(job, "succeeded")).sum();
        let expected: i64 = pod_sets(wrapper).iter().map(|(count, _)| count).sum();
        if expected <= up {
            self.set(wrapper, &[("PodsReady", true)], "SufficientPodsReady");
        }
    }
}

fn phase(wrapper: &mut Value, phase: &str) {
    child(wrapper, &["status"]).insert("phase".to_owned(), json!(phase));
}
