//! Lists come in pages. A cursor is the key of the last row seen, so rows that appear or go between
//! two pages neither shift nor repeat the rest.

use std::{fmt, str::FromStr};

use super::StoreError;

/// Opaque to callers; goes into and comes out of URLs as text.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cursor(String);

/// Which part of a list.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PageRequest {
    pub after: Option<Cursor>,
    /// 0 means the default of 100; at most 1,000 are given.
    pub limit: u32,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<Cursor>,
}

impl PageRequest {
    pub const DEFAULT_LIMIT: u32 = 100;
    pub const MAX_LIMIT: u32 = 1000;

    pub fn first(limit: u32) -> Self {
        Self { after: None, limit }
    }

    pub fn after(cursor: Cursor, limit: u32) -> Self {
        Self { after: Some(cursor), limit }
    }

    pub(super) fn limit(&self) -> u32 {
        if self.limit == 0 { Self::DEFAULT_LIMIT } else { self.limit.min(Self::MAX_LIMIT) }
    }

    /// One more than asked for, to learn whether there is a next page.
    pub(super) fn probe(&self) -> i64 {
        i64::from(self.limit()) + 1
    }

    /// Start of a list by ascending text key.
    pub(super) fn after_text(&self) -> &str {
        self.after.as_ref().map_or("", |cursor| &cursor.0)
    }

    /// Start of a list with the oldest row first.
    pub(super) fn after_id(&self) -> Result<i64, StoreError> {
        self.id(0)
    }

    /// Start of a list with the newest row first.
    pub(super) fn before_id(&self) -> Result<i64, StoreError> {
        self.id(i64::MAX)
    }

    fn id(&self, first: i64) -> Result<i64, StoreError> {
        match &self.after {
            None => Ok(first),
            Some(cursor) => cursor.0.parse().map_err(|_| StoreError::Cursor(cursor.to_string())),
        }
    }
}

impl<T> Page<T> {
    /// From the rows of a query limited to [`PageRequest::probe`].
    pub(super) fn cut(mut items: Vec<T>, request: &PageRequest, key: impl Fn(&T) -> String) -> Self {
        let limit = request.limit() as usize;
        if items.len() <= limit {
            return Self { items, next: None };
        }
        items.truncate(limit);
        let next = items.last().map(|last| Cursor(key(last)));
        Self { items, next }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Cursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let legible = !text.is_empty() && text.len() <= 1024 && !text.chars().any(char::is_control);
        if legible {
            Ok(Self(text.to_owned()))
        } else {
            Err(StoreError::Cursor(text.escape_debug().take(80).collect()))
        }
    }
}
