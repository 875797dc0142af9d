//! Tasks and what happened to them. A move is a compare-and-set on the state it starts from, and its event is
//! in the same commit, so that history and state never disagree.

use std::collections::BTreeSet;

use futures::FutureExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::{
    Row,
    sqlite::{SqliteConnection, SqliteExecutor, SqliteRow},
};

use self::{left_behind::leave, pipeline::follow_up};
use super::{AuditEntry, Page, PageRequest, Store, StoreError, audit, column, error::reading, uploads};
use fedq_domain::task::{
    choose::Placement,
    event::{Event, Reason},
    limits::Taken,
    names::TaskId,
    phase::{Move, Phase, State},
    pipeline::Stage,
    record::NodeCounts,
    render::Gang,
    spec::TaskSpec,
    upload::Digest,
};
use fedq_values::ids::ClusterName;

mod left_behind;
mod pipeline;

#[derive(Clone, Debug, PartialEq)]
pub struct TaskRow {
    pub id: TaskId,
    pub owner: String,
    pub namespace: String,
    /// In which it waits, the tenant's default included.
    pub queue: Option<String>,
    /// The only one the person wants.
    pub cluster: Option<ClusterName>,
    pub submitted: Timestamp,
    pub spec: TaskSpec,
    pub state: State,
    pub dispatch: Option<Dispatch>,
    pub restarts: u32,
    /// How its nodes ended, once it is over.
    pub nodes: Option<NodeCounts>,
    /// When the state last changed.
    pub changed: Timestamp,
    /// Of a pipeline.
    pub stage: Option<Stage>,
}

impl TaskRow {
    /// What it takes of its tenant's limits.
    pub fn takes(&self) -> Taken {
        let is_placed = self.state.phase != Phase::Pending && !self.state.phase.is_over();
        let dispatch = self.dispatch.as_ref().filter(|_| is_placed);
        dispatch.map_or_else(Taken::default, |dispatch| Taken::by(&self.spec, dispatch.placement.candidate))
    }
}

/// Of a task, beside that it was submitted.
const EVENTS: u32 = 500;

/// What was decided for the current epoch: enough to make the same objects again.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dispatch {
    pub placement: Placement,
    pub gang: Gang,
    pub priority_class: Option<String>,
    pub by_multikueue: bool,
    /// How often it was moved to a cluster with room.
    #[serde(default)]
    pub spills: u32,
    /// Where MultiKueue put it.
    #[serde(default)]
    pub landed: Option<ClusterName>,
    /// Since when it runs, if it does or did before its cluster fell silent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
}

impl Dispatch {
    /// Where its pods are or were, as far as it is known.
    pub fn cluster(&self) -> Option<&ClusterName> {
        if self.by_multikueue { self.landed.as_ref() } else { Some(&self.placement.cluster) }
    }
}

/// The new state of a task and what led to it.
#[derive(Clone, Debug)]
pub struct TaskMove {
    pub id: TaskId,
    /// What the task must still be in.
    pub from: State,
    pub to: State,
    pub dispatch: Option<Dispatch>,
    pub restarts: u32,
    pub nodes: Option<NodeCounts>,
    pub event: Event,
}

/// Tasks as they are now that have moved since some moment, and the moment up to which that is so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    pub tasks: Vec<TaskRow>,
    /// For the next call.
    pub seen: i64,
}

/// Tasks of one person that are not over. All of them are in memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Live {
    pub tasks: u32,
    /// Of their specs, as they are stored.
    pub bytes: u64,
}

impl Live {
    /// What these would add.
    pub fn of<'a>(specs: impl Iterator<Item = &'a TaskSpec>) -> serde_json::Result<Self> {
        let mut live = Self::default();
        for spec in specs {
            live.tasks = live.tasks.saturating_add(1);
            let bytes = u64::try_from(serde_json::to_vec(spec)?.len()).unwrap_or(u64::MAX);
            live.bytes = live.bytes.saturating_add(bytes);
        }
        Ok(live)
    }

    /// Whether that is the most there may be of what is there with what is added.
    pub fn holds(self, there: Self, added: Self) -> bool {
        there.tasks.saturating_add(added.tasks) <= self.tasks
            && there.bytes.saturating_add(added.bytes) <= self.bytes
    }
}

/// What a person hands in: the tasks of one file.
#[derive(Clone, Debug)]
pub struct Submission {
    pub tasks: Vec<TaskRow>,
    /// [`Live::of`] the tasks.
    pub adds: Live,
    /// That the person may have.
    pub most: Live,
    /// By the person.
    pub deed: AuditEntry,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Acceptance {
    Accepted,
    /// An id is taken, so draw another.
    Taken,
    /// With what the person has.
    TooMuch(Live),
    /// What it brings along is not there any more.
    Gone(Digest),
}

/// All tasks where every field is `None`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TaskFilter {
    pub owner: Option<String>,
    /// Whether it is over.
    pub over: Option<bool>,
    /// Whether it is an AppWrapper.
    pub wrapped: Option<bool>,
}

/// Tasks before one, of which that holds, newest first, and without their scripts: those are most of a task, no list shows
/// them, and a page of the longest ones would be a hundred megabytes.
macro_rules! listing {
    ($holds:literal, $wrapped:expr) => {
        match $wrapped {
            None => listing!(concat $holds, ""),
            Some(true) => listing!(concat $holds, " AND json_type(spec, '$.wrapped') IS NOT NULL"),
            Some(false) => listing!(concat $holds, " AND json_type(spec, '$.wrapped') IS NULL"),
        }
    };
    (concat $holds:literal, $more:literal) => {
        concat!(
            "SELECT *, json_replace(spec, '$.run', '', '$.setup', NULL, '$.envs', json('[]'), '$.wrapped.components', \
             json('[]')) AS listed FROM tasks WHERE seq < ?1",
            $holds,
            $more,
            " ORDER BY seq DESC LIMIT ?2"
        )
    };
}

impl TaskFilter {
    /// One for each filter: with one for all, SQLite would use no index.
    fn statement(&self) -> &'static str {
        match (&self.owner, self.over) {
            (None, None) => listing!("", self.wrapped),
            (None, Some(false)) => listing!(" AND over = 0", self.wrapped),
            (None, Some(true)) => listing!(" AND over = 1", self.wrapped),
            (Some(_), None) => listing!(" AND owner = ?3", self.wrapped),
            (Some(_), Some(false)) => listing!(" AND owner = ?3 AND over = 0", self.wrapped),
            (Some(_), Some(true)) => listing!(" AND owner = ?3 AND over = 1", self.wrapped),
        }
    }
}

impl Store {
    /// Accepts a task; returns once it is on the disk. `false`: the id is taken, so draw another.
    pub async fn insert_task(&self, task: &TaskRow) -> Result<bool, StoreError> {
        self.insert_tasks(std::slice::from_ref(task)).await
    }

    /// Accepts tasks, all of them or, where an id is taken, none.
    pub async fn insert_tasks(&self, tasks: &[TaskRow]) -> Result<bool, StoreError> {
        let tasks = tasks.to_vec();
        self.write("accept the task", move |connection| {
            async move {
                let free = are_free(connection, &tasks).await?;
                if free {
                    insert_all(connection, &tasks).await?;
                }
                Ok(free)
            }
            .boxed()
        })
        .await
    }

    /// Accepts what one person hands in, all of it or none, and writes down that they did, in the same commit. What
    /// they have is looked at there too, since many requests may be on their way at once.
    pub async fn submit_tasks(&self, submission: Submission) -> Result<Acceptance, StoreError> {
        let Submission { tasks, adds, most, deed } = submission;
        self.write("accept the task", move |connection| {
            async move {
                if !are_free(connection, &tasks).await? {
                    return Ok(Acceptance::Taken);
                }
                let live = live_of(&deed.who, &mut *connection).await?;
                if !most.holds(live, adds) {
                    return Ok(Acceptance::TooMuch(live));
                }
                let specs = tasks.iter().map(|task| &task.spec);
                if let Some(digest) = uploads::missing(connection, &deed.who, specs).await? {
                    return Ok(Acceptance::Gone(digest));
                }
                insert_all(connection, &tasks).await?;
                audit::append(connection, &deed).await?;
                Ok(Acceptance::Accepted)
            }
            .boxed()
        })
        .await
    }

    /// Moves a task. `false`: it is no longer in `from`, and nothing was changed.
    pub async fn move_task(&self, step: &TaskMove) -> Result<bool, StoreError> {
        let step = step.clone();
        self.write("record the task's move", move |connection| {
            async move {
                leave(connection, &step).await?;
                let moved = sqlx::query(
                    "UPDATE tasks SET state = ?1, over = ?2, dispatch = ?3, restarts = ?4, changed_ms = ?5, nodes = ?6
                     WHERE id = ?7 AND state = ?8 RETURNING seq, id, pipeline, pipeline_name, stage, stages, waits_for",
                )
                .bind(column::json_text(&step.to)?)
                .bind(step.to.phase.is_over())
                .bind(step.dispatch.as_ref().map(column::json_text).transpose()?)
                .bind(step.restarts)
                .bind(step.event.at.as_millisecond())
                .bind(step.nodes.as_ref().map(column::json_text).transpose()?)
                .bind(step.id.as_str())
                .bind(column::json_text(&step.from)?)
                .fetch_optional(&mut *connection)
                .await?;
                let Some(row) = moved else { return Ok(false) };
                append(connection, row.try_get("seq")?, &step.event).await?;
                if let Some(stage) = pipeline::stage(&row)? {
                    follow_up(connection, &stage, &step).await?;
                }
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    /// Stops a task, whatever it does: what is nowhere yet or over ends here, the rest is withdrawn by
    /// whoever dispatches. Of a pipeline, what comes after it is stopped with it, also where it is over itself.
    /// The task as it is then; `None`: there is none.
    pub async fn stop_task(&self, id: &TaskId, now: Timestamp) -> Result<Option<TaskRow>, StoreError> {
        loop {
            let Some(asked) = self.task(id).await? else { return Ok(None) };
            let row = self.first_live(&asked).await?.unwrap_or_else(|| asked.clone());
            let Ok(to) = row.state.clone().next(Move::Stop) else { return Ok(Some(asked)) };
            if to == row.state {
                return Ok(Some(asked));
            }
            let step = TaskMove {
                id: row.id.clone(),
                from: row.state.clone(),
                to: to.clone(),
                dispatch: row.dispatch.clone(),
                restarts: row.restarts,
                nodes: row.nodes,
                event: Event::of(&Move::Stop, &to, now, None),
            };
            if self.move_task(&step).await? {
                return self.task(id).await;
            }
        }
    }

    pub async fn task(&self, id: &TaskId) -> Result<Option<TaskRow>, StoreError> {
        sqlx::query("SELECT * FROM tasks WHERE id = ?1")
            .bind(id.as_str())
            .try_map(|row| task(&row))
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read the task"))
    }

    /// Those of them that are not known: never accepted, or let go of.
    pub async fn unknown_tasks(&self, ids: &BTreeSet<TaskId>) -> Result<BTreeSet<TaskId>, StoreError> {
        let ids: Vec<&str> = ids.iter().map(TaskId::as_str).collect();
        let unknown =
            sqlx::query("SELECT value AS id FROM json_each(?1) WHERE value NOT IN (SELECT id FROM tasks)")
                .bind(serde_json::json!(ids).to_string())
                .try_map(|row| column::name(&row, "id"))
                .fetch_all(self.readers())
                .await
                .map_err(reading("look for tasks"))?;
        Ok(unknown.into_iter().collect())
    }

    /// Newest first, without their scripts and variables.
    pub async fn tasks(&self, filter: &TaskFilter, page: &PageRequest) -> Result<Page<TaskRow>, StoreError> {
        let mut query = sqlx::query(filter.statement()).bind(page.before_id()?).bind(page.probe());
        if let Some(owner) = &filter.owner {
            query = query.bind(owner);
        }
        let rows = query
            .try_map(|row| Ok((row.try_get::<i64, _>("seq")?, task_of(&row, "listed")?)))
            .fetch_all(self.readers())
            .await
            .map_err(reading("list tasks"))?;
        let Page { items, next } = Page::cut(rows, page, |(seq, _)| seq.to_string());
        Ok(Page { items: items.into_iter().map(|(_, task)| task).collect(), next })
    }

    /// Every task that is not over, oldest first: what the daemon goes on with after a start.
    pub async fn live_tasks(&self) -> Result<Vec<TaskRow>, StoreError> {
        sqlx::query("SELECT * FROM tasks WHERE over = 0 ORDER BY seq")
            .try_map(|row| task(&row))
            .fetch_all(self.readers())
            .await
            .map_err(reading("read the live tasks"))
    }

    /// What a person has that is not over.
    pub async fn live_tasks_of(&self, owner: &str) -> Result<Live, StoreError> {
        live_of(owner, self.readers()).await.map_err(reading("count the live tasks"))
    }

    /// Tasks that were accepted or moved since `seen`; from 0 on, all that are not over.
    pub async fn task_changes(&self, seen: i64) -> Result<Changes, StoreError> {
        let failed = || reading("read what became of tasks");
        // First: what moves in between is told again the next time.
        let last: Option<i64> = sqlx::query_scalar("SELECT max(id) FROM task_events")
            .fetch_one(self.readers())
            .await
            .map_err(failed())?;
        let last = last.unwrap_or(0);
        if last <= seen {
            return Ok(Changes { tasks: Vec::new(), seen });
        }
        if seen == 0 {
            return Ok(Changes { tasks: self.live_tasks().await?, seen: last });
        }
        let tasks = sqlx::query(
            "SELECT * FROM tasks WHERE seq IN (SELECT task FROM task_events WHERE ?1 < id) ORDER BY seq",
        )
        .bind(seen)
        .try_map(|row| task(&row))
        .fetch_all(self.readers())
        .await
        .map_err(failed())?;
        Ok(Changes { tasks, seen: last })
    }

    /// Oldest first: a history is read from its beginning.
    pub async fn task_events(&self, id: &TaskId) -> Result<Vec<Event>, StoreError> {
        sqlx::query(
            "SELECT e.* FROM task_events e JOIN tasks t ON t.seq = e.task WHERE t.id = ?1 ORDER BY e.id",
        )
        .bind(id.as_str())
        .try_map(|row| event(&row))
        .fetch_all(self.readers())
        .await
        .map_err(reading("list the task's events"))
    }

    /// Oldest first.
    pub async fn task_event_page(
        &self,
        id: &TaskId,
        page: &PageRequest,
    ) -> Result<Page<(i64, Event)>, StoreError> {
        let rows = sqlx::query(
            "SELECT e.* FROM task_events e JOIN tasks t ON t.seq = e.task WHERE t.id = ?1 AND ?2 < e.id
            ORDER BY e.id LIMIT ?3",
        )
        .bind(id.as_str())
        .bind(page.after_id()?)
        .bind(page.probe())
        .try_map(|row| Ok((row.try_get("id")?, event(&row)?)))
        .fetch_all(self.readers())
        .await
        .map_err(reading("list the task's events"))?;
        Ok(Page::cut(rows, page, |(id, _)| id.to_string()))
    }
}

async fn live_of(owner: &str, from: impl SqliteExecutor<'_>) -> sqlx::Result<Live> {
    let live = sqlx::query("SELECT live, live_bytes FROM task_owners WHERE owner = ?1")
        .bind(owner)
        .try_map(|row| Ok(Live { tasks: row.try_get("live")?, bytes: row.try_get("live_bytes")? }))
        .fetch_optional(from)
        .await?;
    Ok(live.unwrap_or_default())
}

/// Whether no task has one of these ids.
async fn are_free(connection: &mut SqliteConnection, tasks: &[TaskRow]) -> sqlx::Result<bool> {
    for task in tasks {
        let found = sqlx::query("SELECT 1 FROM tasks WHERE id = ?1").bind(task.id.as_str());
        if found.fetch_optional(&mut *connection).await?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn insert_all(connection: &mut SqliteConnection, tasks: &[TaskRow]) -> sqlx::Result<()> {
    for task in tasks {
        let seq = insert(connection, task).await?;
        append(connection, seq, &Event::submitted(task.submitted)).await?;
        uploads::hold(connection, seq, &task.owner, &task.spec).await?;
    }
    Ok(())
}

async fn insert(connection: &mut SqliteConnection, task: &TaskRow) -> sqlx::Result<i64> {
    let stage = task.stage.as_ref();
    sqlx::query_scalar(
        "INSERT INTO tasks (id, owner, namespace, queue, cluster, submitted_ms, spec, state, over, dispatch,
                            restarts, changed_ms, nodes, pipeline, pipeline_name, stage, stages, waits_for)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18) RETURNING seq",
    )
    .bind(task.id.as_str())
    .bind(&task.owner)
    .bind(&task.namespace)
    .bind(&task.queue)
    .bind(task.cluster.as_ref().map(ClusterName::as_str))
    .bind(task.submitted.as_millisecond())
    .bind(column::json_text(&task.spec)?)
    .bind(column::json_text(&task.state)?)
    .bind(task.state.phase.is_over())
    .bind(task.dispatch.as_ref().map(column::json_text).transpose()?)
    .bind(task.restarts)
    .bind(task.changed.as_millisecond())
    .bind(task.nodes.as_ref().map(column::json_text).transpose()?)
    .bind(stage.map(|stage| stage.pipeline.as_str()))
    .bind(stage.and_then(|stage| stage.name.as_deref()))
    .bind(stage.map(|stage| stage.number))
    .bind(stage.map(|stage| stage.of))
    .bind(stage.and_then(|stage| stage.waits_for.as_ref()).map(TaskId::as_str))
    .fetch_one(connection)
    .await
}

/// Something that happened to a live task and moved it nowhere.
pub(super) async fn note(
    connection: &mut SqliteConnection,
    id: &TaskId,
    at: Timestamp,
    reason: Reason,
    message: &str,
) -> sqlx::Result<()> {
    let found = sqlx::query("SELECT seq, state FROM tasks WHERE id = ?1 AND over = 0").bind(id.as_str());
    let Some(row) = found.fetch_optional(&mut *connection).await? else { return Ok(()) };
    let State { phase, epoch } = column::json(&row, "state")?;
    append(connection, row.try_get("seq")?, &Event { at, epoch, phase, reason, message: message.to_owned() })
        .await
}

async fn append(connection: &mut SqliteConnection, seq: i64, event: &Event) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO task_events (task, at_ms, epoch, phase, reason, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(seq)
    .bind(event.at.as_millisecond())
    .bind(event.epoch)
    .bind(column::json_text(&event.phase)?)
    .bind(event.reason.to_string())
    .bind(&event.message)
    .execute(&mut *connection)
    .await?;
    // One that goes to and fro for months leaves no more than this, and its beginning.
    sqlx::query(
        "DELETE FROM task_events WHERE reason <> ?1 AND id =
            (SELECT id FROM task_events WHERE task = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)",
    )
    .bind(Reason::Submitted.to_string())
    .bind(seq)
    .bind(EVENTS)
    .execute(connection)
    .await?;
    Ok(())
}

fn task(row: &SqliteRow) -> sqlx::Result<TaskRow> {
    task_of(row, "spec")
}

fn task_of(row: &SqliteRow, spec: &'static str) -> sqlx::Result<TaskRow> {
    Ok(TaskRow {
        id: column::name(row, "id")?,
        owner: row.try_get("owner")?,
        namespace: row.try_get("namespace")?,
        queue: row.try_get("queue")?,
        cluster: match row.try_get::<Option<&str>, _>("cluster")? {
            Some(_) => Some(column::name(row, "cluster")?),
            None => None,
        },
        submitted: column::time(row, "submitted_ms")?,
        spec: column::json(row, spec)?,
        state: column::json(row, "state")?,
        dispatch: column::optional_json(row, "dispatch")?,
        restarts: row.try_get("restarts")?,
        nodes: column::optional_json(row, "nodes")?,
        changed: column::time(row, "changed_ms")?,
        stage: pipeline::stage(row)?,
    })
}

fn event(row: &SqliteRow) -> sqlx::Result<Event> {
    Ok(Event {
        at: column::time(row, "at_ms")?,
        epoch: row.try_get("epoch")?,
        phase: column::json(row, "phase")?,
        reason: column::name(row, "reason")?,
        message: row.try_get("message")?,
    })
}

#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
