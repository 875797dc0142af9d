//! Lists of a herd, a piece at a time: one of 5,000 nodes has 80 MB, and a thousand of them may be asked
//! for at once.

use std::{ops::Range, sync::Arc};

use serde_json::json;

use super::{Encoding, Herd, State, Template, look::GONE, render::Fill};
use crate::sim::protobuf::{self, ListMeta, ProtoKind};

/// A page of a list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    /// Among all nodes, gone ones included: where the next page begins is its end.
    pub range: Range<usize>,
    /// How many nodes follow it; with none it is the last page.
    pub remaining: usize,
}

impl Span {
    pub(super) fn of(states: &[State], from: usize, limit: Option<usize>) -> Self {
        let mut existing = (from..states.len()).filter(|i| !states[*i].look.has(GONE));
        let past = limit.and_then(|limit| existing.nth(limit));
        let range = from.min(states.len())..past.unwrap_or(states.len());
        Self { range, remaining: past.map_or(0, |_| 1 + existing.count()) }
    }
}

/// The pieces of a list: its head, each node, its tail. States are copied when it begins, as a list is of
/// one version, and says at its head how long it is.
#[derive(Debug)]
pub struct List {
    template: Arc<Template>,
    encoding: Encoding,
    cluster: u16,
    nodes: std::vec::IntoIter<(usize, State)>,
    start: Option<Vec<u8>>,
    end: Option<&'static [u8]>,
    first: bool,
}

impl List {
    pub(super) fn new(herd: &Herd, encoding: Encoding, span: &Span, meta: ListMeta<'_>) -> Self {
        let existing = span.range.clone().filter(|i| herd.exists(*i));
        let nodes: Vec<_> = existing.map(|i| (i, herd.states[i])).collect();
        let (start, end): (_, &[u8]) = match encoding {
            Encoding::Json => (json_head(meta), b"]}\n"),
            Encoding::Protobuf => {
                let length = |(_, state): &(usize, State)| {
                    let digits = 1 + state.version.checked_ilog10().unwrap_or_default() as usize;
                    let length = herd.template.body(encoding, state.look).length(digits);
                    protobuf::list_item(length).0.len() + length
                };
                let length = nodes.iter().map(length).sum();
                (protobuf::list_start(ProtoKind::Node, meta, length), protobuf::ENVELOPE_TAIL)
            }
        };
        Self {
            template: herd.template.clone(),
            encoding,
            cluster: herd.cluster,
            nodes: nodes.into_iter(),
            start: Some(start),
            end: Some(end),
            first: true,
        }
    }
}

impl Iterator for List {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(start) = self.start.take() {
            return Some(start);
        }
        let Some((i, state)) = self.nodes.next() else { return self.end.take().map(<[u8]>::to_vec) };
        let fill = Fill::new(self.cluster, i, state.version, &state);
        let body = self.template.body(self.encoding, state.look);
        let first = std::mem::replace(&mut self.first, false);
        let mut piece = match self.encoding {
            Encoding::Json if first => Vec::new(),
            Encoding::Json => b",".to_vec(),
            Encoding::Protobuf => protobuf::list_item(body.length(fill.digits())).0,
        };
        body.write(&fill, &mut piece);
        Some(piece)
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
