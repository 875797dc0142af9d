//! Text of objects, as a terminal may have it.

use std::fmt::Write as _;

use fedq_values::age::human;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// One line, without what a terminal would obey.
pub fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "")
}

/// A text of an object, empty where it is not.
pub fn text(object: &Value, pointer: &str) -> String {
    line(object.pointer(pointer).and_then(Value::as_str).unwrap_or_default())
}

pub fn count(object: &Value, pointer: &str) -> u64 {
    object.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

pub fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    object.pointer(pointer)?.as_str()?.parse().ok()
}

/// How long ago; a time to come, as by a clock that is ahead, is now.
pub fn age(at: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(at).max(SignedDuration::ZERO))
}

/// `3 queues`, `1 queue`.
pub fn counted(number: usize, what: &str) -> String {
    let mut text = format!("{number} {what}");
    if number != 1 {
        let _ = text.write_char('s');
    }
    text
}
