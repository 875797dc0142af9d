//! Lists of a herd, a piece at a time: one of 5,000 nodes has 80 MB, and a thousand of them may be asked
//! for at once.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Encoding, Event, Herd, State, Template, look::GONE, render::Fill};
use crate::protobuf::{self, ListMeta, ProtoKind};
use crate::store::Object;

/// The nodes of a cluster at one moment, in the order of their names. States are copied, so later changes do
/// not touch it.
#[derive(Debug)]
pub struct Nodes {
    template: Arc<Template>,
    cluster: u16,
    items: Vec<Item>,
}

#[derive(Debug)]
enum Item {
    State(usize, State),
    /// Of a node that was written to.
    Object(Object),
}

impl Nodes {
    pub(super) fn new(herd: &Herd, states: &[State], objects: Vec<Object>) -> Self {
        let states = states.iter().enumerate().filter(|(_, state)| !state.look.has(GONE));
        let items = states.map(|(i, state)| Item::State(i, *state)).collect();
        let mut nodes = Self { template: herd.template.clone(), cluster: herd.cluster, items };
        if !objects.is_empty() {
            let mut items = std::mem::take(&mut nodes.items);
            items.extend(objects.into_iter().map(Item::Object));
            items.sort_by_cached_key(|item| nodes.name(item));
            nodes.items = items;
        }
        nodes
    }

    fn name(&self, item: &Item) -> String {
        match item {
            Item::State(i, _) => super::name(self.cluster, *i),
            Item::Object(object) => object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        }
    }

    fn object(&self, item: &Item) -> Object {
        match item {
            Item::State(i, state) => Arc::new(self.template.value((self.cluster, *i, state))),
            Item::Object(object) => Arc::clone(object),
        }
    }

    /// Leaves those that follow this name.
    pub fn after(&mut self, name: &str) {
        let past = self.items.partition_point(|item| *self.name(item) <= *name);
        self.items.drain(..past);
    }

    /// Leaves the one of this name.
    pub fn only(&mut self, name: &str) {
        let before = self.items.partition_point(|item| *self.name(item) < *name);
        self.items.drain(..before);
        let is = self.items.first().is_some_and(|item| self.name(item) == name);
        self.items.truncate(usize::from(is));
    }

    /// Leaves those that are wanted, each rendered in full to be looked at.
    pub fn keep(&mut self, wanted: impl Fn(&Value) -> bool) {
        let mut items = std::mem::take(&mut self.items);
        items.retain(|item| wanted(&self.object(item)));
        self.items = items;
    }

    /// Leaves so many, and says how many more there were.
    pub fn truncate(&mut self, limit: usize) -> usize {
        let left = self.items.len().saturating_sub(limit);
        self.items.truncate(limit);
        self.items.shrink_to_fit();
        left
    }

    /// The name of the last one.
    pub fn last(&self) -> Option<String> {
        self.items.last().map(|item| self.name(item))
    }

    pub fn objects(&self) -> impl Iterator<Item = Object> {
        self.items.iter().map(|item| self.object(item))
    }

    /// As a watch sends them that begins with all.
    pub fn events(self, encoding: Encoding) -> impl Iterator<Item = Vec<u8>> {
        let Self { template, cluster, items } = self;
        items.into_iter().map(move |item| match item {
            Item::State(i, state) => template.event(encoding, (cluster, i, &state), Event::Added),
            Item::Object(object) => match encoding {
                Encoding::Protobuf => {
                    protobuf::watch_frame(Event::Added.text(), &protobuf::encode(ProtoKind::Node, &object))
                }
                Encoding::Json => {
                    format!("{}\n", json!({"type": Event::Added.text(), "object": object})).into_bytes()
                }
            },
        })
    }

    /// The pieces of a list.
    pub fn list(self, encoding: Encoding, meta: ListMeta<'_>) -> List {
        let length = |item: &Item| match item {
            Item::State(_, state) => {
                let digits = 1 + state.version.checked_ilog10().unwrap_or_default() as usize;
                self.template.body(encoding, state.look).length(digits)
            }
            Item::Object(object) => in_list(encoding, object).len(),
        };
        let before = |length: usize| match encoding {
            Encoding::Json => 1,
            Encoding::Protobuf => protobuf::list_item(length).0.len(),
        };
        let length = self.items.iter().map(length).map(|length| before(length) + length).sum();
        let (start, end): (_, &[u8]) = match encoding {
            Encoding::Json => (json_head(meta), b"]}\n"),
            Encoding::Protobuf => {
                (protobuf::list_start(ProtoKind::Node, meta, length), protobuf::ENVELOPE_TAIL)
            }
        };
        // No comma stands before the first.
        let commas = if encoding == Encoding::Json { self.items.len().min(1) } else { 0 };
        List {
            template: self.template,
            encoding,
            cluster: self.cluster,
            size: start.len() + length - commas + end.len(),
            items: self.items.into_iter(),
            start: Some(start),
            end: Some(end),
            first: true,
        }
    }
}

/// The pieces of a list: its head, each node, its tail. It says at its head how long it is.
#[derive(Debug)]
pub struct List {
    template: Arc<Template>,
    encoding: Encoding,
    cluster: u16,
    size: usize,
    items: std::vec::IntoIter<Item>,
    start: Option<Vec<u8>>,
    end: Option<&'static [u8]>,
    first: bool,
}

impl List {
    /// Bytes of all its pieces.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Iterator for List {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(start) = self.start.take() {
            return Some(start);
        }
        let Some(item) = self.items.next() else { return self.end.take().map(<[u8]>::to_vec) };
        let first = std::mem::replace(&mut self.first, false);
        let before = |length: usize| match self.encoding {
            Encoding::Json if first => Vec::new(),
            Encoding::Json => b",".to_vec(),
            Encoding::Protobuf => protobuf::list_item(length).0,
        };
        Some(match item {
            Item::State(i, state) => {
                let fill = Fill::new(self.cluster, i, state.version, &state);
                let body = self.template.body(self.encoding, state.look);
                let mut piece = before(body.length(fill.digits()));
                body.write(&fill, &mut piece);
                piece
            }
            Item::Object(object) => {
                let body = in_list(self.encoding, &object);
                [before(body.len()), body].concat()
            }
        })
    }
}

/// Without its kind, which the list names once.
fn in_list(encoding: Encoding, object: &Value) -> Vec<u8> {
    match encoding {
        Encoding::Protobuf => protobuf::message(ProtoKind::Node, object),
        Encoding::Json => {
            let mut object = object.clone();
            if let Some(fields) = object.as_object_mut() {
                fields.shift_remove("kind");
                fields.shift_remove("apiVersion");
            }
            object.to_string().into_bytes()
        }
    }
}

fn json_head(meta: ListMeta<'_>) -> Vec<u8> {
    let mut metadata = json!({ "resourceVersion": meta.resource_version });
    if let Some(next) = meta.next {
        metadata["continue"] = next.into();
    }
    if let Some(remaining) = meta.remaining {
        metadata["remainingItemCount"] = remaining.into();
    }
    format!(r#"{{"kind":"NodeList","apiVersion":"v1","metadata":{metadata},"items":["#).into_bytes()
}
