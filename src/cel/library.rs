//! What functions do. The checker has seen names and numbers of arguments; their kinds may still be
//! anything, since most of an expression is `dyn`.

use std::sync::Arc;

use super::{
    Fault, Scores,
    meter::Meter,
    value::{Key, Map, Value},
};

use fedq_values::nested;

mod convert;
pub mod formats;
mod kubernetes;
mod lists;
pub mod net;
mod operators;
pub mod regexes;
pub mod template;
mod text;
mod times;
pub mod urls;

pub struct Context<'a> {
    pub scores: &'a dyn Scores,
    pub regexes: &'a regexes::Regexes,
}

type Called = Result<Value, Fault>;

/// Calls the function. What it reads and makes is spent before it is made.
pub fn call(name: &str, args: &[Value], context: &Context, meter: &mut Meter) -> Called {
    let bytes: u64 = args.iter().map(bytes).sum();
    meter.spend(bytes / 8)?;
    if let Some(found) = operators::call(name, args, meter)? {
        return Ok(found);
    }
    if let Some(found) = regexes::call(name, args, context.regexes, meter)? {
        return Ok(found);
    }
    if let Some(found) = text::call(name, args, meter)? {
        return Ok(found);
    }
    match name {
        "scores" => return scores(args, context.scores, meter),
        "parseJSON" => return parse_json(args, meter),
        _ => meter.charge(1)?,
    }
    let found = lists::call(name, args, meter)
        .or_else(|| optionals(name, args))
        .or_else(|| convert::call(name, args))
        .or_else(|| kubernetes::call(name, args))
        .or_else(|| net::call(name, args))
        .or_else(|| urls::call(name, args))
        .or_else(|| formats::call(name, args))
        .or_else(|| times::call(name, args));
    let found = found.unwrap_or_else(|| Err(Fault::no_overload()))?;
    meter.spend(self::bytes(&found) / 8)?;
    Ok(found)
}

/// Roughly how much there is to read, without walking into it.
pub fn bytes(value: &Value) -> u64 {
    let size = match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => 8 * items.len(),
        Value::Map(entries) => 8 * entries.len(),
        Value::Url(url) => url.bytes(),
        Value::Optional(Some(inner)) => return bytes(inner),
        _ => 8,
    };
    size as u64
}

fn optionals(name: &str, args: &[Value]) -> Option<Called> {
    Some(Ok(match (name, args) {
        ("optional.none", []) => Value::Optional(None),
        ("optional.of", [value]) => Value::some(value.clone()),
        ("optional.ofNonZeroValue", [value]) => {
            if is_zero(value) {
                Value::Optional(None)
            } else {
                Value::some(value.clone())
            }
        }
        ("value", [Value::Optional(Some(value))]) => value.as_ref().clone(),
        ("value", [Value::Optional(None)]) => {
            return Some(Err(Fault::error("optional.none() dereference".to_owned())));
        }
        ("hasValue", [Value::Optional(inner)]) => Value::Bool(inner.is_some()),
        ("optional.unwrap" | "unwrapOpt", [Value::List(items)]) => {
            let present = items.iter().filter_map(|item| match item {
                Value::Optional(inner) => inner.as_ref().map(|value| value.as_ref().clone()),
                other => Some(other.clone()),
            });
            Value::list(present.collect())
        }
        _ => return None,
    }))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) => true,
        Value::Double(value) => *value == 0.0,
        Value::String(text) => text.is_empty(),
        Value::Bytes(bytes) => bytes.is_empty(),
        Value::List(items) => items.is_empty(),
        Value::Map(entries) => entries.is_empty(),
        _ => false,
    }
}

/// `managedCluster.scores("resource")`: the scores of that AddOnPlacementScore, expired or not.
fn scores(args: &[Value], scores: &dyn Scores, meter: &mut Meter) -> Called {
    let [Value::Map(cluster), Value::String(resource)] = args else { return Err(Fault::no_overload()) };
    let found = field(cluster, "metadata").and_then(|metadata| match metadata {
        Value::Map(metadata) => field(metadata, "name"),
        _ => None,
    });
    let Some(Value::String(name)) = found else {
        return Err(Fault::error("failed to get cluster name".to_owned()));
    };
    let found = scores.scores(name, resource);
    // A list, and a map with a selection for each.
    meter.charge(10 + 31 * found.map_or(0, <[_]>::len) as u64)?;
    let items = found.ok_or_else(|| {
        Fault::error(format!("failed to get score: addonplacementscore \"{resource}\" not found"))
    })?;
    let item = |(name, value): &(Arc<str>, i64)| {
        let entries = [("name", Value::String(name.clone())), ("value", Value::Int(*value))];
        Value::Map(Arc::new(
            entries.into_iter().map(|(key, value)| (Key::String(key.into()), value)).collect(),
        ))
    };
    Ok(Value::list(items.iter().map(item).collect()))
}

fn field<'a>(map: &'a Map, name: &str) -> Option<&'a Value> {
    map.get(&Key::String(name.into()))
}

fn parse_json(args: &[Value], meter: &mut Meter) -> Called {
    let [Value::String(text)] = args else { return Err(Fault::no_overload()) };
    meter.spend(text.len() as u64)?;
    meter.charge_traversal(args[0].size())?;
    if nested::is_nested(text.as_bytes()) {
        return Err(Fault::error(
            "failed to parse json: it holds JSON as text that is to be read at once".to_owned(),
        ));
    }
    let json: serde_json::Value =
        serde_json::from_str(text).map_err(|error| Fault::error(format!("failed to parse json: {error}")))?;
    let value = numbers_as_doubles(Value::from(&json));
    meter.charge(structure_cost(&value))?;
    Ok(value)
}

/// Go reads every JSON number as a double.
#[expect(clippy::cast_precision_loss, reason = "as Go does")]
fn numbers_as_doubles(value: Value) -> Value {
    match value {
        Value::Int(value) => Value::Double(value as f64),
        Value::List(items) => Value::list(items.iter().cloned().map(numbers_as_doubles).collect()),
        Value::Map(entries) => {
            let entry = |(key, value): (&Key, &Value)| (key.clone(), numbers_as_doubles(value.clone()));
            Value::Map(Arc::new(entries.iter().map(entry).collect()))
        }
        other => other,
    }
}

fn structure_cost(value: &Value) -> u64 {
    match value {
        Value::List(items) => 10 + items.iter().map(structure_cost).sum::<u64>(),
        Value::Map(entries) => 30 + entries.values().map(structure_cost).sum::<u64>(),
        _ => 0,
    }
}
