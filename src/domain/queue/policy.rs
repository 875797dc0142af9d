//! A ClusterQueue's spec apart from its quota: what the worker's must be, and what a write must change.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{fill_weight, merge_patch};
use crate::resource_groups::ResourceGroups;
use fedq_values::ids::FlavorName;

const QUOTA: &str = "resourceGroups";
const COHORT: &str = "cohortName";
const STOP: &str = "stopPolicy";
const CHECKS: &str = "admissionChecksStrategy";
const SELECTOR: &str = "namespaceSelector";
/// Kueue takes it when a queue is created and never afterwards.
const IMMUTABLE: &str = "concurrentAdmissionPolicy";

/// A ClusterQueue's spec without `resourceGroups`, in Kueue's own JSON. What the API server would fill
/// in is filled in, so that two of them are equal exactly when a server would store the same.
#[derive(Clone, Debug, PartialEq)]
pub struct QueuePolicy(Map<String, Value>);

/// What decides how the hub's policy looks on one worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerRules<'a> {
    /// Cordoned, leaving or claimed no more: nothing new is admitted.
    pub held: bool,
    /// AdmissionChecks that are copied and that the worker has.
    pub checks: &'a BTreeSet<String>,
    /// The quota of the worker's queue: a check may name no flavor outside it.
    pub groups: &'a ResourceGroups,
    /// The worker's queue as it is, if there is one: what Kueue lets nobody change stays.
    pub observed: Option<&'a QueuePolicy>,
}

impl QueuePolicy {
    /// From the fields of a `spec`; quota among them is left out.
    pub fn new(spec: Map<String, Value>) -> Self {
        let mut fields: Map<String, Value> = spec
            .into_iter()
            .filter(|(name, _)| name != QUOTA)
            .filter_map(|(name, value)| Some((name, without_nulls(value)?)))
            .collect();
        if fields.get(COHORT).is_some_and(|cohort| cohort == "") {
            fields.remove(COHORT);
        }
        if has_no_checks(&fields) {
            fields.remove(CHECKS);
        }
        if let Some(Value::Object(selector)) = fields.get_mut(SELECTOR) {
            selector.retain(|_, part| !is_empty(part));
        }
        fill(&mut fields, &defaults());
        if let Some(Value::Object(sharing)) = fields.get_mut("fairSharing") {
            fill_weight(sharing);
        }
        Self(fields)
    }

    /// The fields of a `spec`, to which a new object adds its quota.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    pub fn cohort(&self) -> Option<&str> {
        self.0.get(COHORT)?.as_str()
    }

    pub fn is_stopped(&self) -> bool {
        self.0.get(STOP).is_some_and(|policy| policy != "None")
    }

    /// The same policy, admitting nothing new. A `HoldAndDrain` says so already, and more.
    pub fn held(mut self) -> Self {
        if !self.is_stopped() {
            self.0.insert(STOP.to_owned(), json!("Hold"));
        }
        self
    }
}

/// The policy that the worker's queue must have.
pub fn worker_policy(hub: &QueuePolicy, rules: &WorkerRules<'_>) -> QueuePolicy {
    let mut policy = hub.clone();
    match copied_checks(hub, rules) {
        Some(strategy) => policy.0.insert(CHECKS.to_owned(), strategy),
        None => policy.0.remove(CHECKS),
    };
    if let Some(observed) = rules.observed {
        match observed.0.get(IMMUTABLE) {
            Some(value) => policy.0.insert(IMMUTABLE.to_owned(), value.clone()),
            None => policy.0.remove(IMMUTABLE),
        };
    }
    if rules.held { policy.held() } else { policy }
}

/// The fields of `spec` that a JSON merge patch must hold to turn `observed` into `desired`. Empty
/// exactly when they are equal.
///
/// Fields that only the worker has and this release does not know are left: a newer Kueue there fills
/// in defaults of its own, which would come back for ever.
pub fn policy_difference(observed: &QueuePolicy, desired: &QueuePolicy) -> Map<String, Value> {
    let mut patch = merge_patch(&observed.0, &desired.0);
    patch.retain(|name, value| !value.is_null() || KNOWN.contains(&name.as_str()));
    patch
}

/// Whether the worker's queue has another policy on concurrent admission than the hub's: that can only
/// be cured by making the queue anew.
pub fn immutable_difference(hub: &QueuePolicy, worker: &QueuePolicy) -> bool {
    hub.0.get(IMMUTABLE) != worker.0.get(IMMUTABLE)
}

/// The fields of Kueue 0.19 that may be absent; all others have a default.
const KNOWN: [&str; 6] = [COHORT, SELECTOR, CHECKS, "fairSharing", "admissionScope", IMMUTABLE];

/// As in the CRD of Kueue 0.19 (`config/components/crd/bases`).
fn defaults() -> Value {
    json!({
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "reclaimWithinCohort": "Never",
            "borrowWithinCohort": {"policy": "Never"},
            "withinClusterQueue": "Never",
        },
        "stopPolicy": "None",
    })
}

/// Puts what is missing, at every depth.
fn fill(fields: &mut Map<String, Value>, defaults: &Value) {
    for (name, default) in defaults.as_object().into_iter().flatten() {
        let value = fields.entry(name.clone()).or_insert_with(|| default.clone());
        if let Value::Object(inner) = value {
            fill(inner, default);
        }
    }
}

/// A null says the same as an absent field.
fn without_nulls(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(name, value)| Some((name, without_nulls(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(value),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn has_no_checks(fields: &Map<String, Value>) -> bool {
    fields
        .get(CHECKS)
        .is_some_and(|strategy| strategy["admissionChecks"].as_array().is_none_or(Vec::is_empty))
}

/// The hub's rules on checks that the worker has, for flavors that the worker's queue has.
fn copied_checks(hub: &QueuePolicy, rules: &WorkerRules<'_>) -> Option<Value> {
    let has_flavor = |name: &Value| {
        let name = name.as_str().and_then(|name| FlavorName::new(name).ok());
        name.is_some_and(|name| rules.groups.0.iter().any(|g| g.flavors.iter().any(|f| f.name == name)))
    };
    let copied = |rule: &Value| {
        rule["name"].as_str().filter(|name| rules.checks.contains(*name))?;
        let mut rule = rule.clone();
        if let Some(flavors) = rule.get_mut("onFlavors").and_then(Value::as_array_mut) {
            let everywhere = flavors.is_empty();
            flavors.retain(has_flavor);
            // An empty list means every flavor: the opposite of none of those that were named.
            if flavors.is_empty() && !everywhere {
                return None;
            }
        }
        Some(rule)
    };
    let checks = hub.0.get(CHECKS)?.get("admissionChecks")?.as_array()?;
    let checks: Vec<Value> = checks.iter().filter_map(copied).collect();
    (!checks.is_empty()).then(|| json!({"admissionChecks": checks}))
}

#[cfg(test)]
mod tests;
