//! Making objects of objects: a configuration merged into a live one, fields taken out of one.

use serde_json::{Map, Value};

use super::schema::{ListKind, Place, Shape, element};
use super::set::{Element, Set};
use super::walk::is_nothing;

/// `live` with everything that `config` says. Removes nothing.
pub(super) fn merge(live: &Value, config: &Value, place: &Place) -> Value {
    if is_nothing(Some(live), place) && is_nothing(Some(config), place) {
        return config.clone();
    }
    match (place.shape(Some(live)), place.shape(Some(config))) {
        (Shape::Map(live), Shape::Map(config)) => Value::Object(merge_maps(live, config, place)),
        (Shape::List(live, kind), Shape::List(config, _)) => {
            Value::Array(merge_lists(live, config, kind, place))
        }
        // Null stands for a container of nothing, which adds nothing.
        (Shape::Map(_) | Shape::List(..), _) if config.is_null() => live.clone(),
        _ => config.clone(),
    }
}

fn merge_maps(live: &Map<String, Value>, config: &Map<String, Value>, place: &Place) -> Map<String, Value> {
    let mut merged = live.clone();
    for (name, value) in config {
        let value = match live.get(name) {
            Some(live) => merge(live, value, &place.field(name)),
            None => value.clone(),
        };
        merged.insert(name.clone(), value);
    }
    merged
}

/// Items in the order of `config`; those that only `live` has keep their place among their neighbours.
fn merge_lists(live: &[Value], config: &[Value], kind: ListKind, place: &Place) -> Vec<Value> {
    let place = place.item();
    let live_keys = keys(live, kind);
    let config_keys = keys(config, kind);
    let shared: Vec<bool> = config_keys.iter().map(|key| live_keys.contains(key)).collect();
    let merged_item = |at: usize| match only(live, &live_keys, config_keys[at].as_ref()) {
        Some(live) => merge(live, &config[at], &place),
        None => config[at].clone(),
    };

    let mut merged = Vec::with_capacity(live.len() + config.len());
    let mut next = 0;
    for (key, item) in live_keys.iter().zip(live) {
        match config_keys.iter().position(|other| other == key) {
            None => merged.push(item.clone()),
            // Its turn comes with, or came before, another item that both have.
            Some(at) if at < next || shared[next..at].contains(&true) => {}
            Some(at) => {
                merged.extend((next..=at).map(merged_item));
                next = at + 1;
            }
        }
    }
    merged.extend((next..config.len()).map(merged_item));
    merged
}

/// `None` for what cannot be told apart, which equals nothing that was applied.
fn keys(items: &[Value], kind: ListKind) -> Vec<Option<Element>> {
    items.iter().map(|item| element(kind, item).ok()).collect()
}

/// The live item of that key, unless there are several: nobody knows which of them is meant.
fn only<'v>(live: &'v [Value], keys: &[Option<Element>], key: Option<&Element>) -> Option<&'v Value> {
    let mut same = keys.iter().zip(live).filter(|(other, _)| other.as_ref() == key);
    let (_, first) = same.next()?;
    same.next().is_none().then_some(first)
}

/// `value` without the fields in `gone`. A container of which nothing is left becomes null, which
/// is how pruning tells it from one that was empty before.
pub(super) fn remove(value: &Value, gone: &Set, place: &Place) -> Value {
    match place.shape(Some(value)) {
        Shape::Nothing | Shape::Leaf => value.clone(),
        Shape::Map(map) => {
            let mut left = Map::new();
            for (name, value) in map {
                let field = Element::Field(name.clone());
                if !gone.has(&field) {
                    left.insert(name.clone(), remove_below(value, gone, &field, place));
                }
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        Shape::List(items, kind) => {
            let mut left = Vec::new();
            for item in items {
                match element(kind, item) {
                    Ok(element) if gone.has(&element) => {}
                    Ok(element) => left.push(remove_below(item, gone, &element, place)),
                    Err(_) => left.push(item.clone()),
                }
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
    }
}

fn remove_below(value: &Value, gone: &Set, element: &Element, place: &Place) -> Value {
    match gone.below(element) {
        Some(below) => remove(value, below, &place.child(element)),
        None => value.clone(),
    }
}

/// Takes out the nulls that `before` did not have: servers drop what pruning emptied, and what a
/// configuration set to null.
pub(super) fn drop_new_nulls(value: &mut Value, before: Option<&Value>, place: &Place) {
    let kind = match place.shape(Some(value)) {
        Shape::Nothing | Shape::Leaf | Shape::List(_, ListKind::Atomic | ListKind::Set) => return,
        Shape::Map(_) => None,
        Shape::List(_, kind @ ListKind::Map(_)) => Some(kind),
    };
    match (value, kind) {
        (Value::Object(map), None) => {
            let before = |name: &str| before.and_then(|before| before.get(name));
            map.retain(|name, value| !value.is_null() || before(name).is_some_and(Value::is_null));
            for (name, value) in map {
                drop_new_nulls(value, before(name), &place.field(name));
            }
        }
        (Value::Array(items), Some(kind)) => {
            let old: &[Value] = before.and_then(Value::as_array).map_or(&[], Vec::as_slice);
            let old_keys = keys(old, kind);
            let place = place.item();
            for item in items {
                let key = element(kind, item).ok();
                drop_new_nulls(item, only(old, &old_keys, key.as_ref()), &place);
            }
        }
        _ => {}
    }
}
