//! The wire format: fields with a number and a varint or bytes.

use std::str;

use crate::list_watch::Malformed;

pub(super) struct Fields<'a>(pub &'a [u8]);

pub(super) struct Field<'a> {
    pub number: u64,
    /// Of a number.
    pub integer: u64,
    /// Of text, bytes and messages.
    pub bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn next(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.read().map(Some).ok_or_else(|| Malformed("its protobuf is cut short or broken".to_owned()))
    }

    fn read(&mut self) -> Option<Field<'a>> {
        let key = integer(&mut self.0)?;
        let (integer, length) = match key & 7 {
            0 => (integer(&mut self.0)?, 0),
            1 => (0, 8),
            2 => (0, integer(&mut self.0)?),
            5 => (0, 4),
            // Groups are not used by Kubernetes.
            _ => return None,
        };
        let (bytes, rest) = self.0.split_at_checked(length.try_into().ok()?)?;
        self.0 = rest;
        Some(Field { number: key >> 3, integer, bytes })
    }
}

/// A varint: seven bits a byte, lowest first.
pub(super) fn integer(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << (7 * place);
        if byte < 128 {
            return Some(value);
        }
    }
    None
}

/// The first field of that number; empty when there is none, which is also what absence means.
pub(super) fn get(bytes: &[u8], number: u64) -> Result<&[u8], Malformed> {
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        if field.number == number {
            return Ok(field.bytes);
        }
    }
    Ok(&[])
}

/// Fields 1 and 2 in one walk: an entry of a map, or the head of a condition.
pub(super) fn entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut first, mut second) = (&[][..], &[][..]);
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field.number {
            1 => first = field.bytes,
            2 => second = field.bytes,
            _ => {}
        }
    }
    Ok((first, second))
}

pub(super) fn pair(bytes: &[u8]) -> Result<(&str, &str), Malformed> {
    let (key, value) = entry(bytes)?;
    Ok((text(key)?, text(value)?))
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    str::from_utf8(bytes).map_err(|_| Malformed("it holds text that is not UTF-8".to_owned()))
}

pub(super) fn version(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}
