//! Label selectors as objects have them.

use serde_json::Value;

/// Whether `labels` satisfy `selector`. No selector matches nothing, an empty one everything.
pub fn matches(selector: &Value, labels: &Value) -> bool {
    if selector.is_null() {
        return false;
    }
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key) == value.as_str());
    let rules = selector["matchExpressions"].as_array().into_iter().flatten();
    equal && rules.into_iter().all(|rule| satisfied(rule, label(rule["key"].as_str().unwrap_or_default())))
}

fn satisfied(rule: &Value, label: Option<&str>) -> bool {
    let listed = || rule["values"].as_array().into_iter().flatten().any(|value| value.as_str() == label);
    match rule["operator"].as_str() {
        Some("In") => label.is_some() && listed(),
        Some("NotIn") => label.is_none() || !listed(),
        Some("Exists") => label.is_some(),
        Some("DoesNotExist") => label.is_none(),
        _ => false,
    }
}
