//! Lists of tasks, whole or as a stream of what changes.

use std::sync::Arc;

use tokio::sync::watch;

use super::show;
use crate::{
    api::{Failure, State, audit, stream},
    domain::task::view::TaskViews,
    store::{PageRequest, TaskFilter, TaskRow},
    wire::{
        list::List,
        task::{Task, TasksQuery},
    },
};

/// What a stream goes by: more than a person looks at.
const FOLLOWED: u32 = 500;

pub async fn page(state: &State, filter: &TaskFilter, query: &TasksQuery) -> Result<List<Task>, Failure> {
    let page = audit::page(query.limit, query.next.as_deref())?;
    let found = state.store.tasks(filter, &page).await?;
    let views = state.task_views.borrow().clone();
    Ok(List {
        items: found.items.iter().map(|row| show::task(row, &views)).collect(),
        next: found.next.map(|next| next.to_string()),
    })
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
}

impl stream::Source for Newest {
    type Row = Task;

    async fn rows(&mut self) -> Result<Vec<(String, Task)>, Failure> {
        let views = self.views.borrow_and_update().clone();
        let found = self.state.store.tasks(&self.filter, &PageRequest::first(FOLLOWED)).await?;
        Ok(found.items.iter().map(|row| (row.id.to_string(), show::task(row, &views))).collect())
    }

    async fn changed(&mut self) -> bool {
        self.views.changed().await.is_ok()
    }
}
