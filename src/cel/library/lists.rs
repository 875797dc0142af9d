//! Sizes, and Kubernetes' functions on lists.

use std::cmp::Ordering;

use jiff::SignedDuration;

use super::{
    Called,
    operators::{equal, ordered},
};
use crate::{Fault, meter::Meter, value::Value};

pub fn call(name: &str, args: &[Value], meter: &mut Meter) -> Option<Called> {
    let found = match (name, args) {
        ("size", [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))]) => {
            Ok(Value::Int(i64::try_from(value.size()).unwrap_or(i64::MAX)))
        }
        ("first", [Value::List(items)]) => Ok(optional(items.first())),
        ("last", [Value::List(items)]) => Ok(optional(items.last())),
        ("isSorted", [Value::List(items)]) => is_sorted(items, meter),
        ("sum", [Value::List(items)]) => sum(items),
        ("min", [Value::List(items)]) => extreme(items, Ordering::Less, name, meter),
        ("max", [Value::List(items)]) => extreme(items, Ordering::Greater, name, meter),
        ("indexOf", [Value::List(items), item]) => search(items.iter().enumerate(), item, meter),
        ("lastIndexOf", [Value::List(items), item]) => search(items.iter().enumerate().rev(), item, meter),
        _ => return None,
    };
    Some(found)
}

fn search<'a>(items: impl Iterator<Item = (usize, &'a Value)>, item: &Value, meter: &mut Meter) -> Called {
    for (at, other) in items {
        if equal(other, item, meter)? {
            return Ok(place(Some(at)));
        }
    }
    Ok(place(None))
}

fn optional(item: Option<&Value>) -> Value {
    item.map_or(Value::Optional(None), |item| Value::some(item.clone()))
}

pub fn place(at: Option<usize>) -> Value {
    Value::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1))
}

fn is_sorted(items: &[Value], meter: &mut Meter) -> Called {
    for pair in items.windows(2) {
        if ordered(&pair[0], &pair[1], meter)? == Ordering::Greater {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum(items: &[Value]) -> Called {
    let mut total = match items.first() {
        None | Some(Value::Int(_)) => Value::Int(0),
        Some(Value::Uint(_)) => Value::Uint(0),
        Some(Value::Double(_)) => Value::Double(0.0),
        Some(Value::Duration(_)) => Value::Duration(SignedDuration::ZERO),
        Some(_) => return Err(Fault::no_overload()),
    };
    let overflow = || Fault::error("overflow".to_owned());
    for item in items {
        total = match (&total, item) {
            (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or_else(overflow)?),
            (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_add(*b).ok_or_else(overflow)?),
            (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
            (Value::Duration(a), Value::Duration(b)) => {
                Value::Duration(a.checked_add(*b).ok_or_else(overflow)?)
            }
            _ => return Err(Fault::no_overload()),
        };
    }
    Ok(total)
}

fn extreme(items: &[Value], wanted: Ordering, name: &str, meter: &mut Meter) -> Called {
    let mut items = items.iter();
    let first = items.next().ok_or_else(|| Fault::error(format!("{name} called on empty list")))?;
    let mut found = first;
    for item in items {
        if ordered(item, found, meter)? == wanted {
            found = item;
        }
    }
    Ok(found.clone())
}
