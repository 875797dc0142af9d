//! Workloads: what their pods ask for, and what may change once quota is reserved.

use serde_json::{Value, json};

use super::{
    super::{
        read::{at, is_true, items, text, units},
        refusal::{Problem, Refusal},
    },
    IMMUTABLE, NEGATIVE, canonical, map, nanos,
};

pub(super) fn validate(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let sets = items(after, &["spec", "podSets"]);
    for (index, set) in sets.iter().enumerate() {
        pod_set(&format!("spec.podSets[{index}].template"), &set["template"], refusals);
    }
    let variable = sets.iter().filter(|set| !set["minCount"].is_null()).count();
    if 1 < variable {
        let message = "at most one podSet can use minCount";
        refusals.push(Refusal::invalid("spec.podSets", json!(variable), message));
    }
    if is_true(after, "QuotaReserved") {
        admission(before, after, refusals);
    }
    reclaimable(after, refusals);
    if let Some(before) = before {
        workload_update(before, after, refusals);
    }
}

fn pod_set(path: &str, template: &Value, refusals: &mut Vec<Refusal>) {
    map(&format!("{path}.metadata.labels"), at(template, &["metadata", "labels"]), refusals);
    for list in ["initContainers", "containers"] {
        for (index, container) in items(template, &["spec", list]).iter().enumerate() {
            for field in ["requests", "limits"] {
                let resources = at(container, &["resources", field]).as_object().into_iter().flatten();
                for (name, quantity) in resources {
                    let path = format!("{path}.spec.{list}[{index}].resources.{field}[{name}]");
                    if name == "pods" {
                        let message = "the key is reserved for internal kueue use";
                        refusals.push(Refusal::invalid(&path, json!("pods"), message));
                    }
                    if nanos(quantity) < 0 {
                        refusals.push(Refusal::invalid(path, json!(canonical(quantity)), NEGATIVE));
                    }
                }
            }
        }
    }
}

fn admission(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let empty = |workload: &Value| {
        is_true(workload, "QuotaReserved") && !at(workload, &["status", "admission"]).is_object()
    };
    if empty(after) {
        if !before.is_some_and(empty) {
            let detail = "must be set while the QuotaReserved condition is true";
            refusals.push(Refusal::new("status.admission", Problem::Required { detail }));
        }
        return;
    }
    let sets = items(after, &["spec", "podSets"]);
    let assignments = items(after, &["status", "admission", "podSetAssignments"]);
    for (index, assignment) in assignments.iter().enumerate() {
        let path = format!("status.admission.podSetAssignments[{index}]");
        if !sets.iter().any(|set| set["name"] == assignment["name"]) {
            let value = assignment["name"].clone();
            refusals.push(Refusal::new(format!("{path}.name"), Problem::NotFound { value }));
        }
        let Some(count) = assignment["count"].as_i64().filter(|count| 0 < *count) else { continue };
        for (name, used) in assignment["resourceUsage"].as_object().into_iter().flatten() {
            if units(name, used) % count != 0 {
                let message = format!("is not a multiple of {count}");
                refusals.push(Refusal::invalid(
                    format!("{path}.resourceUsage[{name}]"),
                    used.clone(),
                    message,
                ));
            }
        }
    }
}

fn reclaimable(after: &Value, refusals: &mut Vec<Refusal>) {
    let sets = items(after, &["spec", "podSets"]);
    for pods in items(after, &["status", "reclaimablePods"]) {
        let name = text(pods, &["name"]);
        let path = format!("status.reclaimablePods[{name}]");
        let Some(set) = sets.iter().find(|set| set["name"] == name) else {
            let supported = sets.iter().map(|set| text(set, &["name"]).to_owned()).collect();
            let value = json!(name);
            refusals.push(Refusal::new(format!("{path}.name"), Problem::NotSupported { value, supported }));
            continue;
        };
        let (count, most) = (pods["count"].as_i64().unwrap_or(0), set["count"].as_i64().unwrap_or(1));
        if most < count {
            let message = format!("should be less or equal to {most}");
            refusals.push(Refusal::invalid(format!("{path}.count"), json!(count), message));
        }
    }
}

fn workload_update(before: &Value, after: &Value, refusals: &mut Vec<Refusal>) {
    let sets = |workload: &Value| at(workload, &["spec", "podSets"]).clone();
    if is_true(before, "QuotaReserved") {
        let (old, new) = (sets(before), sets(after));
        if items(&old, &[]).len() == items(&new, &[]).len() {
            let pairs = items(&old, &[]).iter().zip(items(&new, &[])).enumerate();
            for (index, (_, new)) in pairs.filter(|(_, (old, new))| old != new) {
                refusals.push(Refusal::invalid(format!("spec.podSets.{index}"), new.clone(), IMMUTABLE));
            }
        } else {
            refusals.push(Refusal::invalid("spec.podSets", new, IMMUTABLE));
        }
        if is_true(after, "QuotaReserved") {
            reclaimable_update(before, after, refusals);
        }
    }
    let admission = |workload: &Value| at(workload, &["status", "admission"]).clone();
    let (old, new) = (admission(before), admission(after));
    if old.is_object() && new.is_object() && old != new {
        refusals.push(Refusal::invalid("status.admission", new, IMMUTABLE));
    }
    let (old, new) = (at(before, &["status", "clusterName"]), at(after, &["status", "clusterName"]));
    let nominated = items(before, &["status", "nominatedClusterNames"]);
    if old.is_null() && new.is_string() && !nominated.contains(new) {
        let message = "when setting clusterName it must be one of the nominatedClusterNames";
        refusals.push(Refusal::invalid("status.clusterName", new.clone(), message));
    }
}

fn reclaimable_update(before: &Value, after: &Value, refusals: &mut Vec<Refusal>) {
    let new = items(after, &["status", "reclaimablePods"]);
    for old in items(before, &["status", "reclaimablePods"]) {
        let path = format!("status.reclaimablePods[{}]", text(old, &["name"]));
        let least = old["count"].as_i64().unwrap_or(0);
        match new.iter().find(|new| new["name"] == old["name"]).map(|new| new["count"].as_i64().unwrap_or(0))
        {
            None => refusals.push(Refusal::new(path, Problem::Required { detail: "cannot be removed" })),
            Some(count) if count < least => {
                let message = format!("cannot be less than {least}");
                refusals.push(Refusal::invalid(format!("{path}.count"), json!(count), message));
            }
            Some(_) => {}
        }
    }
}
