//! Lists of tasks, whole or as a stream of what changes.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use serde_json::Value;
use tokio::sync::watch;

use super::show;
use crate::{Failure, State, audit, stream::Source};
use fedq_domain::task::{names::TaskId, view::TaskViews};
use fedq_store::{Cursor, PageRequest, TaskFilter, TaskRow};
use fedq_wire::task::{Task, TasksQuery};

/// What a stream goes by: more than a person looks at.
const FOLLOWED: u32 = 500;
pub const DEFAULT_LIMIT: u32 = 100;
pub const MAX_LIMIT: u32 = 10_000;
/// Read and sent at a time.
const PART: u32 = 100;

/// A page of any length, sent as it is read: thousands of tasks for many callers at once are never in memory together.
pub async fn page(state: State, filter: TaskFilter, query: &TasksQuery) -> Result<Response, Failure> {
    let left = match query.limit {
        0 => DEFAULT_LIMIT,
        asked => asked.min(MAX_LIMIT),
    };
    let PageRequest { after, .. } = audit::page(0, query.next.as_deref())?;
    let mut sending = Sending { state, filter, after, left, sent: 0 };
    // What cannot be read at all is told as an error.
    let first = sending.part().await?;
    let rest = stream::unfold(Some(sending), |sending| async {
        let mut sending = sending.filter(|sending| !sending.is_over())?;
        match sending.part().await {
            Ok(part) => Some((Ok(part), Some(sending))),
            // It is logged; a body that breaks off is no JSON, so nobody takes it for all.
            Err(failure) => Some((Err(std::io::Error::other(failure.0.detail)), None)),
        }
    });
    // Who packs it asks once more behind the end.
    let body = Body::from_stream(stream::once(async { Ok(first) }).chain(rest).fuse());
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Where a page stands that is being sent.
struct Sending {
    state: State,
    filter: TaskFilter,
    after: Option<Cursor>,
    left: u32,
    sent: u32,
}

impl Sending {
    fn is_over(&self) -> bool {
        self.left == 0
    }

    /// The next tasks as a part of the page's JSON.
    async fn part(&mut self) -> Result<Bytes, Failure> {
        let asked = self.left.min(PART);
        let page = PageRequest { after: self.after.take(), limit: asked };
        let found = self.state.store.tasks(&self.filter, &page).await?;
        let views = self.state.task_views.borrow().clone();
        let mut text = Vec::from(if self.sent == 0 { &b"{\"items\":["[..] } else { b"" });
        for row in &found.items {
            if 0 < self.sent {
                text.push(b',');
            }
            let written = serde_json::to_writer(&mut text, &show::task(row, &views));
            written.map_err(|error| Failure::internal("the answer cannot be written", &error))?;
            self.sent += 1;
        }
        self.left = if found.next.is_some() { self.left - asked } else { 0 };
        if self.is_over() {
            let next = found.next.map(|next| format!(",\"continue\":{}", Value::from(next.to_string())));
            text.extend(format!("]{}}}", next.unwrap_or_default()).bytes());
        } else {
            self.after = found.next;
        }
        Ok(text.into())
    }
}

/// All of them, newest first.
pub async fn all(state: &State, filter: &TaskFilter) -> Result<Vec<TaskRow>, Failure> {
    let mut page = PageRequest::first(u32::MAX);
    let mut rows = Vec::new();
    loop {
        let found = state.store.tasks(filter, &page).await?;
        rows.extend(found.items);
        let Some(next) = found.next else { return Ok(rows) };
        page = PageRequest::after(next, u32::MAX);
    }
}

/// The newest tasks, looked at again whenever something is published.
pub struct Newest {
    pub state: State,
    pub filter: TaskFilter,
    pub views: watch::Receiver<Arc<TaskViews>>,
    /// There are more than were looked at.
    pub are_more: bool,
}

impl Source for Newest {
    type Row = Task;

    async fn rows(&mut self) -> Result<Vec<(String, Task)>, Failure> {
        let views = self.views.borrow_and_update().clone();
        let found = self.state.store.tasks(&self.filter, &PageRequest::first(FOLLOWED)).await?;
        self.are_more = found.next.is_some();
        Ok(found.items.iter().map(|row| (row.id.to_string(), show::task(row, &views))).collect())
    }

    async fn changed(&mut self) -> bool {
        self.views.changed().await.is_ok()
    }

    /// Newer ones push out what is older.
    async fn is_there(&self, id: &str) -> Result<bool, Failure> {
        let Some(id) = Some(id).filter(|_| self.are_more).and_then(TaskId::parse) else {
            return Ok(false);
        };
        let row = self.state.store.task(&id).await?;
        Ok(row.is_some_and(|row| self.filter.over.is_none_or(|over| over == row.state.phase.is_over())))
    }
}
