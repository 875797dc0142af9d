//! What Kueue's validating webhooks refuse (`pkg/webhooks`), with its default feature gates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    active,
    jobs::QUEUE_LABEL,
    read::{at, items, labels, text},
    refusal::{Problem, Refusal},
};
use fedq_values::quantity::{Quantity, QuantityError};

mod names;
mod workloads;

use names::{label_key_errors, label_value_errors};

pub(super) fn validate(kind: &str, before: Option<&Value>, after: &Value) -> Vec<Refusal> {
    let mut refusals = Vec::new();
    let webhook = match kind {
        "ClusterQueue" => {
            cluster_queue(before, after, &mut refusals);
            "vclusterqueue.kb.io"
        }
        "Cohort" => {
            let has_parent = !text(after, &["spec", "parentName"]).is_empty();
            weight(after, &mut refusals);
            groups(
                after,
                &Limits { has_parent, parent: "parent", lends_within_nominal: false },
                &mut refusals,
            );
            "vcohort.kb.io"
        }
        "ResourceFlavor" => {
            flavor(after, &mut refusals);
            "vresourceflavor.kb.io"
        }
        "Workload" => {
            workloads::validate(before, after, &mut refusals);
            "vworkload.kb.io"
        }
        "Job" => {
            job(before, after, &mut refusals);
            "vjob.kb.io"
        }
        _ => return refusals,
    };
    for refusal in &mut refusals {
        refusal.webhook = Some(webhook);
    }
    refusals
}

const NEGATIVE: &str = "must be greater than or equal to 0";
const IMMUTABLE: &str = "field is immutable";

/// What limits are held against.
struct Limits {
    has_parent: bool,
    parent: &'static str,
    lends_within_nominal: bool,
}

fn cluster_queue(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let has_parent = !text(after, &["spec", "cohortName"]).is_empty();
    groups(after, &Limits { has_parent, parent: "cohort", lends_within_nominal: true }, refusals);
    selector("spec.namespaceSelector", at(after, &["spec", "namespaceSelector"]), refusals);
    weight(after, refusals);
    totals(after, refusals);
    on_flavors(before, after, refusals);
    let policy = |object: &Value| at(object, &["spec", "concurrentAdmissionPolicy"]).clone();
    if before.is_some_and(|before| policy(before) != policy(after)) {
        refusals.push(Refusal::invalid("spec.concurrentAdmissionPolicy", policy(after), IMMUTABLE));
    }
}

fn groups(after: &Value, limits: &Limits, refusals: &mut Vec<Refusal>) {
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in items(after, &["spec", "resourceGroups"]).iter().enumerate() {
        let path = format!("spec.resourceGroups[{index}]");
        let covered = items(group, &["coveredResources"]);
        for (index, name) in covered.iter().enumerate() {
            let path = format!("{path}.coveredResources[{index}]");
            for error in label_key_errors(name.as_str().unwrap_or_default()) {
                refusals.push(Refusal::invalid(&path, name.clone(), error));
            }
            if !resources.insert(name.as_str()) {
                refusals.push(Refusal::new(path, Problem::Duplicate { value: name.clone() }));
            }
        }
        for (index, flavor) in items(group, &["flavors"]).iter().enumerate() {
            let path = format!("{path}.flavors[{index}]");
            for (index, (resource, name)) in items(flavor, &["resources"]).iter().zip(covered).enumerate() {
                let path = format!("{path}.resources[{index}]");
                if resource["name"] != *name {
                    let value = resource["name"].clone();
                    let message = "must match the name in coveredResources";
                    refusals.push(Refusal::invalid(format!("{path}.name"), value, message));
                }
                quota(&path, resource, limits, refusals);
            }
            if !flavors.insert(flavor["name"].as_str()) {
                let value = flavor["name"].clone();
                refusals.push(Refusal::new(format!("{path}.name"), Problem::Duplicate { value }));
            }
        }
    }
}

fn quota(path: &str, resource: &Value, limits: &Limits, refusals: &mut Vec<Refusal>) {
    let nominal = nanos(&resource["nominalQuota"]);
    let mut refuse = |field: &str, message: String| {
        let value = json!(canonical(&resource[field]));
        refusals.push(Refusal::invalid(format!("{path}.{field}"), value, message));
    };
    if nominal < 0 {
        refuse("nominalQuota", NEGATIVE.to_owned());
    }
    let homeless = || format!("must be nil when {} is empty", limits.parent);
    if !resource["borrowingLimit"].is_null() {
        if !limits.has_parent {
            refuse("borrowingLimit", homeless());
        }
        if nanos(&resource["borrowingLimit"]) < 0 {
            refuse("borrowingLimit", NEGATIVE.to_owned());
        }
    }
    if !resource["lendingLimit"].is_null() {
        let lending = nanos(&resource["lendingLimit"]);
        if lending < 0 {
            refuse("lendingLimit", NEGATIVE.to_owned());
        }
        if !limits.has_parent {
            refuse("lendingLimit", homeless());
        }
        if limits.lends_within_nominal && nominal < lending {
            refuse("lendingLimit", "must be less than or equal to the nominalQuota".to_owned());
        }
    }
}

/// What is too large to be read is larger than all that is not.
fn nanos(quantity: &Value) -> i128 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    match Quantity::parse(&text) {
        Ok(quantity) => quantity.nanos(),
        Err(QuantityError::TooLarge(text)) if text.starts_with('-') => i128::MIN,
        Err(QuantityError::TooLarge(_)) => i128::MAX,
        Err(_) => 0,
    }
}

/// A quantity as Go prints it: in its own kind of suffix, whole where it can be.
fn canonical(quantity: &Value) -> String {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let thousandths = nanos(quantity) / 1_000_000;
    let binary = text.ends_with('i');
    match i64::try_from(thousandths) {
        Ok(amount) if nanos(quantity) % 1_000_000 == 0 && (!binary || amount % 1000 == 0) => {
            let resource = if binary { "memory" } else { "cpu" };
            super::read::quantity(resource, if binary { amount / 1000 } else { amount })
        }
        _ => text,
    }
}

fn weight(after: &Value, refusals: &mut Vec<Refusal>) {
    let weight = at(after, &["spec", "fairSharing", "weight"]);
    if weight.is_null() {
        return;
    }
    let message = match nanos(weight) {
        ..=-1 => NEGATIVE,
        1 => "When not 0, weight must be > 10e-9",
        _ => return,
    };
    refusals.push(Refusal::invalid("spec.fairSharing", json!(canonical(weight)), message));
}

fn totals(after: &Value, refusals: &mut Vec<Refusal>) {
    let groups = items(after, &["spec", "resourceGroups"]);
    for (what, field) in [("flavors", "flavors"), ("covered resources", "coveredResources")] {
        let total: usize = groups.iter().map(|group| items(group, &[field]).len()).sum();
        if 256 < total {
            let message =
                format!("total number of {what} across all resourceGroups must be ≤ 256, got {total}");
            refusals.push(Refusal::invalid("spec.resourceGroups", json!(total), message));
        }
    }
    for (index, group) in groups.iter().enumerate() {
        let total: usize =
            items(group, &["flavors"]).iter().map(|flavor| items(flavor, &["resources"]).len()).sum();
        if 512 < total {
            let message = format!(
                "number of flavor-resource combinations in a resourceGroup must be ≤ 512, got {total}"
            );
            refusals.push(Refusal::invalid(format!("spec.resourceGroups[{index}]"), json!(total), message));
        }
    }
}

/// Old queues that always named flavors they do not have may go on while neither list changes.
fn on_flavors(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let flavors = active::all_flavors(after);
    let path = ["spec", "admissionChecksStrategy", "admissionChecks"];
    let as_set = |check: &Value| -> BTreeSet<String> {
        items(check, &["onFlavors"]).iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let old = before.filter(|before| active::all_flavors(before) == flavors);
    for (index, check) in items(after, &path).iter().enumerate() {
        let old = old.and_then(|old| items(old, &path).iter().find(|old| old["name"] == check["name"]));
        if old.is_some_and(|old| as_set(old) == as_set(check)) {
            continue;
        }
        for (at, flavor) in items(check, &["onFlavors"]).iter().enumerate() {
            if !flavor.as_str().is_some_and(|name| flavors.contains(name)) {
                let path = format!("spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{at}]");
                let supported = flavors.iter().map(|name| (*name).to_owned()).collect();
                refusals.push(Refusal::new(path, Problem::NotSupported { value: flavor.clone(), supported }));
            }
        }
    }
}

fn selector(path: &str, selector: &Value, refusals: &mut Vec<Refusal>) {
    for (key, value) in labels(&selector["matchLabels"]) {
        for error in label_key_errors(key) {
            refusals.push(Refusal::invalid(format!("{path}.matchLabels"), json!(key), error));
        }
        for error in label_value_errors(value) {
            refusals.push(Refusal::invalid(format!("{path}.matchLabels[{key}]"), json!(value), error));
        }
    }
    for (index, expression) in items(selector, &["matchExpressions"]).iter().enumerate() {
        let path = format!("{path}.matchExpressions[{index}]");
        let values = items(expression, &["values"]);
        match text(expression, &["operator"]) {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                refusals.push(Refusal::new(format!("{path}.values"), Problem::Required { detail }));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'".to_owned();
                refusals.push(Refusal::new(format!("{path}.values"), Problem::Forbidden { detail }));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => {
                let value = expression["operator"].clone();
                refusals.push(Refusal::invalid(
                    format!("{path}.operator"),
                    value,
                    "not a valid selector operator",
                ));
            }
        }
        for error in label_key_errors(text(expression, &["key"])) {
            refusals.push(Refusal::invalid(format!("{path}.key"), expression["key"].clone(), error));
        }
    }
}

fn flavor(after: &Value, refusals: &mut Vec<Refusal>) {
    map("spec.nodeLabels", at(after, &["spec", "nodeLabels"]), refusals);
    let mut seen = BTreeSet::new();
    for (index, taint) in items(after, &["spec", "nodeTaints"]).iter().enumerate() {
        let path = format!("spec.nodeTaints[{index}]");
        for error in label_key_errors(text(taint, &["key"])) {
            refusals.push(Refusal::invalid(format!("{path}.key"), taint["key"].clone(), error));
        }
        for error in label_value_errors(text(taint, &["value"])) {
            refusals.push(Refusal::invalid(format!("{path}.value"), taint["value"].clone(), error));
        }
        if !seen.insert((text(taint, &["key"]), text(taint, &["effect"]))) {
            refusals.push(Refusal::new(
                path,
                Problem::DuplicateBecause {
                    value: taint.clone(),
                    detail: "taints must be unique by key and effect pair",
                },
            ));
        }
    }
    for (index, toleration) in items(after, &["spec", "tolerations"]).iter().enumerate() {
        let key = text(toleration, &["key"]);
        if !key.is_empty() {
            for error in label_key_errors(key) {
                refusals.push(Refusal::invalid(format!("spec.tolerations[{index}].key"), json!(key), error));
            }
        }
    }
}

/// A map of labels.
fn map(path: &str, map: &Value, refusals: &mut Vec<Refusal>) {
    for (key, value) in labels(map) {
        for error in label_key_errors(key) {
            refusals.push(Refusal::invalid(path, json!(key), error));
        }
        for error in label_value_errors(value) {
            refusals.push(Refusal::invalid(path, json!(value), error));
        }
    }
}

fn job(before: Option<&Value>, after: &Value, refusals: &mut Vec<Refusal>) {
    let queue = |job: &Value| text(job, &["metadata", "labels", QUEUE_LABEL]).to_owned();
    let path = format!("metadata.labels[{QUEUE_LABEL}]");
    let name = queue(after);
    if !name.is_empty() && fedq_values::ids::QueueName::new(&name).is_err() {
        refusals.push(Refusal::invalid(&path, json!(name), names::SUBDOMAIN_ERROR));
    }
    let running = after["spec"]["suspend"] != true;
    if before.is_some_and(|before| running && queue(before) != name) {
        refusals.push(Refusal::invalid(path, json!(name), IMMUTABLE));
    }
}
