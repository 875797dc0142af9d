//! What expressions work on.

use std::{cmp::Ordering, collections::BTreeMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use super::library::{
    formats::Format,
    net::{Cidr, Ip},
    urls::Url,
};
use fedq_values::quantity::Quantity;

#[derive(Clone, Debug)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(Arc<Vec<Value>>),
    Map(Arc<Map>),
    Timestamp(Timestamp),
    Duration(SignedDuration),
    Type(Arc<str>),
    Optional(Option<Arc<Value>>),
    Quantity(Quantity),
    Semver(Arc<semver::Version>),
    Ip(Ip),
    Cidr(Cidr),
    Url(Arc<Url>),
    Format(Format),
}

pub type Map = BTreeMap<Key, Value>;

/// What a map is keyed by. Whole numbers are one key whatever type they were written as.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl Value {
    pub fn text(text: &str) -> Self {
        Self::String(text.into())
    }

    pub fn list(items: Vec<Self>) -> Self {
        Self::List(Arc::new(items))
    }

    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    pub fn as_text(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Ip(_) => "net.IP",
            Self::Cidr(_) => "net.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Format(_) => "kubernetes.NamedFormat",
        }
    }

    /// How much there is to traverse, as cel-go counts it.
    pub fn size(&self) -> u64 {
        let size = match self {
            Self::String(text) => text.chars().count(),
            Self::Bytes(bytes) => bytes.len(),
            Self::List(items) => items.len(),
            Self::Map(entries) => entries.len(),
            Self::Optional(Some(value)) => return value.size(),
            Self::Ip(ip) => ip.byte_length(),
            Self::Cidr(cidr) => cidr.byte_length(),
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Double(_)
            | Self::Timestamp(_)
            | Self::Duration(_)
            | Self::Type(_)
            | Self::Optional(None)
            | Self::Quantity(_)
            | Self::Semver(_)
            | Self::Url(_)
            | Self::Format(_) => 1,
        };
        size as u64
    }

    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Bool(value) => Some(Key::Bool(*value)),
            Self::Int(value) => Some(Key::Int(*value)),
            Self::Uint(value) => Some(i64::try_from(*value).map_or(Key::Uint(*value), Key::Int)),
            Self::Double(value) => whole(*value).map(Key::Int),
            Self::String(value) => Some(Key::String(value.clone())),
            Self::Null
            | Self::Bytes(_)
            | Self::List(_)
            | Self::Map(_)
            | Self::Timestamp(_)
            | Self::Duration(_)
            | Self::Type(_)
            | Self::Optional(_)
            | Self::Quantity(_)
            | Self::Semver(_)
            | Self::Ip(_)
            | Self::Cidr(_)
            | Self::Url(_)
            | Self::Format(_) => None,
        }
    }

    /// Less, equal or greater, where both are of an ordered kind. Numbers compare by value.
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => Some(a.cmp(b)),
            (Self::String(a), Self::String(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            (Self::Timestamp(a), Self::Timestamp(b)) => Some(a.cmp(b)),
            (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            _ => self.order_of_numbers(other),
        }
    }

    fn order_of_numbers(&self, other: &Self) -> Option<Ordering> {
        let integer = |value: &Self| match value {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Uint(value) => Some(i128::from(*value)),
            _ => None,
        };
        match (integer(self), integer(other), self, other) {
            (Some(a), Some(b), ..) => Some(a.cmp(&b)),
            (_, _, Self::Double(a), Self::Double(b)) => a.partial_cmp(b),
            (Some(a), _, _, Self::Double(b)) => order_with_double(a, *b),
            (_, Some(b), Self::Double(a), _) => order_with_double(b, *a).map(Ordering::reverse),
            _ => None,
        }
    }
}

/// Kinds that differ are unequal, apart from numbers; never an error.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::List(a), Self::List(b)) => a == b,
            (Self::Map(a), Self::Map(b)) => a == b,
            (Self::Type(a), Self::Type(b)) => a == b,
            (Self::Optional(a), Self::Optional(b)) => a == b,
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.cmp_precedence(b).is_eq(),
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Format(a), Self::Format(b)) => a == b,
            _ => self.order(other) == Some(Ordering::Equal),
        }
    }
}

impl Key {
    pub fn value(&self) -> Value {
        match self {
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Uint(value) => Value::Uint(*value),
            Self::String(value) => Value::String(value.clone()),
        }
    }
}

/// JSON as it is: whole numbers are ints, all others doubles.
impl From<&serde_json::Value> for Value {
    fn from(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(*value),
            serde_json::Value::Number(number) => match number.as_i64() {
                Some(value) => Self::Int(value),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Self::text(text),
            serde_json::Value::Array(items) => Self::list(items.iter().map(Self::from).collect()),
            serde_json::Value::Object(fields) => {
                let entry = |(name, value): (&String, &serde_json::Value)| {
                    (Key::String(name.as_str().into()), Self::from(value))
                };
                Self::Map(Arc::new(fields.iter().map(entry).collect()))
            }
        }
    }
}

/// `2^63`, the first double that no int is.
const INT_END: f64 = 9_223_372_036_854_775_808.0;

/// The int that the double is, if it is one.
#[expect(clippy::cast_possible_truncation, reason = "it is in range and has no fraction")]
pub fn whole(value: f64) -> Option<i64> {
    let fits = value.fract() == 0.0 && (-INT_END..INT_END).contains(&value);
    fits.then_some(value as i64)
}

#[expect(clippy::cast_possible_truncation, reason = "doubles beyond i128 compare by their sign alone")]
fn order_with_double(a: i128, b: f64) -> Option<Ordering> {
    if b.is_nan() {
        return None;
    }
    let floor = b.floor();
    let below = a.cmp(&(floor as i128));
    Some(if below.is_eq() && floor < b { Ordering::Less } else { below })
}
