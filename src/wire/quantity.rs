//! Quantities as a person writes them: `500m`, `1000Gi`, and a bare `10`.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, de};
use utoipa::ToSchema;

/// Quantities by resource, under the short names that claims use (`gpu`).
pub type Quantities = BTreeMap<String, Quantity>;

/// The text of a quantity. It is kept as written, since the text decides whose edit it is.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, ToSchema)]
#[schema(example = "1000Gi")]
#[serde(transparent)]
pub struct Quantity(pub String);

impl From<String> for Quantity {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Quantity {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text)
    }
}

/// `cpu: 8` is as common as `cpu: "8"`, in YAML above all.
struct Text;

impl de::Visitor<'_> for Text {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as 500m, 4 or 2Gi")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        Ok(Quantity(text.to_owned()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        Ok(Quantity(number.to_string()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity(number.to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        Ok(Quantity(number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_numbers_and_as_text() {
        let read: Quantities =
            serde_json::from_str(r#"{"cpu":"500m","gpu":10,"memory":1.5}"#).expect("quantities");
        assert_eq!(read["cpu"].0, "500m");
        assert_eq!(read["gpu"].0, "10");
        assert_eq!(read["memory"].0, "1.5");
        assert!(serde_json::from_str::<Quantity>("true").is_err());
        assert!(serde_json::from_str::<Quantity>("null").is_err());
    }
}
