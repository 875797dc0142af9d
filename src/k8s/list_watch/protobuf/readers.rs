//! Lists and watches, taken apart as they arrive.

use std::str;

use super::wire::{Fields, entry, get, integer, text, version};
use crate::{
    client::{ApiError, give_back},
    list_watch::{Malformed, Skipped, body, events::Event},
};

/// Before every message: Kubernetes' own envelope (`runtime.Unknown`) follows.
pub(super) const MAGIC: &[u8] = b"k8s\0";
/// How much of an oversized object is looked at for its name.
const PREFIX: usize = 4 << 10;

/// The name at the head of an object of which only the beginning is there.
fn name_in_prefix(mut prefix: &[u8]) -> Option<String> {
    // metadata (1), then name (1): Kubernetes writes fields in order.
    for _ in 0..2 {
        if integer(&mut prefix)? != 0x0a {
            return None;
        }
        let length = usize::try_from(integer(&mut prefix)?).ok()?;
        prefix = &prefix[..length.min(prefix.len())];
    }
    str::from_utf8(prefix).ok().filter(|name| name.len() <= 253).map(str::to_owned)
}

fn too_large(name: Option<String>, bytes: u64) -> Skipped {
    Skipped { name, reason: format!("it has {bytes} bytes") }
}

/// Takes a list apart as it arrives.
pub(in crate::list_watch) struct ListReader {
    buffer: Vec<u8>,
    place: Place,
    skip: u64,
    version: u64,
    cap: usize,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Place {
    Start,
    Envelope,
    /// Inside the list, with so many bytes of it left: the only proof that it arrived whole.
    List(u64),
    Tail,
}

impl ListReader {
    pub(in crate::list_watch) fn new(cap: usize) -> Self {
        Self { buffer: Vec::new(), place: Place::Start, skip: 0, version: 0, cap }
    }

    pub(in crate::list_watch) fn feed(
        &mut self,
        data: &[u8],
        on: &mut impl FnMut(Result<&[u8], Skipped>),
    ) -> Result<(), ApiError> {
        let data = skip(&mut self.skip, data);
        self.buffer.extend_from_slice(data);
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = &buffer[..];
        if self.place == Place::Start && MAGIC.len() <= rest.len() {
            rest = rest.strip_prefix(MAGIC).ok_or_else(|| body::invalid("the list is not in protobuf"))?;
            self.place = Place::Envelope;
        }
        while self.place != Place::Start && self.step(&mut rest, on)? {}
        let used = buffer.len() - rest.len();
        self.buffer = buffer;
        self.buffer.drain(..used);
        give_back(&mut self.buffer);
        Ok(())
    }

    /// Bytes that are kept for what has not arrived whole.
    pub(in crate::list_watch) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Takes one field off `rest`; false when more has to arrive.
    fn step(
        &mut self,
        rest: &mut &[u8],
        on: &mut impl FnMut(Result<&[u8], Skipped>),
    ) -> Result<bool, ApiError> {
        let mut after = *rest;
        let (Some(key), Some(length)) = (integer(&mut after), integer(&mut after)) else {
            // A key and a length take 20 bytes at most.
            return if rest.len() < 20 { Ok(false) } else { Err(body::invalid("the list is broken")) };
        };
        // Unknown.raw: the list itself, stepped into.
        if self.place == Place::Envelope && key == 0x12 {
            self.place = Place::List(length).settled();
            *rest = after;
            return Ok(true);
        }
        // The envelope's other fields and the list's have lengths too.
        if key & 7 != 2 {
            return Err(body::invalid("the list is broken"));
        }
        if usize::try_from(length).map_or(true, |length| self.cap < length) {
            if after.len() < PREFIX {
                return Ok(false);
            }
            on(Err(too_large(name_in_prefix(&after[..PREFIX]), length)));
            self.skip = length;
            self.advance((rest.len() - after.len()) as u64 + length)?;
            *rest = skip(&mut self.skip, after);
            return Ok(true);
        }
        let Some((item, behind)) = usize::try_from(length).ok().and_then(|n| after.split_at_checked(n))
        else {
            return Ok(false);
        };
        let place = self.place;
        self.advance((rest.len() - behind.len()) as u64)?;
        *rest = behind;
        match (place, key) {
            (Place::List(_), 0x0a) => {
                let found = entry(item).ok().and_then(|(_, found)| version(found));
                self.version = found.ok_or_else(|| body::invalid("the list has no version"))?;
            }
            (Place::List(_), 0x12) => on(Ok(item)),
            _ => {}
        }
        Ok(true)
    }

    fn advance(&mut self, bytes: u64) -> Result<(), ApiError> {
        if let Place::List(left) = self.place {
            let left = left.checked_sub(bytes).ok_or_else(|| body::invalid("the list is broken"))?;
            self.place = Place::List(left).settled();
        }
        Ok(())
    }

    /// The version of the whole list.
    pub(in crate::list_watch) fn finish(self) -> Result<u64, ApiError> {
        if self.version == 0 || self.place != Place::Tail || self.skip != 0 {
            return Err(body::cut_short());
        }
        Ok(self.version)
    }
}

impl Place {
    fn settled(self) -> Self {
        if self == Self::List(0) { Self::Tail } else { self }
    }
}

/// What of `data` is behind the bytes still to be passed over.
fn skip<'a>(left: &mut u64, data: &'a [u8]) -> &'a [u8] {
    let passed = usize::try_from(*left).unwrap_or(usize::MAX).min(data.len());
    *left -= passed as u64;
    &data[passed..]
}

/// Takes a watch apart as it arrives: a length of four bytes, then a WatchEvent.
pub(in crate::list_watch) struct WatchReader {
    buffer: Vec<u8>,
    skip: u64,
    cap: usize,
}

impl WatchReader {
    pub(in crate::list_watch) fn new(cap: usize) -> Self {
        Self { buffer: Vec::new(), skip: 0, cap }
    }

    pub(in crate::list_watch) fn feed(&mut self, data: &[u8], on: &mut impl FnMut(Event<'_>)) {
        let data = skip(&mut self.skip, data);
        self.buffer.extend_from_slice(data);
        let mut rest = &self.buffer[..];
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length);
            if self.cap < length as usize {
                on(Event::Skipped(too_large(None, length.into())));
                self.skip = length.into();
                rest = skip(&mut self.skip, after);
                continue;
            }
            let Some((event, behind)) = after.split_at_checked(length as usize) else { break };
            rest = behind;
            on(event_of(event)
                .unwrap_or_else(|Malformed(reason)| Event::Skipped(Skipped { name: None, reason })));
        }
        let used = self.buffer.len() - rest.len();
        self.buffer.drain(..used);
        give_back(&mut self.buffer);
    }

    pub(in crate::list_watch) fn held(&self) -> usize {
        self.buffer.capacity()
    }

    /// Whether part of an event has come, and the rest has not.
    pub(in crate::list_watch) fn awaits_more(&self) -> bool {
        self.skip != 0 || !self.buffer.is_empty()
    }
}

fn event_of(event: &[u8]) -> Result<Event<'_>, Malformed> {
    let (kind, object) = entry(event)?;
    let envelope = get(object, 1)?.strip_prefix(MAGIC).unwrap_or_default();
    let object = get(envelope, 2)?;
    if kind == b"ERROR" {
        return status_of(object);
    }
    let version =
        version(get(get(object, 1)?, 6)?).ok_or_else(|| Malformed("it has no resourceVersion".to_owned()))?;
    Ok(Event::new(kind, version, object))
}

/// What a refusal says, which is in the notation that was asked for.
pub(in crate::list_watch) fn refusal(body: &[u8]) -> Option<&str> {
    let status = get(body.strip_prefix(MAGIC)?, 2).ok()?;
    text(get(status, 3).ok()?).ok()
}

/// A Status: 3 message, 4 reason, 6 code.
fn status_of(status: &[u8]) -> Result<Event<'static>, Malformed> {
    let (mut message, mut reason, mut code) = ("", "", 0);
    let mut fields = Fields(status);
    while let Some(field) = fields.next()? {
        match field.number {
            3 => message = text(field.bytes)?,
            4 => reason = text(field.bytes)?,
            6 => code = field.integer,
            _ => {}
        }
    }
    Ok(Event::error(code, reason, message))
}
