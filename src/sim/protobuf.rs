//! Built-in kinds in protobuf, byte for byte as an API server answers `application/vnd.kubernetes.protobuf`.
//!
//! Objects stay JSON values here as everywhere in the simulation: a table of fields (`schema`) says
//! which of them has which number, and what absence looks like on the wire. A value that is not of its
//! field's type counts as absent, since no typed server could have stored it.

mod message;
mod read;
pub mod samples;
mod schema;

use serde_json::Value;

pub use message::{Message, varint_len};
pub use read::{Unreadable, decode};
use schema::{CONFIG_MAP, LIST_META, NAMESPACE, NODE, PARTIAL, SECRET, STATUS};

/// Opens every object: an envelope (`runtime.Unknown`) with the kind and the object follows.
pub const MAGIC: &[u8] = b"k8s\0";

/// The kinds that can be asked for in protobuf. A server answers 406 for others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProtoKind {
    Namespace,
    Node,
    Secret,
    ConfigMap,
    /// Of any kind, also of those that have no protobuf themselves.
    PartialObjectMetadata,
}

impl ProtoKind {
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "Namespace") => Some(Self::Namespace),
            ("v1", "Node") => Some(Self::Node),
            ("v1", "Secret") => Some(Self::Secret),
            ("v1", "ConfigMap") => Some(Self::ConfigMap),
            ("meta.k8s.io/v1", "PartialObjectMetadata") => Some(Self::PartialObjectMetadata),
            _ => None,
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Self::Namespace | Self::Node | Self::Secret | Self::ConfigMap => "v1",
            Self::PartialObjectMetadata => "meta.k8s.io/v1",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
            Self::PartialObjectMetadata => "PartialObjectMetadata",
        }
    }

    fn fields(self) -> &'static [schema::Field] {
        match self {
            Self::Namespace => NAMESPACE,
            Self::Node => NODE,
            Self::Secret => SECRET,
            Self::ConfigMap => CONFIG_MAP,
            Self::PartialObjectMetadata => PARTIAL,
        }
    }
}

/// What a list says besides its items.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ListMeta<'a> {
    pub resource_version: &'a str,
    /// Where the next page begins.
    pub next: Option<&'a str>,
    /// How many objects follow this page.
    pub remaining: Option<i64>,
}

/// One object in its envelope.
pub fn encode(kind: ProtoKind, object: &Value) -> Vec<u8> {
    envelope(kind.api_version(), kind.kind(), &message(kind, object))
}

/// The object alone, as it stands in lists.
pub fn message(kind: ProtoKind, object: &Value) -> Vec<u8> {
    schema::message(kind.fields(), object)
}

pub fn encode_list(kind: ProtoKind, items: &[&Value], meta: ListMeta<'_>) -> Vec<u8> {
    let list = Message::default().bytes(1, &list_meta(meta));
    let list = items.iter().fold(list, |list, item| list.bytes(2, &message(kind, item)));
    envelope(kind.api_version(), &format!("{}List", kind.kind()), &list.0)
}

/// What stands before a message of `length` bytes in its envelope; [`ENVELOPE_TAIL`] ends it. For those
/// who render messages themselves.
pub fn start(kind: ProtoKind, length: usize) -> Vec<u8> {
    start_of(kind.api_version(), kind.kind(), length)
}

/// What stands before the items of a list whose items, each as [`list_item`] begins it, have `items`
/// bytes in all; [`ENVELOPE_TAIL`] ends it. For lists too large to be held in one piece.
pub fn list_start(kind: ProtoKind, meta: ListMeta<'_>, items: usize) -> Vec<u8> {
    let list = Message::default().bytes(1, &list_meta(meta)).0;
    let start = start_of(kind.api_version(), &format!("{}List", kind.kind()), list.len() + items);
    [start, list].concat()
}

fn start_of(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let types = Message::default().text(1, api_version).text(2, kind).0;
    Message(MAGIC.to_vec()).bytes(1, &types).key(2).varint(length as u64).0
}

/// An object of a list, begun: the key and the length that stand before its `length` bytes.
pub fn list_item(length: usize) -> Message {
    Message::default().key(2).varint(length as u64)
}

/// Empty encoding and content type, which end every envelope.
pub const ENVELOPE_TAIL: &[u8] = &[0x1a, 0, 0x22, 0];

/// A `v1.Status`: errors, and what a watch sends as ERROR.
pub fn encode_status(status: &Value) -> Vec<u8> {
    envelope("v1", "Status", &schema::message(STATUS, status))
}

/// An event of a watch asked for as `application/vnd.kubernetes.protobuf;stream=watch`, with the length
/// of four bytes before it. `object` is in its envelope, the event itself has none.
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let raw = Message::default().key(1).varint(object.len() as u64).0;
    let event = Message::default().text(1, event_type).key(2).varint((raw.len() + object.len()) as u64).0;
    let length = event.len() + raw.len() + object.len();
    let length = u32::try_from(length).expect("an object is far below 4 GiB").to_be_bytes();
    [&length[..], &event, &raw, object].concat()
}

fn list_meta(meta: ListMeta<'_>) -> Vec<u8> {
    let mut value = serde_json::json!({ "resourceVersion": meta.resource_version });
    if let Some(next) = meta.next {
        value["continue"] = next.into();
    }
    if let Some(remaining) = meta.remaining {
        value["remainingItemCount"] = remaining.into();
    }
    schema::message(LIST_META, &value)
}

fn envelope(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    [&start_of(api_version, kind, object.len()), object, ENVELOPE_TAIL].concat()
}

#[cfg(test)]
mod tests;
