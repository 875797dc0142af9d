//! Rules that span fields, or an object and what it was before: CEL in the CRDs.

use serde_json::Value;

use super::{
    super::read::{is_true, items},
    Refusal, expand,
};

pub(super) fn validate(kind: &str, before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    match kind {
        "ClusterQueue" => {
            groups(after, refusals);
            cluster_queue(after, refusals);
        }
        "Cohort" => groups(after, refusals),
        "LocalQueue" => immutable("spec.clusterQueue", before, after, refusals),
        "AdmissionCheck" => immutable("spec.controllerName", before, after, refusals),
        "ResourceFlavor" => flavor(before, after, refusals),
        "Topology" => topology(before, after, refusals),
        "Workload" => workload(before, after, refusals),
        _ => {}
    }
}

fn value<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, field| &value[field])
}

/// A field that was and is there may not change.
fn immutable(path: &str, before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let Some(old) = before.map(|before| value(before, path)) else { return };
    let new = value(after, path);
    if !old.is_null() && !new.is_null() && old != new {
        let message = "field is immutable";
        refusals.push(match new {
            Value::Object(_) | Value::Array(_) => Refusal::rule(path, message),
            _ => Refusal::invalid(path, new.clone(), message),
        });
    }
}

fn groups(after: &Value, refusals: &mut Vec<Refusal>) {
    for (at, group) in expand(after, "spec.resourceGroups[]") {
        let covered = items(group, &["coveredResources"]).len();
        if items(group, &["flavors"]).iter().any(|flavor| items(flavor, &["resources"]).len() != covered) {
            let message = "flavors must have the same number of resources as the coveredResources";
            refusals.push(Refusal::rule(at, message));
        }
    }
}

fn cluster_queue(after: &Value, refusals: &mut Vec<Refusal>) {
    let spec = &after["spec"];
    let limits = expand(after, "spec.resourceGroups[].flavors[].resources[].borrowingLimit");
    if spec["cohortName"].is_null() && !limits.is_empty() {
        refusals.push(Refusal::rule("spec", "borrowingLimit must be nil when cohort is empty"));
    }
    let fungibility = &spec["flavorFungibility"];
    let next = |field: &str| fungibility[field] == "TryNextFlavor";
    if fungibility["preference"].is_string() && !(next("whenCanBorrow") && next("whenCanPreempt")) {
        let message =
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor";
        refusals.push(Refusal::rule("spec.flavorFungibility", message));
    }
    let preemption = &spec["preemption"];
    let borrows = preemption["borrowWithinCohort"]["policy"].as_str().is_some_and(|policy| policy != "Never");
    if preemption["reclaimWithinCohort"] == "Never" && borrows {
        let message = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never";
        refusals.push(Refusal::rule("spec.preemption", message));
    }
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn flavor(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let spec = &after["spec"];
    let known = |taint: &Value| taint["effect"].as_str().is_some_and(|effect| EFFECTS.contains(&effect));
    if !items(spec, &["nodeTaints"]).iter().all(known) {
        let message = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'";
        refusals.push(Refusal::rule("spec.nodeTaints", message));
    }
    tolerations("spec.tolerations", items(spec, &["tolerations"]), refusals);
    if spec["topologyName"].is_string()
        && spec["nodeLabels"].as_object().is_none_or(serde_json::Map::is_empty)
    {
        let message = "at least one nodeLabel is required when topology is set";
        refusals.push(Refusal::rule("spec", message));
    }
    let Some(old) = before.map(|before| &before["spec"]).filter(|old| old["topologyName"].is_string()) else {
        return;
    };
    for (field, verb) in [("nodeLabels", "are"), ("tolerations", "are"), ("topologyName", "is")] {
        if old[field] != spec[field] {
            let message = format!("{field} {verb} immutable when topologyName is set");
            refusals.push(Refusal::rule("spec", &message));
        }
    }
}

fn tolerations(path: &str, list: &[Value], refusals: &mut Vec<Refusal>) {
    type Holds = fn(&Value) -> bool;
    let rules: [(&str, Holds); 5] = [
        ("operator must be Exists when 'key' is empty, which means 'match all values and all keys'", |one| {
            !one["key"].is_null() || one["operator"] == "Exists"
        }),
        ("effect must be 'NoExecute' when 'tolerationSeconds' is set", |one| {
            one["tolerationSeconds"].is_null() || one["effect"] == "NoExecute"
        }),
        ("supported toleration values: 'Equal'(default), 'Exists'", |one| {
            one["operator"].as_str().is_none_or(|operator| matches!(operator, "Equal" | "Exists"))
        }),
        ("a value must be empty when 'operator' is 'Exists'", |one| {
            one["operator"] != "Exists" || one["value"].is_null()
        }),
        ("supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'", |one| {
            one["effect"].as_str().is_none_or(|effect| EFFECTS.contains(&effect))
        }),
    ];
    for (message, holds) in rules {
        if !list.iter().all(holds) {
            refusals.push(Refusal::rule(path, message));
        }
    }
}

fn topology(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    immutable("spec.levels", before, after, refusals);
    let levels = items(after, &["spec", "levels"]);
    if levels.iter().enumerate().any(|(at, level)| levels[..at].contains(level)) {
        refusals.push(Refusal::rule("spec.levels", "must be unique"));
    }
    let above = levels.split_last().map_or(&[][..], |(_, above)| above);
    if above.iter().any(|level| level["nodeLabel"] == "kubernetes.io/hostname") {
        let message = "the kubernetes.io/hostname label can only be used at the lowest level of topology";
        refusals.push(Refusal::rule("spec.levels", message));
    }
}

fn workload(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let (spec, status) = (&after["spec"], &after["status"]);
    if spec["priorityClassRef"].is_object() && spec["priority"].is_null() {
        refusals.push(Refusal::rule("spec", "priority should not be nil when priorityClassRef is set"));
    }
    for (at, set) in expand(after, "spec.podSets[]") {
        if set["minCount"].as_i64().zip(set["count"].as_i64()).is_some_and(|(least, count)| count < least) {
            refusals.push(Refusal::rule(at, "minCount should be positive and less or equal to count"));
        }
    }
    let assigned = items(status, &["admission", "podSetAssignments"]).len();
    if is_true(after, "QuotaReserved")
        && status["admission"].is_object()
        && items(spec, &["podSets"]).len() != assigned
    {
        let message = "podSetAssignments must have the same number of podSets as the spec";
        refusals.push(Refusal::rule("", message));
    }
    if status["clusterName"].is_string() && !items(status, &["nominatedClusterNames"]).is_empty() {
        let message = "clusterName and nominatedClusterNames are mutually exclusive";
        refusals.push(Refusal::rule("status", message));
    }
    let Some(before) = before else { return };
    let (old, new) = (&before["status"]["clusterName"], &status["clusterName"]);
    if old.is_string() && new.is_string() && old != new {
        refusals.push(Refusal::rule("status", "clusterName is immutable once set"));
    }
    fixed_while_reserved(before, after, refusals);
}

fn fixed_while_reserved(before: &Value, after: &Value, refusals: &mut Vec<Refusal>) {
    let mut refuse = |message: &str| refusals.push(Refusal::rule("", message));
    let (old, new) = (&before["spec"], &after["spec"]);
    let (old_class, new_class) = (&old["priorityClassRef"], &new["priorityClassRef"]);
    if is_true(before, "QuotaReserved") {
        if old_class.is_null() == new_class.is_null() {
            fixed_class(old_class, new_class, &mut refuse);
        } else {
            refuse("priorityClassRef is immutable while workload quota reserved");
        }
        if is_true(after, "QuotaReserved") && old["queueName"] != new["queueName"] {
            refuse("queueName is immutable while workload quota reserved");
        }
    }
    let most = |spec: &Value| spec["maximumExecutionTimeSeconds"].as_i64().unwrap_or(0);
    if is_true(before, "Admitted") && is_true(after, "Admitted") && most(old) != most(new) {
        refuse("maximumExecutionTimeSeconds is immutable while workload quota reserved");
    }
}

fn fixed_class(old: &Value, new: &Value, refuse: &mut impl FnMut(&str)) {
    for field in ["group", "kind"] {
        if old[field] != new[field] {
            refuse(&format!("priorityClassRef.{field} is immutable while workload quota reserved"));
        }
    }
    if new["kind"] == "PriorityClass" && old["name"] != new["name"] {
        refuse(
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        );
    }
}
