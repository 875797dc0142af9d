//! Quantities as a person writes them: `500m`, `1000Gi`, and a bare `10`.

use std::{
    collections::BTreeMap,
    fmt,
    ops::{Deref, DerefMut},
};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Quantities by resource, under the short names that claims use (`gpu`).
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Quantities(pub BTreeMap<String, Quantity>);

impl Quantities {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Deref for Quantities {
    type Target = BTreeMap<String, Quantity>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Quantities {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl<'a> IntoIterator for &'a Quantities {
    type Item = (&'a String, &'a Quantity);
    type IntoIter = std::collections::btree_map::Iter<'a, String, Quantity>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<const N: usize> From<[(String, Quantity); N]> for Quantities {
    fn from(quantities: [(String, Quantity); N]) -> Self {
        quantities.into_iter().collect()
    }
}

impl FromIterator<(String, Quantity)> for Quantities {
    fn from_iter<I: IntoIterator<Item = (String, Quantity)>>(quantities: I) -> Self {
        Self(quantities.into_iter().collect())
    }
}

/// The text of a quantity. It is kept as written, since the text decides whose edit it is. The form is that of the CRD.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize, ToSchema)]
#[schema(
    example = "1000Gi",
    max_length = 32,
    pattern = r"^[+-]?[0-9]{1,19}(\.[0-9]{1,9})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$"
)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_text_and_in_yaml_numbers_too() {
        let read: Quantities =
            serde_saphyr::from_str("{cpu: 500m, gpu: 10, memory: 1.50}").expect("quantities");
        assert_eq!(read["cpu"].0, "500m");
        assert_eq!(read["gpu"].0, "10");
        assert_eq!(read["memory"].0, "1.50");
        for wrong in ["true", "null", "10"] {
            assert!(serde_json::from_str::<Quantity>(wrong).is_err(), "{wrong}");
        }
    }
}
