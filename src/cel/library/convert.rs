//! Conversions between kinds.

use jiff::{SignedDuration, Timestamp};

use super::Called;
use crate::{
    Fault,
    value::{Value, whole},
};

pub fn call(name: &str, args: &[Value]) -> Option<Called> {
    let [value] = args else { return None };
    Some(match name {
        "dyn" => Ok(value.clone()),
        "type" => Ok(Value::Type(value.kind().into())),
        "bool" => to_bool(value),
        "bytes" => match value {
            Value::Bytes(_) => Ok(value.clone()),
            Value::String(text) => Ok(Value::Bytes(text.as_bytes().into())),
            _ => Err(Fault::no_overload()),
        },
        "int" => to_int(value),
        "uint" => to_uint(value),
        "double" => to_double(value),
        "string" => match to_text(value) {
            Some(text) => Ok(Value::String(text.into())),
            None => Err(Fault::no_overload()),
        },
        "timestamp" => to_timestamp(value),
        "duration" => to_duration(value),
        _ => return None,
    })
}

fn to_bool(value: &Value) -> Called {
    match value {
        Value::Bool(_) => Ok(value.clone()),
        Value::String(text) => match text.as_ref() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(type_conversion("string", "bool")),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn to_int(value: &Value) -> Called {
    let range = || Fault::error("integer overflow".to_owned());
    Ok(Value::Int(match value {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| range())?,
        Value::Double(value) => whole(value.trunc()).ok_or_else(range)?,
        Value::String(text) => text.parse().map_err(|_| type_conversion("string", "int"))?,
        Value::Timestamp(at) => at.as_second(),
        Value::Duration(duration) => i64::try_from(duration.as_nanos()).map_err(|_| range())?,
        _ => return Err(Fault::no_overload()),
    }))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked before")]
fn to_uint(value: &Value) -> Called {
    const END: f64 = 18_446_744_073_709_551_616.0;
    let range = || Fault::error("unsigned integer overflow".to_owned());
    Ok(Value::Uint(match value {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| range())?,
        Value::Double(value) if (0.0..END).contains(&value.trunc()) => *value as u64,
        Value::Double(_) => return Err(range()),
        Value::String(text) => text.parse().map_err(|_| type_conversion("string", "uint"))?,
        _ => return Err(Fault::no_overload()),
    }))
}

#[expect(clippy::cast_precision_loss, reason = "as cel-go does")]
fn to_double(value: &Value) -> Called {
    Ok(Value::Double(match value {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => text.parse().map_err(|_| type_conversion("string", "double"))?,
        _ => return Err(Fault::no_overload()),
    }))
}

pub fn to_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::String(text) => text.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => general(*value),
        Value::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok()?,
        Value::Timestamp(at) => at.to_string(),
        Value::Duration(duration) => format!("{}s", duration.as_secs_f64()),
        Value::Ip(ip) => ip.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        _ => return None,
    })
}

/// Go's shortest form: exponents from 21 digits on.
fn general(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() || (1e-4..1e21).contains(&magnitude) {
        return value.to_string();
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

fn to_timestamp(value: &Value) -> Called {
    let invalid = || type_conversion(value.kind(), "timestamp");
    Ok(Value::Timestamp(match value {
        Value::Timestamp(at) => *at,
        Value::Int(seconds) => Timestamp::from_second(*seconds).map_err(|_| invalid())?,
        Value::String(text) => text.parse().map_err(|_| invalid())?,
        _ => return Err(Fault::no_overload()),
    }))
}

fn to_duration(value: &Value) -> Called {
    Ok(Value::Duration(match value {
        Value::Duration(duration) => *duration,
        Value::Int(nanos) => SignedDuration::from_nanos(*nanos),
        Value::String(text) => go_duration(text).ok_or_else(|| type_conversion("string", "duration"))?,
        _ => return Err(Fault::no_overload()),
    }))
}

/// Go's form: `1h30m`, `-1.5s`, `100ms`.
fn go_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut nanos = 0_i128;
    let mut parts = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        nanos = nanos.checked_add(part(number, unit)?)?;
        parts += 1;
        rest = after;
    }
    let nanos = i64::try_from(if negative { -nanos } else { nanos }).ok()?;
    (0 < parts).then(|| SignedDuration::from_nanos(nanos))
}

fn part(number: &str, unit: &str) -> Option<i128> {
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || 18 < fraction.len() || 18 < whole.len() {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
    let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    Some(digits(whole)? * unit + digits(fraction)? * unit / scale)
}

fn type_conversion(from: &str, to: &str) -> Fault {
    Fault::error(format!("type conversion error from '{from}' to '{to}'"))
}
