//! Lists, whole or as a stream of what changes. Both are made from the same rows.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Json,
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures::stream;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::{sync::watch, time::Instant};
use tracing::error;

use super::{Failure, State, held::Held};
use fedq_domain::{overview::Overview, resources::Aliases};
use fedq_wire::list::{Event, EventKind, List, ListQuery};

/// Rows of a list with the key that orders them.
pub type Rows<T> = fn(&Overview, &Aliases) -> Vec<(String, T)>;

/// What a stream shows, and when to look again.
pub trait Source: Send + 'static {
    type Row: Serialize;

    /// With keys that tell rows apart.
    fn rows(&mut self) -> impl Future<Output = Result<Vec<(String, Self::Row)>, Failure>> + Send;

    /// `false`: the daemon stops.
    fn changed(&mut self) -> impl Future<Output = bool> + Send;

    /// Whether a row that is not among those of the last look is there all the same, because only some are looked at.
    fn is_there(&self, _key: &str) -> impl Future<Output = Result<bool, Failure>> + Send {
        std::future::ready(Ok(false))
    }
}

struct OfOverview<T> {
    overview: watch::Receiver<Arc<Overview>>,
    aliases: Aliases,
    rows: Rows<T>,
}

impl<T: Serialize + 'static> Source for OfOverview<T> {
    type Row = T;

    async fn rows(&mut self) -> Result<Vec<(String, T)>, Failure> {
        let overview = self.overview.borrow_and_update().clone();
        Ok((self.rows)(&overview, &self.aliases))
    }

    async fn changed(&mut self) -> bool {
        self.overview.changed().await.is_ok()
    }
}

pub const DEFAULT_LIMIT: u32 = 500;
pub const MAX_LIMIT: u32 = 1000;
/// A stream ends after that long, and whoever follows asks anew.
pub const STREAM_TIME: Duration = Duration::from_mins(10);
pub const HEARTBEAT: Duration = Duration::from_secs(20);
/// Nobody reads faster, and a look may go through many rows: what changes meanwhile is sent as one.
const PACE: Duration = Duration::from_millis(500);

pub async fn list<T: Serialize + 'static>(
    state: &State,
    query: &ListQuery,
    headers: &HeaderMap,
    rows: Rows<T>,
) -> Result<Response, Failure> {
    if query.watch {
        let (overview, aliases) = (state.overview.clone(), state.aliases.clone());
        let held = Held::reader(state, headers).await?;
        return Ok(watch(OfOverview { overview, aliases, rows }, headers, held));
    }
    let rows = rows(&state.overview(), &state.aliases);
    Ok(Json(page(rows, query.limit, query.next.as_deref())?).into_response())
}

/// Of rows in the order of their keys, those behind the key that `next` is.
pub fn page<T>(rows: Vec<(String, T)>, limit: u32, next: Option<&str>) -> Result<List<T>, Failure> {
    let after = next.unwrap_or_default();
    if 1024 < after.len() || after.chars().any(char::is_control) {
        return Err(Failure::bad_request("`continue` is not one this server gave"));
    }
    let limit = self::limit(limit);
    let mut rows: Vec<_> = rows.into_iter().filter(|(key, _)| after < key.as_str()).take(limit + 1).collect();
    let more = limit < rows.len();
    rows.truncate(limit);
    let next = if more { rows.last().map(|(key, _)| key.clone()) } else { None };
    Ok(List { items: rows.into_iter().map(|(_, row)| row).collect(), next })
}

/// How many items a page has, of whom so many are asked for.
pub fn limit(asked: u32) -> usize {
    let limit = if asked == 0 { DEFAULT_LIMIT } else { asked.min(MAX_LIMIT) };
    limit as usize
}

/// How a stream is cut.
#[derive(Clone, Copy)]
pub enum Framing {
    Lines,
    Events,
}

struct Watch<S> {
    source: S,
    framing: Framing,
    /// As it was written: of hundreds of rows for each of many callers, a tree of values would take several times that.
    sent: BTreeMap<String, Box<RawValue>>,
    begun: bool,
    until: Instant,
    looked: Instant,
}

pub fn watch<S: Source>(source: S, headers: &HeaderMap, held: Held) -> Response {
    let framing = Framing::asked_for(headers);
    let watch = Watch::new(source, framing);
    let body = Body::from_stream(stream::unfold(watch, |mut watch| async {
        let chunk = watch.next().await?;
        Some((Ok::<_, Infallible>(chunk), watch))
    }));
    framing.response(held.body(body))
}

impl Framing {
    pub fn asked_for(headers: &HeaderMap) -> Self {
        let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accepts.contains("text/event-stream") { Self::Events } else { Self::Lines }
    }

    pub fn response(self, body: Body) -> Response {
        let media = match self {
            Self::Lines => "application/x-ndjson",
            Self::Events => "text/event-stream",
        };
        let headers = [
            (header::CONTENT_TYPE, HeaderValue::from_static(media)),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        (headers, body).into_response()
    }

    /// Tells both ends that the other is there.
    pub fn heartbeat(self) -> Bytes {
        match self {
            Self::Lines => Bytes::from_static(b"\n"),
            Self::Events => Bytes::from_static(b":\n\n"),
        }
    }
}

impl<S: Source> Watch<S> {
    fn new(source: S, framing: Framing) -> Self {
        let now = Instant::now();
        Self { source, framing, sent: BTreeMap::new(), begun: false, until: now + STREAM_TIME, looked: now }
    }

    /// What to send next; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.begun {
            self.begun = true;
            let mut text = self.changes().await?;
            self.line(&mut text, EventKind::Synced, None);
            return Some(text.into());
        }
        loop {
            let now = Instant::now();
            if self.until <= now {
                return None;
            }
            let wait = HEARTBEAT.min(self.until - now);
            match tokio::time::timeout(wait, self.source.changed()).await {
                Ok(false) => return None,
                Err(_) => return Some(self.framing.heartbeat()),
                Ok(true) => {
                    tokio::time::sleep_until(self.looked + PACE).await;
                    let text = self.changes().await?;
                    if !text.is_empty() {
                        return Some(text.into());
                    }
                }
            }
        }
    }

    /// `None`: the rows cannot be read, which is logged; whoever follows asks again.
    async fn changes(&mut self) -> Option<String> {
        self.looked = Instant::now();
        let rows = self.source.rows().await.ok()?;
        let mut gone = std::mem::take(&mut self.sent);
        let mut text = String::new();
        for (key, row) in rows {
            let row = match to_raw_value(&row) {
                Ok(row) => row,
                Err(error) => {
                    error!(row = key, %error, "A row of a list cannot be written, so a stream of it ends");
                    return None;
                }
            };
            match gone.remove(&key) {
                None => self.line(&mut text, EventKind::Added, Some(&row)),
                Some(before) if is_news(&before, &row) => {
                    self.line(&mut text, EventKind::Modified, Some(&row));
                }
                Some(_) => {}
            }
            self.sent.insert(key, row);
        }
        for (key, row) in &gone {
            if !self.source.is_there(key).await.ok()? {
                self.line(&mut text, EventKind::Deleted, Some(row));
            }
        }
        Some(text)
    }

    fn line(&self, text: &mut String, kind: EventKind, object: Option<&RawValue>) {
        let event = serde_json::to_string(&Event { kind, object }).expect("what was written is JSON");
        match self.framing {
            Framing::Lines => text.extend([event.as_str(), "\n"]),
            Framing::Events => text.extend(["data: ", event.as_str(), "\n\n"]),
        }
    }
}

/// A cluster that answers was seen just now, whatever else is told of it: that alone would be an event for each cluster
/// every other second.
fn is_news(before: &RawValue, now: &RawValue) -> bool {
    lasting(before.get()) != lasting(now.get())
}

/// What a row says before and behind the time at which it was seen, where it has one.
fn lasting(row: &str) -> (&str, Option<&str>) {
    // Quotes in text are escaped, so this is the name of a field.
    match row.split_once("\"lastSeen\":\"") {
        Some((before, rest)) => (before, rest.split_once('"').map(|(_, behind)| behind)),
        None => (row, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Changes all the time.
    struct Busy {
        looks: u64,
    }

    impl Source for Busy {
        type Row = u64;

        async fn rows(&mut self) -> Result<Vec<(String, u64)>, Failure> {
            self.looks += 1;
            Ok(vec![("row".to_owned(), self.looks)])
        }

        async fn changed(&mut self) -> bool {
            true
        }
    }

    #[test]
    fn when_it_was_seen_is_all_that_may_change_without_news() {
        let row = |text: &str| {
            to_raw_value(&serde_json::from_str::<serde_json::Value>(text).expect("JSON")).expect("JSON")
        };
        let before = row(r#"{"name": "a", "lastSeen": "2026-01-01", "note": "\"lastSeen\":\"x"}"#);
        for (now, news) in [
            (r#"{"name": "a", "lastSeen": "2026-01-02", "note": "\"lastSeen\":\"x"}"#, false),
            (r#"{"name": "a", "lastSeen": "2026-01-01", "note": "\"lastSeen\":\"y"}"#, true),
            (r#"{"name": "b", "lastSeen": "2026-01-01", "note": "\"lastSeen\":\"x"}"#, true),
            (r#"{"name": "a", "note": "\"lastSeen\":\"x"}"#, true),
        ] {
            assert_eq!(is_news(&before, &row(now)), news, "{now}");
        }
    }

    #[tokio::test]
    async fn what_changes_all_the_time_is_looked_at_twice_a_second() {
        let mut watch = Watch::new(Busy { looks: 0 }, Framing::Lines);
        let began = Instant::now();
        for _ in 0..4 {
            let text = watch.next().await.expect("a line");
            assert!(text.ends_with(b"\n"));
        }
        assert!(PACE * 3 <= began.elapsed(), "{:?}", began.elapsed());
        assert_eq!(watch.source.looks, 4);
    }
}
