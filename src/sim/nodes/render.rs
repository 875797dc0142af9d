//! Bodies with holes: everything that all nodes share is copied, the rest is written over it.
//!
//! Every hole has a fixed width but the version's, whose length changes the length of the metadata, and
//! through it of everything around.

use jiff::Timestamp;
use serde_json::Value;

use super::{Encoding, State};
use crate::{
    draw::mix,
    protobuf::{self, Message, ProtoKind},
};

/// Stands for the version in a template's value.
pub(super) const VERSION: &str = "1357924680";

/// What a hole is filled with, and what stands for it in a template's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Cluster,
    Index,
    Octets,
    Instance,
    Uid,
    Machine,
    System,
    Boot,
    Born,
    Changed,
    Beat,
}

pub(super) const CLUSTER: &str = "CCCC";
pub(super) const INDEX: &str = "NNNNNN";
/// Two bytes of an address, of three digits each.
pub(super) const OCTETS: &str = "PPP.PPP";
pub(super) const INSTANCE: &str = "IIIIIIIIIIIIIIIIIII";
pub(super) const UID: &str = "UUUUUUUU-UUUU-UUUU-UUUU-UUUUUUUUUUUU";
pub(super) const MACHINE: &str = "MMMMMMMMMMMMMMMMMMMMMMMMMMMMMMMM";
pub(super) const SYSTEM: &str = "SSSSSSSS-SSSS-SSSS-SSSS-SSSSSSSSSSSS";
pub(super) const BOOT: &str = "BBBBBBBB-BBBB-BBBB-BBBB-BBBBBBBBBBBB";
const BORN_SECOND: u32 = 1_000_000_000;
pub(super) const BORN: &str = "2001-09-09T01:46:40Z";
const CHANGED_SECOND: u32 = 1_000_000_001;
pub(super) const CHANGED: &str = "2001-09-09T01:46:41Z";
const BEAT_SECOND: u32 = 1_000_000_002;
pub(super) const BEAT: &str = "2001-09-09T01:46:42Z";

const TEXTS: [(Kind, &str); 8] = [
    (Kind::Cluster, CLUSTER),
    (Kind::Index, INDEX),
    (Kind::Octets, OCTETS),
    (Kind::Instance, INSTANCE),
    (Kind::Uid, UID),
    (Kind::Machine, MACHINE),
    (Kind::System, SYSTEM),
    (Kind::Boot, BOOT),
];
const TIMES: [(Kind, &str, u32); 3] = [
    (Kind::Born, BORN, BORN_SECOND),
    (Kind::Changed, CHANGED, CHANGED_SECOND),
    (Kind::Beat, BEAT, BEAT_SECOND),
];

/// A body of one look in one encoding.
#[derive(Debug)]
pub(super) struct Body {
    encoding: Encoding,
    before_version: Vec<u8>,
    after_version: Vec<u8>,
    /// Bytes of a protobuf's metadata without the version and its length.
    metadata: usize,
    /// Where in the two halves together.
    holes: Vec<(usize, Kind)>,
}

impl Body {
    pub(super) fn new(encoding: Encoding, node: &Value) -> Self {
        let bytes = match encoding {
            Encoding::Json => node.to_string().into_bytes(),
            Encoding::Protobuf => protobuf::message(ProtoKind::Node, node),
        };
        let at = *places(&bytes, VERSION.as_bytes()).first().expect("a template has a version");
        let after_version = bytes[at + VERSION.len()..].to_vec();
        let (before_version, metadata) = match encoding {
            Encoding::Json => (bytes[..at].to_vec(), 0),
            Encoding::Protobuf => {
                // Its head, rendered anew each time, is a key and a length; so is the version's.
                let whole = protobuf::message(ProtoKind::PartialObjectMetadata, node).len();
                let metadata = (0..whole).find(|length| 1 + protobuf::varint_len(*length) + length == whole);
                let metadata = metadata.expect("metadata is a key, a length and so many bytes");
                (bytes[whole - metadata..at - 1].to_vec(), metadata - 1 - VERSION.len())
            }
        };
        let halves = [&before_version[..], &after_version].concat();
        let texts = TEXTS.iter().flat_map(|(kind, text)| holes(&halves, text.as_bytes(), *kind));
        let times = TIMES.iter().flat_map(|(kind, text, second)| match encoding {
            Encoding::Json => holes(&halves, text.as_bytes(), *kind),
            Encoding::Protobuf => holes(&halves, &varint(*second), *kind),
        });
        let holes = texts.chain(times).collect();
        Self { encoding, before_version, after_version, metadata, holes }
    }

    /// How many bytes [`Self::write`] adds, with a version of so many digits.
    pub(super) fn length(&self, digits: usize) -> usize {
        let halves = self.before_version.len() + self.after_version.len() + digits;
        match self.encoding {
            Encoding::Json => halves,
            Encoding::Protobuf => halves + 2 + protobuf::varint_len(self.metadata_length(digits)),
        }
    }

    fn metadata_length(&self, digits: usize) -> usize {
        self.metadata + 1 + digits
    }

    pub(super) fn write(&self, fill: &Fill, out: &mut Vec<u8>) {
        let digits = fill.digits();
        out.reserve(self.length(digits));
        if self.encoding == Encoding::Protobuf {
            let head = Message::default().key(1).varint(self.metadata_length(digits) as u64);
            out.extend_from_slice(&head.0);
        }
        let start = out.len();
        out.extend_from_slice(&self.before_version);
        if self.encoding == Encoding::Protobuf {
            out.push(u8::try_from(digits).expect("a version has at most 20 digits"));
        }
        out.extend_from_slice(fill.version.as_bytes());
        let shift = out.len() - start - self.before_version.len();
        out.extend_from_slice(&self.after_version);
        for (at, kind) in &self.holes {
            let at = start + if *at < self.before_version.len() { *at } else { at + shift };
            let text = fill.text(*kind, self.encoding);
            out[at..at + text.len()].copy_from_slice(text);
        }
    }
}

fn holes(bytes: &[u8], text: &[u8], kind: Kind) -> Vec<(usize, Kind)> {
    places(bytes, text).into_iter().map(|at| (at, kind)).collect()
}

fn places(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(text.len()).enumerate();
    windows.filter(|(_, window)| *window == text).map(|(at, _)| at).collect()
}

/// In five bytes whatever the value is: readers take an empty last one.
fn varint(second: u32) -> [u8; 5] {
    let seven = |place: u32| (second >> (7 * place) & 127).to_le_bytes()[0];
    [seven(0) | 128, seven(1) | 128, seven(2) | 128, seven(3) | 128, seven(4)]
}

/// What one body's holes are filled with.
pub(super) struct Fill {
    version: String,
    cluster: String,
    index: String,
    octets: String,
    instance: String,
    machine: String,
    uuids: [String; 3],
    times: [(String, [u8; 5]); 3],
}

impl Fill {
    pub(super) fn new(cluster: u16, i: usize, version: u64, state: &State) -> Self {
        // A node that came back is another object on another machine.
        let seed = mix(u64::from(cluster) << 32 | i as u64) ^ u64::from(state.born);
        let draw = |turn: u64| mix(seed ^ mix(turn));
        let digits = |turn: u64| format!("{:016x}{:016x}", draw(turn), draw(turn + 1));
        let time = |second: u32| {
            let time = Timestamp::from_second(second.into()).expect("32 bits of seconds are in range");
            (time.to_string(), varint(second))
        };
        Self {
            version: version.to_string(),
            cluster: format!("{cluster:04}"),
            index: format!("{i:06}"),
            octets: format!("{}.{}", 100 + i / 156 % 156, 100 + i % 156),
            instance: (1_000_000_000_000_000_000 + draw(0) % 8_000_000_000_000_000_000).to_string(),
            machine: digits(1),
            uuids: [3, 5, 7].map(|turn| uuid(&digits(turn))),
            times: [state.born, state.changed, state.beat].map(time),
        }
    }

    /// Of the version.
    pub(super) fn digits(&self) -> usize {
        self.version.len()
    }

    fn text(&self, kind: Kind, encoding: Encoding) -> &[u8] {
        let time = |place: usize| match encoding {
            Encoding::Json => self.times[place].0.as_bytes(),
            Encoding::Protobuf => &self.times[place].1[..],
        };
        match kind {
            Kind::Cluster => self.cluster.as_bytes(),
            Kind::Index => self.index.as_bytes(),
            Kind::Octets => self.octets.as_bytes(),
            Kind::Instance => self.instance.as_bytes(),
            Kind::Uid => self.uuids[0].as_bytes(),
            Kind::System => self.uuids[1].as_bytes(),
            Kind::Boot => self.uuids[2].as_bytes(),
            Kind::Machine => self.machine.as_bytes(),
            Kind::Born => time(0),
            Kind::Changed => time(1),
            Kind::Beat => time(2),
        }
    }
}

/// Of 32 hexadecimal digits, marked as a random one.
fn uuid(digits: &str) -> String {
    let (a, b, c, d) = (&digits[..8], &digits[8..12], &digits[13..16], &digits[17..20]);
    format!("{a}-{b}-4{c}-8{d}-{}", &digits[20..])
}
