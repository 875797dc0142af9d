//! Objects of one kind in one cluster, and how fresh they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::{news::News, shown::text};

/// Namespace, empty for what has none, and name.
pub type Key = (Arc<str>, Arc<str>);

pub struct Table<R> {
    pub rows: BTreeMap<Key, R>,
    /// While a list is being told: what was told of it.
    coming: Option<BTreeMap<Key, R>>,
    pub link: Link,
    read: fn(&Value) -> R,
}

/// Whether what is known is what there is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Link {
    /// Everything was told at least once.
    pub complete: bool,
    /// Since when changes are missed.
    pub trouble: Option<Trouble>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trouble {
    pub since: Timestamp,
    pub reason: String,
    /// When it is asked for again.
    pub again: Timestamp,
}

impl<R> Table<R> {
    pub fn new(read: fn(&Value) -> R) -> Self {
        Self { rows: BTreeMap::new(), coming: None, link: Link::default(), read }
    }

    pub fn take(&mut self, news: News, now: Timestamp) {
        match news {
            News::Begin => self.coming = Some(BTreeMap::new()),
            News::Object(object) => {
                let row = (self.read)(&object);
                self.coming.as_mut().unwrap_or(&mut self.rows).insert(key(&object), row);
            }
            News::Gone(object) => {
                self.coming.as_mut().unwrap_or(&mut self.rows).remove(&key(&object));
            }
            News::Complete => {
                if let Some(rows) = self.coming.take() {
                    self.rows = rows;
                }
                self.link = Link { complete: true, trouble: None };
            }
            News::Followed => self.link.trouble = None,
            News::Broken { reason, again } => {
                self.coming = None;
                let since = self.link.trouble.take().map_or(now, |trouble| trouble.since);
                let again = now.checked_add(again).unwrap_or(now);
                self.link.trouble = Some(Trouble { since, reason, again });
            }
        }
    }
}

pub fn key(object: &Value) -> Key {
    (text(object, "/metadata/namespace").into(), text(object, "/metadata/name").into())
}
