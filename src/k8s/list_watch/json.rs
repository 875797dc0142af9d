//! Lists and watches in JSON, for custom resources: borrowed, and each object read only by its sink.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Skipped, body, events::Event, table::full_name};
use crate::client::{ApiError, give_back};

/// A page from which the items were taken.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    #[serde(default, rename = "items")]
    _items: Option<[(); 0]>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    #[serde(default)]
    resource_version: Option<String>,
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

/// The end of a page.
pub(super) struct PageEnd {
    pub version: u64,
    /// Where the next page begins.
    pub next: Option<String>,
}

/// Takes one page of a list apart as it arrives: however many clusters list at a time, each kind holds one
/// object of its page.
pub(super) struct ListReader {
    cap: usize,
    /// The page without its items.
    frame: Vec<u8>,
    item: Vec<u8>,
    /// The item is larger than `cap`: only its end is looked for.
    skipping: bool,
    /// Objects and arrays that are open.
    depth: usize,
    text: Text,
    /// The last text of the page itself, which before an array is its key.
    key: Vec<u8>,
    in_items: bool,
}

enum Text {
    Outside,
    Inside,
    Escaped,
}

const ITEMS: &[u8] = b"items";
/// The page is at 1, its list at 2.
const OF_PAGE: usize = 1;
const OF_LIST: usize = 2;
/// Versions and tokens take less.
const FRAME: usize = 64 << 10;

impl ListReader {
    pub(super) fn new(cap: usize) -> Self {
        Self {
            cap,
            frame: Vec::new(),
            item: Vec::new(),
            skipping: false,
            depth: 0,
            text: Text::Outside,
            key: Vec::new(),
            in_items: false,
        }
    }

    pub(super) fn feed(
        &mut self,
        data: &[u8],
        on: &mut impl FnMut(Result<&[u8], Skipped>),
    ) -> Result<(), ApiError> {
        for byte in data {
            let before = self.depth;
            // Between the objects are commas, and perhaps what is no object: neither is kept.
            self.step(*byte)?;
            if self.in_items && (OF_LIST < before || OF_LIST < self.depth) {
                if !self.skipping {
                    self.item.push(*byte);
                }
                if self.depth == OF_LIST {
                    self.hand_out(on);
                } else if self.cap < self.item.len() {
                    self.pass_over(on);
                }
            } else if !self.in_items || before != OF_LIST {
                self.frame.push(*byte);
                if FRAME < self.frame.len() {
                    return Err(body::invalid("the list cannot be read"));
                }
            }
        }
        Ok(())
    }

    /// Bytes that are kept for what has not arrived whole.
    pub(super) fn held(&self) -> usize {
        self.item.capacity() + self.frame.capacity()
    }

    pub(super) fn finish(self) -> Result<PageEnd, ApiError> {
        let page: Page =
            serde_json::from_slice(&self.frame).map_err(|_| body::invalid("the list cannot be read"))?;
        let version = page.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let version = version.ok_or_else(|| body::invalid("the list has no version"))?;
        Ok(PageEnd { version, next: page.metadata.next.filter(|next| !next.is_empty()) })
    }

    fn step(&mut self, byte: u8) -> Result<(), ApiError> {
        match (&self.text, byte) {
            (Text::Escaped, _) => self.text = Text::Inside,
            (Text::Inside, b'\\') => self.text = Text::Escaped,
            (Text::Inside, b'"') => self.text = Text::Outside,
            (Text::Inside, _) => {
                if self.depth == OF_PAGE && self.key.len() <= ITEMS.len() {
                    self.key.push(byte);
                }
            }
            (Text::Outside, b'"') => {
                self.text = Text::Inside;
                if self.depth == OF_PAGE {
                    self.key.clear();
                }
            }
            (Text::Outside, b'{' | b'[') => {
                self.in_items |= byte == b'[' && self.depth == OF_PAGE && self.key == ITEMS;
                self.depth += 1;
            }
            (Text::Outside, b'}' | b']') => {
                let open = self.depth.checked_sub(1);
                self.depth = open.ok_or_else(|| body::invalid("the list cannot be read"))?;
                self.in_items &= OF_LIST <= self.depth;
            }
            (Text::Outside, _) => {}
        }
        Ok(())
    }

    fn hand_out(&mut self, on: &mut impl FnMut(Result<&[u8], Skipped>)) {
        if self.cap < self.item.len() {
            self.pass_over(on);
        }
        if !std::mem::take(&mut self.skipping) {
            on(Ok(&self.item));
        }
        self.item.clear();
        give_back(&mut self.item);
    }

    fn pass_over(&mut self, on: &mut impl FnMut(Result<&[u8], Skipped>)) {
        self.skipping = true;
        on(Err(too_large(&self.item, self.item.len())));
        self.item = Vec::new();
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: HeadMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadMeta<'a> {
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    resource_version: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Status<'a> {
    #[serde(default)]
    code: u64,
    #[serde(borrow, default)]
    reason: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
}

/// Takes a watch apart as it arrives: an event a line.
pub(super) struct WatchReader {
    buffer: Vec<u8>,
    /// How far the buffer was searched for a line's end.
    searched: usize,
    skipping: bool,
    cap: usize,
}

impl WatchReader {
    pub(super) fn new(cap: usize) -> Self {
        Self { buffer: Vec::new(), searched: 0, skipping: false, cap }
    }

    pub(super) fn feed(&mut self, data: &[u8], on: &mut impl FnMut(Event<'_>)) {
        let mut data = data;
        if self.skipping {
            let Some(end) = data.iter().position(|byte| *byte == b'\n') else { return };
            data = &data[end + 1..];
            self.skipping = false;
        }
        self.buffer.extend_from_slice(data);
        let mut start = 0;
        while let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + end;
            let line = &self.buffer[start..end];
            if !line.trim_ascii().is_empty() {
                on(if self.cap < line.len() {
                    Event::Skipped(too_large(line, line.len()))
                } else {
                    event_of(line)
                });
            }
            start = end + 1;
            self.searched = start;
        }
        self.buffer.drain(..start);
        if self.cap < self.buffer.len() {
            // Only the end of it is looked for.
            self.skipping = true;
            on(Event::Skipped(too_large(&self.buffer, self.buffer.len())));
            self.buffer.clear();
        }
        give_back(&mut self.buffer);
        self.searched = self.buffer.len();
    }

    pub(super) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Whether part of an event has come, and the rest has not.
    pub(super) fn awaits_more(&self) -> bool {
        self.skipping || !self.buffer.is_empty()
    }
}

fn event_of(line: &[u8]) -> Event<'_> {
    let skipped = |name, reason: &str| Event::Skipped(Skipped { name, reason: reason.to_owned() });
    let Ok(Line { kind, object }) = serde_json::from_slice(line) else {
        return skipped(None, "an event cannot be read");
    };
    let object = object.get().as_bytes();
    // First: a Status has a `status` that is text, and no version.
    if kind == "ERROR" {
        return match serde_json::from_slice::<Status<'_>>(object) {
            Ok(status) => Event::error(status.code, &status.reason, &status.message),
            Err(_) => Event::error(500, "", "the watch failed and does not say why"),
        };
    }
    let Ok(Head { metadata }) = serde_json::from_slice::<Head<'_>>(object) else {
        return skipped(None, "its metadata cannot be read");
    };
    match metadata.resource_version.as_ref().and_then(|version| version.parse().ok()) {
        Some(version) => Event::new(kind.as_bytes(), version, object),
        None => skipped(metadata.full_name(), "it has no resourceVersion"),
    }
}

impl HeadMeta<'_> {
    fn full_name(&self) -> Option<String> {
        self.name.as_ref().map(|name| full_name(self.namespace.as_deref(), name))
    }
}

/// The name of an object that a sink could not read.
pub(super) fn name(object: &[u8]) -> Option<String> {
    serde_json::from_slice::<Head<'_>>(object).ok()?.metadata.full_name()
}

/// The object may be cut off, so its name is looked for where Kubernetes writes it: at the head of the
/// metadata.
fn too_large(object: &[u8], bytes: usize) -> Skipped {
    /// Longer than any name and namespace.
    const HEAD: usize = 1 << 10;
    let find = |within: &[u8], key: &[u8]| -> Option<String> {
        let start = within.windows(key.len()).position(|window| window == key)? + key.len();
        let value = within[start..].split(|byte| *byte == b'"').next()?;
        std::str::from_utf8(value).ok().map(str::to_owned)
    };
    let metadata = br#""metadata":{"#;
    let head = object
        .windows(metadata.len())
        .position(|window| window == metadata)
        .map(|start| &object[start..object.len().min(start + HEAD)]);
    let name = head.and_then(|head| {
        let namespace = find(head, br#""namespace":""#);
        find(head, br#""name":""#).map(|name| full_name(namespace.as_deref(), &name))
    });
    Skipped { name, reason: format!("it has {bytes} bytes or more") }
}

#[cfg(test)]
mod tests;
