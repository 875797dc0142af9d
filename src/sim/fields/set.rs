//! Sets of field paths, and the JSON form (`fieldsV1`) they have in `metadata.managedFields`.

use std::collections::{BTreeMap, btree_map::Entry};
use std::fmt;

use serde_json::{Map, Value};

/// A scalar as it stands in a path. The order of the variants is the order servers sort by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scalar {
    Integer(i64),
    Text(String),
    Bool(bool),
    /// Anything else, as its JSON text: paths only compare and print it.
    Other(String),
}

impl From<&Value> for Scalar {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => {
                number.as_i64().map_or_else(|| Self::Other(number.to_string()), Self::Integer)
            }
            Value::Null | Value::Array(_) | Value::Object(_) => Self::Other(value.to_string()),
        }
    }
}

/// The scalar's JSON text.
impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => Value::from(text.as_str()).fmt(f),
            Self::Bool(flag) => flag.fmt(f),
            Self::Other(json) => f.write_str(json),
        }
    }
}

/// One step of a path. The order of the variants is the order servers sort by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    Field(String),
    /// The list item with these values in its key fields, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// The member of a set of scalars.
    Value(Scalar),
    Index(usize),
}

impl Element {
    fn parse(text: &str) -> Option<Self> {
        let (kind, content) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(content.to_owned())),
            "v" => serde_json::from_str(content).ok().map(|value: Value| Self::Value(Scalar::from(&value))),
            "i" => content.parse().ok().map(Self::Index),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(content).ok()?;
                let mut keys: Vec<_> =
                    keys.iter().map(|(name, value)| (name.clone(), Scalar::from(value))).collect();
                keys.sort();
                Some(Self::Key(keys))
            }
            _ => None,
        }
    }

    /// The name it has in `fieldsV1`.
    fn encoded(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(name, value)| format!("{}:{value}", Value::from(name.as_str())))
                    .collect();
                format!("k:{{{}}}", keys.join(","))
            }
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// As conflicts print it: `.spec`, `[name="x"]`, `[="x"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

pub(super) fn path_text(path: &[Element]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// A set of paths. That a path is a member says nothing of the paths below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    nodes: BTreeMap<Element, Node>,
}

/// Either a member or not childless: a node that says nothing is not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    below: Set,
}

impl Set {
    /// The whole object is no path: nobody owns it.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.nodes.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn has(&self, element: &Element) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// What lies below `element`, if anything does.
    pub fn below(&self, element: &Element) -> Option<&Self> {
        self.nodes.get(element).map(|node| &node.below).filter(|below| !below.is_empty())
    }

    pub fn union(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.nodes {
            match self.nodes.entry(element.clone()) {
                Entry::Vacant(free) => {
                    free.insert(theirs.clone());
                }
                Entry::Occupied(mut ours) => {
                    let ours = ours.get_mut();
                    ours.member |= theirs.member;
                    ours.below = std::mem::take(&mut ours.below).union(&theirs.below);
                }
            }
        }
        self
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| {
            theirs.map_or_else(Node::default, |theirs| Node {
                member: ours.member && theirs.member,
                below: ours.below.intersection(&theirs.below),
            })
        })
    }

    /// Members of this set only. Taking a parent away leaves its children.
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| {
            theirs.map_or_else(
                || ours.clone(),
                |theirs| Node {
                    member: ours.member && !theirs.member,
                    below: ours.below.difference(&theirs.below),
                },
            )
        })
    }

    fn combine(&self, other: &Self, both: impl Fn(&Node, Option<&Node>) -> Node) -> Self {
        let nodes = self
            .nodes
            .iter()
            .map(|(element, ours)| (element.clone(), both(ours, other.nodes.get(element))))
            .filter(|(_, node)| node.member || !node.below.is_empty());
        Self { nodes: nodes.collect() }
    }

    /// With every named field above a member as a member too. Paths through list items and into map
    /// keys do not own their containers otherwise, so pruning could not empty them.
    pub fn with_parents(&self) -> Self {
        let nodes = self.nodes.iter().map(|(element, node)| {
            let named = matches!(element, Element::Field(_)) && !node.below.is_empty();
            (element.clone(), Node { member: node.member || named, below: node.below.with_parents() })
        });
        Self { nodes: nodes.collect() }
    }

    /// All members, those of one level before those below, as conflicts are listed.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for (element, _) in self.nodes.iter().filter(|(_, node)| node.member) {
            paths.push(prefix.iter().chain([element]).cloned().collect());
        }
        for (element, node) in &self.nodes {
            prefix.push(element.clone());
            node.below.collect(prefix, paths);
            prefix.pop();
        }
    }

    pub fn to_json(&self) -> Value {
        Value::Object(self.encode(false))
    }

    fn encode(&self, member: bool) -> Map<String, Value> {
        let mut json = Map::new();
        if member && !self.is_empty() {
            json.insert(".".to_owned(), Value::Object(Map::new()));
        }
        for (element, node) in &self.nodes {
            json.insert(element.encoded(), Value::Object(node.below.encode(node.member)));
        }
        json
    }

    /// `None` when it is no set. Kinds of elements that are not known are dropped, as servers do.
    pub fn from_json(json: &Value) -> Option<Self> {
        Some(Self::decode(json)?.0)
    }

    /// The set, and whether its own place is a member of the set above.
    fn decode(json: &Value) -> Option<(Self, bool)> {
        let mut set = Self::default();
        let mut member = false;
        for (name, value) in json.as_object()? {
            if name == "." {
                member = true;
                continue;
            }
            let Some(element) = Element::parse(name) else {
                if matches!(name.get(..2), Some("f:" | "k:" | "v:" | "i:")) || name.len() < 2 {
                    return None;
                }
                continue;
            };
            let (below, inner) = Self::decode(value)?;
            set.nodes.insert(element, Node { member: inner, below });
        }
        member |= set.is_empty();
        Some((set, member))
    }
}
