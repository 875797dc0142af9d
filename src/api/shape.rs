//! How large what a body holds may be: what the document says, and nothing beyond it is taken. What names and
//! quantities must look like is the domain's to judge, in its own words.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error, MapAccess, SeqAccess, Unexpected, Visitor},
};
use serde_json::Value;

/// What the document has of a value. What it leaves open may be anything.
#[derive(Debug, Default)]
pub enum Shape {
    #[default]
    Any,
    Text(Bounds),
    Number(Bounds),
    List(Bounds, Box<Self>),
    Object {
        size: Bounds,
        /// Of a key.
        name: Bounds,
        fields: BTreeMap<String, Self>,
        /// Of keys that are no fields.
        others: Box<Self>,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    least: u64,
    most: u64,
}

impl Shape {
    /// No schema of a request refers to itself.
    pub fn of(schema: &Value, document: &Value) -> Self {
        let schema = resolved(schema, document);
        let inner = |part: &Value| Box::new(Self::of(part, document));
        match kind(&schema) {
            Some("string") => Self::Text(Bounds::of(&schema, "minLength", "maxLength")),
            Some("integer") => Self::Number(Bounds::of(&schema, "minimum", "maximum")),
            Some("array") => Self::List(Bounds::of(&schema, "minItems", "maxItems"), inner(&schema["items"])),
            Some("object") => Self::Object {
                size: Bounds::of(&schema, "minProperties", "maxProperties"),
                name: Bounds::of(&schema["propertyNames"], "minLength", "maxLength"),
                fields: schema["properties"]
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, field)| (name.clone(), Self::of(field, document)))
                    .collect(),
                others: inner(&schema["additionalProperties"]),
            },
            _ => Self::Any,
        }
    }
}

/// What a schema refers to, with what stands beside the reference: that holds as well.
pub fn resolved(schema: &Value, document: &Value) -> Value {
    let Some(path) = schema["$ref"].as_str() else { return schema.clone() };
    let mut whole = document.pointer(path.trim_start_matches('#')).cloned().unwrap_or_default();
    let mut beside = schema.clone();
    if let Some(beside) = beside.as_object_mut() {
        beside.shift_remove("$ref");
    }
    merge(&mut whole, &beside);
    whole
}

/// Puts `more` into a schema, at any depth; where both say something of one thing, `more` does.
pub fn merge(schema: &mut Value, more: &Value) {
    let (Some(_), Some(fields)) = (schema.as_object(), more.as_object()) else {
        *schema = more.clone();
        return;
    };
    for (key, value) in fields {
        merge(&mut schema[key.as_str()], value);
    }
}

/// `null` beside it only says that a field may be left out.
fn kind(schema: &Value) -> Option<&str> {
    match &schema["type"] {
        Value::String(one) => Some(one),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ => None,
    }
}

impl Bounds {
    fn of(schema: &Value, least: &str, most: &str) -> Self {
        Self { least: schema[least].as_u64().unwrap_or(0), most: schema[most].as_u64().unwrap_or(u64::MAX) }
    }

    fn hold(self, number: u64) -> bool {
        (self.least..=self.most).contains(&number)
    }

    fn refuse<E: Error>(self, length: usize, what: &str) -> Result<(), E> {
        if u64::try_from(length).is_ok_and(|length| self.hold(length)) {
            return Ok(());
        }
        Err(E::invalid_length(length, &format!("{what} {self}").as_str()))
    }
}

/// After "must have" or "text of".
impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most } = self;
        match (least, most) {
            (0, most) => write!(f, "at most {most}"),
            (least, &u64::MAX) => write!(f, "at least {least}"),
            (least, most) => write!(f, "{least} to {most}"),
        }
    }
}

/// Goes through JSON of this shape. JSON lets a key stand twice, and readers differ in which one counts, so that is refused,
/// too.
#[derive(Clone, Copy)]
pub struct Look<'a>(pub &'a Shape);

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Where the kind is another one, whoever reads it for what it is will say so.
impl<'de> Visitor<'de> for Look<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        match self.0 {
            // Others are `u64`.
            Shape::Number(bounds) if number < 0 => Err(beyond(Unexpected::Signed(number), *bounds)),
            _ => Ok(()),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match self.0 {
            Shape::Number(bounds) if !bounds.hold(number) => {
                Err(beyond(Unexpected::Unsigned(number), *bounds))
            }
            _ => Ok(()),
        }
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match self.0 {
            Shape::Text(bounds) => bounds.refuse(text.chars().count(), "text with a length of"),
            _ => Ok(()),
        }
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if matches!(self.0, Shape::Object { .. }) {
            // Whoever reads it would take the items for the fields, in their order.
            return Err(A::Error::invalid_type(Unexpected::Seq, &"a map"));
        }
        let (bounds, item) = match self.0 {
            Shape::List(bounds, item) => (Some(bounds), &**item),
            _ => (None, &Shape::Any),
        };
        let mut count = 0;
        while items.next_element_seed(Look(item))?.is_some() {
            count += 1;
        }
        bounds.map_or(Ok(()), |bounds| bounds.refuse(count, "a list whose number of items is"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(A::Error::custom(format_args!("duplicate field `{key}`")));
            }
            let value = match self.0 {
                Shape::Object { name, fields, others, .. } => {
                    let field = fields.get(&key);
                    if field.is_none() {
                        name.refuse(key.chars().count(), "an object with keys whose length is")?;
                    }
                    field.unwrap_or(others)
                }
                _ => &Shape::Any,
            };
            keys.insert(key);
            entries.next_value_seed(Look(value))?;
        }
        match self.0 {
            Shape::Object { size, .. } => size.refuse(keys.len(), "an object whose number of fields is"),
            _ => Ok(()),
        }
    }
}

fn beyond<E: Error>(number: Unexpected<'_>, bounds: Bounds) -> E {
    E::invalid_value(number, &format!("a whole number, {bounds}").as_str())
}
