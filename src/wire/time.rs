//! Times as the API writes them.

use std::{fmt, ops::Deref};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type},
};

/// A time in UTC, always with three decimals: `2026-08-01T09:30:00.000Z`. Texts of one length sort as the times do.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(transparent)]
pub struct Time(pub Timestamp);

impl From<Timestamp> for Time {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl Deref for Time {
    type Target = Timestamp;

    fn deref(&self) -> &Timestamp {
        &self.0
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .pattern(Some(r"^[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$"))
            .description(Some("In UTC, always with three decimals."))
            .examples(["2026-08-01T09:30:00.000Z"])
            .into()
    }
}

impl ToSchema for Time {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_one_precision() {
        for (read, written) in [
            ("2026-08-01T09:30:00Z", "2026-08-01T09:30:00.000Z"),
            ("2026-08-01T09:30:00.123456789Z", "2026-08-01T09:30:00.123Z"),
            ("2026-08-01T11:30:00.5+02:00", "2026-08-01T09:30:00.500Z"),
        ] {
            let time: Time = serde_json::from_value(read.into()).expect("a time");
            assert_eq!(serde_json::to_value(time).expect("text"), written);
        }
    }
}
