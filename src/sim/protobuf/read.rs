//! The wire format, read: what a client sends in protobuf, as the JSON that it would have sent instead.

use serde_json::{Map, Value, json};

use super::schema::{Field, Presence, Shape};
use super::{MAGIC, schema};

/// What is not protobuf of a kind that is known here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unreadable {
    Kind,
    Bytes,
}

/// An object in its envelope.
pub fn decode(bytes: &[u8]) -> Result<Value, Unreadable> {
    let envelope = fields(bytes.strip_prefix(MAGIC).ok_or(Unreadable::Bytes)?)?;
    let part = |parts: &[(u32, Wire<'_>)], number| {
        let part = parts.iter().rev().find(|(found, _)| *found == number);
        part.map_or(Ok(&[][..]), |(_, wire)| wire.bytes()).map(<[u8]>::to_vec)
    };
    let types = part(&envelope, 1)?;
    let types = fields(&types)?;
    let (api_version, kind) = (text(&part(&types, 1)?)?, text(&part(&types, 2)?)?);
    let known = schema::of(&api_version, &kind).ok_or(Unreadable::Kind)?;
    let mut object = json!({"apiVersion": api_version, "kind": kind});
    let said = message(known, &part(&envelope, 2)?)?;
    for (key, value) in said.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    Ok(object)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(&self) -> Result<&'a [u8], Unreadable> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Unreadable::Bytes),
        }
    }

    fn number(&self) -> Result<u64, Unreadable> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Bytes(_) => Err(Unreadable::Bytes),
        }
    }
}

fn fields(mut bytes: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, Unreadable> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = u32::try_from(key >> 3).map_err(|_| Unreadable::Bytes)?;
        let wire = match key & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| Unreadable::Bytes)?;
                let (part, rest) = bytes.split_at_checked(length).ok_or(Unreadable::Bytes)?;
                bytes = rest;
                Wire::Bytes(part)
            }
            _ => return Err(Unreadable::Bytes),
        };
        found.push((number, wire));
    }
    Ok(found)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Unreadable> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Unreadable::Bytes)?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            return Ok(value);
        }
    }
    Err(Unreadable::Bytes)
}

fn text(bytes: &[u8]) -> Result<String, Unreadable> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Unreadable::Bytes)
}

fn message(known: &[Field], bytes: &[u8]) -> Result<Value, Unreadable> {
    let mut object = Map::new();
    for (number, wire) in fields(bytes)? {
        // A field that came later than this table.
        let Some(field) = known.iter().find(|field| field.number == number) else { continue };
        let value = one(field.shape, &wire)?;
        match (field.presence, field.shape) {
            (Presence::Each, _) => {
                let items = object.entry(field.name).or_insert_with(|| json!([]));
                items.as_array_mut().ok_or(Unreadable::Bytes)?.push(value);
            }
            (_, Shape::Texts | Shape::Quantities | Shape::Blobs) => {
                let entries = object.entry(field.name).or_insert_with(|| json!({}));
                entries
                    .as_object_mut()
                    .ok_or(Unreadable::Bytes)?
                    .extend(value.as_object().cloned().unwrap_or_default());
            }
            // What is no pointer in Go is written when it is empty too, and left out of JSON then.
            (Presence::Always, _) if is_empty(&value) => {}
            (Presence::Always | Presence::Set, _) => {
                object.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(Value::Object(object))
}

fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(false))
        || value.as_str().is_some_and(str::is_empty)
        || value.as_i64() == Some(0)
}

fn one(shape: Shape, wire: &Wire<'_>) -> Result<Value, Unreadable> {
    Ok(match shape {
        Shape::Text => text(wire.bytes()?)?.into(),
        Shape::Integer => wire.number()?.cast_signed().into(),
        Shape::Flag => (wire.number()? != 0).into(),
        Shape::Time => time(wire.bytes()?)?,
        Shape::Json => {
            let raw = entry(wire.bytes()?)?.0;
            serde_json::from_slice(raw).map_err(|_| Unreadable::Bytes)?
        }
        Shape::Message(known) => message(known, wire.bytes()?)?,
        Shape::Texts => {
            let (key, value) = entry(wire.bytes()?)?;
            json!({(text(key)?): text(value)?})
        }
        Shape::Blobs => {
            let (key, value) = entry(wire.bytes()?)?;
            json!({(text(key)?): super::super::base64(value)})
        }
        Shape::Quantities => {
            let (key, value) = entry(wire.bytes()?)?;
            json!({(text(key)?): text(entry(value)?.0)?})
        }
    })
}

/// The fields 1 and 2.
fn entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Unreadable> {
    let mut entry = (&[][..], &[][..]);
    for (number, wire) in fields(bytes)? {
        match number {
            1 => entry.0 = wire.bytes()?,
            2 => entry.1 = wire.bytes()?,
            _ => {}
        }
    }
    Ok(entry)
}

fn time(bytes: &[u8]) -> Result<Value, Unreadable> {
    let seconds = fields(bytes)?.into_iter().find(|(number, _)| *number == 1);
    let Some((_, seconds)) = seconds else { return Ok(Value::Null) };
    let time =
        jiff::Timestamp::from_second(seconds.number()?.cast_signed()).map_err(|_| Unreadable::Bytes)?;
    Ok(time.to_string().into())
}
