//! Whether a value is a pod template. Strict, as Kueue is: it leaves out pod sets whose template it cannot read, and what it
//! does not count would run without quota.

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Map, Value};

use crate::path::{self, PathError};

#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("content at {0} does not contain a spec")]
    NoSpec(String),
    #[error("content at {path}.spec not parseable as a v1.PodSpec: {problem}")]
    NoPodSpec { path: String, problem: String },
}

/// Checks that the path leads to a pod template, or to a Pod.
pub fn check(object: &Value, path: &str) -> Result<(), TemplateError> {
    let template = path::get(object, path)?;
    if !template.is_object() {
        return Err(PathError::NoMap(path.to_owned()).into());
    }
    let spec = template.get("spec").filter(|spec| spec.is_object());
    let mut spec = spec.ok_or_else(|| TemplateError::NoSpec(path.to_owned()))?.clone();
    parse(&mut spec).map_err(|problem| TemplateError::NoPodSpec { path: path.to_owned(), problem })
}

fn parse(spec: &mut Value) -> Result<(), String> {
    write_quantities(spec)?;
    let mut unknown = Vec::new();
    let parsed: Result<PodSpec, _> =
        serde_ignored::deserialize(&*spec, |path| unknown.push(format!("unknown field \"{path}\"")));
    parsed.map_err(|error| error.to_string())?;
    if unknown.is_empty() { Ok(()) } else { Err(unknown.join(", ")) }
}

/// Quantities may be numbers in JSON; the types of `k8s_openapi` want text.
fn write_quantities(value: &mut Value) -> Result<(), String> {
    match value {
        Value::Array(items) => items.iter_mut().try_for_each(write_quantities),
        Value::Object(fields) => fields.iter_mut().try_for_each(|(key, value)| match value {
            Value::Object(amounts) if ["limits", "requests", "overhead"].contains(&key.as_str()) => {
                amounts.iter_mut().try_for_each(|(name, amount)| write_quantity(name, amount))
            }
            Value::Number(_) if ["sizeLimit", "divisor"].contains(&key.as_str()) => {
                write_quantity(key, value)
            }
            value => write_quantities(value),
        }),
        _ => Ok(()),
    }
}

fn write_quantity(name: &str, amount: &mut Value) -> Result<(), String> {
    if let Value::Number(number) = amount {
        *amount = Value::String(number.to_string());
    }
    match amount.as_str().and_then(mantissa) {
        Some(_) => Ok(()),
        None => Err(format!("{name}: {amount} is no quantity")),
    }
}

/// Whether pods of this spec ask for some of a resource.
pub fn asks_for(spec: &Map<String, Value>, resource: &str) -> bool {
    let containers = ["containers", "initContainers"].iter().filter_map(|key| spec.get(*key)?.as_array());
    containers.flatten().any(|container| {
        ["limits", "requests"].iter().any(|list| {
            let amount = container.pointer(&format!("/resources/{list}")).and_then(|all| all.get(resource));
            amount.is_some_and(is_some)
        })
    })
}

fn is_some(amount: &Value) -> bool {
    match amount {
        Value::Number(number) => number.as_f64().is_some_and(|number| 0.0 < number),
        Value::String(text) => is_positive(text),
        _ => false,
    }
}

/// Whether a quantity is not zero.
pub fn is_positive(quantity: &str) -> bool {
    mantissa(quantity).is_some_and(|digits| digits.bytes().any(|byte| (b'1'..=b'9').contains(&byte)))
}

/// The number of a quantity without its suffix; `None` if it is none.
fn mantissa(quantity: &str) -> Option<&str> {
    const SUFFIXES: [&str; 14] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T"];
    let unsigned = quantity.strip_prefix(['+', '-']).unwrap_or(quantity);
    let end =
        unsigned.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let is_number = number.matches('.').count() <= 1 && number.bytes().any(|byte| byte.is_ascii_digit());
    let exponent = |text: &str| text.parse::<i32>().is_ok();
    let known = SUFFIXES.contains(&suffix)
        || ["P", "E"].contains(&suffix)
        || suffix.strip_prefix(['e', 'E']).is_some_and(exponent);
    (is_number && known).then_some(number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_kueue_can_count_is_a_pod_template() {
        let with = |spec: Value| check(&json!({"spec": spec}), "template").map_err(|error| error.to_string());
        let container = |resources: Value| json!({"containers": [{"name": "a", "resources": resources}]});
        assert_eq!(with(container(json!({"requests": {"cpu": 2, "memory": "1Gi"}}))), Ok(()));
        assert_eq!(with(json!({"containers": [], "overhead": {"cpu": 0.5}})), Ok(()));
        for (spec, problem) in [
            (container(json!({"requests": {"cpu": "much"}})), "cpu: \"much\" is no quantity"),
            (json!({"replicas": 3, "containers": []}), "unknown field \"replicas\""),
            (json!({"containers": [{"name": 7}]}), "invalid type"),
            (json!({"containers": "none"}), "invalid type"),
        ] {
            let refused = with(spec).expect_err("refused");
            assert!(
                refused.starts_with("content at template.spec not parseable as a v1.PodSpec: "),
                "{refused}"
            );
            assert!(refused.contains(problem), "{refused}");
        }
        let lost = check(&json!({"metadata": {"spec": 1}}), "template.metadata").expect_err("refused");
        assert_eq!(lost.to_string(), "content at template.metadata does not contain a spec");
    }

    #[test]
    fn quantities_of_nothing_ask_for_nothing() {
        for (amount, asks) in [
            (json!("1"), true),
            (json!("0"), false),
            (json!("0.000"), false),
            (json!("100m"), true),
            (json!("1e3"), true),
            (json!(1), true),
            (json!(0), false),
            (json!("x"), false),
        ] {
            let spec = json!({"initContainers": [{"resources": {"limits": {"gpu": amount}}}]});
            assert_eq!(asks_for(spec.as_object().expect("a map"), "gpu"), asks, "{spec}");
        }
    }
}
