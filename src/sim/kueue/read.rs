//! Reading and writing parts of objects. Nothing here trusts an object's shape: a field of the wrong
//! type reads as absent.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use fedq_values::quantity::Quantity;

/// What Kueue holds on whatever is still used.
pub(super) const FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";

pub(super) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

pub(super) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, field| &value[*field])
}

pub(super) fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

pub(super) fn texts(list: &[Value]) -> impl Iterator<Item = &str> {
    list.iter().filter_map(Value::as_str)
}

/// A map of texts, such as labels.
pub(super) fn labels(value: &Value) -> BTreeMap<&str, &str> {
    let entries = value.as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))).collect()
}

/// The object under `path`, made where it is missing.
pub(super) fn child<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut value = object;
    for field in path {
        value = map(value).entry(*field).or_insert(Value::Null);
    }
    map(value)
}

fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object just above")
}

pub(super) fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub(super) fn has_finalizer(object: &Value) -> bool {
    texts(items(object, &["metadata", "finalizers"])).any(|name| name == FINALIZER)
}

pub(super) fn add_finalizer(object: &mut Value) {
    let finalizers = child(object, &["metadata"]).entry("finalizers").or_insert(Value::Null);
    match finalizers {
        Value::Array(list) => list.push(json!(FINALIZER)),
        other => *other = json!([FINALIZER]),
    }
}

pub(super) fn remove_finalizer(object: &mut Value) {
    let metadata = child(object, &["metadata"]);
    if let Some(Value::Array(list)) = metadata.get_mut("finalizers") {
        list.retain(|name| name.as_str() != Some(FINALIZER));
        if list.is_empty() {
            metadata.remove("finalizers");
        }
    }
}

/// Kubernetes keeps times to the second.
pub(super) fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    items(object, &["status", "conditions"]).iter().find(|condition| condition["type"] == kind)
}

pub(super) fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| condition["status"] == "True")
}

/// Whether the condition is there, False, and for `reason`.
pub(super) fn is_false_for(object: &Value, kind: &str, reason: &str) -> bool {
    condition(object, kind)
        .is_some_and(|condition| condition["status"] == "False" && condition["reason"] == reason)
}

pub(super) struct Condition<'a> {
    pub kind: &'a str,
    pub holds: bool,
    pub reason: &'a str,
    pub message: &'a str,
}

/// Sets a condition as `meta.SetStatusCondition` does: the time moves with the status alone.
pub(super) fn set_condition(object: &mut Value, condition: &Condition<'_>, now: Timestamp) {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
    let status = if condition.holds { "True" } else { "False" };
    let list = child(object, &["status"]).entry("conditions").or_insert(Value::Null);
    if !list.is_array() {
        *list = json!([]);
    }
    let list = list.as_array_mut().expect("made an array just above");
    let found = list.iter().position(|old| old["type"] == condition.kind);
    let kept = found.map(|at| &list[at]).filter(|old| old["status"] == status);
    let since = kept.map_or_else(|| json!(stamp(now)), |old| old["lastTransitionTime"].clone());
    let mut new = json!({
        "type": condition.kind, "status": status, "observedGeneration": generation,
        "lastTransitionTime": since, "reason": condition.reason, "message": condition.message,
    });
    if generation == 0 {
        child(&mut new, &[]).shift_remove("observedGeneration");
    }
    match found {
        Some(at) => list[at] = new,
        None => list.push(new),
    }
}

/// A quantity in the unit Kueue counts `resource` in, thousandths for cpu; parts of a unit round up.
/// What is no quantity counts nothing: the schema lets none in. From 2⁶³ on, quota has no limit.
pub(super) fn units(resource: &str, quantity: &Value) -> i64 {
    let parsed = match quantity {
        Value::String(text) => Quantity::parse(text),
        Value::Number(number) => Quantity::parse(&number.to_string()),
        _ => return 0,
    };
    let unit: i128 = if resource == "cpu" { 1_000_000 } else { 1_000_000_000 };
    let nanos = parsed.map_or(0, Quantity::nanos);
    let rounded = nanos.div_euclid(unit) + i128::from(nanos.rem_euclid(unit) != 0);
    i64::try_from(rounded).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX })
}

/// `amount` of `resource` in Kubernetes' canonical form: `1500m`, `4`, `1k`, `10Gi`.
pub(super) fn quantity(resource: &str, amount: i64) -> String {
    let bytes = matches!(resource, "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
    if bytes && amount % 1024 == 0 && 1024 <= amount.unsigned_abs() {
        return scaled(amount, 1024, &["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]);
    }
    if resource == "cpu" && amount % 1000 != 0 {
        return format!("{amount}m");
    }
    let whole = if resource == "cpu" { amount / 1000 } else { amount };
    scaled(whole, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

fn scaled(mut amount: i64, base: i64, suffixes: &[&str]) -> String {
    let mut step = 0;
    while amount != 0 && amount % base == 0 && step + 1 < suffixes.len() {
        amount /= base;
        step += 1;
    }
    format!("{amount}{}", suffixes[step])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_print_canonically() {
        for (resource, amount, text) in [
            ("cpu", 1500, "1500m"),
            ("cpu", 4000, "4"),
            ("cpu", 1_000_000, "1k"),
            ("cpu", 0, "0"),
            ("memory", 10 << 30, "10Gi"),
            ("memory", 1_500_000, "1500k"),
            ("memory", 1000, "1k"),
            ("nvidia.com/gpu", 8, "8"),
        ] {
            assert_eq!(quantity(resource, amount), text, "{resource} {amount}");
        }
    }

    #[test]
    fn quantities_are_counted_in_units_rounded_up() {
        assert_eq!(units("cpu", &json!("1")), 1000);
        assert_eq!(units("cpu", &json!("0.1m")), 1);
        assert_eq!(units("memory", &json!("1Gi")), 1 << 30);
        assert_eq!(units("nvidia.com/gpu", &json!(3)), 3);
        assert_eq!(units("cpu", &json!({})), 0);
        assert_eq!(units("cpu", &json!("1000E")), i64::MAX);
    }

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let (early, late) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(60).unwrap());
        let mut object = json!({"status": "nonsense"});
        let ready = |holds, reason| Condition { kind: "Ready", holds, reason, message: "m" };
        set_condition(&mut object, &ready(true, "A"), early);
        set_condition(&mut object, &ready(true, "B"), late);
        assert_eq!(condition(&object, "Ready").unwrap()["lastTransitionTime"], "1970-01-01T00:00:00Z");
        set_condition(&mut object, &ready(false, "B"), late);
        assert_eq!(condition(&object, "Ready").unwrap()["lastTransitionTime"], "1970-01-01T00:01:00Z");
    }
}
