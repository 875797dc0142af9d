//! YAML and JSON as one tree whose parts know where they stand.
//!
//! Scalars keep the text they were written in: `1.10` as an environment variable is `1.10`, and whether
//! `4+` is a number is for its field to say. Files come from strangers, so everything is bounded before
//! it is built: bytes, depth, and what aliases expand to.

mod json;

use std::{borrow::Cow, collections::HashMap, fmt, str, sync::Arc};

use granit_parser::{Event, Marker, Parser, ScalarStyle, Tag};

pub use self::json::read_json;

/// An API server takes no larger object, and nobody writes a larger task.
pub const MAX_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;
/// What all nodes may cost together, aliases expanded: each its text and [`NODE`].
const BUDGET: usize = 8 << 20;
const NODE: usize = 64;

/// A position in the text, both counted from 1.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a text is not a tree that is worth reading.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum YamlError {
    #[error("the file has {0} bytes; the most is {MAX_BYTES}")]
    TooLarge(usize),
    #[error("the file is not UTF-8 text")]
    NotText(Place),
    #[error("not YAML: {1}")]
    Syntax(Place, String),
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep(Option<Place>),
    #[error("with its aliases expanded the file is too large")]
    TooMuch(Option<Place>),
    #[error("`{1}` is in this map already, at {2}")]
    DuplicateKey(Place, String, Place),
    #[error("a key must be a text")]
    KeyNotText(Place),
    #[error("the tag `{1}` is not supported")]
    Tag(Place, String),
    #[error("an alias cannot stand inside what it names")]
    Recursive(Place),
    #[error("`<<` takes a map or a list of maps")]
    Merge(Place),
    #[error("not JSON: {1}")]
    Json(Place, String),
}

impl YamlError {
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::TooLarge(_) => None,
            Self::TooDeep(place) | Self::TooMuch(place) => *place,
            Self::NotText(place)
            | Self::Syntax(place, _)
            | Self::DuplicateKey(place, ..)
            | Self::KeyNotText(place)
            | Self::Tag(place, _)
            | Self::Recursive(place)
            | Self::Merge(place)
            | Self::Json(place, _) => Some(*place),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    /// JSON has none: its parts are named by path.
    pub place: Option<Place>,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
pub struct Scalar {
    pub text: Arc<str>,
    /// Without quotes, so that it may be a number, a truth value or nothing at all.
    pub plain: bool,
}

#[derive(Clone, Debug)]
pub struct Key {
    pub text: Arc<str>,
    pub place: Option<Place>,
}

impl Scalar {
    pub fn is_null(&self) -> bool {
        self.plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

impl Scalar {
    fn to_json(&self) -> serde_json::Value {
        let text = &*self.text;
        if self.is_null() {
            return serde_json::Value::Null;
        }
        if !self.plain {
            return text.into();
        }
        match text {
            "true" | "True" | "TRUE" => true.into(),
            "false" | "False" | "FALSE" => false.into(),
            _ => number(text).unwrap_or_else(|| text.into()),
        }
    }
}

fn number(text: &str) -> Option<serde_json::Value> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let octal =
        digits.strip_prefix("0o").or_else(|| digits.strip_prefix('0').filter(|rest| !rest.is_empty()));
    let whole = match (digits.strip_prefix("0x"), octal) {
        (Some(hexadecimal), _) => i64::from_str_radix(hexadecimal, 16).ok(),
        (None, Some(octal)) => i64::from_str_radix(octal, 8).ok(),
        (None, None) => digits.parse().ok(),
    };
    if let Some(whole) = whole {
        return Some(if text.starts_with('-') { whole.checked_neg()?.into() } else { whole.into() });
    }
    let fraction = digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let number: f64 = text.parse().ok().filter(|_| fraction)?;
    serde_json::Number::from_f64(number).map(serde_json::Value::Number)
}

impl Node {
    pub fn null() -> Self {
        Self { place: None, value: Value::Scalar(Scalar { text: "".into(), plain: true }) }
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.is_null())
    }

    /// As Kubernetes reads a manifest: what is not quoted may be a number, a truth value or nothing, and `0644` is octal.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Scalar(scalar) => scalar.to_json(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Map(entries) => {
                entries.iter().map(|(key, node)| (key.text.to_string(), node.to_json())).collect()
            }
        }
    }

    fn cost(&self) -> usize {
        NODE + match &self.value {
            Value::Scalar(scalar) => scalar.text.len(),
            Value::List(items) => items.iter().map(Self::cost).sum(),
            Value::Map(entries) => entries.iter().map(|(key, node)| key.text.len() + node.cost()).sum(),
        }
    }

    fn depth(&self) -> usize {
        1 + match &self.value {
            Value::Scalar(_) => 0,
            Value::List(items) => items.iter().map(Self::depth).max().unwrap_or(0),
            Value::Map(entries) => entries.iter().map(|(_, node)| node.depth()).max().unwrap_or(0),
        }
    }
}

/// Every document of a file. An empty one is no document.
pub fn read_yaml(bytes: &[u8]) -> Result<Vec<Node>, YamlError> {
    let text = legible(bytes)?;
    let mut options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    options.set_emit_comments(false);
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        let tag = span.tag_start().unwrap_or(span.start);
        builder.take(event, place(&span.start), place(&tag))?;
    }
    Ok(builder.documents)
}

fn legible(bytes: &[u8]) -> Result<&str, YamlError> {
    if MAX_BYTES < bytes.len() {
        return Err(YamlError::TooLarge(bytes.len()));
    }
    str::from_utf8(bytes).map_err(|error| {
        let before = str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let last = before.rsplit('\n').next().unwrap_or_default();
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        YamlError::NotText(Place { line: narrow(line), column: narrow(last.chars().count() + 1) })
    })
}

fn syntax(error: &granit_parser::ScanError) -> YamlError {
    use granit_parser::ErrorKind;
    let place = place(error.marker());
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => YamlError::TooDeep(Some(place)),
        _ => YamlError::Syntax(place, error.info()),
    }
}

fn place(mark: &Marker) -> Place {
    Place { line: narrow(mark.line()), column: narrow(mark.col() + 1) }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Puts events together to documents.
#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
    /// `None` while the anchored node is being read.
    anchors: HashMap<usize, Option<Node>>,
    spent: usize,
}

struct Open {
    place: Place,
    anchor: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map(OpenMap),
}

#[derive(Default)]
struct OpenMap {
    entries: Vec<(Key, Node)>,
    /// Where each key stands.
    seen: HashMap<Arc<str>, Place>,
    key: Option<Key>,
    merged: Vec<Node>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, place: Place, tagged: Place) -> Result<(), YamlError> {
        match event {
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = scalar(text, style, tag.as_deref(), tagged)?;
                self.spend(NODE + scalar.text.len(), place)?;
                let node = Node { place: Some(place), value: Value::Scalar(scalar) };
                self.close(node, anchor, place)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                collection(tag.as_deref(), "seq", tagged)?;
                self.enter(Inside::List(Vec::new()), anchor, place)?;
            }
            Event::MappingStart(_, anchor, tag) => {
                collection(tag.as_deref(), "map", tagged)?;
                self.enter(Inside::Map(OpenMap::default()), anchor, place)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let value = match open.inside {
                        Inside::List(items) => Value::List(items),
                        Inside::Map(map) => Value::Map(map.finish(open.place)?),
                    };
                    let node = Node { place: Some(open.place), value };
                    self.close(node, open.anchor, open.place)?;
                }
            }
            Event::Alias(anchor) => {
                let Some(Some(node)) = self.anchors.get(&anchor) else {
                    return Err(YamlError::Recursive(place));
                };
                if MAX_DEPTH < self.open.len() + node.depth() {
                    return Err(YamlError::TooDeep(Some(place)));
                }
                let cost = node.cost();
                let node = Node { place: Some(place), value: node.value.clone() };
                self.spend(cost, place)?;
                self.close(node, 0, place)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn enter(&mut self, inside: Inside, anchor: usize, place: Place) -> Result<(), YamlError> {
        if matches!(self.open.last(), Some(Open { inside: Inside::Map(map), .. }) if map.key.is_none()) {
            return Err(YamlError::KeyNotText(place));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        self.spend(NODE, place)?;
        self.open.push(Open { place, anchor, inside });
        Ok(())
    }

    /// A node is complete: it goes to what it stands in.
    fn close(&mut self, node: Node, anchor: usize, place: Place) -> Result<(), YamlError> {
        if anchor != 0 {
            self.spend(node.cost(), place)?;
            self.anchors.insert(anchor, Some(node.clone()));
        }
        match self.open.last_mut().map(|open| &mut open.inside) {
            None if node.is_null() => {}
            None => self.documents.push(node),
            Some(Inside::List(items)) => items.push(node),
            Some(Inside::Map(map)) => map.push(node, place)?,
        }
        Ok(())
    }

    fn spend(&mut self, cost: usize, place: Place) -> Result<(), YamlError> {
        self.spent = self.spent.saturating_add(cost);
        if BUDGET < self.spent { Err(YamlError::TooMuch(Some(place))) } else { Ok(()) }
    }
}

impl OpenMap {
    fn push(&mut self, node: Node, place: Place) -> Result<(), YamlError> {
        match self.key.take() {
            Some(key) if &*key.text == "<<" => self.merged.push(node),
            Some(key) => self.entries.push((key, node)),
            None => {
                let Value::Scalar(scalar) = node.value else { return Err(YamlError::KeyNotText(place)) };
                if scalar.is_null() {
                    return Err(YamlError::KeyNotText(place));
                }
                if let Some(first) = self.seen.insert(scalar.text.clone(), place) {
                    return Err(YamlError::DuplicateKey(place, shown(&scalar.text), first));
                }
                self.key = Some(Key { text: scalar.text, place: Some(place) });
            }
        }
        Ok(())
    }

    /// With what `<<` brings in: the map's own keys win, then the earlier map.
    fn finish(mut self, place: Place) -> Result<Vec<(Key, Node)>, YamlError> {
        let maps = std::mem::take(&mut self.merged).into_iter().flat_map(|node| match node.value {
            Value::List(items) => items,
            value => vec![Node { place: node.place, value }],
        });
        for map in maps {
            let Value::Map(entries) = map.value else { return Err(YamlError::Merge(place)) };
            for (key, node) in entries {
                if self.seen.insert(key.text.clone(), place).is_none() {
                    self.entries.push((key, node));
                }
            }
        }
        Ok(self.entries)
    }
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: Place,
) -> Result<Scalar, YamlError> {
    let plain = style == ScalarStyle::Plain;
    let plain = match tag.map(|tag| (tag.core_suffix(), tag)) {
        None => plain,
        Some((Some("str"), _)) => false,
        Some((Some("int" | "float" | "bool" | "null"), _)) => true,
        Some((_, tag)) => return Err(YamlError::Tag(place, shown(&tag.original()))),
    };
    Ok(Scalar { text: text.into(), plain })
}

fn collection(tag: Option<&Tag>, kind: &str, place: Place) -> Result<(), YamlError> {
    match tag {
        Some(tag) if !matches!(tag.core_suffix(), Some(suffix) if suffix == kind || suffix == "set") => {
            Err(YamlError::Tag(place, shown(&tag.original())))
        }
        Some(_) | None => Ok(()),
    }
}

/// What of a stranger's text a message repeats.
pub fn shown(text: &str) -> String {
    const LENGTH: usize = 60;
    let mut shown: String =
        text.chars().take(LENGTH).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LENGTH).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
