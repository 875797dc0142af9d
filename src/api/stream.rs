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
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{Failure, State};
use crate::{
    domain::{overview::Overview, resources::Aliases},
    wire::list::{EventKind, List, ListQuery},
};

/// Rows of a list with the key that orders them.
pub type Rows<T> = fn(&Overview, &Aliases) -> Vec<(String, T)>;

const DEFAULT_LIMIT: usize = 500;
const MAX_LIMIT: usize = 1000;
/// A stream ends after that long: whoever lost the right to read is asked again.
const STREAM_TIME: Duration = Duration::from_mins(10);
/// An empty line tells both ends that the other is there.
const HEARTBEAT: Duration = Duration::from_secs(20);

pub fn list<T: Serialize + 'static>(
    state: &State,
    query: &ListQuery,
    headers: &HeaderMap,
    rows: Rows<T>,
) -> Result<Response, Failure> {
    if query.watch {
        return Ok(watch(state, headers, rows));
    }
    let rows = rows(&state.overview(), &state.aliases);
    Ok(Json(page(rows, query)?).into_response())
}

fn page<T>(rows: Vec<(String, T)>, query: &ListQuery) -> Result<List<T>, Failure> {
    let after = query.next.as_deref().unwrap_or_default();
    if 1024 < after.len() || after.chars().any(char::is_control) {
        return Err(Failure::bad_request("`continue` is not one this server gave"));
    }
    let limit = match query.limit {
        0 => DEFAULT_LIMIT,
        limit => MAX_LIMIT.min(limit as usize),
    };
    let mut rows: Vec<_> = rows.into_iter().filter(|(key, _)| after < key.as_str()).take(limit + 1).collect();
    let more = limit < rows.len();
    rows.truncate(limit);
    let next = if more { rows.last().map(|(key, _)| key.clone()) } else { None };
    Ok(List { items: rows.into_iter().map(|(_, row)| row).collect(), next })
}

#[derive(Clone, Copy)]
enum Framing {
    Lines,
    Events,
}

struct Watch<T> {
    overview: watch::Receiver<Arc<Overview>>,
    aliases: Aliases,
    rows: Rows<T>,
    framing: Framing,
    sent: BTreeMap<String, Value>,
    begun: bool,
    until: Instant,
}

fn watch<T: Serialize + 'static>(state: &State, headers: &HeaderMap, rows: Rows<T>) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (framing, media) = if accepts.contains("text/event-stream") {
        (Framing::Events, "text/event-stream")
    } else {
        (Framing::Lines, "application/x-ndjson")
    };
    let watch = Watch {
        overview: state.overview.clone(),
        aliases: state.aliases.clone(),
        rows,
        framing,
        sent: BTreeMap::new(),
        begun: false,
        until: Instant::now() + STREAM_TIME,
    };
    let body = Body::from_stream(stream::unfold(watch, |mut watch| async {
        let chunk = watch.next().await?;
        Some((Ok::<_, Infallible>(chunk), watch))
    }));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, body).into_response()
}

impl<T: Serialize> Watch<T> {
    /// What to send next; `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if !self.begun {
            self.begun = true;
            let mut text = self.changes();
            self.line(&mut text, EventKind::Synced, &Value::Null);
            return Some(text.into());
        }
        loop {
            let now = Instant::now();
            if self.until <= now {
                return None;
            }
            let wait = HEARTBEAT.min(self.until - now);
            match tokio::time::timeout(wait, self.overview.changed()).await {
                // The daemon stops.
                Ok(Err(_)) => return None,
                Err(_) => return Some(self.heartbeat()),
                Ok(Ok(())) => {
                    let text = self.changes();
                    if !text.is_empty() {
                        return Some(text.into());
                    }
                }
            }
        }
    }

    fn changes(&mut self) -> String {
        let overview = self.overview.borrow_and_update().clone();
        let mut gone = std::mem::take(&mut self.sent);
        let mut text = String::new();
        for (key, row) in (self.rows)(&overview, &self.aliases) {
            let row = serde_json::to_value(row).unwrap_or_default();
            match gone.remove(&key) {
                None => self.line(&mut text, EventKind::Added, &row),
                Some(before) if before != row => self.line(&mut text, EventKind::Modified, &row),
                Some(_) => {}
            }
            self.sent.insert(key, row);
        }
        for row in gone.values() {
            self.line(&mut text, EventKind::Deleted, row);
        }
        text
    }

    fn line(&self, text: &mut String, kind: EventKind, object: &Value) {
        let event = json!({"type": kind, "object": object}).to_string();
        match self.framing {
            Framing::Lines => text.extend([event.as_str(), "\n"]),
            Framing::Events => text.extend(["data: ", event.as_str(), "\n\n"]),
        }
    }

    fn heartbeat(&self) -> Bytes {
        match self.framing {
            Framing::Lines => Bytes::from_static(b"\n"),
            Framing::Events => Bytes::from_static(b":\n\n"),
        }
    }
}
