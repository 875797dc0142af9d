//! `text.format(values)`.

use std::fmt::Write as _;

use crate::{
    Fault,
    meter::{CALL_WORK, Meter},
    value::Value,
};

use super::{Called, convert};

/// A larger precision is refused: the answer would be digits without end.
const MAX_PRECISION: usize = 300;

pub fn fill(template: &str, values: &[Value], meter: &mut Meter) -> Called {
    let mut out = String::new();
    let mut values = values.iter();
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let (precision, verb, after) = clause(rest)?;
        rest = after;
        let value = values.next().ok_or_else(|| Fault::error("index out of range".to_owned()))?;
        let text = render(verb, precision, value, meter)?;
        out.push_str(&text);
    }
    out.push_str(rest);
    meter.spend(out.len() as u64)?;
    Ok(Value::String(out.into()))
}

/// Refuses what no values could mend, or those that are known cannot.
pub fn check(template: &str, values: &[Option<Value>]) -> Result<(), Fault> {
    let mut values = values.iter();
    let mut rest = template;
    let mut count = 0;
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        let (precision, verb, after) = clause(rest)?;
        rest = after;
        count += 1;
        match values.next() {
            Some(Some(value)) => drop(render(verb, precision, value, &mut Meter::new(CALL_WORK))?),
            Some(None) => {}
            None => return Err(Fault::error(format!("index {} out of range", count - 1))),
        }
    }
    Ok(())
}

/// `.3f` and the like: precision, verb, and what follows.
fn clause(text: &str) -> Result<(usize, char, &str), Fault> {
    let unfinished = || Fault::error("unexpected end of string".to_owned());
    let (precision, rest) = match text.strip_prefix('.') {
        Some(digits) => {
            let length = digits.bytes().take_while(u8::is_ascii_digit).count();
            let precision = digits[..length].parse().ok().filter(|precision| *precision <= MAX_PRECISION);
            let invalid = || Fault::error("invalid precision in a format".to_owned());
            (precision.ok_or_else(invalid)?, &digits[length..])
        }
        None => (6, text),
    };
    let verb = rest.chars().next().ok_or_else(unfinished)?;
    Ok((precision, verb, &rest[verb.len_utf8()..]))
}

fn render(verb: char, precision: usize, value: &Value, meter: &mut Meter) -> Result<String, Fault> {
    let refused =
        || Fault::error(format!("error during formatting: `%{verb}` cannot be used on {}", value.kind()));
    let text = match verb {
        's' => plain(value, meter)?,
        'd' => match value {
            Value::Int(_) | Value::Uint(_) | Value::Double(_) => plain(value, meter)?,
            _ => None,
        },
        'f' | 'e' => number(value).map(|number| {
            special(number).map_or_else(
                || if verb == 'f' { format!("{number:.precision$}") } else { scientific(number, precision) },
                str::to_owned,
            )
        }),
        'b' => match value {
            Value::Bool(value) => Some(u8::from(*value).to_string()),
            _ => based(value, |magnitude| format!("{magnitude:b}")),
        },
        'o' => based(value, |magnitude| format!("{magnitude:o}")),
        'x' => hex(value),
        'X' => hex(value).map(|text| text.to_ascii_uppercase()),
        _ => return Err(Fault::error(format!("unrecognized formatting clause \"{verb}\""))),
    };
    text.ok_or_else(refused)
}

/// None where a value has no text. Paid for by the byte before it is joined to the rest: parts may be
/// shared, and the text be far longer than the value is large.
fn plain(value: &Value, meter: &mut Meter) -> Result<Option<String>, Fault> {
    let text = match value {
        Value::Null => Some("null".to_owned()),
        Value::Double(value) => Some(special(*value).map_or_else(|| format!("{value}"), str::to_owned)),
        Value::List(items) => {
            let mut texts = Vec::new();
            for item in items.iter() {
                let Some(text) = plain(item, meter)? else { return Ok(None) };
                texts.push(text);
            }
            Some(format!("[{}]", texts.join(", ")))
        }
        Value::Map(entries) => {
            let mut texts = Vec::new();
            for (key, value) in entries.iter() {
                let (Some(key), Some(value)) = (plain(&key.value(), meter)?, plain(value, meter)?) else {
                    return Ok(None);
                };
                texts.push((key, value));
            }
            texts.sort();
            let texts: Vec<_> = texts.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            Some(format!("{{{}}}", texts.join(", ")))
        }
        Value::Type(name) => Some(name.to_string()),
        other => convert::to_text(other),
    };
    meter.spend(1 + text.as_ref().map_or(0, String::len) as u64)?;
    Ok(text)
}

fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value.is_infinite() {
        Some(if value < 0.0 { "-Infinity" } else { "Infinity" })
    } else {
        None
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        _ => None,
    }
}

/// Go writes at least two digits of exponent, with its sign.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => text,
    }
}

fn based(value: &Value, digits: impl Fn(u64) -> String) -> Option<String> {
    match value {
        Value::Int(value) => {
            let sign = if *value < 0 { "-" } else { "" };
            Some(format!("{sign}{}", digits(value.unsigned_abs())))
        }
        Value::Uint(value) => Some(digits(*value)),
        _ => None,
    }
}

fn hex(value: &Value) -> Option<String> {
    let of_bytes = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    };
    match value {
        Value::String(text) => Some(of_bytes(text.as_bytes())),
        Value::Bytes(bytes) => Some(of_bytes(bytes)),
        _ => based(value, |magnitude| format!("{magnitude:x}")),
    }
}
