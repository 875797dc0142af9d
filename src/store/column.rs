//! Columns to domain types. A value that does not parse was not written by fedq: an error, not a guess.

use std::{error::Error, str::FromStr};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Row, sqlite::SqliteRow};

use fedq_values::quantity::Amount;

pub(super) fn name<T>(row: &SqliteRow, column: &'static str) -> sqlx::Result<T>
where
    T: FromStr,
    T::Err: Error + Send + Sync + 'static,
{
    row.try_get::<&str, _>(column)?.parse().map_err(|error| undecodable(column, error))
}

pub(super) fn time(row: &SqliteRow, column: &'static str) -> sqlx::Result<Timestamp> {
    Timestamp::from_millisecond(row.try_get(column)?).map_err(|error| undecodable(column, error))
}

pub(super) fn optional_time(row: &SqliteRow, column: &'static str) -> sqlx::Result<Option<Timestamp>> {
    row.try_get::<Option<i64>, _>(column)?
        .map(|ms| Timestamp::from_millisecond(ms).map_err(|error| undecodable(column, error)))
        .transpose()
}

pub(super) fn amount(row: &SqliteRow, column: &'static str) -> sqlx::Result<Amount> {
    Ok(Amount::new(row.try_get(column)?))
}

pub(super) fn json<T: DeserializeOwned>(row: &SqliteRow, column: &'static str) -> sqlx::Result<T> {
    serde_json::from_str(row.try_get(column)?).map_err(|error| undecodable(column, error))
}

pub(super) fn optional_json<T: DeserializeOwned>(
    row: &SqliteRow,
    column: &'static str,
) -> sqlx::Result<Option<T>> {
    row.try_get::<Option<&str>, _>(column)?
        .map(|text| serde_json::from_str(text).map_err(|error| undecodable(column, error)))
        .transpose()
}

/// JSON text of a value whose maps have text keys, so that it cannot fail.
pub(super) fn json_text(value: &impl Serialize) -> sqlx::Result<String> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(Box::new(error)))
}

fn undecodable(column: &'static str, source: impl Error + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: Box::new(source) }
}
