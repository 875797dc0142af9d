//! Signs: comparison, arithmetic, `in`.

use std::cmp::Ordering;

use jiff::{SignedDuration, Timestamp};

use super::Called;
use crate::{
    Fault,
    meter::Meter,
    value::{Key, Value},
};

/// The answer where `name` is an operator, charged.
pub fn call(name: &str, args: &[Value], meter: &mut Meter) -> Result<Option<Value>, Fault> {
    let found = match (name, args) {
        ("!_", [Value::Bool(value)]) => {
            meter.charge(1)?;
            Value::Bool(!value)
        }
        ("-_", [value]) => {
            meter.charge(1)?;
            negated(value)?
        }
        ("_==_" | "_!=_", [a, b]) => {
            meter.charge_traversal(a.size().min(b.size()))?;
            Value::Bool(equal(a, b, meter)? == (name == "_==_"))
        }
        ("_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
            let texts = matches!(a, Value::String(_) | Value::Bytes(_));
            if texts {
                meter.charge_traversal(a.size().min(b.size()))?;
            } else {
                meter.charge(1)?;
            }
            Value::Bool(compared(name, a, b)?)
        }
        ("@in", [item, within]) => contained(item, within, meter)?,
        ("_+_", [a, b]) => {
            let texts = matches!(a, Value::String(_) | Value::Bytes(_));
            if texts {
                meter.charge_traversal(a.size() + b.size())?;
            } else {
                meter.charge(1)?;
            }
            meter.spend(super::bytes(a) + super::bytes(b))?;
            sum(a, b)?
        }
        ("_-_" | "_*_" | "_/_" | "_%_", [a, b]) => {
            meter.charge(1)?;
            arithmetic(name, a, b)?
        }
        _ => return Ok(None),
    };
    Ok(Some(found))
}

/// Equality, paid for node by node: values share their parts, so that one of a few lists may stand for
/// more nodes than could ever be walked.
pub fn equal(a: &Value, b: &Value, meter: &mut Meter) -> Result<bool, Fault> {
    meter.spend(1)?;
    match (a, b) {
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for ((key, a), (other, b)) in a.iter().zip(b.iter()) {
                meter.spend(key_bytes(key).min(key_bytes(other)) / 8)?;
                if key != other || !equal(a, b, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => equal(a, b, meter),
        _ => {
            // Of lists of long texts, each is read anew at each comparison.
            meter.spend(super::bytes(a).min(super::bytes(b)) / 8)?;
            Ok(a == b)
        }
    }
}

fn key_bytes(key: &Key) -> u64 {
    if let Key::String(text) = key { text.len() as u64 } else { 8 }
}

/// The order of two items, paid for like their equality.
pub fn ordered(a: &Value, b: &Value, meter: &mut Meter) -> Result<Ordering, Fault> {
    meter.spend(1 + super::bytes(a).min(super::bytes(b)) / 8)?;
    a.order(b).ok_or_else(Fault::no_overload)
}

fn negated(value: &Value) -> Called {
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or_else(overflow),
        Value::Double(value) => Ok(Value::Double(-value)),
        _ => Err(Fault::no_overload()),
    }
}

fn compared(name: &str, a: &Value, b: &Value) -> Result<bool, Fault> {
    let nan = |value: &Value| matches!(value, Value::Double(value) if value.is_nan());
    let Some(order) = a.order(b) else {
        return if nan(a) || nan(b) { Ok(false) } else { Err(Fault::no_overload()) };
    };
    Ok(match name {
        "_<_" => order == Ordering::Less,
        "_<=_" => order != Ordering::Greater,
        "_>_" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    })
}

fn contained(item: &Value, within: &Value, meter: &mut Meter) -> Called {
    match within {
        Value::List(items) => {
            meter.charge(items.len() as u64)?;
            for other in items.iter() {
                if equal(item, other, meter)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Value::Map(entries) => {
            meter.charge(1)?;
            let key = item.key().ok_or_else(Fault::no_overload)?;
            meter.spend(key_bytes(&key) * u64::from(entries.len().max(1).ilog2() + 1) / 8)?;
            Ok(Value::Bool(entries.contains_key(&key)))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn sum(a: &Value, b: &Value) -> Called {
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or_else(overflow)?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a.checked_add(*b).ok_or_else(overflow)?),
        (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
        (Value::String(a), Value::String(b)) => Value::String(format!("{a}{b}").into()),
        (Value::Bytes(a), Value::Bytes(b)) => Value::Bytes([a.as_ref(), b.as_ref()].concat().into()),
        (Value::List(a), Value::List(b)) => Value::list(a.iter().chain(b.iter()).cloned().collect()),
        (Value::Duration(a), Value::Duration(b)) => Value::Duration(a.checked_add(*b).ok_or_else(overflow)?),
        (Value::Timestamp(at), Value::Duration(by)) | (Value::Duration(by), Value::Timestamp(at)) => {
            moved(*at, *by)?
        }
        _ => return Err(Fault::no_overload()),
    })
}

fn moved(at: Timestamp, by: SignedDuration) -> Called {
    at.checked_add(by).map(Value::Timestamp).map_err(|_| overflow())
}

fn arithmetic(name: &str, a: &Value, b: &Value) -> Called {
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => Value::Int(whole(name, *a, *b)?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(unsigned(name, *a, *b)?),
        (Value::Double(a), Value::Double(b)) => Value::Double(match name {
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return Err(Fault::no_overload()),
        }),
        (Value::Duration(a), Value::Duration(b)) if name == "_-_" => {
            Value::Duration(a.checked_sub(*b).ok_or_else(overflow)?)
        }
        (Value::Timestamp(at), Value::Duration(by)) if name == "_-_" => {
            moved(*at, by.checked_neg().ok_or_else(overflow)?)?
        }
        (Value::Timestamp(a), Value::Timestamp(b)) if name == "_-_" => Value::Duration(a.duration_since(*b)),
        _ => return Err(Fault::no_overload()),
    })
}

fn whole(name: &str, a: i64, b: i64) -> Result<i64, Fault> {
    match name {
        "_-_" => a.checked_sub(b),
        "_*_" => a.checked_mul(b),
        "_/_" if b == 0 => return Err(Fault::error("division by zero".to_owned())),
        "_/_" => a.checked_div(b),
        _ if b == 0 => return Err(Fault::error("modulus by zero".to_owned())),
        _ => a.checked_rem(b),
    }
    .ok_or_else(overflow)
}

fn unsigned(name: &str, a: u64, b: u64) -> Result<u64, Fault> {
    match name {
        "_-_" => a.checked_sub(b),
        "_*_" => a.checked_mul(b),
        "_/_" if b == 0 => return Err(Fault::error("division by zero".to_owned())),
        "_/_" => a.checked_div(b),
        _ if b == 0 => return Err(Fault::error("modulus by zero".to_owned())),
        _ => a.checked_rem(b),
    }
    .ok_or_else(overflow)
}

fn overflow() -> Fault {
    Fault::error("overflow".to_owned())
}
