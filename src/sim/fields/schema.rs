//! What of a kind merges in another way than by default, and how far down the object we are.

use serde_json::{Map, Value};

use super::set::{Element, Scalar};

/// How a list merges. A key of `Map` may carry its default: `"protocol=TCP"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The whole list has one owner; written as a whole.
    Atomic,
    /// A set of scalars, each with its owners.
    Set,
    /// Objects told apart by these keys.
    Map(&'static [&'static str]),
}

/// Dotted paths from the root whose merging is not the default (maps granular, lists atomic). `*`
/// stands for a list item or map key, as in `spec.template.spec.containers.*.ports`.
///
/// What all kinds share (`metadata.finalizers`, `metadata.ownerReferences`) need not be told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Schema {
    pub lists: &'static [(&'static str, ListKind)],
    pub atomic_maps: &'static [&'static str],
}

const COMMON_LISTS: [(&str, ListKind); 2] =
    [("metadata.finalizers", ListKind::Set), ("metadata.ownerReferences", ListKind::Map(&["uid"]))];
const COMMON_ATOMIC_MAPS: [&str; 1] = ["metadata.ownerReferences.*"];

#[derive(Clone, Copy)]
enum Rule {
    List(ListKind),
    AtomicMap,
}

/// A place in an object: what is left of the schema's paths from here on. Walking costs by the
/// rules that still apply, which are none in most branches.
#[derive(Clone)]
pub(super) struct Place {
    ahead: Vec<(&'static str, Rule)>,
    here: Option<Rule>,
}

impl Place {
    pub fn root(schema: &Schema) -> Self {
        let lists = COMMON_LISTS.iter().chain(schema.lists).map(|(path, kind)| (*path, Rule::List(*kind)));
        let maps = COMMON_ATOMIC_MAPS.iter().chain(schema.atomic_maps).map(|path| (*path, Rule::AtomicMap));
        Self { ahead: lists.chain(maps).collect(), here: None }
    }

    pub fn field(&self, name: &str) -> Self {
        self.descend(|segment| segment == name || segment == "*")
    }

    pub fn item(&self) -> Self {
        self.descend(|segment| segment == "*")
    }

    pub fn child(&self, element: &Element) -> Self {
        match element {
            Element::Field(name) => self.field(name),
            Element::Key(_) | Element::Value(_) | Element::Index(_) => self.item(),
        }
    }

    fn descend(&self, matches: impl Fn(&str) -> bool) -> Self {
        let mut below = Self { ahead: Vec::new(), here: None };
        for (path, rule) in &self.ahead {
            let (segment, rest) = path.split_once('.').unwrap_or((path, ""));
            if !matches(segment) {
                continue;
            }
            if rest.is_empty() {
                below.here = Some(*rule);
            } else {
                below.ahead.push((rest, *rule));
            }
        }
        below
    }

    pub fn list_kind(&self) -> ListKind {
        match self.here {
            Some(Rule::List(kind)) => kind,
            Some(Rule::AtomicMap) | None => ListKind::Atomic,
        }
    }

    /// What `value` is to merging at this place.
    pub fn shape<'v>(&self, value: Option<&'v Value>) -> Shape<'v> {
        match value {
            None => Shape::Nothing,
            Some(Value::Object(map)) if !matches!(self.here, Some(Rule::AtomicMap)) => Shape::Map(map),
            Some(Value::Array(items)) => match self.list_kind() {
                ListKind::Atomic => Shape::Leaf,
                kind @ (ListKind::Set | ListKind::Map(_)) => Shape::List(items, kind),
            },
            Some(_) => Shape::Leaf,
        }
    }
}

/// A value as merging sees it: something with parts of their own, or one indivisible whole.
#[derive(Clone, Copy)]
pub(super) enum Shape<'v> {
    Nothing,
    Leaf,
    Map(&'v Map<String, Value>),
    List(&'v [Value], ListKind),
}

/// Why an item cannot stand in a list that merges by item.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    #[error("associative list with keys may not have a null element")]
    NullInMap,
    #[error("associative list with keys may not have non-map elements")]
    NoMap,
    #[error(
        "associative list with keys has an element that omits all key fields {keys} (and doesn't have default values for any key fields)"
    )]
    NoKeys { keys: String },
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
}

/// What tells `item` apart from the others of its list.
pub(super) fn element(kind: ListKind, item: &Value) -> Result<Element, ItemError> {
    match kind {
        ListKind::Map(keys) => keyed(keys, item),
        ListKind::Set | ListKind::Atomic => match item {
            Value::Object(_) => Err(ItemError::MapInSet),
            Value::Array(_) => Err(ItemError::ListInSet),
            Value::Null => Err(ItemError::NullInSet),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Element::Value(Scalar::from(item))),
        },
    }
}

fn keyed(keys: &[&'static str], item: &Value) -> Result<Element, ItemError> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err(ItemError::NullInMap),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(ItemError::NoMap);
        }
    };
    let mut found = Vec::new();
    for (name, default) in keys.iter().copied().map(key_and_default) {
        if let Some(value) = map.get(name) {
            found.push((name.to_owned(), Scalar::from(value)));
        } else if let Some(default) = default {
            found.push((name.to_owned(), Scalar::Text(default.to_owned())));
        }
    }
    if found.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| format!("{:?}", key_and_default(key).0)).collect();
        return Err(ItemError::NoKeys { keys: format!("[{}]", keys.join(" ")) });
    }
    found.sort();
    Ok(Element::Key(found))
}

/// A key as written in [`ListKind::Map`]: its name, and the default it may have.
pub(super) fn key_and_default(key: &'static str) -> (&'static str, Option<&'static str>) {
    match key.split_once('=') {
        Some((name, default)) => (name, Some(default)),
        None => (key, None),
    }
}
