//! Functions on texts: CEL's own and cel-go's strings. Positions count characters.

use crate::{Fault, meter::Meter, value::Value};

use super::{Called, lists::place, template};

/// The answer where `name` is a function on a text, charged.
pub fn call(name: &str, args: &[Value], meter: &mut Meter) -> Result<Option<Value>, Fault> {
    let (Some(Value::String(text)), rest) = (args.first(), args.get(1..).unwrap_or_default()) else {
        return match (name, args) {
            ("join", [Value::List(items)]) => join(items, "", meter).map(Some),
            ("join", [Value::List(items), Value::String(between)]) => join(items, between, meter).map(Some),
            _ => Ok(None),
        };
    };
    let size = args[0].size();
    match name {
        "startsWith" | "endsWith" | "format" | "strings.quote" => meter.charge_traversal(size)?,
        "contains" => {
            let part = rest.first().map_or(0, Value::size);
            meter.charge(size.div_ceil(10).saturating_mul(part.div_ceil(10)))?;
        }
        "charAt" | "indexOf" | "lastIndexOf" | "lowerAscii" | "upperAscii" | "replace" | "split"
        | "substring" | "trim" | "reverse" => meter.charge(1)?,
        _ => return Ok(None),
    }
    let found = match (name, rest) {
        ("startsWith", [Value::String(part)]) => Value::Bool(text.starts_with(part.as_ref())),
        ("endsWith", [Value::String(part)]) => Value::Bool(text.ends_with(part.as_ref())),
        ("contains", [Value::String(part)]) => Value::Bool(text.contains(part.as_ref())),
        ("charAt", [Value::Int(at)]) => char_at(text, *at)?,
        ("lowerAscii", []) => Value::String(text.to_ascii_lowercase().into()),
        ("upperAscii", []) => Value::String(text.to_ascii_uppercase().into()),
        ("trim", []) => Value::text(text.trim()),
        ("reverse", []) => Value::String(text.chars().rev().collect::<String>().into()),
        ("strings.quote", []) => Value::String(quote(text).into()),
        ("substring", [Value::Int(from)]) => substring(text, *from, None)?,
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(text, *from, Some(*to))?,
        ("indexOf", [Value::String(part)]) => index_of(text, part, 0, meter)?,
        ("indexOf", [Value::String(part), Value::Int(from)]) => index_of(text, part, *from, meter)?,
        ("lastIndexOf", [Value::String(part)]) => last_index_of(text, part, None, meter)?,
        ("lastIndexOf", [Value::String(part), Value::Int(to)]) => {
            last_index_of(text, part, Some(*to), meter)?
        }
        ("replace", [Value::String(old), Value::String(new)]) => replace(text, [old, new], -1, meter)?,
        ("replace", [Value::String(old), Value::String(new), Value::Int(times)]) => {
            replace(text, [old, new], *times, meter)?
        }
        ("split", [Value::String(by)]) => split(text, by, -1, meter)?,
        ("split", [Value::String(by), Value::Int(parts)]) => split(text, by, *parts, meter)?,
        ("format", [Value::List(values)]) => template::fill(text, values, meter)?,
        _ => return Err(Fault::no_overload()),
    };
    Ok(Some(found))
}

fn out_of_range(at: i64) -> Fault {
    Fault::error(format!("index out of range: {at}"))
}

/// The byte at which the character begins; the end counts as a position.
fn byte_at(text: &str, at: i64) -> Result<usize, Fault> {
    let wanted = usize::try_from(at).map_err(|_| out_of_range(at))?;
    let mut starts = text.char_indices().map(|(byte, _)| byte).chain([text.len()]);
    starts.nth(wanted).ok_or_else(|| out_of_range(at))
}

fn char_at(text: &str, at: i64) -> Called {
    let from = byte_at(text, at)?;
    Ok(Value::String(text[from..].chars().take(1).collect::<String>().into()))
}

fn substring(text: &str, from: i64, to: Option<i64>) -> Called {
    if let Some(to) = to
        && to < from
    {
        return Err(Fault::error(format!("invalid substring range. start: {from}, end: {to}")));
    }
    let start = byte_at(text, from)?;
    let end = to.map_or(Ok(text.len()), |to| byte_at(text, to))?;
    Ok(Value::text(&text[start..end]))
}

fn characters(text: &str, byte: usize) -> usize {
    text[..byte].chars().count()
}

fn index_of(text: &str, part: &str, from: i64, meter: &mut Meter) -> Called {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    if from < 0 {
        return Err(out_of_range(from));
    }
    meter.spend(text.len() as u64)?;
    let Ok(start) = byte_at(text, from) else { return Ok(Value::Int(-1)) };
    Ok(place(text[start..].find(part).map(|byte| characters(text, start + byte))))
}

fn last_index_of(text: &str, part: &str, to: Option<i64>, meter: &mut Meter) -> Called {
    let count = text.chars().count();
    meter.spend(text.len() as u64)?;
    let Some(to) = to else {
        let found = text.rfind(part).map(|byte| characters(text, byte));
        return Ok(if part.is_empty() { place(Some(count)) } else { place(found) });
    };
    if part.is_empty() {
        return Ok(Value::Int(to));
    }
    let last = usize::try_from(to).map_err(|_| out_of_range(to))?;
    if count <= last {
        return Ok(Value::Int(-1));
    }
    // The part may begin at `last`, so it may reach beyond.
    let end = byte_at(text, to)?.saturating_add(part.len()).min(text.len());
    let within = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap_or(text.len());
    let found = text[..within].rmatch_indices(part).map(|(byte, _)| characters(text, byte));
    Ok(place(found.into_iter().find(|at| *at <= last)))
}

fn replace(text: &str, [old, new]: [&str; 2], times: i64, meter: &mut Meter) -> Called {
    let limit = usize::try_from(times).unwrap_or(usize::MAX);
    let found = if old.is_empty() { text.chars().count() + 1 } else { text.matches(old).count() };
    let made = text.len() as u64 + (found.min(limit) as u64).saturating_mul(new.len() as u64);
    meter.spend(made)?;
    Ok(Value::String(text.replacen(old, new, limit).into()))
}

fn split(text: &str, by: &str, parts: i64, meter: &mut Meter) -> Called {
    meter.spend(8 * text.len() as u64)?;
    let limit = usize::try_from(parts).unwrap_or(usize::MAX);
    let pieces: Vec<_> = if limit == 0 {
        Vec::new()
    } else if by.is_empty() {
        split_characters(text, limit)
    } else {
        text.splitn(limit, by).map(Value::text).collect()
    };
    Ok(Value::list(pieces))
}

fn split_characters(text: &str, limit: usize) -> Vec<Value> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = if pieces.len() + 1 == limit { rest.len() } else { first.len_utf8() };
        pieces.push(Value::text(&rest[..length]));
        rest = &rest[length..];
    }
    pieces
}

fn join(items: &[Value], between: &str, meter: &mut Meter) -> Called {
    meter.charge(1)?;
    let made: usize = items.iter().map(|item| between.len() + item_length(item)).sum();
    meter.spend(made as u64)?;
    let texts: Option<Vec<&str>> = items.iter().map(Value::as_text).collect();
    let texts = texts.ok_or_else(|| Fault::error("join: invalid input".to_owned()))?;
    Ok(Value::String(texts.join(between).into()))
}

fn item_length(item: &Value) -> usize {
    item.as_text().map_or(0, str::len)
}

fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
