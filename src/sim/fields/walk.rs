//! Looking at objects: what fields they have, what differs between two of them, what is malformed.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::schema::{ListKind, Place, Shape, element};
use super::set::{Element, Set, path_text};

/// Every field that `value` mentions: what an applier of it owns.
pub(super) fn field_set(value: &Value, place: &Place) -> Set {
    let mut set = Set::default();
    collect_fields(value, place, &mut Vec::new(), &mut set);
    set
}

fn collect_fields(value: &Value, place: &Place, path: &mut Vec<Element>, set: &mut Set) {
    match place.shape(Some(value)) {
        Shape::Nothing | Shape::Leaf => set.insert(path),
        Shape::Map(map) => {
            if map.is_empty() {
                set.insert(path);
            }
            for (name, value) in map {
                path.push(Element::Field(name.clone()));
                collect_fields(value, &place.field(name), path, set);
                path.pop();
            }
        }
        Shape::List(items, kind) => {
            for (element, items) in by_element(items, kind) {
                path.push(element);
                set.insert(path);
                // What there is twice is owned as a whole.
                if let [item] = items.as_slice() {
                    collect_fields(item, &place.item(), path, set);
                }
                path.pop();
            }
        }
    }
}

/// Items by what tells them apart; malformed ones are left out, since nobody can own them.
fn by_element(items: &[Value], kind: ListKind) -> BTreeMap<Element, Vec<&Value>> {
    let mut found: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = element(kind, item) {
            found.entry(element).or_default().push(item);
        }
    }
    found
}

/// What differs; no path stands in two of the sets.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub removed: Set,
    pub modified: Set,
    pub added: Set,
}

pub(super) fn compare(old: &Value, new: &Value, place: &Place) -> Comparison {
    let mut walk = Compare::default();
    walk.values(Some(old), Some(new), place);
    walk.found
}

#[derive(Default)]
struct Compare {
    path: Vec<Element>,
    found: Comparison,
}

impl Compare {
    fn values(&mut self, old: Option<&Value>, new: Option<&Value>, place: &Place) {
        // The empty kinds of nothing differ from each other, so two of them are compared as leaves.
        if is_nothing(old, place) && is_nothing(new, place) {
            return self.leaves(old, new);
        }
        match (place.shape(old), place.shape(new)) {
            (Shape::Map(old_map), Shape::Map(new_map)) => self.maps(Some(old_map), Some(new_map), place),
            (Shape::List(old_items, kind), Shape::List(new_items, _)) => {
                self.lists(old_items, new_items, kind, place);
            }
            (old_shape, new_shape) => {
                self.side(old_shape, place, true);
                self.side(new_shape, place, false);
                if is_wildcard(old) && is_parts(new_shape) || is_wildcard(new) && is_parts(old_shape) {
                    self.container(old, new);
                } else {
                    self.leaves(old, new);
                }
            }
        }
    }

    /// The parts of one side where the other has none: all gone, or all new.
    fn side(&mut self, shape: Shape<'_>, place: &Place, gone: bool) {
        match shape {
            Shape::Nothing | Shape::Leaf => {}
            Shape::Map(map) if gone => self.maps(Some(map), None, place),
            Shape::Map(map) => self.maps(None, Some(map), place),
            Shape::List(items, kind) if gone => self.lists(items, &[], kind, place),
            Shape::List(items, kind) => self.lists(&[], items, kind, place),
        }
    }

    fn maps(&mut self, old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, place: &Place) {
        let get =
            |map: Option<&'_ Map<String, Value>>, name: &str| map.is_some_and(|map| map.contains_key(name));
        let new_only = new.into_iter().flat_map(Map::keys).filter(|name| !get(old, name));
        for name in old.into_iter().flat_map(Map::keys).chain(new_only) {
            self.path.push(Element::Field(name.clone()));
            let (old, new) = (old.and_then(|map| map.get(name)), new.and_then(|map| map.get(name)));
            self.values(old, new, &place.field(name));
            self.path.pop();
        }
    }

    fn lists(&mut self, old: &[Value], new: &[Value], kind: ListKind, place: &Place) {
        let (mut old, mut new) = (by_element(old, kind), by_element(new, kind));
        let place = place.item();
        let elements: Vec<Element> =
            old.keys().chain(new.keys().filter(|element| !old.contains_key(element))).cloned().collect();
        for element in elements {
            let old = old.remove(&element).unwrap_or_default();
            let new = new.remove(&element).unwrap_or_default();
            self.path.push(element);
            self.items(&old, &new, &place);
            self.path.pop();
        }
    }

    /// Items of one key. Twice the same is one whole, without parts.
    fn items(&mut self, old: &[&Value], new: &[&Value], place: &Place) {
        match (old, new) {
            ([] | [_], [] | [_]) => {
                let (old, new) = (old.first().copied(), new.first().copied());
                self.values(old, new, place);
            }
            ([_, _, ..], [_, _, ..]) => {
                if old != new {
                    self.found.modified.insert(&self.path);
                }
            }
            ([_, _, ..], _) => {
                if let [new] = new {
                    self.values(None, Some(new), place);
                }
                self.found.removed.insert(&self.path);
            }
            (_, [_, _, ..]) => {
                if let [old] = old {
                    self.values(Some(old), None, place);
                }
                self.found.added.insert(&self.path);
            }
        }
    }

    /// What comes or goes as a whole comes or goes by its own name too.
    fn container(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, Some(_)) => self.found.added.insert(&self.path),
            (Some(_), None) => self.found.removed.insert(&self.path),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn leaves(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(old), Some(new)) if old != new => self.found.modified.insert(&self.path),
            (Some(_), Some(_)) | (None, None) => {}
            (None, Some(_)) | (Some(_), None) => self.container(old, new),
        }
    }
}

/// Absent, null, or a container without content.
pub(super) fn is_nothing(value: Option<&Value>, place: &Place) -> bool {
    match place.shape(value) {
        Shape::Nothing => true,
        Shape::Map(map) => map.is_empty(),
        Shape::List(items, _) => items.is_empty(),
        Shape::Leaf => is_wildcard(value),
    }
}

/// Null and absence take the type of whatever stands on the other side.
fn is_wildcard(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

fn is_parts(shape: Shape<'_>) -> bool {
    matches!(shape, Shape::Map(_) | Shape::List(..))
}

/// What makes `value` no configuration that could be applied, each with its path.
pub(super) fn faults(value: &Value, place: &Place) -> Vec<String> {
    let mut found = Vec::new();
    collect_faults(value, place, &mut Vec::new(), &mut found);
    found
}

fn collect_faults(value: &Value, place: &Place, path: &mut Vec<Element>, found: &mut Vec<String>) {
    match place.shape(Some(value)) {
        Shape::Nothing | Shape::Leaf => {}
        Shape::Map(map) => {
            for (name, value) in map {
                path.push(Element::Field(name.clone()));
                collect_faults(value, &place.field(name), path, found);
                path.pop();
            }
        }
        Shape::List(items, kind) => {
            let mut seen = Vec::new();
            for (index, item) in items.iter().enumerate() {
                let element = match element(kind, item) {
                    Ok(element) => element,
                    Err(fault) => {
                        found.push(format!("{}: element {index}: {fault}", path_text(path)));
                        return;
                    }
                };
                if seen.contains(&element) {
                    found.push(format!("{}: duplicate entries for key {element}", path_text(path)));
                }
                path.push(element.clone());
                collect_faults(item, &place.item(), path, found);
                path.pop();
                seen.push(element);
            }
        }
    }
}
