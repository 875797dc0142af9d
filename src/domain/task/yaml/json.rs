//! JSON into the same tree. Its parts have no places: what is wrong in a request is named by path.

use std::{collections::HashSet, fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};

use super::{Key, Node, Place, Scalar, Value, YamlError, legible, narrow, shown};

/// A request's JSON.
pub fn read_json(bytes: &[u8]) -> Result<Node, YamlError> {
    legible(bytes)?;
    serde_json::from_slice(bytes).map_err(|error| {
        let message = error.to_string();
        let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(text, _)| text).to_owned();
        YamlError::Json(Place { line: narrow(error.line()), column: narrow(error.column()) }, message)
    })
}

/// serde_json keeps its own limit of depth, 128, and JSON has no aliases.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl JsonVisitor {
    fn plain(text: &str) -> Node {
        Node { place: None, value: Value::Scalar(Scalar { text: text.into(), plain: true }) }
    }
}

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::null())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Self::plain(if value { "true" } else { "false" }))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Self::plain(&value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Self::plain(&value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Self::plain(&value.to_string()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node { place: None, value: Value::Scalar(Scalar { text: text.into(), plain: false }) })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node { place: None, value: Value::List(items) })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let (mut entries, mut seen) = (Vec::new(), HashSet::new());
        while let Some((text, node)) = map.next_entry::<String, Node>()? {
            let text: Arc<str> = text.into();
            if !seen.insert(text.clone()) {
                return Err(A::Error::custom(format!("`{}` is in this map twice", shown(&text))));
            }
            entries.push((Key { text, place: None }, node));
        }
        Ok(Node { place: None, value: Value::Map(entries) })
    }
}
