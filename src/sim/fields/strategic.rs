//! Strategic merge patches: what kubectl sends for built-in kinds.

use serde_json::{Map, Value};

use super::patch::PatchError;
use super::schema::{ListKind, Place, Schema, key_and_default};

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const SET_ORDER: &str = "$setElementOrder/";

/// As a merge patch, but lists that merge by item do so: [`ListKind::Map`] by its first key,
/// [`ListKind::Set`] as a union.
pub fn strategic_patch(target: &mut Value, patch: &Value, schema: &Schema) -> Result<(), PatchError> {
    let not_objects = || PatchError::Malformed("a strategic merge patch is an object".to_owned());
    let patch = patch.as_object().ok_or_else(not_objects)?;
    let merged = merge_maps(target.as_object().ok_or_else(not_objects)?, patch, &Place::root(schema))?;
    *target = Value::Object(merged);
    Ok(())
}

fn merge_maps(
    original: &Map<String, Value>,
    patch: &Map<String, Value>,
    place: &Place,
) -> Result<Map<String, Value>, PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        return match directive.as_str() {
            Some("replace") => Ok(without_directives(patch)),
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, patch)),
        };
    }
    let mut merged = original.clone();
    retain_keys(&mut merged, patch)?;
    for (name, value) in patch.iter().filter(|(name, _)| !is_directive(name)) {
        if value.is_null() {
            merged.shift_remove(name);
            continue;
        }
        let below = place.field(name);
        let value = match (original.get(name), value) {
            (Some(Value::Object(original)), Value::Object(patch)) => {
                Value::Object(merge_maps(original, patch, &below)?)
            }
            (Some(Value::Array(original)), Value::Array(patch)) => {
                Value::Array(merge_lists(original, patch, &below)?)
            }
            (_, Value::Object(patch)) if is_delete(patch) => {
                merged.shift_remove(name);
                continue;
            }
            (_, value) => clean(value),
        };
        merged.insert(name.clone(), value);
    }
    for (name, value) in patch {
        if let Some(name) = name.strip_prefix(DELETE_FROM) {
            let gone = value.as_array().ok_or(PatchError::BadDirective("primitive list"))?;
            if let Some(Value::Array(items)) = merged.get_mut(name) {
                items.retain(|item| !gone.contains(item));
            }
        } else if let Some(name) = name.strip_prefix(SET_ORDER) {
            let order = value.as_array().ok_or(PatchError::BadDirective("setElementOrder list"))?;
            if let Some(Value::Array(items)) = merged.get_mut(name) {
                sort_by_order(items, order, merge_key(place.field(name).list_kind()));
            }
        }
    }
    Ok(merged)
}

/// `$retainKeys` clears all other keys, and must name what the patch sets.
fn retain_keys(merged: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), PatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let bad = PatchError::BadDirective("retainKeys");
    let Some(keys) = keys.as_array() else { return Err(bad) };
    let kept = |name: &str| keys.iter().any(|key| key == name);
    let sets = |(name, value): (&String, &Value)| !value.is_null() && !is_directive(name) && !kept(name);
    if patch.iter().any(sets) {
        return Err(bad);
    }
    merged.retain(|name, _| kept(name));
    Ok(())
}

fn merge_lists(original: &[Value], patch: &[Value], place: &Place) -> Result<Vec<Value>, PatchError> {
    match place.list_kind() {
        ListKind::Atomic => Ok(patch.iter().map(clean).collect()),
        ListKind::Set => {
            let mut merged: Vec<Value> = Vec::new();
            for item in original.iter().chain(patch) {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            Ok(merged)
        }
        kind @ ListKind::Map(_) => match merge_key(kind) {
            Some(key) => merge_items(original, patch, key, &place.item()),
            None => Ok(patch.iter().map(clean).collect()),
        },
    }
}

fn merge_key(kind: ListKind) -> Option<&'static str> {
    match kind {
        ListKind::Map(keys) => keys.first().map(|key| key_and_default(key).0),
        ListKind::Set | ListKind::Atomic => None,
    }
}

fn merge_items(
    original: &[Value],
    patch: &[Value],
    key: &'static str,
    place: &Place,
) -> Result<Vec<Value>, PatchError> {
    let maps: Vec<&Map<String, Value>> = patch.iter().filter_map(Value::as_object).collect();
    if maps.len() < patch.len() {
        return Err(PatchError::Malformed(format!(
            "a list that merges by {key} has an item that is no object"
        )));
    }
    let mut merged = original.to_vec();
    for map in maps.iter().filter(|map| map.contains_key(PATCH)) {
        match map[PATCH].as_str() {
            Some("delete") => {
                let value = map.get(key).ok_or_else(|| no_merge_key(map, key))?;
                merged.retain(|item| item.get(key) != Some(value));
            }
            Some("replace") => merged.clear(),
            _ => return Err(unknown_directive(&map[PATCH], map)),
        }
    }
    for map in maps.iter().filter(|map| !map.contains_key(PATCH)) {
        let value = map.get(key).ok_or_else(|| no_merge_key(map, key))?;
        let same = merged.iter_mut().find(|item| item.get(key) == Some(value));
        match same {
            Some(Value::Object(item)) => *item = merge_maps(item, map, place)?,
            _ => merged.push(Value::Object(without_directives(map))),
        }
    }
    Ok(merged)
}

/// Items that `order` names come in that order, in the places of those it names; the others stay.
fn sort_by_order(items: &mut [Value], order: &[Value], key: Option<&'static str>) {
    let rank = |item: &Value| {
        order.iter().position(|wanted| match key {
            Some(key) => wanted.get(key).is_some() && wanted.get(key) == item.get(key),
            None => wanted == item,
        })
    };
    let places: Vec<usize> = (0..items.len()).filter(|&at| rank(&items[at]).is_some()).collect();
    let mut named: Vec<Value> = places.iter().map(|&at| items[at].clone()).collect();
    named.sort_by_key(rank);
    for (place, item) in places.into_iter().zip(named) {
        items[place] = item;
    }
}

fn is_delete(map: &Map<String, Value>) -> bool {
    map.get(PATCH).is_some_and(|directive| directive == "delete")
}

/// A patch that stands alone: no nulls, no directives, and no item that is only there to be deleted.
fn clean(patch: &Value) -> Value {
    match patch {
        Value::Object(map) => Value::Object(without_directives(map)),
        Value::Array(items) => {
            let is_directive = |item: &&Value| item.as_object().is_some_and(|map| map.contains_key(PATCH));
            Value::Array(items.iter().filter(|item| !is_directive(item)).map(clean).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => patch.clone(),
    }
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    let said = map.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
    said.map(|(name, value)| (name.clone(), clean(value))).collect()
}

fn is_directive(name: &str) -> bool {
    name == PATCH || name == RETAIN_KEYS || name.starts_with(DELETE_FROM) || name.starts_with(SET_ORDER)
}

fn no_merge_key(map: &Map<String, Value>, key: &'static str) -> PatchError {
    PatchError::NoMergeKey { item: Value::Object(map.clone()).to_string(), key }
}

fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> PatchError {
    let kind = directive.as_str().map_or_else(|| directive.to_string(), str::to_owned);
    PatchError::UnknownDirective { kind, map: Value::Object(map.clone()).to_string() }
}
