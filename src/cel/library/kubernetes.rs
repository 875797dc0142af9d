//! Kubernetes' quantities and semantic versions.

use std::{cmp::Ordering, sync::Arc};

use super::Called;
use crate::{Fault, value::Value};
use fedq_values::quantity::Quantity;

const NANO: i128 = 1_000_000_000;

pub fn call(name: &str, args: &[Value]) -> Option<Called> {
    match args {
        [Value::String(text)] => of_text(name, text),
        [Value::Quantity(quantity), rest @ ..] => of_quantity(name, *quantity, rest),
        [Value::Semver(version), rest @ ..] => of_version(name, version, rest),
        _ => None,
    }
}

fn of_text(name: &str, text: &str) -> Option<Called> {
    Some(match name {
        "quantity" => Quantity::parse(text)
            .map(Value::Quantity)
            .map_err(|_| Fault::error("quantities must match the regular expression".to_owned())),
        "isQuantity" => Ok(Value::Bool(Quantity::parse(text).is_ok())),
        "semver" => semver::Version::parse(text)
            .map(|version| Value::Semver(Arc::new(version)))
            .map_err(|error| Fault::error(format!("not a semantic version: {error}"))),
        "isSemver" => Ok(Value::Bool(semver::Version::parse(text).is_ok())),
        _ => return None,
    })
}

#[expect(clippy::cast_precision_loss, reason = "it is the approximate value that is asked for")]
fn of_quantity(name: &str, quantity: Quantity, rest: &[Value]) -> Option<Called> {
    let nanos = quantity.nanos();
    let units = (nanos % NANO == 0).then(|| i64::try_from(nanos / NANO).ok()).flatten();
    Some(match (name, rest) {
        ("sign", []) => Ok(Value::Int(match nanos.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        })),
        ("isInteger", []) => Ok(Value::Bool(units.is_some())),
        ("asInteger", []) => {
            units.map(Value::Int).ok_or_else(|| Fault::error("cannot convert value to integer".to_owned()))
        }
        ("asApproximateFloat", []) => Ok(Value::Double(nanos as f64 / NANO as f64)),
        ("isGreaterThan", [Value::Quantity(other)]) => Ok(Value::Bool(other < &quantity)),
        ("isLessThan", [Value::Quantity(other)]) => Ok(Value::Bool(&quantity < other)),
        ("compareTo", [Value::Quantity(other)]) => Ok(compared(quantity.cmp(other))),
        ("add", [Value::Quantity(other)]) => Ok(total(nanos, other.nanos())),
        ("add", [Value::Int(other)]) => Ok(total(nanos, i128::from(*other) * NANO)),
        ("sub", [Value::Quantity(other)]) => Ok(total(nanos, -other.nanos())),
        ("sub", [Value::Int(other)]) => Ok(total(nanos, -i128::from(*other) * NANO)),
        _ => return None,
    })
}

fn total(a: i128, b: i128) -> Value {
    Value::Quantity(Quantity::from_nanos(a.saturating_add(b)))
}

fn of_version(name: &str, version: &semver::Version, rest: &[Value]) -> Option<Called> {
    let whole = |part: u64| Ok(Value::Int(i64::try_from(part).unwrap_or(i64::MAX)));
    Some(match (name, rest) {
        ("major", []) => whole(version.major),
        ("minor", []) => whole(version.minor),
        ("patch", []) => whole(version.patch),
        ("isGreaterThan", [Value::Semver(other)]) => Ok(Value::Bool(version.cmp_precedence(other).is_gt())),
        ("isLessThan", [Value::Semver(other)]) => Ok(Value::Bool(version.cmp_precedence(other).is_lt())),
        ("compareTo", [Value::Semver(other)]) => Ok(compared(version.cmp_precedence(other))),
        _ => return None,
    })
}

fn compared(order: Ordering) -> Value {
    Value::Int(match order {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}
